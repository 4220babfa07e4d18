"""Whether the cluster could ever take a job, and when: from what `sbatch --test-only` says and from its nodes."""

import math
import re
from collections.abc import Callable, Iterable, Sequence

from dibs.backends.protocol import BackendProspect, Node, Wanted
from dibs.backends.slurm.partitions import Partition
from dibs.errors import BackendRefused

_STARTS = re.compile(r"to start at (\d+) using .* on nodes? (\S+)")
_FAR = 400 * 86400.0  # seconds; Slurm's word for never is a date in some centuries
_GIB = 1024**3


def prospect(said: str, now: float) -> BackendProspect:
    """The estimate in Slurm's answer."""
    found = _STARTS.search(said)
    start, node = (float(found[1]), found[2]) if found is not None else (math.inf, "")
    if start > now + _FAR:
        return not_yet("does not know when it could start")
    when = "at once" if start <= now + 60 else f"in about {_span(start - now)}"
    return BackendProspect(sentence=f"it would start {when} on {node}", expected_start=start, node=node)


def not_yet(why: str) -> BackendProspect:
    """One that Slurm takes, and nobody knows when it starts."""
    return BackendProspect(sentence=f"Slurm would take it, but {why}")


def refuse_too_long(time_limit: float, partitions: Sequence[Partition]) -> None:
    """Refuse what the partitions that it may run in never start. Slurm takes it and lets it wait for ever."""
    longest = max((math.inf if one.longest is None else one.longest for one in partitions), default=math.inf)
    if time_limit <= longest:
        return
    names = ", ".join(one.name for one in partitions)
    raise BackendRefused(
        f"cannot run this on Slurm: its time limit of {_span(time_limit)} is above the {_span(longest)} of"
        f" partition {names}",
        remedy="ask for less time, or for another partition: `sinfo -o '%P %l'` lists them",
    )


def what_is_too_much(wanted: Wanted, nodes: Iterable[Node], partitions: Sequence[Partition]) -> str:
    """What no node has, in words; empty where one has it all and only cannot be used at the moment."""
    names = {one.name for one in partitions}
    options = dict(wanted.options)
    only, but = _listed(options.get("nodelist", "")), _listed(options.get("exclude", "")) | set(wanted.avoid)
    there = [node for node in nodes if (not names or names & set(node.groups)) and node.name not in but]
    there = [node for node in there if not only or node.name in only]
    if not there:
        return "no node is left of those that it may use"
    wishes = wanted.wishes
    kind = wishes.gpu_type or ""
    wants: list[tuple[int, Callable[[Node], int], str, Callable[[int], str]]] = [
        (wishes.num_gpus, lambda node: _cards(node, kind), f"{kind} GPUs".strip(), str),
        (wishes.cpus or 0, lambda node: node.cpus, "CPUs", str),
        (wishes.mem or 0, lambda node: node.memory, "of memory", _size),
    ]
    fitting = there
    for number, has, what, shown in wants:
        fitting = [node for node in fitting if has(node) >= number]
        if fitting:
            continue
        most = max(map(has, there), default=0)
        if most >= number:
            return f"no node has {shown(number)} {what} together with the rest that it asks for"
        if not most:
            return f"no node has {what}"
        return f"no node has {shown(number)} {what}; the most is {shown(most)}"
    return ""


def _listed(names: str) -> set[str]:
    """The names of a list; none where it is one of Slurm's short forms, which only Slurm can read."""
    return set() if "[" in names else set(filter(None, names.split(",")))


def _cards(node: Node, kind: str) -> int:
    return sum(gpus.total for gpus in node.gpus if not kind or gpus.type == kind)


def _size(number: int) -> str:
    return f"{number / _GIB:.3g} GiB" if number < 1000 * _GIB else f"{number / _GIB:.0f} GiB"


def _span(seconds: float) -> str:
    minutes = math.ceil(seconds / 60)
    if minutes < 120:
        return f"{minutes} minute{'s' * (minutes != 1)}"
    return f"{minutes / 60:.3g} hours" if minutes < 72 * 60 else f"{minutes / 1440:.3g} days"
