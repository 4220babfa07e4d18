"""The storage of a sweep's study: Optuna's journal file, and a draft of the next trial in memory.

One adviser at a time owns the journal; it is repaired after a kill -9. Other programs, such as Optuna's dashboard,
may read it, and even write to it under Optuna's own lock.
"""

import copy
import fcntl
import json
import os
import time
from collections.abc import Callable, Container, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

# A sampler that counts (QMC) keeps its count in the study's attributes. It is written with the trial, because a
# crash could separate two lines of the journal.
_CARRIED = "dibs:study"
_DRAFT_ID = -1
_PATIENCE_SECONDS = 2.0  # Optuna holds its lock for the duration of one write


def open_journal(path: Path) -> BaseStorage:
    """The storage in that file. Waits for the previous adviser to end, if it still writes."""
    _keep_alone(path.with_suffix(".lock-adviser"))
    _remove_stale_lock(Path(f"{path}.lock"))
    _cut_torn_end(path)
    return JournalStorage(JournalFileBackend(str(path)))


class DraftStorage(BaseStorage):
    """The study, and one more trial in memory: drawn by Optuna's samplers, and written only by `commit`.

    Optuna writes a new trial and each of its parameters as separate lines. A draft is written as one line, which
    after a kill -9 is either complete or absent, and a draw that breaks a condition leaves no trace.
    """

    def __init__(self, study: BaseStorage, study_id: int) -> None:
        self._study = study
        self._study_id = study_id
        self.is_shown: Callable[[FrozenTrial], bool] | None = None  # to samplers; None: all are
        self._trial: FrozenTrial | None = None
        self._carried: dict[str, Any] = {}
        self._new: dict[str, Any] = {}
        for trial in study.get_all_trials(study_id, deepcopy=False):
            self._carried |= trial.system_attrs.get(_CARRIED, {})

    def commit(self, user_attrs: dict[str, Any], params: dict[str, Any]) -> int:
        """Write the draft to the study as one line; returns its number. `params` replace drawn values."""
        trial = self._draft
        trial.params.update(params)
        trial.user_attrs |= user_attrs
        if self._new:
            trial.system_attrs[_CARRIED] = self._new
        trial_id = self._study.create_new_trial(self._study_id, template_trial=trial)
        self._carried |= self._new
        self._trial, self._new = None, {}
        return self._study.get_trial(trial_id).number

    @property
    def _draft(self) -> FrozenTrial:
        assert self._trial is not None
        return self._trial

    # -- Optuna's interface of a storage ---------------------------------------------------------------

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Begin a new draft; an uncommitted one is discarded."""
        assert template_trial is None
        self._trial = FrozenTrial(
            number=self._study.get_n_trials(study_id),
            trial_id=_DRAFT_ID,
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
        return _DRAFT_ID

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        self._draft.params[param_name] = distribution.to_external_repr(param_value_internal)
        self._draft.distributions[param_name] = distribution

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._draft.system_attrs[key] = value

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self._new[key] = value

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._study.get_study_system_attrs(study_id) | self._carried | self._new

    def get_trial(self, trial_id: int) -> FrozenTrial:
        # A copy: Optuna modifies the trial that it is given.
        return copy.deepcopy(self._draft) if trial_id == _DRAFT_ID else self._study.get_trial(trial_id)

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        if states == (TrialState.WAITING,):
            return []  # trials that another program enqueued are not part of this sweep
        trials = self._study.get_all_trials(study_id, deepcopy=deepcopy, states=states)
        if self.is_shown is not None:
            trials = [trial for trial in trials if self.is_shown(trial)]
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

    # Not used while a trial is drawn.

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


def _keep_alone(path: Path) -> None:
    # Never closed: the kernel releases it when this process ends.
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)


def _remove_stale_lock(path: Path) -> None:
    """Remove the lock of a writer that was killed while it wrote.

    Optuna's lock is a symbolic link, which stays after a kill, and old versions wait for it forever.
    """
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while path.is_symlink() and time.monotonic() < give_up:
        time.sleep(0.05)
    path.unlink(missing_ok=True)


def _cut_torn_end(path: Path) -> None:
    """Cut off an incomplete last line, left by a killed writer, a full disk or a power cut.

    No answered message is lost, because a line is synced before its answer. The next line would be appended to the
    incomplete one, and no program could read the file any more.
    """
    if not path.exists():
        return
    with open(path, "r+b") as file:
        end = size = file.seek(0, os.SEEK_END)
        while end and not _is_whole(line := _last_line(file.fileno(), end)):
            end -= len(line)
        if end < size:
            file.truncate(end)
            os.fsync(file.fileno())


def _last_line(file: int, end: int) -> bytes:
    """The last line before `end`, with its line feed if it has one."""
    read = b""
    while len(read) < end and b"\n" not in read[:-1]:
        begin = max(0, end - max(4096, 2 * len(read)))
        read = os.pread(file, end - begin, begin)
    return read[read.rfind(b"\n", 0, -1) + 1 :]


def _is_whole(line: bytes) -> bool:
    if not line.endswith(b"\n"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
