"""The guard of each GPU: a lock for the moment of "look, then claim"."""

import os
import time
from collections.abc import Iterable

from dibs.leases.files import lock, open_safely
from dibs.leases.who import file_key, lockers, owner_of, user_name


class Guards:
    """The guards in one folder. They are held for microseconds, by anybody, and never inherited."""

    def __init__(self, folder: str, *, patience: float) -> None:
        self._folder = folder
        self._patience = patience  # seconds
        self._stuck: set[str] = set()

    def hold(self, gpus: Iterable[str], *, patience: float | None = None) -> list[int] | str:
        """Lock the guards of these GPUs, in an order all agree on, or say who keeps one from us.

        The caller closes the descriptors. One deadline for all; and who was waited for once in vain is only
        asked, not waited for again, so that the jobs on other GPUs go on.
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
            # Still the same file: while we waited it may have been replaced, and others lock the new one.
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
