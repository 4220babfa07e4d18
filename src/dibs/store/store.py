"""The store: one SQLite file, one connection, one transaction per turn of the loop."""

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeVar

from dibs.errors import FolderInUse, StoreUnusable
from dibs.model.jobs import Attempt, Cause, Job, JobId, Outcome, Request, State
from dibs.store.codec import decode_claims, decode_request, encode_claims, encode_request, encode_wishes

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as the tables at the end of a run show it."""

    job: Job
    outcome: Outcome | None
    gpus: tuple[int, ...]
    folder: str  # of the last attempt; empty when there was none


class Store:
    """Remembers jobs and attempts. Durable once `turn()` has ended without an error."""

    def __init__(self, path: str) -> None:
        self.path = path
        migrations = _migrations()
        if not os.path.exists(path):
            _create(path, migrations)
        size = _check_header(path, len(migrations))
        self._db = sqlite3.connect(path, timeout=1.0, isolation_level=None, cached_statements=64)
        try:
            self._db.execute("pragma locking_mode = exclusive")
            if size <= _QUICKLY_CHECKED:
                _check_pages(self._db)
            self._db.execute("pragma journal_mode = wal")
            # FULL, not NORMAL: what was acknowledged must survive a power cut.
            self._db.execute("pragma synchronous = full")
            self._db.execute("pragma temp_store = file")
            self._db.execute("pragma wal_autocheckpoint = 4000")  # pages: 16 MB, a checkpoint is two more syncs
            self._migrate(migrations)
            self._db.execute(
                "create temp table seen (content_key text primary key, times integer not null) without rowid"
            )
        except _SICK as error:
            self._db.close()
            raise _unusable(path, error) from error
        except BaseException:
            self._db.close()
            raise

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Everything recorded inside becomes durable together at its end, or not at all."""
        try:
            self._db.execute("begin immediate")
            yield
            self._db.execute("commit")
        except sqlite3.DatabaseError as error:
            self._roll_back()
            raise _unusable(self.path, error) from error
        except BaseException:
            self._roll_back()
            raise

    def close(self) -> None:
        self._db.close()

    # -- jobs ------------------------------------------------------------------------------------------

    def keep_environment(self, environment: Mapping[str, str]) -> str:
        """Remember an environment once per content; return its key."""
        text = json.dumps(dict(environment), sort_keys=True)
        key = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        self._db.execute("insert or ignore into environments values (?, ?)", (key, text))
        return key

    def submit(self, request: Request, environment: str, now: float) -> tuple[Job, bool]:
        """Add a job, or find the one that the same text stood for before; say whether it is new.

        The k-th line with the same text is the k-th job with that text: an inserted line shifts nothing.
        """
        key = request.content_key
        (occurrence,) = self._db.execute(
            "insert into seen values (?, 1) on conflict do update set times = times + 1 returning times",
            (key,),
        ).fetchone()
        if occurrence > 1 or self._has_history:
            row = self._db.execute(
                f"select {_JOB} from jobs where content_key = ? and occurrence = ?", (key, occurrence)
            ).fetchone()
            if row is not None:
                return _job(row), False
        cursor = self._db.execute(
            "insert into jobs (content_key, occurrence, request, class, environment, priority, state, queued_at)"
            " values (?, ?, ?, ?, ?, ?, 'queued', ?)",
            (
                key,
                occurrence,
                encode_request(request),
                encode_wishes(request.wishes),
                environment,
                request.priority,
                now,
            ),
        )
        return Job(id=JobId(cursor.lastrowid or 0), request=request, environment=environment), True

    def hold_leftovers(self) -> None:
        """Set aside what an earlier run left waiting, until its list names it again."""
        self._db.execute("update jobs set state = 'held' where state = 'queued'")

    def leftovers(self) -> list[JobId]:
        """What has not succeeded and is not running, in order. What was refused is not: it can never run."""
        rows = self._ask(
            "select id from jobs where state in ('failed', 'cancelled', 'timed_out', 'lost', 'held')"
            " and cause is not 'refused' order by id"
        )
        return [JobId(number) for (number,) in rows]

    def queue_again(self, job: JobId, request: Request | None = None, environment: str = "") -> Job:
        """Put a job back into the queue with a fresh count of tries, perhaps as it was asked for this time."""
        if request is not None:
            self._db.execute(
                "update jobs set request = ?, class = ?, priority = ?, environment = ? where id = ?",
                (encode_request(request), encode_wishes(request.wishes), request.priority, environment, job),
            )
        self._db.execute(
            "update jobs set state = 'queued', tries = 0, not_before = null, ended_at = null, exit_code = null,"
            " signal = null, cause = null, message = '' where id = ?",
            (job,),
        )
        return self.job(job)

    def job(self, job: JobId) -> Job:
        return _job(self._db.execute(f"select {_JOB} from jobs where id = ?", (job,)).fetchone())

    def waiting_classes(self) -> list[str]:
        """The different wishes of waiting jobs, without reading the jobs: one index seek for each class."""
        rows = self._ask(
            "with recursive c (class) as ("
            " select min(class) from jobs where state = 'queued'"
            " union all"
            " select (select min(class) from jobs where state = 'queued' and class > c.class)"
            " from c where c.class is not null)"
            " select class from c where class is not null"
        )
        return [name for (name,) in rows]

    def waiting(self, wishes: str, now: float, limit: int) -> list[Job]:
        """The first jobs of a class that may start now: by priority, then by age."""
        rows = self._ask(
            f"select {_JOB} from jobs where class = ? and state = 'queued'"
            " and (not_before is null or not_before <= ?) order by priority desc, id limit ?",
            (wishes, now, limit),
        )
        return [_job(row) for row in rows]

    def delayed(self, now: float) -> list[Job]:
        """Waiting jobs whose moment has not come."""
        rows = self._ask(f"select {_JOB} from jobs where state = 'queued' and not_before > ?", (now,))
        return [_job(row) for row in rows]

    def counts(self) -> dict[State, int]:
        rows = self._ask("select state, count(*) from jobs group by state")
        return dict(self._read(rows, lambda row: (State(row[0]), row[1])))

    def rows(self, states: Iterable[State], limit: int) -> list[JobRow]:
        """Jobs in these states with the GPUs and folder of their last attempt, oldest first."""
        names = [str(state) for state in states]
        rows = self._ask(
            f"select {_JOB}, exit_code, signal, cause, message, seconds,"
            " (select claims from attempts where job = jobs.id and number = jobs.attempts),"
            " (select folder from attempts where job = jobs.id and number = jobs.attempts)"
            f" from jobs where state in ({','.join('?' * len(names))}) order by id limit ?",
            (*names, limit),
        )
        return self._read(rows, _job_row)

    # -- attempts --------------------------------------------------------------------------------------

    def open_attempt(self, attempt: Attempt) -> None:
        """Record the intent: from now on this job may have been started."""
        self._db.execute(
            "insert into attempts (job, number, boot_id, folder, claims, opened_at) values (?, ?, ?, ?, ?, ?)",
            (
                attempt.job,
                attempt.number,
                attempt.boot_id,
                _path(attempt.folder),
                encode_claims(attempt.claims),
                attempt.opened_at,
            ),
        )
        self._db.execute(
            "update jobs set state = 'running', attempts = ?, tries = tries + 1, not_before = null where id = ?",
            (attempt.number, attempt.job),
        )

    def end_attempt(self, attempt: Attempt, outcome: Outcome, now: float, retry_at: float | None) -> None:
        """Record how an attempt ended, and whether its job is over or queued again."""
        values = (outcome.exit_code, outcome.signal, outcome.cause, _text(outcome.message), outcome.seconds)
        self._db.execute(
            "update attempts set ended_at = ?, exit_code = ?, signal = ?, cause = ?, message = ?, seconds = ?"
            " where job = ? and number = ?",
            (now, *values, attempt.job, attempt.number),
        )
        state = outcome.state if retry_at is None else State.QUEUED
        self._db.execute(
            "update jobs set state = ?, not_before = ?, ended_at = ?, exit_code = ?, signal = ?, cause = ?,"
            " message = ?, seconds = ? where id = ?",
            (state, retry_at, now if retry_at is None else None, *values, attempt.job),
        )

    def forget_attempt(self, attempt: Attempt, retry_at: float | None) -> None:
        """It never ran: the job waits again, and the try does not count."""
        self._db.execute("delete from attempts where job = ? and number = ?", attempt.key)
        self._db.execute(
            "update jobs set state = 'queued', attempts = ?, tries = tries - 1, not_before = ? where id = ?",
            (attempt.number - 1, retry_at, attempt.job),
        )

    def refuse(self, job: JobId, outcome: Outcome, now: float) -> None:
        """End a job that can never run."""
        self._db.execute(
            "update jobs set state = ?, not_before = null, ended_at = ?, exit_code = null, signal = null,"
            " seconds = null, cause = ?, message = ? where id = ?",
            (outcome.state, now, outcome.cause, _text(outcome.message), job),
        )

    def open_attempts(self) -> list[tuple[Job, Attempt]]:
        """Attempts whose end nobody has recorded yet."""
        rows = self._ask(
            f"select {_JOB}, number, boot_id, folder, claims, opened_at"
            " from jobs join attempts on job = id and number = attempts where state = 'running' order by id"
        )
        return self._read(rows, _open_attempt)

    # -- the file --------------------------------------------------------------------------------------

    def _ask(self, question: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._db.execute(question, values).fetchall()
        except _SICK as error:
            raise _unusable(self.path, error) from error

    def _read(self, rows: Iterable[Any], make: Callable[[Any], _T]) -> list[_T]:
        try:
            return [make(row) for row in rows]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreUnusable(f"cannot read {self.path}: a row is damaged", remedy=_LEFT_AS_IT_IS) from error

    def _migrate(self, migrations: Sequence[str]) -> None:
        (version,) = self._db.execute("pragma user_version").fetchone()
        if not 0 < version <= len(migrations):  # the header did not know yet what stands in the log
            raise _unknown_version(self.path, version, len(migrations))
        _apply(self._db, migrations, version)
        self._has_history = self._db.execute("select 1 from jobs limit 1").fetchone() is not None

    def _roll_back(self) -> None:
        # A failed write may have rolled back by itself, and a sick disk may fail again: the next turn tells.
        with suppress(sqlite3.DatabaseError):
            if self._db.in_transaction:
                self._db.execute("rollback")


# SQLite's own complaint about a damaged name may be no UTF-8, and then Python falls over the complaint.
_SICK = (sqlite3.DatabaseError, UnicodeDecodeError)
_QUICKLY_CHECKED = 64 * 1024**2  # bytes; a check reads every page: a tenth of a second for as many as this


def _migrations() -> list[str]:
    folder = resources.files("dibs.store") / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [file.read_text() for file in files]


def _apply(db: sqlite3.Connection, migrations: Sequence[str], version: int) -> None:
    for number, text in enumerate(migrations[version:], version + 1):
        db.executescript(f"begin; {text}; pragma user_version = {number}; commit;")


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
        raise _unusable(path, error) from error


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
        raise StoreUnusable(f"cannot use {path}: {what}", remedy=_LEFT_AS_IT_IS)
    version = int.from_bytes(header[60:64], "big")
    if not 0 < version <= known:
        raise _unknown_version(path, version, known)
    return size


def _check_pages(db: sqlite3.Connection) -> None:
    (found,) = db.execute("pragma quick_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(f"it is damaged ({' '.join(found.split())})")


_JOB = "id, request, state, attempts, tries, not_before, environment"


def _job(row: tuple[int, str, str, int, int, float | None, str]) -> Job:
    number, request, state, attempts, tries, not_before, environment = row
    try:
        wanted, stands = decode_request(request), State(state)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreUnusable(f"cannot read job {number}: its row is damaged", remedy=_LEFT_AS_IT_IS) from error
    return Job(
        id=JobId(number),
        request=wanted,
        state=stands,
        attempts=attempts,
        tries=tries,
        not_before=not_before,
        environment=environment,
    )


def _open_attempt(row: tuple) -> tuple[Job, Attempt]:  # type: ignore[type-arg]
    return _job(row[:7]), Attempt(
        job=JobId(row[0]),
        number=row[7],
        boot_id=row[8],
        folder=os.fsdecode(row[9]),
        claims=decode_claims(row[10]),
        opened_at=row[11],
    )


def _job_row(row: tuple) -> JobRow:  # type: ignore[type-arg]
    job = _job(row[:7])
    exit_code, signal, cause, message, seconds, claims, folder = row[7:]
    outcome = None
    if job.state.is_over:
        outcome = Outcome(
            exit_code=exit_code,
            signal=signal,
            cause=Cause(cause) if cause else None,
            message=message,
            seconds=seconds,
        )
    return JobRow(
        job, outcome, tuple(claim.index for claim in decode_claims(claims or "[]")), os.fsdecode(folder or "")
    )


def _path(path: str) -> str | bytes:
    """A folder's name may be no UTF-8; SQLite keeps that as bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path)
    return path


def _text(text: str) -> str:
    """Messages may name files whose names are no UTF-8; SQLite wants text."""
    return text.encode("utf-8", "backslashreplace").decode()


_LEFT_AS_IT_IS = "the file was left as it is; take it back from a backup, or begin another run"


def _unknown_version(path: str, version: int, known: int) -> StoreUnusable:
    if version < 1:
        return StoreUnusable(f"cannot use {path}: it is no store of dibs", remedy=_LEFT_AS_IT_IS)
    return StoreUnusable(
        f"cannot open {path}: it was written by a newer dibs (schema {version}, this one knows {known})",
        remedy="use that version again; the store was left as it is",
    )


def _unusable(path: str, error: Exception) -> StoreUnusable | FolderInUse:
    if isinstance(error, UnicodeDecodeError):
        return StoreUnusable(f"cannot use {path}: it is damaged", remedy=_LEFT_AS_IT_IS)
    if "locked" in str(error):
        return FolderInUse(f"cannot open {path}: another dibs works with it", remedy="wait for it to end")
    return StoreUnusable(
        f"cannot use {path}: {error}", remedy="check the disk (`df -h`); the file was left as it is"
    )
