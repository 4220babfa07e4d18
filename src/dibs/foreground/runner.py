"""The loop around the engine for `dibs run` and the seed tools: feeds it, wakes it, stops it."""

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from dibs.backends.protocol import AttachedStreams
from dibs.build.run import build_cards, build_list_engine, build_place
from dibs.engine.driver import Driver, PendingCall
from dibs.engine.engine import Engine, EngineLimits
from dibs.engine.launch.results import Results
from dibs.engine.machine import this_machine
from dibs.engine.queue.run_list import RunList
from dibs.engine.watch.sharing_rules import sharing_rules
from dibs.errors import DibsError, NoGpuNow, StoreUnusable
from dibs.foreground.feed import Feed, refusal
from dibs.foreground.follow import Follower
from dibs.foreground.loop import ForegroundLoop
from dibs.foreground.run_types import FAILED, EndedJob, Progress, RunDisplay, RunOptions, RunSummary, Stop
from dibs.foreground.runs import Run
from dibs.foreground.terminal import Terminal, is_in_background, is_terminal
from dibs.gpus.pool import read_pool_file, resolve_pool
from dibs.inputs.entries import BadEntry, Entry
from dibs.model.events import Ended, Event, Refused, Skipped, Started, Waits
from dibs.model.jobs import Cause, Command, Job, JobId, Outcome, Request, State
from dibs.paths import FolderRefused
from dibs.supervise.launcher import Zygote

_LOOK = 0.05  # seconds between two looks at the jobs' output
_LOOK_AT_GPU_FILE = 0.5
_AFTER_TROUBLE = 2.0
_MOST_FAILURES = 20  # ended jobs that are shown at the end
_MOST_SUCCESSES = 30


class Runner:
    """Runs the jobs of a list to their end."""

    def __init__(
        self,
        run: Run,
        options: RunOptions,
        display: RunDisplay,
        environ: Mapping[str, str],
        zygote: Zygote | None = None,
    ) -> None:
        self.summary = RunSummary()
        self.stop_level = Stop.NO
        self.engine: Engine
        self._run = run
        self._options = options
        self._display = display
        self._environ = environ
        self._zygote = zygote
        self._began = time.monotonic()
        self._loop: ForegroundLoop
        self._is_over = False
        self._driver: Driver
        self._follower = Follower(display.lines, whole_lines=options.single is None)
        self._terminal: Terminal | None = None
        self._feed: Feed
        self._list: RunList
        self._gpus_text = ""
        self._has_list = options.single is not None
        self._refused_batch: list[Entry] = []  # entries that the store could not take yet
        self._retry: PendingCall | None = None  # when it is asked to take them again
        self._single: JobId | None = None

    def execute(self) -> RunSummary:
        """Come back when everything has ended."""
        # The feed's threads must not make the loop wait five milliseconds for its turn.
        sys.setswitchinterval(0.0005)
        # What was loaded until here stays: the collector need not walk over it again and again.
        gc.freeze()
        gc.set_threshold(50_000)
        with contextlib.closing(ForegroundLoop()) as self._loop:
            return self._execute()

    def _execute(self) -> RunSummary:
        self._driver = Driver(self._loop, after_turn=self._after_turn)
        try:
            if self._options.lists or self._options.single:
                self._run.remember_workdir()
            run, options = self._run, self._options
            self.engine = build_list_engine(
                self._environ,
                place=build_place(self._environ, root=run.root, run=run.name, workdir=run.workdir),
                cards=build_cards(
                    run.root,
                    options.pool,
                    respect_processes=options.respect_processes,
                    rules=sharing_rules(options.settings),
                ),
                results=options.results,
                hooks=self._driver.hooks(self._heard),
                limits=EngineLimits(
                    most_failures=1 if options.fail_fast else options.max_failures,
                    machine=this_machine(),
                ),
                zygote=self._zygote,
            )
        except (OSError, StoreUnusable) as error:
            raise _cannot_begin(self._run, error) from error
        self._driver.drive(self.engine)
        self.engine.cards.may_grow = self._options.gpus_file is not None
        self._feed = Feed(self._options.lists, self._wake)
        try:
            try:
                self._prepare()
            except (OSError, StoreUnusable) as error:
                raise _cannot_begin(self._run, error) from error
            self._loop.run_forever()
        finally:
            self._finish()
        self.summary.seconds = time.monotonic() - self._began
        self._read_ended_jobs()
        self.engine.store.close()
        return self.summary

    def _read_ended_jobs(self) -> None:
        store, results = self.engine.store, self._options.results

        def ended(states: Sequence[State], most: int) -> list[EndedJob]:
            found = []
            for row in store.rows(states, most):
                streams = results.streams(row.job, row.folder)
                metrics = _metrics(row.job, row.folder, row.started_at, row.ended_at, row.outcome, results)
                found.append(EndedJob(row.job, row.outcome, row.gpus, streams, metrics))
            return found

        self.summary.recorded = sum(store.counts().values())
        self.summary.failures = ended(FAILED, _MOST_FAILURES)
        self.summary.stops = ended((State.CANCELLED,), _MOST_FAILURES)
        self.summary.successes = ended((State.SUCCEEDED,), _MOST_SUCCESSES)

    def _prepare(self) -> None:
        self._handle_signals()
        self.engine.warm_up()
        self._list = RunList(self.engine)
        self._key = self._list.capture(dict(self._options.environment))
        if self._options.probe is not None and self._options.respect_processes:
            self._driver.watch(self._options.probe)
        if self._run.is_old:
            self._list.resume()
        if self._options.single is not None:
            self._submit_single(self._options.single)
        self._feed.start()
        self._resume_without_list()
        self._look()
        if self._options.gpus_file:
            self._look_at_gpu_file()
        self._driver.ask_for_turn()

    def _submit_single(self, request: Request) -> None:
        (job,) = self._list.submit([request], self._key)
        self._single = job.id
        if is_terminal():
            self._terminal = Terminal(self._loop.add_reader, self._loop.remove_reader)
        self._attach(job.id)

    def _attach(self, job: JobId) -> None:
        if self._terminal:
            self.engine.launcher.attach(job, self._terminal.attached)
        elif not is_in_background():
            self.engine.launcher.attach(job, AttachedStreams(stdin=0))

    # -- the loop --------------------------------------------------------------------------------------

    def _after_turn(self) -> None:
        self._feed.tell_waiting(self.engine.waiting)
        self._check_over()

    def _check_over(self) -> None:
        no_more_input = (self._feed.is_over and not self._refused_batch) or self.stop_level > Stop.NO
        is_quiet = self.engine.is_idle and self._follower.is_idle and not self._driver.is_turn_due
        if self._is_over:
            return
        if no_more_input and is_quiet:
            self._end()
        elif self.stop_level > Stop.NO and self.engine.is_stuck:
            self.summary.errors.append(_cannot_record(self._run, self.engine.running))
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self._loop.stop()

    def _wake(self) -> None:
        """Called by the feed's threads, which may outlive the loop."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take_from_feed)

    def _take_from_feed(self) -> None:
        if self.stop_level > Stop.NO:
            self._check_over()
            return
        if self._retry is not None:
            return  # the store could not take the last ones; more of them change nothing
        while batch := self._refused_batch or self._feed.take():
            self._refused_batch = batch
            try:
                self._list.submit([_request(entry) for entry in batch], self._key)
            except StoreUnusable as error:
                self._display.trouble(error)
                self._retry = self._loop.call_later(_AFTER_TROUBLE, self._try_again)
                return
            self._refused_batch = []
            self._has_list = True
        self._resume_without_list()
        self._check_over()

    def _try_again(self) -> None:
        self._retry = None
        self._take_from_feed()

    def _resume_without_list(self) -> None:
        """An old run that is given no list goes on with what its store knows."""
        if self._run.is_old and not self._has_list and self._feed.is_over and not self._feed.errors:
            self._has_list = True
            self.summary.skipped = self.engine.store.counts().get(State.SUCCEEDED, 0)
            self._list.queue_leftovers()

    def _heard(self, events: Sequence[Event]) -> None:
        """First the jobs' last lines, then what happened, then what follows from it."""
        for event in events:
            if isinstance(event, Started):
                if event.job.id == self._single and self._terminal and not event.adopted:
                    self._terminal.begin(event.stdout)
                elif self._display.follows_output:
                    self._follower.begin(event.job, event.stdout, event.stderr)
            elif isinstance(event, Ended):
                self._follower.end(event.job)
                if event.job.id == self._single and self._terminal:
                    self._terminal.pause()
                if event.retry_at is not None and event.job.id == self._single:
                    self._attach(event.job.id)
        self._display.show_events(events)
        for event in events:
            if isinstance(event, Refused) or (isinstance(event, Ended) and event.retry_at is None):
                self._count(event)
            elif isinstance(event, Skipped):
                self.summary.skipped += 1
            elif isinstance(event, Waits) and self._must_give_up():
                self._give_up(
                    NoGpuNow(f"no GPU now: the job {event.reason.sentence}", remedy="leave out --no-wait")
                )

    def _must_give_up(self) -> bool:
        """Whether --no-wait ends the run now: nothing runs, and no reading of the GPUs is under way."""
        return not self._options.wait and not self.engine.running and not self._driver.is_looking

    def _count(self, event: Ended | Refused) -> None:
        self.summary.last = event
        if event.outcome.cause is None:
            self.summary.succeeded += 1
            return
        if event.outcome.cause is Cause.STOPPED:
            self.summary.stopped += 1
        else:
            self.summary.failed += 1
        # The engine starts nothing more after so many, and to it a stopped job is one that did not succeed.
        failures = self.summary.failed + self.summary.stopped
        if self._options.fail_fast:
            self._stop(Stop.ASK, None, "after a failure (--fail-fast)")
        elif failures >= self._options.max_failures:
            self._stop(Stop.DRAIN, None, f"after {failures} failure{'s' * (failures > 1)} (--max-failures)")

    def _look(self) -> None:
        """Show new output and progress, many times a second."""
        was_idle = self._follower.is_idle
        self._follower.look()
        if not was_idle:
            self._check_over()
        self._display.tick(self._progress())
        self._loop.call_later(_LOOK, self._look)

    def _progress(self) -> Progress:
        return Progress(
            done=self.summary.succeeded + self.summary.skipped,
            failed=self.summary.failed,
            running=self.engine.running,
            waiting=self.engine.waiting,
            input_is_over=self._feed.is_over,
            seconds=time.monotonic() - self._began,
        )

    # -- GPUs ------------------------------------------------------------------------------------------

    def _look_at_gpu_file(self) -> None:
        """Take in what changed in the GPU file. Running jobs are left alone; a bad file changes nothing."""
        assert self._options.gpus_file is not None
        self._loop.call_later(_LOOK_AT_GPU_FILE, self._look_at_gpu_file)
        try:
            text = read_pool_file(self._options.gpus_file)
            if text == self._gpus_text:
                return
            self._gpus_text = text
            # Through the watcher, where there is one: a fault is told once.
            looks = self._driver.watcher or self._options.probe
            self.engine.cards.pool = resolve_pool(text, looks, self._environ)
        except DibsError as error:
            self._display.trouble(error)
        else:
            self._driver.ask_for_turn()

    # -- stopping --------------------------------------------------------------------------------------

    def _handle_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._interrupted, number)
        self._loop.add_signal_handler(signal.SIGUSR1, self._stop, Stop.DRAIN, None)
        # The person may go home: a closed terminal ends neither the jobs nor the list.
        self._loop.add_signal_handler(signal.SIGHUP, lambda: None)
        self._loop.add_signal_handler(signal.SIGWINCH, self._resized)

    def _resized(self) -> None:
        if self._terminal:
            self._terminal.follow_size()

    def _interrupted(self, number: signal.Signals) -> None:
        self.summary.stopped_by = signal.Signals(number)
        if self._single is not None and self.engine.running and self.stop_level is Stop.NO:
            # One command: it gets the signal itself, as it would without us.
            self._stop(Stop.DRAIN, self.summary.stopped_by)
            self.engine.send_to_all(f"signal {int(number)}")
            return
        if self.stop_level is Stop.KILL:
            self._end()  # what cannot be killed is left, as a kill -9 of ours would leave it
        self._stop(Stop(min(Stop.KILL, self.stop_level + 1)), self.summary.stopped_by)

    def _stop(self, level: Stop, by: signal.Signals | None, why: str = "") -> None:
        if level <= self.stop_level:
            return
        self.stop_level = level
        self._feed.stop()
        self.engine.drain()
        if level is Stop.ASK:
            self.engine.send_to_all("stop")
        elif level is Stop.KILL:
            self.engine.send_to_all("kill")
        self._display.stopping(level, self.engine.running, by, why)

    def _give_up(self, error: DibsError) -> None:
        self.summary.errors.append(error)
        self._stop(Stop.DRAIN, None)

    def _finish(self) -> None:
        self._feed.stop()
        self._driver.stop()
        if self._terminal:
            self._terminal.end()
        self.summary.errors += self._feed.errors
        self.summary.left = self.engine.waiting
        self._display.tick(self._progress())
        self.engine.close()
        with contextlib.suppress(ValueError):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGWINCH):
                self._loop.remove_signal_handler(number)


def _metrics(
    job: Job, folder: str, began: float | None, ended_at: float | None, outcome: Outcome | None, results: Results
) -> Mapping[str, float | None]:
    """The last numbers of a job that is over."""
    if not folder or began is None or ended_at is None or outcome is None:
        return {}
    if not job.request.metric_patterns and not os.path.exists(f"{folder}/metrics"):
        return {}
    from dibs.engine.launch.metric_sources import Ran, numbers_of  # most runs report nothing

    return numbers_of(job, Ran(folder, began, ended_at, outcome.exit_code is not None), results)


def _cannot_begin(run: Run, error: OSError | StoreUnusable) -> FolderRefused:
    why = error.strerror if isinstance(error, OSError) else error.message
    return FolderRefused(
        f"cannot begin in {run.root}: {why}",
        remedy="free some space (`df -h`), or choose another folder with --output-dir",
    )


def _cannot_record(run: Run, jobs: int) -> StoreUnusable:
    return StoreUnusable(
        f"cannot record how {jobs} job{'s' * (jobs > 1)} ended: nothing can be written to {run.root}",
        remedy="free some space (`df -h`); --resume then finds how they ended, and runs none of them twice",
    )


def _request(entry: Entry) -> Request | tuple[Request, str]:
    if isinstance(entry, BadEntry):
        shown, problem = refusal(entry)
        return Request(command=Command.line(shown)), problem
    return entry
