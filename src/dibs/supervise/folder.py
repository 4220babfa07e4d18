"""An attempt's folder: made by the engine, filled by the shim, read by whoever comes back."""

import fcntl
import json
import os
from dataclasses import dataclass
from typing import Any

from dibs.supervise import records


@dataclass(frozen=True, slots=True)
class Facts:
    """What a folder says about its attempt. Read in this order: the lock first, the records second."""

    is_locked: bool
    record: dict[str, Any] | None
    has_started: bool


def prepare(folder: str, spec: dict[str, Any]) -> int:
    """Make the folder with its spec; return the exit record, allocated and locked, for the shim."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    spec_file = os.open(f"{folder}/spec.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(spec_file, json.dumps(spec).encode())
    finally:
        os.close(spec_file)
    exit_record = os.open(f"{folder}/exit", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # A full disk can lose neither the exit code nor, with it, the GPU.
        os.posix_fallocate(exit_record, 0, records.SIZE)
        fcntl.flock(exit_record, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(exit_record)
        raise
    return exit_record


def facts(folder: str) -> Facts:
    """Look at an attempt without disturbing it."""
    try:
        fd = os.open(f"{folder}/exit", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return Facts(is_locked=False, record=None, has_started=False)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return Facts(is_locked=True, record=None, has_started=True)
        record = records.decode(os.pread(fd, records.SIZE, 0))
        return Facts(
            is_locked=False,
            record=record,
            has_started=record is not None or os.path.exists(f"{folder}/started"),
        )
    finally:
        os.close(fd)


def watch(folder: str) -> int | None:
    """The writing end of a running shim's FIFO; None when nobody reads it any more."""
    try:
        return os.open(f"{folder}/control", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None


def pid_of(folder: str) -> int | None:
    """The command's process id, for people to look at. Signals go through the shim."""
    try:
        with open(f"{folder}/started", "rb") as file:
            return int(json.loads(file.read())["pid"])
    except (OSError, ValueError, KeyError):
        return None
