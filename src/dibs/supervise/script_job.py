"""A batch job whose attempt came inside its batch script, for nodes that share no file system with the queue.

The attempt's folder is made on the node's own disk, and node_sync.py fetches it from there. The fence is on that
disk too, but outside the folder: it stays when the folder is gone, so that an old copy cannot run again.
The files that the command needs (node_files.py) came in the script, or are brought while the job waits for them.

Standard library only, everything imported at the top: the package may be deleted while we run.
"""

import binascii
import json
import math
import os
import shutil
import sys
import time
import zlib
from collections.abc import Mapping
from typing import Any

from dibs.supervise import batch_job, fence, node_files
from dibs.supervise.folder import prepare_unlocked

NO_ROOM = 74  # an exit status: the node's own folder cannot be written
NO_SOURCE = 71  # of the batch script: the package is not there
FILES_NOT_BROUGHT = 75  # a file that it needs was not brought in time

_MARK = b"\n# dibs carries: "
_LOOK_EVERY = 0.2  # seconds
_PATIENCE = 1800.0  # seconds without any arrival, after which the card is freed for other jobs


def pack(document: Mapping[str, Any]) -> bytes:
    """The last line of a batch script: what `main` unpacks from it."""
    return _MARK + binascii.b2a_base64(zlib.compress(json.dumps(document).encode()))


def attempts_below(root: str) -> str:
    """Where on a node the folders of attempts are."""
    return f"{root}/attempts"


def fences_below(root: str) -> str:
    """Where on a node the fences are, by the names of attempts."""
    return f"{root}/fences"


def main(script: str) -> int:
    """Run the attempt that this script carries for our element of the array; exit statuses as in batch_job.py."""
    with open(script, "rb") as file:
        document = json.loads(zlib.decompress(binascii.a2b_base64(file.read().rpartition(_MARK)[2])))
    one = document["attempts"].get(os.environ.get("SLURM_ARRAY_TASK_ID", ""))
    if one is None:
        return batch_job.NO_FOLDER
    # Taken back and started again: the first copy may run on another node, whose fence we cannot see.
    if os.environ.get("SLURM_RESTART_COUNT", "0") != "0":
        return batch_job.FENCED
    root, name, spec = document["root"], one["name"], one["spec"]
    fences, folder = fences_below(root), f"{attempts_below(root)}/{name}"
    os.umask(0o077)
    try:
        os.makedirs(fences, mode=0o700, exist_ok=True)
        if fence.holder(fences, name) is not None:
            return batch_job.FENCED
        os.makedirs(folder, mode=0o700, exist_ok=True)
        spec["environment"] = _keep(f"{folder}/environment.json", document["environments"][one["environment"]])
        _unpack(folder, one.get("brings", {}))
        if (awaited := one.get("awaits")) and (problem := _await(folder, awaited, spec, (fences, name))):
            shutil.rmtree(folder, ignore_errors=True)  # it would not be fetched
            return problem
        if one.get("is_call"):
            spec["words"] = _with_python(spec["words"])
        prepare_unlocked(folder, spec)
    except OSError as error:
        print(error, flush=True)
        return NO_ROOM
    return batch_job.main(folder, (fences, name))


def _unpack(folder: str, brought: Mapping[str, Any]) -> None:
    for name, (text, written) in brought.items():
        content = binascii.a2b_base64(text)
        node_files.put(folder, name, 0, content)
        node_files.has_arrived(folder, {name: (len(content), written)})


def _await(folder: str, awaited: node_files.FileSizes, spec: dict[str, Any], fence_at: tuple[str, str]) -> int:
    """Wait for what is brought to this folder; return 0, or the exit status where it is not to start.

    The fence is not taken yet: cancelling the job takes it. Slurm counts this time, so the time limit does too.
    """
    began = last_news = time.monotonic()
    parent, before = os.getppid(), -1
    with open(f"{folder}/{node_files.AWAITS}.new", "w") as file:
        json.dump(awaited, file)
    os.rename(f"{folder}/{node_files.AWAITS}.new", f"{folder}/{node_files.AWAITS}")
    while not node_files.has_arrived(folder, awaited):
        now, there = time.monotonic(), sum(node_files.sizes(folder, list(awaited)).values())
        if there != before:
            last_news, before = now, there
        if fence.holder(*fence_at) is not None or os.getppid() != parent:
            return batch_job.FENCED
        if now - last_news > _PATIENCE:
            return FILES_NOT_BROUGHT
        time.sleep(_LOOK_EVERY)
    os.unlink(f"{folder}/{node_files.AWAITS}")
    if (limit := spec.get("time_limit")) is not None:
        granted = math.ceil(limit / 60) * 60.0  # Slurm counts whole minutes
        spec["time_limit"] = max(1.0, min(limit, granted - (time.monotonic() - began)))
    return 0


def _with_python(words: list[str]) -> list[str]:
    """A call with an interpreter that is not here is made by ours; work.py says if that is another version."""
    if len(words) == 4 and words[0].startswith("/") and not os.path.exists(words[0]):
        return [sys.executable, *words[1:]]
    return words


def _keep(path: str, environment: Mapping[str, str]) -> str:
    with open(path, "w") as file:
        json.dump(environment, file)
    return path
