"""What the parts of the work on one sweep share: the sweep as it is now, its jobs, and the way to write down."""

from collections.abc import Sequence
from dataclasses import replace

from dibs.engine.sweeps.parts import Parts, Search
from dibs.engine.sweeps.results import TrialReader
from dibs.model.jobs import JobId, State, Wishes
from dibs.model.sweeps import Sweep, SweepId, SweepState, Trial


class Work:
    """One sweep that somebody looks after."""

    def __init__(self, parts: Parts, sweep: SweepId) -> None:
        self.id = sweep
        self.parts = parts
        self.table = parts.table
        self.jobs: set[JobId] = set()  # of open trials: whoever hears of one of them wakes us
        self.shape = ""  # of its jobs, with `--vram auto`
        self.search: Search
        self.reader: TrialReader
        self._given: object = None  # what the search was made of

    @property
    def is_loaded(self) -> bool:
        return self._given is not None

    def load(self) -> Sweep:
        """The sweep as it is now. BadInput where its spec cannot be meant by this version."""
        sweep = self.table.sweep(self.id)
        if sweep.spec != self._given:
            search = Search(sweep.spec)
            if not self.is_loaded:
                self.reader = TrialReader(search.spec, self.parts)
            self.search, self._given = search, sweep.spec
        return sweep

    def wishes(self, sweep: Sweep) -> Wishes:
        """What its jobs want of the machine."""
        return replace(sweep.request.wishes, shape=self.shape)

    def record(self, trials: Sequence[Trial]) -> None:
        """What became of trials, in one turn."""
        with self.parts.engine.change() as change:
            for trial in trials:
                self.parts.book.trial(trial, self.search.goals, change.now)

    def hold(self, why: str) -> None:
        """Begin nothing more until somebody has looked at it; what waits in the queue waits, too."""
        sweep = self.table.sweep(self.id)
        if sweep.state is SweepState.RUNNING:
            with self.parts.engine.change() as change:
                self.parts.book.changed(replace(sweep, state=SweepState.HELD, why=why), change.now)
            hold_waiting(self.parts, self.id)


def hold_waiting(parts: Parts, sweep: SweepId) -> int:
    """Hold the jobs of a sweep that have not started; how many those were."""
    waiting = jobs_in(parts, sweep, State.QUEUED)
    return len(parts.queue.hold(waiting, f"sweep {sweep} is held").jobs) if waiting else 0


def jobs_in(parts: Parts, sweep: SweepId, *wanted: State) -> list[JobId]:
    """The jobs of open trials that are in these states."""
    jobs = [trial.job for trial in parts.table.open(sweep) if trial.job is not None]
    return [job for job, state in parts.engine.store.listing.states(jobs).items() if state in wanted]
