"""What a queue remembers beyond a run's list: calls of `add`, dependencies, places, marks and settings."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from dibs.errors import NoSuchJob
from dibs.model.jobs import ABOVE_ALL, After, Job, JobId, Outcome, Request, State
from dibs.model.records import Mark
from dibs.model.sweeps import SweepId, trial_key, trial_of
from dibs.store.codec import JOB, class_of, encode_request, job_of, text_value


class QueueTables:
    """Everything here happens inside a turn of the store."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    # -- adding ----------------------------------------------------------------------------------------

    def numbers_of(self, key: str) -> tuple[JobId, JobId] | None:
        """The first and the last number that an earlier call with this key was given."""
        row = self._db.execute("select first, last from submissions where key = ?", (text_value(key),)).fetchone()
        return None if row is None else (JobId(row[0]), JobId(row[1]))

    def remember_call(self, key: str, first: JobId, last: JobId, now: float) -> None:
        self._db.execute("insert into submissions values (?, ?, ?, ?)", (text_value(key), first, last, now))

    def forget_calls(self, before: float) -> None:
        self._db.execute("delete from submissions where at < ?", (before,))

    def job_once(self, once: str) -> JobId | None:
        row = self._db.execute("select id from jobs where once = ?", (text_value(once),)).fetchone()
        return None if row is None else JobId(row[0])

    def task_of(self, array: JobId, task: int) -> JobId | None:
        """The job that is this task of an array."""
        row = self._db.execute(
            "select id from jobs where array_id = ? and task = ? limit 1", (array, task)
        ).fetchone()
        return None if row is None else JobId(row[0])

    def last_trial(self, sweep: SweepId) -> int:
        """The highest number of a trial of this sweep that a job was added for; 0 where there is none."""
        begin = trial_key(sweep, 0)[:-1]
        rows = self._db.execute(
            "select once from jobs where once >= ? and once < ?", (begin, f"{begin}:")
        ).fetchall()
        return max((found[1] for (once,) in rows if (found := trial_of(once)) is not None), default=0)

    def keep_code(self, code: Mapping[str, Any] | None) -> tuple[str, bool]:
        """Remember what is known about the code once per content; return its key, and whether it is new."""
        if not code:
            return "", False
        text = json.dumps(dict(code), sort_keys=True)
        key = blake2b(text.encode(), digest_size=16).hexdigest()
        is_new = self._db.execute("insert or ignore into code values (?, ?)", (key, text)).rowcount > 0
        return key, is_new

    def next_number(self) -> JobId:
        row = self._db.execute("select seq from sqlite_sequence where name = 'jobs'").fetchone()
        return JobId(1 if row is None else row[0] + 1)

    def count_beyond(self, number: int) -> None:
        """Give no number up to this one."""
        if number >= self.next_number():
            self._db.execute("delete from sqlite_sequence where name = 'jobs'")
            self._db.execute("insert into sqlite_sequence values ('jobs', ?)", (number,))

    def number(
        self,
        requests: Sequence[Request],
        environment: str,
        code: str,
        *,
        first: JobId | None = None,
        batch: JobId | None = None,
    ) -> list[Job]:
        """Make jobs of requests, with the next numbers, or with those from `first` on.

        What they wait for is decided by the present states. `batch` is the first of the jobs that one call added.
        """
        if first is None:
            first = self.next_number()
        if batch is None and len(requests) > 1:
            batch = first
        jobs = []
        for number, request in enumerate(with_arrays(requests, first), first):
            job = Job(
                id=JobId(number),
                request=request,
                state=State.HELD if request.hold else State.QUEUED,
                not_before=request.begin,
                environment=environment,
                blockers=self._depend(JobId(number), request, first) if request.after else 0,
                why_held="held when it was added" if request.hold else "",
                code=code,
                batch=batch,
            )
            jobs.append(job)
        return jobs

    def add(self, jobs: Sequence[Job], requests: Sequence[str], now: float) -> None:
        """Store numbered jobs, and with each its request as text."""
        self._db.executemany(
            "insert into jobs (id, once, request, class, environment, code, name, project, batch, array_id, task,"
            " priority, state, blockers, why_held, not_before, queued_at)"
            " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    job.id,
                    text_value(job.request.once) or None,
                    text,
                    class_of(job.request),
                    job.environment,
                    job.code,
                    text_value(job.request.name),
                    text_value(job.request.project),
                    job.batch,
                    job.request.array.array if job.request.array else None,
                    job.request.array.task if job.request.array else None,
                    job.request.precedence,
                    job.state,
                    job.blockers,
                    job.why_held,
                    job.not_before,
                    now,
                )
                for job, text in zip(jobs, requests, strict=True)
            ],
        )

    def _depend(self, job: JobId, request: Request, first: JobId) -> int:
        """Write down what a new job waits for; what has ended as it should is no hindrance any more.

        Jobs from `first` on are being added with it.
        """
        blockers = 0
        for needed in request.after:
            row = self._db.execute("select state from jobs where id = ?", (needed.job,)).fetchone()
            if row is None and needed.kind is After.ANY and needed.job < first:
                continue  # it was over, and was cleaned away
            if row is not None and State(row[0]).is_over and needed.kind.is_met_by(State(row[0])):
                continue
            blockers += self._db.execute(
                "insert or ignore into dependencies values (?, ?, ?)", (needed.job, job, needed.kind)
            ).rowcount
        return blockers

    # -- dependencies ----------------------------------------------------------------------------------

    def followers(self, ended: JobId) -> list[tuple[JobId, After]]:
        """The jobs that wait for this one, and for what end of it."""
        rows = self._db.execute("select job, kind from dependencies where needs = ?", (ended,)).fetchall()
        return [(JobId(job), After(kind)) for job, kind in rows]

    def unblock(self, job: JobId, ended: JobId) -> Job:
        """One hindrance less."""
        self._db.execute("delete from dependencies where needs = ? and job = ?", (ended, job))
        self._db.execute("update jobs set blockers = blockers - 1 where id = ? and blockers > 0", (job,))
        return self.job(job)

    def block_again(self, job: JobId, request: Request) -> int:
        """A job that is tried again waits again for what has not ended as it should."""
        self._db.execute("delete from dependencies where job = ?", (job,))
        blockers = self._depend(job, request, job)
        self._db.execute("update jobs set blockers = ? where id = ?", (blockers, job))
        return blockers

    def stopped_by(self, job: JobId) -> list[JobId]:
        """What was cancelled because of this job's end."""
        rows = self._db.execute("select id from jobs where stopped_by = ?", (job,)).fetchall()
        return [JobId(number) for (number,) in rows]

    # -- changes ---------------------------------------------------------------------------------------

    def job(self, job: JobId) -> Job:
        return job_of(self._db.execute(f"select {JOB} from jobs where id = ?", (job,)).fetchone())

    def find(self, jobs: Iterable[JobId]) -> list[Job]:
        """Those of the jobs that there are."""
        found = []
        for job in jobs:
            row = self._db.execute(f"select {JOB} from jobs where id = ?", (job,)).fetchone()
            if row is not None:
                found.append(job_of(row))
        return found

    def find_all(self, jobs: Sequence[JobId]) -> list[Job]:
        """The jobs; NoSuchJob where there is no such one."""
        found = self.find(jobs)
        if len(found) < len(jobs):
            there = {job.id for job in found}
            raise NoSuchJob(next(job for job in jobs if job not in there))
        return found

    def waiting_of(self, group: str) -> list[JobId]:
        """The jobs of a project or a batch that have not started. A group is `project NAME` or `batch N`."""
        kind, _, name = group.partition(" ")
        column = "project" if kind == "project" else "batch"
        value: str | int = text_value(name) if kind == "project" else int(name)
        rows = self._db.execute(
            f"select id from jobs where {column} = ? and state = 'queued' order by id", (value,)
        ).fetchall()
        return [JobId(number) for (number,) in rows]

    def hold(self, jobs: Iterable[JobId], why: str) -> None:
        self._db.executemany(
            "update jobs set state = 'held', why_held = ? where id = ?", [(text_value(why), job) for job in jobs]
        )

    def hold_there(self, job: JobId, why: str) -> None:
        """What the system that has it is to do: its state stays."""
        self._db.execute("update jobs set why_held = ? where id = ?", (text_value(why), job))

    def release(self, job: JobId) -> Job:
        self._db.execute("update jobs set state = 'queued', why_held = '' where id = ?", (job,))
        return self.job(job)

    def stop(self, job: JobId) -> None:
        """Remember that the end of a running job was asked for."""
        self._db.execute("update jobs set is_stopping = 1 where id = ?", (job,))

    def end_without_attempt(self, job: JobId, outcome: Outcome, now: float, by: JobId | None = None) -> None:
        """A job that had not started is over, perhaps because of another one's end."""
        self._db.execute(
            "update jobs set state = ?, cause = ?, message = ?, ended_at = ?, exit_code = null, signal = null,"
            " seconds = null, not_before = null, why_held = '', blockers = 0, stopped_by = ? where id = ?",
            (outcome.state, outcome.cause, text_value(outcome.message), now, by, job),
        )
        self._db.execute("delete from dependencies where job = ?", (job,))

    def say_more(self, job: JobId, number: int, sentence: str, remedy: str) -> str:
        """Add to what an ended attempt says, and to what its job says where it ended with that attempt.

        Only then there is something to be done about it. Gives what was added: nothing where it was cleaned away.
        """
        row = self._db.execute(
            "select jobs.ended_at is not null and jobs.ended_at = attempts.ended_at and jobs.attempts = number"
            " from attempts join jobs on id = job where job = ? and number = ?",
            (job, number),
        ).fetchone()
        if row is None:
            return ""
        is_over = bool(row[0])
        added = f"{sentence}; {remedy}" if is_over else sentence
        more = "set message = message || case message when '' then '' else '; ' end || ?"
        self._db.execute(f"update attempts {more} where job = ? and number = ?", (text_value(added), job, number))
        if is_over:
            self._db.execute(f"update jobs {more} where id = ?", (text_value(added), job))
        return added

    def change(self, job: Job) -> None:
        """Replace what was asked for by a job that has not started."""
        self._db.execute(
            "update jobs set request = ?, class = ?, name = ?, project = ?, priority = ?, rank = ?,"
            " not_before = ?, once = ? where id = ?",
            (
                encode_request(job.request),
                class_of(job.request),
                text_value(job.request.name),
                text_value(job.request.project),
                job.request.precedence,
                job.rank,
                job.not_before,
                text_value(job.request.once) or None,
                job.id,
            ),
        )

    def highest_priority(self, *, urgent: bool) -> int:
        """The highest priority in the queue: of urgent jobs, or of all others."""
        least = ABOVE_ALL // 2
        row = self._db.execute(
            "select max(priority) from jobs where state = 'queued' and (priority > ?) = ?", (least, urgent)
        ).fetchone()
        return 0 if row[0] is None else int(row[0]) - (ABOVE_ALL if urgent else 0)

    def rank_before(self, job: Job) -> float:
        """A place between this job and the one before it in its precedence."""
        here = job.order[1]
        row = self._db.execute(
            "select max(coalesce(rank, id)) from jobs where state = 'queued' and priority = ?"
            " and coalesce(rank, id) < ?",
            (job.request.precedence, here),
        ).fetchone()
        return (here + (here - 1 if row[0] is None else row[0])) / 2

    def rank_behind(self, job: Job) -> float:
        """A place between this job and the one behind it in its precedence."""
        here = job.order[1]
        row = self._db.execute(
            "select min(coalesce(rank, id)) from jobs where state = 'queued' and priority = ?"
            " and coalesce(rank, id) > ?",
            (job.request.precedence, here),
        ).fetchone()
        return (here + (here + 1 if row[0] is None else row[0])) / 2

    def remove(self, jobs: Sequence[JobId]) -> None:
        """Forget ended jobs. Their numbers are never given again."""
        values = [(job,) for job in jobs]
        for statement in (
            "delete from attempts where job = ?",
            "delete from dependencies where needs = ?",
            "delete from dependencies where job = ?",
            "delete from jobs where id = ?",
            "delete from reported where job = ?",
            "delete from suspensions where job = ?",
        ):
            self._db.executemany(statement, values)

    def old_jobs(self, before: float, states: Sequence[State], project: str | None, limit: int) -> list[JobId]:
        """Ended jobs that ended before a moment, oldest first."""
        where, more = ("", ()) if project is None else (" and project = ?", (text_value(project),))
        found: list[JobId] = []
        for state in states:  # one by one: each is read in the order of its index
            rows = self._db.execute(
                f"select id from jobs where state = ? and ended_at < ?{where} order by ended_at limit ?",
                (state, before, *more, limit - len(found)),
            ).fetchall()
            found += [JobId(number) for (number,) in rows]
        return found

    def forget_unused(self) -> tuple[list[str], list[str]]:
        """Forget environments and code that no job, no sweep and no list refers to any more.

        Returns the environments' keys, and the copies of code that no job uses any more.
        """
        gone = self._db.execute(
            "delete from code where key not in"
            " (select code from jobs union all select code from sweeps union all select code from lists)"
            " returning content"
        )
        left = {_snapshot(content) for (content,) in gone.fetchall()}
        if left != {""}:
            left -= {_snapshot(content) for (content,) in self._db.execute("select content from code").fetchall()}
        snapshots = sorted(left - {""})
        rows = self._db.execute(
            "delete from environments where key not in"
            " (select environment from jobs union all select environment from sweeps"
            " union all select environment from lists) returning key"
        ).fetchall()
        return [key for (key,) in rows], snapshots

    # -- marks and settings ----------------------------------------------------------------------------

    def mark(self, mark: Mark) -> None:
        self._db.execute(
            "insert or replace into marks values (?, ?, ?, ?)",
            (text_value(mark.subject), mark.kind, text_value(mark.why), mark.since),
        )

    def unmark(self, subject: str) -> bool:
        return self._db.execute("delete from marks where subject = ?", (text_value(subject),)).rowcount > 0

    def setting(self, name: str) -> str | None:
        row = self._db.execute("select value from settings where name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def set(self, name: str, value: str) -> None:
        self._db.execute("insert or replace into settings values (?, ?)", (name, value))


def with_arrays(requests: Iterable[Request], first: JobId) -> Iterator[Request]:
    """The requests, those of an array with the number of its first job, unless they join an earlier one."""
    array, last_task = first, None
    for number, request in enumerate(requests, first):
        if request.array is None or request.array.array:
            last_task = None
        else:
            if last_task is None or request.array.task <= last_task:
                array = JobId(number)  # an array begins
            last_task = request.array.task
            request = replace(request, array=replace(request.array, array=array))
        yield request


def _snapshot(code: str) -> str:
    """The copy of the code that jobs were to run in; empty where there is none."""
    found = json.loads(code).get("snapshot")
    return found if isinstance(found, str) else ""
