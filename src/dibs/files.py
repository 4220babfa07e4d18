"""Files that other processes read are replaced as a whole. Standard library only."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO


def replace_file(path: str, content: str | bytes, *, mode: int | None = 0o600, sync: bool = True) -> None:
    """Write a file under a temporary name and rename it: a reader finds the old content or all of the new.

    After an OSError the old file is still there, and the temporary one is gone. `mode` None leaves the mode to
    the umask; `sync` False is for content that need not survive a power cut.
    """
    with replacing_file(path, mode=mode, sync=sync) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing_file(path: str, *, mode: int | None = 0o600, sync: bool = True) -> Iterator[IO[bytes]]:
    """The same for content that is written in pieces: the rename follows the end of the block."""
    # The name cannot be foreseen, and is never opened through a link: others may write to the folder.
    new = f"{path}.{os.urandom(6).hex()}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(new, flags, 0o666 if mode is None else mode)
    try:
        with open(handle, "wb") as file:
            if mode is not None:
                os.fchmod(handle, mode)  # the umask may have removed more
            yield file
            file.flush()
            if sync:
                os.fsync(handle)
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise


def sync_folder(folder: str) -> None:
    """Return when the names in a folder survive a power cut."""
    _sync(folder or ".", os.O_DIRECTORY)


def sync_tree(folder: str) -> None:
    """Return when a folder, all folders in it and the content of their files survive a power cut."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                sync_tree(entry.path)
            elif entry.is_file(follow_symlinks=False):
                _sync(entry.path, os.O_NOFOLLOW)
    sync_folder(folder)


def _sync(path: str, flags: int) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cannot_write(error: OSError, path: str, setting: str) -> str:
    """`cannot write to /shared/q1: no space left on device; make room there, or set ... to another folder`.

    `setting` is the one that says where such files go; empty: there is none.
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "make room there"
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        remedy = "make it writable"
    else:
        remedy = "bring it back"
    elsewhere = f", or set {setting} to another folder" if setting else ""
    return f"cannot write to {path}: {error_text(error)}; {remedy}{elsewhere}"


def error_text(error: OSError) -> str:
    """`not a directory`: the system's message, as in the middle of a sentence."""
    if not error.strerror:
        return str(error)  # our own message
    return f"{error.strerror[0].lower()}{error.strerror[1:]}"


def error_with_path(error: OSError) -> str:
    """`input/output error: /data/q1/record`: the same where nothing else in the sentence says which file."""
    return f"{error_text(error)}: {os.fsdecode(error.filename)}" if error.filename else error_text(error)
