"""The store's file: created completely or not at all, checked before it is opened, never overwritten."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from errno import EIO

from dibs.dataclass import dataclass
from dibs.errors import FolderInUse, StoreUnusable
from dibs.files import sync_folder

# Until the first release there is one schema, schema.sql, and a store of any other version is refused.
SCHEMA_VERSION = 13
LEFT_UNCHANGED = "the file was left as it is; restore it from a backup, or start another run"
# SQLite may quote a damaged name that is not UTF-8; Python then fails to decode SQLite's message.
READ_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)
_SIGNATURE = b"SQLite format 3\0"
_QUICKLY_CHECKED = 64 * 1024**2  # bytes; a check reads every page: a tenth of a second for this size
_LONGEST_CHECK = 10.0  # seconds


def open_file(path: str, changes: str = "") -> sqlite3.Connection:
    """The one connection to a store, ready for use; StoreUnusable or FolderInUse if it cannot be opened.

    A file that is created has the schema with these changes.
    """
    if not os.path.exists(path):
        _create(path, changes)
    elif _check_header(path) <= _QUICKLY_CHECKED:
        _check_pages(path)
    db = sqlite3.connect(path, timeout=1.0, isolation_level=None, cached_statements=256)
    try:
        db.execute("pragma locking_mode = exclusive")
        db.execute("pragma journal_mode = wal")
        # FULL, not NORMAL: what was acknowledged must survive a power cut.
        db.execute("pragma synchronous = full")
        db.execute("pragma temp_store = file")
        db.execute("pragma wal_autocheckpoint = 4000")  # pages: 16 MB, a checkpoint is two more syncs
        _check_version(path, *db.execute("pragma user_version").fetchone())  # the log may have another one
    except READ_ERRORS as error:
        db.close()
        raise unusable(path, error) from error
    except BaseException:
        db.close()
        raise
    return db


def unusable(path: str, error: Exception) -> StoreUnusable | FolderInUse:
    if isinstance(error, UnicodeDecodeError):
        return StoreUnusable(f"cannot use {path}: it is damaged", remedy=LEFT_UNCHANGED)
    if "locked" in str(error):
        return FolderInUse(f"cannot open {path}: another dibs works with it", remedy="wait for it to end")
    said = " ".join(str(error).split())  # a damaged schema is quoted with its line breaks
    return StoreUnusable(
        f"cannot use {path}: {said}", remedy="check the disk (`df -h`); the file was left as it is"
    )


# -- inspection without changes ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreInspection:
    """The result of inspecting a store."""

    version: int = 0  # of the schema
    jobs: int = 0
    problem: str = ""  # why it cannot be used, or not be read now
    is_damaged: bool = False  # its content is the problem, not its disk or its owner
    is_complete: bool = True  # False if there was no time to read every page


def inspect_store(path: str, *, seconds: float = _LONGEST_CHECK) -> StoreInspection:
    """Read every page, for at most so many seconds. Only while no other process has the store open."""
    try:
        with open(path, "rb") as file:
            if file.read(len(_SIGNATURE)) != _SIGNATURE:
                return StoreInspection(problem="it is not a store", is_damaged=True)
        with read_only(path, timeout=0.5) as db:
            return _inspect(db, seconds)
    except OSError as error:
        return StoreInspection(problem=error.strerror or str(error), is_damaged=error.errno == EIO)
    except READ_ERRORS as error:
        return StoreInspection(problem=" ".join(str(error).split()), is_damaged=_is_damage(error))


def _inspect(db: sqlite3.Connection, seconds: float) -> StoreInspection:
    (version,) = db.execute("pragma user_version").fetchone()
    (jobs,) = db.execute("select count(*) from jobs").fetchone()
    until = time.monotonic() + seconds
    db.set_progress_handler(lambda: time.monotonic() > until, 10_000)
    try:
        (found,) = db.execute("pragma quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        return StoreInspection(version, jobs, is_complete=False)
    problem = "" if found == "ok" else " ".join(found.split())
    return StoreInspection(version, jobs, problem, is_damaged=bool(problem))


def _is_damage(error: Exception) -> bool:
    """Not a full disk: SQLite needs room even to read, for the index of its log."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)  # a message that is not UTF-8 has none
    is_of_disk = code & 0xFF in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN)
    return not is_of_disk or code in (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ)


@contextmanager
def read_only(path: str, *, timeout: float = 1.0) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write. Any other writes the log into the file when it closes, a damaged log too.

    Only while no other process has the store open: that process has locked it.
    """
    made = [name for name in (f"{path}-shm", f"{path}-wal") if not os.path.lexists(name)]
    # Not by urllib, whose import takes some milliseconds: SQLite needs only these three characters quoted.
    quoted = os.path.abspath(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    try:
        with closing(sqlite3.connect(f"file:{quoted}?mode=ro", uri=True, timeout=timeout)) as db:
            yield db
    finally:
        for name in made:  # SQLite makes an index and an empty log, and does not remove them
            with suppress(OSError):
                if name.endswith("-shm") or not os.path.getsize(name):
                    os.unlink(name)


# -- creating and checking ---------------------------------------------------------------------------------


def _create(path: str, changes: str) -> None:
    """Create the file completely or not at all, so that an empty one is always a damaged one."""
    new = f"{path}.{os.getpid()}.new"
    try:
        with open(os.path.join(os.path.dirname(__file__), "schema.sql")) as file:
            schema = file.read()
        fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)  # the umask may have removed more
            with closing(sqlite3.connect(new, isolation_level=None)) as db:
                db.execute("pragma synchronous = off")  # first: the file is synced as a whole below
                db.execute("pragma journal_mode = wal")
                db.executescript(f"begin; {schema}; {changes}; pragma user_version = {SCHEMA_VERSION}; commit;")
            os.fsync(fd)
            try:
                os.link(new, path)
            except FileExistsError:
                pass  # another process was faster
            except OSError:  # a file system without links
                os.rename(new, path)
        finally:
            os.close(fd)
            with suppress(FileNotFoundError):
                os.unlink(new)
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise StoreUnusable(
            f"cannot make {path}: {error.strerror}", remedy="check the disk (`df -h`) and who owns the folder"
        ) from error
    except sqlite3.DatabaseError as error:
        raise unusable(path, error) from error


def _check_header(path: str) -> int:
    """Refuse, without opening it in SQLite, a file that this version of dibs did not write; return its size."""
    try:
        with open(path, "rb") as file:
            header = file.read(100)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise StoreUnusable(f"cannot open {path}: {error.strerror}", remedy="see who owns it") from error
    if not header.startswith(_SIGNATURE):
        what = "it is not a store" if header else "it is empty, but a store never is"
        raise StoreUnusable(f"cannot use {path}: {what}", remedy=LEFT_UNCHANGED)
    _check_version(path, int.from_bytes(header[60:64], "big"))
    return size


def _check_pages(path: str) -> None:
    try:
        with read_only(path) as db:
            (found,) = db.execute("pragma quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(f"it is damaged ({found})")
    except READ_ERRORS as error:
        raise unusable(path, error) from error


def _check_version(path: str, version: int) -> None:
    if version < 1:
        raise StoreUnusable(f"cannot use {path}: it is not a store of dibs", remedy=LEFT_UNCHANGED)
    if version != SCHEMA_VERSION:
        raise StoreUnusable(
            f"cannot open {path}: another version of dibs wrote it"
            f" (its schema is {version}, this version needs {SCHEMA_VERSION})",
            # The whole folder: without its store the journal in it would be refused, too.
            remedy=f"use that version again, or move {os.path.dirname(path)} away to start without its jobs",
        )
