"""A copy of the code as it is now; `--snapshot` runs the jobs of a call in it."""

import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, cast

from dibs.errors import BadInput
from dibs.files import sync_folder
from dibs.inputs.code import find_repository, git
from dibs.paths import make_private

LARGEST = 200 * 1024**2  # bytes
_MOST_FILES = 100_000
_PATIENCE = 30.0  # seconds for git's list of files
_PIECE = 1024**2  # bytes


@dataclass(frozen=True, slots=True)
class CodeSnapshot:
    """Where the code was, and where its copy is."""

    root: str
    copy: str

    def place_of(self, path: str) -> str:
        """The same place in the copy. A path outside of the code raises BadInput."""
        relative = os.path.relpath(os.path.abspath(path), self.root)
        if relative == ".":
            return self.copy
        if relative.split("/", 1)[0] == "..":
            raise BadInput(
                f"cannot run in {path}: the snapshot holds {self.root}", remedy="leave out --snapshot, or move it"
            )
        return os.path.join(self.copy, relative)


def take_snapshot(folder: str, shelf: str, environ: Mapping[str, str]) -> CodeSnapshot:
    """Copy the repository of a folder (tracked files, and new ones that are not ignored), or else the folder.

    Every call gets its own copy, because jobs write into the folder in which they run. Files are copied, never
    linked: a link would change with the original.
    """
    root = find_repository(folder) or os.path.abspath(folder)
    names = _names(root, environ)
    make_private(shelf)
    key = os.urandom(16).hex()
    temporary = os.path.join(shelf, f".new-{key}")
    place = os.path.join(shelf, key)
    os.mkdir(temporary, 0o700)
    try:
        _copy(root, names, temporary)
        os.rename(temporary, place)
        sync_folder(shelf)
    except OSError as error:
        raise BadInput(
            f"cannot copy the code to {shelf}: {error.strerror}", remedy="make room, or leave out --snapshot"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return CodeSnapshot(root, place)


def _names(root: str, environ: Mapping[str, str]) -> list[str]:
    """The files of the code, relative to the root, in order."""
    if os.path.exists(f"{root}/.git"):
        words = ["ls-files", "-co", "--exclude-standard", "-z"]
        said = git(root, words, environ, until=time.monotonic() + _PATIENCE)
        if said is None:
            raise BadInput(f"cannot copy {root}: git cannot list its files", remedy="try `git -C DIR ls-files`")
        listed = sorted({os.fsdecode(name) for name in said.split(b"\0") if name})
    else:
        listed = sorted(os.listdir(root))
    names: list[str] = []
    for name in listed:
        for inner in _below(root, name):
            names.append(inner)
            if len(names) > _MOST_FILES:
                raise _too_large(root, f"more than {_MOST_FILES} files")
    return names


def _below(root: str, name: str) -> Iterator[str]:
    """The files of an entry: itself, or those of a folder (as of a submodule) without its .git."""
    path = os.path.join(root, name)
    if os.path.islink(path) or not os.path.isdir(path):
        yield name
        return
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(one for one in folders if one != ".git")
        links = [one for one in folders if os.path.islink(os.path.join(folder, one))]
        for one in sorted([*files, *links]):
            if one != ".git":
                yield os.path.relpath(os.path.join(folder, one), root)


def _copy(root: str, names: list[str], target: str) -> None:
    size = 0
    for name in names:
        path = os.path.join(root, name)
        try:
            seen = os.lstat(path)
        except FileNotFoundError:
            continue  # tracked but removed
        size += seen.st_size
        if size > LARGEST:
            raise _too_large(root, f"more than {LARGEST >> 20} MiB")
        copy = os.path.join(target, name)
        os.makedirs(os.path.dirname(copy), mode=0o700, exist_ok=True)
        if stat.S_ISLNK(seen.st_mode):
            os.symlink(os.readlink(path), copy)
        elif stat.S_ISREG(seen.st_mode):  # not a socket or a FIFO
            _copy_file(path, copy, 0o700 if seen.st_mode & 0o100 else 0o600)


def _copy_file(path: str, copy: str, mode: int) -> None:
    with _opened(path) as source, open(copy, "xb") as file:
        shutil.copyfileobj(source, file, _PIECE)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), mode)


def _opened(path: str) -> BinaryIO:
    try:
        return cast(BinaryIO, open(path, "rb"))
    except OSError as error:
        raise BadInput(f"cannot copy {path}: {error.strerror}", remedy="leave out --snapshot") from error


def _too_large(root: str, what: str) -> BadInput:
    return BadInput(
        f"cannot copy {root}: it has {what}",
        remedy="keep data elsewhere or in .gitignore, or leave out --snapshot",
    )
