"""The daemon: the engine's loop, the API, and an end that leaves running jobs alone."""

import asyncio
import fcntl
import gc
import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from logging.handlers import RotatingFileHandler
from typing import Any

from fastapi import FastAPI

from dibs import paths
from dibs.build.queue import build_queue
from dibs.daemon.app import make_app, with_limits
from dibs.daemon.app_state import AppState, EventCounters, EventFeed
from dibs.daemon.canary import CanaryTests
from dibs.daemon.cleaning import Cleaner
from dibs.daemon.container_jobs import ContainerJobs
from dibs.daemon.gpu_history import GpuHistoryBuffer
from dibs.daemon.http.server import SHORTAGES, Server, UnixSocket
from dibs.daemon.job_metrics import MetricReaders
from dibs.daemon.job_views import JobViews
from dibs.daemon.list_entry import ListEntry
from dibs.daemon.memory import reserve, return_memory_when_quiet, trim
from dibs.daemon.progress import ProgressBoard
from dibs.daemon.web.listener import WebListener
from dibs.daemon.weekly_report import WeeklyReport
from dibs.engine.driver import Driver
from dibs.engine.watch.card_history import CardHistory
from dibs.engine.watch.last_metrics import LastMetrics
from dibs.engine.watch.survey import GpuUse, survey, unseen
from dibs.errors import DibsError
from dibs.leases.lockers import user_name
from dibs.model.events import Ended, Event, Trouble
from dibs.model.gpus import Reading
from dibs.model.jobs import OVER, JobId
from dibs.settings import Settings, load_settings
from dibs.version import __version__

log = logging.getLogger(__name__)

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_MOST_BUGS = 3  # within the time below; after that the daemon ends
_BUGS_WITHIN = 10.0  # seconds
_AFTER_BUG = 1.0  # seconds until the next turn
_CLEAN_EVERY = 3600.0  # seconds
_LOOK_AT_SOCKET_EVERY = 2.0  # seconds
_LOOK_AT_UNREAD_EVERY = 30.0  # seconds
_LARGEST_LOG = 1024**2  # bytes of daemon.log; one older file is kept
_READ_TOGETHER = 0.2  # seconds: the last numbers of attempts that end within them are read together
_LOCK_WAIT = 0.5  # seconds; a client that checks for a daemon holds the lock for a moment


class DaemonRuns(DibsError):
    """Another daemon has this queue."""

    code = "daemon-runs"


def serve(environ: Mapping[str, str], *, detached: bool) -> int:
    """Run the daemon until it is stopped; return the exit status. Raises DibsError if it cannot start.

    The process that started the daemon reads a newline from DIBS_READY_FD once the socket listens. `detached`:
    nothing is written to stderr.
    """
    paths.make_private(paths.state_folder(environ))
    queue = paths.make_private(paths.queue_folder(environ))
    lock = _take_lock(queue)
    try:
        settings = load_settings(environ)
        open_log(f"{queue}/daemon.log", also_on_stderr=not detached)
        address = UnixSocket(paths.socket_path(environ))
        try:
            # The threads that read the GPUs must not make the loop wait five milliseconds for its turn.
            sys.setswitchinterval(0.0005)
            return asyncio.run(_run(environ, settings, queue, address))
        finally:
            address.remove()
    except DibsError as error:
        log.info("cannot begin: %s", error.message)
        raise
    finally:
        os.close(lock)


async def _run(environ: Mapping[str, str], settings: Settings, queue: str, address: UnixSocket) -> int:
    return await Service(environ, settings, queue, address).run()


class Service:
    """One run of the daemon. It is made on the event loop that it runs on."""

    def __init__(self, environ: Mapping[str, str], settings: Settings, queue: str, address: UnixSocket) -> None:
        self._environ = environ
        self._settings = settings
        self._address = address
        self._counters = EventCounters()
        self._bugs: deque[float] = deque(maxlen=_MOST_BUGS)
        self._status = 0
        self._ends_jobs = False
        self._has_work = False
        self._turns = 0
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_loop_error)
        self._driver = Driver(self._loop, after_turn=self._after_turn, fell=self._on_bug)
        self._parts = build_queue(
            environ, root=queue, hooks=self._driver.hooks(self._on_events), settings=settings, log=log.info
        )
        self._driver.drive(self._parts.engine)
        self._feed = EventFeed(self._parts.engine.store)
        user = user_name(os.geteuid()) or f"uid {os.geteuid()}"
        self._history = CardHistory(
            self._parts.engine.store,
            lambda reading: self._look_at_pool(reading, user),
            lambda: {one.attempt.folder for one in self._parts.engine.state.open.values()},
            time.time(),
        )
        self._listener = WebListener(queue, user, settings.web)
        self._cleaner = Cleaner(
            engine=self._parts.engine,
            queue=self._parts.queue,
            results=self._parts.results,
            wake=self._feed.wake,
            keep_logs=settings.keep_logs,
        )
        self._just_ended: list[tuple[Ended, float]] = []  # attempts, and when
        self._last_metrics = LastMetrics(self._parts.engine.store, self._parts.results, self._feed.wake)
        self._lists = ListEntry(queue=self._parts.queue, wake=self._feed.wake)
        self._app = self._make_app(user)
        self._server = Server(with_limits(self._app))

    async def run(self) -> int:
        """Listen, work, end."""
        for number in _ENDING:
            self._loop.add_signal_handler(number, self._on_signal, number)
        try:
            self._begin()
            serving = asyncio.ensure_future(self._server.serve(sockets=[self._address.bind()]))
            background = [
                asyncio.ensure_future(task)
                for task in (
                    self._clean_regularly(),
                    self._lists.drop_regularly(),
                    self._last_metrics.run(),
                    self._keep_socket(),
                    return_memory_when_quiet(self._parts.engine.store, self._activity),
                    self._test_quarantined_gpus(),
                    self._watch_unread_cards(),
                )
            ]
            self._say_ready()
            log.info("dibs %s listens at %s (pid %d)", __version__, self._address.path, os.getpid())
            await self._reopen_page()
            await serving
            await self._listener.wait_closed()
            for task in background:
                task.cancel()
            await self._parts.sweeping.close()
        finally:
            self._close()
        return self._status

    def _make_app(self, user: str) -> FastAPI:
        parts = self._parts
        last_hour = GpuHistoryBuffer()
        parts.engine.readings.subscribe(last_hour.add)
        parts.engine.readings.subscribe(self._history.add)
        meters = parts.engine.meters
        return make_app(
            AppState(
                engine=parts.engine,
                queue=parts.queue,
                sweeping=parts.sweeping,
                health=parts.health,
                driver=self._driver,
                leases=parts.leases,
                results=parts.results,
                cleaner=self._cleaner,
                lists=self._lists,
                containers=ContainerJobs(
                    engine=parts.engine,
                    queue=parts.queue,
                    default_engine=self._settings.container_engine.removeprefix("auto"),
                ),
                feed=self._feed,
                views=JobViews(parts.engine.store),
                metrics=MetricReaders(parts.results),
                progress=ProgressBoard(parts.results),
                last_hour=last_hour,
                history=self._history,
                report=WeeklyReport(
                    parts.engine.store,
                    self._history,
                    user,
                    lambda span: meters.usage_of((JobId(span.job), span.attempt)),
                ),
                counters=self._counters,
                listener=self._listener,
                settings=self._settings,
                environ=self._environ,
                user=user,
                started_at=time.time(),
                stop=self._stop,
            )
        )

    def _begin(self) -> None:
        engine = self._parts.engine
        engine.resume()
        self._parts.sweeping.resume()
        engine.warm_up()
        if self._parts.probe is not None:
            self._driver.watch(self._parts.probe)
        # What was loaded so far stays: the collector need not visit it again and again.
        gc.collect()
        gc.freeze()
        trim(0)  # memory that the imports needed and freed
        gc.set_threshold(50_000)
        reserve.take()

    def _say_ready(self) -> None:
        text = self._environ.get("DIBS_READY_FD", "")
        if text.isdigit():
            try:
                os.write(int(text), b"\n")
                os.close(int(text))
            except OSError as error:
                log.info("cannot report that the daemon is ready: %s", error.strerror)

    # -- callbacks of the engine -----------------------------------------------------------------------

    def _on_events(self, events: Sequence[Event]) -> None:
        self._counters.count(events)
        for event in events:
            if isinstance(event, Trouble):
                log.info("%s", event.sentence)
            elif isinstance(event, Ended):
                if not self._just_ended:
                    self._loop.call_later(_READ_TOGETHER, self._read_last_metrics)
                self._just_ended.append((event, time.time()))
        if self._parts.notifier is not None:
            self._parts.notifier.on_events(events)

    def _read_last_metrics(self) -> None:
        ended, self._just_ended = self._just_ended, []
        self._last_metrics.add(ended)

    def _after_turn(self) -> None:
        self._turns += 1
        self._feed.wake()
        had_work, self._has_work = self._has_work, not self._parts.engine.is_idle
        if had_work and not self._has_work and self._parts.notifier is not None:
            self._parts.notifier.queue_is_empty()
        if self._ends_jobs and (self._parts.engine.is_idle or self._parts.engine.is_stuck):
            self._end("the jobs have ended")

    # -- background tasks ------------------------------------------------------------------------------

    def _activity(self) -> int:
        """How many turns and requests there were."""
        return self._turns + self._server.server_state.total_requests + self._listener.requests

    async def _clean_regularly(self) -> None:
        await asyncio.to_thread(self._cleaner.empty_trash)  # an earlier daemon may have been killed before it did
        age = self._settings.retention
        while age is not None or self._settings.keep_logs is not None:
            try:
                if (
                    age is not None
                    and (forgotten := await self._cleaner.forget_jobs(time.time() - age, OVER, None)).jobs
                ):
                    log.info(
                        "removed %d job%s that ended long enough ago",
                        forgotten.jobs,
                        "" if forgotten.jobs == 1 else "s",
                    )
                if pruned := await self._cleaner.remove_old_output():
                    log.info("removed the output of %d old attempt%s", pruned, "" if pruned == 1 else "s")
            except DibsError as error:
                log.info("cannot clean: %s", error.message)
            await asyncio.sleep(_CLEAN_EVERY)

    async def _keep_socket(self) -> None:
        """Make the socket again if its file was deleted: clients would find no daemon, and could start none."""
        is_told = False
        while True:
            await asyncio.sleep(_LOOK_AT_SOCKET_EVERY)
            if self._address.is_there or self._feed.is_closed:
                continue
            try:
                await self._server.move_to(self._address.bind_again())
                log.info("the socket %s was gone, and is there again", self._address.path)
                is_told = False
            except (DibsError, OSError) as error:
                if not is_told:
                    is_told = True
                    log.info("the socket is gone: %s", error)

    async def _watch_unread_cards(self) -> None:
        """Cards that cannot be read have a history, too: of their holders."""
        while self._driver.watcher is None:
            self._history.watch_unread(time.time())
            await asyncio.sleep(_LOOK_AT_UNREAD_EVERY)

    def _look_at_pool(self, reading: Reading | None, user: str) -> list[GpuUse]:
        """The cards of the pool with their holders; one that the driver does not show any more is missing."""
        cards = self._parts.engine.cards
        found = {
            one.key: one for one in survey(reading, self._parts.leases.look(), user=user, rules=cards.rules.busy)
        }
        return [
            found.get(card.gpu.key) or unseen(card.gpu.key, card.gpu.number, is_asked=reading is not None)
            for card in cards.pool.cards
        ]

    async def _reopen_page(self) -> None:
        try:
            await self._listener.reopen(self._app)
        except Exception as error:
            self._on_bug(error)  # the queue works without its page

    async def _test_quarantined_gpus(self) -> None:
        """Return quarantined GPUs to the pool when they pass their test."""
        settings, parts = self._settings, self._parts
        if settings.canary != "never":
            tests = CanaryTests(
                parts.engine, parts.health, parts.leases, self._environ, settings.canary, settings.canary_after
            )
            parts.engine.marked.subscribe(tests.wake)
            try:
                await tests.run()
            except Exception as error:
                self._on_bug(error)

    # -- bugs ------------------------------------------------------------------------------------------

    def _on_bug(self, error: Exception) -> None:
        """Log the error and go on with the next turn. After several in a short time, end with status 1."""
        if isinstance(error, MemoryError):
            # Not a bug, and a new process would need more memory. Nothing is started for a moment.
            reserve.release()
            self._loop.call_later(_AFTER_BUG, self._driver.ask_for_turn)
            return
        log.error("the engine raised an unexpected error (this is a bug)", exc_info=error)
        now = time.monotonic()
        self._bugs.append(now)
        if len(self._bugs) == _MOST_BUGS and now - self._bugs[0] < _BUGS_WITHIN:
            self._status = 1
            self._end(f"{_MOST_BUGS} unexpected errors within {_BUGS_WITHIN:g} seconds")
        else:
            self._loop.call_later(_AFTER_BUG, self._driver.ask_for_turn)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in SHORTAGES:
            log.error("%s: %s", context.get("message"), error.strerror)  # asyncio tries again a second later
        elif isinstance(error, Exception):
            self._on_bug(error)
        else:
            log.error("%s", context.get("message"))

    # -- the end ---------------------------------------------------------------------------------------

    def _on_signal(self, number: signal.Signals) -> None:
        self._end(f"got {signal.Signals(number).name}")

    def _stop(self, ends_jobs: bool) -> None:
        if not ends_jobs:
            self._end("a client asked for it")
            return
        log.info("stops the jobs, then the daemon")
        self._ends_jobs = True
        self._parts.engine.drain()
        self._parts.engine.send_to_all("stop")
        self._driver.ask_for_turn()

    def _end(self, why: str) -> None:
        """Finish the current requests, then end."""
        if self._feed.is_closed:
            return  # it is ending already
        left = self._parts.engine.running
        jobs = f"; {left} running job{' goes' if left == 1 else 's go'} on without it" if left else ""
        log.info("the daemon ends: %s%s", why, jobs)
        self._feed.close()
        self._listener.end()
        self._server.end()

    def _close(self) -> None:
        self._driver.stop()
        self._history.write()
        if self._parts.notifier is not None:
            self._parts.notifier.close()
        self._parts.engine.close()
        self._parts.journal.close()
        self._parts.engine.store.close()


def _take_lock(queue: str) -> int:
    """Take the queue's lock, so that there is one daemon for each queue. No child process inherits it."""
    lock = os.open(f"{queue}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    until = time.monotonic() + _LOCK_WAIT
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                pid = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
                os.close(lock)
                raise DaemonRuns(
                    f"a daemon for this queue runs already (pid {pid or '?'})",
                    remedy="`dibs daemon restart` ends it first",
                ) from None
            time.sleep(0.02)
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return lock


def open_log(path: str, *, also_on_stderr: bool) -> None:
    """Write log messages to this file from now on: a line for each notable event, and the tracebacks of bugs."""
    handlers: list[logging.Handler] = [
        _PrivateFile(path, maxBytes=_LARGEST_LOG, backupCount=1, encoding="utf-8", delay=True)
    ]
    if also_on_stderr:
        handlers.append(logging.StreamHandler(sys.stderr))
    form = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    form.converter = time.gmtime
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    for handler in handlers:
        handler.setFormatter(form)
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("dibs").setLevel(logging.INFO)
    # A bad request has been answered; it does not belong in this log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    logging.raiseExceptions = False  # a full disk must not fill stderr with complaints about it


class _PrivateFile(RotatingFileHandler):
    """Escapes text that is not UTF-8, and makes the file unreadable for other users."""

    def _open(self):  # type: ignore[no-untyped-def]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self.baseFilename, flags, 0o600)
        return open(fd, "a", encoding="utf-8", errors="backslashreplace")
