"""Our standing among the other programs and users: leases kept, passed on and waited for."""

import os
from collections.abc import Collection, Sequence
from contextlib import suppress

from dibs.leases.files import LeaseRefused
from dibs.leases.leases import Busy, Lease, Leases
from dibs.model.claims import Claim
from dibs.model.jobs import Attempt, Job


class Keeper:
    """Takes leases for jobs, and hands the lease of one that ended straight to the next.

    A lease that nobody takes over before the turn ends is let go: then the GPU is free for everybody.
    """

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._kept: dict[tuple[int, int], tuple[tuple[Claim, ...], Lease]] = {}  # our copies, by attempt
        self._spare: list[tuple[tuple[Claim, ...], Lease]] = []  # of attempts that ended in this turn
        self._wished_since: float | None = None

    def take(self, job: Job, attempt: Attempt) -> Busy | None:
        """Lease the cards of an attempt; who is in the way, where somebody is."""
        if not attempt.claims:
            return None
        since = self._wished_since or attempt.opened_at
        lease = self._pass_on(job, attempt, since)
        if lease is None:
            self._let_go_of_spares_on(attempt.claims)  # in a claim of another shape we would stand in our own way
            try:
                taken = self._leases.take(attempt.claims, job=job.label, folder=attempt.folder, since=since)
            except LeaseRefused as error:
                # Somebody planted something under our names: these cards are out of reach, the others are not.
                taken = Busy(guarded_by=error.message)
            if isinstance(taken, Busy):
                return taken
            lease = taken
        self._kept[attempt.key] = (attempt.claims, lease)
        return None

    def descriptors(self, attempt: Attempt) -> tuple[int, ...]:
        """The locked descriptors that go to the attempt's shim and command."""
        kept = self._kept.get(attempt.key)
        return kept[1].fds if kept else ()

    def release(self, attempt: Attempt) -> None:
        """The attempt is over: its lease is there for the next job of this turn."""
        kept = self._kept.pop(attempt.key, None)
        if kept is not None:
            self._spare.append(kept)

    def is_held_by(self, attempt: Attempt) -> bool:
        """Whether something of an attempt still has its GPU, though its shim is gone."""
        if kept := self._kept.pop(attempt.key, None):
            kept[1].close()  # our own copy must not look like its command's hold
        try:
            return bool(attempt.claims) and any(
                holder.folder == attempt.folder for holder in self._leases.holders()
            )
        except LeaseRefused:
            return True  # nobody can tell: better a GPU kept for too long than one given twice

    def used_by_others(self, ours: Collection[str]) -> frozenset[str]:
        """The cards of which somebody else holds a part; `ours` are the folders of our attempts."""
        try:
            holders = self._leases.holders()
        except LeaseRefused:
            return frozenset()  # nobody can tell: then nothing can be leased either
        me = (os.getpid(), os.geteuid())
        return frozenset(one.gpu for one in holders if one.folder not in ours and (one.pid, one.uid) != me)

    def lower(self, attempt: Attempt) -> bool:
        """An attempt needs less than it was leased: let others see it. False where that must be tried again."""
        if kept := self._kept.get(attempt.key):
            self._kept[attempt.key] = (attempt.claims, kept[1])
        try:
            return self._leases.lower(attempt.claims, folder=attempt.folder)
        except LeaseRefused:
            return False

    def let_go_of_spares(self) -> None:
        for _, lease in self._spare:
            lease.close()
        self._spare.clear()

    def keep_only(self, attempts: Collection[tuple[int, int]]) -> None:
        """Let go of whatever was taken for an attempt that is not among these."""
        for key in self._kept.keys() - attempts:
            self._kept.pop(key)[1].close()
        self.let_go_of_spares()

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
            self._leases.unwish()

    def close(self) -> None:
        """Give up our copies; the locks live on with the shims and their commands."""
        self.let_go_of_spares()
        for _, lease in self._kept.values():
            lease.close()
        self._kept.clear()
        self._leases.close()

    def _let_go_of_spares_on(self, claims: Sequence[Claim]) -> None:
        wanted = {claim.gpu for claim in claims}
        kept = []
        for shape, lease in self._spare:
            if any(claim.gpu in wanted for claim in shape):
                lease.close()
            else:
                kept.append((shape, lease))
        self._spare = kept

    def _pass_on(self, job: Job, attempt: Attempt, since: float) -> Lease | None:
        place = next((place for place, (shape, _) in enumerate(self._spare) if shape == attempt.claims), None)
        if place is None:
            return None
        _, lease = self._spare.pop(place)
        try:
            if self._leases.renew(lease, attempt.claims, job=job.label, folder=attempt.folder, since=since):
                return lease
        except LeaseRefused:
            pass  # `take` will say what is in the way
        lease.close()
        return None
