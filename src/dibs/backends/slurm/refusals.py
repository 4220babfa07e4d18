"""Why `sbatch` would not have a job: in a sentence, and whether asking again may help."""

import re
from collections.abc import Collection, Sequence

from dibs.backends.slurm.commands import last_line
from dibs.errors import BackendRefused

# The account or the controller has as many jobs as it takes, or a partition is closed: that passes.
_FULL = re.compile(
    r"submit limit|SubmitJob|temporarily unable to accept|job count|maximum number of jobs"
    r"|partition not available",
    re.IGNORECASE,
)


def is_full(text: str) -> bool:
    return bool(_FULL.search(text))


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
    for pattern, why, remedy in _KNOWN:
        if re.search(pattern, text, re.IGNORECASE):
            said = too_much if too_much and has_no_node(text) else why.format_map(_Asked(asked))
            return BackendRefused(f"{cannot}: {said}", remedy=remedy)
    return BackendRefused(f"{cannot}: {last_line(text)}", remedy=f"it was asked for {' '.join(flags)}")


def _type_in(gres: str) -> str:
    """`h200` of `gpu:h200:2`."""
    parts = gres.split(":")
    return parts[1] if len(parts) == 3 else ""


class _Asked(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return self["exclude"] if name == "nodelist" and "exclude" in self else "of the default"


_NO_NODE = r"node configuration is not available"
_KNOWN = (
    (r"invalid partition", "there is no partition {partition}", "`sinfo -s` lists the partitions"),
    (
        r"generic resource|invalid gres|invalid tres",
        "no node has GPUs like {gres}",
        "`sinfo -o '%N %G'` shows what each node has",
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
        "`sinfo -N -o '%N %c %m %G'` shows what each node has; a job of dibs runs on one",
    ),
    (r"invalid license", "there is no licence {licenses}", "`scontrol show licenses` lists them"),
    (r"reservation", "there is no reservation {reservation} for you", "`scontrol show reservation` lists them"),
)
