"""The names in the lease folder, by GPU."""

import os
import re
import time
from typing import NamedTuple

from dibs.errors import BadInput
from dibs.leases.files import cannot_write

MOST_SLOTS = 64  # per user and GPU; a hostile user cannot make us probe more files than that

_KEY = r"[A-Za-z0-9._:-]{1,128}"
_NAME = r"dibs-(claim|wish)-([A-Za-z0-9._:-]{1,128})-(0|[1-9][0-9]{0,9})-(0|[1-9][0-9]?)"
_COARSEST = 2.5  # seconds; file systems round the time of a change, the oldest ones to two seconds


class Entry(NamedTuple):
    """A claim or wish file, as its name tells."""

    name: str
    uid: int
    slot: int


Files = dict[tuple[str, str], list[Entry]]  # by ("claim" or "wish", key of the GPU), in order of their slots


class LeaseListing:
    """The claim and wish files of a folder. It is read again only when the folder has changed.

    Files are never deleted, so after a while nothing changes; and /tmp may hold thousands of other files.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._changed = -1
        self._files: Files = {}

    def files(self) -> Files:
        """What is there now. Ask after the guard is held: until then files may come."""
        now = time.time()
        try:
            changed = os.stat(self._folder).st_mtime_ns
            if changed == self._changed:
                return self._files
            self._files = _read(self._folder)
        except OSError as error:
            raise cannot_write(self._folder, error) from error
        # A file made within the same tick would not move the time: do not trust a fresh one.
        self._changed = changed if changed / 1e9 < now - _COARSEST else -1
        return self._files


def file_name(kind: str, gpu: str, uid: int, slot: int) -> str:
    return f"dibs-{kind}-{gpu}-{uid}-{slot}"


def check_key(gpu: str) -> None:
    """Refuse a key that would lead out of the folder."""
    if not re.fullmatch(_KEY, gpu):
        raise BadInput(f"cannot lease GPU {gpu!r}: that is no GPU's UUID or number", remedy="see `dibs gpus`")


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
