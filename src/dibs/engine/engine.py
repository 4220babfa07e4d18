"""The engine: gather facts, decide, take the leases, record, act, announce.

`dibs run`, the seed tools' commands and the daemon each run one in their own process. It never blocks: the driver
calls `turn` when something happened, and at the time that `wake_at` names.

The engine alone owns its state. A turn is decided from a state that does not change (turn/). The next state takes
its place when the turn is in the store.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from dibs.backends.local import Leftovers, LocalBackend, ref_of
from dibs.dataclass import dataclass
from dibs.engine.announcer import Announcer, Topic
from dibs.engine.launch.containers import AttemptContainers
from dibs.engine.launch.launcher import AttemptLauncher, Place
from dibs.engine.launch.lease_keeper import CardsTaken, LeaseKeeper, LeaseStillHeld
from dibs.engine.launch.results import Results
from dibs.engine.launch.settlement import LOOK_AT_STARTING, Judge, Settlement
from dibs.engine.turn import plan_cache
from dibs.engine.turn.decide import Turn, decide
from dibs.engine.turn.facts import NOT_ASKED, Finding, MoveFound, TurnFacts, take_snapshot
from dibs.engine.turn.state import (
    Change,
    EngineState,
    Key,
    NeedsMore,
    NextState,
    OpenAttempt,
    WaitingWindow,
    apply_followed,
    extend_followed,
    may_need_less,
    memory_to_fill,
    with_suspensions,
)
from dibs.engine.watch.cards import Cards
from dibs.engine.watch.metering import Meters
from dibs.errors import StoreUnusable
from dibs.files import error_with_path
from dibs.leases.leases import Leases
from dibs.model.events import Event, Refused, Trouble
from dibs.model.gpus import NOT_COUNTED, Claim, Machine, Reading
from dibs.model.jobs import Attempt, Job, JobId, Request, State
from dibs.model.records import Consequences, GpusAstray
from dibs.policy.outcomes import Limits
from dibs.policy.schedule import exceeds_machine, impossible, wish_in_the_way
from dibs.policy.shapes import shape_of_job
from dibs.policy.snapshot import MoveSpeed, Snapshot, SuspendRules
from dibs.store.codec import class_of
from dibs.store.recorder import Recorder
from dibs.store.store import Store
from dibs.supervise.host_memory import memory_available

if TYPE_CHECKING:
    from dibs.engine.launch.suspensions import Helpers, Suspensions
    from dibs.engine.remote.systems import RemoteSystems  # a run's list does not load it
    from dibs.worker_thread import WorkerThread

_JUMP = 1.0  # seconds; a larger difference between the clocks means that the wall clock was set
_AFTER_TROUBLE = 2.0  # seconds until a full disk or a failed start is tried again
_CLOSELY_FOR = 120.0  # seconds after a start in which its memory is read often
_LIST_IS_VALID = 0.1  # seconds for which the list of cards that others hold stays valid
_ASK_THE_DOCTOR = "`dibs doctor` says why"
_MAKE_ROOM = "free some space (`df -h`); nothing was changed"


def pass_point(point: str) -> None:
    """A named point of a protocol: crash tests kill the engine there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """The limits of an engine."""

    stop_rules: Limits | None = None  # None: there are none
    most_failures: int = sys.maxsize  # after this many nothing more is started
    most_without_gpu: int = os.cpu_count() or 1
    machine: Machine = NOT_COUNTED
    suspend_rules: SuspendRules = SuspendRules()


class Engine:
    """Jobs in, events out."""

    def __init__(
        self,
        *,
        store: Store,
        recorder: Recorder,
        backend: LocalBackend,
        leases: Leases,
        cards: Cards,
        results: Results,
        place: Place,
        announce: Callable[[Sequence[Event]], None],
        ask_for_turn: Callable[[], None],
        start_thread: "Callable[[str], WorkerThread] | None" = None,
        find_helpers: "Callable[[], Helpers] | None" = None,
        limits: EngineLimits | None = None,
        meters: Meters | None = None,
        judge: Judge = lambda attempt, outcome, open_attempts, now: outcome,
        remote: "RemoteSystems | None" = None,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        reach: Callable[[str], None] = pass_point,
    ) -> None:
        self.store = store
        self.recorder = recorder
        self.cards = cards
        self.place = place
        self.clock = clock
        self.limits = limits or EngineLimits()
        self.meters = Meters() if meters is None else meters
        self.remote = remote
        self.ask_for_turn = ask_for_turn
        self.is_draining = False
        self.readings: Topic[Reading] = Topic()  # what the cards say
        self.touched: Topic[Sequence[JobId]] = Topic()  # jobs that have started or ended
        self.retried: Topic[Sequence[JobId]] = Topic()  # ended jobs that were queued again
        self.marked: Topic[None] = Topic()  # a pause, a drain or a quarantine was set or cleared
        self._state = EngineState(waiting=WaitingWindow(class_of))
        self._backend = backend
        self._leases = LeaseKeeper(leases)
        self._ticks = ticks
        self._offset = clock() - ticks()  # it jumps when the wall clock is set
        self._reach = reach
        self._done: list[Key] = []  # released by their shims, to be settled in the next turn
        self._fault = ""  # the last one, for a sentence
        self._timers: dict[str, float] = {}
        self._undelivered: dict[Key, str] = {}  # commands to attempts that were not delivered yet
        self.guards_cards = False  # jobs share a card whose need is unknown: it is watched closely
        self._to_show: set[Key] = set()  # their leases do not show yet that they hold less
        self._find_helpers = find_helpers
        self._suspensions: Suspensions | None = None  # once something is to be suspended
        self._seen_others: tuple[float, frozenset[str]] | None = None  # when listed, and their cards
        containers = AttemptContainers(place, start_thread, self.settle_soon)
        self._settlement = Settlement(
            backend=backend,
            leases=self._leases,
            containers=containers,
            results=results,
            boot_id=place.boot_id,
            judge=judge,
            usage_of=self.meters.usage_of,
            settle_soon=self.settle_soon,
        )
        self.launcher = AttemptLauncher(
            place=place,
            backend=backend,
            leases=self._leases,
            cards=cards,
            results=results,
            containers=containers,
            settle_soon=self.settle_soon,
            reach=reach,
        )
        self._announcer = Announcer(
            announce, backend=backend, results=results, meters=self.meters, detach=self.launcher.detach
        )

    # -- questions and requests ------------------------------------------------------------------------

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def running(self) -> int:
        return len(self._state.open) + len(self._state.remote)

    @property
    def waiting(self) -> int:
        return self._state.waiting.count

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, and nothing will without a new job."""
        return not self.running and not self._done and (self.is_draining or not self.waiting)

    @property
    def _busy_remote(self) -> "RemoteSystems | None":
        """The other systems, while there is anything to ask them, to record or to announce."""
        return None if self.remote is None or self.remote.is_idle else self.remote

    @property
    def looks_closely(self) -> bool:
        """Whether jobs wait to learn what a similar one, started a short while ago, needs."""
        now = self.clock()
        return bool(self.waiting) and any(
            may_need_less(one) and now - one.attempt.opened_at < _CLOSELY_FOR for one in self._state.open.values()
        )

    @property
    def is_stuck(self) -> bool:
        """Whether all attempts have ended, but the store cannot record it now. Their folders hold the records."""
        open_keys = self._state.open.keys()
        all_ended = bool(open_keys) and not self._state.remote and open_keys <= self._settlement.ended
        return self.has_trouble and all_ended

    @property
    def has_trouble(self) -> bool:
        """Whether a passing fault, such as a full disk, is being waited for: nothing starts meanwhile."""
        return "trouble" in self._timers

    @property
    def trouble(self) -> str:
        """What that fault is; empty: there is none."""
        return self._fault if self.has_trouble else ""

    @property
    def wake_at(self) -> float | None:
        """When `turn` is to be called even if nothing happens, in seconds since the epoch."""
        moments = [*self._timers.values()]
        if (look := self._settlement.next_look) is not None:
            moments.append(look)
        if self._suspensions is not None and (again := self._suspensions.next_look) is not None:
            moments.append(again)
        # While a fault lasts nothing starts and nothing is recorded: waking up for it would be a busy loop.
        trouble = self._timers.get("trouble", 0.0)
        put_off = (self._state.rest_ends, None if self._busy_remote is None else self._busy_remote.next_round)
        moments += [max(moment, trouble) for moment in put_off if moment is not None]
        due = self._state.waiting.next_due
        if due is not None and self._may_start and "" not in self._state.paused:
            moments.append(max(due, trouble))
        return min(moments, default=None)

    def why_never(self, request: Request) -> str:
        """Why a job could never run here; empty where it could, and where the pool may grow."""
        if request.on:
            if self.remote is None or not self.remote.knows(request.on):
                return f"dibs knows no backend {request.on!r} here"
            return self.remote.why_no_image(request.on) if request.image else ""
        if self.cards.may_grow:
            return ""
        machine = self.limits.machine
        return impossible(request.wishes, self.cards.pool, machine.cpus, machine.memory, self.cards.rules.min_free)

    def wish_to_change(self, request: Request) -> str:
        """The key of the one wish because of which a job could never run; empty where it is not one alone."""
        if request.on:
            is_known = self.remote is not None and self.remote.knows(request.on)
            return "image" if is_known else "on"
        machine = self.limits.machine
        return wish_in_the_way(
            request.wishes, self.cards.pool, machine.cpus, machine.memory, self.cards.rules.min_free
        )

    def remedy_for(self, request: Request) -> str:
        """What to try with a job that could never run here."""
        if request.on:
            is_known = self.remote is not None and self.remote.knows(request.on)
            return "leave out --image, or start the container in the command" if is_known else _ASK_THE_DOCTOR
        machine, wishes = self.limits.machine, request.wishes
        if exceeds_machine(wishes, machine.cpus, machine.memory):
            return "--cpus and --mem ask for less"
        if not impossible(wishes, self.cards.pool):
            return "`dibs config set min_free` changes how many GPUs are left to others"
        return "`dibs gpus` shows the GPUs there are"

    def snapshot(self, now: float, others: Sequence[Job] = ()) -> Snapshot:
        """What a plan would be made from now, including what `others` need."""
        state = self._state
        while True:
            try:
                return take_snapshot(NextState(state), self._facts(state, now, others=others), now)
            except NeedsMore as need:
                state = self._loaded(state, need, now)

    def left_behind(self, job: Job) -> Leftovers | None:
        """What a job that runs here has left behind, once its shim was killed; None while it has its shim."""
        return self._settlement.left_behind((job.id, job.attempts))

    def warm_up(self) -> None:
        """Start the zygote, so that the first job does not wait for it."""
        self._backend.make_ready()

    @property
    def warm_processes(self) -> list[tuple[tuple[str, ...], int | None]]:
        """The modules of each, and its pid once it has imported them."""
        return self._backend.warm_processes

    def announce_soon(self, *events: Event) -> None:
        """Announce these at the end of the next turn."""
        self._announcer.add(events)
        self.ask_for_turn()

    def settle_soon(self, key: Key) -> None:
        """Settle this attempt in the next turn: its shim has released it, or its state must be checked."""
        self._done.append(key)
        self.ask_for_turn()

    def drain(self) -> None:
        """Start nothing more; what runs goes on."""
        self.is_draining = True
        self._leases.stop_waiting()
        self._timers.pop("others", None)
        self.ask_for_turn()

    def send_to_all(self, command: str) -> None:
        """Send `stop`, `kill` or `signal N` to everything that runs."""
        self.send(self._state.everywhere, command)

    def send(self, attempts: Iterable[Key], command: str) -> None:
        """Send `stop`, `kill` or `signal N` to these; repeated for an attempt that cannot receive it yet."""
        keys = list(attempts)
        self._undelivered |= {key: command for key in keys if key not in self._state.remote}
        self._deliver(self.clock())
        if self.remote is not None:
            self.remote.send(keys, command, self._state.remote)

    def memory_to_fill(self, open_attempts: Iterable[OpenAttempt]) -> int | None:
        """How many bytes of the machine's memory can be filled now; `open_attempts` are all that are open."""
        return memory_to_fill(memory_available(), open_attempts)

    def move(self, attempts: Sequence[OpenAttempt]) -> None:
        """It is recorded that these are to be suspended: have it done."""
        if attempts:
            self._reach("after-move-intent")
            self._get_suspensions().begin(attempts)
            self._reach("after-helper")

    def report_astray(self, one: OpenAttempt, gpus: Sequence[str], sentence: str) -> None:
        """An attempt uses cards that it was not given: record and announce it."""
        with suppress(StoreUnusable), self.change() as change:
            change.record(GpusAstray(one.attempt, gpus, sentence))
        self.announce_soon(Trouble(sentence))

    def check_leases(self) -> None:
        """Make lease files again that were deleted, and start nothing on a card that two programs hold."""
        found = self._leases.check(self._state.open)
        news = [*found.news, *self.cards.overbook(found.overbooked)]
        if news:
            self.announce_soon(*map(Trouble, news))

    def forget_folders(self, folders: Sequence[str]) -> None:
        """These folders of ended attempts are about to be removed: do not use them again."""
        self._backend.forget_folders(folders)

    def close(self) -> None:
        """Close everything. Running attempts go on with their shims."""
        if self.remote is not None:
            self.remote.close()
        if self._suspensions is not None:
            self._suspensions.close()
        self._leases.close()
        self._backend.close()

    # -- after a restart -------------------------------------------------------------------------------

    def resume(self, *, as_found: bool = False) -> None:
        """Continue with a store that an earlier engine left: settle its attempts and adopt those that run.

        `as_found`: what ended while no engine ran does not count as a failure of this one.
        """
        now = self.clock()
        self._count_beyond_folders()
        suspensions = self.store.suspensions.of_open()
        attempts = [
            with_suspensions(OpenAttempt(job, attempt), suspensions.get(attempt.key, ()))
            for job, attempt in self.store.open_attempts()
        ]
        self._state = replace(
            self._state,
            waiting=self._window(now),
            open={one.attempt.key: one for one in attempts if not one.attempt.backend},
            remote={one.attempt.key: one for one in attempts if one.attempt.backend},
            stopping=frozenset(one.job.id for one in attempts if one.job.is_stopping),
            # Why a job was stopped is kept, also where it ended while no engine ran.
            why_stopped=self.store.sweeps.pruned_jobs(),
            marks={mark.subject: mark for mark in self.store.listing.marks()},
        )
        if self.limits.suspend_rules.yields_to_others:  # no look was taken meanwhile
            from dibs.policy.neighbours import quiet_at

            cards = {claim.gpu for one in attempts if one.is_suspended for claim in one.attempt.claims}
            self._state = replace(self._state, quiet_at=quiet_at({}, cards, now))
        self._done += self._state.open
        self._record_turn(now, may_start=False)
        if as_found:
            self._state = replace(self._state, failures=0)
            self._announcer.take_ends_as_found()
        for key, one in self._state.open.items():
            # An earlier engine may have recorded that an attempt needs less, and died before it changed the lease.
            if one.attempt.claims and (one.job.request.wishes.shape or one.is_suspended):
                self._to_show.add(key)
        self._show_lowered()
        if moving := [one for one in self._state.open.values() if one.is_moving]:
            self._get_suspensions().begin(moving, is_new=False)
        if self._state.open:
            self.check_leases()
        if self.remote is not None:
            self.remote.resume(self._state.remote.values())
        self.send([key for key in self._state.everywhere if key[0] in self._state.stopping], "stop")
        self.ask_for_turn()

    def _count_beyond_folders(self) -> None:
        """Give no number again that has a folder: the store may be an older copy that was put back."""
        highest, following = self.place.highest_number(), self.store.queue.next_number()
        if highest < following:
            return
        with self.store.turn():
            self.store.queue.count_beyond(highest)
        sentence = (
            f"the store is older than the folders beside it: it knows no job above {following - 1}, but job "
            f"{highest} has a folder; new jobs are numbered from {highest + 1}"
        )
        self._announcer.add([Trouble(sentence)])

    def reload_waiting(self) -> None:
        """Read again which jobs wait: the store was changed without the engine."""
        self._state = replace(self._state, waiting=self._window(self.clock()))

    # -- the loop --------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Record what ended, start what can start, announce both."""
        now = self.clock()
        self._adjust_to_clock(now)
        self._run_timers(now)
        try:
            self._record_turn(now)
        except (StoreUnusable, OSError) as error:
            self._trouble(error.message if isinstance(error, StoreUnusable) else str(error), now)
        if self._busy_remote is not None:
            self._announcer.add(self._busy_remote.take_news())
        self._announcer.announce()

    @contextmanager
    def change(self) -> Iterator[Change]:
        """A turn for a request of a client: durable at its end, or it never happened."""
        change = Change(self._state, self.recorder.record, self.clock())
        change.next.plan = plan_cache.forgotten(change.next.plan)
        try:
            with self.store.turn():
                yield change
                self.recorder.finish()
        except OSError as error:  # of the journal or an environment file: treated like a full store
            self.recorder.roll_back()
            where = os.path.dirname(self.store.path)
            raise StoreUnusable(f"cannot write to {where}: {error.strerror}", remedy=_MAKE_ROOM) from error
        except BaseException:
            self.recorder.roll_back()
            raise
        self.recorder.committed()
        self._become(change.next.freeze())
        self._announcer.add(change.next.events)
        self._reach("after-commit")
        self._publish(change.touched, change.retried)
        self.ask_for_turn()

    def _record_turn(self, now: float, *, may_start: bool = True) -> None:
        """Decide a turn, record it, act on it. Raises where the store refuses it; nothing has changed then."""
        done, self._done = list(dict.fromkeys(self._done)), []
        try:
            self._announcer.add(self._settlement.look(done, self._state.open, now))
        except BaseException:  # a bug: what ended must not be lost over it
            self._done = [*done, *self._done]
            raise
        turn, findings = self._decided(now, may_start)
        is_answered = any(isinstance(one, MoveFound) for one in findings)  # something stands still, or goes on
        followed = Consequences()
        try:
            if turn.begun:
                self._reach("after-prepare")
            if is_answered:
                self._reach("after-answer")
            after = turn.state
            if turn.records:
                with self.store.turn():
                    followed, after = self._recorded(turn, now)
                    self.recorder.finish()
                self.recorder.committed()
        except BaseException:
            self.recorder.roll_back()
            self._leases.cancel()
            self.launcher.close_prepared()  # blank: they are used when the turn is decided again
            raise
        self._become(after)
        self.guards_cards = turn.needs_guard
        self._settlement.recorded(findings)
        if self._suspensions is not None:
            self._suspensions.recorded(findings)
        if followed.held:
            self._forget_held(now)
        self._announcer.add(turn.events)
        self._announcer.add(Refused(job, outcome) for job, outcome in followed.cancelled)
        if turn.begun:
            self._reach("after-intent")
        if is_answered:
            self._reach("after-move")
        self._act(turn, findings, now)
        if self._find_helpers is not None and any(
            self._is_preemptible(one) or self._may_be_relieved(one) for one in self._state.open.values()
        ):
            self._get_suspensions().look_at_driver(now)
        self._publish(followed.touched, followed.retried)
        if followed.released or followed.held:
            self.ask_for_turn()

    def _decided(self, now: float, may_start: bool) -> tuple[Turn, list[Finding]]:
        """A turn with its leases and folders. What is in their way is a new fact: the turn is decided again."""
        state = self._state
        leased: Mapping[JobId, tuple[Claim, ...]] = {}
        findings: list[Finding] = list(self._settlement.findings)
        if self._suspensions is not None:
            findings += self._suspensions.findings
        if self._busy_remote is not None:
            findings += self._busy_remote.findings(state.remote, now)
        while True:
            facts = self._facts(state, now, findings=findings, may_start=may_start)
            try:
                turn = decide(state, replace(facts, leased=leased), now)
            except NeedsMore as need:
                state = self._loaded(state, need, now)
                continue
            refusal = self._leases.prepare(turn.begun, turn.left)
            refusal = refusal or self._leases.take_back(turn.resumed, turn.left)
            if refusal is None:
                if turn.resumed:
                    self._reach("after-lease-back")
                if turn.begun:
                    self._reach("after-lease")
                here = (one for one in turn.begun if not one.attempt.backend)
                if not (why_not := self.launcher.prepare(here, turn.state.open)):
                    return turn, findings
                self._trouble(why_not, now)
                may_start, leased = False, {}
            elif isinstance(refusal, CardsTaken):
                self.cards.taken_by_others(refusal.claims, refusal.busy)
                leased = refusal.leased
            elif isinstance(refusal, LeaseStillHeld):
                may_start, leased = False, {}
                self.ask_for_turn()

    def _recorded(self, turn: Turn, now: float) -> tuple[Consequences, EngineState]:
        """Write the turn's records; what followed from them, and the state with it."""
        all_followed = Consequences()
        for record in turn.records:
            extend_followed(all_followed, self.recorder.record(record, now))
        if not all_followed.released:
            return all_followed, turn.state
        held = set(all_followed.held)
        all_followed.released = [job for job in all_followed.released if job.id not in held]
        state = NextState(turn.state)
        apply_followed(all_followed, state)
        return all_followed, state.freeze()

    def _facts(
        self,
        state: EngineState,
        now: float,
        *,
        findings: Sequence[Finding] = (),
        may_start: bool = True,
        others: Sequence[Job] = (),
    ) -> TurnFacts:
        board = self.cards.board()
        shapes = {request.wishes.shape for request in state.waiting.heads}
        shapes |= {job.request.wishes.shape for job in others}
        shapes |= {one.job.request.wishes.shape for one in state.open.values()}
        rules = self.limits.suspend_rules
        preemptible = [key for key, one in state.open.items() if self._is_preemptible(one)]
        may_suspend = self._find_helpers is not None and (bool(preemptible) or rules.slice is not None)
        movable = {*preemptible, *(key for key, one in state.open.items() if self._may_be_relieved(one))}
        is_leaving = any(one.is_moving for one in state.open.values())
        # What was learned about suspending counts for jobs without `--vram auto`, too.
        shapes |= {shape_of_job(state.open[key].job.request) for key in preemptible}
        shapes |= {shape_of_job(one.job.request) for one in state.open.values() if one.is_moving}
        shapes.discard("")
        measured = {key: self.meters.usage_of(key) for key, one in state.open.items() if _books_memory(one)}
        return TurnFacts(
            board=board,
            most_at_once=self.cards.most_at_once,
            folder=self._attempt_folder,
            boot_id=self.place.boot_id,
            findings=findings,
            may_start=may_start and self._may_start and not self.has_trouble,
            may_retry=not self.is_draining,
            most_failures=self.limits.most_failures,
            machine=self.limits.machine,
            most_without_gpu=self.limits.most_without_gpu,
            remote_most={} if self.remote is None else self.remote.most,
            remote_silent={} if (remote := self._busy_remote) is None else remote.silent,
            in_use=self._used_by_others(state) if board.min_free else frozenset(),
            lessons={about: one for shape in shapes for about, one in self.store.lessons.of(shape).items()},
            usages={key: usage for key, usage in measured.items() if usage is not None},
            limits=self.limits.stop_rules,
            tried_lately=frozenset() if self._suspensions is None else self._suspensions.tried_lately,
            move_speed=self.move_speed() if movable or is_leaving else MoveSpeed(),
            held={key: self.meters.held_by(key) for key in movable},
            grows={key: self.meters.growth_of(key) for key in movable},
            suspend_rules=rules,
            may_suspend=may_suspend,
            why_no_driver=NOT_ASKED if self._suspensions is None else self._suspensions.why_no_driver,
            memory_available=memory_available() if may_suspend or movable else None,
        )

    def _is_preemptible(self, one: OpenAttempt) -> bool:
        return one.job.state is State.RUNNING and self.limits.suspend_rules.lets_others_pass(one.job.request)

    def _may_be_relieved(self, one: OpenAttempt) -> bool:
        """Whether it may have to leave a card that runs short of memory."""
        wishes = one.job.request.wishes
        return self._find_helpers is not None and bool(wishes.shape) and wishes.share is None

    def move_speed(self) -> MoveSpeed:
        """How fast the memory of jobs is moved, as learned from the last suspensions on this machine."""
        from dibs.policy.preemption import learned_speed  # few queues suspend jobs

        latest = self.store.suspensions.latest()
        return learned_speed(
            ((one.held_bytes, one.suspended_at - one.began_at) for one in latest if one.suspended_at is not None),
            (
                (one.held_bytes, one.ended_at - one.resuming_at)
                for one in latest
                if one.ended_at is not None and one.resuming_at is not None
            ),
        )

    def _act(self, turn: Turn, findings: Sequence[Finding], now: float) -> None:
        """The turn is recorded: hand leases on, start attempts, wait for cards that others hold."""
        failed = self._leases.confirm(turn.begun, turn.left)
        self.cards.left(turn.left_cards)
        here = [one for one in turn.begun if not one.attempt.backend]
        for number, one in enumerate(here):
            try:
                if one.attempt.key in failed:
                    raise OSError(failed[one.attempt.key])
                self._announcer.add(self.launcher.launch(one))
            except OSError as error:
                # Nothing was started: the next turn finds a blank record and queues the job again.
                self._trouble(f"cannot start job {one.job.label}: {error_with_path(error)}", now)
                self.settle_soon(one.attempt.key)
            except Exception:  # a bug: settle the others too, so that their cards are not lost
                for other in here[number:]:
                    self.settle_soon(other.attempt.key)
                self.launcher.close_prepared()
                raise
        self.launcher.close_prepared()
        if self._busy_remote is not None:
            self._busy_remote.recorded(findings, now)
        if self.remote is not None and (remote := [one for one in turn.begun if one.attempt.backend]):
            self.remote.submit(remote)
        self._to_show |= set(turn.lowered)
        self._show_lowered()
        self.move(turn.moved)
        if turn.line is not None and turn.line.job is not None:
            self._leases.wait_for(turn.line.claims, turn.line.job, now)
        elif turn.line is not None:
            self._leases.stop_waiting()
        if turn.look_after is not None:
            self._timers["others"] = now + turn.look_after
        if turn.plan_by is not None:
            self._timers.setdefault("plan", turn.plan_by)
        if turn.next_turn is not None:
            self._timers["next-turn"] = turn.next_turn

    def _become(self, state: EngineState) -> None:
        has_new_marks = state.marks is not self._state.marks or state.resting is not self._state.resting
        self._state = state
        if has_new_marks:
            self.marked.publish(None)

    def _get_suspensions(self) -> "Suspensions":
        if self._suspensions is None:
            from dibs.engine.launch.suspensions import Suspensions  # few jobs are suspended

            assert self._find_helpers is not None, "only a queue suspends its jobs"
            self._suspensions = Suspensions(
                self._find_helpers(),
                settle_soon=self.settle_soon,
                signal=lambda key, number: self.send([key], f"signal {number}"),
                announce=lambda event: self.announce_soon(event),
                ask_for_turn=self.ask_for_turn,
                lease_files=lambda one: self._leases.watched_files(one.attempt),
                card_memory=lambda key: (
                    None if (card := self.cards.pool.card(key)) is None else card.gpu.memory_total
                ),
                clock=self.clock,
                ticks=self._ticks,
            )
        return self._suspensions

    def _publish(self, touched: Sequence[JobId], retried: Sequence[JobId]) -> None:
        if touched:
            self.touched.publish(touched)
        if retried:
            self.retried.publish(retried)

    # -- helpers of a turn -----------------------------------------------------------------------------

    @property
    def _may_start(self) -> bool:
        return not self.is_draining and self._state.failures < self.limits.most_failures

    def _attempt_folder(self, on: str, job: JobId, number: int) -> str:
        if on:
            assert self.remote is not None, "only a queue hands its jobs to other systems"
            return self.remote.attempt_folder(on, job, number)
        return self.place.attempt_folder(job, number)

    def _window(self, now: float) -> WaitingWindow:
        """A window on the jobs that wait in the store."""
        store = self.store
        count = store.counts().get(State.QUEUED, 0) - store.listing.blocked()
        window = WaitingWindow.over(class_of, store.waiting_classes(), count, now)
        window.load_delayed(store.delayed(window.boundary, window.delayed_limit))
        return window

    def _loaded(self, state: EngineState, need: NeedsMore, now: float) -> EngineState:
        """The same state, with more of the waiting jobs in its window."""
        window = state.waiting.copy()
        if need.name is None:
            window.load_delayed(self.store.delayed(window.boundary, window.delayed_limit))
        else:
            limit = window.limit(need.name)
            window.load(need.name, self.store.waiting(need.name, max(now, window.latest), limit), limit)
        return replace(state, waiting=window)

    def _forget_held(self, now: float) -> None:
        """A group was held in the store: only the store knows how many of its jobs waited."""
        try:
            self.reload_waiting()
        except StoreUnusable as error:
            # They have left the window and cannot start; only the count is too high.
            self._trouble(error.message, now)

    def _used_by_others(self, state: EngineState) -> frozenset[str]:
        """The cards that other programs hold; asked only where some cards are to be left free.

        Listing them takes milliseconds, so the last list is used for a moment.
        """
        if self._seen_others is not None:
            seen_at, used = self._seen_others
            if seen_at <= self._ticks() < seen_at + _LIST_IS_VALID:
                return used
        used = self._leases.used_by_others({one.attempt.folder for one in state.open.values()})
        self._seen_others = (self._ticks(), used)
        return used

    def _show_lowered(self) -> None:
        """Write into the leases what has been recorded: some attempts hold less than before."""
        for key in list(self._to_show):
            one = self._state.open.get(key)
            if one is None or self._leases.show(one):
                self._to_show.discard(key)
                self.ask_for_turn()

    def _trouble(self, sentence: str, now: float) -> None:
        """Announce a fault, and start nothing for a moment, in which it is not announced again."""
        if sentence != self._fault or "trouble" not in self._timers:
            self._announcer.add([Trouble(sentence)])
        self._timers["trouble"] = now + _AFTER_TROUBLE
        self._fault = sentence

    def _deliver(self, now: float) -> None:
        """Deliver commands to attempts; those whose shim is not ready yet are tried again."""
        state = self._state
        self._undelivered = {
            key: command
            for key, command in self._undelivered.items()
            if key in state.open and not self._has_reached(state.open[key].attempt, command)
        }
        if self._undelivered:
            self._timers["commands"] = now + LOOK_AT_STARTING
            self.ask_for_turn()

    def _has_reached(self, attempt: Attempt, command: str) -> bool:
        ref = ref_of(attempt)
        if command.startswith("signal "):
            return self._backend.signal(ref, int(command.removeprefix("signal ")))
        return bool(self._backend.cancel([ref], insist=command == "kill"))

    def _adjust_to_clock(self, now: float) -> None:
        """Keep waiting times as long as they were meant, even if the wall clock is set."""
        offset = now - self._ticks()
        jump, self._offset = offset - self._offset, offset
        if abs(jump) < _JUMP:
            return
        self._timers = {name: at + jump for name, at in self._timers.items()}
        self._settlement.shift(jump)
        if self._suspensions is not None:
            self._suspensions.shift(jump)
        if self.remote is not None:
            self.remote.shift(jump)
        if self._state.rest_ends is not None:
            self._state = replace(self._state, rest_ends=self._state.rest_ends + jump)
        self._state = replace(
            self._state,
            quiet_at={key: at + jump for key, at in self._state.quiet_at.items()},
            turns_began={party: at + jump for party, at in self._state.turns_began.items()},
        )
        if jump < 0:
            try:
                with self.store.turn():
                    self.store.shift_retries(now, jump)
                self.reload_waiting()
            except StoreUnusable as error:
                self._trouble(error.message, now)

    def _run_timers(self, now: float) -> None:
        """Do what is due now."""
        self._done += self._settlement.due(now)
        if self._suspensions is not None:
            self._suspensions.look_again(self._state.open, now)
        for name in [name for name, at in self._timers.items() if at <= now]:
            del self._timers[name]
            if name == "others":
                self.cards.look_again()
            elif name == "commands":
                self._deliver(now)
        if self._busy_remote is not None:
            self._busy_remote.run_due_rounds(self._state.remote, self._state.waiting.is_for, now)


def _books_memory(one: OpenAttempt) -> bool:
    """Whether its measured memory decides what fits beside it."""
    return bool(one.job.request.wishes.shape) or any(claim.vram for claim in one.attempt.claims)
