"""The results of a simulation in numbers: waiting times, use of the GPUs, fairness, and a small chart."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from fractions import Fraction

from dibs.dataclass import dataclass
from dibs.simulate.machine import SimulatedMachine
from dibs.simulate.simulator import History, SimulatedRun


@dataclass(frozen=True, slots=True)
class Fairness:
    """What projects got while they competed: while a job waited, and two or more projects had jobs.

    At such a moment the fair part of a project is an equal part of the GPUs held, but no more than it holds and
    waits for; the others share the rest. `parts` is what each project got in all these moments, divided by its
    fair parts: 1.0 is exactly fair. The index is Jain's over these: 1.0 where they are equal, 1/n where one of n
    projects got everything.
    """

    competing: float = 0.0  # seconds
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def index(self) -> float | None:
        """None where no projects competed."""
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
    """The fairness over the whole history."""
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
    """Those with the smallest demand first: the others share what is left."""
    left = sum(one.held for one in active)
    for place, one in enumerate(sorted(active, key=_demand)):
        part = max(0.0, min(_demand(one), left / (len(active) - place)))
        left -= part
        one.fair += part * seconds
        one.got += one.held * seconds


def _demand(project: _Project) -> float:
    return project.held + project.wanted


def _changes(runs: Iterable[SimulatedRun]) -> list[tuple[float, str, int, int, float, float]]:
    """The changes by time: project, more jobs, more waiting jobs, more GPUs wanted, more GPUs held."""
    changes = []
    for run in runs:
        project, gpus = run.arrival.job.request.project, run.held
        changes += [
            (run.ready_at, project, 1, 1, gpus, 0.0),
            (run.started_at, project, 0, -1, -gpus, gpus),
            (run.ended_at, project, -1, 0, 0.0, -gpus),
        ]
    return sorted(changes)


_POINTS = 100  # of each series


@dataclass(frozen=True, slots=True)
class WaitTimes:
    """How long some jobs waited, in seconds, from the moment at which they could have started."""

    jobs: int
    mean: float
    median: float
    p95: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True)
class Project:
    """One project: its waits, and what it got while it competed."""

    waits: WaitTimes
    gpu_seconds: float
    fair_part: float | None  # 1.0 is exactly fair; None: it never competed


@dataclass(frozen=True, slots=True)
class SimulatedSeries:
    """The machine and the queue over time, in steps of the same length."""

    step: float  # seconds
    held: Sequence[float]  # GPUs, on average
    waiting: Sequence[int]  # jobs, at most


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """The numbers that are printed."""

    jobs: int
    ran: int
    cut: int  # by their time limits
    never: Sequence[tuple[str, int]]  # why, and how many
    waits: WaitTimes
    really: WaitTimes | None  # as it was recorded
    projects: dict[str, Project]
    widths: dict[str, WaitTimes]
    makespan: float  # seconds from the first arrival to the last end
    last_queued: float  # seconds after the first
    use: float  # of the GPUs, until the end
    use_while_queued: float | None  # the same until the last arrival; None where all arrived at once
    fairness: float | None
    competing: float  # seconds in which two projects or more had jobs waiting
    series: SimulatedSeries


def report(history: History, machine: SimulatedMachine) -> SimulationReport:
    """The report of a history."""
    runs = history.runs
    arrivals = [run.arrival for run in runs] + [one.arrival for one in history.never]
    makespan = max((run.ended_at for run in runs), default=0.0)
    last_queued = max((one.queued_at for one in arrivals), default=0.0)
    fairness = fairness_of(runs)
    recorded = [one.really_waited for one in arrivals if one.really_waited is not None]
    projects: dict[str, list[SimulatedRun]] = {}
    for run in runs:
        projects.setdefault(run.arrival.job.request.project, []).append(run)
    return SimulationReport(
        jobs=len(arrivals),
        ran=len(runs),
        cut=sum(run.arrival.is_cut for run in runs),
        never=Counter(one.why for one in history.never).most_common(),
        waits=_waits(runs),
        really=_spread(recorded) if recorded else None,
        projects={
            name: Project(_waits(mine), math.fsum(map(_gpu_seconds, mine)), fairness.parts.get(name))
            for name, mine in sorted(projects.items())
        },
        widths=_by_width(runs),
        makespan=makespan,
        last_queued=last_queued,
        use=_use(runs, machine, makespan),
        use_while_queued=_use(runs, machine, last_queued) if last_queued else None,
        fairness=fairness.index,
        competing=fairness.competing,
        series=series(runs, makespan, _POINTS),
    )


def series(runs: Sequence[SimulatedRun], until: float, points: int) -> SimulatedSeries:
    """Held GPUs and waiting jobs in so many steps."""
    step = until / points if until else 1.0
    held = [0.0] * points
    for run in runs:
        _add_held(held, step, run)
    return SimulatedSeries(step, held, _most_waiting(runs, step, points))


def _add_held(held: list[float], step: float, run: SimulatedRun) -> None:
    """Add what a run holds to each step that it overlaps, in proportion."""
    gpus = run.held
    if not gpus:
        return
    last = min(len(held) - 1, int(run.ended_at / step))
    for place in range(min(last, int(run.started_at / step)), last + 1):
        within = min(run.ended_at, (place + 1) * step) - max(run.started_at, place * step)
        held[place] += gpus * max(0.0, within) / step


def _most_waiting(runs: Sequence[SimulatedRun], step: float, points: int) -> list[int]:
    """The most jobs that wait within each step. A job that starts at once has not waited."""
    changes: Counter[float] = Counter()
    for run in runs:
        changes[run.ready_at] += 1
        changes[run.started_at] -= 1
    waiting = [0] * points
    place = count = 0
    for at, more in sorted(changes.items()):
        while place < min(points - 1, int(at / step)):
            place += 1
            if at > place * step:
                waiting[place] = count
        count += more
        waiting[place] = max(waiting[place], count)
    return waiting


def _spread(seconds: Sequence[float]) -> WaitTimes:
    values = sorted(seconds)

    def rank(part: float) -> float:
        """The value that this part of the jobs did not exceed."""
        return values[max(0, math.ceil(part * len(values)) - 1)] if values else 0.0

    mean = math.fsum(values) / len(values) if values else 0.0
    return WaitTimes(len(values), mean, rank(0.5), rank(0.95), rank(0.99), rank(1))


def _waits(runs: Iterable[SimulatedRun]) -> WaitTimes:
    return _spread([run.waited for run in runs])


def _by_width(runs: Sequence[SimulatedRun]) -> dict[str, WaitTimes]:
    widths: dict[tuple[int, Fraction], list[SimulatedRun]] = {}
    for run in runs:
        wishes = run.arrival.job.request.wishes
        widths.setdefault((wishes.num_gpus, wishes.share or Fraction(1)), []).append(run)
    return {_width_in_words(*width): _waits(mine) for width, mine in sorted(widths.items())}


def _width_in_words(num_gpus: int, share: Fraction) -> str:
    """`no GPU`, `1/2 GPU`, `1 GPU`, `4 GPUs`; of several cards a share each."""
    if not num_gpus:
        return "no GPU"
    if share < 1:
        return f"{share} GPU" if num_gpus == 1 else f"{num_gpus} × {share} GPU"
    return "1 GPU" if num_gpus == 1 else f"{num_gpus} GPUs"


def _gpu_seconds(run: SimulatedRun, until: float = math.inf) -> float:
    return run.held * max(0.0, min(run.ended_at, until) - run.started_at)


def _use(runs: Iterable[SimulatedRun], machine: SimulatedMachine, until: float) -> float:
    whole = machine.num_gpus * until
    return math.fsum(_gpu_seconds(run, until) for run in runs) / whole if whole else 0.0


_EIGHTHS = " ▁▂▃▄▅▆▇█"


def bars(values: Sequence[float], top: float, height: int) -> list[str]:
    """Lines of blocks, the top line first; `top` fills all of them, and every value above 0 is visible."""
    levels = [_level(value, top, 8 * height) for value in values]
    return [
        "".join(_EIGHTHS[min(8, max(0, level - 8 * row))] for level in levels).rstrip()
        for row in reversed(range(height))
    ]


def _level(value: float, top: float, eighths: int) -> int:
    if value <= 0 or top <= 0:
        return 0
    return min(eighths, max(1, round(value / top * eighths)))
