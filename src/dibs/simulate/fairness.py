"""Whether projects that compete get the same."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dibs.simulate.world import SimulatedRun


@dataclass(frozen=True, slots=True)
class Fairness:
    """What projects got while they competed: while somebody waited, and two of them or more had jobs here.

    At such a moment the fair part of a project is an equal one of the GPUs held, but no more than it holds
    and waits for; what it does not want is shared by the others. `parts` are what each got in all these moments,
    divided by its fair parts: 1.0 is just that. The index is Jain's over them: 1.0 where they are the same, 1/n
    where one of n projects got everything.
    """

    competing: float = 0.0  # seconds
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def index(self) -> float | None:
        """None where nobody competed."""
        parts = list(self.parts.values())
        squares = math.fsum(part * part for part in parts)
        return math.fsum(parts) ** 2 / (len(parts) * squares) if squares else None


@dataclass(slots=True)
class _Project:
    jobs: int = 0  # that wait or run
    waiting: int = 0
    wanted: float = 0.0  # GPUs, by those that wait
    held: float = 0.0
    got: float = 0.0  # GPU-seconds
    fair: float = 0.0


def fairness_of(runs: Sequence[SimulatedRun]) -> Fairness:
    """Go through the history from change to change."""
    projects: dict[str, _Project] = {}
    competing = before = 0.0
    for at, name, jobs, waiting, wanted, held in _changes(runs):
        active = [one for one in projects.values() if one.jobs] if at > before else []
        if len(active) > 1 and any(one.waiting for one in active):
            competing += at - before
            _share_out(active, at - before)
        before = at
        project = projects.setdefault(name, _Project())
        project.jobs += jobs
        project.waiting += waiting
        project.wanted += wanted
        project.held += held
    return Fairness(competing, {name: one.got / one.fair for name, one in sorted(projects.items()) if one.fair})


def _share_out(active: Sequence[_Project], seconds: float) -> None:
    """Those who want least first: what they leave is for the others."""
    left = sum(one.held for one in active)
    for place, one in enumerate(sorted(active, key=_demand)):
        part = max(0.0, min(_demand(one), left / (len(active) - place)))
        left -= part
        one.fair += part * seconds
        one.got += one.held * seconds


def _demand(project: _Project) -> float:
    return project.held + project.wanted


def _changes(runs: Iterable[SimulatedRun]) -> list[tuple[float, str, int, int, float, float]]:
    """When how many more of a project's jobs are here and wait, and how many more GPUs it wants and holds."""
    changes = []
    for run in runs:
        project, gpus = run.arrival.job.request.project, run.held
        changes += [
            (run.ready_at, project, 1, 1, gpus, 0.0),
            (run.started_at, project, 0, -1, -gpus, gpus),
            (run.ended_at, project, -1, 0, 0.0, -gpus),
        ]
    return sorted(changes)
