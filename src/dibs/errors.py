"""Every error a person may meet, in one family.

A message says what could not be done, to what and why; the remedy says what to try. Only `cli/main.py`
turns an error into words and an exit status.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class DibsError(Exception):
    """Something a person can understand and do something about."""

    code = "error"
    exit_status = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        if remedy:
            self.add_note(remedy)  # the last line of a traceback in a user's own program


class BadInput(DibsError):
    """What was typed, or written in a file, cannot be meant. Nothing has changed."""

    code = "bad-input"
    exit_status = 2

    def __init__(self, message: str, *, remedy: str = "", field: str = "") -> None:
        """`field` is the part of the request that is meant, as `parameters.0`, where it is known."""
        super().__init__(message, remedy=remedy)
        self.field = field


@contextmanager
def about(field: str) -> Iterator[None]:
    """Name the part of the request in a BadInput that is raised in this context and does not name it."""
    try:
        yield
    except BadInput as error:
        error.field = error.field or field
        raise


class NoGpu(DibsError):
    """This machine has no GPU that dibs may use."""

    code = "no-gpu"
    exit_status = 2


class NoGpuNow(DibsError):
    """Every GPU is taken, and the caller did not want to wait."""

    code = "no-gpu-now"
    exit_status = 75


class NotAllowed(DibsError):
    """It belongs to another user."""

    code = "not-allowed"
    exit_status = 77


class FolderInUse(DibsError):
    """Another process works in this folder at this moment."""

    code = "folder-in-use"
    exit_status = 2


class StoreUnusable(DibsError):
    """The store cannot be read or written; it was left as it is."""

    code = "store-unusable"


class NoSuchJob(DibsError):
    """There is no job with that number or name."""

    code = "no-such-job"

    def __init__(self, reference: object) -> None:
        super().__init__(f"cannot find job {reference}", remedy="`dibs ls --all` lists every job of this queue")


class NoSuchSweep(DibsError):
    """There is no sweep with that number or name."""

    code = "no-such-sweep"

    def __init__(self, reference: object) -> None:
        super().__init__(f"cannot find sweep {reference}", remedy="`dibs sweep ls` lists every sweep there is")


class LogGone(DibsError):
    """What an attempt wrote was removed to make room."""

    code = "log-gone"

    def __init__(self, job: int) -> None:
        super().__init__(
            f"the output of job {job} was removed to make room",
            remedy="the setting keep_logs says how much is kept; `dibs info` shows how a job ended",
        )


class LogReplaced(DibsError):
    """Something else is in the place of the file that an attempt wrote to."""

    code = "log-replaced"

    def __init__(self, job: int, path: str, what: str) -> None:
        super().__init__(
            f"cannot show the output of job {job}: {path} was replaced, {what}",
            remedy="`ls -l` shows what is there; jobs can change the files in their folders",
        )


class Conflict(DibsError):
    """It is too late for this, or too early."""

    code = "conflict"


class NoDaemon(DibsError):
    """No daemon listens, and none could be started."""

    code = "no-daemon"
    exit_status = 69


class BackendMissing(DibsError):
    """The other system is not installed here, or not set up."""

    code = "no-backend"
    exit_status = 69


class BackendSilent(DibsError):
    """The other system does not answer at the moment. Nothing is known, and nothing has changed."""

    code = "backend-silent"
    exit_status = 75


class BackendRefused(DibsError):
    """The other system will not have this job, however often it is asked."""

    code = "backend-refused"
    exit_status = 2
