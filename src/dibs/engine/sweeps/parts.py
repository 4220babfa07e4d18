"""What the work on a sweep needs of the engine, and what a sweep's spec is made into."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from dibs.engine.engine import Engine
from dibs.engine.launch.results import Results
from dibs.engine.queue.queue import Queue
from dibs.engine.sweeps.book import SweepBook
from dibs.model.jobs import Command, Request, Wishes
from dibs.model.sweeps import Point, Sweep, SweepId, trial_key
from dibs.policy.sweeping import Goal, places, places_elsewhere, planned
from dibs.store.sweeps import SweepTable

if TYPE_CHECKING:
    from dibs.sweeps.spec import Spec

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """The engine's side."""

    engine: Engine
    queue: Queue
    book: SweepBook
    results: Results
    root: str  # each sweep that needs one has a folder in it
    cpus: int
    aside: Callable[[Callable[[], Any]], Awaitable[Any]]  # work that may take long, beside the loop
    reach: Callable[[str], None]  # named points, where tests let the daemon die
    log: Callable[[str], None]

    @property
    def table(self) -> SweepTable:
        return self.engine.store.sweeps

    def folder(self, sweep: SweepId) -> str:
        return f"{self.root}/sweeps/{sweep}"


class Search:
    """A spec that was read: its points and commands. What cannot be meant raises BadInput."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        # Loaded for the first sweep only.
        from dibs.sweeps.points import Points
        from dibs.sweeps.spec import CommandTemplate, read_spec

        self.spec: Spec = read_spec(given)
        self.points = Points(self.spec)
        self._template = CommandTemplate(self.spec)
        self.goals: tuple[Goal, ...] = tuple(metric.goal for metric in self.spec.metrics)
        self.metric_names = tuple(metric.name for metric in self.spec.metrics)

    @property
    def size(self) -> int | None:
        """How many trials it has in the end, as far as that can be told without looking at each."""
        size = None if self.spec.method == "adaptive" else self.points.size
        return planned(size, self.spec.samples)

    def command(self, point: Point) -> Command:
        words = self._template.expand(dict(point))
        return Command.line(words, self.spec.shell) if isinstance(words, str) else Command.exact(words)

    def fingerprint(self, point: Point, request: Request) -> str:
        """The same work, measured by the same metrics."""
        found = self._template.fingerprint(dict(point), request.workdir, dict(request.env))
        return " ".join([found, *self.metric_names])

    def parallel(self, parts: Parts, wishes: Wishes, on: str) -> int:
        """How many trials are open at once: as asked for, or as many as there are places for such jobs."""
        if self.spec.parallel is not None:
            return self.spec.parallel
        if on:
            return places_elsewhere(self.spec.method == "adaptive")
        lessons = parts.engine.store.lessons.of(wishes.shape) if wishes.shape else {}
        return places(parts.engine.cards.pool.cards, wishes, lessons, parts.cpus)


def request_of(sweep: Sweep, number: int, command: Command) -> Request:
    """What the job of a trial asks for."""
    variables = {"DIBS_SWEEP": str(sweep.id), "DIBS_TRIAL": str(number)}
    return replace(
        sweep.request,
        command=command,
        name=f"{sweep.label}-{number}",
        env=(*sweep.request.env, *variables.items()),
        once=trial_key(sweep.id, number),
        hold=False,
    )
