"""What the routes work with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dibs.daemon.event_feed import News
from dibs.daemon.gpu_history import History
from dibs.daemon.job_views import Views
from dibs.daemon.schemas.serializers import job_object
from dibs.engine.driver import Driver
from dibs.errors import BadInput
from dibs.model.jobs import JobId
from dibs.model.places import LOCAL
from dibs.store.rows import AttemptRow, JobRow
from dibs.store.store import Store

if TYPE_CHECKING:
    from dibs.daemon.web.listener import Door
    from dibs.engine.away.away import Away
    from dibs.engine.browse import BrowsableFolders
    from dibs.engine.engine import Engine
    from dibs.engine.health import Health
    from dibs.engine.queue import Queue
    from dibs.engine.sweeps.sweeping import Sweeping
    from dibs.leases.leases import Leases

_MOST_DIGITS = 15


@dataclass(frozen=True, kw_only=True, slots=True)
class Desk:
    """The parts behind the API. Everything happens on the loop, so nothing here needs a lock."""

    engine: "Engine"
    queue: "Queue"
    sweeping: "Sweeping"
    health: "Health"
    store: Store
    driver: Driver
    leases: "Leases"
    results: "BrowsableFolders"
    news: News
    door: "Door"
    views: Views
    history: History
    user: str
    state_folder: str
    environ: Mapping[str, str]  # the daemon's own
    gpus: str  # the pool as the settings have it
    started_at: float
    stop: Callable[[bool], None]  # whether the jobs end too
    most_streams: int = 64
    keep_logs: int | None = None  # bytes of all output together; None: all is kept
    default_backend: str = LOCAL  # where jobs run that do not say so

    @property
    def away(self) -> "Away":
        """Whoever knows other systems: a daemon's engine does."""
        assert self.engine.away is not None
        return self.engine.away

    def job(self, row: JobRow) -> dict[str, Any]:
        return job_object(row, self.user, self.engine.usage_of((row.job.id, row.job.attempts)))

    def pool(self) -> str:
        """The pool as somebody asked for it: `auto`, `0,1`."""
        return self.store.queue.setting("pool") or self.gpus

    def attempt(self, job: JobId, number: int | None) -> AttemptRow | None:
        """One attempt of a job, the last if none is named; None where it has had none."""
        found = {one.attempt.number: one for one in self.store.listing.attempts(job)}
        if number is not None and number not in found:
            raise BadInput(f"job {job} has no attempt {number}", remedy=f"it has had {len(found)}")
        return found.get(number or max(found, default=0))


def ranges(text: str) -> tuple[tuple[int, int], ...]:
    """`1-5,8` as ranges with both ends."""
    found = []
    for part in text.split(",") if text else ():
        first, dash, last = part.strip().partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            raise BadInput(f"cannot read {part[:40]!r} as job numbers", remedy="write them like 1-5,8")
        found.append((int(first), int(last) if dash else int(first)))
    if len(found) > 500:
        raise BadInput(f"{len(found)} ranges of jobs are too many", remedy="ask for at most 500 at once")
    return tuple(found)


def numbers(text: str, most: int) -> list[JobId]:
    """`1-5,8` as numbers, each once."""
    spans = ranges(text)
    if sum(max(0, last - first + 1) for first, last in spans) > most:
        raise BadInput(f"these are more than {most} jobs", remedy=f"ask for at most {most} at once")
    return list(dict.fromkeys(JobId(number) for first, last in spans for number in range(first, last + 1)))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
