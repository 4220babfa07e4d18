"""Claim and wish files: which of them are alive, and a free one of ours to write into."""

import os
import stat
from collections.abc import Callable, Sequence
from errno import ENOSPC
from typing import NamedTuple

from dibs.leases.files import (
    NOT_OURS,
    SAFE,
    LeaseRefused,
    cannot_use,
    cannot_write,
    lock,
    mend_mode,
    open_safely,
    planted,
)
from dibs.leases.guards import close_all
from dibs.leases.listing import MOST_SLOTS, Entry, file_name
from dibs.leases.records import LONGEST, Holder, decode


class Alive(NamedTuple):
    """A file that somebody has locked."""

    holder: Holder
    seen: os.stat_result


class Survey:
    """What a look at the files of one kind for one GPU found."""

    def __init__(self, gpu: str) -> None:
        self.gpu = gpu
        self.alive: list[Alive] = []
        self.free: list[int] = []  # ours, locked for us; the caller closes them


def survey(folder: str, gpu: str, entries: Sequence[Entry], *, uid: int, wanted: int) -> Survey:
    """Look at each file, and keep the lock of up to `wanted` free ones of ours.

    Only under the GPU's guard: for the moment of a look, a free file is locked.
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
    path = f"{folder}/{entry.name}"
    try:
        opened = os.open(path, (os.O_RDWR if ours else os.O_RDONLY) | SAFE)
    except OSError as error:
        if error.errno in NOT_OURS:
            return
        raise cannot_use(path, error) from error
    try:
        is_free = lock(opened)
        seen = os.fstat(opened)  # after the lock: a file that was deleted before it has no link left
        if not stat.S_ISREG(seen.st_mode) or seen.st_uid != entry.uid:
            return
        if not is_free:
            # However many links: a second name planted for a live claim must not hide it.
            record = os.pread(opened, min(seen.st_size, LONGEST), 0)
            found.alive.append(Alive(decode(record, found.gpu, entry.uid), seen))
        elif ours and seen.st_nlink == 1:
            mend_mode(opened, seen)
            found.free.append(opened)
            opened = -1
    finally:
        if opened >= 0:
            os.close(opened)


def rewrite(folder: str, gpu: str, entry: Entry, record_of: Callable[[Holder], bytes | None]) -> None:
    """Replace what stands in a file of ours, whoever has it locked. Only under the GPU's guard."""
    path = f"{folder}/{entry.name}"
    try:
        opened = os.open(path, os.O_RDWR | SAFE)
    except OSError as error:
        if error.errno in NOT_OURS:
            return
        raise cannot_use(path, error) from error
    try:
        seen = os.fstat(opened)
        if not stat.S_ISREG(seen.st_mode) or seen.st_uid != entry.uid:
            return
        record = record_of(decode(os.pread(opened, min(seen.st_size, LONGEST), 0), gpu, entry.uid))
        if record is not None:
            write(folder, opened, record)
    finally:
        os.close(opened)


def new_slot(folder: str, kind: str, gpu: str, uid: int, listed: Sequence[Entry]) -> int | None:
    """Make and lock another file of ours; None when we have as many as one user may have."""
    used = {entry.slot for entry in listed if entry.uid == uid}
    for slot in range(MOST_SLOTS):
        if slot in used:
            continue
        name = file_name(kind, gpu, uid, slot)
        try:
            opened = open_safely(folder, name, create=True, owner=uid)
        except LeaseRefused:
            if not os.path.lexists(f"{folder}/{name}"):
                raise  # not planted: the folder takes no files
            continue
        if lock(opened):
            return opened
        os.close(opened)
    return None


def no_slot(folder: str, kind: str, gpu: str, uid: int) -> LeaseRefused:
    """The error when all our names are taken by things that are not ours."""
    return planted(f"{folder}/{file_name(kind, gpu, uid, 0)}")


def write(folder: str, opened: int, record: bytes) -> None:
    """Replace what stands in a file of this folder."""
    try:
        if os.pwrite(opened, record, 0) != len(record):
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        if os.fstat(opened).st_size != len(record):
            os.ftruncate(opened, len(record))
    except OSError as error:
        raise cannot_write(folder, error) from error
