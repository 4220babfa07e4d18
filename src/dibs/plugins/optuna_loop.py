"""An Optuna study in a user's script, whose trials run in the queue: `dibs.optimize(study, objective)`."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Unpack

import optuna

from dibs.api.job import Job
from dibs.api.job_keywords import JobKeywords
from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.plugins.shipping import collect, ship

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

Objective = Callable[[optuna.Trial], float | Sequence[float]]


def optimize(
    study: optuna.Study,
    objective: Objective,
    *,
    n_trials: int | None = None,
    parallel: int = 1,
    timeout: float | None = None,
    catch: Iterable[type[Exception]] | type[Exception] = (),
    callbacks: "Iterable[Callable[[optuna.Study, FrozenTrial], None]] | None" = None,
    **wishes: Unpack[JobKeywords],
) -> None:
    """`study.optimize`, with every trial as a job of the queue and at most `parallel` of them at once.

    This process asks and tells; `suggest`, `report` and `should_prune` in the job reach the study through its
    storage. Ctrl-C ends the running trials, because their results would not reach the study.
    """
    if isinstance(study._storage, optuna.storages.InMemoryStorage):
        raise BadInput(
            "cannot run the trials of a study in memory: jobs are other processes and cannot see it",
            remedy='give it a file: create_study(storage="sqlite:///study.db"), or a JournalStorage',
        )
    if parallel < 1:
        raise BadInput(
            f"cannot run {parallel} trials at once", remedy="parallel is 1 or more; the GPUs limit it too"
        )
    queued = _Queued(objective, wishes)
    with queued.ended_by_an_interrupt():
        study.optimize(
            queued, n_trials=n_trials, timeout=timeout, n_jobs=parallel, catch=catch, callbacks=callbacks
        )


@dataclass(frozen=True, slots=True)
class TrialCall:
    """In the job: returns the value of the objective, or why the trial was pruned, which is not a failure."""

    func: Objective

    def __call__(self, trial: optuna.Trial) -> tuple[float | Sequence[float] | None, str | None]:
        trial.study.sampler.reseed_rng()  # every job has a copy of one sampler, and would draw the same values
        try:
            return self.func(trial), None
        except optuna.TrialPruned as pruned:
            return None, str(pruned)


class _Queued:
    """The objective that Optuna calls in this process, in one thread per running trial."""

    def __init__(self, objective: Objective, wishes: Mapping[str, Any]) -> None:
        self._objective = objective
        self._wishes = wishes
        self._open: set[Job] = set()
        self._is_ending = False

    def __call__(self, trial: optuna.Trial) -> float | Sequence[float]:
        shown = f"trial {trial.number} of {trial.study.study_name}"
        [job] = ship(TrialCall(self._objective), [trial], [shown], self._wishes)
        self._open.add(job)
        try:
            if self._is_ending:
                job.cancel()
            job.wait()
            value, pruned = collect(job)
        finally:
            self._open.discard(job)
            # Callbacks and logs in this process show the parameters that the job has drawn.
            trial._cached_frozen_trial = trial.storage.get_trial(trial._trial_id)
        if pruned is not None:
            raise optuna.TrialPruned(pruned)
        found: float | Sequence[float] = value
        return found

    @contextmanager
    def ended_by_an_interrupt(self) -> Iterator[None]:
        """End the jobs at an interrupt: Optuna waits for its threads before it handles one."""
        before = signal.getsignal(signal.SIGINT)
        is_main = threading.current_thread() is threading.main_thread()  # only the main thread has signal handlers
        if not is_main or before in (signal.SIG_IGN, None):  # None: the handler is not a Python function
            yield
            return

        def end(number: int, frame: FrameType | None) -> None:
            self._is_ending = True
            for job in list(self._open):
                job.cancel()
            if callable(before):
                before(number, frame)

        signal.signal(signal.SIGINT, end)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
