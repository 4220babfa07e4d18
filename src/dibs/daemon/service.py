"""The daemon: the engine's loop, the API, and an end that leaves the jobs alone."""

import asyncio
import gc
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from dibs import __version__, paths
from dibs.build import BuiltQueue, build_queue
from dibs.daemon.app import guarded, make_app
from dibs.daemon.app_state import Desk
from dibs.daemon.canary import Canaries
from dibs.daemon.cleaning import clean_up, empty_trash
from dibs.daemon.daemon_log import log, open_log
from dibs.daemon.event_feed import News
from dibs.daemon.gpu_history import History
from dibs.daemon.http.server import SHORT_OF, Address, Server, most_connections
from dibs.daemon.job_views import Views
from dibs.daemon.lock import take_lock
from dibs.daemon.logs.pruning import prune
from dibs.daemon.memory import give_back_when_quiet, trim
from dibs.daemon.reserve import reserve
from dibs.daemon.routes.metrics import Tally
from dibs.daemon.web.listener import Door
from dibs.engine.driver import Driver
from dibs.errors import DibsError
from dibs.leases.who import user_name
from dibs.model.events import Ended, Event, Refused, Trouble
from dibs.model.jobs import OVER
from dibs.settings import Settings, load_settings

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_MOST_BUGS = 3  # within the time below; after that we end rather than spin
_BUGS_WITHIN = 10.0  # seconds
_AFTER_BUG = 1.0  # seconds until the next turn
_CLEAN_EVERY = 3600.0  # seconds
_MOST_STREAMS = 64


def serve(environ: Mapping[str, str], *, detached: bool) -> int:
    """Be the daemon until somebody ends it. What keeps it from beginning is raised as DibsError.

    Whoever started us reads a newline from DIBS_READY_FD once we listen. `detached`: nobody reads our stderr.
    """
    paths.make_private(paths.state_folder(environ))
    queue = paths.make_private(paths.queue_folder(environ))
    lock = take_lock(queue)
    try:
        settings = load_settings(environ)
        open_log(f"{queue}/daemon.log", also_on_stderr=not detached)
        address = Address(paths.socket_path(environ))
        try:
            # The watcher's threads must not make the loop wait five milliseconds for its turn.
            sys.setswitchinterval(0.0005)
            return asyncio.run(Service(environ, settings, queue, address).run())
        finally:
            address.remove()
    except DibsError as error:
        log.info("cannot begin: %s", error.message)
        raise
    finally:
        os.close(lock)


class Service:
    """One life of the daemon."""

    def __init__(self, environ: Mapping[str, str], settings: Settings, queue: str, address: Address) -> None:
        self._environ = environ
        self._settings = settings
        self._queue = queue
        self._address = address
        self._tally = Tally()
        self._bugs: deque[float] = deque(maxlen=_MOST_BUGS)
        self._status = 0
        self._ends_jobs = False
        self._has_work = False
        self._turns = 0
        self._loop: asyncio.AbstractEventLoop
        self._driver: Driver
        self._parts: BuiltQueue
        self._news: News
        self._door: Door
        self._server: Server

    async def run(self) -> int:
        """Listen, work, end."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._fell_in_loop)
        self._driver = Driver(self._loop, after_turn=self._after_turn, fell=self._fell)
        self._parts = build_queue(
            self._environ,
            root=self._queue,
            hooks=self._driver.hooks(self._heard),
            settings=self._settings,
            log=log.info,
        )
        self._driver.drive(self._parts.engine)
        self._news = News(self._parts.engine.store)
        user = user_name(os.geteuid()) or f"uid {os.geteuid()}"
        self._door = Door(self._queue, user, self._settings.web)
        desk = self._desk(user)
        app = make_app(desk, self._tally)
        self._door.lead_to(app)
        self._server = Server(guarded(app))
        for number in _ENDING:
            self._loop.add_signal_handler(number, self._signalled, number)
        try:
            self._begin()
            serving = asyncio.ensure_future(self._server.serve(sockets=[self._address.bind()]))
            cleaning = asyncio.ensure_future(self._clean_now_and_then(desk))
            quiet = asyncio.ensure_future(give_back_when_quiet(desk.store, self._happened))
            testing = asyncio.ensure_future(self._test_cards())
            self._say_ready()
            log.info("dibs %s listens at %s (pid %d)", __version__, self._address.path, os.getpid())
            await self._open_door()
            await serving
            await self._door.ended()
            cleaning.cancel()
            quiet.cancel()
            testing.cancel()
            await self._parts.sweeping.close()
        finally:
            self._leave()
        return self._status

    def _begin(self) -> None:
        engine = self._parts.engine
        engine.come_back()
        self._parts.sweeping.come_back()
        engine.warm_up()
        if self._parts.probe is not None:
            self._driver.watch(self._parts.probe)
        # What was loaded until here stays: the collector need not walk over it again and again.
        gc.collect()
        gc.freeze()
        trim(0)  # what the imports needed and let go
        gc.set_threshold(50_000)
        reserve.take()

    def _desk(self, user: str) -> Desk:
        parts = self._parts
        history = History()
        parts.engine.tell_reading.append(history.heard)
        return Desk(
            engine=parts.engine,
            queue=parts.queue,
            sweeping=parts.sweeping,
            health=parts.health,
            store=parts.engine.store,
            driver=self._driver,
            leases=parts.leases,
            results=parts.results,
            news=self._news,
            views=Views(parts.engine.store),
            history=history,
            door=self._door,
            user=user,
            state_folder=paths.state_folder(self._environ),
            environ=self._environ,
            gpus=self._settings.gpus,
            started_at=time.time(),
            stop=self._stop,
            most_streams=min(_MOST_STREAMS, most_connections() // 2),
            keep_logs=self._settings.keep_logs,
            default_backend=self._settings.default_backend,
        )

    def _say_ready(self) -> None:
        text = self._environ.get("DIBS_READY_FD", "")
        if text.isdigit():
            try:
                os.write(int(text), b"\n")
                os.close(int(text))
            except OSError as error:
                log.info("nobody waits for us any more: %s", error.strerror)

    # -- what happens ----------------------------------------------------------------------------------

    def _heard(self, events: Sequence[Event]) -> None:
        self._tally.heard(events)
        for event in events:
            if isinstance(event, Trouble):
                log.info("%s", event.sentence)
            elif isinstance(event, Refused):
                self._parts.notifier.job_ended(event.job, event.outcome, False)
            elif isinstance(event, Ended):
                self._parts.notifier.job_ended(event.job, event.outcome, event.retry_at is not None)

    def _happened(self) -> int:
        """How many turns and requests there were."""
        return self._turns + self._server.server_state.total_requests + self._door.requests

    def _after_turn(self) -> None:
        self._turns += 1
        self._news.came()
        had_work, self._has_work = self._has_work, not self._parts.engine.is_idle
        if had_work and not self._has_work:
            self._parts.notifier.queue_is_empty()
        if self._ends_jobs and (self._parts.engine.is_idle or self._parts.engine.is_stuck):
            self._end("the jobs have ended")

    async def _clean_now_and_then(self, desk: Desk) -> None:
        await asyncio.to_thread(empty_trash, desk.engine.place)  # of a daemon that was killed over it
        age = self._settings.retention
        while age is not None or desk.keep_logs is not None:
            try:
                if age is not None and (removed := await clean_up(desk, time.time() - age, OVER, None)):
                    log.info("removed %d jobs that were over for long enough", removed)
                if pruned := await prune(desk):
                    log.info("removed the output of %d old attempt%s", pruned, "" if pruned == 1 else "s")
            except DibsError as error:
                log.info("cannot clean: %s", error.message)
            await asyncio.sleep(_CLEAN_EVERY)

    async def _open_door(self) -> None:
        try:
            await self._door.reopen()
        except Exception as error:
            self._fell(error)  # the queue is worth more than its page

    async def _test_cards(self) -> None:
        """Bring quarantined cards back that have become well."""
        settings, parts = self._settings, self._parts
        if settings.canary != "never":
            canaries = Canaries(
                parts.engine, parts.health, parts.leases, self._environ, settings.canary, settings.canary_after
            )
            parts.consequences.when_marked = canaries.look
            try:
                await canaries.run()
            except Exception as error:
                self._fell(error)

    # -- bugs ------------------------------------------------------------------------------------------

    def _fell(self, error: Exception) -> None:
        """A bug is written down, and the next turn may go well. Again and again, it is better to begin anew."""
        if isinstance(error, MemoryError):
            # No bug, and to begin anew would take more of it. Nothing is started for a moment.
            reserve.give_up()
            self._loop.call_later(_AFTER_BUG, self._driver.ask_for_turn)
            return
        log.error("a bug fell out of the engine", exc_info=error)
        now = time.monotonic()
        self._bugs.append(now)
        if len(self._bugs) == _MOST_BUGS and now - self._bugs[0] < _BUGS_WITHIN:
            self._status = 1
            self._end("it happened again and again")
        else:
            self._loop.call_later(_AFTER_BUG, self._driver.ask_for_turn)

    def _fell_in_loop(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in SHORT_OF:
            log.error("%s: %s", context.get("message"), error.strerror)  # asyncio tries again a second later
        elif isinstance(error, Exception):
            self._fell(error)
        else:
            log.error("%s", context.get("message"))

    # -- the end ---------------------------------------------------------------------------------------

    def _signalled(self, number: signal.Signals) -> None:
        self._end(f"got {signal.Signals(number).name}")

    def _stop(self, ends_jobs: bool) -> None:
        if not ends_jobs:
            self._end("was asked to")
            return
        log.info("ends the jobs, then itself")
        self._ends_jobs = True
        self._parts.engine.drain()
        self._parts.engine.tell_all("stop")
        self._driver.ask_for_turn()

    def _end(self, why: str) -> None:
        """Answer what is being asked, and leave."""
        if self._news.is_closed:
            return  # it does already
        left = self._parts.engine.running
        jobs = f"; {left} running job{' goes' if left == 1 else 's go'} on without it" if left else ""
        log.info("the daemon ends: %s%s", why, jobs)
        self._news.close()
        self._door.end()
        self._server.end()

    def _leave(self) -> None:
        self._driver.stop()
        self._parts.notifier.close()
        self._parts.engine.close()
        self._parts.journal.close()
        self._parts.engine.store.close()
