"""Nodes as `sinfo` shows them, in columns of fixed width as for `squeue`, and partitions as `scontrol` does."""

import re
from collections.abc import Sequence, Set
from dataclasses import replace

from dibs.backends.protocol import Node, NodeGpus
from dibs.dataclass import dataclass

_COLUMNS = (
    ("NodeList", 64),
    ("Partition", 64),
    ("StateComplete", 64),
    ("CPUsState", 40),
    ("Memory", 24),
    ("AllocMem", 24),
    ("Gres", 200),
    ("GresUsed", 200),
    ("Reason", 160),
)
NODE_FORMAT = ",".join(f"{name}:{width}" for name, width in _COLUMNS)
_MIB = 1024 * 1024
_UNUSABLE = frozenset({"down", "drain", "drained", "draining", "fail", "failing", "error", "unknown", "future"})
# `~` asleep to save power, `*` does not answer, `#` wakes up, and so on.
_MARKS = "*~#!%$@^-"


def parse_nodes(output: bytes) -> tuple[Node, ...]:
    """One node for each name, in Slurm's order; a node may stand in several partitions."""
    found: dict[str, Node] = {}
    for line in output.splitlines():
        cells = []
        start = 0
        for _, width in _COLUMNS:
            cells.append(line[start : start + width].decode("utf-8", "replace").strip())
            start += width
        name, partition, state, cpus, memory, memory_used, gres, used, reason = cells
        partition = partition.rstrip("*")
        if not name:
            continue
        if name in found:
            found[name] = _in_another(found[name], partition)
            continue
        counts = gres_counts(gres)
        in_use = gres_counts(used)
        allocated, _, _, total = (int(part) if part.isdecimal() else 0 for part in (cpus + "///").split("/")[:4])
        why = "" if reason in ("none", "(null)") else reason
        found[name] = Node(
            name=name,
            state=state,
            is_usable=_is_usable(state),
            reason=why or ("it does not answer" if "*" in state or "not_responding" in state else ""),
            gpus=tuple(
                NodeGpus(type=kind, total=number, used=_used(in_use, kind, single=len(counts) == 1))
                for (what, kind), number in counts.items()
                if what == "gpu"
            ),
            shards=sum(number for (what, _), number in counts.items() if what == "shard"),
            cpus=total,
            cpus_used=allocated,
            memory=_MIB * int(memory) if memory.isdecimal() else 0,
            memory_used=_MIB * int(memory_used) if memory_used.isdecimal() else 0,
            groups=(partition,) if partition else (),
        )
    return tuple(found.values())


def _in_another(node: Node, partition: str) -> Node:
    return replace(node, groups=tuple(dict.fromkeys((*node.groups, partition))))


def _is_usable(state: str) -> bool:
    words = state.lower().split("+")
    return not any(word.strip(_MARKS) in _UNUSABLE or "*" in word or word == "not_responding" for word in words)


def gres_counts(gres: str) -> dict[tuple[str, str], int]:
    """`gpu:a100:2(S:0-1),shard:8` as {(gpu, a100): 2, (shard, ""): 8}."""
    found: dict[tuple[str, str], int] = {}
    for item in re.sub(r"\([^)]*\)?", "", gres).split(","):
        what, *rest = item.strip().split(":")
        if not rest or not rest[-1].isdecimal():
            continue
        kind = rest[0] if len(rest) > 1 else ""
        found[what, kind] = found.get((what, kind), 0) + int(rest[-1])
    return found


def _used(counts: dict[tuple[str, str], int], kind: str, *, single: bool) -> int:
    """Some versions name the type of a card that is used, `(null)` for none, and some do not."""
    exact = counts.get(("gpu", kind), 0) + (counts.get(("gpu", "(null)"), 0) if not kind else 0)
    return exact or (counts.get(("gpu", ""), 0) if single else 0)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, as far as a job must know it."""

    name: str
    is_default: bool
    longest: float | None  # seconds that a job may run; None: no limit
    is_up: bool = True  # it starts jobs
    accounts: frozenset[str] | None = None  # that may use it; None: all but those of `not_accounts`
    not_accounts: frozenset[str] = frozenset()
    most_nodes: int | None = None  # that it gives a job; None: no limit

    def admits(self, accounts: Set[str]) -> bool:
        """Whether it admits one of these. A list of Slurm's stands for the parts of its accounts too."""
        return not accounts & self.not_accounts if self.accounts is None else bool(accounts & self.accounts)


def parse_partitions(output: bytes) -> tuple[Partition, ...]:
    """One line for each, as `scontrol -o` writes it."""
    found = []
    for line in output.decode("utf-8", "replace").splitlines():
        cells = dict(word.partition("=")[::2] for word in line.split())
        if "PartitionName" in cells:
            longest = _seconds(cells.get("MaxTime", ""))
            is_up = cells.get("State", "UP") == "UP"
            allowed, denied = cells.get("AllowAccounts", "ALL"), cells.get("DenyAccounts", "")
            most_nodes = cells.get("MaxNodes", "")
            found.append(
                Partition(
                    cells["PartitionName"],
                    cells.get("Default") == "YES",
                    longest,
                    is_up,
                    None if allowed == "ALL" else frozenset(allowed.lower().split(",")),
                    frozenset(filter(None, denied.lower().split(","))),
                    int(most_nodes) if most_nodes.isdecimal() else None,
                )
            )
    return tuple(found)


def chosen_partitions(partitions: Sequence[Partition], named: str) -> tuple[Partition, ...]:
    """Those that a job with this option may run in: several may be named, and without any it is the default."""
    names = set(filter(None, named.split(",")))
    return tuple(one for one in partitions if one.name in names or (not names and one.is_default))


def _seconds(text: str) -> float | None:
    """`2-00:10:00`, `01:30:00`, `10:00`; `UNLIMITED` is none."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
