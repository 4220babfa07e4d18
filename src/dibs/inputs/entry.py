"""One entry of a job list: a request, or something that cannot be one."""

from dataclasses import dataclass

from dibs.errors import DibsError
from dibs.model.jobs import Request

_SHOWN_AT_MOST = 200  # characters; a line of a megabyte helps nobody in a table


@dataclass(frozen=True, slots=True)
class BadEntry:
    """A line that cannot be a job. It becomes one failed job with this sentence while the others run."""

    shown: str
    message: str
    where: str  # `jobs.txt:12`


Entry = Request | BadEntry


def refuse(shown: str, error: DibsError, where: str) -> BadEntry:
    """The entry that stands for a line in which `error` was found."""
    return BadEntry(shorten(shown), sentence(error), where)


def sentence(error: DibsError) -> str:
    """What is wrong and what to try, in one line."""
    return f"{error.message}; {error.remedy}" if error.remedy else error.message


def shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_AT_MOST else text[: _SHOWN_AT_MOST - 1] + "…"
