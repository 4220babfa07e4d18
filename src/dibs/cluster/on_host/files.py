"""Files of a cluster: put in their places, read back, removed."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import tarfile
from typing import Any


def put(request: dict[str, Any]) -> dict[str, Any]:
    """Unpack the archive that follows on stdin, each file under a temporary name first.

    Hosts that share the folder may do this at the same time, and a job may read it meanwhile.
    """
    for folder in request["folders"]:
        make(folder)
    for link, target in request["links"]:
        if not os.path.islink(link):
            os.symlink(target, link)
    data = sys.stdin.buffer.read(request["size"])
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                _write(os.path.join(request["base"], member.name), content.read(), member.mode)
    return {}


def remove(request: dict[str, Any]) -> dict[str, Any]:
    """Remove folders of a cluster; the names say that they are such."""
    left = []
    for folder in request["folders"]:
        if os.path.basename(folder).startswith("cluster-") and not os.path.islink(folder):
            shutil.rmtree(folder, ignore_errors=True)
        if os.path.lexists(folder):
            left.append(folder)
    return {"left": left}


def make(folder: str) -> None:
    """Make a folder that only this user can read, with its missing parents."""
    if not os.path.lexists(folder):
        if not os.path.lexists(os.path.dirname(folder)):
            make(os.path.dirname(folder))
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
    seen = os.lstat(folder)
    if seen.st_uid != os.geteuid() or os.path.islink(folder):
        raise PermissionError(f"{folder} belongs to uid {seen.st_uid}, or is a link")


def _write(path: str, data: bytes, mode: int) -> None:
    make(os.path.dirname(path))
    part = f"{path}.{os.uname().nodename}.{os.getpid()}.part"
    handle = os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, mode)
    with open(handle, "wb") as file:
        file.write(data)
        os.fchmod(handle, mode)
    os.rename(part, path)
