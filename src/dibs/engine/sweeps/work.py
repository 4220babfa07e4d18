"""The shared state of the work on one sweep, and its adviser."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from dibs.engine.sweeps.context import Search, SweepContext
from dibs.engine.sweeps.repeats import Curves
from dibs.engine.sweeps.trial_results import TrialReader
from dibs.model.jobs import JobId, State, Wishes
from dibs.model.sweeps import Point, Sweep, SweepId, SweepState, Trial, TrialState
from dibs.policy.sweeps import is_whole_point
from dibs.sweeps.adviser import Adviser, EndedTrial, SuggestedPoint
from dibs.sweeps.spec import Spec


class SweepWork:
    """The sweep as stored now, its open jobs, and how to record what happens to it."""

    def __init__(self, context: SweepContext, sweep: SweepId) -> None:
        self.id = sweep
        self.context = context
        self.table = context.table
        self.jobs: set[JobId] = set()  # of open trials; news about one of them wakes this sweep's task
        self.curves = Curves()
        self.shape = ""  # of its jobs, with `--vram auto`
        self.search: Search
        self.reader: TrialReader
        self._given: object = None  # the spec that `search` was made from

    @property
    def is_loaded(self) -> bool:
        return self._given is not None

    def load(self) -> Sweep:
        """The sweep as stored now. BadInput where this version cannot read its spec."""
        sweep = self.table.sweep(self.id)
        if sweep.spec != self._given:
            search = Search(sweep.spec)
            if not self.is_loaded or self.search.spec.metrics != search.spec.metrics:
                self.reader = TrialReader(search.spec, self.context)
            self.search, self._given = search, sweep.spec
        return sweep

    @property
    def is_current(self) -> bool:
        """Whether the sweep is still what was loaded, and was not edited since."""
        return self.table.sweep(self.id).spec == self._given

    def wishes(self, sweep: Sweep) -> Wishes:
        """The resources that its jobs request."""
        return replace(sweep.request.wishes, shape=self.shape)

    def record(self, trials: Sequence[Trial]) -> None:
        """Record changed trials, in one turn."""
        with self.context.engine.change() as change:
            for trial in trials:
                self.context.records.trial(trial, self.search.goals, change.now)

    def hold(self, why: str) -> None:
        """Hold the sweep, and its jobs that have not started, until a user releases it."""
        sweep = self.table.sweep(self.id)
        if sweep.state is SweepState.RUNNING:
            with self.context.engine.change() as change:
                self.context.records.changed(replace(sweep, state=SweepState.HELD, why=why), change.now)
            hold_waiting(self.context, self.id)


def hold_waiting(context: SweepContext, sweep: SweepId) -> int:
    """Hold the jobs of a sweep that have not started; returns their number."""
    waiting = jobs_in(context, sweep, State.QUEUED)
    return len(context.queue.hold(waiting, f"sweep {sweep} is held").jobs) if waiting else 0


def jobs_in(context: SweepContext, sweep: SweepId, *wanted: State) -> list[JobId]:
    """The jobs of open trials that are in these states."""
    jobs = [trial.job for trial in context.table.open(sweep) if trial.job is not None]
    return [job for job, state in context.engine.store.listing.states(jobs).items() if state in wanted]


_AT_ONCE = 200  # trials that are read before others have their turn


class LazyAdviser:
    """A sweep's adviser: started when it is needed, given the trials of the store, and closed when it is idle.

    Outcomes that it is not told while it is closed are told when it is opened.
    """

    def __init__(self, work: SweepWork) -> None:
        self._work = work
        self._adviser: Adviser | None = None
        self._spec: Spec | None = None  # that it was opened with
        self._asked: list[SuggestedPoint] = []  # not recorded in the store yet

    @property
    def is_open(self) -> bool:
        return self._adviser is not None

    async def ask(self, count: int) -> "list[SuggestedPoint]":
        """Points to try. The same points are returned until they are `recorded`."""
        adviser = await self._open()
        if len(self._asked) < count:
            self._asked += await adviser.ask(count - len(self._asked))
        self._work.context.reach("sweep-asked")
        return self._asked[:count]

    def recorded(self, numbers: Collection[int | None]) -> None:
        """The store has the trials with these numbers."""
        self._asked = [one for one in self._asked if one.number not in numbers]

    async def enroll(self) -> None:
        """Add open trials whose points came from elsewhere to the study, so that they can be pruned."""
        work = self._work
        for trial in work.table.open(work.id):
            if trial.study is None and trial.job is not None:
                if trial.repeat_of not in (None, trial.number):
                    first = work.table.trial(work.id, trial.repeat_of)
                    if first is not None and first.study is not None:
                        work.record([replace(trial, study=first.study)])
                    continue
                number = await (await self._open()).begin(dict(trial.point))
                work.context.reach("sweep-enrolled")
                if (latest := work.table.trial(work.id, trial.number)) is not None:
                    work.record([replace(latest, study=number)])

    async def should_prune(self, trial: Trial, step: int, value: float) -> bool:
        """Report the value of a running trial at a step; whether to prune the trial."""
        assert trial.study is not None
        return await (await self._open()).report(trial.study, step, value)

    async def tell(self, trials: Sequence[Trial]) -> None:
        """Tell the adviser the outcomes of trials, if it is open."""
        for trial in trials:
            told = self._outcome(trial) if trial.study is not None else None
            if told is not None and self._adviser is not None:
                await self._adviser.tell(told)

    def _outcome(self, trial: Trial) -> "EndedTrial | None":
        """What the study is told: of repeats the mean, when all have ended; None: not yet."""
        if trial.repeat_of is None:
            return _told(trial)
        spec = self._work.search.spec
        trials = self._work.table.of_point(self._work.id, trial.repeat_of, spec.repeat)
        if not is_whole_point(trials, spec.repeat):
            return None
        assert trial.study is not None
        if trials[0].means is not None:
            return EndedTrial(trial.study, "complete", trials[0].means)
        is_pruned = any(one.state is TrialState.PRUNED for one in trials)
        return EndedTrial(trial.study, "pruned" if is_pruned else "failed")

    async def close(self) -> None:
        """End the process until it is needed again."""
        adviser, self._adviser = self._adviser, None
        self._asked = []  # returned again when it is opened
        if adviser is not None:
            await adviser.close()

    async def _open(self) -> "Adviser":
        if self._adviser is not None and self._spec != self._work.search.spec:
            await self.close()  # it was edited
        if self._adviser is None:
            work = self._work
            spec = self._spec = work.search.spec
            known: dict[int, Point] = {}
            ended: list[EndedTrial] = []
            for place, trial in enumerate(work.table.all_of(work.id)):
                if trial.study is not None:
                    known[trial.study] = dict(trial.point)
                    is_judge = trial.repeat_of in (None, trial.number)  # of repeats the first one tells for all
                    if trial.state is not TrialState.OPEN and is_judge:
                        ended += [told for told in (self._outcome(trial),) if told is not None]
                if place % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            # What an edited sweep has tried is told to a new study, whose distributions are others.
            name = f"sweep-{work.id}{f'.{spec.revision}' if spec.revision else ''}"
            adviser = Adviser(Path(work.context.folder(work.id)), spec, name)
            self._asked = await adviser.start(known, ended)  # type: ignore[arg-type]
            self._adviser = adviser
        return self._adviser


def _told(trial: Trial) -> "EndedTrial":
    assert trial.study is not None
    if trial.state.has_values:
        return EndedTrial(trial.study, "complete", trial.values)
    return EndedTrial(trial.study, "pruned" if trial.state is TrialState.PRUNED else "failed")
