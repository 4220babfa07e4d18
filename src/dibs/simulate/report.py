"""What came of a trace, in numbers."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dibs.simulate.fairness import fairness_of
from dibs.simulate.machine import SimulatedMachine
from dibs.simulate.world import History, SimulatedRun

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
    """One project: its waits, and what it got while it had to compete."""

    waits: WaitTimes
    gpu_seconds: float
    fair_part: float | None  # of its equal part, 1.0: just that; None: it never competed


@dataclass(frozen=True, slots=True)
class SimulatedSeries:
    """The machine and the queue over time, in steps of the same length."""

    step: float  # seconds
    held: Sequence[float]  # GPUs, on average
    waiting: Sequence[int]  # jobs, at the most


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
    makespan: float  # seconds from the first job's coming to the last one's end
    last_queued: float  # seconds after the first
    use: float  # of the GPUs, until the end
    use_while_queued: float | None  # the same until the last job came; None where all came at once
    fairness: float | None
    competing: float  # seconds in which two projects or more had jobs waiting
    series: SimulatedSeries


def report(history: History, machine: SimulatedMachine) -> SimulationReport:
    """Count what can be counted."""
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
        _lay_over(held, step, run)
    return SimulatedSeries(step, held, _most_waiting(runs, step, points))


def _lay_over(held: list[float], step: float, run: SimulatedRun) -> None:
    """Add what a run holds to each step, as much as it lies within it."""
    gpus = run.held
    if not gpus:
        return
    last = min(len(held) - 1, int(run.ended_at / step))
    for place in range(min(last, int(run.started_at / step)), last + 1):
        within = min(run.ended_at, (place + 1) * step) - max(run.started_at, place * step)
        held[place] += gpus * max(0.0, within) / step


def _most_waiting(runs: Sequence[SimulatedRun], step: float, points: int) -> list[int]:
    """The most that wait within each step. Who starts at once has not waited."""
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
        """So many of them waited no longer."""
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
