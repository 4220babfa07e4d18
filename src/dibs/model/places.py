"""Where a job runs: on this machine, or handed to another system. What each of them can be told, and what not."""

import re
from typing import TYPE_CHECKING

from dibs.errors import BadInput

if TYPE_CHECKING:
    from dibs.model.jobs import Request

LOCAL = "local"  # this machine, as people say it; a request that was accepted has an empty `on`
SLURM = "slurm"
PLACES = (LOCAL, SLURM)
# What Slurm is told as it is, by its own words for it. The others are known, and not shown in --help.
SHOWN_OPTIONS = ("partition", "account", "qos", "constraint")
SLURM_OPTIONS = (*SHOWN_OPTIONS, "reservation", "exclude", "nodelist", "licenses", "mail-user", "mail-type")
_VALUE = re.compile(r"[^\s\x00-\x1f\x7f]{1,300}")
_HERE = "or run it here: --on local"


def parse_place(text: str) -> str:
    """`local` or `slurm`."""
    if text not in PLACES:
        raise BadInput(f"cannot run anything on {text[:60]!r}", remedy=f"there are {', '.join(PLACES)}")
    return text


def parse_option(name: str, text: str) -> str:
    """What Slurm is told as its partition, account and so on."""
    if not _VALUE.fullmatch(text):
        remedy = "write it without blanks" if text else "leave it out where Slurm's own is meant"
        raise BadInput(f"cannot give Slurm {text[:60]!r} as {name}", remedy=remedy)
    return text


def check_place(request: "Request") -> None:
    """Raise BadInput for a request that makes no sense where it is to run."""
    if not request.on:
        for name, _ in request.on_options:
            raise BadInput(
                f"cannot use {name} for a job that runs on this machine: it is for Slurm",
                remedy="--on slurm runs it there; or leave it out",
            )
        return
    for name, value in request.on_options:
        if name not in SLURM_OPTIONS:
            raise BadInput(
                f"cannot tell Slurm about {name[:60]!r}", remedy=f"dibs passes on {', '.join(SLURM_OPTIONS)}"
            )
        parse_option(name, value)
    wishes = request.wishes
    if wishes.only or wishes.prefer:
        raise BadInput(
            "cannot ask Slurm for a GPU by its number",
            remedy=f"ask for a type (--gpu-type) or a node (--nodelist), {_HERE}",
        )
    if wishes.shape:
        raise BadInput(
            "cannot learn on Slurm how much GPU memory jobs need", remedy=f"say it, as in --vram 12G, {_HERE}"
        )
    if request.warm:
        raise BadInput("cannot keep a warm process on Slurm", remedy=f"leave out --warm, {_HERE}")
    if request.bind:
        raise BadInput(
            "cannot choose the CPUs of a job on Slurm: Slurm does that", remedy=f"leave out --bind, {_HERE}"
        )
