"""On a node: hand over what attempts have written since the last time. Asked over ssh, for many at once.

A question is a JSON object: `root`, `most` bytes of output for all together, `asked` (by the attempt's name: how
much of each file is known already, whether the record is wanted, whether the attempt is to be forbidden), and
`drop`, the names of those that were delivered. The answer is a line that says how long the next part is, a JSON
object, and after it the pieces of the files.

Nothing is moved or waited for, and asking twice does no harm. Standard library only.
"""

import json
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO

from dibs.supervise import fence, records
from dibs.supervise.carried import attempts_below, fences_below
from dibs.supervise.folder import RECORD

MAGIC = b"\ndibs delivers "  # whatever the login shell says comes before it
STREAMS = ("stdout", "stderr", "metrics")

_LEAST_PIECE = 64 * 1024  # bytes; more of one file only where others leave room
_FENCES_KEPT = 7 * 86400.0  # seconds; no system brings a job back after so long
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")  # below our folders, and none of them


def main(question: BinaryIO = sys.stdin.buffer, answer: BinaryIO = sys.stdout.buffer) -> None:
    """Answer one question."""
    asked: dict[str, Any] = json.loads(question.read())
    root = asked["root"]
    for name in filter(_NAME.fullmatch, asked["drop"]):
        _drop(root, name)
    if asked["drop"]:
        _forget_old_fences(root)
    found = {name: _look(root, name, wish) for name, wish in asked["asked"].items() if _NAME.fullmatch(name)}
    pieces = _read(root, found, asked["most"])
    head = json.dumps(found).encode()
    answer.write(MAGIC + b"%d\n" % len(head) + head)
    answer.writelines(pieces)
    answer.flush()


def _look(root: str, name: str, wish: Mapping[str, Any]) -> dict[str, Any]:
    """Who holds the fence, what there is to fetch from where on, and the record if it is wanted and final."""
    folder = f"{attempts_below(root)}/{name}"
    if wish.get("forbid"):
        os.makedirs(fences_below(root), mode=0o700, exist_ok=True)
        fence.take(fences_below(root), fence.CANCELLED, name)
    found: dict[str, Any] = {"holder": fence.holder(fences_below(root), name), "record": "", "rest": {}, "cut": {}}
    # The record first: what the command wrote before its end is in its files by then.
    if wish.get("final"):
        found["record"] = _record(folder)
    for stream in STREAMS:
        have: int = wish["have"].get(stream, 0)
        size = _size(f"{folder}/{stream}")
        cut = _cut(f"{folder}/{stream}.cut")
        if cut is not None:
            found["cut"][stream] = cut
        if size is None:
            continue
        start = 0 if size < have else have  # a command may make its own log shorter
        end = size
        if cut is not None and start < cut[1]:
            start, end = (cut[1], size) if start >= cut[0] else (start, min(size, cut[0]))
        if end > start or start != have or stream not in wish["have"]:
            found["rest"][stream] = [start, end]
    return found


def _read(root: str, found: dict[str, Any], most: int) -> list[bytes]:
    """The pieces, in the order in which `pieces` names them (stream, place and length), a little of everything.

    A record is only told together with the last piece: who has it has everything.
    """
    number = sum(len(one["rest"]) for one in found.values())
    share = max(_LEAST_PIECE, most // max(1, number))
    pieces = []
    for name, one in found.items():
        one["pieces"] = []
        is_whole = True
        for stream, (start, end) in one.pop("rest").items():
            wanted = min(end - start, share, most)
            content = _piece(f"{attempts_below(root)}/{name}/{stream}", start, wanted)
            most -= len(content)
            one["pieces"].append([stream, start, len(content)])
            pieces.append(content)
            is_whole = is_whole and len(content) == end - start and not _is_in_hole(one["cut"].get(stream), end)
        one["is_whole"] = is_whole
        if not is_whole:
            one["has_record"], one["record"] = bool(one["record"]), ""
    return pieces


def _is_in_hole(cut: list[int] | None, end: int) -> bool:
    """Whether what was read up to here ends where a hole begins: more comes after it."""
    return cut is not None and end == cut[0]


def _record(folder: str) -> str:
    """The whole record of an attempt that is over, as text; empty where it is not."""
    with suppress(OSError), open(f"{folder}/{RECORD}", "rb") as file:
        content = file.read(records.SIZE)
        if (records.decode(content) or {}).get("state") == "ended":
            return content.decode("ascii", "replace")
    return ""


def _piece(path: str, start: int, length: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(fd, length, start)
    finally:
        os.close(fd)


def _size(path: str) -> int | None:
    """None where that is no plain file: a command may have put anything in its place."""
    try:
        seen = os.lstat(path)
    except OSError:
        return None
    return seen.st_size if stat.S_ISREG(seen.st_mode) else None


def _cut(path: str) -> list[int] | None:
    """The first byte that was given back to the disk, and the first that is there again."""
    try:
        with open(path) as file:
            start, end = map(int, file.read(100).split())
    except (OSError, ValueError):
        return None
    return [start, end]


def _drop(root: str, name: str) -> None:
    shutil.rmtree(f"{attempts_below(root)}/{name}", ignore_errors=True)


def _forget_old_fences(root: str) -> None:
    oldest = time.time() - _FENCES_KEPT
    with suppress(OSError), os.scandir(fences_below(root)) as entries:
        for entry in entries:
            with suppress(OSError):
                is_over = not os.path.lexists(f"{attempts_below(root)}/{entry.name}")
                if is_over and entry.stat(follow_symlinks=False).st_mtime < oldest:
                    os.unlink(entry.path)


if __name__ == "__main__":
    main()
