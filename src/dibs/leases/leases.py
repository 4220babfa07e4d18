"""Claims on GPU shares as other processes and users see them: locked files.

A claim is alive while its file is locked, so the claim of a dead holder ends by itself. Files are reused and never
deleted: the holder of a deleted file is not seen until it is made again, and its card may be booked twice.
"""

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import partial

from dibs.dataclass import dataclass
from dibs.leases.files import (
    SAFE,
    WAY_OUT,
    ClaimFile,
    Entry,
    Files,
    GpuGuards,
    Holder,
    LeaseListing,
    LeaseRefused,
    LockedFile,
    Slot,
    Survey,
    check_key,
    claim_gpu,
    close_all,
    decode,
    encode,
    new_slot,
    no_slot,
    overbooking,
    rewrite,
    survey,
    with_user_name,
    write,
)
from dibs.leases.folder import lease_folder
from dibs.leases.lockers import Locker, deleted_claims, file_key, lockers, user_name, who_is
from dibs.model.gpus import Claim

FRESH = 10.0  # seconds; the waiter of a wish that was not renewed for longer has stopped
GUARD_DEADLINE = 2.0  # seconds; a guard is held for microseconds, so a longer holder is stuck or hostile
LISTING_DEADLINE = 0.1  # seconds to wait for guards that are only needed for a listing
_MOST_TRIES = 20  # to take a lease whose files are deleted meanwhile


def build_leases(environ: Mapping[str, str]) -> "Leases":
    """The leases of this machine, for the user of this process."""
    uid = os.geteuid()
    return Leases(lease_folder(environ), uid=uid, user=user_name(uid) or f"uid {uid}")


class Lease:
    """The claim files of one attempt, in the order of its claims."""

    def __init__(self, files: Iterable[ClaimFile]) -> None:
        self.files = tuple(files)

    @property
    def fds(self) -> tuple[int, ...]:
        """Our locked descriptors, for the shim and the command."""
        return tuple(file.fd for file in self.files if file.fd >= 0)

    def close(self) -> None:
        """Close our descriptors. A child that inherited them keeps the locks; without one the locks end here.

        Never LOCK_UN: it would free the child's lock too.
        """
        files, self.files = self.files, ()
        for file in files:
            file.close()


@dataclass(frozen=True, kw_only=True)
class Busy:
    """Why a claim cannot be taken: its holders, earlier waiters, or a guard that is locked."""

    holders: tuple[Holder, ...] = ()
    waiting: tuple[Holder, ...] = ()  # that have waited for longer
    guarded_by: str = ""  # "process 12 of eve keeps ... locked", if the files could not be read
    remedy: str = ""  # what helps where it may last for ever

    def on(self, gpu: str) -> "Busy":
        """The part that concerns this GPU."""
        return replace(
            self,
            holders=tuple(holder for holder in self.holders if holder.gpu == gpu),
            waiting=tuple(wish for wish in self.waiting if wish.gpu == gpu),
        )


@dataclass(frozen=True, kw_only=True)
class LeaseTable:
    """The live claims and wishes of all users, and what keeps some from being looked at."""

    holders: tuple[Holder, ...] = ()
    waiting: tuple[Holder, ...] = ()
    guarded_by: Mapping[str, str] = field(default_factory=dict)  # by GPU: "process 12 of eve keeps ... locked"
    too_many: str = ""  # "it has more than ... lease files": not all were looked at


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
        for _ in range(_MOST_TRIES):
            guards = self._guards.hold(wanted)
            if isinstance(guards, str):
                return Busy(guarded_by=guards, remedy=WAY_OUT)
            try:
                taken = self._take(wanted, claims, job=job, folder=folder, since=since)
                if (
                    isinstance(taken, Lease)
                    and self._guards.are_in_place(wanted, guards)
                    and self.is_in_place(taken)
                ):
                    return taken
            finally:
                close_all(guards)
            if not isinstance(taken, Lease):
                return _busy(*taken)
            # A file was deleted meanwhile: another process may have looked at the GPU at the same time.
            taken.close()
        return Busy(guarded_by=f"lease files in {self._folder} are deleted again and again", remedy=WAY_OUT)

    def _take(
        self,
        wanted: Mapping[str, Sequence[Claim]],
        claims: Sequence[Claim],
        *,
        job: str,
        folder: str,
        since: float,
    ) -> Lease | tuple[list[LockedFile], list[LockedFile]]:
        """With the guards held: the lease, or the holders and the earlier waiters."""
        looks: dict[str, Survey] = {}
        busy: list[LockedFile] = []
        waiting: list[LockedFile] = []
        is_busy = False
        try:
            files = self._listing.files()
            for gpu, ours in wanted.items():
                look = looks[gpu] = self._look(files, "claim", gpu, wanted=len(ours))
                earlier = [wish for wish in self._foreign_wishes(files, gpu) if wish.holder.since < since]
                taken = sum((other.holder.share for other in (*look.alive, *earlier)), Fraction())
                if taken + sum(claim.share for claim in ours) > 1:
                    is_busy = True
                    busy += look.alive
                    waiting += earlier
                elif not self._has_slots(files, look, len(ours)):
                    is_busy = True
                    busy += look.alive
            return (busy, waiting) if is_busy else self._write(claims, looks, job=job, folder=folder)
        finally:
            # Descriptors that _write gave to the lease are no longer in the looks.
            close_all(slot.fd for look in looks.values() for slot in look.free)

    def waited_for(self, claims: Sequence[Claim], *, since: float) -> Busy | None:
        """The waiters for one of these GPUs from before `since`, or None; then a lease may be handed on."""
        files = self._listing.files()
        for claim in claims:
            if not self._renewed_wishes(files, claim.gpu):
                continue
            guards = self._guards.hold([claim.gpu])
            if isinstance(guards, str):
                return Busy(guarded_by=guards, remedy=WAY_OUT)
            try:
                earlier = [wish for wish in self._foreign_wishes(files, claim.gpu) if wish.holder.since < since]
            finally:
                close_all(guards)
            if earlier:
                return _busy([], earlier)
        return None

    def hand_over(self, lease: Lease, claims: Sequence[Claim], *, job: str, folder: str) -> None:
        """Give a lease that we still hold to another job of ours, without unlocking it in between."""
        now = time.time()
        for file, claim in zip(lease.files, claims, strict=True):
            file.hand_on()
            write(self._folder, file.fd, self._record(claim, job=job, folder=folder, since=now))

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
                        rewrite(self._folder, claim.gpu, entry, partial(self._changed, claim, folder))
            finally:
                close_all(guards)
        return True

    def take_back(self, claims: Sequence[Claim], *, folder: str, since: float) -> Busy | None:
        """Record again what the attempt in this folder was leased before `lower`: all of it, or say why not.

        The process that has the locks has kept them. Live claims of others and wishes from before `since` go
        first.
        """
        wanted: dict[str, list[Claim]] = {}
        for claim in claims:
            check_key(claim.gpu)
            wanted.setdefault(claim.gpu, []).append(claim)
        guards = self._guards.hold(wanted)
        if isinstance(guards, str):
            return Busy(guarded_by=guards, remedy=WAY_OUT)
        try:
            files = self._listing.files()
            busy: list[LockedFile] = []
            waiting: list[LockedFile] = []
            for gpu, ours in wanted.items():
                alive = [one for one in self._look(files, "claim", gpu).alive if not self._is_of(one, folder)]
                earlier = [wish for wish in self._foreign_wishes(files, gpu) if wish.holder.since < since]
                taken = sum((one.holder.share for one in (*alive, *earlier)), Fraction())
                if taken + sum(claim.share for claim in ours) > 1:
                    busy += alive
                    waiting += earlier
            if not busy and not waiting:
                for claim in claims:
                    for entry in files.get(("claim", claim.gpu), ()):
                        if entry.uid == self._uid:
                            rewrite(self._folder, claim.gpu, entry, partial(self._changed, claim, folder))
        finally:
            close_all(guards)
        return _busy(busy, waiting) if busy or waiting else None

    def _is_of(self, one: LockedFile, folder: str) -> bool:
        """Whether a live claim is that of the attempt in this folder, of this user."""
        return one.holder.uid == self._uid and one.holder.folder == folder

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
        for gpu, wish in list(self._wishes.items()):
            if gpu not in shares or wish.file.is_lost(self._folder):
                self._wishes.pop(gpu).file.close()
        for gpu, claim in shares.items():
            record = self._record(claim, job=job, folder="", since=since)
            if gpu not in self._wishes and (slot := self._wish_slot(gpu)) is not None:
                self._wishes[gpu] = _Wish(ClaimFile(gpu, slot.name, fd=slot.fd))
            if ours := self._wishes.get(gpu):
                if ours.record != record:
                    write(self._folder, ours.file.fd, record)
                    ours.record = record
                os.utime(ours.file.fd)

    def end_wishes(self) -> None:
        for wish in self._wishes.values():
            wish.file.close()
        self._wishes.clear()

    def holders(self) -> list[Holder]:
        """The live claims of all users."""
        return list(self.look(kinds=("claim",)).holders)

    def waiting(self) -> list[Holder]:
        """The live wishes of all users, with ours."""
        return list(self.look(kinds=("wish",)).waiting)

    def look(self, *, kinds: Collection[str] = ("claim", "wish")) -> LeaseTable:
        """The live claims and wishes of all users, with ours."""
        files = self._listing.some_files()
        found: dict[str, list[LockedFile]] = {"claim": [], "wish": []}
        guarded_by: dict[str, str] = {}
        until = time.monotonic() + LISTING_DEADLINE
        for gpu in sorted({gpu for kind, gpu in files if kind in kinds} | self._listing.guards):
            with self._guarded(gpu, until) as guarded:
                for kind in kinds:
                    found[kind] += self._look(files, kind, gpu).alive
            if guarded:
                guarded_by[gpu] = guarded
        wishes = [wish for wish in found["wish"] if _is_fresh(wish.seen)]
        # Reading the kernel's locks takes milliseconds.
        pids = lockers() if found["claim"] or wishes else {}
        return LeaseTable(
            holders=tuple(_with_locker(claim, pids) for claim in found["claim"]),
            waiting=tuple(_with_locker(wish, pids) for wish in wishes),
            guarded_by=guarded_by,
            too_many=f"{self._folder}: {self._listing.too_many}" if self._listing.too_many else "",
        )

    # -- files that were deleted under their holders ---------------------------------------------------

    def find(self, claims: Mapping[str, int]) -> dict[str, Lease]:
        """Leases that only jobs hold, to be watched; `claims` is how many each attempt's folder should have.

        Claim files that were deleted are found as long as a process of the job has them open.
        """
        found: dict[str, list[ClaimFile]] = {folder: [] for folder in claims}
        files = self._listing.files()
        until = time.monotonic() + LISTING_DEADLINE
        for (kind, gpu), entries in files.items():
            if kind == "claim":
                ours = [entry for entry in entries if entry.uid == self._uid]
                with self._guarded(gpu, until):
                    alive = survey(self._folder, gpu, ours, uid=self._uid, wanted=0).alive
                    for one in alive:
                        if one.holder.folder in found and (witness := self._opened(one)) is not None:
                            found[one.holder.folder].append(ClaimFile(gpu, one.name, witness=witness))
        if any(len(found[folder]) < count for folder, count in claims.items()):
            for name, witness in deleted_claims(self._folder):
                file = ClaimFile(claim_gpu(name), name, witness=witness)
                holder = decode(file.record, file.gpu, self._uid)
                if file.gpu and holder.folder in found and file.is_held_by_its_job():
                    found[holder.folder].append(file)
                else:
                    file.close()
        return {folder: Lease(files) for folder, files in found.items()}

    def is_held_by_its_job(self, lease: Lease) -> bool:
        """Whether a process of the job has a file of this lease locked. We give up our own locks on them."""
        until = time.monotonic() + LISTING_DEADLINE
        is_held = False
        for file in lease.files:
            file.watch()
            with self._guarded(file.gpu, until):
                is_held |= file.is_held_by_its_job()
        return is_held

    def is_in_place(self, lease: Lease) -> bool:
        """Whether other programs see its files: none was deleted, moved or replaced."""
        return not any(file.is_lost(self._folder) for file in lease.files)

    def restore(self, lease: Lease) -> list[str]:
        """Make and lock again the files of this lease that were deleted; return their paths.

        Where a guard cannot be had this is left to the next call.
        """
        made: list[str] = []
        for file in lease.files:
            if not file.is_lost(self._folder) or (file.fd < 0 and not file.is_held_by_its_job()):
                continue
            guards = self._guards.hold([file.gpu], patience=LISTING_DEADLINE)
            if isinstance(guards, str):
                continue
            try:
                if (slot := self._slot("claim", file.gpu)) is not None:
                    path = f"{self._folder}/{file.name}"
                    holder = decode(file.record, file.gpu, self._uid)
                    file.replace(slot)
                    write(self._folder, file.fd, encode(replace(holder, pid=os.getpid())))
                    made.append(path)
            finally:
                close_all(guards)
        return made

    def overbooked(self, gpus: Iterable[str]) -> dict[str, str]:
        """Those of these GPUs whose live claims are more than one card, with a sentence about their holders."""
        files = self._listing.some_files()
        until = time.monotonic() + LISTING_DEADLINE
        found: dict[str, list[LockedFile]] = {}
        for gpu in gpus:
            with self._guarded(gpu, until):
                alive = self._look(files, "claim", gpu).alive
            if sum(one.holder.share for one in alive) > 1:
                found[gpu] = alive
        pids = lockers() if found else {}
        return {gpu: overbooking([_with_locker(one, pids) for one in alive]) for gpu, alive in found.items()}

    def close(self) -> None:
        """End the wishes. Leases are closed on their own."""
        self.end_wishes()

    @contextlib.contextmanager
    def _guarded(self, gpu: str, until: float) -> Iterator[str]:
        """Hold a GPU's guard for a look; the value says which process keeps it locked, if it cannot be had.

        Without the guard a look may disturb that of another process; that is better than missing a holder. A GPU
        without a guard was never leased: its files were planted.
        """
        guards: list[int] | str = []
        if gpu in self._listing.guards:
            try:
                guards = self._guards.hold([gpu], patience=max(0.0, until - time.monotonic()))
            except LeaseRefused as error:
                guards = error.message
        try:
            yield guards if isinstance(guards, str) else ""
        finally:
            close_all(() if isinstance(guards, str) else guards)

    def _opened(self, one: LockedFile) -> int | None:
        """A witness of a live claim file; None where it is not there any more."""
        try:
            witness = os.open(f"{self._folder}/{one.name}", os.O_RDONLY | SAFE)
        except OSError:
            return None
        if os.path.samestat(os.fstat(witness), one.seen):
            return witness
        os.close(witness)
        return None

    def _look(self, files: Files, kind: str, gpu: str, *, wanted: int = 0) -> Survey:
        return survey(self._folder, gpu, files.get((kind, gpu), ()), uid=self._uid, wanted=wanted)

    def _foreign_wishes(self, files: Files, gpu: str) -> list[LockedFile]:
        ours = self._wishes.get(gpu)
        inode = os.fstat(ours.file.fd).st_ino if ours else 0
        renewed = self._renewed_wishes(files, gpu)
        found = survey(self._folder, gpu, renewed, uid=self._uid, wanted=0).alive
        return [wish for wish in found if wish.seen.st_ino != inode and _is_fresh(wish.seen)]

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
            slot = self._new_slot(files, "claim", look.gpu)
            if slot is None:
                if any(alive.holder.uid == self._uid for alive in look.alive):
                    return False
                raise no_slot(self._folder, "claim", look.gpu, self._uid)
            look.free.append(slot)
        return True

    def _slot(self, kind: str, gpu: str) -> Slot | None:
        """With the guard held: a file of ours, locked; None when we have as many as one user may have."""
        files = self._listing.files()
        free = self._look(files, kind, gpu, wanted=1).free
        return free[0] if free else self._new_slot(files, kind, gpu)

    def _new_slot(self, files: Files, kind: str, gpu: str) -> Slot | None:
        return new_slot(self._folder, kind, gpu, self._uid, files.get((kind, gpu), ()))

    def _write(self, claims: Sequence[Claim], looks: dict[str, Survey], *, job: str, folder: str) -> Lease:
        files: list[ClaimFile] = []
        now = time.time()
        try:
            for claim in claims:
                slot = looks[claim.gpu].free.pop(0)
                files.append(ClaimFile(claim.gpu, slot.name, fd=slot.fd))
                write(self._folder, slot.fd, self._record(claim, job=job, folder=folder, since=now))
        except BaseException:
            Lease(files).close()
            raise
        return Lease(files)

    def _record(self, claim: Claim, *, job: str, folder: str, since: float) -> bytes:
        return encode(
            Holder(
                gpu=claim.gpu,
                user=self._user,
                uid=self._uid,
                pid=os.getpid(),
                job=job,
                since=since,
                share=claim.share,
                vram=claim.vram,
                folder=folder,
            )
        )

    def _changed(self, claim: Claim, folder: str, holder: Holder) -> bytes | None:
        """The record with this claim, for a holder in this folder; None for another one, or without a change."""
        if not folder or holder.folder != folder or (holder.share, holder.vram) == (claim.share, claim.vram):
            return None
        return encode(replace(holder, share=claim.share, vram=claim.vram))

    def _wish_slot(self, gpu: str) -> Slot | None:
        guards = self._guards.hold([gpu])
        if isinstance(guards, str):
            return None
        try:
            return self._slot("wish", gpu)
        finally:
            close_all(guards)


class _Wish:
    """A locked wish file of ours, and its last record."""

    def __init__(self, file: ClaimFile) -> None:
        self.file = file
        self.record = b""


def _both(one: Claim, other: Claim) -> Claim:
    return replace(one, share=min(Fraction(1), one.share + other.share), vram=one.vram + other.vram)


def _is_fresh(wish: os.stat_result) -> bool:
    return abs(time.time() - wish.st_mtime) < FRESH  # abs: the clock may have been set back


def _busy(holders: Sequence[LockedFile], waiting: Sequence[LockedFile]) -> Busy:
    """Never with a guard held: it reads the kernel's locks and the names of users."""
    pids = lockers()
    busy = Busy(
        holders=tuple(_with_locker(one, pids) for one in holders if one.holder.share),
        waiting=tuple(_with_locker(one, pids) for one in waiting),
    )
    is_for_ever = any(holder.file_of for holder in (*busy.holders, *busy.waiting))
    return replace(busy, remedy=WAY_OUT) if is_for_ever else busy


def _with_locker(locked: LockedFile, pids: Mapping[tuple[int, int, int], int]) -> Holder:
    """The holder, with the process that has the lock, where the kernel reports it.

    It differs from the record when the holder is in a container, and when another user has locked the file; then
    the claim is that user's, and not the job of the file's owner.
    """
    holder = with_user_name(locked.holder)
    pid = pids.get(file_key(locked.seen), holder.pid)
    if pid == holder.pid:  # as the record says; its number may have been used again since it ended
        return holder
    locker = who_is(pid) or Locker(-1, "an unknown user (it has ended, and a child of it has the lock)")
    if locker.uid == holder.uid:
        return replace(holder, pid=pid)
    return Holder(
        gpu=holder.gpu,
        user=locker.user,
        uid=locker.uid,
        pid=pid,
        job="",
        since=0.0,
        share=holder.share,
        vram=0,
        file_of=holder.user,
    )
