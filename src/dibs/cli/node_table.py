"""What `dibs gpus --on slurm` prints: a table of nodes for people."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dibs.backends.protocol import Node


def node_table(nodes: "Sequence[Node]") -> list[str]:
    """One line for each node, with why it cannot be used."""
    from dibs.backends.nodes import in_words, standing
    from dibs.cli.output import one_line, table, table_width

    rows = []
    for node in nodes:
        stands = standing(node)
        rows.append(
            (
                one_line(node.name, 60),
                one_line(in_words(node.state), 40) if stands == "out" else stands,
                one_line(_gpus(node), 80),
                f"{node.cpus_used}/{node.cpus}",
                _memory(node),
                one_line(",".join(node.groups), 60) or "-",
                one_line(_more(node), 200) or "-",
            )
        )
    headings = ("node", "state", "GPUs", "CPUs", "memory", "partitions", "why")
    return table(headings, rows, width=table_width(), shrink=6, drop=(5, 4, 3))


def _gpus(node: "Node") -> str:
    """`a100 1/2, v100 0/4`; `0/2` where nobody tells the type."""
    shown = [f"{gpus.type} {gpus.used}/{gpus.total}".strip() for gpus in node.gpus]
    return ", ".join(shown) or "none"


def _memory(node: "Node") -> str:
    from dibs.model.units import show_size

    return f"{show_size(node.memory_used)}/{show_size(node.memory)}"


def _more(node: "Node") -> str:
    """Why it cannot be used; of one that can, what its system says beyond how much is used."""
    from dibs.backends.nodes import in_words

    if not node.is_usable:
        return node.reason
    usual = ("idle", "in use", "partly in use")
    return ", ".join(word for word in in_words(node.state).split(", ") if word not in usual)
