"""What a warm process was made of: files that were read into it. Once one of them changes, it is stale.

Standard library only.
"""

import os
import sys
import time
from collections.abc import Iterable, Mapping

from dibs.supervise.warm.birth import find_program

_Mark = tuple[int, int, int, int] | None


class Footprint:
    """Taken after the imports; `change` tells what is different now."""

    def __init__(self, interpreter: bytes, first: str | None, workdir: str, began: float) -> None:
        self._interpreter = interpreter
        self._first = first
        self._workdir = workdir
        self._program = self._found()
        self._names = {name.partition(".")[0] for name in sys.modules}
        files = {*_module_files(), *_mapped_files(), *_homes(), sys.executable}
        self._marks: Mapping[str, _Mark] = {path: _mark(path) for path in files}
        self._shadows = self._visible()
        # Somebody may have written a file after it was read. A clock that runs ahead proves nothing.
        now = time.time()
        self._was_late = next(
            (path for path, mark in self._marks.items() if mark is not None and began < mark[2] / 1e9 <= now), ""
        )

    def change(self) -> str:
        """A sentence about the first difference; empty where there is none."""
        if self._was_late:
            return f"{self._was_late} was changed"
        if self._found() != self._program:
            return "its interpreter is another one"
        for path, mark in self._marks.items():
            if _mark(path) != mark:
                return f"{path} was changed"
        if self._visible() != self._shadows:
            return "another module came before one that was imported"
        return ""

    def _found(self) -> tuple[bytes | None, _Mark]:
        """Where the interpreter is found now, as its command names it."""
        path = os.environb.get(b"PATH", os.defpath.encode())
        program = find_program(self._interpreter, path, os.fsencode(self._workdir))
        return program, None if program is None else _mark(os.fsdecode(program))

    def _visible(self) -> frozenset[tuple[str, str]]:
        """Names that we imported, as they stand in the folders that people work in."""
        found = []
        for folder in {folder for folder in (self._first, *sys.path) if folder is not None}:
            if not folder.startswith((sys.base_prefix, sys.prefix)):
                names = _listed(os.path.join(self._workdir, folder))
                found += [(folder, name) for name in names if _module_in(name) in self._names]
        return frozenset(found)


def _module_in(name: str) -> str:
    """What a file or folder of this name could be imported as; empty where it could not."""
    stem, dot, _ = name.partition(".")
    return stem if not dot or name.endswith((".py", ".pyc", ".so")) else ""


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _module_files() -> Iterable[str]:
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.startswith("/"):
            yield path


def _mapped_files() -> Iterable[str]:
    """Shared libraries, which Python does not know of."""
    with open("/proc/self/maps", errors="surrogateescape") as file:
        for line in file:
            words = line.rstrip("\n").split(maxsplit=5)
            if len(words) == 6 and words[5].startswith("/") and ".so" in words[5]:
                yield words[5]


def _homes() -> Iterable[str]:
    """Folders that change when something is installed."""
    yield os.path.join(sys.prefix, "pyvenv.cfg")
    for folder in sys.path:
        if folder.endswith(("site-packages", "dist-packages")):
            yield folder


def _mark(path: str) -> _Mark:
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_mtime_ns, seen.st_size
