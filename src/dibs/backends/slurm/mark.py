"""A mark in the folder for attempts: a file system that is not mounted looks like a folder with nothing in it.

Whoever sees an empty folder there takes every attempt for one that never started. So the first submit leaves a
mark, and while a mark that was there before is not, nothing is known. Somebody may set another folder while
attempts run in the one before: each has its own mark.
"""

import contextlib
import json
import os
from collections.abc import Iterable

from dibs.backends.disks import said
from dibs.errors import BackendMissing, BackendSilent

NAME = ".dibs-root"


class RootMark:
    """The mark of one folder, and what we remember of it: in a file of this machine, or in this process only."""

    def __init__(self, root: str, memory: str = "") -> None:
        self._root = root
        self._memory = memory
        self._expected = _remembered(memory) if memory else {}  # by folder; those of earlier settings too

    @property
    def roots(self) -> tuple[str, ...]:
        """Every folder that has a mark of ours, those of earlier settings too."""
        return tuple(self._expected)

    def make(self) -> None:
        """Before something is put below the folder: see the mark there, or leave one where there never was any."""
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
                f"cannot use Slurm: cannot write below {self._root}: {said(error)}",
                remedy="`dibs config set backends.slurm.root` names a folder of yours that every node sees",
            ) from error

    def check(self, folders: Iterable[str]) -> None:
        """Before something is looked for in these: raise BackendSilent where they cannot be the ones."""
        wanted = list(folders)
        for root in {self._root, *self._expected}:
            if any(one.startswith(f"{root}/") for one in wanted):
                self._check(root)

    def _check(self, root: str) -> None:
        found, expected = _read(f"{root}/{NAME}"), self._expected.get(root)
        if (expected and found != expected) or not os.path.isdir(root):
            raise BackendSilent(
                f"cannot find the jobs on Slurm: {root} is not the folder that it was, as if it were not mounted",
                remedy="dibs goes on by itself once it is back; `dibs config` shows backends.slurm.root",
            )
        if found and not expected:
            self._remember(found)

    def _remember(self, mark: str) -> None:
        self._expected[self._root] = mark
        if self._memory:
            _write(f"{self._memory}.new", json.dumps(self._expected))
            os.replace(f"{self._memory}.new", self._memory)


def _remembered(memory: str) -> dict[str, str]:
    """What stands there; nothing where it is not whole, as after a power cut."""
    try:
        found = json.loads(_read(memory))
    except ValueError:
        return {}
    return {str(root): str(mark) for root, mark in found.items()} if isinstance(found, dict) else {}


def _leave(path: str) -> None:
    """A new mark. Another engine's may be there by then; that is ours, too."""
    new = f"{path}.{os.urandom(6).hex()}"
    _write(new, os.urandom(16).hex())
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
