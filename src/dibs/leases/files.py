"""Files in a folder where every user may write: opening and locking them, and the claims and wishes in them.

Other users write such files too, so nothing in them is trusted.
"""

import fcntl
import json
import math
import os
import pwd
import re
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from errno import EACCES, EISDIR, ELOOP, ENOENT, ENOSPC, ENXIO, EPERM
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from dibs.errors import BadInput, DibsError
from dibs.model.gpus import Claim

# All users must be able to open, and so to probe, all files. The sticky bit keeps systemd-tmpfiles from removing
# old ones: with its file deleted under a running job, a card would be booked twice.
MODE = 0o1644
NOT_OURS = (EACCES, EISDIR, ELOOP, ENOENT, ENXIO, EPERM)  # errors of opening a planted name
SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MOST_SLOTS = 64  # per user and GPU: a hostile user cannot make us probe more files than that
_KEY = r"[A-Za-z0-9._:-]{1,128}"
_NAME = r"dibs-(claim|wish)-([A-Za-z0-9._:-]{1,128})-(0|[1-9][0-9]{0,9})-(0|[1-9][0-9]?)"
_COARSEST = 2.5  # seconds; file systems round the time of a change, the oldest ones to two seconds
LONGEST = 32768  # bytes of a record that are read, enough for the longest path of the kernel
_ROUND = 256  # bytes; LONGEST is a multiple of it
_SHARE = re.compile(r"[0-9]{1,9}(/[0-9]{1,9})?")  # Fraction("1e999999999") would take for ever


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

    def _lock(self, gpu: str, until: float) -> int | None:
        name = f"dibs-guard-{gpu}"
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
        try:
            there = os.stat(f"{self._folder}/{name}", follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(guard), there)

    def _who_keeps(self, gpu: str) -> str:
        path = f"{self._folder}/dibs-guard-{gpu}"
        try:
            pid = lockers().get(file_key(os.stat(path, follow_symlinks=False)), 0)
        except FileNotFoundError:
            pid = 0
        uid = owner_of(pid) if pid else None
        if uid is None:
            return f"another process keeps {path} locked"
        return f"process {pid} of {user_name(uid) or f'uid {uid}'} keeps {path} locked"


def close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """The name of a user; empty where the system has none, as in a container.

    It may ask a directory server: never call it with a guard held.
    """
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def lockers() -> dict[tuple[int, int, int], int]:
    """The process that took each lock on this machine, by its file's device numbers and inode.

    A lock that a child inherited is still listed under the process that took it. Locks that the kernel hides,
    for example of another container, are missing.
    """
    found = {}
    try:
        with open("/proc/locks") as lines:
            for line in lines:
                words = line.split()
                if words[1] == "FLOCK":
                    major, minor, inode = words[5].split(":")
                    found[int(major, 16), int(minor, 16), int(inode)] = int(words[4])
    except (OSError, ValueError, IndexError):
        pass
    return found


def file_key(seen: os.stat_result) -> tuple[int, int, int]:
    """A file as `lockers` names it."""
    return os.major(seen.st_dev), os.minor(seen.st_dev), seen.st_ino


def owner_of(pid: int) -> int | None:
    """The uid of a process; None if it has ended."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


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

    def files(self) -> Files:
        """The files now. Call it with the guard held: without it files may be added."""
        now = time.time()
        try:
            changed = os.stat(self._folder).st_mtime_ns
            if changed == self._changed:
                return self._files
            self._files = _read(self._folder)
        except OSError as error:
            raise cannot_write(self._folder, error) from error
        # A file created within the same tick does not change the time: do not rely on a recent one.
        self._changed = changed if changed / 1e9 < now - _COARSEST else -1
        return self._files


def file_name(kind: str, gpu: str, uid: int, slot: int) -> str:
    return f"dibs-{kind}-{gpu}-{uid}-{slot}"


def check_key(gpu: str) -> None:
    """Refuse a key that is not a plain file name."""
    if not re.fullmatch(_KEY, gpu):
        raise BadInput(f"cannot lease GPU {gpu!r}: it is not a GPU's UUID or number", remedy="see `dibs gpus`")


def _read(folder: str) -> Files:
    files: Files = {}
    for name in os.listdir(folder):
        if name.startswith("dibs-") and (match := re.fullmatch(_NAME, name)):
            kind, gpu, uid, slot = match.groups()
            if int(slot) < MOST_SLOTS:
                files.setdefault((kind, gpu), []).append(Entry(name, int(uid), int(slot)))
    for entries in files.values():
        entries.sort(key=lambda entry: entry.slot)
    return files


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """A holder of, or a waiter for, a share of a GPU."""

    gpu: str  # the card's key
    user: str
    uid: int  # the owner of the file, whatever its content
    pid: int  # the process that took it, 0 where unknown; its job may outlive it
    job: str
    since: float  # seconds since the epoch
    share: Fraction
    vram: int  # bytes; 0 where none were asked for
    folder: str = ""  # the attempt's folder; empty if unknown


def encode(claim: Claim, *, user: str, uid: int, pid: int, job: str, folder: str, since: float) -> bytes:
    """The record of one claim or wish. A folder too long for it is left out, a job's name is cut."""
    fields = {
        "gpu": claim.gpu,
        "user": user[:64],
        "uid": uid,
        "pid": pid,
        "job": job[:200],
        "since": since,
        "share": str(claim.share),
        "vram": claim.vram,
        "folder": folder,
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
        if not _SHARE.fullmatch(share) or not 0 < Fraction(share) <= 1 or not math.isfinite(since):
            raise ValueError(record)
        return Holder(
            gpu=gpu,
            user=_shown(fields["user"]),
            uid=uid,
            pid=pid,
            job=_shown(fields["job"]),
            since=since,
            share=Fraction(share),
            vram=int(fields["vram"]),
            folder=str(fields["folder"]),
        )
    except (ValueError, TypeError, KeyError, ZeroDivisionError, OverflowError, RecursionError):
        return Holder(gpu=gpu, user="", uid=uid, pid=0, job="", since=0.0, share=Fraction(1), vram=0)


def with_user_name(holder: Holder) -> Holder:
    """The holder with the system's name of the file's owner; the file could contain any."""
    return replace(holder, user=user_name(holder.uid) or holder.user or f"uid {holder.uid}")


def _shown(text: object) -> str:
    """Text from another user, without control characters."""
    if not isinstance(text, str):
        raise TypeError(text)
    return text if text.isprintable() else ascii(text)[1:-1]


class LockedFile(NamedTuple):
    """A locked file."""

    holder: Holder
    seen: os.stat_result


class Survey:
    """The files of one kind for one GPU: those that are locked, and free ones of ours."""

    def __init__(self, gpu: str) -> None:
        self.gpu = gpu
        self.alive: list[LockedFile] = []
        self.free: list[int] = []  # ours, locked for us; the caller closes them


def survey(folder: str, gpu: str, entries: Sequence[Entry], *, uid: int, wanted: int) -> Survey:
    """Probe each file, and keep the lock of up to `wanted` free ones of ours.

    Only with the GPU's guard held: probing locks a free file for a moment.
    """
    found = Survey(gpu)
    try:
        for entry in entries:
            _look(folder, entry, found, ours=entry.uid == uid and len(found.free) < wanted)
    except BaseException:
        close_all(found.free)
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
            found.alive.append(LockedFile(decode(record, found.gpu, entry.uid), seen))
        elif ours and seen.st_nlink == 1:
            mend_mode(opened, seen)
            found.free.append(opened)
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


def new_slot(folder: str, kind: str, gpu: str, uid: int, listed: Sequence[Entry]) -> int | None:
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
            return opened
        os.close(opened)
    return None


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
