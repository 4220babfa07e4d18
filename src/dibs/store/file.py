"""The store's file: made whole or not at all, checked before it is touched, never overwritten."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from importlib import resources

from dibs.errors import FolderInUse, StoreUnusable
from dibs.store.reading import read_only

LEFT_AS_IT_IS = "the file was left as it is; take it back from a backup, or begin another run"
# SQLite's own complaint about a damaged name may be no UTF-8, and then Python falls over the complaint.
SICK = (sqlite3.DatabaseError, UnicodeDecodeError)
_QUICKLY_CHECKED = 64 * 1024**2  # bytes; a check reads every page: a tenth of a second for as many as this


def open_file(path: str) -> sqlite3.Connection:
    """The one connection to a store, ready for use; StoreUnusable or FolderInUse where that cannot be."""
    known = _migrations()
    if not os.path.exists(path):
        _create(path, known)
    if _check_header(path, len(known)) <= _QUICKLY_CHECKED:
        _check_pages(path)
    db = sqlite3.connect(path, timeout=1.0, isolation_level=None, cached_statements=256)
    try:
        db.execute("pragma locking_mode = exclusive")
        db.execute("pragma journal_mode = wal")
        # FULL, not NORMAL: what was acknowledged must survive a power cut.
        db.execute("pragma synchronous = full")
        db.execute("pragma temp_store = file")
        db.execute("pragma wal_autocheckpoint = 4000")  # pages: 16 MB, a checkpoint is two more syncs
        (version,) = db.execute("pragma user_version").fetchone()
        if not 0 < version <= len(known):  # the header did not know yet what stands in the log
            raise _unknown_version(path, version, len(known))
        if version < len(known):
            _keep_as_it_was(db, path, version)
            _apply(db, known, version)
    except SICK as error:
        db.close()
        raise unusable(path, error) from error
    except BaseException:
        db.close()
        raise
    return db


def unusable(path: str, error: Exception) -> StoreUnusable | FolderInUse:
    if isinstance(error, UnicodeDecodeError):
        return StoreUnusable(f"cannot use {path}: it is damaged", remedy=LEFT_AS_IT_IS)
    if "locked" in str(error):
        return FolderInUse(f"cannot open {path}: another dibs works with it", remedy="wait for it to end")
    said = " ".join(str(error).split())  # a damaged schema is quoted with its line breaks
    return StoreUnusable(
        f"cannot use {path}: {said}", remedy="check the disk (`df -h`); the file was left as it is"
    )


def _migrations() -> list[str]:
    folder = resources.files("dibs.store") / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [file.read_text() for file in files]


def _apply(db: sqlite3.Connection, migrations: Sequence[str], version: int) -> None:
    for number, text in enumerate(migrations[version:], version + 1):
        db.executescript(f"begin; {text}; pragma user_version = {number}; commit;")


def _keep_as_it_was(db: sqlite3.Connection, path: str, version: int) -> None:
    """A copy from before the change, for whoever goes back to the version before."""
    copy = _before(path, version)
    if os.path.exists(copy):
        return
    new = f"{copy}.{os.getpid()}.new"
    os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(new)) as target:
        db.backup(target)
    os.replace(new, copy)


def _before(path: str, version: int) -> str:
    return f"{path}.schema-{version}"


def _create(path: str, migrations: Sequence[str]) -> None:
    """Make the file whole or not at all, for our eyes only: then one of no bytes is always a damaged one."""
    new = f"{path}.{os.getpid()}.new"
    try:
        fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)  # whatever the umask took away
            with closing(sqlite3.connect(new, isolation_level=None)) as db:
                db.execute("pragma journal_mode = wal")
                db.execute("pragma synchronous = off")
                _apply(db, migrations, 0)
            os.fsync(fd)
            try:
                os.link(new, path)
            except FileExistsError:
                pass  # somebody was faster
            except OSError:  # a file system without links
                os.rename(new, path)
        finally:
            os.close(fd)
            with suppress(FileNotFoundError):
                os.unlink(new)
        folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)
        os.fsync(folder)
        os.close(folder)
    except OSError as error:
        raise StoreUnusable(
            f"cannot make {path}: {error.strerror}", remedy="check the disk (`df -h`) and who owns the folder"
        ) from error
    except sqlite3.DatabaseError as error:
        raise unusable(path, error) from error


def _check_header(path: str, known: int) -> int:
    """Refuse, without touching it, what no dibs or only a newer one can have written; return the size."""
    try:
        with open(path, "rb") as file:
            header = file.read(100)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise StoreUnusable(f"cannot open {path}: {error.strerror}", remedy="see who owns it") from error
    if not header.startswith(b"SQLite format 3\0"):
        what = "it is no store" if header else "it is empty, but a store never is"
        raise StoreUnusable(f"cannot use {path}: {what}", remedy=LEFT_AS_IT_IS)
    version = int.from_bytes(header[60:64], "big")
    if not 0 < version <= known:
        raise _unknown_version(path, version, known)
    return size


def _check_pages(path: str) -> None:
    try:
        with read_only(path) as db:
            (found,) = db.execute("pragma quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(f"it is damaged ({found})")
    except SICK as error:
        raise unusable(path, error) from error


def _unknown_version(path: str, version: int, known: int) -> StoreUnusable:
    if version < 1:
        return StoreUnusable(f"cannot use {path}: it is no store of dibs", remedy=LEFT_AS_IT_IS)
    copy = _before(path, known)
    kept = f", or go back to {copy}, a copy from before the change" if os.path.exists(copy) else ""
    return StoreUnusable(
        f"cannot open {path}: it was written by a newer dibs (schema {version}, this one knows {known})",
        remedy=f"use that version again{kept}; the store was left as it is",
    )
