"""What the daemon answered as an error, as the class that a caller can catch."""

from typing import Any

from dibs import errors
from dibs.errors import DibsError, NoDaemon


class NobodyListens(NoDaemon):
    """There is no daemon at this moment. One may be started."""


class Broken(NoDaemon):
    """The connection ended in the middle of a call. Whether the call was carried out is not known."""


class NoAnswer(NoDaemon):
    """A daemon listens, but has not answered in time."""


def error_of(status: int, body: object) -> DibsError:
    """The error that an answer's `{"error": {"code", "message", "remedy"}}` describes."""
    told = body.get("error") if isinstance(body, dict) else None
    told = told if isinstance(told, dict) else {}
    code = str(told.get("code", "bad-answer"))
    kind: Any = _CLASSES.get(code, DibsError)
    error: DibsError = kind.__new__(kind)
    # By way of the family's own constructor: NoSuchJob's takes a reference, and these words are made already.
    DibsError.__init__(
        error,
        str(told.get("message") or f"the daemon answered with status {status}"),
        remedy=str(told.get("remedy") or ""),
    )
    if kind is DibsError:
        error.code = code
        error.exit_status = 2 if 400 <= status < 500 else 1
    return error


_CLASSES = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, DibsError) and kind is not DibsError
}
