"""Sweeps in the queue: added, changed and shown. Each sweep that needs work has its own task."""

import asyncio
import os
import shutil
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dibs.dataclass import dataclass
from dibs.engine.engine import Engine
from dibs.engine.launch.results import Results
from dibs.engine.queue.queue import Queue
from dibs.engine.sweeps.actions import ActionResult, SweepChanges, act, check_removable, edit, remove
from dibs.engine.sweeps.checkpoints import hold_without_copy
from dibs.engine.sweeps.context import Search, SweepContext, SweepRecords
from dibs.engine.sweeps.new_trials import reopened
from dibs.engine.sweeps.run import SweepRun
from dibs.errors import BadInput, Conflict, DibsError, StoreUnusable
from dibs.model.jobs import JobId, Request
from dibs.model.sweeps import Sweep, SweepId, SweepState, TrialState
from dibs.store.sweeps import SweepTable
from dibs.sweeps.adviser import adviser_problem, importance_of
from dibs.sweeps.spec import spec_object
from dibs.worker_thread import run_in_thread

_SHOWN = 5  # commands of a dry run
_LOOKED_AT = 20_000  # points that are searched for them
_AT_ONCE = 20  # points before other tasks run
_PATIENCE = 60.0  # seconds for a file operation, or the end of a task
_AFTER_TROUBLE = 2.0  # seconds until a full disk is tried again
_MOST_SEARCHES = 128
_JOURNAL = "optuna.journal"


@dataclass(frozen=True, kw_only=True)
class NewSweep:
    """A call that adds a sweep. The same key gives the same sweep again."""

    key: str
    spec: Mapping[str, Any]
    request: Request  # of each job; its command is ignored
    environment: Mapping[str, str]
    code: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class NewSweepNumber:
    id: SweepId
    is_new: bool
    size: int | None  # the number of trials in the end, where it is known


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a sweep would run."""

    size: int | None
    commands: list[str]  # of the first points
    left_out: int  # points that the conditions exclude, up to the last of these commands
    reused: Mapping[SweepId, int]  # how many trials would be taken from earlier sweeps


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """What is derived from a sweep's spec."""

    size: int | None
    parallel: int
    metrics: list[tuple[str, str]]  # names and goals
    journal: str  # Optuna's file; empty where there is none


class SweepManager:
    """The verbs on sweeps, and the tasks that run them."""

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
        self._context = SweepContext(
            engine=engine,
            queue=queue,
            records=SweepRecords(engine.store, engine.recorder),
            results=results,
            root=engine.place.root,
            cpus=os.cpu_count() or 1,
            in_thread=self._in_thread,
            reach=reach,
            log=log,
        )
        self._runs: dict[SweepId, SweepRun] = {}
        self._tasks: dict[SweepId, asyncio.Task[None]] = {}
        self._retried: set[JobId] = set()
        self._searches: dict[SweepId, tuple[Mapping[str, Any], Search]] = {}  # parsed specs
        self._importance = ImportanceCache(self._table)
        self._is_closed = False
        self._has_any = bool(self._table.page((), below=None, limit=1))
        engine.retried.subscribe(self._on_retried)

    # -- verbs -----------------------------------------------------------------------------------------

    def is_known(self, key: str) -> bool:
        """Whether a call with this key was answered before."""
        return self._table.with_key(key) is not None

    def add(self, new: NewSweep) -> NewSweepNumber:
        if (earlier := self._table.with_key(new.key)) is not None:
            return NewSweepNumber(earlier.id, False, self._search(earlier).size)
        search = self._checked(new)
        is_held = new.request.hold
        with self._engine.change() as change:
            environment = self._engine.store.keep_environment(new.environment)
            # The file first: an acknowledged sweep must have its environment.
            self._engine.place.keep_environment(environment, new.environment)
            sweep = self._context.records.added(
                Sweep(
                    id=SweepId(0),
                    key=new.key,
                    name=search.spec.name or new.request.name,
                    spec=spec_object(search.spec),
                    request=replace(new.request, name="", hold=False),
                    environment=environment,
                    code=self._context.queue.keep_code(new.code),
                    state=SweepState.HELD if is_held else SweepState.RUNNING,
                    why="held when it was added" if is_held else "",
                    queued_at=change.now,
                )
            )
        self._has_any = True
        if not is_held:
            self._ensure_task(sweep.id)
        return NewSweepNumber(sweep.id, True, search.size)

    async def check(self, new: NewSweep) -> DryRun:
        """A dry run of `add`."""
        search = self._checked(new)
        size = search.points.size
        commands: list[str] = []
        cursor = 0
        while len(commands) < _SHOWN and cursor < (_LOOKED_AT if size is None else min(size, _LOOKED_AT)):
            cursor, point = search.points.next(cursor, _AT_ONCE)
            if point is not None:
                commands.append(search.shown(point))
            await asyncio.sleep(0)
        return DryRun(search.size, commands, cursor - len(commands), await self._reusable(search, new))

    async def _reusable(self, search: Search, new: NewSweep) -> Mapping[SweepId, int]:
        """How many of the first points an earlier sweep has run. What an adaptive search tries is not known."""
        found: Counter[SweepId] = Counter()
        if not search.spec.reuse or search.spec.method == "adaptive":
            return found
        size = min(_LOOKED_AT, *(one for one in (search.points.size, search.size) if one is not None))
        cursor = 0
        while cursor < size:
            cursor, point = search.points.next(cursor, _AT_ONCE)
            if point is not None:
                fingerprint = search.fingerprint(point, new.request)
                if before := self._table.done_before(fingerprint, new.spec):
                    found[before.sweep] += 1
            await asyncio.sleep(0)
        return found

    def act(
        self,
        number: SweepId,
        action: str,
        *,
        samples: int | None = None,
        parallel: int | None = None,
        keeps_running: bool = False,
    ) -> ActionResult:
        """Stop, hold, release, resume or retry-failed. If it raises, nothing has changed."""
        done = act(self._context, number, action, samples, parallel, keeps_running)
        is_running = self._table.sweep(number).state is SweepState.RUNNING
        if number in self._tasks or is_running or self._table.open(number):
            self._ensure_task(number)
        return done

    async def edit(self, number: SweepId, changes: SweepChanges) -> ActionResult:
        """Change what a sweep searches. If it raises, nothing has changed."""
        done = await edit(self._context, number, changes)
        if number in self._tasks or self._table.sweep(number).state is SweepState.RUNNING:
            self._ensure_task(number)
        return done

    async def remove(self, number: SweepId) -> int:
        """Remove a sweep that is over, with its study; returns the number of its trials. Conflict otherwise."""
        check_removable(self._context, number)
        if (task := self._tasks.get(number)) is not None:
            await asyncio.wait([task], timeout=_PATIENCE)  # the task of a sweep that has just ended ends soon
        if number in self._tasks:
            raise Conflict(f"cannot remove sweep {number}: its task still runs", remedy="try again in a moment")
        trials = remove(self._context, number)
        self._searches.pop(number, None)
        folder = self._context.folder(number)
        with suppress(TimeoutError):  # a folder left behind is harmless: numbers are not used again
            await self._context.in_thread(lambda: shutil.rmtree(folder, ignore_errors=True))
        return trials

    def about(self, sweep: Sweep) -> SweepSummary:
        try:
            search = self._search(sweep)
        except BadInput:  # a spec from another version; listing the other sweeps must not fail
            metrics = [(metric["name"], metric.get("goal", "min")) for metric in sweep.spec.get("metrics", ())]
            return SweepSummary(size=None, parallel=1, metrics=metrics, journal="")
        run = self._runs.get(sweep.id)
        wishes = sweep.request.wishes if run is None else run.work.wishes(sweep)
        journal = f"{self._context.folder(sweep.id)}/{_JOURNAL}"
        return SweepSummary(
            size=search.size,
            parallel=search.parallel(self._context, wishes, sweep.request.on),
            metrics=[(metric.name, metric.goal) for metric in search.spec.metrics],
            journal=journal if search.spec.needs_adviser and os.path.exists(journal) else "",
        )

    async def importance(self, sweep: Sweep) -> tuple[list[tuple[str, float]], str]:
        """How much each parameter matters for the first metric; or none, and why not. It may take seconds."""
        return await self._importance.of(sweep, self._search(sweep))

    # -- helpers ---------------------------------------------------------------------------------------

    def _search(self, sweep: Sweep) -> Search:
        kept = self._searches.get(sweep.id)
        if kept is None or kept[0] != sweep.spec:
            if len(self._searches) >= _MOST_SEARCHES:
                self._searches.clear()
            kept = self._searches[sweep.id] = (sweep.spec, Search(sweep.spec))
        return kept[1]

    def _checked(self, new: NewSweep) -> Search:
        """The parsed spec; BadInput where this machine cannot run it."""
        search = Search(new.spec)
        if search.spec.reuse and not search.spec.program:
            raise BadInput(
                "cannot reuse results: it is not known which program would run",
                remedy="leave out reuse; `dibs sweep --reuse` can tell for programs of up to 5,000 files",
            )
        if search.spec.method == "population" and new.request.on:
            raise BadInput(
                f"a population hands checkpoints over on this machine, and this one is for {new.request.on}",
                remedy="leave out --on, or take another method",
            )
        if problem := adviser_problem(search.spec):
            what, _, remedy = problem.partition("; ")
            raise BadInput(what, remedy=remedy)
        self._context.queue.check_possible([new.request])
        return search

    # -- tasks -----------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Continue the sweeps of the previous daemon."""
        if self._has_any:
            self._retried.update(trial.job for trial in self._table.revived() if trial.job is not None)
            self._revive_retried()
            for sweep in self._table.unfinished():
                self._ensure_task(sweep)

    async def close(self) -> None:
        """End all tasks. Running jobs continue."""
        self._is_closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ensure_task(self, sweep: SweepId) -> None:
        if sweep in self._tasks:
            self._runs[sweep].wake()
        elif not self._is_closed:
            run = self._runs[sweep] = SweepRun(self._context, sweep)
            self._engine.touched.subscribe(run.on_touched)
            self._tasks[sweep] = asyncio.get_running_loop().create_task(self._guarded(run))

    async def _guarded(self, run: SweepRun) -> None:
        number = run.work.id
        try:
            await run.go()
        except Exception:
            # A bug: the sweep is held instead of failing again and again.
            self._hold_after_bug(number)
            raise
        finally:
            self._engine.touched.unsubscribe(run.on_touched)
            del self._tasks[number], self._runs[number]
        if run.is_woken:  # while it was ending
            self._ensure_task(number)

    def _hold_after_bug(self, number: SweepId) -> None:
        try:
            with self._engine.change() as change:
                why = "an unexpected error in dibs (this is a bug); daemon.log has the traceback"
                sweep = replace(self._table.sweep(number), state=SweepState.HELD, why=why)
                self._context.records.changed(sweep, change.now)
        except DibsError as error:
            self._context.log(f"sweep {number} could not be held after a bug: {error.message}")

    def _on_retried(self, jobs: Sequence[JobId]) -> None:
        if self._has_any and not self._is_closed:
            self._retried.update(jobs)
            asyncio.get_running_loop().call_soon(self._revive_retried)

    def _revive_retried(self) -> None:
        jobs, self._retried = self._retried, set()
        try:
            self._reopen(sorted(jobs))
        except StoreUnusable:
            self._retried |= jobs
            asyncio.get_running_loop().call_later(_AFTER_TROUBLE, self._revive_retried)

    def _reopen(self, jobs: Sequence[JobId]) -> None:
        """Reopen failed trials whose jobs were queued again."""
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
                        self._context.records.trial(reopened(trial, trial.job), goals, change.now)
                if sweep.state is SweepState.FINISHED:
                    on = replace(sweep, state=SweepState.RUNNING, ended_at=None, counts_from=change.now)
                    self._context.records.changed(on, change.now)
            hold_without_copy(self._context, [one for one in trials if one.sweep == number])
            self._ensure_task(sweep.id)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        try:
            return await run_in_thread(work, _PATIENCE, "sweep-files")
        except MemoryError:
            return work()  # no thread can be started now


_MOST_TRIALS = 2_000  # the latest ones: more take longer and change little
_TRIALS_AT_ONCE = 200  # read before other tasks run

_Answer = tuple[list[tuple[str, float]], str]  # names and shares, largest first; or why there are none


class ImportanceCache:
    """How much each parameter of a sweep matters: computed by a child process, kept until more trials end."""

    def __init__(self, table: SweepTable) -> None:
        self._table = table
        self._kept: dict[SweepId, tuple[int, _Answer]] = {}
        self._at_work = asyncio.Lock()  # one computation at a time

    async def of(self, sweep: Sweep, search: Search) -> _Answer:
        if not search.metric_names:
            return [], "the sweep names no metric"
        async with self._at_work:
            count = sum(many for state, many in self._table.counts(sweep.id).items() if state.has_values)
            kept = self._kept.get(sweep.id)
            if kept is not None and kept[0] == count:
                return kept[1]
            trials: deque[tuple[Any, Any]] = deque(maxlen=_MOST_TRIALS)
            for place, one in enumerate(self._table.all_of(sweep.id, (TrialState.COMPLETE, TrialState.REUSED))):
                trials.append((dict(one.point), one.values))
                if place % _TRIALS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            try:
                found = await importance_of(search.spec, list(trials))
            except DibsError as error:
                return [], error.message
            answer = list(found.shares), found.why
            self._kept[sweep.id] = (count, answer)
            return answer
