"""What the work on sweeps uses: the records of sweeps and trials, the engine's parts, and a parsed spec."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dibs.dataclass import dataclass
from dibs.engine.engine import Engine
from dibs.engine.launch.results import Results
from dibs.engine.queue.queue import Queue
from dibs.metrics.patterns import with_names
from dibs.model.jobs import CONTINUES, OF_POPULATION, Command, Request, Wishes
from dibs.model.sweeps import WANDB_PARAMETERS, Point, Sweep, SweepId, Trial, trial_key
from dibs.policy.sweeps import Goal, places, places_elsewhere, planned
from dibs.store import journal_lines
from dibs.store.recorder import Recorder
from dibs.store.store import Store
from dibs.store.sweeps import SweepTable
from dibs.sweeps.points import Points
from dibs.sweeps.spec import CommandTemplate, Spec, read_spec
from dibs.sweeps.wandb_trial import parameter_file, wandb_variables


class SweepRecords:
    """Writes the row, the journal's line and the event of each change. Only inside a change of the engine."""

    def __init__(self, store: Store, recorder: Recorder) -> None:
        self._store = store
        self._recorder = recorder

    def added(self, sweep: Sweep) -> Sweep:
        """The sweep with its number. The journal is synced: an acknowledged sweep is durable."""
        sweep = self._store.sweeps.add(sweep)
        self._recorder.note(journal_lines.swept(sweep), sync=True)
        body = {"sweep": sweep.id, "name": sweep.name, "state": sweep.state, "why": sweep.why}
        self._recorder.tell(sweep.queued_at, "sweep.added", None, body)
        return sweep

    def changed(self, sweep: Sweep, now: float, *, is_edited: bool = False) -> None:
        """The journal is synced: the change may be acknowledged to a client."""
        self._store.sweeps.change(sweep)
        self._recorder.note(journal_lines.sweep_changed(sweep, is_edited=is_edited), sync=True)
        self._recorder.tell(now, "sweep.changed", None, journal_lines.sweep_told(sweep))

    def removed(self, sweep: SweepId, now: float) -> None:
        """Remove the sweep and its trials; their jobs stay."""
        self._store.sweeps.remove(sweep)
        self._recorder.note(journal_lines.sweep_gone(sweep), sync=True)
        self._recorder.tell(now, "sweep.removed", None, {"sweep": sweep})

    def new_trial(self, trial: Trial, goals: Sequence[Goal], cursor: int, now: float) -> None:
        """Add a trial, and the cursor of its sweep after it."""
        self._store.sweeps.add_trial(trial, goals, cursor)
        self._recorder.note(journal_lines.tried(trial, cursor=cursor))
        self._tell(trial, now)

    def trial(self, trial: Trial, goals: Sequence[Goal], now: float) -> None:
        """Change a trial."""
        self._store.sweeps.change_trial(trial, goals)
        self._recorder.note(journal_lines.tried(trial))
        self._tell(trial, now)

    def _tell(self, trial: Trial, now: float) -> None:
        body = {"sweep": trial.sweep, "trial": trial_told(trial)}
        self._recorder.tell(now, "sweep.trial", None, body)


def trial_told(trial: Trial) -> dict[str, Any]:
    """A trial as clients see it; times are seconds since the epoch."""
    return {
        "number": trial.number,
        "job": trial.job,
        "state": str(trial.state),
        "point": dict(trial.point),
        "values": None if trial.values is None else list(trial.values),
        "reported": dict(trial.reported),
        "continues": trial.continues,
        "repeat_of": trial.repeat_of,
        "means": None if trial.means is None else list(trial.means),
        "spreads": None if trial.spreads is None else list(trial.spreads),
        "seconds": trial.seconds,
        "why": trial.why,
        "reused_from": trial.reused_from,
        "ended_at": trial.ended_at,
        "command": trial.command,
    }


_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepContext:
    """The parts of the engine that the work on sweeps uses."""

    engine: Engine
    queue: Queue
    records: SweepRecords
    results: Results
    root: str  # with a folder for each sweep that has a study
    cpus: int
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]  # for calls that may block
    reach: Callable[[str], None]  # named points, at which tests kill the daemon
    log: Callable[[str], None]

    @property
    def table(self) -> SweepTable:
        return self.engine.store.sweeps

    def folder(self, sweep: SweepId) -> str:
        return f"{self.root}/sweeps/{sweep}"


class Search:
    """A parsed spec: its points and commands. An invalid spec raises BadInput."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.spec: Spec = read_spec(given)
        self.points = Points(self.spec)
        self._template = CommandTemplate(self.spec)
        self.goals: tuple[Goal, ...] = tuple(metric.goal for metric in self.spec.metrics)
        self.metric_names = tuple(metric.name for metric in self.spec.metrics)

    @property
    def size(self) -> int | None:
        """The number of trials in the end, with all repeats, where it is known without enumerating the points."""
        if self.spec.revision:  # which of the points were tried before is not counted
            size = self.spec.samples
        else:
            has_end = self.spec.method in ("grid", "random")
            size = planned(self.points.size if has_end else None, self.spec.samples)
        return None if size is None else size * self.spec.repeat

    def command(self, point: Point) -> Command:
        words = self._template.expand(dict(point))
        return Command.line(words, self.spec.shell) if isinstance(words, str) else Command.exact(words)

    def shown(self, point: Point) -> str:
        """The command of a trial for people, with a comment where only `wandb.config` has its parameters."""
        command = " ".join(self.spec.words) or self.spec.line
        hidden = [f"{name}={value}" for name, value in point.items() if f"{{{name}}}" not in command]
        text = self.command(point).shown
        return f"{text}  # {' '.join(hidden)}" if hidden and self.spec.is_for_wandb else text

    def variables(self, sweep: Sweep, trial: Trial) -> dict[str, str]:
        """What the job of a trial finds in its environment."""
        found = {"DIBS_SWEEP": str(sweep.id), "DIBS_TRIAL": str(trial.number)}
        if self.spec.method == "population":
            found[OF_POPULATION] = str(self.spec.population)
        if trial.continues is not None:
            found[CONTINUES] = str(trial.continues)
        if self.spec.is_for_wandb:
            found |= wandb_variables(sweep.id, trial.number, sweep.key, dict(sweep.request.env))
            text = parameter_file(dict(trial.point), self.spec.config, self.spec.parameters)
            found[WANDB_PARAMETERS] = text
        return found

    def fingerprint(self, point: Point, request: Request) -> str:
        """Equal for the same work with the same metrics."""
        found = self._template.fingerprint(dict(point), request.workdir, dict(request.env))
        return " ".join([found, *self.metric_names])

    def parallel(self, context: SweepContext, wishes: Wishes, on: str) -> int:
        """How many trials are open at once: as requested, or as many as the machine has places for such jobs."""
        if self.spec.parallel is not None:
            return self.spec.parallel
        if on:
            return places_elsewhere(self.spec.method == "adaptive")
        lessons = context.engine.store.lessons.of(wishes.shape) if wishes.shape else {}
        return places(context.engine.cards.pool.cards, wishes, lessons, context.cpus)


def request_of(sweep: Sweep, trial: Trial, search: Search) -> Request:
    """The request of a trial's job."""
    return replace(
        sweep.request,
        command=search.command(trial.point),
        name=f"{sweep.label}-{trial.number}",
        env=(*sweep.request.env, *search.variables(sweep, trial).items()),
        metric_patterns=_patterns(sweep),
        once=trial_key(sweep.id, trial.number),
        hold=False,
    )


def _patterns(sweep: Sweep) -> tuple[str, ...]:
    """Those of its jobs: what finds a trial's results in its log finds its curves, too."""
    results = sweep.spec.get("results") or {}
    if results.get("from") != "log":
        return sweep.request.metric_patterns
    names = [metric["name"] for metric in sweep.spec.get("metrics", ())]
    named = with_names(results.get("pattern", ""), names)
    return tuple(dict.fromkeys([*sweep.request.metric_patterns, *([named] if named else [])]))
