"""The store: one SQLite file, one connection, one transaction per turn of the loop."""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from dibs.dataclass import dataclass
from dibs.errors import StoreUnusable
from dibs.model.jobs import BEING_RELEASED, Attempt, Job, JobId, Outcome, Request, State
from dibs.model.usage import Usage
from dibs.store.codec import (
    ATTEMPT,
    JOB,
    JOB_ROW,
    JobRow,
    RequestEncoder,
    attempt_of,
    class_of,
    encode_claims,
    encode_request,
    encode_usage,
    job_of,
    job_row_of,
    path_value,
    text_value,
)
from dibs.store.file import LEFT_UNCHANGED, READ_ERRORS, open_file, unusable
from dibs.store.history import HistoryTables
from dibs.store.lessons import LessonTable
from dibs.store.listing import Ask, Listing
from dibs.store.lists import ListTables
from dibs.store.queue import QueueTables
from dibs.store.reported import ReportedNumbers
from dibs.store.suspensions import SuspensionTable
from dibs.store.sweeps import SweepTable

_T = TypeVar("_T")
_KEPT_EVENTS = 100_000
_LOOK_EVERY = 1_000  # events between two searches for old ones
# What only the readers of a queue ask for. A run's list writes twice as many pages with it at every start and end.
_WITHOUT_READERS = """
drop index jobs_turn;
drop index jobs_state;
drop index jobs_ended;
drop trigger job_added;
drop trigger job_changed;
drop trigger job_removed;
"""
_LOG_OF_A_LIST = (
    1000  # pages, 4 MB: the same few change again and again, and to write over a log costs half of growing
)


def environment_key(environment: Mapping[str, str]) -> str:
    """The key under which a store keeps this environment."""
    return _key_and_text(environment)[0]


class Store:
    """Remembers jobs and attempts. Durable once `turn()` has ended without an error.

    The store of a run's list is made without what only the readers of a queue need: it has none while it runs.
    """

    def __init__(self, path: str, *, is_list: bool = False) -> None:
        self.path = path
        self._db = open_file(path, _WITHOUT_READERS if is_list else "")
        self.queue = QueueTables(self._db)
        self.lists = ListTables(self._db)
        self.listing = Listing(self._ask)
        self.events = EventLog(self._db, self._ask)
        self.lessons = LessonTable(self._db, self._ask)
        self.sweeps = SweepTable(self._db, self._ask)
        self.history = HistoryTables(self._db, self._ask)
        self.reported = ReportedNumbers(self._db, self._ask)
        self.suspensions = SuspensionTable(self._db, self._ask)
        self._has_history = bool(self._ask("select 1 from jobs limit 1"))
        self._is_list = is_list
        if is_list:
            self._db.execute(f"pragma wal_autocheckpoint = {_LOG_OF_A_LIST}")
        self._encoder = RequestEncoder()
        self._db.execute(
            "create temp table seen (content_key text primary key, times integer not null) without rowid"
        )

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Everything recorded inside becomes durable together at its end, or not at all."""
        try:
            self._db.execute("begin immediate")
            yield
            self._db.execute("commit")
        except sqlite3.DatabaseError as error:
            self._roll_back()
            raise unusable(self.path, error) from error
        except BaseException:
            self._roll_back()
            raise

    def shrink(self) -> None:
        """Give back the memory of pages that were read. They are read again when they are needed."""
        with suppress(StoreUnusable):
            self._ask("pragma shrink_memory")

    def close(self) -> None:
        self._db.close()

    # -- jobs ------------------------------------------------------------------------------------------

    def keep_environment(self, environment: Mapping[str, str]) -> str:
        """Remember an environment once per content; return its key."""
        key, text = _key_and_text(environment)
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
        if self._has_history:
            row = self._db.execute(
                f"select {JOB} from jobs where content_key = ? and occurrence = ?", (key, occurrence)
            ).fetchone()
            if row is not None:
                return job_of(row), False
        text, its_class = self._encoder.encode(request)
        cursor = self._db.execute(
            "insert into jobs (content_key, occurrence, request, class, environment, name, priority, state,"
            " queued_at) values (?, ?, ?, ?, ?, ?, ?, 'queued', ?)",
            (
                key,
                occurrence,
                text,
                its_class,
                environment,
                text_value(request.name),
                request.precedence,
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
                "update jobs set request = ?, class = ?, name = ?, priority = ?, environment = ? where id = ?",
                (
                    encode_request(request),
                    class_of(request),
                    text_value(request.name),
                    request.precedence,
                    environment,
                    job,
                ),
            )
        self._db.execute(
            "update jobs set state = 'queued', tries = 0, not_before = null, ended_at = null, exit_code = null,"
            " signal = null, cause = null, message = '', is_stopping = 0, stopped_by = null where id = ?",
            (job,),
        )
        return self.job(job)

    def job(self, job: JobId) -> Job:
        return job_of(self._db.execute(f"select {JOB} from jobs where id = ?", (job,)).fetchone())

    def waiting_classes(self) -> list[str]:
        """The different wishes of waiting jobs, without reading the jobs: one index seek for each class."""
        rows = self._ask(
            "with recursive c (class) as ("
            " select min(class) from jobs indexed by jobs_waiting where state = 'queued' and blockers = 0"
            " union all"
            " select (select min(class) from jobs indexed by jobs_waiting"
            " where state = 'queued' and blockers = 0 and class > c.class)"
            " from c where c.class is not null)"
            " select class from c where class is not null"
        )
        return [name for (name,) in rows]

    def waiting(self, wishes: str, now: float, limit: int, skip: int = 0) -> list[Job]:
        """The first jobs of a class that may start now, after so many others: by priority, then by age."""
        rows = self._ask(
            f"select {JOB} from jobs where class = ? and state = 'queued' and blockers = 0"
            " and (not_before is null or not_before <= ?)"
            " order by priority desc, coalesce(rank, id) limit ? offset ?",
            (wishes, now, limit, skip),
        )
        return [job_of(row) for row in rows]

    def delayed(self, after: tuple[float, int], limit: int) -> list[Job]:
        """Waiting jobs whose moment comes after this moment and number, the next ones first."""
        rows = self._ask(
            f"select {JOB} from jobs indexed by jobs_delayed where state = 'queued' and not_before is not null"
            " and blockers = 0 and (not_before, id) > (?, ?) order by not_before, id limit ?",
            (*after, limit),
        )
        return [job_of(row) for row in rows]

    def shift_retries(self, now: float, jump: float) -> None:
        """The clock was set back by as much: what waits to be tried again waits no longer for it."""
        self._db.execute(
            "update jobs indexed by jobs_delayed set not_before = not_before + ?"
            " where state = 'queued' and not_before is not null and attempts > 0 and not_before > ?",
            (jump, now),
        )

    def counts(self) -> dict[State, int]:
        rows = self._ask(
            "select state, count(*) from jobs group by state"
            if self._is_list
            else "select state, sum(jobs) from tally group by state having sum(jobs) > 0"
        )
        return dict(self._read(rows, lambda row: (State(row[0]), row[1])))

    def rows(self, states: Iterable[State], limit: int) -> list[JobRow]:
        """Jobs in these states with the GPUs and folder of their last attempt, oldest first."""
        names = [str(state) for state in states]
        rows = self._ask(
            f"select {JOB_ROW} from jobs where state in ({','.join('?' * len(names))})"
            # Of a run that was given a list, only what the list names.
            " and (not exists (select 1 from seen) or occurrence <= (select times from seen"
            " where seen.content_key = jobs.content_key)) order by id limit ?",
            (*names, limit),
        )
        return self._read(rows, job_row_of)

    # -- attempts --------------------------------------------------------------------------------------

    def open_attempt(self, attempt: Attempt) -> None:
        """Record the intent: from now on this job may have been started, here or by another system."""
        self._db.execute(
            "insert into attempts (job, number, boot_id, folder, claims, opened_at) values (?, ?, ?, ?, ?, ?)",
            (
                attempt.job,
                attempt.number,
                attempt.boot_id,
                path_value(attempt.folder),
                encode_claims(attempt.claims),
                attempt.opened_at,
            ),
        )
        if attempt.backend:
            self._db.execute(
                "update attempts set backend = ? where job = ? and number = ?", (attempt.backend, *attempt.key)
            )
        self._db.execute(
            "update jobs set state = ?, attempts = ?, tries = tries + 1, not_before = null, started_at = ?"
            " where id = ?",
            (
                State.SUBMITTED if attempt.backend else State.RUNNING,
                attempt.number,
                None if attempt.backend else attempt.opened_at,
                attempt.job,
            ),
        )

    def run_attempt(self, attempt: Attempt) -> None:
        """The other system has started it, at its `opened_at`."""
        self._db.execute(
            "update attempts set opened_at = ?, node = ?, node_gpus = ? where job = ? and number = ?",
            (attempt.opened_at, text_value(attempt.node), text_value(attempt.node_gpus), *attempt.key),
        )
        self._db.execute(
            "update jobs set state = 'running', started_at = ?, why_held = '' where id = ?",
            (attempt.opened_at, attempt.job),
        )

    def end_attempt(
        self,
        attempt: Attempt,
        outcome: Outcome,
        now: float,
        retry_at: float | None,
        usage: Usage | None = None,
    ) -> None:
        """Record how an attempt ended, and whether its job is over or queued again."""
        values = (outcome.exit_code, outcome.signal, outcome.cause, text_value(outcome.message), outcome.seconds)
        self._db.execute(
            "update attempts set ended_at = ?, exit_code = ?, signal = ?, cause = ?, message = ?,"
            " seconds = ?, usage = ? where job = ? and number = ?",
            (now, *values, encode_usage(usage), attempt.job, attempt.number),
        )
        state = outcome.state if retry_at is None else State.QUEUED
        self._db.execute(
            "update jobs set state = ?, tries = tries - ?, not_before = ?, ended_at = ?, why_held = '',"
            " exit_code = ?, signal = ?, cause = ?, message = ?, seconds = ? where id = ?",
            (
                state,
                # It ended because we asked it to, or because of its neighbours: that try does not count.
                outcome.checkpointed or outcome.tried_alone,
                retry_at,
                now if retry_at is None else None,
                *values,
                attempt.job,
            ),
        )

    def change_claims(self, attempt: Attempt) -> None:
        """What an open attempt holds of its cards is less than it was."""
        self._db.execute(
            "update attempts set claims = ? where job = ? and number = ?",
            (encode_claims(attempt.claims), *attempt.key),
        )

    def forget_attempt(self, attempt: Attempt, retry_at: float | None) -> None:
        """It never ran: the job waits again, held if its system was to hold it, and the try does not count."""
        self._db.execute("delete from attempts where job = ? and number = ?", attempt.key)
        self._db.execute(
            "update jobs set state = iif(why_held in ('', ?), 'queued', 'held'),"
            " why_held = iif(why_held = ?, '', why_held),"
            " attempts = ?, tries = tries - 1, not_before = ? where id = ?",
            (BEING_RELEASED, BEING_RELEASED, attempt.number - 1, retry_at, attempt.job),
        )

    def refuse(self, job: JobId, outcome: Outcome, now: float) -> None:
        """End a job that can never run."""
        self._db.execute(
            "update jobs set state = ?, not_before = null, ended_at = ?, exit_code = null, signal = null,"
            " seconds = null, cause = ?, message = ? where id = ?",
            (outcome.state, now, outcome.cause, text_value(outcome.message), job),
        )

    def open_attempts(self) -> list[tuple[Job, Attempt]]:
        """Attempts whose end is not recorded yet."""
        rows = self._ask(
            f"select {JOB}, {ATTEMPT} from jobs join attempts on job = id and number = attempts"
            " where state in ('running', 'suspended', 'submitted') order by id"
        )
        return self._read(rows, attempt_of)

    # -- asking and undoing ----------------------------------------------------------------------------

    def _ask(self, question: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._db.execute(question, values).fetchall()
        except READ_ERRORS as error:
            raise unusable(self.path, error) from error

    def _read(self, rows: Iterable[Any], make: Callable[[Any], _T]) -> list[_T]:
        try:
            return [make(row) for row in rows]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreUnusable(f"cannot read {self.path}: a row is damaged", remedy=LEFT_UNCHANGED) from error

    def _roll_back(self) -> None:
        self.lessons.drop_kept()
        self.sweeps.drop_kept()
        # A failed write may have rolled back by itself, and a failing disk may fail again: the next turn shows it.
        with suppress(sqlite3.DatabaseError):
            if self._db.in_transaction:
                self._db.execute("rollback")


@dataclass(frozen=True, slots=True)
class EventRow:
    id: int
    at: float
    kind: str
    job: int | None
    body: dict[str, Any]


class EventLog:
    """Numbered events. Written inside a turn of the store, read at any time."""

    def __init__(self, db: sqlite3.Connection, ask: Ask) -> None:
        self._db = db
        self._ask = ask

    def write(self, at: float, kind: str, job: int | None = None, body: Mapping[str, Any] | None = None) -> None:
        number = self._db.execute(
            "insert into events (at, kind, job, body) values (?, ?, ?, ?)",
            (at, kind, job, json.dumps(body or {})),
        ).lastrowid
        if number and number % _LOOK_EVERY == 0:
            self._db.execute("delete from events where id <= ?", (number - _KEPT_EVENTS,))

    def since(self, number: int, limit: int = 1000) -> list[EventRow]:
        """The events after this one, oldest first."""
        rows = self._ask(
            "select id, at, kind, job, body from events where id > ? order by id limit ?", (number, limit)
        )
        return [EventRow(id, at, kind, job, json.loads(body)) for id, at, kind, job, body in rows]

    @property
    def last_id(self) -> int:
        ((last,),) = self._ask("select max(id) from events")
        return int(last or 0)

    @property
    def first_id(self) -> int:
        """The oldest that is still there; a reader that has seen less than this has missed some."""
        ((first,),) = self._ask("select min(id) from events")
        return int(first or 0)


def _key_and_text(environment: Mapping[str, str]) -> tuple[str, str]:
    text = json.dumps(dict(environment), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest(), text
