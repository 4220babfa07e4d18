"""Where a job runs: on this machine or on another system."""

from dibs.errors import BadInput
from dibs.model.fields import BY_WORD

LOCAL = "local"  # this machine; a request that was accepted has an empty `on`
SLURM = "slurm"
PLACES = BY_WORD["on"].choices


def parse_place(text: str) -> str:
    """`local` or `slurm`."""
    if text not in PLACES:
        raise BadInput(f"cannot run anything on {text[:60]!r}", remedy=f"there are {', '.join(PLACES)}")
    return text
