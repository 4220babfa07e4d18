"""A queue's life in its store and its journal, without processes: whatever happens is recorded in both."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from dibs.model.jobs import (
    After,
    ArrayTask,
    Attempt,
    Cause,
    Dependency,
    Job,
    JobId,
    Outcome,
    Request,
    State,
)
from dibs.model.records import Mark, StagedList, StagedPart
from dibs.model.suspensions import Rung, Suspension, SuspensionPhase
from dibs.model.sweeps import Sweep, SweepId, SweepState, Trial, TrialState
from dibs.store import journal_lines
from dibs.store.codec import decode_request, encode_requests
from dibs.store.journal import Journal
from dibs.store.recorder import Recorder, remember_position
from dibs.store.store import Store
from dibs.supervise.folder import AttemptFacts
from store.builders import NOON, a_request, an_attempt

ENVIRONMENT = {"HOME": "/", "ODD": "\udcff"}
GOOD = Outcome(exit_code=0, seconds=1.5)
SAVED = Outcome(exit_code=1, cause=Cause.TIME_LIMIT, checkpointed=True, seconds=9.0)
BAD = Outcome(exit_code=3, cause=Cause.EXIT_CODE, message="it \udcff fell", seconds=0.5)
METRICS = [{"name": "loss", "goal": "min"}, {"name": "speed", "goal": "max"}]
RUNS = AttemptFacts(is_locked=True, record=None, has_started=True)
BLANK = AttemptFacts(is_locked=False, record=None, has_started=False)
GONE = AttemptFacts(is_locked=False, record=None, has_started=True, damage="its record is gone")


@dataclass
class Books:
    """A store and its journal. `plant` makes them differ, to show that the tests notice."""

    folder: str
    plant: str = ""
    reach: Callable[[str], None] = lambda point: None

    def __post_init__(self) -> None:
        os.makedirs(f"{self.folder}/environments", exist_ok=True)
        self.store = Store(f"{self.folder}/store.db")
        self.journal = Journal(f"{self.folder}/journal.jsonl")
        self.clock = NOON
        self._late: list[journal_lines.Line] = []
        with self.store.turn():
            self.environment = self.store.keep_environment(ENVIRONMENT)
        with open(f"{self.folder}/environments/{self.environment}.json", "w") as file:
            json.dump(ENVIRONMENT, file)

    def close(self) -> None:
        self.store.close()
        self.journal.close()

    @contextmanager
    def turn(self) -> Iterator[list[journal_lines.Line]]:
        """One turn of a loop: the lines are written before the store commits."""
        self.clock += 1.0
        lines: list[journal_lines.Line] = []
        size = self.journal.size
        try:
            with self.store.turn():
                yield lines
                if not self.plant:
                    recorder = Recorder(self.store, self.journal)
                    for line in lines:
                        recorder.note(line, sync=line["k"] == "add")
                    recorder.finish()
                self.reach("before the commit")
        except BaseException:
            self.journal.take_back(size)
            raise
        if self.plant == "written in the next turn":
            self.journal.append(self._late)
            self._late = lines
        elif self.plant == "ends are not written":
            self.journal.append(line for line in lines if line["k"] != "end")
        elif self.plant == "changes are not written":
            self.journal.append(line for line in lines if line["k"] not in ("set", "edit"))

    # -- what may happen -------------------------------------------------------------------------------

    def add(self, *requests: Request) -> list[Job]:
        with self.turn() as lines:
            code = {"commit": "a1b2"}
            key, _ = self.store.queue.keep_code(code)
            jobs = self.store.queue.number(requests, self.environment, key)
            texts = encode_requests([job.request for job in jobs])
            self.store.queue.add(jobs, texts, self.clock)
            call = f"call {jobs[0].id}"
            self.store.queue.remember_call(call, jobs[0].id, jobs[-1].id, self.clock)
            lines += [journal_lines.coded(key, code), journal_lines.added(jobs, texts, key=call, now=self.clock)]
        return jobs

    def add_part(self, choice: int) -> None:
        """The next part of the list that is on its way, or of a new one. With the last it becomes jobs."""
        lists = self.store.lists
        with self.turn() as lines:
            (whole,) = lists.unfinished(self.clock) or [None]
            if whole is None:
                first = self.store.queue.next_number()
                whole = StagedList(first, JobId(first + 3), f"list {first}")
                lists.begin(whole, self.clock)
            size = min(whole.missing, 1 + choice % 2)
            requests = [a_request(f"of a list {choice}", hold=bool(choice % 3)) for _ in range(size)]
            part = StagedPart(whole, JobId(whole.first + whole.arrived), encode_requests(requests))
            lists.put(part, self.clock)
            lines.append(journal_lines.staged(part, now=self.clock))
            if size == whole.missing:
                whole = replace(whole, environment=self.environment)
                lists.complete(whole, self.clock)
                self.store.queue.remember_call(whole.key, whole.first, whole.last, self.clock)
                lines.append(journal_lines.completed(whole, now=self.clock))
                self._enter_list()

    def _enter_list(self) -> None:
        while (part := self.store.lists.next_part()) is not None:
            requests = [decode_request(text) for text in part.requests]
            whole = part.list
            jobs = self.store.queue.number(
                requests, whole.environment, whole.code, first=part.first, batch=whole.first
            )
            self.store.queue.add(jobs, part.requests, whole.at)
            self.store.lists.remove_part(part)

    def drop_list(self) -> None:
        for whole in self.store.lists.unfinished(self.clock + 1):
            with self.turn() as lines:
                self.store.lists.remove(whole.first, whole.first)
                lines.append(journal_lines.cleaned(range(whole.first, whole.last + 1)))

    def start(self, job: JobId) -> Attempt:
        number = self.store.queue.job(job).attempts + 1
        folder = f"{self.folder}/attempts/{job // 1000}/{job}.{number}"
        attempt = replace(an_attempt(self.store.queue.job(job), number, folder), opened_at=self.clock)
        with self.turn() as lines:
            self.store.open_attempt(attempt)
            lines.append(journal_lines.started(attempt))
        return attempt

    def end(self, attempt: Attempt, outcome: Outcome = GOOD, *, retry: bool = False) -> None:
        with self.turn() as lines:
            retry_at = self.clock + 60 if retry else None
            state = State.QUEUED if retry else outcome.state
            self.store.end_attempt(attempt, outcome, self.clock, retry_at)
            lines.append(journal_lines.ended(attempt, outcome, state, retry_at, self.clock))
            self._follow(attempt.job, state, lines)

    def move(self, attempt: Attempt, choice: int) -> None:
        """Its suspension goes one step on, or another one begins."""
        earlier = self.store.suspensions.of([attempt.job]).get(attempt.key, [])
        one = earlier[-1] if earlier else None
        if one is None or one.is_over:
            phase, who, number = SuspensionPhase.SUSPENDING, f"for job {choice} \udcff", len(earlier) + 1
            after = Suspension(number=number, phase=phase, why=who, resumes=bool(choice % 2), began_at=self.clock)
        elif one.phase is SuspensionPhase.SUSPENDING:
            moved = {"suspended_at": self.clock, "rung": Rung.CUDA, "held": {"GPU-\u00e9": choice}}
            after = replace(one, phase=SuspensionPhase.SUSPENDED, **moved)
        elif one.phase is SuspensionPhase.SUSPENDED:
            after = replace(one, phase=SuspensionPhase.RESUMING, resuming_at=self.clock)
        else:
            after = replace(one, phase=SuspensionPhase.OVER, ended_at=self.clock, why_not="no" * (choice % 2))
        with self.turn() as lines:
            self.store.suspensions.put(attempt.key, after)
            lines.append(journal_lines.suspension(attempt, after))

    def never(self, attempt: Attempt) -> None:
        with self.turn() as lines:
            self.store.forget_attempt(attempt, None)
            lines.append(journal_lines.never_ran(attempt))

    def hold(self, *jobs: JobId) -> None:
        with self.turn() as lines:
            self.store.queue.hold(jobs, "its owner wants to look")
            lines.append(journal_lines.changed(jobs, State.HELD, now=self.clock, why="its owner wants to look"))

    def release(self, job: JobId) -> None:
        with self.turn() as lines:
            self.store.queue.release(job)
            lines.append(journal_lines.changed([job], State.QUEUED, now=self.clock))

    def cancel(self, job: JobId) -> None:
        with self.turn() as lines:
            self._end_without_attempt(job, Outcome(cause=Cause.STOPPED, message="killed"), lines)

    def retry(self, job: JobId) -> None:
        with self.turn() as lines:
            self.store.queue_again(job)
            self.store.queue.block_again(job, self.store.queue.job(job).request)
            self.store.queue.release(job)
            lines.append(journal_lines.changed([job], State.QUEUED, now=self.clock, is_fresh=True))

    def edit(self, job: JobId) -> None:
        with self.turn() as lines:
            before = self.store.queue.job(job)
            request = replace(before.request, priority=before.request.priority + 3, name="edited", project="p2")
            after = replace(before, request=request, rank=0.5, not_before=NOON + 9999)
            self.store.queue.change(after)
            lines.append(journal_lines.edited(after))

    def clean(self, jobs: Sequence[JobId]) -> None:
        with self.turn() as lines:
            self.store.queue.remove(jobs)
            lines.append(journal_lines.cleaned(jobs))

    def compact(self) -> None:
        self.drop_list()  # a journal is not compacted while one is on its way
        self.journal.compact(lambda number: bool(self.store.queue.find([JobId(number)])))
        with self.store.turn():
            remember_position(self.store, self.journal)

    def pause(self, subject: str) -> None:
        with self.turn() as lines:
            self.store.queue.mark(Mark(subject, "paused", "tea", self.clock))
            self.store.queue.set("pool", subject)
            lines += [
                journal_lines.marked(subject, "paused", "tea", self.clock),
                journal_lines.setting("pool", subject),
            ]

    def sweep(self, name: str = "", **more: Any) -> Sweep:
        with self.turn() as lines:
            number = self.store._db.execute("select count(*) from sweeps").fetchone()[0] + 1
            sweep = self.store.sweeps.add(a_sweep(f"call {number}", self.environment, name=name, **more))
            lines.append(journal_lines.swept(sweep))
        return sweep

    def change_sweep(self, sweep: Sweep, *, is_edited: bool = False) -> None:
        with self.turn() as lines:
            self.store.sweeps.change(sweep)
            lines.append(journal_lines.sweep_changed(sweep, is_edited=is_edited))

    def try_point(self, sweep: SweepId, job: JobId | None = None) -> Trial:
        table = self.store.sweeps
        trial = replace(a_trial(sweep, table.next_number(sweep)), job=job)
        with self.turn() as lines:
            cursor = table.sweep(sweep).cursor + 1
            table.add_trial(trial, table.goals(sweep), cursor)
            lines.append(journal_lines.tried(trial, cursor=cursor))
        return trial

    def change_trial(self, trial: Trial, **more: Any) -> None:
        with self.turn() as lines:
            trial = replace(trial, **more)
            self.store.sweeps.change_trial(trial, self.store.sweeps.goals(trial.sweep))
            lines.append(journal_lines.tried(trial))

    def unpause(self, subject: str) -> None:
        with self.turn() as lines:
            self.store.queue.unmark(subject)
            lines.append(journal_lines.unmarked(subject))

    def _end_without_attempt(self, job: JobId, outcome: Outcome, lines: list[journal_lines.Line]) -> None:
        self.store.queue.end_without_attempt(job, outcome, self.clock)
        lines.append(journal_lines.changed([job], outcome.state, now=self.clock, outcome=outcome))
        self._follow(job, outcome.state, lines)

    def _follow(self, ended: JobId, state: State, lines: list[journal_lines.Line]) -> None:
        if not state.is_over:
            return
        for follower, kind in self.store.queue.followers(ended):
            if kind.is_met_by(state):
                self.store.queue.unblock(follower, ended)
            else:
                message = f"job {ended} ended as {state}"
                self._end_without_attempt(follower, Outcome(cause=Cause.DEPENDENCY, message=message), lines)

    # -- any history -----------------------------------------------------------------------------------

    def anything(self, choice: int) -> None:
        """Some act that makes sense now; the same choices make the same history."""
        rows = self.store._db.execute("select id, state from jobs order by id").fetchall()
        waiting = [JobId(number) for number, state in rows if state == "queued"]
        held = [JobId(number) for number, state in rows if state == "held"]
        over = [JobId(number) for number, state in rows if State(state).is_over]
        running = [attempt for _, attempt in self.store.open_attempts()]
        acts: list[Callable[[], Any]] = [
            lambda: self.add(a_request(f"job {choice}", project="p" * (choice % 3))),
            lambda: self.add(a_request("held", hold=True), a_request("once", once=f"k{choice}{len(rows)}")),
            lambda: self.add(*[a_request("task", array=ArrayTask(JobId(0), n, 2)) for n in (1, 4, 9)]),
            lambda: self.add_part(choice),
            lambda: self.add_part(choice),
            lambda: self.pause("queue"),
            lambda: self.unpause("queue"),
            lambda: self.sweep("s" * (choice % 2)),
        ]
        acts += self._acts_on_sweeps(choice)
        if not self.store.lists.is_empty:
            acts.append(self.drop_list)
        if pending := [*waiting, *held, *(attempt.job for attempt in running)]:
            needed = pending[choice % len(pending)]
            acts += [
                lambda kind=kind: self.add(a_request("f", after=(Dependency(needed, kind),))) for kind in After
            ]
        for jobs, some in (
            (waiting, (self.start, self.start, self.hold, self.cancel, self.edit)),
            (held, (self.release, self.edit)),
            (over, (self.retry, lambda job: self.clean([job]))),
        ):
            if jobs:
                acts += [lambda act=act, jobs=jobs: act(jobs[choice % len(jobs)]) for act in some]
        if running:
            attempt = running[choice % len(running)]
            acts += [lambda: self.end(attempt), lambda: self.end(attempt, BAD), lambda: self.never(attempt)]
            acts += [lambda outcome=outcome: self.end(attempt, outcome, retry=True) for outcome in (BAD, SAVED)]
            acts += [lambda: self.move(attempt, choice)] * 2
        acts[choice % len(acts)]()

    def _acts_on_sweeps(self, choice: int) -> list[Callable[[], Any]]:
        sweeps = self.store.sweeps.page((), below=None, limit=9)
        if not sweeps:
            return []
        one = sweeps[choice % len(sweeps)]
        held = replace(one, state=SweepState.HELD, why="it \udcff fell", counts_from=self.clock)
        acts: list[Callable[[], Any]] = [
            lambda: self.try_point(one.id, JobId(choice + 1)),
            lambda: self.change_sweep(held),
            lambda: self.change_sweep(replace(one, spec={**one.spec, "samples": choice}), is_edited=True),
        ]
        if trials := self.store.sweeps.open(one.id):
            trial = trials[choice % len(trials)]
            over = {"seconds": 1.5, "ended_at": self.clock, "study": choice, "reported": {"a": 0.5, "b": None}}
            acts += [
                lambda: self.change_trial(trial, state=TrialState.COMPLETE, values=(1.5, 2.0), **over),
                lambda: self.change_trial(
                    trial, state=TrialState.FAILED, why="\udcff", cause="exit code 1", **over
                ),
                lambda: self.change_trial(
                    trial, pruned_by="at step 5", job=None, reused_from=JobId(7), is_due=True
                ),
            ]
        return acts


def a_sweep(key: str, environment: str, **more: Any) -> Sweep:
    spec = {"command": "f {x}", "parameters": [{"name": "x", "values": ["1", None]}], "metrics": METRICS}
    made = {"id": SweepId(0), "name": "", "spec": spec, "request": a_request(num_gpus=2), "queued_at": NOON}
    return Sweep(**{**made, "key": key, "environment": environment, **more})


def a_trial(sweep: SweepId, number: int, **more: Any) -> Trial:
    made = {"point": {"x": "\udcff", "y": None}, "command": "f \udcff", "fingerprint": f"print {number}"}
    return Trial(**{**made, "sweep": sweep, "number": number, **more})


def picture(path: str) -> Mapping[str, Any]:
    """Everything a store remembers, apart from the events."""
    store = Store(path)
    try:
        tables = (
            *("environments", "code", "jobs", "attempts", "dependencies", "submissions", "marks", "settings"),
            *("sweeps", "trials", "trial_tally", "lists", "parts", "suspensions"),
        )
        content = {name: sorted(store._db.execute(f"select * from {name}"), key=repr) for name in tables}
        tally = store._db.execute("select * from tally where jobs > 0 order by 1, 2").fetchall()
        return {**content, "tally": tally, "next number": store.queue.next_number()}
    finally:
        store.close()
