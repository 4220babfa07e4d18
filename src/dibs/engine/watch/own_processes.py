"""Whether a process belongs to a dibs job of any engine, and to which attempt."""

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from dibs.gpus.processes import attempt_folder_of, dibs_job_of
from dibs.leases.held_claims import inherited_claims
from dibs.supervise.folder import parent_of, record_of
from dibs.worker_thread import PatientReader

_reader = PatientReader()  # folders of other systems, or what a job put in the place of its own


def attempt_of(pid: int) -> str | None:
    """The folder of the attempt that a process belongs to; None where it belongs to none, or cannot be read.

    Its environment tells. One that was given another environment still has the locks of its claims, unless they
    were closed; then a process above it tells, at last the shim.
    """
    at: int | None = pid
    while at is not None and at > 1:
        if folder := attempt_folder_of(at) or _inherited_by(at):
            return folder
        at = parent_of(at)
    return None


def _inherited_by(pid: int) -> str:
    folders = (claim.folder for claim in inherited_claims(pid))
    return next(filter(None, folders), "")


def is_of_a_running_job(pid: int, leased: Collection[str] = ()) -> bool:
    """False for a process that outlived its job; a process that names a job but no attempt counts as running.

    It is false as well for one whose supervisor was killed and that has no lock of a claim, as those that docker
    starts: nothing else would keep its card. `leased` are the folders of attempts whose claims are held.

    A process whose folder does not answer counts as running. The processes of other users cannot be looked into:
    for these the answer is no.
    """
    folder = attempt_of(pid)
    if folder is None:
        return dibs_job_of(pid) is not None
    try:
        record = record_in_time(folder)
    except TimeoutError:
        return True
    # None where the folder was used again or removed.
    if record is None or record.get("state") == "ended":
        return False
    return folder in leased or _is_supervised(record) or bool(inherited_claims(pid))


def _is_supervised(record: Mapping[str, Any]) -> bool:
    """Whether the shim of a record lives. It has its FIFO open, whose name is not used again.

    The lock of the record would tell too, but who tries it holds it for a moment: an engine that looks then
    would see a shim.
    """
    if "control" not in record or "shim" not in record:
        return True
    name, fds = os.path.basename(str(record["control"])), f"/proc/{record['shim']}/fd"
    with suppress(OSError):
        for number in os.listdir(fds):
            with suppress(OSError):  # it was closed meanwhile
                if os.path.basename(os.readlink(f"{fds}/{number}")).removesuffix(" (deleted)") == name:
                    return True
    return False


def record_in_time(folder: str) -> dict[str, Any] | None:
    """The record of an attempt; TimeoutError where its folder does not answer, or has not just before."""
    return _reader.read(folder, lambda: record_of(folder))
