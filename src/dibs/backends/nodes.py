"""How nodes are shown: one state of ours, the same for every backend, and the other system's own in words."""

from collections.abc import Iterable
from typing import Any

from dibs.backends.protocol import Node

STATES = ("free", "used", "full", "out")
# Words of other systems that say little to people; what is not here is shown as it is.
_PLAINER = {
    "alloc": "in use",
    "allocated": "in use",
    "mixed": "partly in use",
    "comp": "cleaning up",
    "completing": "cleaning up",
    "drain": "drained",
    "idle": "idle",
    "maint": "kept for maintenance",
    "maintenance": "kept for maintenance",
    "not_responding": "does not answer",
    "planned": "planned for a job",
    "powered_down": "asleep to save power",
    "powering_down": "falls asleep to save power",
    "powering_up": "wakes up",
    "reserved": "reserved",
}
# One letter behind a state.
_MARKS = {
    "*": "not_responding",
    "~": "powered_down",
    "#": "powering_up",
    "!": "powering_down",
    "%": "powering_down",
    "$": "maintenance",
    "@": "reboot",
    "^": "reboot",
    "-": "planned",
}


def standing(node: Node) -> str:
    """One of STATES: `full` where no card or no CPU is left, `out` where nothing starts."""
    if not node.is_usable:
        return "out"
    total, used = sum(gpus.total for gpus in node.gpus), sum(gpus.used for gpus in node.gpus)
    if (total and used >= total) or (node.cpus and node.cpus_used >= node.cpus):
        return "full"
    return "used" if used or node.cpus_used else "free"


def in_words(state: str) -> str:
    """What the other system says of a node: `idle+drain` as `drained`, `down*` as `down, does not answer`."""
    words: list[str] = []
    for word in state.lower().split("+"):
        bare = word.rstrip("".join(_MARKS))
        words += [bare, *(_MARKS[mark] for mark in word[len(bare) :])]
    if "drain" in words:
        # What it is beside that tells whether something still runs there.
        words = ["draining" if {"mixed", "allocated", "alloc"} & set(words) else "drained"] + [
            word for word in words if word in ("down", "not_responding")
        ]
    return ", ".join(dict.fromkeys(_PLAINER.get(word, word.replace("_", " ")) for word in words if word))


def node_object(node: Node) -> dict[str, Any]:
    """A node as `--json` and the API tell it."""
    return {
        "name": node.name,
        "state": standing(node),
        "says": in_words(node.state),
        "why": node.reason,
        "gpus": [{"type": gpus.type, "total": gpus.total, "used": gpus.used} for gpus in node.gpus],
        "shards": node.shards,
        "cpus": node.cpus,
        "cpus_used": node.cpus_used,
        "memory_bytes": node.memory,
        "memory_used_bytes": node.memory_used,
        "partitions": list(node.groups),
    }


def counts(nodes: Iterable[Node]) -> dict[str, int]:
    """How many nodes stand how."""
    found = dict.fromkeys(STATES, 0)
    for node in nodes:
        found[standing(node)] += 1
    return found
