"""A look into a store's file that leaves everything beside and inside it as it was."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress


@contextmanager
def read_only(path: str, *, patience: float = 1.0) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write. Any other puts the log into the file as it closes, a damaged one too.

    Only while nobody works with the store; whoever does has locked it.
    """
    made = [name for name in (f"{path}-shm", f"{path}-wal") if not os.path.lexists(name)]
    # By hand: urllib takes some milliseconds, and these three are all that SQLite would misread.
    quoted = os.path.abspath(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    address = f"file:{quoted}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=patience)) as db:
            yield db
    finally:
        for name in made:  # SQLite makes an index and an empty log for us, and forgets them
            with suppress(OSError):
                if name.endswith("-shm") or not os.path.getsize(name):
                    os.unlink(name)
