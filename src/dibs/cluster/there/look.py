"""What kind of host this is: who we are here, its clock, Python, size, cards, and the Slurm it has."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import time
from typing import Any

from dibs.cluster.there.cards import cards
from dibs.cluster.there.ground import ground

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
        # Not the one of a virtual environment, which somebody may remove.
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
