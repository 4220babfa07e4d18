"""Searches a job's working folder for files of TensorBoard, W&B and MLflow that the job has written."""

import os
import re
import socket
import time
from typing import NamedTuple

from dibs.metrics.mlflow_run import MlflowRun, run_begun
from dibs.metrics.scalar import ScalarFile
from dibs.metrics.tensorboard import EventFile
from dibs.metrics.wandb_file import RUN_FILE, WandbFile, find_run_files
from dibs.supervise.folder import open_own_file

MOST_FILES = 16
_DEEPEST = 5  # folders below the working folder
_MOST_ENTRIES = 5_000  # that are looked at in one search
_SEARCH_FOR = 0.3  # seconds
_NOT_SEARCHED = frozenset(("node_modules", "__pycache__", "site-packages", "venv"))
_CLOCK_MARGIN = 2.0  # seconds; the names have whole ones
_EVENT_FILE = re.compile(r"events\.out\.tfevents\.(\d{1,12})\.(.+)")
_PID = re.compile(r"\.(\d{1,9})(?:\.|$)")
_WANDB_FOLDER = re.compile(r"(?:offline-)?run-(\d{8}_\d{6})-([\w-]+)", re.ASCII)
_MLFLOW_FOLDER = "metrics"  # of a run
_PID_IN_LOG = re.compile(rb"MainThread:(\d{1,9})")


class FileSearch(NamedTuple):
    """For the files of one attempt."""

    root: str
    since: float  # seconds since the epoch
    until: float | None
    # The variable that the processes of the attempt carry: files of processes that run and carry another one are
    # those of another job.
    mark: bytes
    wandb_run: str = ""  # the id of its run where that was given to it: files of other runs are not its own


class FoundFiles(NamedTuple):
    paths: list[str]  # the newest first
    is_all: bool  # the search was not ended early, and no file was left out


def find_scalar_files(search: FileSearch) -> FoundFiles:
    """Files that were begun in this time."""
    found: dict[str, float] = {}
    # Where its name is known there is no need to search: after a long sweep the folder has thousands of runs.
    for path in find_run_files(search.root, search.wandb_run, search.since) if search.wandb_run else ():
        begun = _wandb_began_at(os.path.dirname(path))
        if begun is not None and begun <= (search.until or 2**63):
            found[path] = begun
    deadline, entries, is_all = time.monotonic() + _SEARCH_FOR, 0, True
    folders = [(search.root, 0)]
    while folders:
        folder, depth = folders.pop()
        try:
            with os.scandir(folder) as inside:
                for entry in inside:
                    entries += 1
                    if entries > _MOST_ENTRIES or time.monotonic() > deadline:
                        is_all, folders = False, []
                        break
                    if (begun := _begun(entry, folder, search)) is not None:
                        found[entry.path] = begun
                    elif (
                        depth < _DEEPEST
                        and _is_searched(entry)
                        and not _WANDB_FOLDER.fullmatch(os.path.basename(folder))
                    ):
                        folders.append((entry.path, depth + 1))
        except OSError:
            continue
    newest = sorted(found, key=lambda path: (found[path], path), reverse=True)
    return FoundFiles(newest[:MOST_FILES], is_all and len(found) <= MOST_FILES)


def open_scalar_file(path: str) -> ScalarFile:
    if os.path.basename(path) == _MLFLOW_FOLDER:
        return MlflowRun(path)
    return WandbFile(path) if path.endswith(".wandb") else EventFile(path)


def _begun(entry: "os.DirEntry[str]", folder: str, search: FileSearch) -> float | None:
    """When a file of the attempt was begun; None for every other."""
    if name := _EVENT_FILE.fullmatch(entry.name):
        begun = float(name[1])
        return begun if _is_then(begun, search) and not _is_of_another(_pid_in(name[2]), search.mark) else None
    if name := RUN_FILE.fullmatch(entry.name):
        return _wandb_begun(entry, folder, name[1], search)
    return _mlflow_begun(folder, search) if entry.name == _MLFLOW_FOLDER else None


def _wandb_begun(entry: "os.DirEntry[str]", folder: str, run: str, search: FileSearch) -> float | None:
    if (begun := _wandb_began_at(folder)) is None:
        return None
    if search.wandb_run:
        is_new = entry.stat(follow_symlinks=False).st_mtime >= search.since  # also of a run that is begun again
        is_own = run == search.wandb_run and is_new and begun <= (search.until or 2**63)
    else:
        is_own = _is_then(begun, search) and not _is_of_another(_pid_in_log(folder), search.mark)
    return begun if is_own else None


def _wandb_began_at(folder: str) -> float | None:
    """The time in the name of a run's folder."""
    name = _WANDB_FOLDER.fullmatch(os.path.basename(folder))
    try:
        return None if name is None else time.mktime(time.strptime(name[1], "%Y%m%d_%H%M%S"))  # local time
    except (ValueError, OverflowError):
        return None


def _mlflow_begun(folder: str, search: FileSearch) -> float | None:
    if (found := run_begun(folder)) is None:
        return None
    begun, attempt = found
    is_own = os.fsencode(f"DIBS_METRICS={attempt}/metrics") == search.mark if attempt else _is_then(begun, search)
    return begun if is_own else None


def _is_then(begun: float, search: FileSearch) -> bool:
    return search.since - _CLOCK_MARGIN <= begun <= (search.until or 2**63) + _CLOCK_MARGIN


def _is_searched(entry: "os.DirEntry[str]") -> bool:
    if entry.name.startswith(".") or entry.name in _NOT_SEARCHED:
        return False
    return entry.is_dir(follow_symlinks=False)


def _pid_in(rest: str) -> str:
    """The process in the name of an event file, `HOST.PID.N`; empty where it ran elsewhere."""
    host = socket.gethostname()
    found = _PID.match(rest.removeprefix(host)) if rest.startswith(host) else None
    return found[1] if found else ""


def _pid_in_log(folder: str) -> str:
    """The process that W&B's own log beside a run's file names."""
    try:
        with open(open_own_file(f"{folder}/logs/debug.log"), "rb") as file:
            found = _PID_IN_LOG.search(file.read(4096))
    except OSError:
        return ""
    return found[1].decode() if found else ""


def _is_of_another(pid: str, mark: bytes) -> bool:
    """Whether a process runs here as a part of another job."""
    if not pid:
        return False
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return False  # it has ended
    name = mark.partition(b"=")[0] + b"="
    return mark not in variables and any(variable.startswith(name) for variable in variables)
