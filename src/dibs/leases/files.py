"""Files in a folder where every user may write: opening and locking them, and the claims and wishes in them.

Other users write such files too, so nothing in them is trusted.
"""

import fcntl
import json
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from errno import EACCES, EISDIR, ELOOP, ENOENT, ENOSPC, ENXIO, EPERM
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from dibs.dataclass import dataclass
from dibs.errors import BadInput, DibsError
from dibs.leases.lockers import file_key, lockers, user_name, who_is

# All users must be able to open, and so to probe, all files. The sticky bit keeps systemd-tmpfiles from removing
# old ones: with its file deleted under a running job, a card would be booked twice.
MODE = 0o1644
NOT_OURS = (EACCES, EISDIR, ELOOP, ENOENT, ENXIO, EPERM)  # errors of opening a planted name
SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MOST_SLOTS = 64  # per user and GPU: a hostile user cannot make us probe more files than that
MOST_FILES = 10_000  # in the folder: with more, made by a hostile user, a look would take seconds
_KEY = r"[A-Za-z0-9._:-]{1,128}"
_NAME = re.compile(r"dibs-(claim|wish)-([A-Za-z0-9._:-]{1,128})-(0|[1-9][0-9]{0,9})-(0|[1-9][0-9]?)")
_GUARD = re.compile(r"dibs-guard-([A-Za-z0-9._:-]{1,128})")
_COARSEST = 2.5  # seconds; file systems round the time of a change, the oldest ones to two seconds
LONGEST = 32768  # bytes of a record that are read, enough for the longest path of the kernel
_ROUND = 256  # bytes; LONGEST is a multiple of it
_SHARE = re.compile(r"[0-9]{1,9}(/[0-9]{1,9})?")  # Fraction("1e999999999") would take for ever
_LATEST = 2.5e11  # seconds since the epoch, in the year 9892; the calendar of Python ends soon after it
_MOST_BYTES = 2**53  # of memory; a larger number is not exact in JSON
_LONGEST_NAME = 200  # characters of a job's name that are shown
_LONGEST_USER = 64
_MOST_NAMED = 8  # holders of a GPU that a sentence names; one user may have 64 claims
# What helps without root against another user's lock.
WAY_OUT = (
    "ask that user to end it, use another GPU, or set DIBS_LEASES to a folder of your own"
    " (other users then do not see your leases, and you do not see theirs)"
)
_SAMPLE = 200  # of too many files, those whose owners are looked up


class LeaseRefused(DibsError):
    """A file or folder for leases is not what it should be; nothing was written to it."""

    code = "lease-refused"


def open_safely(folder: str, name: str, *, create: bool, owner: int | None = None) -> int:
    """Open a regular file with one link, or refuse; with `owner`, for writing and only if it has this owner.

    Without an owner it is opened for reading, which is enough to lock it.
    """
    path = f"{folder}/{name}"
    access = (os.O_RDONLY if owner is None else os.O_RDWR) | SAFE
    refused: LeaseRefused | None = None
    for _ in range(20):
        try:
            opened = os.open(path, access)
        except FileNotFoundError:
            if not create:
                raise
            # Never O_CREAT without O_EXCL: fs.protected_regular refuses it on other users' files.
            try:
                opened = os.open(path, access | os.O_CREAT | os.O_EXCL, MODE)
            except FileExistsError:
                continue  # another process was faster; open its file
            except OSError as error:
                raise cannot_use(path, error) from error
            os.fchmod(opened, MODE)  # whatever the umask is
            return opened
        except PermissionError as error:
            refused = cannot_use(path, error)
            time.sleep(0.002)  # under a umask of 077 it cannot be opened until the fchmod
            continue
        except OSError as error:
            raise cannot_use(path, error) from error
        seen = os.fstat(opened)
        if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1 or owner not in (None, seen.st_uid):
            os.close(opened)
            if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 0:
                continue  # deleted in this moment; open the next one
            raise planted(path)
        if seen.st_uid == os.geteuid():
            mend_mode(opened, seen)
        return opened
    raise refused or planted(path)


def mend_mode(opened: int, seen: os.stat_result) -> None:
    """Give a file of ours its mode, if we were killed between creating it and the fchmod."""
    if stat.S_IMODE(seen.st_mode) != MODE:
        os.fchmod(opened, MODE)


def lock(opened: int) -> bool:
    """Lock it; False if another process has locked it."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def planted(path: str) -> LeaseRefused:
    """The error for a name at which there is something other than our file."""
    return LeaseRefused(
        f"cannot use {path}: it is {_what_is(path)}",
        remedy=f"its owner or an admin can remove it (`rm -r {path}`); or set DIBS_LEASES to another folder",
    )


def cannot_use(path: str, error: OSError) -> LeaseRefused:
    """The error for a file that cannot be opened."""
    if error.errno in NOT_OURS and os.path.lexists(path):
        return planted(path)
    return cannot_write(os.path.dirname(path), error)


def cannot_write(folder: str, error: OSError) -> LeaseRefused:
    """The error for a folder that cannot be used."""
    return LeaseRefused(
        f"cannot keep leases in {folder}: {error.strerror}",
        remedy="set DIBS_LEASES to a folder on a local disk that you may write to",
    )


def _what_is(path: str) -> str:
    try:
        seen = os.lstat(path)
    except OSError:
        return "no longer there"
    kind = _KINDS.get(stat.S_IFMT(seen.st_mode), "not a regular file")
    if stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1:
        kind = "a file with a second name"
    return f"{kind} of {user_name(seen.st_uid) or f'uid {seen.st_uid}'}"


_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a folder",
}


class GpuGuards:
    """The guard of each GPU: a lock for "look, then claim". Held for microseconds, and never inherited."""

    def __init__(self, folder: str, *, patience: float) -> None:
        self._folder = folder
        self._patience = patience  # seconds
        self._stuck: set[str] = set()

    def hold(self, gpus: Iterable[str], *, patience: float | None = None) -> list[int] | str:
        """Lock the guards of these GPUs, in sorted order, or say which process keeps one locked.

        The caller closes the descriptors. There is one deadline for all; a guard that was not free in time is
        tried without waiting from then on, so that the jobs on other GPUs go on.
        """
        held: list[int] = []
        until = time.monotonic() + (self._patience if patience is None else patience)
        try:
            for gpu in sorted(gpus):
                guard = self._lock(gpu, 0.0 if gpu in self._stuck else until)
                if guard is None:
                    self._stuck.add(gpu)
                    close_all(held)
                    return self._who_keeps(gpu)
                held.append(guard)
                self._stuck.discard(gpu)
        except BaseException:
            close_all(held)
            raise
        return held

    def are_in_place(self, gpus: Iterable[str], held: Sequence[int]) -> bool:
        """Whether these guards, as `hold` returned them, are still the files that other processes lock."""
        return all(self._is_still(guard, guard_name(gpu)) for gpu, guard in zip(sorted(gpus), held, strict=True))

    def _lock(self, gpu: str, until: float) -> int | None:
        name = guard_name(gpu)
        pause = 0.0002
        while True:
            guard = open_safely(self._folder, name, create=True)
            # It must still be the same file: if it was replaced meanwhile, other processes lock the new one.
            if lock(guard) and self._is_still(guard, name):
                return guard
            os.close(guard)
            if time.monotonic() >= until:
                return None
            time.sleep(pause)
            pause = min(2 * pause, 0.005)

    def _is_still(self, guard: int, name: str) -> bool:
        return is_at(f"{self._folder}/{name}", guard)

    def _who_keeps(self, gpu: str) -> str:
        path = f"{self._folder}/{guard_name(gpu)}"
        try:
            pid = lockers().get(file_key(os.stat(path, follow_symlinks=False)), 0)
        except OSError:
            pid = 0
        locker = who_is(pid) if pid else None
        if locker is None:
            return f"another process, which the kernel does not name, keeps {path} locked"
        return f"process {pid} of {locker.user} keeps {path} locked"


def is_at(path: str, opened: int) -> bool:
    """Whether this descriptor is the file at the path; not where that was deleted, moved or replaced."""
    try:
        there = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(os.fstat(opened), there)


def close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class Entry(NamedTuple):
    """A claim or wish file, by its name."""

    name: str
    uid: int
    slot: int


Files = dict[tuple[str, str], list[Entry]]  # by ("claim" or "wish", key of the GPU), in order of their slots


class LeaseListing:
    """The claim and wish files of a folder. It is read again only when the folder has changed.

    Files are never deleted, so after a while nothing changes; and /tmp may contain thousands of other files.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._changed = -1
        self._files: Files = {}
        self.guards: frozenset[str] = frozenset()  # the GPUs that have one
        self.too_many = ""  # said where the folder has more files than are looked at

    def files(self) -> Files:
        """The files now. Call it with the guard held: without it files may be added.

        Refused where there are too many: a claim among those that are not looked at would be missed.
        """
        files = self.some_files()
        if self.too_many:
            raise LeaseRefused(f"cannot lease GPUs in {self._folder}: {self.too_many}", remedy=WAY_OUT)
        return files

    def some_files(self) -> Files:
        """As `files`, but where there are too many, some of them; `too_many` says so."""
        now = time.time()
        try:
            changed = os.stat(self._folder).st_mtime_ns
            if changed == self._changed:
                return self._files
            self._read()
        except OSError as error:
            raise cannot_write(self._folder, error) from error
        # A file created within the same tick does not change the time: do not rely on a recent one.
        self._changed = changed if changed / 1e9 < now - _COARSEST else -1
        return self._files

    def _read(self) -> None:
        files: Files = {}
        guards: set[str] = set()
        names: list[str] = []
        self.too_many = ""
        with os.scandir(self._folder) as found:
            for name in (one.name for one in found if one.name.startswith("dibs-")):
                if match := _NAME.fullmatch(name):
                    kind, gpu, uid, slot = match.groups()
                    if int(slot) < MOST_SLOTS:
                        files.setdefault((kind, gpu), []).append(Entry(name, int(uid), int(slot)))
                elif match := _GUARD.fullmatch(name):
                    guards.add(match[1])
                else:
                    continue
                names.append(name)
                if len(names) > MOST_FILES:
                    self.too_many = self._crowd(names)
                    break
        for entries in files.values():
            entries.sort(key=lambda entry: entry.slot)
        self._files, self.guards = files, frozenset(guards)

    def _crowd(self, names: Sequence[str]) -> str:
        """The sentence about too many files, and about the user that most of them belong to."""
        owners: Counter[int] = Counter()
        for name in names[-_SAMPLE:]:
            with suppress(OSError):
                owners[os.lstat(f"{self._folder}/{name}").st_uid] += 1
        uid = max(owners, key=lambda owner: owners[owner], default=0)
        return (
            f"it has more than {MOST_FILES:,} lease files, most of them of {user_name(uid) or f'uid {uid}'},"
            " and not all are looked at"
        )


def file_name(kind: str, gpu: str, uid: int, slot: int) -> str:
    return f"dibs-{kind}-{gpu}-{uid}-{slot}"


def guard_name(gpu: str) -> str:
    return f"dibs-guard-{gpu}"


def claim_gpu(name: str) -> str:
    """The GPU of a claim file; empty for a name that we never write."""
    match = _NAME.fullmatch(name)
    return match[2] if match and match[1] == "claim" else ""


def check_key(gpu: str) -> None:
    """Refuse a key that is not a plain file name."""
    if not re.fullmatch(_KEY, gpu):
        raise BadInput(f"cannot lease GPU {gpu!r}: it is not a GPU's UUID or number", remedy="see `dibs gpus`")


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """A holder of, or a waiter for, a share of a GPU."""

    gpu: str  # the card's key
    user: str
    uid: int  # the owner of the file, whatever its content; of the process where another user locked it
    pid: int  # the process that took it, 0 where unknown; its job may outlive it
    job: str
    since: float  # seconds since the epoch; 0 where unknown
    share: Fraction
    vram: int  # bytes; 0 where none were asked for
    folder: str = ""  # the attempt's folder; empty if unknown
    file_of: str = ""  # the user whose claim file it keeps locked, where that is not its own

    @property
    def in_words(self) -> str:
        """The holder, for a sentence."""
        if self.file_of:
            return f"process {self.pid} of {self.user}, which keeps a lease file of {self.file_of} locked"
        return f"job {self.job or '?'} of {self.user} (pid {self.pid or '?'})"


def in_words(holders: Sequence[Holder]) -> tuple[str, ...]:
    """The holders, for a sentence; of many the first ones, and how many more."""
    first = tuple(holder.in_words for holder in holders[:_MOST_NAMED])
    more = len(holders) - _MOST_NAMED
    return (*first, f"{more} more") if more > 0 else first


def overbooking(holders: Sequence[Holder]) -> str:
    """The sentence about a GPU whose holders have more than one card; empty where they fit."""
    if sum((holder.share for holder in holders), Fraction()) <= 1:
        return ""
    return f"is overbooked: it is held by {' and '.join(in_words(holders))}"


def encode(holder: Holder) -> bytes:
    """The record of one claim or wish. A folder too long for it is left out, a job's name is cut."""
    fields = {
        "gpu": holder.gpu,
        "user": holder.user[:_LONGEST_USER],
        "uid": holder.uid,
        "pid": holder.pid,
        "job": holder.job[:_LONGEST_NAME],
        "since": holder.since,
        "share": str(holder.share),
        "vram": holder.vram,
        "folder": holder.folder,
    }
    record = json.dumps(fields).encode()
    if len(record) > LONGEST:
        record = json.dumps(fields | {"folder": ""}).encode()
    # Padded to a round length, so that the next record usually has the same size.
    return record.ljust(-(-len(record) // _ROUND) * _ROUND)


@lru_cache(maxsize=1024)
def decode(record: bytes, gpu: str, uid: int) -> Holder:
    """The holder of a locked file. An unreadable record counts as a whole card.

    Cached by every byte of the record: decoding an unchanged claim again is cheap.
    """
    try:
        fields = json.loads(record)
        share, since, pid = fields["share"], float(fields["since"]), int(fields["pid"])
        vram, folder = int(fields["vram"]), fields["folder"]
        if not _SHARE.fullmatch(share) or not 0 <= Fraction(share) <= 1 or not isinstance(folder, str):
            raise ValueError(record)
        if not (0 <= since <= _LATEST and 0 <= pid < 2**31 and 0 <= vram <= _MOST_BYTES):
            raise ValueError(record)
        return Holder(
            gpu=gpu,
            user=_shown(fields["user"], _LONGEST_USER),
            uid=uid,
            pid=pid,
            job=_shown(fields["job"], _LONGEST_NAME),
            since=since,
            share=Fraction(share),
            vram=vram,
            folder=folder,
        )
    except (ValueError, TypeError, KeyError, ZeroDivisionError, OverflowError, RecursionError):
        return Holder(gpu=gpu, user="", uid=uid, pid=0, job="", since=0.0, share=Fraction(1), vram=0)


def with_user_name(holder: Holder) -> Holder:
    """The holder with the system's name of the file's owner; the file could contain any."""
    return replace(holder, user=user_name(holder.uid) or holder.user or f"uid {holder.uid}")


def _shown(text: object, longest: int) -> str:
    """Text from another user: one line without control characters, and short."""
    if not isinstance(text, str):
        raise TypeError(text)
    text = text[: longest + 1]
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


class LockedFile(NamedTuple):
    """A locked file."""

    name: str
    holder: Holder
    seen: os.stat_result


class Slot(NamedTuple):
    """A file of ours, locked by us."""

    fd: int
    name: str


class Survey:
    """The files of one kind for one GPU: those that are locked, and free ones of ours."""

    def __init__(self, gpu: str) -> None:
        self.gpu = gpu
        self.alive: list[LockedFile] = []
        self.free: list[Slot] = []  # ours, locked for us; the caller closes them


def survey(folder: str, gpu: str, entries: Sequence[Entry], *, uid: int, wanted: int) -> Survey:
    """Probe each file, and keep the lock of up to `wanted` free ones of ours.

    Only with the GPU's guard held: probing locks a free file for a moment.
    """
    found = Survey(gpu)
    try:
        for entry in entries:
            _look(folder, entry, found, ours=entry.uid == uid and len(found.free) < wanted)
    except BaseException:
        close_all(slot.fd for slot in found.free)
        raise
    return found


def _look(folder: str, entry: Entry, found: Survey, *, ours: bool) -> None:
    opened = _open(folder, entry, os.O_RDWR if ours else os.O_RDONLY)
    if opened is None:
        return
    try:
        is_free = lock(opened)
        seen = os.fstat(opened)  # after the lock: a file deleted before it has no link left
        if not stat.S_ISREG(seen.st_mode) or seen.st_uid != entry.uid:
            return
        if not is_free:
            # Whatever the number of links: a second name planted for a live claim must not hide it.
            record = os.pread(opened, min(seen.st_size, LONGEST), 0)
            found.alive.append(LockedFile(entry.name, decode(record, found.gpu, entry.uid), seen))
        elif ours and seen.st_nlink == 1:
            mend_mode(opened, seen)
            found.free.append(Slot(opened, entry.name))
            opened = -1
    finally:
        if opened >= 0:
            os.close(opened)


def rewrite(folder: str, gpu: str, entry: Entry, record_of: Callable[[Holder], bytes | None]) -> None:
    """Replace the record in a file of ours, locked or not. Only with the GPU's guard held."""
    opened = _open(folder, entry, os.O_RDWR)
    if opened is None:
        return
    try:
        seen = os.fstat(opened)
        if not stat.S_ISREG(seen.st_mode) or seen.st_uid != entry.uid:
            return
        record = record_of(decode(os.pread(opened, min(seen.st_size, LONGEST), 0), gpu, entry.uid))
        if record is not None:
            write(folder, opened, record)
    finally:
        os.close(opened)


def _open(folder: str, entry: Entry, access: int) -> int | None:
    """None for a name that is planted, or not ours to open."""
    path = f"{folder}/{entry.name}"
    try:
        return os.open(path, access | SAFE)
    except OSError as error:
        if error.errno in NOT_OURS:
            return None
        raise cannot_use(path, error) from error


def new_slot(folder: str, kind: str, gpu: str, uid: int, listed: Sequence[Entry]) -> Slot | None:
    """Create and lock another file of ours; None when we have as many as one user may have."""
    used = {entry.slot for entry in listed if entry.uid == uid}
    for slot in range(MOST_SLOTS):
        if slot in used:
            continue
        name = file_name(kind, gpu, uid, slot)
        try:
            opened = open_safely(folder, name, create=True, owner=uid)
        except LeaseRefused:
            if not os.path.lexists(f"{folder}/{name}"):
                raise  # not planted: no file can be created in the folder
            continue
        if lock(opened):
            return Slot(opened, name)
        os.close(opened)
    return None


class ClaimFile:
    """The claim file of an attempt on one GPU.

    A deleted file cannot be linked again, and its job cannot be given another: it is made again and locked by this
    process, while the job keeps the deleted one locked until it ends.
    """

    def __init__(self, gpu: str, name: str, *, fd: int = -1, witness: int = -1) -> None:
        self.gpu = gpu
        self.name = name
        self.fd = fd  # locked by us; -1: only its job has it locked
        self.witness = witness  # on the file that the job has locked, where `fd` is not; never locked for long

    def is_lost(self, folder: str) -> bool:
        """Whether other programs do not see it any more: it was deleted, moved or replaced."""
        return not is_at(f"{folder}/{self.name}", self._shown)

    @property
    def record(self) -> bytes:
        return os.pread(self._shown, LONGEST, 0)

    def watch(self) -> None:
        """Give up our own lock: from now on the file is locked only while its job lives."""
        if self.witness < 0:
            self.witness = _opened_again(self.fd)
            os.close(self.fd)
            self.fd = -1

    def is_held_by_its_job(self) -> bool:
        """Only of a file that is watched or was made again, and with the GPU's guard held."""
        if not lock(self.witness):
            return True
        fcntl.flock(self.witness, fcntl.LOCK_UN)  # a lock of the witness alone: no other process shares it
        return False

    def replace(self, slot: Slot) -> None:
        """It was made again: other programs see this file from now on."""
        if self.witness < 0:
            self.witness = _opened_again(self.fd)
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self.name = slot

    def hand_on(self) -> None:
        """The job has ended, and the next one gets our lock."""
        if self.witness >= 0:
            os.close(self.witness)
            self.witness = -1

    def close(self) -> None:
        close_all(fd for fd in (self.fd, self.witness) if fd >= 0)

    @property
    def _shown(self) -> int:
        """The file that other programs see."""
        return self.fd if self.fd >= 0 else self.witness


def _opened_again(fd: int) -> int:
    """A descriptor of the same file, deleted or not, that shares no lock with this one."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)


def no_slot(folder: str, kind: str, gpu: str, uid: int) -> LeaseRefused:
    """The error when files of others have all our names."""
    return planted(f"{folder}/{file_name(kind, gpu, uid, 0)}")


def write(folder: str, opened: int, record: bytes) -> None:
    """Replace the content of a file in this folder."""
    try:
        if os.pwrite(opened, record, 0) != len(record):
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        if os.fstat(opened).st_size != len(record):
            os.ftruncate(opened, len(record))
    except OSError as error:
        raise cannot_write(folder, error) from error
