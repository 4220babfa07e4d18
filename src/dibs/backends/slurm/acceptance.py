"""Whether Slurm would accept a job, and when it would start; or why not, in a sentence."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence, Set

from dibs.backends.protocol import BackendProspect, Node, Resources
from dibs.backends.slurm.controller import last_line
from dibs.backends.slurm.sinfo import Partition, gres_counts
from dibs.backends.slurm.states import named_limit, why_limited
from dibs.dataclass import dataclass
from dibs.errors import BackendRefused
from dibs.model.slurm_options import OF_GPUS, OF_MEMORY, SPREAD

_STARTS = re.compile(r"to start at (\d+) using .* on nodes? (\S+)")
_ANY_NUMBER = 10**9
_LONGEST_NUMBER = 9  # digits
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
    """One that Slurm accepts, without knowing when it starts."""
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


def refuse_closed(account: str, line: Set[str], partitions: Sequence[Partition]) -> None:
    """Refuse partitions of which none admits this account, which stands in this line of accounts.

    Slurm takes such a job and lets it wait for ever.
    """
    if not partitions or any(one.admits(line) for one in partitions):
        return
    named = f"the account {account}" if account else "a user without an account"
    raise BackendRefused(
        f"cannot run this on Slurm: the partition {partitions[0].name} is closed to {named}",
        remedy="name another --partition or --account; `scontrol show partition` shows who may use it",
    )


def what_is_too_much(wanted: Resources, nodes: Iterable[Node], partitions: Sequence[Partition]) -> str:
    """What the nodes do not have, in words; empty where they have it all and only cannot be used at the moment."""
    names = {one.name for one in partitions}
    options = dict(wanted.options)
    only, but = _listed(options.get("nodelist", "")), _listed(options.get("exclude", "")) | set(wanted.avoid)
    there = [node for node in nodes if (not names or names & set(node.groups)) and node.name not in but]
    there = [node for node in there if not only or node.name in only]
    if not there:
        return "no node is left of those that it may use"
    asked = _asked_size(wanted)
    of_partition = max((one.most_nodes or _ANY_NUMBER for one in partitions), default=_ANY_NUMBER)
    allowed = min(of_partition, len(there))
    if asked.least_nodes > allowed:
        whose = "it may use" if allowed < of_partition else f"partition {', '.join(sorted(names))} gives a job"
        return f"it asks for {asked.least_nodes} nodes, and {whose} {allowed}"
    together = min(asked.most_nodes, allowed)
    wants: list[tuple[int, int, Callable[[Node], int], str, Callable[[int], str]]] = [
        (asked.cards, asked.all_cards, lambda node: _cards(node, asked.kind), f"{asked.kind} GPUs".strip(), str),
        (asked.cpus, asked.all_cpus, lambda node: node.cpus, "CPUs", str),
        (asked.memory, 0, lambda node: node.memory, "of memory", _size),
    ]
    fitting = there
    for number, of_all, has, what, shown in wants:
        fitting = [node for node in fitting if has(node) >= number]
        most = max(map(has, there), default=0)
        if not most and max(number, of_all):
            return f"no node has {what}"
        if not fitting and most >= number:
            return f"no node has {shown(number)} {what} together with the rest that it asks for"
        if not fitting:
            return f"no node has {shown(number)} {what}; the most is {shown(most)}"
        of_fitting = sum(sorted(map(has, fitting))[-together:])
        if of_fitting < of_all:
            return f"no {together} nodes have {shown(of_all)} {what} together; the most is {shown(of_fitting)}"
    return ""


@dataclass(frozen=True, slots=True)
class _Size:
    """What a job asks for, of each node and of all of its nodes together."""

    least_nodes: int
    most_nodes: int
    kind: str  # of the cards; empty: any
    cards: int
    all_cards: int
    cpus: int
    all_cpus: int
    memory: int  # bytes


def _asked_size(wanted: Resources) -> _Size:
    """From its wishes, and from options that count more. What cannot be read asks for nothing."""
    wishes, options = wanted.wishes, dict(wanted.options)
    first, _, last = options.get("nodes", "").partition("-")
    least = max(1, _number(first))
    most = (_number(last or first) or _ANY_NUMBER) if SPREAD & options.keys() else 1
    tasks = _number(options.get("ntasks", "")) or least * _number(options.get("ntasks-per-node", "")) or 1
    kind, cards, all_cards = wishes.gpu_type or "", wishes.num_gpus, wishes.num_gpus
    if OF_GPUS & options.keys():
        kind, cards, all_cards = "", 0, 0
        for name in OF_GPUS & options.keys():
            items = options[name] if name == "gres" else f"gpu:{options[name].replace(',', ',gpu:')}"
            counted = {of: number for (what, of), number in gres_counts(items).items() if what == "gpu"}
            number, kind = sum(counted.values()), next(iter(counted)) if len(counted) == 1 else kind
            cards = max(cards, 0 if name == "gpus" else number)
            all_cards = max(all_cards, number * (tasks if name == "gpus-per-task" else 1))
    all_cpus = 0 if "overcommit" in options or tasks == 1 else (wishes.cpus or 1) * tasks
    memory = 0 if OF_MEMORY & options.keys() else wishes.mem or 0
    return _Size(least, most, kind, cards, max(all_cards, least * cards), wishes.cpus or 0, all_cpus, memory)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= _LONGEST_NUMBER else 0


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


# The account or the controller has as many jobs as it takes, or a partition is closed: that passes.
_FULL = re.compile(
    r"submit limit|SubmitJob|temporarily unable to accept|job count|maximum number of jobs"
    r"|partition not available",
    re.IGNORECASE,
)


def is_full(text: str) -> bool:
    """Whether as many jobs are there as may be, which passes. Slurm's last line is the same for every limit."""
    word = named_limit(text)
    return "SubmitJob" in word if word else bool(_FULL.search(text))


def has_no_node(text: str) -> bool:
    """Whether no node is left that may and can take it; one that cannot be used now may be among the others."""
    return bool(re.search(_NO_NODE, text, re.IGNORECASE))


def leaves_none(text: str) -> bool:
    """Whether the nodes that it is to avoid leave no other, or are no nodes any more."""
    return bool(re.search(rf"{_NO_NODE}|invalid node name", text, re.IGNORECASE))


def refusal(text: str, flags: Sequence[str], types: Collection[str] = (), too_much: str = "") -> BackendRefused:
    """One sentence about the flag that is wrong, and where to look. `types` are those of the cluster's GPUs.

    `too_much` is what no node has, where that is known.
    """
    cannot = "cannot run this on Slurm"
    asked = dict(flag.removeprefix("--").partition("=")[::2] for flag in flags)
    if (kind := _type_in(asked.get("gres", ""))) and kind not in types:
        there_are = (
            f"there are {', '.join(sorted(filter(None, types)))}"
            if any(types)
            else "this cluster does not name types"
        )
        return BackendRefused(f"{cannot}: no node has GPUs of type {kind}", remedy=there_are)
    if word := named_limit(text):
        return BackendRefused(f"{cannot}: {why_limited(word)}", remedy=_LIMITS)
    for pattern, why, remedy in _KNOWN:
        if re.search(pattern, text, re.IGNORECASE) and not ("{gres}" in why and "gres" not in asked):
            said = too_much if too_much and has_no_node(text) else why.format_map(_Asked(asked))
            return BackendRefused(f"{cannot}: {said}", remedy=remedy)
    return BackendRefused(f"{cannot}: {_telling_line(text)}", remedy=f"it was asked for {' '.join(flags)}")


def _telling_line(text: str) -> str:
    """What Slurm says about this job; at last it often says only what kind of fault that is."""
    telling = [line for line in text.splitlines() if "error: " in line or "unrecognized option" in line]
    return last_line(telling[0] if telling else text)


def _type_in(gres: str) -> str:
    """`h200` of `gpu:h200:2`."""
    parts = gres.split(":")
    return parts[1] if len(parts) == 3 else ""


class _Asked(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return self["exclude"] if name == "nodelist" and "exclude" in self else "of the default"


_LIMITS = "`sacctmgr show associations` and `sacctmgr show qos` list the limits"
_NO_NODE = r"node configuration is not available"
_KNOWN = (
    (r"invalid partition", "there is no partition {partition}", "`sinfo -s` lists the partitions"),
    (
        r"generic resource|invalid gres|invalid tres",
        "no node has GPUs like {gres}",
        "`sinfo -o '%N %G'` shows what each node has",
    ),
    (
        r"group not permitted",
        "the partition {partition} is closed to your groups",
        "`scontrol show partition` shows who may use it",
    ),
    (r"invalid account", "you cannot use the account {account} here", "`sacctmgr show associations` lists yours"),
    (r"invalid qos", "there is no QOS {qos} for you", "`sacctmgr show qos` lists them"),
    (r"invalid feature", "no node has the feature {constraint}", "`sinfo -o '%N %f'` shows what each node has"),
    (
        r"invalid number of nodes",
        "Slurm would give it all nodes of {nodelist}, and a job of dibs runs on one",
        "name one node, or those that it must not have: --exclude",
    ),
    (r"invalid node name", "there is no such node: {nodelist}", "`sinfo -N` lists the nodes"),
    (
        r"time limit",
        "its time limit of {time} minutes is not allowed",
        "`sinfo -o '%P %l'` shows how long jobs of each partition may run",
    ),
    (
        rf"{_NO_NODE}|memory specification|more processors",
        "no node has as much as it asks for",
        "`sinfo -N -o '%N %c %m %G'` shows what each node has; without --nodes a job of dibs runs on one",
    ),
    (r"invalid license", "there is no licence {licenses}", "`scontrol show licenses` lists them"),
    (r"reservation", "there is no reservation {reservation} for you", "`scontrol show reservation` lists them"),
)
