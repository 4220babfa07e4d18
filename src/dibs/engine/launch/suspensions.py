"""Suspending and resuming attempts: what a helper process is asked, and what its answer means.

The calls of the driver may block for ever, so a process of its own makes them (supervise/suspender.py). Its steps
go forward only and may be repeated: after a crash of anything the same is asked again.
"""

import signal
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dibs.engine.turn.facts import NOT_ASKED, MoveFound
from dibs.engine.turn.state import Key, OpenAttempt
from dibs.engine.turn.suspending import NOT_OF_NVIDIA
from dibs.model.events import Event, Trouble
from dibs.model.jobs import JobId
from dibs.model.suspensions import Obstacle, Rung, SuspensionPhase, room_for
from dibs.policy.preemption import longest_move
from dibs.supervise.suspension import Answer, WhenAnswered

if TYPE_CHECKING:
    from dibs.supervise.orphans import FileKey  # few shims are killed

_LONGEST_LOOK = 60.0  # seconds
_SURELY_LOST = 3  # times that the driver does not know a process which is there
_LOOK_AGAIN = 600.0  # seconds until a driver that can suspend nothing is asked again
_DRIVER: Key = (JobId(0), 0)  # in the place of an attempt: the question is about the machine
_PAUSE = 5.0  # seconds until a helper that gave no answer is followed by another one
# Where the driver cannot do it, though the program may be brought to stand still in another way.
_NEXT_RUNG = frozenset({"no-driver", "not-permitted", "failed", *Obstacle})
_OBSTACLES = {str(one): one for one in Obstacle}


class Helpers(Protocol):
    """Starts helper processes, one for an attempt at a time; none of its calls waits."""

    @property
    def next_deadline(self) -> float | None: ...

    def start(self, key: Key, question: Mapping[str, Any], done: WhenAnswered, deadline: float) -> None:
        """Have `done` called with the answer, at the deadline with one that says `unclear`."""

    def expire(self, now: float) -> None:
        """End the helpers whose deadline has come."""

    def close(self) -> None: ...


class Suspensions:
    """The attempts that are being suspended or resumed. A finding is kept until its turn is in the store."""

    def __init__(
        self,
        helpers: Helpers,
        *,
        settle_soon: Callable[[Key], None],
        signal: Callable[[Key, int], None],
        announce: Callable[[Event], None],
        ask_for_turn: Callable[[], None],
        lease_files: Callable[[OpenAttempt], "Sequence[FileKey]"],
        card_memory: Callable[[str], int | None],
        clock: Callable[[], float],
        ticks: Callable[[], float],
    ) -> None:
        self._helpers = helpers
        self._lease_files = lease_files
        self._card_memory = card_memory
        self._ticks = ticks  # of the deadlines: the wall clock may be set
        self._settle_soon = settle_soon
        self._signal = signal
        self._announce = announce
        self._ask_for_turn = ask_for_turn
        self._clock = clock
        self._moving: dict[Key, OpenAttempt] = {}
        self._findings: dict[Key, MoveFound] = {}
        self._again: dict[Key, float] = {}  # when those without an answer are asked again
        self._unsure: set[Key] = set()  # a helper was ended: the driver may still have what it was asked
        self._lost: Counter[Key] = Counter()  # how often the driver has not known a process of theirs
        self._said: dict[Key, str] = {}  # why there was no answer, as it was announced last
        self._rests: dict[Key, float] = {}  # when those that found no room are tried again
        self._driver = NOT_ASKED  # why this machine's driver suspends nothing; empty: it can
        self._ask_driver_at: float | None = 0.0  # None: it is being asked, or can

    @property
    def findings(self) -> list[MoveFound]:
        """What is not recorded yet."""
        return list(self._findings.values())

    @property
    def tried_lately(self) -> frozenset[Key]:
        """Those that were to be resumed a moment ago, and found no room."""
        return frozenset(self._rests)

    @property
    def next_look(self) -> float | None:
        """Seconds since the epoch."""
        moments = [*self._again.values(), *self._rests.values()]
        if (deadline := self._helpers.next_deadline) is not None:
            moments.append(self._clock() + deadline - self._ticks())
        return min(moments, default=None)

    @property
    def why_no_driver(self) -> str:
        """Why the driver of this machine can suspend nothing; empty where it can."""
        return self._driver

    def look_at_driver(self, now: float) -> None:
        """Find out whether the driver can suspend jobs; where it cannot, ask again now and then."""
        if self._ask_driver_at is None or now < self._ask_driver_at:
            return
        self._ask_driver_at = None
        try:
            self._helpers.start(_DRIVER, {"do": "look"}, self._driver_answered, self._ticks() + _LONGEST_LOOK)
        except OSError as error:
            self._driver_answered(Answer(state="unclear", why=f"no process can be started: {error}"))

    def _driver_answered(self, answer: Answer) -> None:
        self._driver = answer.why
        self._ask_driver_at = self._clock() + _LOOK_AGAIN if answer.why else None
        self._ask_for_turn()

    def begin(self, attempts: Iterable[OpenAttempt], *, is_new: bool = True) -> None:
        """It is recorded that these are to be suspended, or resumed: have it done.

        `is_new`: no helper of an earlier engine can have begun with it.
        """
        for one in attempts:
            self._forget(one.attempt.key)
            if not is_new:
                self._unsure.add(one.attempt.key)
            self._ask(one)

    def recorded(self, findings: Iterable[object]) -> None:
        for finding in findings:
            if isinstance(finding, MoveFound):
                self._findings.pop(finding.key, None)

    def look_again(self, open_attempts: Mapping[Key, OpenAttempt], now: float) -> None:
        """Ask again about those that gave no answer; forget those that have ended."""
        self._helpers.expire(self._ticks())
        # As they are now: their owner may have asked for something else meanwhile.
        self._moving = {key: open_attempts[key] for key in self._moving if key in open_attempts}
        for key in {*self._unsure, *self._lost, *self._said} - open_attempts.keys():
            self._forget(key)
        for key in [key for key, at in self._again.items() if at <= now or key not in self._moving]:
            del self._again[key]
            if key in self._moving:
                self._ask(self._moving[key])
        rested = [key for key, at in self._rests.items() if at <= now or key not in open_attempts]
        for key in rested:
            del self._rests[key]
        if rested:
            self._ask_for_turn()

    def shift(self, seconds: float) -> None:
        """The clock was set by so many seconds."""
        self._again = {key: at + seconds for key, at in self._again.items()}
        self._rests = {key: at + seconds for key, at in self._rests.items()}
        if self._ask_driver_at is not None:
            self._ask_driver_at += seconds

    def close(self) -> None:
        self._helpers.close()

    def _ask(self, one: OpenAttempt) -> None:
        suspension, key = one.suspension, one.attempt.key
        assert suspension is not None, "only what has a suspension is moved"
        self._moving[key] = one
        is_resuming = suspension.phase is SuspensionPhase.RESUMING
        if one.is_on_amd and not is_resuming and suspension.rung is not Rung.STOP:
            self._answered(key, Answer(state="running", code="no-driver", why=NOT_OF_NVIDIA))
            return
        room = {gpu: room_for(held, self._card_memory(gpu)) for gpu, held in suspension.held.items() if held}
        question = {
            "do": "resume" if is_resuming else "suspend",
            "folder": one.attempt.folder,
            "may_have_several": one.job.request.no_cuda_ipc,
            # What has no card needs no driver: only the processor's time matters.
            "only_stop": suspension.rung is Rung.STOP or not one.attempt.claims,
            "cards": [claim.gpu for claim in one.attempt.claims],
            "room": room if is_resuming and suspension.frees_cards else {},
            "leases": self._lease_files(one),
        }
        seconds = longest_move(suspension.held_bytes)
        try:
            self._helpers.start(key, question, lambda answer: self._answered(key, answer), self._ticks() + seconds)
        except OSError as error:
            self._answered(key, Answer(state="unclear", why=f"no process can be started: {error}"))

    def _answered(self, key: Key, answer: Answer) -> None:
        one = self._moving.get(key)
        if one is None or one.suspension is None:
            return
        now = self._clock()
        self._ask_for_turn()
        if answer.code in ("deadline", "no-answer"):
            self._unsure.add(key)
        is_stopped = answer.code == "stopped" and key in self._unsure  # it may be locked as soon as it goes on
        is_lost = answer.state == "lost"
        self._lost[key] += is_lost
        if answer.state == "unclear" or is_stopped or (is_lost and self._lost[key] < _SURELY_LOST):
            self._again[key] = now + _PAUSE
            verb = "resumed" if one.suspension.phase is SuspensionPhase.RESUMING else "suspended"
            if self._said.get(key) != answer.why:
                self._said[key] = answer.why
                sentence = f"job {one.job.label} cannot be {verb} yet: {answer.why}; it is tried again"
                self._announce(Trouble(sentence))
            return
        if answer.state == "ended":
            self._settle_soon(key)
            self._again[key] = (
                now + _PAUSE
            )  # if it has not: its shim may have died while the helper looked below it
            return
        del self._moving[key]
        if is_lost:
            self._found(MoveFound(key=key, stands_still=False, why_not=f"{answer.why}, so it was ended"))
            self._signal(key, signal.SIGKILL)
        elif answer.state == "suspended":
            rung = Rung(answer.rung) if answer.rung else one.suspension.rung
            # Only the driver knows that nothing is left on a card: what has been measured may be old, or nothing.
            is_on_card = one.suspension.rung is Rung.STOP and one.attempt.claims
            frees_cards = rung is Rung.CUDA or not is_on_card
            if one.suspension.phase is SuspensionPhase.RESUMING:
                self._rests[key] = now + _PAUSE
            self._found(
                MoveFound(
                    key=key,
                    stands_still=True,
                    rung=rung,
                    held=answer.held,
                    frees_cards=frees_cards,
                    why_not=answer.why or one.suspension.why_not,
                )
            )
        elif one.suspension.phase is SuspensionPhase.SUSPENDING:
            self._refused(one, answer)
        else:
            self._found(MoveFound(key=key, stands_still=False))

    def _refused(self, one: OpenAttempt, answer: Answer) -> None:
        """The driver cannot suspend it: take the next rung of the ladder."""
        suspension, key, request = one.suspension, one.attempt.key, one.job.request
        assert suspension is not None
        obstacle = _OBSTACLES.get(answer.code)
        if answer.code in _NEXT_RUNG and suspension.rung is not Rung.STOP:
            if request.checkpoint is not None:
                self._found(
                    MoveFound(
                        key=key,
                        stands_still=False,
                        rung=Rung.CHECKPOINT,
                        why_not=f"{answer.why}; it was sent its checkpoint signal instead",
                        obstacle=obstacle,
                    )
                )
                self._signal(key, request.checkpoint.signal)
                return
            if not suspension.resumes:  # asked for by its owner, and not to make room
                # Recorded before it is stopped: the next engine could not ask the driver about it any more.
                stop = MoveFound(
                    key=key, stands_still=False, rung=Rung.STOP, why_not=answer.why, obstacle=obstacle
                )
                self._found(stop)
                return
        self._found(MoveFound(key=key, stands_still=False, why_not=answer.why or "it went on", obstacle=obstacle))

    def _forget(self, key: Key) -> None:
        """What was noted about an earlier move of it."""
        self._unsure.discard(key)
        self._lost.pop(key, None)
        self._said.pop(key, None)

    def _found(self, finding: MoveFound) -> None:
        self._findings[finding.key] = finding
