"""An attempt that came to its node inside the batch script: its nodes share no file system with us.

Its folder is made here, on the node's own disk, and fetched from here (deliver.py). The fence is the node's as
well, and not in that folder: it stays when the folder is gone, so that an old copy of the job runs no second time.

Standard library only, everything imported at the top: the package may be deleted while we run.
"""

import binascii
import json
import os
import zlib
from collections.abc import Mapping
from typing import Any

from dibs.supervise import alone, fence
from dibs.supervise.folder import prepare_unlocked

NO_ROOM = 74  # an exit status: the node's own folder cannot be written
NO_SOURCE = 71  # of the batch script: the package is not there

_MARK = b"\n# dibs carries: "


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
    """Run the attempt that this script carries for our element of the array; exit statuses as in alone.py."""
    with open(script, "rb") as file:
        document = json.loads(zlib.decompress(binascii.a2b_base64(file.read().rpartition(_MARK)[2])))
    one = document["attempts"].get(os.environ.get("SLURM_ARRAY_TASK_ID", ""))
    if one is None:
        return alone.NO_FOLDER
    # Taken back and started again: the first copy may run on another node, whose fence we cannot see.
    if os.environ.get("SLURM_RESTART_COUNT", "0") != "0":
        return alone.FENCED
    root, name, spec = document["root"], one["name"], one["spec"]
    fences, folder = fences_below(root), f"{attempts_below(root)}/{name}"
    os.umask(0o077)
    try:
        os.makedirs(fences, mode=0o700, exist_ok=True)
        if fence.holder(fences, name) is not None:
            return alone.FENCED
        os.makedirs(folder, mode=0o700, exist_ok=True)
        spec["environment"] = _keep(f"{folder}/environment.json", document["environments"][one["environment"]])
        if checkpoints := spec["env"].get("DIBS_CHECKPOINT_DIR"):
            os.makedirs(checkpoints, mode=0o700, exist_ok=True)
        prepare_unlocked(folder, spec)
    except OSError as error:
        print(error, flush=True)
        return NO_ROOM
    return alone.main(folder, (fences, name))


def _keep(path: str, environment: Mapping[str, str]) -> str:
    with open(path, "w") as file:
        json.dump(environment, file)
    return path
