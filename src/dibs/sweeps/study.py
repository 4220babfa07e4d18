"""A sweep's Optuna study: which points to try, their outcomes, and which trials to prune.

A trial has the same number here and in the store. Its `point`, as text, is among its user attributes.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any, TypeGuard

import optuna
from optuna import pruners, samplers
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import NopPruner
from optuna.samplers import RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from dibs.errors import DibsError
from dibs.sweeps.conditions import Constraints
from dibs.sweeps.space import Choice, Curve, Parameter, Point, Range
from dibs.sweeps.spec import Spec
from dibs.sweeps.study_storage import DraftStorage, open_journal

_POINT = "point"
_RETRY_OF = "again"  # the number of the trial that this one repeats
_OUTSIDE = "outside"  # its point lies outside of the ranges, which were edited

# Enough for a condition that one point in thousands fulfils, and few enough to fail within seconds.
_MOST_DRAWS = 5000
# In a small space most draws soon repeat a point that was tried.
_MOST_REPEATS = 200

_STATES = {"complete": TrialState.COMPLETE, "failed": TrialState.FAIL, "pruned": TrialState.PRUNED}


class NothingToTry(DibsError):
    """No drawn point fulfils the conditions of the sweep."""


class SweepStudy:
    """The study of one sweep, in its journal file."""

    def __init__(self, spec: Spec, name: str, journal: Path) -> None:
        self._spec = spec
        self._suggestions = Suggestions(spec)
        self._storage = open_journal(journal)
        if name not in (study.study_name for study in self._storage.get_all_studies()):
            self._storage.create_new_study(directions(spec), name)
        self._id = self._storage.get_study_id_from_name(name)
        self._drafts = DraftStorage(self._storage, self._id)
        # Two views of one study: trials are drawn as drafts, and outcomes are written to the journal.
        self._draft_study, self._journal_study = (
            optuna.load_study(study_name=name, storage=storage, sampler=RandomSampler(seed=0), pruner=NopPruner())
            for storage in (self._drafts, self._storage)
        )
        if self._journal_study.metric_names is None and spec.metrics:
            self._journal_study.set_metric_names([metric.name for metric in spec.metrics])
        self._tried: set[tuple[str | None, ...]] = set()
        self._trial_length: int | None = None
        # By the number of a failed trial: the latest trial that repeats it.
        self._replacement: dict[int, int] = {}
        for trial in self._trials():
            self._remember(trial)

    def reconcile(self, known: Mapping[int, Point], ended: Iterable[Mapping[str, Any]]) -> list[FrozenTrial]:
        """Add what only the store has; returns the trials that only the study has."""
        self._restore(known)
        for each in ended:
            self.tell(each["number"], each["state"], each["values"], each["steps"])
        return [
            trial
            for trial in self._trials()
            if trial.state == TrialState.RUNNING
            and trial.number not in known
            and _POINT in trial.user_attrs
            and _RETRY_OF not in trial.user_attrs
        ]

    def ask(self) -> tuple[int, Point]:
        """A point that fulfils the conditions, and that was not tried before if one is found."""
        number = self._storage.get_n_trials(self._id)
        repeats = 0
        if self._spec.sampler == "bohb":
            self._drafts.is_shown = self._is_in_bracket_of(number)
        for draw in range(_MOST_DRAWS):
            self._draft_study.sampler = _sampler(self._spec, number, draw)
            point = self._suggestions.draw(self._draft_study.ask())
            if not self._suggestions.allow(point):
                continue
            is_known = self._key(point) in self._tried
            if is_known and repeats < _MOST_REPEATS and draw < _MOST_DRAWS // 2:
                repeats += 1
                continue
            self._tried.add(self._key(point))
            return self._drafts.commit({_POINT: point}, self._suggestions.rounded_to_steps(point)), point
        raise NothingToTry(
            f"cannot find a point to try: of {_MOST_DRAWS} drawn, none fulfils {' and '.join(self._spec.where)}",
            remedy="loosen the conditions, or narrow the ranges to where they hold",
        )

    def _is_in_bracket_of(self, number: int) -> Callable[[FrozenTrial], bool]:
        """Whether a trial is in the hyperband's bracket of this one: what the sampler of BOHB learns from.

        Optuna's TPE asks for all trials, whatever the pruner is.
        """
        brackets = pruners.HyperbandPruner(
            min_resource=max(1, self._spec.prune_after),
            max_resource=self._spec.steps or 1,
            reduction_factor=self._spec.prune_factor or 3,
        )
        brackets.prune(self._journal_study, _numbered(number))  # makes them; without a step none is pruned
        bracket_of = partial(brackets._get_bracket_id, self._journal_study)
        mine = bracket_of(_numbered(number))
        return lambda trial: bracket_of(trial) == mine

    def begin(self, point: Point) -> int:
        """Add a trial for a point that was chosen elsewhere; returns its number."""
        params, distributions = self._suggestions.of(point)
        try:
            new = _trial(params, distributions, {_POINT: point}, TrialState.RUNNING)
        except ValueError:
            new = _trial({}, {}, {_POINT: point, _OUTSIDE: True}, TrialState.FAIL)
        return self._write(new).number

    def report(self, number: int, step: int, value: float) -> bool:
        """Record a value of the trial at a step; whether the trial is to be pruned."""
        latest = self._latest(number)
        if latest.state in (TrialState.COMPLETE, TrialState.PRUNED) or _OUTSIDE in latest.user_attrs:
            return False
        trial = self._open_trial(number)
        if step not in trial.intermediate_values:  # the first value of a step counts, as in Optuna
            self._storage.set_trial_intermediate_value(self._trial_id(trial.number), step, value)
        trial = self._storage.get_trial(self._trial_id(trial.number))
        return bool(_pruner(self._spec, self._length_of_first()).prune(self._journal_study, trial))

    def tell(
        self, number: int, state: str, values: list[float] | None, steps: Iterable[tuple[int, float]] = ()
    ) -> None:
        """Record the outcome of a trial; does nothing where it is known."""
        told = self._latest(number)
        if told.state == _STATES[state] or told.state in (TrialState.COMPLETE, TrialState.PRUNED):
            return
        if _OUTSIDE in told.user_attrs:
            return
        if state == "complete" and not self._is_result(values):
            raise DibsError(f"cannot record the outcome of trial {number}: it needs one number for each metric")
        told = self._open_trial(number)
        for step, value in steps:
            if step not in told.intermediate_values:
                self._storage.set_trial_intermediate_value(self._trial_id(told.number), step, value)
        self._journal_study.tell(told.number, values if state == "complete" else None, state=_STATES[state])

    def _is_result(self, values: list[float] | None) -> bool:
        return (
            values is not None
            and len(values) == len(self._journal_study.directions)
            and not any(map(isnan, values))
        )

    def _restore(self, known: Mapping[int, Point]) -> None:
        """Add trials of the store that the journal lacks, because the file was lost."""
        for number in range(self._storage.get_n_trials(self._id), max(known, default=-1) + 1):
            if number in known:
                self.begin(known[number])
            else:
                self._write(_trial({}, {}, {}, TrialState.FAIL))

    def _open_trial(self, number: int) -> FrozenTrial:
        """The trial that can be written to. For Optuna a failed trial that runs again is a new one."""
        trial = self._latest(number)
        if trial.state.is_finished():
            about = {_POINT: trial.user_attrs[_POINT], _RETRY_OF: number}
            trial = self._write(_trial(trial.params, trial.distributions, about, TrialState.RUNNING))
        return trial

    def _latest(self, number: int) -> FrozenTrial:
        return self._storage.get_trial(self._trial_id(self._replacement.get(number, number)))

    def _write(self, new: FrozenTrial) -> FrozenTrial:
        trial = self._storage.get_trial(self._storage.create_new_trial(self._id, template_trial=new))
        self._remember(trial)
        return trial

    def _remember(self, trial: FrozenTrial) -> None:
        if _POINT in trial.user_attrs:
            self._tried.add(self._key(trial.user_attrs[_POINT]))
        if _RETRY_OF in trial.user_attrs:
            self._replacement[trial.user_attrs[_RETRY_OF]] = trial.number

    def _length_of_first(self) -> int | None:
        """The length of a trial, for Hyperband: as it was given, or the last step of the one that completed first.

        Not of the longest trial: Hyperband's brackets must not change while trials are in them.
        """
        if self._spec.steps is not None:
            return self._spec.steps
        if self._trial_length is None and self._spec.pruner == "hyperband":
            over = [trial for trial in self._trials() if trial.state == TrialState.COMPLETE and trial.last_step]
            if over:
                self._trial_length = min(over, key=lambda trial: trial.datetime_complete or datetime.max).last_step
        return self._trial_length

    def _trials(self) -> list[FrozenTrial]:
        return self._storage.get_all_trials(self._id, deepcopy=False)

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number)

    def _key(self, point: Point) -> tuple[str | None, ...]:
        return tuple(point.get(name) for name in self._spec.names)


def directions(spec: Spec) -> list[StudyDirection]:
    """Optuna's direction of each metric."""
    goals = {"min": StudyDirection.MINIMIZE, "max": StudyDirection.MAXIMIZE}
    return [goals[metric.goal] for metric in spec.metrics] or [StudyDirection.MINIMIZE]


def _numbered(number: int) -> FrozenTrial:
    trial = create_trial(state=TrialState.RUNNING)
    trial.number = number
    return trial


def _trial(
    params: dict[str, Any],
    distributions: dict[str, Any],
    user_attrs: dict[str, Any],
    state: TrialState,
) -> FrozenTrial:
    return create_trial(state=state, params=params, distributions=distributions, user_attrs=user_attrs)


_Distribution = CategoricalDistribution | FloatDistribution | IntDistribution


class Suggestions:
    """The parameters of a sweep as Optuna's distributions, and points as parameters of its trials."""

    def __init__(self, spec: Spec) -> None:
        self._parameters = spec.parameters
        self._distributions = {parameter.name: _distribution(parameter) for parameter in spec.parameters}
        self._constraints = Constraints(spec.parameters, spec.where)

    def draw(self, trial: Trial) -> Point:
        """Let the trial draw its active parameters, one after another."""
        point: Point = {}
        for parameter in self._parameters:
            point[parameter.name] = None
            if self._constraints.is_active(parameter, point):
                drawn = _draw(trial, parameter.name, self._distributions[parameter.name])
                point[parameter.name] = _value_of(parameter, drawn)
        return point

    def rounded_to_steps(self, point: Point) -> dict[str, Any]:
        """The values of the point where they differ from what Optuna drew: steps of ranges that are not even.

        Optuna has no such steps. It must learn that 40 was run, although it drew 37.
        """
        params, _ = self.of(point)
        return {
            each.name: params[each.name]
            for each in self._parameters
            if isinstance(each, Range) and not each.is_even and each.step is not None and each.name in params
        }

    def allow(self, point: Point) -> bool:
        return self._constraints.allow(point)

    def of(self, point: Point) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        """A point chosen elsewhere, as a trial's parameters and their distributions."""
        params: dict[str, Any] = {}
        for parameter in self._parameters:
            text = point.get(parameter.name)
            if not self._constraints.is_active(parameter, point):
                continue
            if _is_share(parameter):
                params[parameter.name] = parameter.share_of(text)
            elif isinstance(parameter, Choice):
                params[parameter.name] = text
            elif isinstance(parameter, Range) and text is not None:
                params[parameter.name] = _number_in(parameter, text)
        return params, {name: self._distributions[name] for name in params}


def _number_in(parameter: Range, text: str) -> float | int | str:
    """What Optuna would have drawn for this text; text that it refuses, where the range was edited."""
    try:
        number = float(text)
    except ValueError:
        return text
    if not parameter.low <= number <= parameter.high:
        return text
    if parameter.drawn is not None:  # which a rounded number may leave
        return min(max(number, parameter.drawn[0]), parameter.drawn[1])
    return int(number) if parameter.is_integer else number


def _draw(trial: Trial, name: str, of: _Distribution) -> Any:
    """Draw from the distribution that `Suggestions.of` gives, so that both kinds of trials fit into one study."""
    if isinstance(of, CategoricalDistribution):
        return trial.suggest_categorical(name, of.choices)
    if isinstance(of, IntDistribution):
        return trial.suggest_int(name, of.low, of.high, step=of.step, log=of.log)
    return trial.suggest_float(name, of.low, of.high, step=of.step, log=of.log)


def _is_share(parameter: Parameter) -> TypeGuard[Choice | Curve]:
    """Whether Optuna, which only draws evenly, draws the share of a value and not the value."""
    return isinstance(parameter, Curve) or (isinstance(parameter, Choice) and not parameter.is_even)


def _value_of(parameter: Parameter, drawn: Any) -> str | None:
    """What goes into the command. Optuna keeps the exact number; the command gets a few digits of it."""
    if _is_share(parameter):
        return parameter.value_of(drawn)
    if isinstance(parameter, Choice):
        return None if drawn is None else str(drawn)
    assert isinstance(parameter, Range)
    return parameter.text(drawn)


def _distribution(parameter: Parameter) -> _Distribution:
    if _is_share(parameter):
        return FloatDistribution(0.0, 1.0)
    if isinstance(parameter, Choice):
        return CategoricalDistribution(parameter.values)
    assert isinstance(parameter, Range)
    is_log = parameter.scale == "log"
    if parameter.drawn is not None:  # `Range.text` rounds to a step
        return FloatDistribution(*parameter.drawn, log=is_log)
    step = None if is_log else parameter.step  # Optuna refuses both; `Range.text` rounds to a step
    if parameter.is_integer:
        return IntDistribution(int(parameter.low), int(parameter.high), log=is_log, step=int(step or 1))
    return FloatDistribution(parameter.low, parameter.high, log=is_log, step=step)


# How many unusable points a sampler may draw before points are drawn at random. After thousands of trials a draw
# by TPE takes a tenth of a second, and a Gaussian process takes longer and usually draws the same point again.
_PATIENCE = {"tpe": 20, "bohb": 20, "cmaes": 20, "nsga2": 100, "qmc": 200, "gp": 3}


_POPULATION = 50  # Optuna's own
_FEWEST_GENERATIONS = 5  # of a search with few samples


def _sampler(spec: Spec, number: int, draw: int) -> samplers.BaseSampler:
    """The sampler for one draw of this trial's parameters.

    It is created from the seed and the numbers alone, so that it draws the same after a crash.
    """
    seed = _seed(spec.seed, number, draw)
    if draw >= _PATIENCE[spec.sampler]:
        return samplers.RandomSampler(seed=seed)
    is_single = len(spec.metrics) <= 1
    match spec.sampler:
        case "tpe" | "bohb":
            return samplers.TPESampler(
                seed=seed,
                constant_liar=True,  # also avoids the points of running trials
                multivariate=is_single,
                group=is_single and any(parameter.when for parameter in spec.parameters),
            )
        case "nsga2":
            size = (spec.samples or _POPULATION) // _FEWEST_GENERATIONS
            return samplers.NSGAIISampler(seed=seed, population_size=max(4, min(_POPULATION, size)))
        case "gp":
            return samplers.GPSampler(seed=seed)
        case "cmaes":
            return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        case "qmc":
            # One sequence for the whole sweep; parameters outside of it must still differ between trials.
            return samplers.QMCSampler(
                scramble=True,
                seed=_seed(spec.seed),
                independent_sampler=samplers.RandomSampler(seed=seed),
                warn_independent_sampling=False,
            )


def _pruner(spec: Spec, trial_length: int | None) -> pruners.BasePruner:
    """The pruner of the sweep. `trial_length` is the last step of the first complete trial."""
    first = max(1, spec.prune_after)
    match spec.pruner:
        case "halving":
            return pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=spec.prune_factor or 4)
        case "median":
            return pruners.MedianPruner(n_warmup_steps=spec.prune_after)
        case "hyperband" if trial_length is not None and trial_length >= first:
            return pruners.HyperbandPruner(
                min_resource=first, max_resource=trial_length, reduction_factor=spec.prune_factor or 3
            )
        case _:
            return pruners.NopPruner()


def _seed(*parts: int) -> int:
    """A 32-bit seed, as Optuna needs; similar numbers give unrelated seeds."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4])
