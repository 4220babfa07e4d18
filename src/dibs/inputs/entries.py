"""One entry of a job list, a request or an error; and opening a job file."""

import os
from typing import BinaryIO, cast

from dibs.dataclass import dataclass
from dibs.errors import BadInput, DibsError
from dibs.model.jobs import Request

_SHOWN_AT_MOST = 200  # characters


@dataclass(frozen=True, slots=True)
class BadEntry:
    """An invalid line. It becomes one failed job with this message while the others run."""

    shown: str
    message: str
    where: str  # `jobs.txt:12`


Entry = Request | BadEntry


def refuse(shown: str, error: DibsError, where: str) -> BadEntry:
    """The entry for an invalid line."""
    message = f"{error.message}; {error.remedy}" if error.remedy else error.message
    return BadEntry(shorten(shown), message, where)


def shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_AT_MOST else text[: _SHOWN_AT_MOST - 1] + "…"


def open_input(path: str) -> BinaryIO:
    """The job file, open for reading; BadInput where it cannot be read."""
    if not path or "\0" in path:
        raise BadInput(f"cannot read the job file {path!r}", remedy="give the path of a file")
    try:
        return cast(BinaryIO, open(path, "rb"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        remedy = "name the files in it, each with -f" if os.path.isdir(path) else "check its name and permissions"
        raise BadInput(f"cannot read the job file {path!r}: {reason}", remedy=remedy) from error
