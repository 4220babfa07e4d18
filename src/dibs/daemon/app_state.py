"""The parts that the API is built from, and the events that it waits for and counts."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import HTTPConnection

from dibs.daemon.cleaning import Cleaner
from dibs.daemon.container_jobs import ContainerJobs
from dibs.daemon.gpu_history import GpuHistoryBuffer
from dibs.daemon.job_metrics import MetricReaders
from dibs.daemon.job_views import JobViews
from dibs.daemon.list_entry import ListEntry
from dibs.daemon.progress import ProgressBoard
from dibs.daemon.schemas.requests import Check, CheckSweep, NewJob, NewJobs, NewSweepBody
from dibs.daemon.schemas.responses import job_object
from dibs.daemon.web.guard import PERMISSION
from dibs.daemon.web.listener import WebListener
from dibs.daemon.web.tokens import Permission
from dibs.daemon.weekly_report import WeeklyReport
from dibs.dataclass import dataclass
from dibs.engine.driver import Driver
from dibs.engine.engine import Engine
from dibs.engine.launch.browse import BrowsableFolders
from dibs.engine.queue.queue import Queue
from dibs.engine.remote.systems import RemoteSystems
from dibs.engine.sweeps.manager import SweepManager
from dibs.engine.watch.card_history import CardHistory
from dibs.engine.watch.health import Health
from dibs.errors import BadInput
from dibs.leases.leases import Leases
from dibs.model.events import Ended, Event, Moved
from dibs.model.jobs import JobId, Request, State
from dibs.settings import Settings
from dibs.store.codec import JobRow
from dibs.store.store import EventRow, Store

_AT_ONCE = 500  # events read in one go
_MOST_PROJECTS = 1000  # that are counted by name; the rest is counted together
_JOULES_PER_WATT_HOUR = 3600.0


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
    lists: ListEntry
    containers: ContainerJobs
    feed: "EventFeed"
    views: JobViews
    metrics: MetricReaders
    progress: ProgressBoard
    last_hour: GpuHistoryBuffer
    history: CardHistory
    report: WeeklyReport
    counters: "EventCounters"
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

    @staticmethod
    def is_guest(request: HTTPConnection) -> bool:
        """Whether a request came with the read-only token: its response must not contain secrets."""
        return request.scope.get(PERMISSION) is Permission.READ

    @staticmethod
    def is_browser(request: HTTPConnection) -> bool:
        """Whether a request came through the page's listener, with any token."""
        return PERMISSION in request.scope

    async def check_remote(self, requests: Sequence[Request]) -> list[str]:
        """Raise for what another system would never accept; sentences for what it cannot be asked about now."""
        elsewhere = [request for request in requests if request.on]
        self._check_possible(elsewhere)
        return await self.remote.queries.check(elsewhere) if elsewhere else []

    async def admit_containers(
        self, requests: Sequence[Request], environment: Mapping[str, str], key: str = ""
    ) -> tuple[Sequence[Request], list[str]]:
        """The requests with their container engines; sentences about images that are pulled first, with a key."""
        if not any(one.image or one.mounts or one.image_pull for one in requests):
            return requests, []
        self._check_possible(requests)
        return await self.containers.admit(requests, environment, key)

    def _check_possible(self, requests: Sequence[Request]) -> None:
        """Raise BadInput for what can never run: before another system is asked, and before an image is pulled.

        Which jobs they follow is checked when they are added: those may be of the same list.
        """
        self.queue.check_possible(replace(one, after=()) for one in requests)

    def environment_and_defaults(
        self, body: NewJobs | Check | NewSweepBody | CheckSweep
    ) -> tuple[Mapping[str, str], NewJob]:
        """The environment and the defaults of the new jobs in a request.

        A client that has no environment of its own, such as the page, names another job with `like`. The
        environment, the folder and the umask of that job are used: what `dibs add` took from the terminal it was
        called in. Its own variables (`env`) and its other fields are not used.
        """
        environment, defaults = body.get("environment"), body.get("defaults", {})
        like = body.get("like")
        if like is None:
            return environment or {}, defaults
        if environment is not None:
            raise BadInput("the request has both `environment` and `like`", remedy="leave one of them out")
        if like == "daemon":
            return self.environ, defaults
        job = self.store.listing.row(JobId(int(like))).job
        inherited: NewJob = {"workdir": job.request.workdir}
        if job.request.umask is not None:
            inherited["umask"] = job.request.umask
        return self.store.listing.environment(job.environment), {**inherited, **defaults}

    def job(self, row: JobRow, *, hide_secrets: bool) -> dict[str, Any]:
        """A job as the API shows it, with what is known of a running attempt."""
        usage = self.engine.meters.usage_of((row.job.id, row.job.attempts))
        left = self.engine.left_behind(row.job)
        orphans = None if left is None else [one.pid for one in left.processes]
        is_away = row.job.state is State.RUNNING and row.job.request.on
        remark = self.remote.seen_reason(row.job) if is_away else ""
        report = self.progress.of(row) if row.job.state.has_begun else None
        one = self.engine.state.open.get((row.job.id, row.job.attempts))
        now = self.engine.clock()
        still = None if one is None else one.seconds_still(now)
        return job_object(
            row,
            self.user,
            usage,
            orphans,
            remark,
            report,
            None if one is None else one.suspension,
            still,
            None if still is None or row.started_at is None else max(0.0, now - row.started_at - still),
            hide_secrets=hide_secrets,
        )


class EventFeed:
    """Wakes its readers when something was recorded. They read the events from the store, each at its own pace.

    Nothing is read from the store while there are no readers.
    """

    def __init__(self, store: Store) -> None:
        self.is_closed = False
        self._store = store
        self._read_until = 0  # the last event that the waiting requests know of
        self._batches: dict[int, list[EventRow]] = {}  # streams that wait for the same event share one read
        self._sleepers: list[asyncio.Future[None]] = []
        self._waiters: list[_Waiter] = []

    def wake(self) -> None:
        """Wake all readers: something was recorded."""
        self._batches.clear()
        sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            if not sleeper.done():
                sleeper.set_result(None)
        if self._waiters:
            self._check_waiters()

    def since(self, number: int) -> list[EventRow]:
        """The next events after this one."""
        if number not in self._batches:
            self._batches[number] = self._store.events.since(number, _AT_ONCE)
        return self._batches[number]

    async def wait(self, seconds: float) -> None:
        """Wait until there may be new events, or until the time has passed."""
        if self.is_closed:
            return
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers.append(sleeper)
        try:
            await asyncio.wait_for(sleeper, seconds)
        except TimeoutError:
            pass
        finally:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)

    async def wait_for_jobs(self, jobs: Iterable[JobId], seconds: float) -> None:
        """Wait until these jobs are over, or until the time has passed."""
        left = self._not_over(jobs)
        if not left or self.is_closed:
            return
        if not self._waiters:
            self._read_until = self._store.events.last_id
        waiter = _Waiter(left, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            await asyncio.wait_for(waiter.done, seconds)
        except TimeoutError:
            pass
        finally:
            self._waiters.remove(waiter)

    def close(self) -> None:
        """End every wait: the daemon ends."""
        self.is_closed = True
        self.wake()
        for waiter in self._waiters:
            waiter.end()

    def _check_waiters(self) -> None:
        """End the waits whose jobs are over. Only jobs that have new events are looked up."""
        touched: set[JobId] = set()
        while rows := self._store.events.since(self._read_until, _AT_ONCE):
            self._read_until = rows[-1].id
            touched.update(JobId(row.job) for row in rows if row.job is not None)
        for waiter in self._waiters:
            if mine := waiter.left & touched:
                waiter.left -= mine - self._not_over(mine)
                if not waiter.left:
                    waiter.end()

    def _not_over(self, jobs: Iterable[JobId]) -> set[JobId]:
        states: dict[JobId, State] = self._store.listing.states(list(jobs))
        return {job for job, state in states.items() if not state.is_over}


@dataclass(slots=True)
class _Waiter:
    left: set[JobId]
    done: "asyncio.Future[None]"

    def end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class EventCounters:
    """What has happened since the daemon started."""

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()  # ended ones, by cause
        self.seconds: dict[str, float] = {}  # of work, by project
        self.joules: dict[str, float] = {}  # used by GPUs, by project
        self.moves: Counter[tuple[str, str]] = Counter()  # suspensions and resumptions, by result
        self.move_seconds: dict[str, float] = {}  # of those that were done
        self.events = 0

    def count(self, events: Sequence[Event]) -> None:
        self.events += len(events)
        for event in events:
            if isinstance(event, Moved):
                move = "resume" if event.is_resumed else "suspend"
                self.moves[move, "done" if event.is_done else "refused"] += 1
                if event.is_done:
                    self.move_seconds[move] = self.move_seconds.get(move, 0.0) + event.seconds
            elif isinstance(event, Ended):
                project = event.job.request.project
                if project not in self.seconds and len(self.seconds) >= _MOST_PROJECTS:
                    project = "(others)"
                self.attempts[str(event.outcome.cause or "success")] += 1
                self.seconds[project] = self.seconds.get(project, 0.0) + (event.outcome.seconds or 0.0)
                if event.usage is not None and event.usage.energy is not None:
                    joules = event.usage.energy * _JOULES_PER_WATT_HOUR
                    self.joules[project] = self.joules.get(project, 0.0) + joules
