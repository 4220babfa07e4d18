"""What the numbers depend on: the machine, its disk and how busy it is."""

import os
import platform
import statistics
import subprocess
import time
from pathlib import Path


def facts(scratch: Path) -> dict[str, str]:
    """What stays the same from bench to bench."""
    return {
        "kernel": platform.release(),
        "CPU": f"{os.cpu_count()} x {_from_proc('/proc/cpuinfo', 'model name')}",
        "memory": f"{int(_from_proc('/proc/meminfo', 'MemTotal').split()[0]) / 2**20:.0f} GiB",
        "disk": f"{file_system(scratch)} under {scratch.parent}",
        "Python": platform.python_version(),
    }


def load() -> float:
    """How many processes wanted a core in the last minute."""
    return os.getloadavg()[0]


def fdatasync_seconds(folder: Path, times: int = 50) -> float:
    """The median time in which this disk makes a small write safe."""
    handle = os.open(folder / "fdatasync", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        took = []
        for turn in range(times):
            os.pwrite(handle, turn.to_bytes(8, "little") * 16, 0)
            begin = time.perf_counter()
            os.fdatasync(handle)
            took.append(time.perf_counter() - begin)
        return statistics.median(took)
    finally:
        os.close(handle)


def file_system(folder: Path) -> str:
    """The type of the file system under a folder: ext4, tmpfs, nfs4."""
    found = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=False)
    return found.stdout.strip().replace("ext2/ext3", "ext4") or "?"


def _from_proc(path: str, name: str) -> str:
    try:
        with open(path) as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "?")
    except OSError:
        return "?"


def commit() -> str:
    """`at 1a2b3c4`, with a star where the tree has changes; nothing outside a repository."""
    git = ["git", "-C", str(Path(__file__).parent)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return ""
    dirty = subprocess.run(
        [*git, "status", "--porcelain", "--", "../src"], capture_output=True, check=False
    ).stdout
    return f"at {head.stdout.strip()}{'*' if dirty else ''}"


def card() -> str:
    """The name of the first NVIDIA GPU; empty where there is none."""
    try:
        words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return ""
