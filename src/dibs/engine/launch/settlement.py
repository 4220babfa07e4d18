"""Finds out how attempts of this machine ended, from their folders, locks and leases."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dibs.backends.local import Leftovers, LocalBackend, WithoutShim, ref_of
from dibs.backends.protocol import AttemptRef, Observed, Phase
from dibs.engine.launch.containers import AttemptContainers
from dibs.engine.launch.lease_keeper import LeaseKeeper
from dibs.engine.launch.results import Results
from dibs.engine.turn.facts import EndFound, Finding, NeverRan
from dibs.engine.turn.state import Key, OpenAttempt
from dibs.engine.watch.metering import stored_usage
from dibs.model.events import Event, Started, Trouble
from dibs.model.jobs import Attempt, Job, Outcome, State
from dibs.model.usage import Usage
from dibs.policy.outcomes import LOST, Verdict, lost, outcome_of, settle

if TYPE_CHECKING:
    from dibs.supervise.orphans import LeftProcess  # few shims are killed

LOOK_AT_STARTING = 0.01  # seconds until a shim that is just starting can be watched
_LOOK_AT_KEPT = 0.5  # seconds between two looks at a lost attempt that still holds its GPU
_LOOK_AT_UNJUDGED = 2.0  # seconds; the judge asks for a look sooner
_AFTER_TROUBLE = 2.0  # seconds until a folder that could not be read is looked at again
_MOST_NAMED = 8  # processes in a sentence
_NOTHING_LEFT = Leftovers()

# A second look at an end, with the attempts that are open: the outcome as it is recorded; None: not yet.
Judge = Callable[[Attempt, Outcome, Mapping[Key, OpenAttempt], float], Outcome | None]


class Settlement:
    """Looks at attempts that their shims have let go, and remembers which must be looked at again.

    A finding is kept until the turn that records it is in the store.
    """

    def __init__(
        self,
        *,
        backend: LocalBackend,
        leases: LeaseKeeper,
        containers: AttemptContainers,
        results: Results,
        boot_id: str,
        judge: Judge,
        usage_of: Callable[[Key], Usage | None],
        settle_soon: Callable[[Key], None],
    ) -> None:
        self._backend = backend
        self._leases = leases
        self._containers = containers
        self._results = results
        self._boot_id = boot_id
        self._judge = judge
        self._usage_of = usage_of
        self._settle_soon = settle_soon
        self._findings: dict[Key, Finding] = {}
        self._unjudged: dict[Key, Outcome] = {}
        self._lived: set[Key] = set()  # something of them was seen without their shims: they have run
        self._left: dict[Key, Leftovers] = {}  # of those without shims: what lives
        self._unclear: dict[Key, float] = {}  # looked at again at this moment: kept GPUs, shims that just start

    @property
    def findings(self) -> list[Finding]:
        """What is not recorded yet, in the order in which it was found."""
        return list(self._findings.values())

    @property
    def ended(self) -> set[Key]:
        return {key for key, finding in self._findings.items() if isinstance(finding, EndFound)}

    @property
    def next_look(self) -> float | None:
        return min(self._unclear.values(), default=None)

    def due(self, now: float) -> list[Key]:
        """The attempts that are to be looked at again."""
        return [key for key, when in self._unclear.items() if when <= now]

    def shift(self, seconds: float) -> None:
        """The clock was set by so many seconds."""
        self._unclear = {key: when + seconds for key, when in self._unclear.items()}

    def recorded(self, findings: Iterable[Finding]) -> None:
        """These are in the store."""
        for finding in findings:
            if isinstance(finding, (EndFound, NeverRan)):
                self._findings.pop(finding.key, None)
                self._lived.discard(finding.key)

    def look(self, keys: Iterable[Key], open_attempts: Mapping[Key, OpenAttempt], now: float) -> list[Event]:
        """Find out what became of these attempts; return what there is to announce beside their ends."""
        events: list[Event] = []
        keys = list(keys)
        wanted = [open_attempts[key] for key in keys if key in open_attempts and key not in self._findings]
        unseen = [one for one in wanted if one.attempt.key not in self._unjudged]
        seen = self._backend.observe([ref_of(one.attempt) for one in unseen])
        left = self._look_after_leftovers(unseen, seen, now)
        for one in wanted:
            ref = ref_of(one.attempt)
            if ref in seen:
                self._settle(one, seen[ref], left.get(ref, _NOTHING_LEFT), open_attempts, now, events)
            else:
                self._ask_judge(one, self._unjudged[one.attempt.key], open_attempts, now)
        for key in keys:
            if key not in open_attempts or key in self._findings:
                self._unclear.pop(key, None)  # what the store refuses is kept, not looked for again
                self._left.pop(key, None)
        return events

    def left_behind(self, key: Key) -> Leftovers | None:
        """What a running attempt has left behind, once its shim is gone; None while it has its shim."""
        return self._left.get(key)

    def _look_after_leftovers(
        self, attempts: Iterable[OpenAttempt], seen: Mapping[AttemptRef, Observed], now: float
    ) -> Mapping[AttemptRef, Leftovers]:
        """What is left of those attempts that have no shim, and are not known to be over."""
        without_shim = []
        for one in attempts:
            attempt, ref = one.attempt, ref_of(one.attempt)
            is_held = seen[ref].may_linger and self._leases.is_held_by(attempt)
            may_live = seen[ref].phase is Phase.LOST and not seen[ref].never_started
            if is_held or may_live or self._may_have_container(one, seen[ref]):
                without_shim.append(
                    WithoutShim(
                        ref=ref,
                        request=one.job.request,
                        holds_gpu=is_held,
                        leases=self._leases.watched_files(attempt),
                        age=now - attempt.opened_at,
                        stood_still=one.seconds_still(now),
                        is_suspended=one.job.state is State.SUSPENDED,
                        has_ended=seen[ref].record is not None,
                    )
                )
        return self._backend.look_after(without_shim) if without_shim else {}

    def _settle(
        self,
        one: OpenAttempt,
        seen: Observed,
        left: Leftovers,
        open_attempts: Mapping[Key, OpenAttempt],
        now: float,
        events: list[Event],
    ) -> None:
        attempt, key = one.attempt, one.attempt.key
        if key in self._left and not left.is_alive:  # nothing of it lives any more: why it ended is still known
            left = replace(left, ended_by=left.ended_by or self._left[key].ended_by)
        if seen.phase is Phase.QUEUED:  # its folder cannot be read now
            events.append(Trouble(f"cannot look at job {one.job.label}: {seen.reason}"))
            self._look_again_at(key, now + _AFTER_TROUBLE)
            return
        is_left = self._may_have_container(one, seen) and self._container_is_left(one, left, events)
        verdict = settle(
            is_locked=seen.phase is Phase.RUNNING,
            has_record=seen.record is not None,
            has_started=not seen.never_started or key in self._lived,
            is_alive=left.is_alive or is_left,
            same_boot=attempt.boot_id == self._boot_id,
        )
        if verdict is Verdict.RUNNING:
            self._adopt(one, now, events)
        elif verdict is Verdict.KEPT:
            self._lived.add(key)
            if key not in self._left and left.is_alive:
                events.append(Trouble(_gone(one.job, left)))
            self._left[key] = left
            self._look_again_at(key, now + _LOOK_AT_KEPT)
        elif verdict is Verdict.NEVER_RAN:
            self._findings[key] = NeverRan(key)
        else:
            self._ask_judge(one, _outcome(seen, left, now - attempt.opened_at), open_attempts, now)

    def _may_have_container(self, one: OpenAttempt, seen: Observed) -> bool:
        """Whether an attempt without a shim ran in a container, which its shim may not have removed."""
        return bool(one.job.request.image) and seen.may_linger and not seen.never_started

    def _container_is_left(self, one: OpenAttempt, left: Leftovers, events: list[Event]) -> bool:
        """Whether a container may live. Its processes may have no lock of ours: the cards are locked for them."""
        same_boot = one.attempt.boot_id == self._boot_id
        is_left = left.is_alive or self._containers.is_left(one.attempt, same_boot=same_boot)
        if is_left:
            self._leases.hold_again(one)
        elif why_not := self._containers.why_not_removed(one.attempt):
            events.append(Trouble(f"the container of job {one.job.label} could not be removed: {why_not}"))
        return is_left

    def _adopt(self, one: OpenAttempt, now: float, events: list[Event]) -> None:
        """It runs under a shim that another engine started, or that has not yet said so: watch it."""
        key = one.attempt.key
        if not self._backend.watch(ref_of(one.attempt), lambda: self._settle_soon(key)):
            self._look_again_at(key, now + LOOK_AT_STARTING)
            return
        self._unclear.pop(key, None)
        if not one.is_ours:
            stdout, stderr = self._results.streams(one.job, one.attempt.folder)
            events.append(Started(one.job, one.attempt, stdout, stderr, adopted=True))

    def _ask_judge(
        self, one: OpenAttempt, outcome: Outcome, open_attempts: Mapping[Key, OpenAttempt], now: float
    ) -> None:
        """A failure is settled once it is known whether its card caused it."""
        key = one.attempt.key
        judged = outcome if outcome.cause is None else self._judge(one.attempt, outcome, open_attempts, now)
        if judged is None:
            self._unjudged[key] = outcome
            self._look_again_at(key, now + _LOOK_AT_UNJUDGED)
            return
        self._unjudged.pop(key, None)
        usage = self._usage_of(key)
        if usage is None and not one.is_ours:
            usage = stored_usage(one.attempt.folder)  # it ended while no engine was there
        self._findings[key] = EndFound(key, judged, usage)

    def _look_again_at(self, key: Key, when: float) -> None:
        self._unclear[key] = when


def _outcome(seen: Observed, left: Leftovers, seconds: float) -> Outcome:
    if seen.record is not None:
        return outcome_of(seen.record)
    if left.ended_by:
        message = "ended without its supervisor, which was killed"
        return outcome_of({"by": left.ended_by, "message": message, "seconds": seconds})
    return LOST if seen.never_started else lost(seen.reason)  # a blank record after a reboot proves nothing


def _gone(job: Job, left: Leftovers) -> str:
    kept = "its GPU is kept until its processes end" if left.holds_gpu else "its processes still run"
    sentence = f"the supervisor of job {job.label} is gone; {kept}"
    return f"{sentence}: {named(left.processes)}" if left.processes else sentence


def named(processes: "Sequence[LeftProcess]") -> str:
    """`4711 (python), 4712 (bash) and 3 more`."""
    shown = [f"{one.pid} ({one.name})" for one in processes[:_MOST_NAMED]]
    more = len(processes) - len(shown)
    return f"{', '.join(shown)}{f' and {more} more' if more else ''}"
