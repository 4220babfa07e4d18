"""Looking at a store without changing it."""

import sqlite3
import time
from dataclasses import dataclass

from dibs.store.file import SICK, _migrations
from dibs.store.reading import read_only

_LONGEST = 10.0  # seconds; every page is read, and some stores have many


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at a store found."""

    version: int = 0  # of the schema
    jobs: int = 0
    problem: str = ""  # why it cannot be used
    is_whole: bool = True  # False where there was no time to look at every page


def look_at_store(path: str, *, seconds: float = _LONGEST) -> Looked:
    """Read every page, in as many seconds as there are. Only while nobody works with it."""
    try:
        with open(path, "rb") as file:
            if not file.read(16).startswith(b"SQLite format 3\0"):
                return Looked(problem="it is no store")
        with read_only(path, patience=0.5) as db:
            return _look(db, seconds)
    except OSError as error:
        return Looked(problem=error.strerror or str(error))
    except SICK as error:
        return Looked(problem=" ".join(str(error).split()))


def known_schema() -> int:
    """The newest schema that this version knows."""
    return len(_migrations())


def _look(db: sqlite3.Connection, seconds: float) -> Looked:
    (version,) = db.execute("pragma user_version").fetchone()
    (jobs,) = db.execute("select count(*) from jobs").fetchone()
    until = time.monotonic() + seconds
    db.set_progress_handler(lambda: time.monotonic() > until, 10_000)
    try:
        (found,) = db.execute("pragma quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        return Looked(version, jobs, is_whole=False)
    return Looked(version, jobs, "" if found == "ok" else " ".join(found.split()))
