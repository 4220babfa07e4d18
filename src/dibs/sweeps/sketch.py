"""A trial in pencil: drawn with Optuna's samplers, and only written into the study when it is wanted.

Optuna writes a trial down before it knows its parameters, one line of the journal for each. Drawn here first,
it becomes one line, whole or not there after a kill -9, and a draw that breaks a condition leaves no trace.
"""

import copy
from collections.abc import Container, Sequence
from datetime import datetime
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

# The samplers that count (QMC) keep their count with the study. It goes into the trial's own line, because two
# lines could be torn apart.
_CARRIED = "dibs:study"
_PENCIL = -1  # the id of the trial that is not written


class Sketch(BaseStorage):
    """The study as it is, and one trial more that only we can see."""

    def __init__(self, study: BaseStorage, study_id: int) -> None:
        self._study = study
        self._study_id = study_id
        self._trial: FrozenTrial | None = None
        self._carried: dict[str, Any] = {}
        self._new: dict[str, Any] = {}
        for trial in study.get_all_trials(study_id, deepcopy=False):
            self._carried |= trial.system_attrs.get(_CARRIED, {})

    def ink(self, user_attrs: dict[str, Any], params: dict[str, Any]) -> int:
        """Write the trial into the study, by one line; returns its number. `params` correct what was drawn."""
        trial = self._pencilled
        trial.params.update(params)
        trial.user_attrs |= user_attrs
        if self._new:
            trial.system_attrs[_CARRIED] = self._new
        trial_id = self._study.create_new_trial(self._study_id, template_trial=trial)
        self._carried |= self._new
        self._trial, self._new = None, {}
        return self._study.get_trial(trial_id).number

    @property
    def _pencilled(self) -> FrozenTrial:
        assert self._trial is not None
        return self._trial

    # What follows is what Optuna asks of a storage.

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Begin a trial; one that was not written is forgotten."""
        assert template_trial is None
        self._trial = FrozenTrial(
            number=self._study.get_n_trials(study_id),
            trial_id=_PENCIL,
            state=TrialState.RUNNING,
            value=None,
            datetime_start=datetime.now(),
            datetime_complete=None,
            params={},
            distributions={},
            user_attrs={},
            system_attrs={},
            intermediate_values={},
        )
        return _PENCIL

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        self._pencilled.params[param_name] = distribution.to_external_repr(param_value_internal)
        self._pencilled.distributions[param_name] = distribution

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._pencilled.system_attrs[key] = value

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self._new[key] = value

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._study.get_study_system_attrs(study_id) | self._carried | self._new

    def get_trial(self, trial_id: int) -> FrozenTrial:
        # A copy, as from a storage: Optuna writes into the one it has.
        return copy.deepcopy(self._pencilled) if trial_id == _PENCIL else self._study.get_trial(trial_id)

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        if states == (TrialState.WAITING,):
            return []  # what somebody put into the study by hand is not ours to take
        trials = self._study.get_all_trials(study_id, deepcopy=deepcopy, states=states)
        if self._trial is not None and (states is None or self._trial.state in states):
            trials = [*trials, copy.deepcopy(self._trial)]
        return trials

    def get_study_id_from_name(self, study_name: str) -> int:
        return self._study.get_study_id_from_name(study_name)

    def get_study_name_from_id(self, study_id: int) -> str:
        return self._study.get_study_name_from_id(study_id)

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return self._study.get_study_directions(study_id)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return self._study.get_study_user_attrs(study_id)

    # Nothing of this happens while a trial is drawn.

    def get_all_studies(self) -> Any:
        raise NotImplementedError

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        raise NotImplementedError

    def delete_study(self, study_id: int) -> None:
        raise NotImplementedError

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        raise NotImplementedError

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        raise NotImplementedError

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        raise NotImplementedError

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        raise NotImplementedError
