"""Where a job runs: on this machine or on another system, and the options that each of them takes."""

import re

from dibs.errors import BadInput
from dibs.model.fields import BY_WORD, FIELDS, Kind

LOCAL = "local"  # this machine; a request that was accepted has an empty `on`
SLURM = "slurm"
PLACES = BY_WORD["on"].choices
# What Slurm is told as it is, by its own words for it.
SLURM_OPTIONS = tuple(field.slurm_word for field in FIELDS if field.kind is Kind.SYSTEM_OPTION)
_VALUE = r"[^\s\x00-\x1f\x7f]{1,300}"  # compiled when it is used


def parse_place(text: str) -> str:
    """`local` or `slurm`."""
    if text not in PLACES:
        raise BadInput(f"cannot run anything on {text[:60]!r}", remedy=f"there are {', '.join(PLACES)}")
    return text


def parse_option(name: str, text: str) -> str:
    """What Slurm is told as its partition, account and so on."""
    if not re.fullmatch(_VALUE, text):
        remedy = "write it without blanks" if text else "leave it out where Slurm's own is meant"
        raise BadInput(f"cannot give Slurm {text[:60]!r} as {name}", remedy=remedy)
    return text
