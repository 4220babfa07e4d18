"""A sweep's study: which points to try, what came of them, and which trials to give up.

A trial has the same number here and in the store. Its `point`, as text, is among its user attributes.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import isnan
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import NopPruner
from optuna.samplers import RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from dibs.errors import DibsError
from dibs.sweeps.samplers import make_pruner, make_sampler
from dibs.sweeps.sketch import Sketch
from dibs.sweeps.space import Point
from dibs.sweeps.spec import Spec
from dibs.sweeps.studyfile import open_journal
from dibs.sweeps.suggest import Suggestions

_POINT = "point"
_AGAIN = "again"  # the number of the trial that this one does over

# A condition that one point in thousands fulfils is met; one that none fulfils is told within seconds.
_MOST_DRAWS = 5000
# A small space is soon known by heart, and a point that was tried tells nothing new.
_MOST_REPEATS = 200

_STATES = {"complete": TrialState.COMPLETE, "failed": TrialState.FAIL, "pruned": TrialState.PRUNED}


class NothingToTry(DibsError):
    """No point fulfils the conditions of the sweep, as far as can be seen."""


class SweepStudy:
    """The study of one sweep, in its journal file."""

    def __init__(self, spec: Spec, name: str, journal: Path) -> None:
        self._spec = spec
        self._suggestions = Suggestions(spec)
        self._storage = open_journal(journal)
        if name not in (study.study_name for study in self._storage.get_all_studies()):
            self._storage.create_new_study(directions(spec), name)
        self._id = self._storage.get_study_id_from_name(name)
        self._sketch = Sketch(self._storage, self._id)
        # Two views of one study: trials are drawn in pencil, and what came of them is kept in ink.
        self._drawing, self._book = (
            optuna.load_study(study_name=name, storage=storage, sampler=RandomSampler(seed=0), pruner=NopPruner())
            for storage in (self._sketch, self._storage)
        )
        if self._book.metric_names is None and spec.metrics:
            self._book.set_metric_names([metric.name for metric in spec.metrics])
        self._tried: set[tuple[str | None, ...]] = set()
        self._longest: int | None = None
        # The trial that stands for another one, which had failed and was done over.
        self._instead: dict[int, int] = {}
        for trial in self._trials():
            self._remember(trial)

    def reconcile(self, known: Mapping[int, Point], ended: Iterable[Mapping[str, Any]]) -> list[FrozenTrial]:
        """Learn what the store knows and we do not; returns the trials that the store never heard of."""
        self._restore(known)
        for each in ended:
            self.tell(each["number"], each["state"], each["values"], each["steps"])
        return [
            trial
            for trial in self._trials()
            if trial.state == TrialState.RUNNING
            and trial.number not in known
            and _POINT in trial.user_attrs
            and _AGAIN not in trial.user_attrs
        ]

    def ask(self) -> tuple[int, Point]:
        """A point to try that fulfils the conditions, and one not tried before if there is any."""
        number = self._storage.get_n_trials(self._id)
        repeats = 0
        for draw in range(_MOST_DRAWS):
            self._drawing.sampler = make_sampler(self._spec, number, draw)
            point = self._suggestions.draw(self._drawing.ask())
            if not self._suggestions.allows(point):
                continue
            is_known = self._key(point) in self._tried and not self._spec.rerun
            if is_known and repeats < _MOST_REPEATS and draw < _MOST_DRAWS // 2:
                repeats += 1
                continue
            self._tried.add(self._key(point))
            return self._sketch.ink({_POINT: point}, self._suggestions.put_on_steps(point)), point
        raise NothingToTry(
            f"cannot find a point to try: of {_MOST_DRAWS} drawn, none fulfils {' and '.join(self._spec.where)}",
            remedy="loosen the conditions, or narrow the ranges to where they hold",
        )

    def begin(self, point: Point) -> int:
        """A trial for a point that was chosen elsewhere."""
        params, distributions = self._suggestions.of(point)
        return self._write(_trial(params, distributions, {_POINT: point}, TrialState.RUNNING)).number

    def report(self, number: int, step: int, value: float) -> bool:
        """Whether the trial is to be given up, now that it has reached this value."""
        if self._latest(number).state in (TrialState.COMPLETE, TrialState.PRUNED):
            return False
        trial = self._open_trial(number)
        if step not in trial.intermediate_values:  # what was said first holds, as in Optuna
            self._storage.set_trial_intermediate_value(self._trial_id(trial.number), step, value)
        trial = self._storage.get_trial(self._trial_id(trial.number))
        return bool(make_pruner(self._spec, self._first_length()).prune(self._book, trial))

    def tell(
        self, number: int, state: str, values: list[float] | None, steps: Iterable[tuple[int, float]] = ()
    ) -> None:
        """How the trial came out; nothing happens where that is known."""
        told = self._latest(number)
        if told.state == _STATES[state] or told.state in (TrialState.COMPLETE, TrialState.PRUNED):
            return
        if state == "complete" and not self._is_result(values):
            raise DibsError(f"cannot tell how trial {number} came out: there is not one number for each metric")
        told = self._open_trial(number)
        for step, value in steps:
            if step not in told.intermediate_values:
                self._storage.set_trial_intermediate_value(self._trial_id(told.number), step, value)
        self._book.tell(told.number, values if state == "complete" else None, state=_STATES[state])

    def _is_result(self, values: list[float] | None) -> bool:
        return values is not None and len(values) == len(self._book.directions) and not any(map(isnan, values))

    def _restore(self, known: Mapping[int, Point]) -> None:
        """Trials of the store that the journal has not, because somebody lost it: from their points."""
        for number in range(self._storage.get_n_trials(self._id), max(known, default=-1) + 1):
            if number in known:
                self.begin(known[number])
            else:
                self._write(_trial({}, {}, {}, TrialState.FAIL))

    def _open_trial(self, number: int) -> FrozenTrial:
        """The trial that can still be written to. A failed one that runs again is a new one for Optuna."""
        trial = self._latest(number)
        if trial.state.is_finished():
            about = {_POINT: trial.user_attrs[_POINT], _AGAIN: number}
            trial = self._write(_trial(trial.params, trial.distributions, about, TrialState.RUNNING))
        return trial

    def _latest(self, number: int) -> FrozenTrial:
        return self._storage.get_trial(self._trial_id(self._instead.get(number, number)))

    def _write(self, new: FrozenTrial) -> FrozenTrial:
        trial = self._storage.get_trial(self._storage.create_new_trial(self._id, template_trial=new))
        self._remember(trial)
        return trial

    def _remember(self, trial: FrozenTrial) -> None:
        if _POINT in trial.user_attrs:
            self._tried.add(self._key(trial.user_attrs[_POINT]))
        if _AGAIN in trial.user_attrs:
            self._instead[trial.user_attrs[_AGAIN]] = trial.number

    def _first_length(self) -> int | None:
        """The last step of the trial that was complete first: how long a trial is, for Hyperband.

        Not of the longest: brackets that change while trials are in them would be no brackets.
        """
        if self._longest is None and self._spec.pruner == "hyperband":
            over = [trial for trial in self._trials() if trial.state == TrialState.COMPLETE and trial.last_step]
            if over:
                self._longest = min(over, key=lambda trial: trial.datetime_complete or datetime.max).last_step
        return self._longest

    def _trials(self) -> list[FrozenTrial]:
        return self._storage.get_all_trials(self._id, deepcopy=False)

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number)

    def _key(self, point: Point) -> tuple[str | None, ...]:
        return tuple(point.get(name) for name in self._spec.names)


def directions(spec: Spec) -> list[StudyDirection]:
    """What is better, for each metric."""
    goals = {"min": StudyDirection.MINIMIZE, "max": StudyDirection.MAXIMIZE}
    return [goals[metric.goal] for metric in spec.metrics] or [StudyDirection.MINIMIZE]


def _trial(
    params: dict[str, Any],
    distributions: dict[str, Any],
    user_attrs: dict[str, Any],
    state: TrialState,
) -> FrozenTrial:
    return create_trial(state=state, params=params, distributions=distributions, user_attrs=user_attrs)
