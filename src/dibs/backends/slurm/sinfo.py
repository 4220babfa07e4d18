"""What `sinfo` says about nodes. Columns of fixed width, as for `squeue`."""

import re
from dataclasses import replace

from dibs.backends.protocol import Node, NodeGpus

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
FORMAT = ",".join(f"{name}:{width}" for name, width in _COLUMNS)
_MIB = 1024 * 1024
_UNUSABLE = frozenset({"down", "drain", "drained", "draining", "fail", "failing", "error", "unknown", "future"})
# `~` asleep to save power, `*` does not answer, `#` wakes up, and so on.
_MARKS = "*~#!%$@^-"


def parse(output: bytes) -> tuple[Node, ...]:
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
        counts = _counts(gres)
        in_use = _counts(used)
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


def _counts(gres: str) -> dict[tuple[str, str], int]:
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
