"""`dibs gpus --on slurm`: the nodes of a cluster, which is asked without a daemon."""

import os
from collections.abc import Sequence

from dibs.backends import nodes
from dibs.backends.protocol import Node
from dibs.build.slurm import build_backend
from dibs.cli.output import one_line, say, show, show_json, table, table_width
from dibs.model.units import show_size
from dibs.settings import load_settings


def show_nodes(on: str, as_json: bool) -> int:
    """The machines of another system, which is asked without a daemon."""
    found = build_backend(on, os.environ, load_settings(os.environ)).nodes()
    if as_json:
        show_json([nodes.node_object(node) for node in found])
    elif found:
        show("\n".join(_node_table(found)))
    else:
        say(f"dibs: no node to show: {on.capitalize()} has none that you may see")
    return 0


def _node_table(found: Sequence[Node]) -> list[str]:
    """One line for each node, with why it cannot be used."""
    rows = []
    for node in found:
        stands = nodes.standing(node)
        rows.append(
            (
                one_line(node.name, 60),
                one_line(nodes.in_words(node.state), 40) if stands == "out" else stands,
                one_line(_node_gpus(node), 80),
                f"{node.cpus_used}/{node.cpus}",
                _memory(node),
                one_line(",".join(node.groups), 60) or "-",
                one_line(_more(node), 200) or "-",
            )
        )
    headings = ("node", "state", "GPUs", "CPUs", "memory", "partitions", "why")
    return table(headings, rows, width=table_width(), shrink=6, drop=(5, 4, 3))


def _node_gpus(node: Node) -> str:
    """`a100 1/2, v100 0/4`; `0/2` where the type is not known."""
    shown = [f"{gpus.type} {gpus.used}/{gpus.total}".strip() for gpus in node.gpus]
    return ", ".join(shown) or "none"


def _memory(node: Node) -> str:
    return f"{show_size(node.memory_used)}/{show_size(node.memory)}"


def _more(node: Node) -> str:
    """Why it cannot be used; of one that can, what its system says beyond how much is used."""
    if not node.is_usable:
        return node.reason
    usual = ("idle", "in use", "partly in use")
    return ", ".join(word for word in nodes.in_words(node.state).split(", ") if word not in usual)
