"""daemon.log: one line for each notable event, at most two megabytes with its older file."""

import logging
import os
import sys
import time
from logging.handlers import RotatingFileHandler

_LARGEST = 1024**2  # bytes; one older file is kept
_FORMAT = "%(asctime)s %(message)s"

log = logging.getLogger("dibs.daemon")


def open_log(path: str, *, also_on_stderr: bool) -> None:
    """Write log messages to this file from now on, with the tracebacks of bugs."""
    handlers: list[logging.Handler] = [
        _PrivateFile(path, maxBytes=_LARGEST, backupCount=1, encoding="utf-8", delay=True)
    ]
    if also_on_stderr:
        handlers.append(logging.StreamHandler(sys.stderr))
    form = logging.Formatter(_FORMAT, "%Y-%m-%dT%H:%M:%SZ")
    form.converter = time.gmtime
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    for handler in handlers:
        handler.setFormatter(form)
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("dibs").setLevel(logging.INFO)
    # A bad request has been answered; it does not belong in this log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    logging.raiseExceptions = False  # a full disk must not fill stderr with complaints about it


class _PrivateFile(RotatingFileHandler):
    """Escapes text that is not UTF-8, and makes the file unreadable for other users."""

    def _open(self):  # type: ignore[no-untyped-def]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self.baseFilename, flags, 0o600)
        return open(fd, "a", encoding="utf-8", errors="backslashreplace")
