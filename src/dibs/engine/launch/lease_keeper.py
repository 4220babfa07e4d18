"""Our leases among the other programs and users: taken, handed on, waited for.

A turn that is decided is prepared first: leases are taken for the attempts that it begins. Then the store records
the turn. Only after that are the leases of ended attempts handed on or closed, so that a turn which the store
refuses still holds what the engine's state says.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from dibs.dataclass import dataclass
from dibs.engine.turn.state import Key, OpenAttempt, with_suspension
from dibs.leases.files import LeaseRefused
from dibs.leases.leases import Busy, Lease, Leases
from dibs.leases.lockers import file_key
from dibs.model.gpus import Claim
from dibs.model.jobs import Attempt, Job, JobId
from dibs.model.suspensions import SuspensionPhase


@dataclass(frozen=True, slots=True)
class CardsTaken:
    """Another program has, or waits for, the cards of an attempt that was to begin."""

    claims: tuple[Claim, ...]
    busy: Busy
    leased: Mapping[JobId, tuple[Claim, ...]]  # the jobs of the turn whose leases are ready, and stay so


@dataclass(frozen=True, slots=True)
class LeaseStillHeld:
    """A lease of an attempt that ends in this turn is in the way, and has another shape: record the end first."""


@dataclass(frozen=True, slots=True)
class LeaseCheck:
    """What a look at the lease files of the open attempts found."""

    overbooked: Mapping[str, str]  # by GPU: a sentence about the holders that have more than one card
    news: Sequence[str] = ()  # sentences to announce


@dataclass(frozen=True, slots=True)
class _Kept:
    claims: tuple[Claim, ...]
    lease: Lease


class LeaseKeeper:
    """Keeps a copy of the lease of each attempt of this engine."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._kept: dict[Key, _Kept] = {}  # our copies, by attempt
        self._watched: dict[Key, Lease] = {}  # leases that only the attempt's processes hold
        self._held_for: set[Key] = set()  # of those we keep: locked for processes that have no lock
        self._refusals: frozenset[str] = frozenset()  # of the last check, which were announced
        self._taken: dict[Key, _Kept] = {}  # for attempts of the turn at hand, which is not recorded yet
        self._handed_on: dict[Key, Key] = {}  # in the turn at hand: the ended attempt whose lease each gets
        self._taken_back: dict[Key, OpenAttempt] = {}  # in the turn at hand: suspended ones that go on
        self._wished_since: float | None = None

    # -- a turn ----------------------------------------------------------------------------------------

    def prepare(
        self, begun: Iterable[OpenAttempt], left: Iterable[OpenAttempt]
    ) -> CardsTaken | LeaseStillHeld | None:
        """Have a lease ready for each attempt that begins; else say what is in the way.

        After that the turn is decided and prepared again, or cancelled.
        """
        begun = [one for one in begun if one.attempt.claims]
        self._drop_unwanted({one.attempt.key: one.attempt.claims for one in begun})
        given = set(self._handed_on.values())
        spare = {
            key: kept for one in left if (kept := self._kept.get(key := one.attempt.key)) and key not in given
        }
        ready: dict[JobId, tuple[Claim, ...]] = {}
        for one in begun:
            key = one.attempt.key
            if key not in self._taken and key not in self._handed_on:
                refusal = self._prepare(one, spare)
                if isinstance(refusal, LeaseStillHeld):
                    self.cancel()
                    return refusal
                if refusal is not None:
                    return CardsTaken(one.attempt.claims, refusal, ready)
            ready[one.job.id] = one.attempt.claims
        return None

    def _drop_unwanted(self, wanted: Mapping[Key, tuple[Claim, ...]]) -> None:
        """Give back what was taken for attempts that do not begin after all."""
        for key in [key for key, kept in self._taken.items() if wanted.get(key) != kept.claims]:
            self._taken.pop(key).lease.close()
        self._handed_on = {
            key: source
            for key, source in self._handed_on.items()
            if source in self._kept and wanted.get(key) == self._kept[source].claims
        }

    def cancel(self) -> None:
        """The turn is not recorded: give back what was taken for it. What was kept before is kept."""
        self.give_back(self._taken_back)
        for kept in self._taken.values():
            kept.lease.close()
        self._taken.clear()
        self._handed_on.clear()

    def give_back(self, resumed: Iterable[Key]) -> None:
        """These suspended attempts do not go on after all. Without a guard, a card is idle for a while."""
        for key in list(resumed):
            one = self._taken_back.pop(key)
            suspension = one.suspension
            assert suspension is not None, "only suspended attempts are taken back"
            self.show(with_suspension(one, replace(suspension, phase=SuspensionPhase.SUSPENDED)))

    def confirm(self, begun: Iterable[OpenAttempt], left: Iterable[OpenAttempt]) -> dict[Key, str]:
        """The turn is recorded: hand leases on, and close those of ended attempts.

        Returns why an attempt cannot begin, where other programs cannot be shown that a lease is its own.
        """
        failed: dict[Key, str] = {}
        # Before anything is kept anew: an attempt that never ran may begin again under the same number.
        left = tuple(left)
        spare = {key: kept for one in left if (kept := self._kept.pop(key := one.attempt.key, None))}
        for one in left:
            self._held_for.discard(one.attempt.key)
            self._stop_watching(one.attempt.key)
        for one in begun:
            key = one.attempt.key
            if (source := self._handed_on.get(key)) is not None:
                kept = self._kept[key] = spare.pop(source)
                try:
                    self._leases.hand_over(kept.lease, kept.claims, job=one.job.label, folder=one.attempt.folder)
                except LeaseRefused as error:
                    failed[key] = error.message
            elif key in self._taken:
                self._kept[key] = self._taken.pop(key)
        self._handed_on.clear()
        self._taken_back.clear()
        for kept in spare.values():
            kept.lease.close()
        return failed

    def _prepare(self, one: OpenAttempt, spare: dict[Key, _Kept]) -> Busy | LeaseStillHeld | None:
        job, attempt = one.job, one.attempt
        since = self._wished_since or attempt.opened_at
        source = next(
            (
                key
                for key, kept in spare.items()
                if kept.claims == attempt.claims and self._leases.is_in_place(kept.lease)
            ),
            None,
        )
        try:
            if source is not None:
                busy = self._leases.waited_for(attempt.claims, since=since)
                if busy is None:
                    del spare[source]
                    self._handed_on[attempt.key] = source
                return busy
            wanted = {claim.gpu for claim in attempt.claims}
            if any(claim.gpu in wanted for kept in spare.values() for claim in kept.claims):
                return LeaseStillHeld()
            taken = self._leases.take(attempt.claims, job=job.label, folder=attempt.folder, since=since)
        except LeaseRefused as error:
            # Something was planted under our names: these cards are out of reach, the others are not.
            taken = Busy(guarded_by=error.message, remedy=error.remedy)
        if isinstance(taken, Busy):
            return taken
        self._taken[attempt.key] = _Kept(attempt.claims, taken)
        return None

    # -- single attempts -------------------------------------------------------------------------------

    def descriptors(self, attempt: Attempt) -> tuple[int, ...]:
        """The locked descriptors that go to the attempt's shim and command."""
        kept = self._kept.get(attempt.key)
        return kept.lease.fds if kept else ()

    def is_held_by(self, attempt: Attempt) -> bool:
        """Whether something of an attempt still has its GPU, though its shim is gone."""
        key = attempt.key
        if not attempt.claims or key in self._held_for:
            return False  # the lock is ours alone
        try:
            if kept := self._kept.pop(key, None):
                self._watched[key] = kept.lease  # our own copy must not look like its command's hold
            elif key not in self._watched:
                self._watched[key] = self._leases.find({attempt.folder: len(attempt.claims)})[attempt.folder]
            if self._leases.is_held_by_its_job(self._watched[key]):
                return True
        except LeaseRefused:
            return True  # it cannot be told: better a GPU kept for too long than one given twice
        self._stop_watching(key)
        return False

    def watched_files(self, attempt: Attempt) -> list[tuple[int, int, int]]:
        """The files that something of an attempt without a shim has locked, as the kernel names them."""
        lease = self._watched.get(attempt.key)
        return [] if lease is None else [file_key(os.fstat(file.witness)) for file in lease.files]

    def hold_again(self, one: OpenAttempt) -> None:
        """Lock the cards of an attempt whose processes live without a lock: a container's may have inherited none.

        Where another program has taken a card meanwhile this is tried again at the next look.
        """
        attempt, key = one.attempt, one.attempt.key
        if key in self._held_for or not attempt.claims or self.is_held_by(attempt):
            return
        with suppress(LeaseRefused):
            taken = self._leases.take(attempt.claims, job=one.job.label, folder=attempt.folder, since=0.0)
            if isinstance(taken, Lease):
                self._kept[key] = _Kept(attempt.claims, taken)
                self._held_for.add(key)

    def check(self, open_attempts: Mapping[Key, OpenAttempt]) -> LeaseCheck:
        """Make lease files again that were deleted under open attempts, and find cards that are overbooked."""
        news: list[str] = []
        refusals: list[str] = []
        overbooked: Mapping[str, str] = {}
        try:
            self._watch_adopted(open_attempts)
        except LeaseRefused as error:
            refusals.append(error.message)
        leases = {key: kept.lease for key, kept in self._kept.items()} | self._watched
        for key, lease in leases.items():
            one = open_attempts.get(key)
            try:
                if one is not None and (paths := self._leases.restore(lease)):
                    news += [_restored(path, one.job) for path in paths]
                    self._leases.lower(one.shown_claims, folder=one.attempt.folder)
            except LeaseRefused as error:
                refusals.append(error.message)
        try:
            if gpus := {file.gpu for lease in leases.values() for file in lease.files}:
                overbooked = self._leases.overbooked(gpus)
        except LeaseRefused as error:
            refusals.append(error.message)
        news += [message for message in dict.fromkeys(refusals) if message not in self._refusals]
        self._refusals = frozenset(refusals)
        return LeaseCheck(overbooked, news)

    def _watch_adopted(self, open_attempts: Mapping[Key, OpenAttempt]) -> None:
        """Find the leases of attempts that an earlier engine started."""
        adopted = {
            one.attempt.folder: one.attempt
            for key, one in open_attempts.items()
            if one.attempt.claims and key not in self._kept and key not in self._watched
        }
        if adopted:
            found = self._leases.find({folder: len(attempt.claims) for folder, attempt in adopted.items()})
            self._watched |= {adopted[folder].key: lease for folder, lease in found.items()}

    def show(self, one: OpenAttempt) -> bool:
        """An attempt has less than it was leased: let others see it. False where that must be tried again."""
        attempt, claims = one.attempt, one.shown_claims
        if kept := self._kept.get(attempt.key):
            self._kept[attempt.key] = _Kept(claims, kept.lease)
        try:
            return self._leases.lower(claims, folder=attempt.folder)
        except LeaseRefused:
            return False

    def take_back(
        self, resumed: Sequence[OpenAttempt], left: Iterable[OpenAttempt]
    ) -> CardsTaken | LeaseStillHeld | None:
        """Lease the cards of suspended attempts again; else say what is in the way."""
        wanted = {one.attempt.key for one in resumed}
        self.give_back(self._taken_back.keys() - wanted)
        free = {claim.gpu for one in left for claim in one.held_claims}
        for one in resumed:
            attempt = one.attempt
            if attempt.key in self._taken_back or not attempt.claims:
                continue
            if free & {claim.gpu for claim in attempt.claims}:
                return LeaseStillHeld()
            try:
                busy = self._leases.take_back(attempt.claims, folder=attempt.folder, since=attempt.opened_at)
            except LeaseRefused as error:
                busy = Busy(guarded_by=error.message, remedy=error.remedy)
            if busy is not None:
                return CardsTaken(attempt.claims, busy, {})
            self._taken_back[attempt.key] = one
            if kept := self._kept.get(attempt.key):
                self._kept[attempt.key] = _Kept(attempt.claims, kept.lease)
        return None

    # -- others ----------------------------------------------------------------------------------------

    def used_by_others(self, ours: Collection[str]) -> frozenset[str]:
        """The cards of which other programs hold a part; `ours` are the folders of our attempts."""
        try:
            holders = self._leases.holders()
        except LeaseRefused:
            return frozenset()  # it cannot be told: then nothing can be leased either
        me = (os.getpid(), os.geteuid())
        others = (one for one in holders if one.share and one.folder not in ours and (one.pid, one.uid) != me)
        return frozenset(one.gpu for one in others)

    def wait_for(self, claims: Sequence[Claim], job: Job, now: float) -> None:
        """Stand in line for cards that others hold, since the first time we were turned away."""
        if not claims:
            self.stop_waiting()
            return
        self._wished_since = self._wished_since or now
        with suppress(LeaseRefused):  # without a wish we only wait longer
            self._leases.wish(claims, job=job.label, since=self._wished_since)

    def stop_waiting(self) -> None:
        if self._wished_since is not None:
            self._wished_since = None
            self._leases.end_wishes()

    def close(self) -> None:
        """Give up our copies; the locks live on with the shims and their commands."""
        self.cancel()
        for kept in self._kept.values():
            kept.lease.close()
        self._kept.clear()
        for key in list(self._watched):
            self._stop_watching(key)
        self._leases.close()

    def _stop_watching(self, key: Key) -> None:
        if lease := self._watched.pop(key, None):
            lease.close()


def _restored(path: str, job: Job) -> str:
    return (
        f"the lease file {path} of job {job.label} was deleted; it was made again."
        " Until then other programs could take its GPU"
    )
