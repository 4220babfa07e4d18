"""Takes a CUDA program off its card and puts it back: the checkpoint calls of NVIDIA's driver, from 570 on.

The calls are made from another process of the same user, which needs no context of its own. They have no deadline:
one about a process that is stopped by a signal hangs until it goes on, and one about a process that another caller
has in the middle of a step waits until that step is done. So they are made where hanging does no harm.
"""

import ctypes
import os
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

LIBRARY = "libcuda.so.1"
_OLDEST = 570  # the first driver with these calls
_PREFIX = "cuCheckpointProcess"
_CALLS = tuple(f"{_PREFIX}{name}" for name in ("GetState", "Lock", "Checkpoint", "Restore", "Unlock"))
_NOT_INITIALIZED, WRONG_HANDLE, WRONG_STEP = 3, 304, 401
OUT_OF_MEMORY, NOT_READY, NOT_PERMITTED, NOT_SUPPORTED = 2, 600, 800, 801
_PHRASES = {
    1: "the driver refuses it",
    OUT_OF_MEMORY: "the card has too little free memory",
    _NOT_INITIALIZED: "it is no CUDA program",
    100: "there is no card",
    WRONG_HANDLE: "the process is gone, or cannot be reached",
    WRONG_STEP: "it is not in the state for this step",
    NOT_READY: "its work on the card did not end in time",
    NOT_PERMITTED: "it is not permitted",
    NOT_SUPPORTED: "it uses memory that cannot be moved",
}


class ProcessState(StrEnum):
    """How a process stands with the driver."""

    RUNNING = "running"
    LOCKED = "locked"  # its next call to CUDA waits; its memory is on the card
    CHECKPOINTED = "checkpointed"  # its memory is in that of the machine, and the card is free of it
    FAILED = "failed"
    NOT_CUDA = "not_cuda"  # also a worker that a CUDA program forked
    GONE = "gone"  # or a process of another user, or one that the driver has lost


_STATES = (ProcessState.RUNNING, ProcessState.LOCKED, ProcessState.CHECKPOINTED, ProcessState.FAILED)


class CheckpointFailed(Exception):
    """The driver answered with a code."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.phrase = _PHRASES.get(code, "the driver failed")
        super().__init__(f"{self.phrase} (CUDA error {code})")


class _LockArguments(ctypes.Structure):
    _fields_ = (
        ("timeoutMs", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class CudaCheckpoint:
    """The driver's calls. The first of them starts the driver in this process, which a forked child cannot use."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._is_started = False

    def start(self) -> None:
        """Start the driver in this process; CheckpointFailed where it cannot be."""
        if not self._is_started:
            _check(self._library.cuInit(0))
            self._is_started = True

    def state(self, pid: int) -> ProcessState:
        self.start()
        found = ctypes.c_int(-1)
        code = self._library.cuCheckpointProcessGetState(ctypes.c_int(pid), ctypes.byref(found))
        if code == _NOT_INITIALIZED:
            return ProcessState.NOT_CUDA
        if code == WRONG_HANDLE:
            return ProcessState.GONE
        _check(code)
        return _STATES[found.value] if 0 <= found.value < len(_STATES) else ProcessState.FAILED

    def lock(self, pid: int, timeout_ms: int) -> None:
        """Let its calls to CUDA wait. What is queued on the card ends first, for at most so long."""
        self._ask("Lock", pid, ctypes.byref(_LockArguments(timeoutMs=timeout_ms)))

    def checkpoint(self, pid: int) -> None:
        """Move what a locked process has on its cards into the machine's memory."""
        self._ask("Checkpoint", pid, None)

    def restore(self, pid: int) -> None:
        """Move it back; the process is locked then. On a card without enough free memory it is lost for ever."""
        self._ask("Restore", pid, None)

    def unlock(self, pid: int) -> None:
        """Let a locked process go on."""
        self._ask("Unlock", pid, None)

    def _ask(self, name: str, pid: int, arguments: Any) -> None:
        self.start()
        _check(getattr(self._library, _PREFIX + name)(ctypes.c_int(pid), arguments))


def find_cuda_checkpoint(environ: Mapping[str, str]) -> CudaCheckpoint | None:
    """The calls of this machine's driver; None where it has none, or DIBS_PROBE says that there is no driver.

    `DIBS_CUDA_LIBRARY` names another library than the driver's own.
    """
    library = _load(environ)
    return CudaCheckpoint(library) if library is not None and _has_calls(library) else None


def why_not_suspend(environ: Mapping[str, str]) -> str:
    """Why `find_cuda_checkpoint` finds none, as a part of a sentence; empty where it finds one."""
    if environ.get("DIBS_PROBE") == "none":
        return "DIBS_PROBE=none ignores the driver"
    library = _load(environ)
    if library is None:
        return "there is no CUDA driver here"
    if _has_calls(library):
        return ""
    version = _version_of_loaded(_library_name(environ))
    return f"driver {version or 'of an unknown version'} is too old: {_OLDEST} or newer"


def suspending_in_words(environ: Mapping[str, str]) -> str:
    """Whether this machine's driver can suspend jobs, as a sentence."""
    why = why_not_suspend(environ)
    return f"this driver cannot suspend jobs: {why}" if why else "this driver can suspend jobs"


def _library_name(environ: Mapping[str, str]) -> str:
    """Empty where there is none to be loaded."""
    choice = environ.get("DIBS_PROBE", "")
    if choice == "none":
        return ""
    return environ.get("DIBS_CUDA_LIBRARY", "") or ("" if choice.startswith("fake:") else LIBRARY)


def _load(environ: Mapping[str, str]) -> ctypes.CDLL | None:
    name = _library_name(environ)
    try:
        return ctypes.CDLL(name) if name else None
    except OSError:
        return None


def _has_calls(library: ctypes.CDLL) -> bool:
    return all(hasattr(library, name) for name in _CALLS)


def _version_of_loaded(name: str) -> str:
    """`550` of libcuda.so.550.54.14, which libcuda.so.1 is a link to; empty where it is called otherwise."""
    paths = [name]
    try:
        with open("/proc/self/maps", errors="surrogateescape") as file:
            paths += [line.split(maxsplit=5)[5].strip() for line in file if "libcuda.so." in line]
    except OSError:
        pass
    for path in paths:
        if found := re.search(r"/libcuda\.so\.(\d{3,})", os.path.realpath(path)):
            return found[1]
    return ""


def _check(code: int) -> None:
    if code:
        raise CheckpointFailed(code)
