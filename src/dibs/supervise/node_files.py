"""The files that travel with an attempt: to a node without a shared file system, and back.

They are plain files, named relative to the attempt's folder: `call` is the function that it calls, `result-N` the
result, `checkpoint/...` what it saves for the next attempt. Names come from another machine: only those that
`is_harmless` accepts become paths. Standard library only.
"""

import os
import stat

from dibs.supervise.folder import open_own_file

CALL = "call"
CHECKPOINT = "checkpoint"
AWAITS = "awaits"  # on a node: a JSON object of what is still to come, by name, as `found_below` tells it
MOST_BYTES = 4 * 1024**3  # of one attempt, in each direction
MOST_FILES = 2_000
_LONGEST_NAME = 1_000  # characters

FileSizes = dict[str, tuple[int, int]]  # by name: bytes, and when it was written in ns since the epoch


def found_below(folder: str, most: int = MOST_FILES) -> FileSizes:
    """The files in a folder and in those inside it; of more than `most` only one more.

    A link to a file in the folder counts as that file. Other links, pipes and empty folders are left out.
    """
    found: FileSizes = {}
    inside = os.path.realpath(folder) + "/"
    for place, _, names in os.walk(folder):
        for name in names:
            path = f"{place}/{name}"
            try:
                if os.path.islink(path) and not os.path.realpath(path).startswith(inside):
                    continue
                seen = os.stat(path)
            except OSError:
                continue
            if stat.S_ISREG(seen.st_mode):
                found[path[len(folder) + 1 :]] = seen.st_size, max(0, seen.st_mtime_ns)
            if len(found) > most:
                return found
    return found


def is_harmless(name: str) -> bool:
    """Whether a name leads to a place inside the folder from which it is seen."""
    parts = name.split("/")
    return len(name) <= _LONGEST_NAME and "\0" not in name and all(part not in ("", ".", "..") for part in parts)


def put(folder: str, name: str, start: int, content: bytes) -> None:
    """Write a piece of a file in its place."""
    path = f"{folder}/{name}"
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fd = open_own_file(path, os.O_WRONLY | os.O_CREAT)
    try:
        while content:
            written = os.pwrite(fd, content, start)
            content, start = content[written:], start + written
    finally:
        os.close(fd)


def piece(path: str, start: int, length: int) -> bytes:
    """A part of a file that is there; nothing where it is not, or is no file to read from."""
    try:
        fd = open_own_file(path)
    except OSError:
        return b""
    try:
        return os.pread(fd, length, start)
    finally:
        os.close(fd)


def sizes(folder: str, names: list[str]) -> dict[str, int]:
    """How much there is of each; those that are not there, or no plain files, are left out."""
    found = {}
    for name in names:
        try:
            seen = os.lstat(f"{folder}/{name}")
        except OSError:
            continue
        if stat.S_ISREG(seen.st_mode):
            found[name] = seen.st_size
    return found


def has_arrived(folder: str, files: FileSizes) -> bool:
    """Whether all of these are there; their times are then as they were where they come from."""
    if sizes(folder, list(files)) != {name: size for name, (size, _) in files.items()}:
        return False
    for name, (_, written) in files.items():
        os.utime(f"{folder}/{name}", ns=(written, written))
    return True
