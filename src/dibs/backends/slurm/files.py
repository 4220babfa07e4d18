"""What the backend asks of attempts' folders, and the folders of a file system that all nodes share."""

import contextlib
import os
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from dibs.backends.protocol import AttemptRef, Submission
from dibs.backends.slurm.sbatch import SlurmBatch, array_script, script
from dibs.backends.slurm.settings import SlurmSettings
from dibs.backends.slurm.squeue import SqueueRow
from dibs.files import cannot_write, error_text
from dibs.supervise import fence, folder
from dibs.supervise.folder import encode_record

Rows = Mapping[AttemptRef, SqueueRow | None]  # what Slurm has of each
ROOT_SETTING = "backends.slurm.root"
_CANCELLED = {"v": 1, "state": "ended", "by": "stop", "message": "cancelled before it started"}


class NotReached(OSError):
    """A node that may have started an attempt does not answer: nothing is known of it."""


class Files(Protocol):
    """The folders of attempts, wherever they are. Whatever cannot be known now is an OSError."""

    def look(self, rows: Rows) -> None:
        """Bring what is known of these up to date."""

    def withdraw(self, rows: Rows) -> None:
        """Before they are submitted again: make sure that no earlier copy of them starts."""

    def forbid(self, refs: Collection[AttemptRef]) -> set[AttemptRef]:
        """Have none of these start; those of which that is certain now, as their records say."""

    def forbid_there(self, rows: Rows) -> set[AttemptRef]:
        """The same with the help of the nodes, for those of which it was not certain."""

    def prepare(self, one: Submission) -> None:
        """Make its folder. Slurm may start a job before it has answered us."""

    def script(self, batch: SlurmBatch) -> bytes:
        """The batch script that runs those attempts."""

    def refused(self, refs: Collection[AttemptRef]) -> None:
        """Slurm would not have these: there is no copy of them over there."""

    def holder(self, ref: AttemptRef) -> str | None:
        """What its fence says; None while it is not taken."""

    def record(self, ref: AttemptRef) -> dict[str, Any] | None:
        """What its shim wrote; None where it wrote nothing."""

    @property
    def output(self) -> str:
        """Where Slurm puts what goes wrong before our shim is there, with its own marks: `%j`."""


class SharedFiles:
    """Every node sees the same folders: the fence in them holds for all, and nothing has to be copied."""

    def __init__(self, settings: SlurmSettings) -> None:
        self._settings = settings

    def look(self, rows: Rows) -> None:
        pass

    def withdraw(self, rows: Rows) -> None:
        pass  # the fence stops whatever comes second

    def forbid(self, refs: Collection[AttemptRef]) -> set[AttemptRef]:
        return {ref for ref in refs if never_start(ref)}

    def forbid_there(self, rows: Rows) -> set[AttemptRef]:
        return set()

    def prepare(self, one: Submission) -> None:
        folder.prepare_unlocked(one.ref.folder, one.spec)

    def script(self, batch: SlurmBatch) -> bytes:
        folders = {task: one.ref.folder for task, one in batch.members.items()}
        python, source = self._settings.python, self._settings.source
        if batch.is_array:
            return array_script(python, source, folders)
        return script(python, source, *folders.values())

    def refused(self, refs: Collection[AttemptRef]) -> None:
        pass

    def holder(self, ref: AttemptRef) -> str | None:
        return fence.holder(ref.folder)

    def record(self, ref: AttemptRef) -> dict[str, Any] | None:
        return folder.read_record(ref.folder)

    @property
    def output(self) -> str:
        where = f"{self._settings.root}/slurm"
        os.makedirs(where, mode=0o700, exist_ok=True)
        return f"{where.replace('%', '%%')}/%j.out"


def cannot_put(error: OSError, path: str) -> str:
    """Why nothing can be put there, and what helps."""
    return cannot_write(error, path, ROOT_SETTING)


def cannot_look(error: OSError, ref: AttemptRef) -> str:
    """Why it is not known where an attempt is. It is looked at again automatically."""
    return f"cannot look into its folder: {error_text(error)} ({ref.folder}); dibs looks again by itself"


def never_start(ref: AttemptRef) -> bool:
    """Whether the attempt of this folder has not started and now never will; its record then says so."""
    try:
        if not fence.take(ref.folder, fence.CANCELLED) and fence.holder(ref.folder) != fence.CANCELLED:
            return False
    except FileNotFoundError:
        return True  # it was never submitted
    except OSError:
        return False  # not known: its shim is asked, if there is one
    with contextlib.suppress(OSError):  # it never starts; the next cancel writes it down
        if folder.read_record(ref.folder) is None:
            write_record(ref.folder, encode_record(_CANCELLED))
    return True


def write_record(path: str, content: bytes) -> None:
    """Write a record in a shim's place, safely."""
    fd = folder.open_own_file(f"{path}/{folder.RECORD}", os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(fd, content, 0)
        os.fsync(fd)
    finally:
        os.close(fd)
