"""The parts that the API is built from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dibs.daemon.cleaning import Cleaner
from dibs.daemon.events import EventCounters, EventFeed
from dibs.daemon.gpu_history import GpuHistoryBuffer
from dibs.daemon.job_views import JobViews
from dibs.daemon.schemas.serializers import job_object
from dibs.daemon.web.listener import WebListener
from dibs.engine.driver import Driver
from dibs.engine.engine import Engine
from dibs.engine.launch.browse import BrowsableFolders
from dibs.engine.queue.queue import Queue
from dibs.engine.remote.systems import RemoteSystems
from dibs.engine.sweeps.manager import SweepManager
from dibs.engine.watch.health import Health
from dibs.leases.leases import Leases
from dibs.settings import Settings
from dibs.store.rows import JobRow
from dibs.store.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class AppState:
    """Everything behind the API, built once by the service. `app.py` gives each router its share.

    It is used on the event loop only, so nothing here needs a lock.
    """

    engine: Engine
    queue: Queue
    sweeping: SweepManager
    health: Health
    driver: Driver
    leases: Leases
    results: BrowsableFolders
    cleaner: Cleaner
    feed: EventFeed
    views: JobViews
    history: GpuHistoryBuffer
    counters: EventCounters
    listener: WebListener
    settings: Settings
    environ: Mapping[str, str]  # the daemon's own
    user: str
    started_at: float
    stop: Callable[[bool], None]  # True: the running jobs are stopped first

    @property
    def store(self) -> Store:
        return self.engine.store

    @property
    def remote(self) -> RemoteSystems:
        """The other systems that jobs may be sent to. The engine of a daemon always has this part."""
        assert self.engine.remote is not None
        return self.engine.remote

    def job(self, row: JobRow) -> dict[str, Any]:
        """A job as the API shows it, with the usage of a running attempt."""
        return job_object(row, self.user, self.engine.meters.usage_of((row.job.id, row.job.attempts)))
