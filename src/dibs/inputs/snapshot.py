"""A copy of the code as it is now; `--snapshot` runs the jobs of a call in it.

Beside each copy lies the list of its files, with a digest of each. When no job needs the copy any more, the files
that are still the same are removed. What jobs wrote there stays.
"""

import contextlib
import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from typing import BinaryIO, cast

from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.files import replace_file, sync_folder
from dibs.inputs.code import find_repository, git
from dibs.paths import make_private

LARGEST = 200 * 1024**2  # bytes
_MOST_FILES = 100_000
_PATIENCE = 30.0  # seconds for git's list of files
_PIECE = 1024**2  # bytes
_LIST, _UNUSED = ".files", ".unused"  # behind the name of a copy
_FileMarks = dict[str, str]  # what each file is, by its name in the copy


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
        marks = _copy(root, names, temporary)
        replace_file(place + _LIST, json.dumps(marks), sync=False)
        os.rename(temporary, place)
        sync_folder(shelf)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(place + _LIST)
        raise BadInput(
            f"cannot copy the code to {shelf}: {error.strerror}", remedy="make room, or leave out --snapshot"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return CodeSnapshot(root, place)


def mark_unused(copy: str) -> None:
    """Note that no job needs a copy any more, so that `remove_unused` finds it, also after a crash."""
    with contextlib.suppress(OSError):
        replace_file(copy + _UNUSED, "", sync=False)


def remove_unused(shelf: str) -> list[str]:
    """Remove the copies that are marked as unused, without what jobs wrote there.

    Returns the copies of which something is left.
    """
    try:
        marked = sorted(name.removesuffix(_UNUSED) for name in os.listdir(shelf) if name.endswith(_UNUSED))
    except OSError:  # there is no copy
        return []
    kept = []
    for name in marked:
        copy = os.path.join(shelf, name)
        _remove_unchanged(copy)
        if os.path.lexists(copy):
            kept.append(copy)
        for end in (_LIST, _UNUSED):
            with contextlib.suppress(OSError):
                os.unlink(copy + end)
    return kept


def _remove_unchanged(copy: str) -> None:
    """Remove the files of a copy that are as they were copied. Without its list that is known of none."""
    marks: _FileMarks = {}
    with contextlib.suppress(OSError, ValueError), open(copy + _LIST, encoding="utf-8") as file:
        marks = json.load(file)
    for folder, folders, files in os.walk(copy, topdown=False):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in [*files, *links]:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                if _is_bytecode(path) or marks.get(os.path.relpath(path, copy)) == _mark_of(path):
                    os.unlink(path)
        with contextlib.suppress(OSError):  # it is not empty
            os.rmdir(folder)


def _is_bytecode(path: str) -> bool:
    """Whether Python made the file, and makes it again."""
    return path.endswith(".pyc") and os.path.basename(os.path.dirname(path)) == "__pycache__"


def _mark_of(path: str) -> str:
    """What a file is: the digest of its content, or where a link leads to."""
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return _link_mark(os.readlink(path))
    if not stat.S_ISREG(mode):
        return "of another kind"
    # A job may have put a link or a FIFO in its place since.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _link_mark(target: str) -> str:
    return f"link to {target}"


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


def _copy(root: str, names: list[str], target: str) -> _FileMarks:
    marks = {}
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
            link = os.readlink(path)
            os.symlink(link, copy)
            marks[name] = _link_mark(link)
        elif stat.S_ISREG(seen.st_mode):  # not a socket or a FIFO
            marks[name] = _copy_file(path, copy, 0o700 if seen.st_mode & 0o100 else 0o600)
    return marks


def _copy_file(path: str, copy: str, mode: int) -> str:
    """Copy a file; return the digest of what was copied."""
    digest = hashlib.sha256()
    with _opened(path) as source, open(copy, "xb") as file:
        while piece := source.read(_PIECE):
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), mode)
    return digest.hexdigest()


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
