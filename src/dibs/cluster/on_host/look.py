"""What kind of host this is: user, clock, Python, size, cards, Slurm; and whether folders and ports are free."""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import time
from typing import Any

from dibs.cluster.on_host.daemons import DAEMONS, pid_of

PROGRAMS = ("slurmd", "slurmctld", "munged", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
_PATH = os.pathsep.join((os.environ.get("PATH") or os.defpath, "/usr/local/sbin", "/usr/sbin", "/sbin"))
# The newest interpreter is not always the best tested one, and the system's own is the likeliest to stay.
_PYTHONS = ("python3", "/usr/bin/python3", "python3.11", "python3.12", "python3.13", "python3.14")


def survey(request: dict[str, Any]) -> dict[str, Any]:
    """The host, and what a cluster would stand on there."""
    return {"ground": ground(request), "look": look()}


def look() -> dict[str, Any]:
    """The host as it is."""
    python, version = _python()
    identity, pretty = _system()
    programs = {name: shutil.which(name, path=_PATH) or "" for name in PROGRAMS}
    return {
        "clock": time.time(),
        "hostname": socket.gethostname().split(".")[0],
        "machine_id": _machine_id(),
        "uid": os.geteuid(),
        "user": _user(),
        "home": os.path.expanduser("~"),
        "machine": os.uname().machine,
        "system": identity,
        "system_name": pretty,
        "python": python,
        "python_version": version,
        "cpus": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cards": cards(),
        "programs": programs,
        "slurm": _version(programs["slurmd"] or programs["sbatch"]),
        "has_apt": bool(shutil.which("apt-get", path=_PATH)),
        "has_dpkg": bool(shutil.which("dpkg-deb", path=_PATH)),
    }


def _machine_id() -> str:
    """Equal where two names lead to the same machine. Containers on one machine have networks of their own."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return socket.gethostname()


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""


def _python() -> tuple[str, list[int]]:
    """The path and version of one that is new enough; otherwise of the one that runs this."""
    for name in (sys.executable, *_PYTHONS):
        path = shutil.which(name, path=_PATH)
        if path is None:
            continue
        # Not the one of a virtual environment, which may be removed.
        words = [path, "-c", "import os, sys; print(os.path.realpath(sys.executable), *sys.version_info[:2])"]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30)
        said = os.fsdecode(done.stdout).rsplit(maxsplit=2)
        if done.returncode == 0 and len(said) == 3 and (int(said[1]), int(said[2])) >= (3, 11):
            return said[0], [int(said[1]), int(said[2])]
    return os.path.realpath(sys.executable), list(sys.version_info[:2])


def _system() -> tuple[str, str]:
    """`debian 12` and `Debian GNU/Linux 12 (bookworm)`."""
    found = {}
    try:
        with open("/etc/os-release", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.strip().partition("=")
                found[key] = value.strip("\"'")
    except OSError:
        pass
    identity = f"{found.get('ID', '')} {found.get('VERSION_ID', '')}".strip()
    return identity, found.get("PRETTY_NAME", identity)


def _version(program: str) -> str:
    """`22.05.8`; empty where there is no Slurm."""
    if not program:
        return ""
    try:
        done = subprocess.run([program, "-V"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"[0-9]+\.[0-9]+\.[0-9]+\S*", done.stdout.decode("utf-8", "replace"))
    return found.group() if found else ""


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


_LIBRARY = "libnvidia-ml.so.1"


def cards() -> list[dict[str, Any]]:
    """Name and device file of each, in the driver's order; an empty device is a card out of a file."""
    choice = os.environ.get("DIBS_PROBE", "")
    if choice.startswith("fake:"):
        with open(choice[len("fake:") :], encoding="utf-8") as file:
            content = json.load(file)
        listed = content if isinstance(content, list) else content.get("gpus", [])
        ordered = sorted(listed, key=lambda card: int(card["index"]))
        return [{"name": card.get("name", ""), "device": ""} for card in ordered]
    return [] if choice == "none" else _by_nvml()


def _by_nvml() -> list[dict[str, Any]]:
    try:
        nvml = ctypes.CDLL(_LIBRARY)
    except OSError:
        return []
    if nvml.nvmlInit_v2() != 0:
        return []
    number = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(number))
    found = []
    for index in range(number.value):
        handle, minor, name = ctypes.c_void_p(), ctypes.c_uint(), ctypes.create_string_buffer(96)
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
            continue  # a lost card cannot be given to a job
        nvml.nvmlDeviceGetName(handle, name, len(name))
        if nvml.nvmlDeviceGetMinorNumber(handle, ctypes.byref(minor)) != 0:
            continue
        device = f"/dev/nvidia{minor.value}"
        if os.path.exists(device):
            found.append({"name": name.value.decode("utf-8", "replace"), "device": device})
    nvml.nvmlShutdown()
    return found
