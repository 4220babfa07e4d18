"""On a node: send what attempts have written since the last call, and store files that they wait for.

It is called over ssh, once for many attempts.

A question is a JSON object: `root`, `most` bytes of output for all together, `asked` (by the attempt's name: how
much of each file is known already, whether the record is wanted, whether the attempt is to be forbidden, which
more `files` and whether its checkpoint is wanted, up to which `bound`), `drop`, the names of those that were
delivered, and `bring`, pieces of what waiting attempts need, whose content follows after the object's line. The
answer is a line that says how long the next part is, a JSON object, and after it the pieces of the files.

Nothing is moved or waited for, and asking twice does no harm. Standard library only.
"""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO

from dibs.supervise import fence, node_files
from dibs.supervise.folder import RECORD, RECORD_SIZE, decode_record, open_own_file
from dibs.supervise.script_job import attempts_below, fences_below

MAGIC = b"\ndibs node sync "  # whatever the login shell says comes before it
STREAMS = ("stdout", "stderr", "metrics")

_LEAST_PIECE = 64 * 1024  # bytes; more of one file only where others leave room
_FENCES_KEPT = 7 * 86400.0  # seconds; no system brings a job back after so long
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")  # below our folders, and none of them


def main(question: BinaryIO = sys.stdin.buffer, answer: BinaryIO = sys.stdout.buffer) -> None:
    """Answer one question."""
    head, _, content = question.read().partition(b"\n")
    asked: dict[str, Any] = json.loads(head)
    root = asked["root"]
    for name in filter(_NAME.fullmatch, asked["drop"]):
        _drop(root, name)
    if asked["drop"]:
        _forget_old_fences(root)
    _bring(root, asked.get("bring", {}), content)
    found = {name: _look(root, name, wish) for name, wish in asked["asked"].items() if _NAME.fullmatch(name)}
    pieces = _read(root, found, asked["most"])
    told = json.dumps(found).encode()
    answer.write(MAGIC + b"%d\n" % len(told) + told)
    answer.writelines(pieces)
    answer.flush()


def _look(root: str, name: str, wish: Mapping[str, Any]) -> dict[str, Any]:
    """Who holds the fence, what there is to fetch from where on, and the record if it is wanted and final."""
    folder = f"{attempts_below(root)}/{name}"
    if wish.get("forbid"):
        os.makedirs(fences_below(root), mode=0o700, exist_ok=True)
        fence.take(fences_below(root), fence.CANCELLED, name)
    holder = fence.holder(fences_below(root), name)
    if wish.get("forbid") and holder == fence.CANCELLED:
        _drop(root, name)  # it waits for what is brought, and Slurm ends it before it can tidy up
    found: dict[str, Any] = {"holder": holder, "record": "", "rest": {}, "cut": {}}
    # The record first: what the command wrote before its end is in its files by then.
    if wish.get("final"):
        found["record"] = _record(folder)
    if (awaited := _awaited(folder)) is not None:
        found["brought"] = node_files.sizes(folder, awaited)
    sizes = node_files.sizes(folder, [*STREAMS, *filter(_NAME.fullmatch, wish.get("files", ()))])
    for stream, size in (sizes | _checkpoint(folder, wish, found)).items():
        have: int = wish["have"].get(stream, 0)
        if stream not in STREAMS and size > wish["bound"][0]:
            found.setdefault("excess", {})[stream] = size
            continue
        cut = _cut(f"{folder}/{stream}.cut") if stream in STREAMS else None
        if cut is not None:
            found["cut"][stream] = cut
        start = 0 if size < have else have  # a command may make its own log shorter
        end = size
        if cut is not None and start < cut[1]:
            start, end = (cut[1], size) if start >= cut[0] else (start, min(size, cut[0]))
        if end > start or start != have or stream not in wish["have"]:
            found["rest"][stream] = [start, end]
    return found


def _checkpoint(folder: str, wish: Mapping[str, Any], found: dict[str, Any]) -> dict[str, int]:
    """The sizes of what one that is over has saved, which `checkpoint` lists; `excess` where it is too much."""
    if not wish.get("checkpoint") or not found["record"]:
        return {}
    most_bytes, most_files = wish["bound"]
    files = node_files.found_below(f"{folder}/{node_files.CHECKPOINT}", most_files)
    size = sum(one for one, _ in files.values())
    if size > most_bytes or len(files) > most_files:
        found["excess"] = {node_files.CHECKPOINT: size}
        return {}
    found["checkpoint"] = files
    return {f"{node_files.CHECKPOINT}/{name}": size for name, (size, _) in files.items()}


def _awaited(folder: str) -> list[str] | None:
    """The names of what an attempt waits for; None where it does not. A job may write anything into that file."""
    with suppress(OSError, ValueError, RecursionError):
        with open(open_own_file(f"{folder}/{node_files.AWAITS}")) as file:
            names = json.load(file)
        if isinstance(names, dict):
            return list(filter(node_files.is_harmless, names))
    return None


def _bring(root: str, brought: Mapping[str, Any], content: bytes) -> None:
    place = 0
    for name, pieces in brought.items():
        folder = f"{attempts_below(root)}/{name}"
        awaited = (_awaited(folder) if _NAME.fullmatch(name) else None) or []
        for file, start, size in pieces:
            # A call that was given up may still be at work: nothing before its pieces may be missing.
            is_next = node_files.sizes(folder, [file]).get(file, 0) >= start
            if file in awaited and node_files.is_harmless(file) and is_next:
                with suppress(OSError):  # a full disk: others here are to be heard all the same
                    node_files.put(folder, file, start, content[place : place + size])
            place += size


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
            content = _content(f"{attempts_below(root)}/{name}", stream, start, wanted)
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
    with suppress(OSError), open(open_own_file(f"{folder}/{RECORD}"), "rb") as file:
        content = file.read(RECORD_SIZE)
        if (decode_record(content) or {}).get("state") == "ended":
            return content.decode("ascii", "replace")
    return ""


def _content(folder: str, stream: str, start: int, length: int) -> bytes:
    path = f"{folder}/{stream}"
    if stream.startswith(f"{node_files.CHECKPOINT}/"):
        path = os.path.realpath(path)  # of the links in there only those count that lead nowhere else
    return node_files.piece(path, start, length)


def _cut(path: str) -> list[int] | None:
    """The first byte that was given back to the disk, and the first that is there again."""
    try:
        with open(open_own_file(path)) as file:
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
