"""Replaying the journal: the store gets what its journal has and it has not, all of it in a rebuild."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dibs.errors import NoSuchSweep, StoreUnusable
from dibs.model.jobs import Attempt, Cause, Command, Job, JobId, Outcome, Request, State
from dibs.model.records import Mark, StagedList, StagedPart
from dibs.model.suspensions import Rung, Suspension, SuspensionPhase
from dibs.model.sweeps import Sweep, SweepId, SweepState, Trial, TrialState
from dibs.store import journal_lines
from dibs.store.codec import AttemptRow, class_of, decode_claims, decode_request, encode_request, encode_requests
from dibs.store.journal import NAME, Journal, Position, read
from dibs.store.recorder import POSITION, remember_position
from dibs.store.store import Store
from dibs.store.sweeps import SweepTable, goals_of

_LARGEST = 64 * 1024**2  # bytes; a smaller journal is not worth a compaction
_REMOVED = Request(command=Command((), ""))  # holds a number whose job was cleaned away


def catch_up(store: Store, book: Journal) -> list[str]:
    """Apply the lines that the journal has beyond the store; return what could not be applied.

    A daemon that was killed between journal and commit leaves one turn that was not acknowledged; recording it
    does no harm. If the store's log was deleted, or an old copy of the store was restored, acknowledged turns are
    missing: here they are applied again. A store and a journal that do not belong together are refused.
    """
    complaints: list[str] = []
    start = _place_to_begin(store, book)
    with store.turn():
        replay = Replay(store, complaints.append)
        replay.enter_lists()
        for line in read(book.path, start):
            if line.body is not None:
                replay.tell(line.number, line.body)
            else:
                complaints.append(f"line {line.number} after byte {start} of the journal is damaged")
        remember_position(store, book)
    return complaints


def shorten(store: Store, book: Journal, *, largest: int = _LARGEST) -> bool:
    """Compact the journal if most of it is about jobs that were cleaned away; return whether it was compacted.

    It takes a second for a hundred thousand jobs, so it is for the start of a daemon, before clients connect.
    """
    there = sum(store.counts().values())
    if book.size <= largest or 2 * there > store.queue.next_number() or not store.lists.is_empty:
        return False
    book.compact(lambda number: bool(store.listing.states([JobId(number)])))
    with store.turn():
        remember_position(store, book)
    return True


def refuse_journal_without_store(folder: str) -> None:
    """Refuse a folder whose store is gone while its journal is not: a new store would give numbers twice."""
    try:
        is_used = os.path.getsize(f"{folder}/{NAME}") > 0
    except OSError:
        return
    if is_used and not os.path.exists(f"{folder}/store.db"):
        raise StoreUnusable(
            f"cannot find {folder}/store.db, but a journal of its jobs is there",
            remedy="take the store back from a backup, or let `dibs doctor --rebuild` make it again",
        )


class Replay:
    """Applies journal lines to a store. Everything here happens inside a turn of the store."""

    def __init__(self, store: Store, complain: Callable[[str], None]) -> None:
        self.next_number = 1
        self._first_unknown = store.queue.next_number()  # whatever is below, the store knows
        self._store = store
        self._db = store._db
        self._complain = complain
        self._acts: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "add": self._add,
            "part": self._part,
            "list": self._list,
            "code": self._code,
            "start": self._start,
            "run": self._run,
            "end": self._end,
            "never": self._never,
            "set": self._set,
            "stop": self._stop,
            "edit": self._edit,
            "suspension": self._suspension,
            "gone": self._gone,
            "mark": self._mark,
            "setting": self._setting,
            "next": lambda line: None,
            **_sweep_acts(store.sweeps),
        }
        self._db.execute("create temp table if not exists cleaned (id integer primary key)")

    def tell(self, number: int, line: Mapping[str, Any]) -> None:
        """One line of the journal. One that fits nothing before it is named and passed over."""
        act = self._acts.get(line["k"])
        if act is None:
            self._complain(f"line {number} of the journal is of a kind that this dibs does not know")
            return
        try:
            self.next_number = max(self.next_number, journal_lines.next_number(line))
            act(line)
        except (KeyError, ValueError, TypeError):  # whole, but written by another dibs, or about an unknown job
            self._complain(f"line {number} of the journal does not fit the lines before it")

    def was_cleaned(self, job: int) -> bool:
        return self._db.execute("select 1 from cleaned where id = ?", (job,)).fetchone() is not None

    def add(self, first: int, requests: list[Request | None], line: Mapping[str, Any]) -> None:
        """Jobs with these numbers, whatever the next number was."""
        self._db.execute("delete from sqlite_sequence where name = 'jobs'")
        self._db.execute("insert into sqlite_sequence values ('jobs', ?)", (first - 1,))
        self._enter(first, requests, line)

    def enter_lists(self) -> None:
        """Make jobs of the lists that are complete: later lines may be about these."""
        while (part := self._store.lists.next_part()) is not None:
            whole = part.list
            line = {"at": whole.at, "environment": whole.environment, "code": whole.code}
            self._enter(part.first, _decoded(part.requests), line, batch=whole.first)
            self._store.lists.remove_part(part)

    def _enter(
        self,
        first: int,
        requests: list[Request | None],
        line: Mapping[str, Any],
        *,
        batch: JobId | None = None,
    ) -> None:
        queue = self._store.queue
        jobs = [self._only_once(request or _REMOVED) for request in requests]
        environment, code = line.get("environment", ""), line.get("code", "")
        added = queue.number(jobs, environment, code, first=JobId(first), batch=batch)
        queue.add(added, encode_requests([job.request for job in added]), line["at"])
        for job, request in zip(added, requests, strict=True):
            if request is not None and request.array is not None and request.array != job.request.array:
                self._put_into_array(job, request)
        queue.remove([job.id for job, request in zip(added, requests, strict=True) if request is None])

    # -- one act for each kind of line -----------------------------------------------------------------

    def _add(self, line: Mapping[str, Any]) -> None:
        first = line["first"]
        if first < self._first_unknown:
            return
        self._forget_from(first)
        self.add(first, _decoded(line["jobs"]), line)
        if line.get("key"):
            self._store.queue.remember_call(line["key"], first, JobId(first + len(line["jobs"]) - 1), line["at"])

    def _part(self, line: Mapping[str, Any]) -> None:
        first, last = map(JobId, line["list"])
        lists = self._store.lists
        whole = lists.starting_at(first)
        if whole is None:
            if first < self._first_unknown:
                return
            self._forget_from(first)
            whole = StagedList(first, last, line["key"])
            lists.begin(whole, line["at"])
        lists.put(StagedPart(whole, JobId(line["first"]), line["jobs"]), line["at"])

    def _list(self, line: Mapping[str, Any]) -> None:
        queue, lists = self._store.queue, self._store.lists
        if queue.numbers_of(line["key"]) is not None:
            return
        whole = lists.with_key(line["key"])
        if whole is None:
            raise KeyError(line["first"])
        lists.complete(replace(whole, environment=line["environment"], code=line["code"]), line["at"])
        queue.remember_call(line["key"], whole.first, whole.last, line["at"])
        self.enter_lists()

    def _forget_from(self, first: int) -> None:
        """A call that counts from here means that these numbers were never acknowledged."""
        there = "select 1 from jobs where id >= ? union all select 1 from lists where first >= ?"
        if self._db.execute(there, (first, first)).fetchone() is None:
            return
        for statement in (
            "delete from attempts where job >= ?",
            "delete from suspensions where job >= ?",
            "delete from dependencies where job >= ?",
            "delete from submissions where last >= ?",
            "delete from jobs where id >= ?",
            "delete from parts where first >= ?",
            "delete from lists where first >= ?",
        ):
            self._db.execute(statement, (first,))

    def _code(self, line: Mapping[str, Any]) -> None:
        self._store.queue.keep_code(line["content"])

    def _start(self, line: Mapping[str, Any]) -> None:
        job = self._job(line["job"])
        attempt = Attempt(
            job=job.id,
            number=line["attempt"],
            claims=decode_claims(line["claims"]),
            boot_id=line["boot"],
            opened_at=line["at"],
            folder=line["folder"],
            backend=line.get("backend", ""),
        )
        if (row := self._attempt_row(line)) is not None:
            if row.ended_at is not None:
                return  # the store knows more
            self._store.forget_attempt(attempt, None)  # the first time it was not taken
        self._store.open_attempt(attempt)

    def _run(self, line: Mapping[str, Any]) -> None:
        row = self._attempt_row(line)
        if row is not None and row.ended_at is None:
            there = {"node": line["node"], "node_gpus": line["gpus"], "opened_at": line["at"]}
            self._store.run_attempt(replace(row.attempt, **there))

    def _end(self, line: Mapping[str, Any]) -> None:
        job, outcome = self._job(line["job"]), _outcome(line["outcome"])
        row = self._attempt_row(line)
        if row is not None and row.ended_at is not None:
            return
        attempt = None if row is None else row.attempt
        if attempt is None:  # its start cannot be read
            attempt = Attempt(
                job=job.id,
                number=line["attempt"],
                claims=(),
                boot_id="",
                opened_at=line["at"] - (outcome.seconds or 0.0),
                folder="",
            )
            self._store.open_attempt(attempt)
        self.end(attempt, outcome, line["at"], line["retry_at"], State(line["state"]))

    def end(
        self, attempt: Attempt, outcome: Outcome, now: float, retry_at: float | None, state: State | None = None
    ) -> None:
        """An attempt is over, and perhaps its job."""
        self._store.end_attempt(attempt, outcome, now, retry_at)
        if state is not None:
            ended_at = now if state.is_over else None
            self._db.execute(
                "update jobs set state = ?, ended_at = ? where id = ?", (state, ended_at, attempt.job)
            )
        else:
            state = outcome.state if retry_at is None else State.QUEUED
        self._free_followers(attempt.job, state)

    def _never(self, line: Mapping[str, Any]) -> None:
        row = self._attempt_row(line)
        if row is not None and row.ended_at is None:
            self._store.forget_attempt(row.attempt, line["retry_at"])

    def _set(self, line: Mapping[str, Any]) -> None:
        state = State(line["state"])
        for number in journal_lines.numbers(line["jobs"]):
            self._set_one(self._job(number), state, line)

    def _set_one(self, job: Job, state: State, line: Mapping[str, Any]) -> None:
        queue = self._store.queue
        if state.is_over:
            outcome = _outcome(line.get("outcome", {"cause": Cause.STOPPED}))
            queue.end_without_attempt(job.id, outcome, line["at"], line.get("by"))
            self._db.execute("update jobs set state = ? where id = ?", (state, job.id))
            self._free_followers(job.id, state)
            return
        if line.get("fresh"):
            self._store.queue_again(job.id)
            queue.block_again(job.id, job.request)
        if state is State.HELD:
            queue.hold([job.id], line.get("why", ""))
        elif state is State.SUBMITTED:
            queue.hold_there(job.id, line.get("why", ""))
        else:
            queue.release(job.id)
        if "not_before" in line:
            self._db.execute("update jobs set not_before = ? where id = ?", (line["not_before"], job.id))

    def _stop(self, line: Mapping[str, Any]) -> None:
        for number in journal_lines.numbers(line["jobs"]):
            self._store.queue.stop(number)

    def _edit(self, line: Mapping[str, Any]) -> None:
        before = self._job(line["job"])
        request = decode_request(line["request"])
        queue = self._store.queue
        queue.change(replace(before, request=request, rank=line["rank"], not_before=line["not_before"]))
        if request.after != before.request.after:
            queue.block_again(before.id, request)

    def _suspension(self, line: Mapping[str, Any]) -> None:
        row = self._attempt_row(line)
        if row is None or row.ended_at is not None:
            return
        said = {name: line[name] for name in line if name not in ("k", "job", "attempt")}
        rung = said.pop("rung")
        phase = SuspensionPhase(said.pop("phase"))
        one = Suspension(phase=phase, rung=None if rung is None else Rung(rung), **said)
        self._store.suspensions.put(row.attempt.key, one)

    def _gone(self, line: Mapping[str, Any]) -> None:
        for one in line["jobs"]:
            span = (one[0], one[1]) if isinstance(one, list) else (one, one)
            # They had ended: no job waits for them any more.
            waiting = self._db.execute(
                "select job, needs from dependencies where needs between ? and ?", span
            ).fetchall()
            for job, needs in waiting:
                self._store.queue.unblock(job, needs)
            self._store.lists.remove(*span)
            for statement in (
                "delete from attempts where job between ? and ?",
                "delete from suspensions where job between ? and ?",
                "delete from dependencies where job between ? and ?",
                "delete from jobs where id between ? and ?",
            ):
                self._db.execute(statement, span)
            self._db.executemany(
                "insert or ignore into cleaned values (?)", ((number,) for number in range(span[0], span[1] + 1))
            )

    def _mark(self, line: Mapping[str, Any]) -> None:
        if line["kind"]:
            self._store.queue.mark(Mark(line["subject"], line["kind"], line["why"], line["at"]))
        else:
            self._store.queue.unmark(line["subject"])

    def _setting(self, line: Mapping[str, Any]) -> None:
        self._store.queue.set(line["name"], line["value"])

    # -- helpers ---------------------------------------------------------------------------------------

    def _job(self, number: int) -> Job:
        found = self._store.queue.find([JobId(number)])
        if not found:
            raise KeyError(number)
        return found[0]

    def _attempt_row(self, line: Mapping[str, Any]) -> AttemptRow | None:
        rows = self._store.listing.attempts(JobId(line["job"]))
        return next((row for row in rows if row.attempt.number == line["attempt"]), None)

    def _free_followers(self, ended: JobId, state: State) -> None:
        """Jobs that wait for another end are cancelled by lines of their own."""
        if not state.is_over:
            return
        for follower, kind in self._store.queue.followers(ended):
            if kind.is_met_by(state):
                self._store.queue.unblock(follower, ended)

    def _only_once(self, request: Request) -> Request:
        """The line that cleaned the earlier job with this key away may be one that cannot be read."""
        if request.once and self._store.queue.job_once(request.once) is not None:
            return replace(request, once="")
        return request

    def _put_into_array(self, job: Job, request: Request) -> None:
        """The head of its array was cleaned away."""
        assert request.array is not None
        self._db.execute(
            "update jobs set array_id = ?, request = ?, class = ? where id = ?",
            (request.array.array, encode_request(request), class_of(request), job.id),
        )


def _decoded(requests: Sequence[str | None]) -> list[Request | None]:
    return [None if text is None else decode_request(text) for text in requests]


def _outcome(said: Mapping[str, Any]) -> Outcome:
    cause = said.get("cause")
    return Outcome(
        exit_code=said.get("exit_code"),
        signal=said.get("signal"),
        cause=None if cause is None else Cause(cause),
        message=said.get("message", ""),
        seconds=said.get("seconds"),
        checkpointed=said.get("checkpointed", False),
        tried_alone=said.get("tried_alone", False),
    )


def _place_to_begin(store: Store, book: Journal) -> int:
    remembered = store.queue.setting(POSITION)
    if remembered is None and store.queue.next_number() > 1:
        return book.size  # it is older than this memory: what it says itself must do
    known = Position("", 0) if remembered is None else Position.parse(remembered)
    if known.id == book.position.id:
        return min(known.size, book.size)  # the end of a journal may be lost in a power cut; the store's is not
    if known == book.position_before:
        return book.size  # it was compacted, and then the machine stopped
    raise StoreUnusable(
        f"cannot use {store.path}: its journal belongs to another store",
        remedy="take both back from one backup, or let `dibs doctor --rebuild` make the store again",
    )


def _sweep_acts(table: SweepTable) -> dict[str, Callable[[Mapping[str, Any]], None]]:
    """What each of these lines does to a store. KeyError where a line fits nothing before it."""

    def sweep(line: Mapping[str, Any]) -> None:
        if table.with_key(line["key"]) is None:
            table.add(
                _stands(
                    Sweep(
                        id=SweepId(line["id"]),
                        key=line["key"],
                        name=line["name"],
                        spec=line["spec"],
                        request=decode_request(line["request"]),
                        environment=line["environment"],
                        code=line["code"],
                        queued_at=line["at"],
                    ),
                    line,
                )
            )

    def sweep_set(line: Mapping[str, Any]) -> None:
        table.change(_stands(_known(table, line["id"]), line))

    def trial(line: Mapping[str, Any]) -> None:
        goals = goals_of(_known(table, line["sweep"]).spec)
        before = table.trial(SweepId(line["sweep"]), line["number"])
        if before is None:
            table.add_trial(_became(_new_trial(line), line), goals, line["cursor"])
        else:
            table.change_trial(_became(before, line), goals)

    def gone(line: Mapping[str, Any]) -> None:
        table.remove(SweepId(line["id"]))

    return {"sweep": sweep, "sweep-set": sweep_set, "sweep-gone": gone, "trial": trial}


def _known(table: SweepTable, number: int) -> Sweep:
    try:
        return table.sweep(number)
    except NoSuchSweep:
        raise KeyError(number) from None


def _stands(sweep: Sweep, line: Mapping[str, Any]) -> Sweep:
    return replace(
        sweep,
        spec=line.get("spec", sweep.spec),
        state=SweepState(line["state"]),
        why=line.get("why", ""),
        cursor=line.get("cursor", 0),
        counts_from=line.get("counts_from", 0.0),
        ended_at=line.get("ended_at"),
    )


def _new_trial(line: Mapping[str, Any]) -> Trial:
    return Trial(
        sweep=SweepId(line["sweep"]),
        number=line["number"],
        point=line["point"],
        command=line["command"],
        fingerprint=line["fingerprint"],
    )


def _numbers(given: list[float] | None) -> tuple[float, ...] | None:
    return None if given is None else tuple(given)


def _became(trial: Trial, line: Mapping[str, Any]) -> Trial:
    job, values, reused_from = line.get("as_job"), line.get("values"), line.get("reused_from")
    return replace(
        trial,
        state=TrialState(line["state"]),
        job=None if job is None else JobId(job),
        values=None if values is None else tuple(values),
        why=line.get("why", ""),
        cause=line.get("cause", ""),
        seconds=line.get("seconds"),
        reused_from=None if reused_from is None else JobId(reused_from),
        ended_at=line.get("ended_at"),
        study=line.get("study"),
        pruned_by=line.get("pruned_by", ""),
        is_due=line.get("due", False),
        reported=line.get("reported", {}),
        continues=line.get("continues"),
        repeat_of=line.get("repeat_of"),
        means=_numbers(line.get("means")),
        spreads=_numbers(line.get("spreads")),
    )
