"""A mark in the folder for attempts: a file system that is not mounted looks like a folder with nothing in it.

In an empty folder every attempt looks as if it had never started. So the first submit leaves a mark, and while a
mark that was there before is missing, nothing is known. Another folder may be set while attempts run in the one
before: each has its own mark.

A mark that is missing from a folder with attempts was removed by a cleanup: it is made again. A folder that was
removed on purpose, with its cluster, is remembered as such: nothing is waited for there.
"""

import contextlib
import glob
import json
import os
from collections.abc import Iterable

from dibs.errors import BackendMissing, BackendSilent
from dibs.files import error_text, replace_file
from dibs.supervise import folder

NAME = ".dibs-root"


class RootMark:
    """The mark of one folder, and what we remember of it: in a file of this machine, or in this process only."""

    def __init__(self, root: str, memory: str = "") -> None:
        self._root = root
        self._memory = memory
        # By folder; those of earlier settings too. Empty: it was removed, with everything below it.
        self._expected = (_remembered(memory) if memory else None) or {}

    @property
    def roots(self) -> tuple[str, ...]:
        """Every folder that has a mark of ours, those of earlier settings too."""
        return tuple(root for root, mark in self._expected.items() if mark)

    def is_removed(self, path: str) -> bool:
        """Whether it lies in a folder that was removed on purpose."""
        self._learn()
        return any(not mark and _is_below(path, root) for root, mark in self._expected.items())

    def make(self) -> None:
        """Before something is put below the folder: see the mark there, or leave one where there never was any."""
        if self.is_removed(self._root):
            raise BackendSilent(
                f"cannot use Slurm: {self._root} was removed with its cluster",
                remedy="`dibs daemon restart` takes the cluster that there is now",
            )
        if self._root in self._expected:
            self._check(self._root)
            return
        path = f"{self._root}/{NAME}"
        try:
            os.makedirs(self._root, mode=0o700, exist_ok=True)
            if not _read(path):
                _leave(path)
            self._remember(_read(path))
        except OSError as error:
            raise BackendMissing(
                f"cannot use Slurm: cannot write below {self._root}: {error_text(error)}",
                remedy="`dibs config set backends.slurm.root` names a folder of yours that every node sees",
            ) from error

    def missing(self, folders: Iterable[str]) -> dict[str, BackendSilent]:
        """Before something is looked for in these: those that cannot be the ones, and why."""
        self._learn()
        wanted = list(folders)
        found: dict[str, BackendSilent] = {}
        for root in {self._root, *self.roots}:
            if below := [one for one in wanted if _is_below(one, root)]:
                try:
                    self._check(root)
                except BackendSilent as error:
                    found |= dict.fromkeys(below, error)
        return found

    def _check(self, root: str) -> None:
        found, expected = _read(f"{root}/{NAME}"), self._expected.get(root)
        if expected and not found and _has_attempts(root):
            _leave_anew(root, expected)
            return
        if (expected and found != expected) or not os.path.isdir(root):
            raise BackendSilent(
                f"cannot find the jobs on Slurm: {root} is not the folder that it was, as if it were not mounted",
                remedy="dibs goes on by itself once it is back; where it is gone for good, `dibs kill` ends the "
                "jobs that were there, and backends.slurm.root set to another folder takes new ones",
            )
        if found and not expected:
            self._remember(found)

    def _remember(self, mark: str) -> None:
        self._learn()
        self._expected[self._root] = mark
        if self._memory:
            _save(self._memory, self._expected)

    def _learn(self) -> None:
        """A cluster may have been removed since."""
        if self._memory and (found := _remembered(self._memory)) is not None:
            self._expected = found


def memory_in(queue: str) -> str:
    """Where a queue remembers its marks: beside its store."""
    return f"{queue}/slurm-root"


def forget_below(memory: str, removed: str, *, is_gone: bool) -> None:
    """Forget the marks in a folder that was removed; with `is_gone` what ran there is not waited for either."""
    found = _remembered(memory)
    if found is None:
        return  # nothing was ever handed over
    left = {root: mark for root, mark in found.items() if root != removed and not _is_below(root, removed)}
    _save(memory, {**left, **({removed: ""} if is_gone else {})})


def _is_below(path: str, root: str) -> bool:
    return path.startswith(f"{root}/")


def _has_attempts(root: str) -> bool:
    """Whether attempts lie in it, of this queue or of another one beside it: then it is no empty mount point.

    A mark that is there and cannot be read is another matter.
    """
    if os.path.lexists(f"{root}/{NAME}"):
        return False
    attempts = f"attempts/*/*/{folder.RECORD}"
    return any(
        next(glob.iglob(f"{glob.escape(root)}/{where}{attempts}"), None) is not None for where in ("", "*/")
    )


def _leave_anew(root: str, mark: str) -> None:
    with contextlib.suppress(OSError):  # a full disk: the attempts tell as much, and the next look tries again
        _leave(f"{root}/{NAME}", mark)
        import logging  # what is needed once in a while

        logging.getLogger("dibs.slurm").info("the mark in %s was gone: left it anew", root)


def _remembered(memory: str) -> dict[str, str] | None:
    """What stands there; None where it is not whole, as after a power cut."""
    try:
        found = json.loads(_read(memory))
    except ValueError:
        return None
    return {str(root): str(mark) for root, mark in found.items()} if isinstance(found, dict) else None


def _save(memory: str, expected: dict[str, str]) -> None:
    replace_file(memory, f"{json.dumps(expected)}\n")


def _leave(path: str, mark: str = "") -> None:
    """A mark, a new one unless it is given. Another engine's may be there by then; that is ours, too."""
    new = f"{path}.{os.urandom(6).hex()}"
    _write(new, mark or os.urandom(16).hex())
    try:
        with contextlib.suppress(FileExistsError):
            os.link(new, path)
    finally:
        os.unlink(new)


def _read(path: str) -> str:
    """Empty where there is none. Where it cannot be read it cannot be the one either."""
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read(65536)).removesuffix("\n")
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(os.fsencode(f"{text}\n"))
        file.flush()
        os.fsync(fd)
