"""Claims on GPU shares as other processes and users see them: locked files.

A claim is alive while its file is locked, so a dead holder's claim frees itself. Files are reused and never
deleted: whoever still holds a deleted file would not be seen, and the card would be booked twice.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from dibs.leases.guards import Guards, close_all
from dibs.leases.listing import Entry, Files, LeaseListing, check_key
from dibs.leases.records import Holder, encode, named
from dibs.leases.slots import Alive, Survey, new_slot, no_slot, rewrite, survey, write
from dibs.leases.who import file_key, lockers, owner_of
from dibs.model.claims import Claim

FRESH = 10.0  # seconds; a wish that was not renewed for longer belongs to a stopped waiter
PATIENCE = 2.0  # seconds; a guard is held for microseconds, so whoever has it for longer is stuck or hostile
GLANCE = 0.1  # seconds that somebody who only looks waits for a guard


class Lease:
    """The locked descriptors of one attempt, in the order of its claims."""

    def __init__(self, fds: tuple[int, ...]) -> None:
        self.fds = fds

    def close(self) -> None:
        """Give up our copies. The locks live on in the child that was handed them, or end here.

        Never LOCK_UN: it would free the child's lock too.
        """
        fds, self.fds = self.fds, ()
        close_all(fds)


@dataclass(frozen=True, kw_only=True)
class Busy:
    """Who stands in the way of a claim."""

    holders: tuple[Holder, ...] = ()
    waiting: tuple[Holder, ...] = ()  # those who have waited for longer
    guarded_by: str = ""  # "process 12 of eve keeps ... locked", when we could not even look

    def on(self, gpu: str) -> "Busy":
        """Who of them stands in the way on this card."""
        return replace(
            self,
            holders=tuple(holder for holder in self.holders if holder.gpu == gpu),
            waiting=tuple(wish for wish in self.waiting if wish.gpu == gpu),
        )


class Leases:
    """The claims and wishes of one process in the lease folder. One thread uses it at a time."""

    def __init__(self, folder: str, *, uid: int, user: str, patience: float = PATIENCE) -> None:
        self._folder = folder
        self._uid = uid
        self._user = user
        self._listing = LeaseListing(folder)
        self._guards = Guards(folder, patience=patience)
        self._wishes: dict[str, _Wish] = {}  # by GPU

    def take(self, claims: Sequence[Claim], *, job: str, folder: str, since: float) -> Lease | Busy:
        """Lock a share of each GPU, all or none, or tell who is in the way.

        Live claims and the wishes of those who wait since before `since` go first; our own wishes do not
        count. Memory is written down for others to see; whether it suffices is the policy's business.
        """
        wanted: dict[str, list[Claim]] = {}
        for claim in claims:
            check_key(claim.gpu)
            wanted.setdefault(claim.gpu, []).append(claim)
        guards = self._guards.hold(wanted)
        if isinstance(guards, str):
            return Busy(guarded_by=guards)
        looks: dict[str, Survey] = {}
        busy: list[tuple[list[Holder], list[Holder]]] = []
        try:
            files = self._listing.files()
            for gpu, ours in wanted.items():
                look = looks[gpu] = self._look(files, "claim", gpu, wanted=len(ours))
                holders = [alive.holder for alive in look.alive]
                earlier = [wish for wish in self._others_wishes(files, gpu) if wish.since < since]
                taken = sum((other.share for other in (*holders, *earlier)), Fraction())
                if taken + sum(claim.share for claim in ours) > 1:
                    busy.append((holders, earlier))
                elif not self._has_slots(files, look, len(ours)):
                    busy.append((holders, []))
            if not busy:
                return self._write(claims, looks, job=job, folder=folder)
        finally:
            # What _write has given to the lease is no longer in the looks.
            close_all(fd for look in looks.values() for fd in look.free)
            close_all(guards)
        return Busy(
            holders=tuple(named(holder) for holders, _ in busy for holder in holders),
            waiting=tuple(named(wish) for _, earlier in busy for wish in earlier),
        )

    def waited_for(self, claims: Sequence[Claim], *, since: float) -> Busy | None:
        """Who has waited for one of these cards since before `since`. A lease is handed on only if none has."""
        files = self._listing.files()
        for claim in claims:
            if not self._renewed_wishes(files, claim.gpu):
                continue
            guards = self._guards.hold([claim.gpu])
            if isinstance(guards, str):
                return Busy(guarded_by=guards)
            try:
                earlier = [wish for wish in self._others_wishes(files, claim.gpu) if wish.since < since]
            finally:
                close_all(guards)
            if earlier:
                return Busy(waiting=tuple(map(named, earlier)))
        return None

    def inscribe(self, lease: Lease, claims: Sequence[Claim], *, job: str, folder: str) -> None:
        """Give a lease that we still hold to another job of ours. Its locks were never free in between."""
        now = time.time()
        for fd, claim in zip(lease.fds, claims, strict=True):
            write(self._folder, fd, self._record(claim, job=job, folder=folder, since=now))

    def lower(self, claims: Sequence[Claim], *, folder: str) -> bool:
        """Write down that the attempt in this folder holds less than it took; False where a guard is kept from us.

        Whoever has its locks need not be asked: what stands in the file is for those who look.
        """
        for claim in claims:
            check_key(claim.gpu)
            guards = self._guards.hold([claim.gpu])
            if isinstance(guards, str):
                return False
            try:
                for entry in self._listing.files().get(("claim", claim.gpu), ()):
                    if entry.uid == self._uid:
                        rewrite(self._folder, claim.gpu, entry, partial(self._less, claim, folder))
            finally:
                close_all(guards)
        return True

    def wish(self, claims: Sequence[Claim], *, job: str, since: float) -> None:
        """Leave a locked wish for each of these GPUs, or renew it; earlier wishes for others end.

        Renew it well within FRESH seconds: who stopped renewing blocks nobody. A GPU whose guard cannot be
        had gets no wish: nobody can look at it now anyway.
        """
        shares: dict[str, Claim] = {}
        for claim in claims:
            check_key(claim.gpu)
            before = shares.get(claim.gpu)
            shares[claim.gpu] = claim if before is None else _both(before, claim)
        for gpu in self._wishes.keys() - shares.keys():
            os.close(self._wishes.pop(gpu).fd)
        for gpu, claim in shares.items():
            record = self._record(claim, job=job, folder="", since=since)
            if gpu not in self._wishes and (fd := self._wish_slot(gpu)) is not None:
                self._wishes[gpu] = _Wish(fd)
            if wish := self._wishes.get(gpu):
                if wish.record != record:
                    write(self._folder, wish.fd, record)
                    wish.record = record
                os.utime(wish.fd)

    def unwish(self) -> None:
        """Wait for nothing any more."""
        close_all(wish.fd for wish in self._wishes.values())
        self._wishes.clear()

    def holders(self) -> list[Holder]:
        """Everyone's live claims."""
        return self._everyone("claim")

    def waiting(self) -> list[Holder]:
        """Everyone's live wishes, ours too."""
        return self._everyone("wish")

    def close(self) -> None:
        """End the wishes. Leases that were handed out have a life of their own."""
        self.unwish()

    def _look(self, files: Files, kind: str, gpu: str, *, wanted: int = 0) -> Survey:
        return survey(self._folder, gpu, files.get((kind, gpu), ()), uid=self._uid, wanted=wanted)

    def _others_wishes(self, files: Files, gpu: str) -> list[Holder]:
        ours = self._wishes.get(gpu)
        inode = os.fstat(ours.fd).st_ino if ours else 0
        renewed = self._renewed_wishes(files, gpu)
        found = survey(self._folder, gpu, renewed, uid=self._uid, wanted=0).alive
        return [wish.holder for wish in found if wish.seen.st_ino != inode and _is_fresh(wish.seen)]

    def _renewed_wishes(self, files: Files, gpu: str) -> list[Entry]:
        """Wish files that somebody may still stand behind. Most were left by those who got what they wanted."""
        found = []
        for entry in files.get(("wish", gpu), ()):
            with contextlib.suppress(OSError):
                if _is_fresh(os.lstat(f"{self._folder}/{entry.name}")):
                    found.append(entry)
        return found

    def _has_slots(self, files: Files, look: Survey, wanted: int) -> bool:
        """Make the files that are missing. False when our own live claims fill all that we may have."""
        while len(look.free) < wanted:
            fd = self._new_slot(files, "claim", look.gpu)
            if fd is None:
                if any(alive.holder.uid == self._uid for alive in look.alive):
                    return False
                raise no_slot(self._folder, "claim", look.gpu, self._uid)
            look.free.append(fd)
        return True

    def _new_slot(self, files: Files, kind: str, gpu: str) -> int | None:
        return new_slot(self._folder, kind, gpu, self._uid, files.get((kind, gpu), ()))

    def _write(self, claims: Sequence[Claim], looks: dict[str, Survey], *, job: str, folder: str) -> Lease:
        fds: list[int] = []
        now = time.time()
        try:
            for claim in claims:
                fds.append(looks[claim.gpu].free.pop(0))
                write(self._folder, fds[-1], self._record(claim, job=job, folder=folder, since=now))
        except BaseException:
            close_all(fds)
            raise
        return Lease(tuple(fds))

    def _record(self, claim: Claim, *, job: str, folder: str, since: float) -> bytes:
        return encode(claim, user=self._user, uid=self._uid, pid=os.getpid(), job=job, folder=folder, since=since)

    def _less(self, claim: Claim, folder: str, holder: Holder) -> bytes | None:
        """The record of a holder that needs no more than this claim; None for another's, or where it is so."""
        if not folder or holder.folder != folder or (holder.share, holder.vram) == (claim.share, claim.vram):
            return None
        return encode(
            claim,
            user=self._user,
            uid=self._uid,
            pid=holder.pid,
            job=holder.job,
            folder=folder,
            since=holder.since,
        )

    def _wish_slot(self, gpu: str) -> int | None:
        guards = self._guards.hold([gpu])
        if isinstance(guards, str):
            return None
        try:
            files = self._listing.files()
            free = self._look(files, "wish", gpu, wanted=1).free
            return free[0] if free else self._new_slot(files, "wish", gpu)
        finally:
            close_all(guards)

    def _everyone(self, kind: str) -> list[Holder]:
        files = self._listing.files()
        found: list[Alive] = []
        for of_kind, gpu in sorted(files):
            if of_kind == kind:
                # Without the guard a look may disturb somebody else's; better than not to see who holds it.
                guards = self._guards.hold([gpu], patience=GLANCE)
                try:
                    found += self._look(files, kind, gpu).alive
                finally:
                    close_all(() if isinstance(guards, str) else guards)
        found = [alive for alive in found if kind == "claim" or _is_fresh(alive.seen)]
        # Asking the kernel for its locks takes milliseconds: not for nothing.
        return list(_as_the_kernel_sees(found)) if found else []


class _Wish:
    """A locked wish file of ours, and what we wrote into it last."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.record = b""


def _both(one: Claim, other: Claim) -> Claim:
    return replace(one, share=min(Fraction(1), one.share + other.share), vram=one.vram + other.vram)


def _is_fresh(wish: os.stat_result) -> bool:
    return abs(time.time() - wish.st_mtime) < FRESH  # a clock set back is no reason to wait for ever


def _as_the_kernel_sees(found: Iterable[Alive]) -> Iterable[Holder]:
    """The holders, with the process that really has the lock where the kernel tells.

    It is another one than the record says when the holder is in a container, and when somebody locked a
    file that only its owner should; then the claim is theirs, and not the owner's job.
    """
    pids = lockers()
    for alive in found:
        holder = alive.holder
        pid = pids.get(file_key(alive.seen), holder.pid)
        uid = owner_of(pid) if pid != holder.pid else None
        if uid is not None:
            holder = replace(holder, pid=pid)
            if uid != holder.uid:
                holder = replace(holder, uid=uid, user="", job="", folder="")
        yield named(holder)
