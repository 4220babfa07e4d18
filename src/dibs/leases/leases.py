"""Claims on GPU shares as other processes and users see them: locked files.

A claim is alive while its file is locked, so the claim of a dead holder ends by itself. Files are reused and never
deleted: the holder of a deleted file would not be seen, and its card would be booked twice.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from dibs.leases.files import (
    Entry,
    Files,
    GpuGuards,
    Holder,
    LeaseListing,
    LockedFile,
    Survey,
    check_key,
    close_all,
    encode,
    file_key,
    lockers,
    new_slot,
    no_slot,
    owner_of,
    rewrite,
    survey,
    user_name,
    with_user_name,
    write,
)
from dibs.leases.folder import lease_folder
from dibs.model.gpus import Claim

FRESH = 10.0  # seconds; the waiter of a wish that was not renewed for longer has stopped
GUARD_DEADLINE = 2.0  # seconds; a guard is held for microseconds, so a longer holder is stuck or hostile
LISTING_DEADLINE = 0.1  # seconds to wait for a guard that is only needed for a listing


def build_leases(environ: Mapping[str, str]) -> "Leases":
    """The leases of this machine, for the user of this process."""
    uid = os.geteuid()
    return Leases(lease_folder(environ), uid=uid, user=user_name(uid) or f"uid {uid}")


class Lease:
    """The locked descriptors of one attempt, in the order of its claims."""

    def __init__(self, fds: tuple[int, ...]) -> None:
        self.fds = fds

    def close(self) -> None:
        """Close our descriptors. A child that inherited them keeps the locks; without one the locks end here.

        Never LOCK_UN: it would free the child's lock too.
        """
        fds, self.fds = self.fds, ()
        close_all(fds)


@dataclass(frozen=True, kw_only=True)
class Busy:
    """Why a claim cannot be taken: its holders, earlier waiters, or a guard that is locked."""

    holders: tuple[Holder, ...] = ()
    waiting: tuple[Holder, ...] = ()  # that have waited for longer
    guarded_by: str = ""  # "process 12 of eve keeps ... locked", if the files could not be read

    def on(self, gpu: str) -> "Busy":
        """The part that concerns this GPU."""
        return replace(
            self,
            holders=tuple(holder for holder in self.holders if holder.gpu == gpu),
            waiting=tuple(wish for wish in self.waiting if wish.gpu == gpu),
        )


class Leases:
    """The claims and wishes of one process in the lease folder. One thread uses it at a time."""

    def __init__(self, folder: str, *, uid: int, user: str, patience: float = GUARD_DEADLINE) -> None:
        self._folder = folder
        self._uid = uid
        self._user = user
        self._listing = LeaseListing(folder)
        self._guards = GpuGuards(folder, patience=patience)
        self._wishes: dict[str, _Wish] = {}  # by GPU

    def take(self, claims: Sequence[Claim], *, job: str, folder: str, since: float) -> Lease | Busy:
        """Lock a share of each GPU, all or none, or return why not.

        Live claims and wishes from before `since` go first; our own wishes do not count. Memory is recorded for
        other programs; whether it suffices is decided by the policy.
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
                earlier = [wish for wish in self._foreign_wishes(files, gpu) if wish.since < since]
                taken = sum((other.share for other in (*holders, *earlier)), Fraction())
                if taken + sum(claim.share for claim in ours) > 1:
                    busy.append((holders, earlier))
                elif not self._has_slots(files, look, len(ours)):
                    busy.append((holders, []))
            if not busy:
                return self._write(claims, looks, job=job, folder=folder)
        finally:
            # Descriptors that _write gave to the lease are no longer in the looks.
            close_all(fd for look in looks.values() for fd in look.free)
            close_all(guards)
        return Busy(
            holders=tuple(with_user_name(holder) for holders, _ in busy for holder in holders),
            waiting=tuple(with_user_name(wish) for _, earlier in busy for wish in earlier),
        )

    def waited_for(self, claims: Sequence[Claim], *, since: float) -> Busy | None:
        """The waiters for one of these GPUs from before `since`, or None; then a lease may be handed on."""
        files = self._listing.files()
        for claim in claims:
            if not self._renewed_wishes(files, claim.gpu):
                continue
            guards = self._guards.hold([claim.gpu])
            if isinstance(guards, str):
                return Busy(guarded_by=guards)
            try:
                earlier = [wish for wish in self._foreign_wishes(files, claim.gpu) if wish.since < since]
            finally:
                close_all(guards)
            if earlier:
                return Busy(waiting=tuple(map(with_user_name, earlier)))
        return None

    def hand_over(self, lease: Lease, claims: Sequence[Claim], *, job: str, folder: str) -> None:
        """Give a lease that we still hold to another job of ours, without unlocking it in between."""
        now = time.time()
        for fd, claim in zip(lease.fds, claims, strict=True):
            write(self._folder, fd, self._record(claim, job=job, folder=folder, since=now))

    def lower(self, claims: Sequence[Claim], *, folder: str) -> bool:
        """Record that the attempt in this folder holds less than it took; False if a guard cannot be had.

        The process that has the locks is not involved: the content of the file is for its readers.
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

        Renew it well within FRESH seconds: an old wish does not count. A GPU whose guard cannot be had gets no
        wish: its files cannot be read now anyway.
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

    def end_wishes(self) -> None:
        close_all(wish.fd for wish in self._wishes.values())
        self._wishes.clear()

    def holders(self) -> list[Holder]:
        """The live claims of all users."""
        return self._all_of_kind("claim")

    def waiting(self) -> list[Holder]:
        """The live wishes of all users, with ours."""
        return self._all_of_kind("wish")

    def close(self) -> None:
        """End the wishes. Leases are closed on their own."""
        self.end_wishes()

    def _look(self, files: Files, kind: str, gpu: str, *, wanted: int = 0) -> Survey:
        return survey(self._folder, gpu, files.get((kind, gpu), ()), uid=self._uid, wanted=wanted)

    def _foreign_wishes(self, files: Files, gpu: str) -> list[Holder]:
        ours = self._wishes.get(gpu)
        inode = os.fstat(ours.fd).st_ino if ours else 0
        renewed = self._renewed_wishes(files, gpu)
        found = survey(self._folder, gpu, renewed, uid=self._uid, wanted=0).alive
        return [wish.holder for wish in found if wish.seen.st_ino != inode and _is_fresh(wish.seen)]

    def _renewed_wishes(self, files: Files, gpu: str) -> list[Entry]:
        """Wish files that may be alive. Most were left by waiters that have got their GPU."""
        found = []
        for entry in files.get(("wish", gpu), ()):
            with contextlib.suppress(OSError):
                if _is_fresh(os.lstat(f"{self._folder}/{entry.name}")):
                    found.append(entry)
        return found

    def _has_slots(self, files: Files, look: Survey, wanted: int) -> bool:
        """Create the missing files. False when our own live claims use all that one user may have."""
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
        """The record with this claim, for a holder in this folder; None for another one, or without a change."""
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

    def _all_of_kind(self, kind: str) -> list[Holder]:
        files = self._listing.files()
        found: list[LockedFile] = []
        for of_kind, gpu in sorted(files):
            if of_kind == kind:
                # Without the guard this may disturb another process's look; that is better than missing a holder.
                guards = self._guards.hold([gpu], patience=LISTING_DEADLINE)
                try:
                    found += self._look(files, kind, gpu).alive
                finally:
                    close_all(() if isinstance(guards, str) else guards)
        found = [alive for alive in found if kind == "claim" or _is_fresh(alive.seen)]
        # Reading the kernel's locks takes milliseconds.
        return list(_with_lockers(found)) if found else []


class _Wish:
    """A locked wish file of ours, and its last record."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.record = b""


def _both(one: Claim, other: Claim) -> Claim:
    return replace(one, share=min(Fraction(1), one.share + other.share), vram=one.vram + other.vram)


def _is_fresh(wish: os.stat_result) -> bool:
    return abs(time.time() - wish.st_mtime) < FRESH  # abs: the clock may have been set back


def _with_lockers(found: Iterable[LockedFile]) -> Iterable[Holder]:
    """The holders, with the process that has the lock, where the kernel reports it.

    It differs from the record when the holder is in a container, and when another user has locked the file; then
    the claim is that user's, and not the job of the file's owner.
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
        yield with_user_name(holder)
