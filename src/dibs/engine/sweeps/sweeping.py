"""Sweeps in the queue: begun, changed and looked after. Each one that has work has a task of its own."""

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from dibs.engine.engine import Engine
from dibs.engine.launch.results import Results
from dibs.engine.queue.queue import Queue
from dibs.engine.sweeps.acts import Acted, act, check_removable, remove
from dibs.engine.sweeps.begin import reopened
from dibs.engine.sweeps.book import SweepBook
from dibs.engine.sweeps.parts import Parts, Search
from dibs.engine.sweeps.run import SweepRun
from dibs.engine.sweeps.weights import Weights
from dibs.engine.worker_thread import WorkerThread
from dibs.errors import BadInput, Conflict, DibsError, StoreUnusable
from dibs.model.jobs import JobId, Request
from dibs.model.sweeps import Sweep, SweepId, SweepState, TrialState

_SHOWN = 5  # commands of a check
_LOOKED_AT = 20_000  # points for them
_AT_ONCE = 20  # points before others have their turn
_PATIENCE = 60.0  # seconds for a file
_AFTER_TROUBLE = 2.0  # seconds until a full disk is tried again
_MOST_SEARCHES = 128
_JOURNAL = "optuna.journal"


@dataclass(frozen=True, kw_only=True)
class NewSweep:
    """One call that begins a sweep. Whoever repeats it with the same key gets the same number."""

    key: str
    spec: Mapping[str, Any]
    request: Request  # what each job asks for; its command is of no account
    environment: Mapping[str, str]
    code: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class NewSweepNumber:
    id: SweepId
    is_new: bool
    size: int | None  # trials in the end, where that is known


@dataclass(frozen=True, slots=True)
class Checked:
    """What a sweep would do."""

    size: int | None
    commands: list[str]  # of the first points
    left_out: int  # of the points looked at for them


@dataclass(frozen=True, slots=True)
class About:
    """What follows from a sweep's spec."""

    size: int | None
    parallel: int
    metrics: list[tuple[str, str]]  # names and goals
    journal: str  # Optuna's file; empty where there is none


class Sweeping:
    """What people ask of sweeps, and the tasks that look after them. A queue without sweeps pays nothing."""

    def __init__(
        self,
        engine: Engine,
        queue: Queue,
        results: Results,
        *,
        reach: Callable[[str], None],
        log: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._table = engine.store.sweeps
        self._parts = Parts(
            engine=engine,
            queue=queue,
            book=SweepBook(engine.store, engine.recorder),
            results=results,
            root=engine.place.root,
            cpus=os.cpu_count() or 1,
            aside=self._beside,
            reach=reach,
            log=log,
        )
        self._runs: dict[SweepId, SweepRun] = {}
        self._tasks: dict[SweepId, asyncio.Task[None]] = {}
        self._aside: WorkerThread | None = None
        self._retried: set[JobId] = set()
        self._searches: dict[SweepId, tuple[Mapping[str, Any], Search]] = {}  # of those that were shown last
        self._weights = Weights(self._table)
        self._is_closed = False
        self._has_any = bool(self._table.page((), below=None, limit=1))
        engine.touched.subscribe(self._touched)
        engine.retried.subscribe(self._heard_of_retries)

    # -- what people ask -------------------------------------------------------------------------------

    def is_known(self, key: str) -> bool:
        """Whether this call was answered before."""
        return self._table.with_key(key) is not None

    def add(self, new: NewSweep) -> NewSweepNumber:
        if (earlier := self._table.with_key(new.key)) is not None:
            return NewSweepNumber(earlier.id, False, self._search(earlier).size)
        search = self._checked(new)
        from dibs.sweeps.spec import spec_object

        is_held = new.request.hold
        with self._engine.change() as change:
            environment = self._engine.store.keep_environment(new.environment)
            # The file first: a sweep that is acknowledged must find its environment.
            self._engine.place.keep_environment(environment, new.environment)
            sweep = self._parts.book.added(
                Sweep(
                    id=SweepId(0),
                    key=new.key,
                    name=search.spec.name or new.request.name,
                    spec=spec_object(search.spec),
                    request=replace(new.request, name="", hold=False),
                    environment=environment,
                    code=self._parts.queue.keep_code(new.code),
                    state=SweepState.HELD if is_held else SweepState.RUNNING,
                    why="held when it was added" if is_held else "",
                    queued_at=change.now,
                )
            )
        self._has_any = True
        if not is_held:
            self._look_after(sweep.id)
        return NewSweepNumber(sweep.id, True, search.size)

    async def check(self, new: NewSweep) -> Checked:
        """A dry run of `add`."""
        search = self._checked(new)
        size = search.points.size
        commands: list[str] = []
        cursor = 0
        while len(commands) < _SHOWN and cursor < (_LOOKED_AT if size is None else min(size, _LOOKED_AT)):
            cursor, point = search.points.next(cursor, _AT_ONCE)
            if point is not None:
                commands.append(search.command(point).shown)
            await asyncio.sleep(0)
        return Checked(search.size, commands, cursor - len(commands))

    def act(
        self,
        number: SweepId,
        action: str,
        *,
        samples: int | None = None,
        parallel: int | None = None,
        keeps_running: bool = False,
    ) -> Acted:
        """Stop, hold, release, resume, retry-failed or edit; where it raises nothing has changed."""
        done = act(self._parts, number, action, samples, parallel, keeps_running)
        is_running = self._table.sweep(number).state is SweepState.RUNNING
        if number in self._tasks or is_running or self._table.open(number):
            self._look_after(number)
        return done

    async def remove(self, number: SweepId) -> int:
        """Forget a sweep that is over, with its study; how many trials it had. Conflict while it is not over."""
        check_removable(self._parts, number)
        if (task := self._tasks.get(number)) is not None:
            await asyncio.wait([task], timeout=_PATIENCE)  # whoever has just ended it is about to leave
        if number in self._tasks:
            raise Conflict(
                f"cannot remove sweep {number}: it is being looked after", remedy="try again in a moment"
            )
        trials = remove(self._parts, number)
        self._searches.pop(number, None)
        folder = self._parts.folder(number)
        with suppress(TimeoutError):  # nobody uses the name again: what a slow disk keeps is in nobody's way
            await self._parts.aside(lambda: shutil.rmtree(folder, ignore_errors=True))
        return trials

    def about(self, sweep: Sweep) -> About:
        try:
            search = self._search(sweep)
        except BadInput:  # another version could do what this one cannot: no reason not to show the others
            metrics = [(metric["name"], metric.get("goal", "min")) for metric in sweep.spec.get("metrics", ())]
            return About(size=None, parallel=1, metrics=metrics, journal="")
        run = self._runs.get(sweep.id)
        wishes = sweep.request.wishes if run is None else run.work.wishes(sweep)
        journal = f"{self._parts.folder(sweep.id)}/{_JOURNAL}"
        return About(
            size=search.size,
            parallel=search.parallel(self._parts, wishes, sweep.request.on),
            metrics=[(metric.name, metric.goal) for metric in search.spec.metrics],
            journal=journal if search.spec.needs_adviser and os.path.exists(journal) else "",
        )

    async def importance(self, sweep: Sweep) -> tuple[list[tuple[str, float]], str]:
        """How much each parameter matters for the first metric; or none, and why not. It may take seconds."""
        return await self._weights.of(sweep, self._search(sweep))

    # -- helpers ---------------------------------------------------------------------------------------

    def _search(self, sweep: Sweep) -> Search:
        kept = self._searches.get(sweep.id)
        if kept is None or kept[0] != sweep.spec:
            if len(self._searches) >= _MOST_SEARCHES:
                self._searches.clear()
            kept = self._searches[sweep.id] = (sweep.spec, Search(sweep.spec))
        return kept[1]

    def _checked(self, new: NewSweep) -> Search:
        """The search, if it can be done here."""
        from dibs.sweeps.adviser import adviser_problem

        search = Search(new.spec)
        if problem := adviser_problem(search.spec):
            what, _, remedy = problem.partition("; ")
            raise BadInput(what, remedy=remedy)
        self._parts.queue.check_possible([new.request])
        return search

    # -- looking after them ----------------------------------------------------------------------------

    def come_back(self) -> None:
        """Take up what another daemon left."""
        if self._has_any:
            self._retried.update(trial.job for trial in self._table.revived() if trial.job is not None)
            self._revive_later()
            for sweep in self._table.unfinished():
                self._look_after(sweep)

    async def close(self) -> None:
        """Leave. What runs goes on without us."""
        self._is_closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._aside is not None:
            self._aside.stop()

    def _look_after(self, sweep: SweepId) -> None:
        if sweep in self._tasks:
            self._runs[sweep].wake()
        elif not self._is_closed:
            run = self._runs[sweep] = SweepRun(self._parts, sweep)
            self._tasks[sweep] = asyncio.get_running_loop().create_task(self._guarded(run))

    async def _guarded(self, run: SweepRun) -> None:
        number = run.work.id
        try:
            await run.go()
        except Exception:
            # A bug: it is written down, and the sweep waits for somebody instead of falling again and again.
            self._fell(number)
            raise
        finally:
            del self._tasks[number], self._runs[number]
        if run.is_woken:  # while it was leaving
            self._look_after(number)

    def _fell(self, number: SweepId) -> None:
        try:
            with self._engine.change() as change:
                why = "dibs met a bug while it looked after this sweep; daemon.log has the traceback"
                sweep = replace(self._table.sweep(number), state=SweepState.HELD, why=why)
                self._parts.book.changed(sweep, change.now)
        except DibsError as error:
            self._parts.log(f"sweep {number} is left alone: {error.message}")

    def _touched(self, jobs: Sequence[JobId]) -> None:
        for run in self._runs.values():
            if not run.work.jobs.isdisjoint(jobs):
                run.wake()

    def _heard_of_retries(self, jobs: Sequence[JobId]) -> None:
        if self._has_any and not self._is_closed:
            self._retried.update(jobs)
            asyncio.get_running_loop().call_soon(self._revive_later)

    def _revive_later(self) -> None:
        jobs, self._retried = self._retried, set()
        try:
            self._revive(sorted(jobs))
        except StoreUnusable:
            self._retried |= jobs
            asyncio.get_running_loop().call_later(_AFTER_TROUBLE, self._revive_later)

    def _revive(self, jobs: Sequence[JobId]) -> None:
        """Somebody queued the jobs of failed trials again: so those are open again."""
        states = self._engine.store.listing.states(list(jobs)) if jobs else {}
        trials = [
            one
            for one in (self._table.of_jobs(jobs) if jobs else ())
            if one.state is TrialState.FAILED and one.job in states and not states[one.job].is_over
        ]
        for number in sorted({one.sweep for one in trials}):
            sweep = self._table.sweep(number)
            goals = self._table.goals(number)
            with self._engine.change() as change:
                for trial in trials:
                    if trial.sweep == number:
                        self._parts.book.trial(reopened(trial, trial.job), goals, change.now)
                if sweep.state is SweepState.FINISHED:
                    on = replace(sweep, state=SweepState.RUNNING, ended_at=None, counts_from=change.now)
                    self._parts.book.changed(on, change.now)
            self._look_after(sweep.id)

    async def _beside(self, work: Callable[[], Any]) -> Any:
        """Work in a thread. One that hangs is left behind, and the next work gets another."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        if self._aside is None:
            self._aside = WorkerThread(loop)
        if not self._aside(work, lambda found: None if answer.done() else answer.set_result(found)):
            return work()  # there can be no thread now
        try:
            return await asyncio.wait_for(answer, _PATIENCE)
        except TimeoutError:
            self._aside.stop()
            self._aside = None
            raise
