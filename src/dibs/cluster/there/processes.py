"""The daemons of a cluster on this host, found by their pid files and known by their command lines."""

from __future__ import annotations

import contextlib
import os
import signal
import time

DAEMONS = ("slurmd", "slurmctld", "munged")


def pid_file(local: str, name: str) -> str:
    return f"{local}/run/{name}.pid"


def pid_of(local: str, base: str, name: str) -> int | None:
    """Its pid: from its file, if that is still the daemon of this cluster and no stranger who got the number.

    Files in /var/tmp may be tidied away after a month, so without one it is looked for.
    """
    try:
        with open(pid_file(local, name)) as file:
            pid = int(file.read(20).split()[0])
        if _is_it(pid, name, local, base):
            return pid
    except (OSError, ValueError, IndexError):
        pass
    return next((pid for pid in _pids() if _is_it(pid, name, local, base)), None)


def is_alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def end(pids: list[int], within: float) -> None:
    """Ask them to end, wait, insist."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        until = time.monotonic() + within
        while any(map(is_alive, pids)) and time.monotonic() < until:
            time.sleep(0.05)


def of_jobs(base: str, node: str) -> list[int]:
    """Steps of this node and whatever they left behind, by what Slurm wrote into their environment.

    A shell in which somebody merely set SLURM_CONF is none of them.
    """
    conf = os.fsencode(f"SLURM_CONF={base}/etc/slurm.conf")
    here = os.fsencode(f"SLURMD_NODENAME={node}")
    step = os.fsencode(f"DIBS_CLUSTER_NODE={base}:{node}")
    found = []
    for pid in _pids():
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
                continue
            with open(f"/proc/{pid}/environ", "rb") as file:
                words = set(file.read().split(b"\0"))
        except OSError:
            continue
        if {conf, here} <= words or step in words:
            found.append(pid)
    return found


def _is_it(pid: int, name: str, local: str, base: str) -> bool:
    """Whether it is this daemon: ours, here, with our folders among its arguments."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = os.fsdecode(file.read()).split("\0")
        # A container may show processes of others, which have networks of their own.
        is_here = os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net")
        is_ours = os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False
    is_named = any(os.path.basename(word) in (name, f"{name}-wlm") for word in words[:4])
    is_told = any(local in word or base in word for word in words)
    return is_here and is_ours and is_named and is_told and is_alive(pid)


def _pids() -> list[int]:
    """Everybody but us."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()]
