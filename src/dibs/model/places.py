"""Where a job runs: on this machine or on another system, and the options that each of them takes."""

import re
from typing import TYPE_CHECKING

from dibs.errors import BadInput
from dibs.model.fields import BY_KEY, BY_WORD, FIELDS, Kind

if TYPE_CHECKING:
    from dibs.model.jobs import Request  # not needed to parse a place, and slow to import

LOCAL = "local"  # this machine; a request that was accepted has an empty `on`
SLURM = "slurm"
PLACES = BY_WORD["on"].choices
# What Slurm is told as it is, by its own words for it.
SLURM_OPTIONS = tuple(field.slurm_word for field in FIELDS if field.kind is Kind.SYSTEM_OPTION)
_VALUE = re.compile(r"[^\s\x00-\x1f\x7f]{1,300}")
_HERE = "or run it here: --on local"
_NOT_ON_SLURM = tuple(field for field in BY_KEY.values() if not field.on_slurm)


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
    for field in _NOT_ON_SLURM:
        if field.value_in(request) != field.default:
            message, remedy = field.refusal
            raise BadInput(message, remedy=f"{remedy}, {_HERE}")
