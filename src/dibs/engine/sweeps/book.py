"""What happens to sweeps, written down: the row, the journal's line and the event, in one turn."""

from collections.abc import Sequence
from typing import Any

from dibs.model.sweeps import Sweep, SweepId, Trial
from dibs.policy.sweeping import Goal
from dibs.store import sweep_lines
from dibs.store.recorder import Recorder
from dibs.store.store import Store


class SweepBook:
    """Everything here happens inside a change of the engine."""

    def __init__(self, store: Store, recorder: Recorder) -> None:
        self._store = store
        self._recorder = recorder

    def added(self, sweep: Sweep) -> Sweep:
        """With its number. Acknowledged is durable, so the journal is synced."""
        sweep = self._store.sweeps.add(sweep)
        self._recorder.note(sweep_lines.swept(sweep), sync=True)
        body = {"sweep": sweep.id, "name": sweep.name, "state": sweep.state, "why": sweep.why}
        self._recorder.tell(sweep.queued_at, "sweep.added", None, body)
        return sweep

    def changed(self, sweep: Sweep, now: float, *, is_edited: bool = False) -> None:
        """Acknowledged is durable: somebody may have asked for it."""
        self._store.sweeps.change(sweep)
        self._recorder.note(sweep_lines.sweep_changed(sweep, is_edited=is_edited), sync=True)
        self._recorder.tell(now, "sweep.changed", None, sweep_lines.sweep_told(sweep))

    def removed(self, sweep: SweepId, now: float) -> None:
        """The sweep and its trials; their jobs stay."""
        self._store.sweeps.remove(sweep)
        self._recorder.note(sweep_lines.sweep_gone(sweep), sync=True)
        self._recorder.tell(now, "sweep.removed", None, {"sweep": sweep})

    def new_trial(self, trial: Trial, goals: Sequence[Goal], cursor: int, now: float) -> None:
        """A trial, and where its sweep goes on after it."""
        self._store.sweeps.add_trial(trial, goals, cursor)
        self._recorder.note(sweep_lines.tried(trial, cursor=cursor))
        self._tell(trial, now)

    def trial(self, trial: Trial, goals: Sequence[Goal], now: float) -> None:
        """What became of it."""
        self._store.sweeps.change_trial(trial, goals)
        self._recorder.note(sweep_lines.tried(trial))
        self._tell(trial, now)

    def _tell(self, trial: Trial, now: float) -> None:
        body = {"sweep": trial.sweep, "trial": trial_told(trial)}
        self._recorder.tell(now, "sweep.trial", None, body)


def trial_told(trial: Trial) -> dict[str, Any]:
    """A trial as everybody sees it; moments are seconds since the epoch."""
    return {
        "number": trial.number,
        "job": trial.job,
        "state": str(trial.state),
        "point": dict(trial.point),
        "values": None if trial.values is None else list(trial.values),
        "seconds": trial.seconds,
        "why": trial.why,
        "reused_from": trial.reused_from,
        "ended_at": trial.ended_at,
        "command": trial.command,
    }
