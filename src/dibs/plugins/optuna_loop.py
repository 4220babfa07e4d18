"""An Optuna study in a user's script, whose trials run in the queue: `dibs.optimize(study, objective)`."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Unpack

import optuna

from dibs.api.call_submitter import CallSubmitter
from dibs.api.job import Job
from dibs.api.job_keywords import JobKeywords
from dibs.api.submit import check
from dibs.errors import BadInput
from dibs.plugins.optuna_trial import Objective, TrialCall
from dibs.plugins.shipping import collect, ship

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def optimize(
    study: optuna.Study,
    objective: Objective,
    *,
    n_trials: int | None = None,
    parallel: int | None = None,
    n_jobs: int | None = None,
    timeout: float | None = None,
    catch: Iterable[type[Exception]] | type[Exception] = (),
    callbacks: "Iterable[Callable[[optuna.Study, FrozenTrial], None]] | None" = None,
    **wishes: Unpack[JobKeywords],
) -> None:
    """`study.optimize`, with every trial as a job of the queue and at most `parallel` of them at once.

    `n_jobs` is Optuna's name for `parallel`.

    This process asks and tells; `suggest`, `report` and `should_prune` in the job reach the study through its
    storage. Ctrl-C ends the running trials, because their results would not reach the study.
    """
    if isinstance(study._storage, optuna.storages.InMemoryStorage):
        raise BadInput(
            "cannot run the trials of a study in memory: jobs are other processes and cannot see it",
            remedy='give it a file: create_study(storage="sqlite:///study.db"), or a JournalStorage',
        )
    at_once = _at_once(parallel, n_jobs)
    calls = CallSubmitter(_warmed(wishes))
    call = TrialCall(objective)
    # Whatever would be refused is refused here: the study has no trial yet that would be left as failed.
    with calls.packed(call, [((study,), {})]):
        check(calls.wishes)
    queued = _Queued(call, calls)
    with queued.ended_by_an_interrupt(), _without_another_check(study):
        study.optimize(
            queued, n_trials=n_trials, timeout=timeout, n_jobs=at_once, catch=catch, callbacks=callbacks
        )


class _Queued:
    """The objective that Optuna calls in this process, in one thread per running trial."""

    def __init__(self, call: TrialCall, calls: CallSubmitter) -> None:
        self._call = call
        self._calls = calls
        self._open: set[Job] = set()
        self._is_ending = False

    def __call__(self, trial: optuna.Trial) -> float | Sequence[float]:
        shown = f"trial {trial.number} of {trial.study.study_name}"
        [job] = ship(self._call, [trial], [shown], self._calls)
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


def _at_once(parallel: int | None, n_jobs: int | None) -> int:
    if parallel is not None and n_jobs is not None:
        raise BadInput(
            "parallel and n_jobs were both given, and mean the same", remedy="give one of them: parallel=4"
        )
    number = parallel if parallel is not None else n_jobs if n_jobs is not None else 1
    if number < 1 and number != -1:
        raise BadInput(
            f"cannot run {number} trials at once",
            remedy="parallel is 1 or more, or -1 for as many as there are CPUs; the GPUs limit it too",
        )
    return number


def _warmed(wishes: Mapping[str, Any]) -> dict[str, Any]:
    """With `warm`, the modules of Optuna that every trial uses are imported before it too."""
    named = wishes.get("warm")
    if not named:
        return dict(wishes)
    modules = named.split(",") if isinstance(named, str) else list(named)
    return {**wishes, "warm": ["dibs.plugins.optuna_warm", *modules]}


@contextmanager
def _without_another_check(study: optuna.Study) -> Iterator[None]:
    """Let jobs not check the schema of the database again, for which Optuna reads all its earlier versions."""
    database: Any = getattr(study._storage, "_backend", study._storage)
    before = getattr(database, "skip_compatibility_check", True)
    if before:
        yield
        return
    database.skip_compatibility_check = True
    try:
        yield
    finally:
        database.skip_compatibility_check = before
