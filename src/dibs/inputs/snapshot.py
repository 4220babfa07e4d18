"""A copy of the code as it is now, kept once per content: `--snapshot` runs the job in it."""

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dibs.errors import BadInput
from dibs.inputs.code import find_repository, git
from dibs.paths import make_private

LARGEST = 200 * 1024**2  # bytes
_MOST_FILES = 100_000
_PATIENCE = 30.0  # seconds for git's list of files
_PIECE = 1024**2  # bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
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


def take_snapshot(folder: str, shelf: str, environ: Mapping[str, str]) -> Snapshot:
    """Copy the repository that a folder lies in (tracked files, and new ones that are not ignored), or the folder.

    The copy has the hash of its content as its name on the shelf: the same code is kept once. Files are copied,
    never linked: a link would change with the original.
    """
    root = find_repository(folder) or os.path.abspath(folder)
    names = _names(root, environ)
    key = _walk(root, names, _ignore)
    make_private(shelf)
    place = os.path.join(shelf, key)
    if not os.path.isdir(place):
        place = _copy(root, names, shelf)
    return Snapshot(root, place)


def _names(root: str, environ: Mapping[str, str]) -> list[str]:
    """What belongs to the code, relative to the root, in order."""
    if os.path.exists(f"{root}/.git"):
        words = ["ls-files", "-co", "--exclude-standard", "-z"]
        said = git(root, words, environ, until=time.monotonic() + _PATIENCE)
        if said is None:
            raise BadInput(
                f"cannot copy {root}: git does not tell what belongs to it", remedy="try `git -C DIR ls-files`"
            )
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
    """The files of an entry: itself, or where it is a folder (of a submodule, say) all in it but its .git."""
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


_Keep = Callable[[str, int, Iterator[bytes]], None]


def _walk(root: str, names: list[str], keep: _Keep) -> str:
    """Go through all files, give each to `keep`, and return the hash of everything."""
    whole = hashlib.blake2b(digest_size=16)
    size = 0
    for name in names:
        path = os.path.join(root, name)
        try:
            seen = os.lstat(path)
            if stat.S_ISLNK(seen.st_mode):
                kind, content = "link", iter([os.fsencode(os.readlink(path))])
            elif stat.S_ISREG(seen.st_mode):
                kind, content = ("program" if seen.st_mode & 0o100 else "file"), _content(path)
            else:
                continue  # a socket, a FIFO: no code
            size += seen.st_size
            if size > LARGEST:
                raise _too_large(root, f"more than {LARGEST >> 20} MiB")
            one = hashlib.blake2b(digest_size=16)
            keep(name, seen.st_mode, _hashed(content, one))
        except FileNotFoundError:
            continue  # tracked, and removed
        except OSError as error:
            raise BadInput(f"cannot copy {path}: {error.strerror}", remedy="leave out --snapshot") from error
        whole.update(f"{kind} {len(os.fsencode(name))} ".encode() + os.fsencode(name) + one.digest())
    return whole.hexdigest()


def _copy(root: str, names: list[str], shelf: str) -> str:
    temporary = os.path.join(shelf, f".new-{os.getpid()}-{os.urandom(4).hex()}")
    os.mkdir(temporary, 0o700)
    try:
        # Its name comes from what was really copied: a file may have changed since it was looked at.
        key = _walk(root, names, lambda name, mode, content: _keep(temporary, name, mode, content))
        place = os.path.join(shelf, key)
        try:
            os.rename(temporary, place)
        except OSError:
            if not os.path.isdir(place):  # else somebody else was quicker with the same
                raise
    except OSError as error:
        raise BadInput(
            f"cannot copy the code to {shelf}: {error.strerror}", remedy="make room, or leave out --snapshot"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _sync(shelf)
    return place


def _keep(target: str, name: str, mode: int, content: Iterator[bytes]) -> None:
    path = os.path.join(target, name)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    if stat.S_ISLNK(mode):
        os.symlink(b"".join(content), os.fsencode(path))
        return
    with open(path, "xb") as file:
        file.writelines(content)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), 0o700 if mode & 0o100 else 0o600)


def _ignore(name: str, mode: int, content: Iterator[bytes]) -> None:
    for _ in content:
        pass


def _content(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def _hashed(content: Iterator[bytes], into: "hashlib.blake2b") -> Iterator[bytes]:
    for piece in content:
        into.update(piece)
        yield piece


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _too_large(root: str, what: str) -> BadInput:
    return BadInput(
        f"cannot copy {root}: it has {what}",
        remedy="keep data elsewhere or in .gitignore, or leave out --snapshot",
    )
