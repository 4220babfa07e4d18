"""Whether the folders and ports that a cluster wants can be had on this host. Nothing is changed."""

from __future__ import annotations

import os
import socket
from typing import Any

from dibs.cluster.there.processes import DAEMONS, pid_of


def ground(request: dict[str, Any]) -> dict[str, Any]:
    """What keeps us from the folders, which ports are taken and by whom, and whether the mark is seen here."""
    base, local = request["base"], request["local"]
    running = {name: pid_of(local, base, name) for name in DAEMONS}
    ours = {port for port, name in zip(request["own_ports"], ("slurmctld", "slurmd")) if running[name]}  # noqa: B905
    return {
        "base": _why_not(base),
        "local": _why_not(local),
        "taken": {str(port): _holder(port) for port in request["ports"] if port not in ours and _is_taken(port)},
        "running": {name: pid for name, pid in running.items() if pid},
        "sees_mark": _sees(request["mark"]),
    }


def make_mark(request: dict[str, Any]) -> dict[str, Any]:
    """Leave a mark beside the folder, for others to look for; an empty path where it cannot be left."""
    path = os.path.join(_nearest(request["base"]), request["name"])
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return {"mark": ""}
    return {"mark": path}


def remove_mark(request: dict[str, Any]) -> dict[str, Any]:
    if os.path.basename(request["mark"]).startswith(".dibs-"):
        os.unlink(request["mark"])
    return {}


def _why_not(folder: str) -> str:
    """Why this folder cannot be ours; empty where it can."""
    there = _nearest(folder)
    seen = os.lstat(there)
    if there == folder and (os.path.islink(folder) or seen.st_uid != os.geteuid()):
        return f"{folder} belongs to uid {seen.st_uid}, or is a link"
    if seen.st_uid not in (0, os.geteuid()):
        return f"{there} belongs to uid {seen.st_uid}, who could put another folder in its place"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} is not writable for you"
    if os.statvfs(there).f_flag & os.ST_NOEXEC:
        return f"nothing in {there} can be executed (it is mounted noexec)"
    free = os.statvfs(there).f_bavail * os.statvfs(there).f_frsize
    return f"the disk of {there} is full" if free < 64 << 20 else ""


def _nearest(folder: str) -> str:
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return folder


def _sees(mark: str) -> bool:
    if not mark:
        return False
    try:
        # The list of the folder is asked for afresh where a single name may still be remembered as missing.
        return os.path.basename(mark) in os.listdir(os.path.dirname(mark))
    except OSError:
        return False


def _is_taken(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("", port))
        except OSError:
            return True
    return False


def _holder(port: int) -> str:
    """`slurmd, pid 4711` where it is a process of ours; of others the kernel does not tell."""
    sockets = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path) as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        sockets |= {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            held = {os.readlink(f"/proc/{entry}/fd/{fd}") for fd in os.listdir(f"/proc/{entry}/fd")}
            with open(f"/proc/{entry}/comm") as file:
                name = file.read().strip()
        except OSError:
            continue
        if held & sockets:
            return f"{name}, pid {entry}"
    return ""
