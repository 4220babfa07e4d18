"""A run's folder: its store, its attempts and its lock, under the state folder or inside the output folder."""

import contextlib
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Mapping
from errno import ENOSPC

from dibs import paths
from dibs.dataclass import dataclass
from dibs.errors import BadInput, FolderInUse
from dibs.supervise.folder import RECORD, facts

_KEPT_DAYS = 30
_INSIDE = ".dibs"
_OUTPUT_DIR = "output_dir"  # a file beside `workdir`, of a run that is inside this folder


@dataclass(frozen=True, slots=True)
class Run:
    """A folder that is ours until this process ends. `is_old` when an earlier process began it."""

    name: str
    root: str
    is_old: bool
    lock: int

    @property
    def workdir(self) -> str:
        """The folder in which its jobs were asked for, so that a run resumed by name finds it again."""
        try:
            with open(f"{self.root}/workdir", "rb") as file:
                return os.fsdecode(file.read()) or os.getcwd()
        except OSError:
            return os.getcwd()

    def remember_workdir(self) -> None:
        with open(f"{self.root}/workdir", "wb") as file:
            file.write(os.fsencode(os.getcwd()))

    def close(self) -> None:
        os.close(self.lock)


def open_run(
    environ: Mapping[str, str],
    *,
    output_dir: str | None = None,
    resume: str | None = None,
    fresh: bool = False,
) -> Run:
    """Make or come back to a run. `resume` is a run's name, empty for the one in the output folder.

    Without `resume` an earlier run in the same output folder is refused, unless `fresh` throws it away: nothing
    is run twice by accident.
    """
    if output_dir is not None:
        _make_output_dir(output_dir)
        root, name = _inside(output_dir), os.path.basename(os.path.abspath(output_dir))
    else:
        runs = paths.make_private(f"{paths.make_private(paths.state_folder(environ))}/runs")
        name = resume or _new_name(runs)
        root = f"{runs}/{name}"
        if resume is None:
            _forget_old_runs(runs)
    if resume is not None and not os.path.exists(f"{root}/store.db"):
        raise BadInput(
            f"cannot resume {resume or output_dir!r}: there is no run of that name",
            remedy="`ls` the folder, or leave out --resume to begin",
        )
    paths.make_private(root)
    lock = _lock(root, output_dir or name)
    is_old = os.path.exists(f"{root}/store.db")
    if is_old and resume is None:
        if not fresh:
            os.close(lock)
            raise BadInput(
                f"{output_dir} holds an earlier run",
                remedy="--resume goes on with it, --fresh starts over, another --output-dir leaves it alone",
            )
        if _has_running(root):
            os.close(lock)
            raise FolderInUse(
                f"jobs of an earlier run in {output_dir} are still running",
                remedy="wait for them; `dibs gpus` shows them and `dibs gpus release` ends them",
            )
        _throw_away(root)
        is_old = False
    if output_dir is not None and not is_old:
        _remember_output_dir(environ, os.path.abspath(output_dir))
    return Run(name, root, is_old, lock)


def last_run(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The name and the output folder, if it has one, of the run that was begun last in this folder."""
    runs = f"{paths.state_folder(environ)}/runs"
    found: list[tuple[float, str, str]] = []
    with contextlib.suppress(FileNotFoundError):
        here = os.fsencode(os.getcwd())
        for name in os.listdir(runs):
            with contextlib.suppress(OSError), open(f"{runs}/{name}/workdir", "rb") as file:
                if file.read() != here:
                    continue
                output_dir = _read_output_dir(f"{runs}/{name}")
                if not output_dir or os.path.exists(f"{_inside(output_dir)}/store.db"):
                    found.append((os.stat(file.fileno()).st_mtime, name, output_dir))
    return max(found)[1:] if found else None


def _remember_output_dir(environ: Mapping[str, str], output_dir: str) -> None:
    """Where `last_run` finds it. The run does not depend on it."""
    with contextlib.suppress(OSError, paths.FolderRefused):
        runs = paths.make_private(f"{paths.make_private(paths.state_folder(environ))}/runs")
        folder = paths.make_private(f"{runs}/{_digest(output_dir)}")
        for name, path in ((_OUTPUT_DIR, output_dir), ("workdir", os.getcwd())):
            with open(f"{folder}/{name}", "wb") as file:
                file.write(os.fsencode(path))


def _read_output_dir(folder: str) -> str:
    try:
        with open(f"{folder}/{_OUTPUT_DIR}", "rb") as file:
            return os.fsdecode(file.read())
    except FileNotFoundError:
        return ""


def _digest(path: str) -> str:
    return hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()


def _inside(output_dir: str) -> str:
    """Inside the output folder, so that they are moved and removed together; elsewhere where locks fail."""
    if not paths.network_file_system(output_dir):
        return f"{os.path.abspath(output_dir)}/{_INSIDE}"
    return f"{paths.make_private(paths.local_folder())}/outputs/{_digest(os.path.realpath(output_dir))}"


def _make_output_dir(output_dir: str) -> None:
    if os.path.isfile(output_dir):
        raise BadInput(f"{output_dir} is a file, not a folder", remedy="choose another with --output-dir")
    try:
        os.makedirs(output_dir, exist_ok=True)
        _try_to_write(output_dir)
    except OSError as error:
        raise BadInput(
            f"cannot write to the output folder {output_dir}: {error.strerror}",
            remedy="choose another with --output-dir, or free some space",
        ) from error


def _try_to_write(folder: str) -> None:
    """Write a file that was not there and remove it. Others may write here too: no link is followed."""
    probe = f"{folder}/.dibs-probe-{os.urandom(8).hex()}"
    fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.write(fd, b"x" * 4096) < 4096:  # a full disk can still make an empty file
            raise OSError(ENOSPC, os.strerror(ENOSPC), folder)
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(probe)


def _lock(root: str, shown: str) -> int:
    """One process works in a run's folder at a time. The descriptor is never inherited."""
    lock = os.open(f"{root}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        os.close(lock)
        raise FolderInUse(
            f"{shown} belongs to a dibs run that is still there (pid {holder or '?'})",
            remedy="wait for it, stop it, or choose another --output-dir",
        ) from None
    except OSError:
        os.close(lock)
        raise
    return lock


def _new_name(runs: str) -> str:
    """`1115-093142`: short enough to type, sorted by time."""
    stem = time.strftime("%m%d-%H%M%S")
    for number in range(1000):
        name = stem if number == 0 else f"{stem}-{number + 1}"
        try:
            os.mkdir(f"{runs}/{name}", 0o700)
        except FileExistsError:
            continue
        return name
    raise FolderInUse(f"cannot name a new run in {runs}", remedy="try again")


def _throw_away(root: str) -> None:
    for name in os.listdir(root):
        if name != "lock":
            _remove(f"{root}/{name}")


def _forget_old_runs(runs: str) -> None:
    """Remove runs that were not used for a month, unless their jobs still run."""
    limit = time.time() - _KEPT_DAYS * 86400
    for name in os.listdir(runs):
        path = f"{runs}/{name}"
        with contextlib.suppress(FolderInUse, OSError):  # another run may be tidying up as well
            seen = os.lstat(path)
            if stat.S_ISDIR(seen.st_mode) and seen.st_mtime < limit:
                _forget(path, name)


def _forget(path: str, name: str) -> None:
    lock = _lock(path, path)
    try:
        if not _has_running(path) and not _has_orphans(name):
            _remove(path)
    finally:
        os.close(lock)


def _remove(path: str) -> None:
    """Remove a file, or a folder with everything in it."""
    import shutil  # 2 ms that few runs pay

    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def _has_running(root: str) -> bool:
    """Whether a shim of a dead `dibs run` is still at work here."""
    return any(RECORD in files and facts(folder).is_locked for folder, _, files in os.walk(f"{root}/attempts"))


def _has_orphans(name: str) -> bool:
    """Whether a command of this run lives on without its shim: it holds no lock, but carries the run's name."""
    mark = b"DIBS_RUN=" + os.fsencode(name)
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended, or may not be looked into
            if os.stat(f"/proc/{pid}").st_uid == os.geteuid():
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        return True
    return False
