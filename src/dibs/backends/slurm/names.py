"""Our identity as the name of a Slurm job, and back.

`dibs-k3f9-17.1` is the first attempt of job 17. The elements of an array share the array's name and are told apart
by Slurm's task number; where that may not be as high as ours, the name says what to add: `dibs-k3f9-17+1000.1`.
"""

import re
from dataclasses import dataclass

_NAME = re.compile(r"dibs-([A-Za-z0-9-]{1,80})(?:_([0-9]{1,9})|\+([0-9]{1,9}))?\.([0-9]{1,6})")


@dataclass(frozen=True, slots=True)
class JobName:
    """What is called so over there: a job, or the elements of an array from `offset` on."""

    base: str
    attempt: int
    task: int | None = None  # an element that is a job by itself: a retry
    offset: int = 0

    def __str__(self) -> str:
        more = f"_{self.task}" if self.task is not None else f"+{self.offset}" if self.offset else ""
        return f"dibs-{self.base}{more}.{self.attempt}"


def split_key(key: str) -> tuple[str, int | None]:
    """The array's key and the element, or the key and None."""
    base, underscore, task = key.partition("_")
    return base, int(task) if underscore else None


def identity(name: str, task: int | None) -> tuple[str, int] | None:
    """The key and attempt of a Slurm job with this name and task number; None for jobs that are not ours."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    base, element, offset, attempt = match.groups()
    if task is not None:
        return None if element else (f"{base}_{task + int(offset or 0)}", int(attempt))
    if offset:
        return None
    return (f"{base}_{element}" if element else base), int(attempt)
