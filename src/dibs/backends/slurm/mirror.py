"""Our copy of an attempt's folder whose original is on a node, and what we must not forget about it.

It looks like the folder of an attempt on a shared file system, so that whoever reads logs, metrics and records
need not know. Beside that it tells whether a copy of the attempt may be with Slurm (`handed`).
"""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dibs.backends.protocol import AttemptRef
from dibs.backends.slurm.files import write_record
from dibs.backends.slurm.packing import Belongings
from dibs.backends.slurm.ssh import Pieces
from dibs.files import replace_file
from dibs.supervise import folder, luggage, records
from dibs.supervise.deliver import STREAMS
from dibs.supervise.logs import punch

_HANDED = "handed"


@dataclass(frozen=True, slots=True)
class HandedFiles:
    """How often an attempt was given to Slurm, and whether the last copy may still start or has started."""

    times: int = 0
    is_open: bool = False

    def name(self, ref: AttemptRef) -> str:
        """What the last copy is called on the nodes. A new copy is another one: the old one's fence stays shut."""
        return f"{ref.key}.{ref.attempt}.{self.times}"


def handed(ref: AttemptRef) -> HandedFiles:
    """What we wrote down before it was given to Slurm."""
    try:
        with open(f"{ref.folder}/{_HANDED}") as file:
            times, word = file.read(100).split()
    except FileNotFoundError:
        return HandedFiles()
    return HandedFiles(int(times), word == "open")


def remember(ref: AttemptRef, found: HandedFiles) -> None:
    """Synced: who comes back after a power cut must not start a second copy beside the first."""
    replace_file(f"{ref.folder}/{_HANDED}", f"{found.times} {'open' if found.is_open else 'closed'}\n")


def spec(ref: AttemptRef) -> dict[str, Any]:
    """What its shim was told, as it was before it was made fit for a node."""
    with open(f"{ref.folder}/{folder.RECORD}", "rb") as file:
        file.seek(records.SIZE)
        try:
            found: dict[str, Any] = json.loads(file.read())
        except ValueError:
            raise OSError(f"{file.name} is broken") from None
    return found


def sizes(ref: AttemptRef, own: Belongings, *, final: bool) -> dict[str, int]:
    """How much of each file we have. What it saves for the next attempt comes at its end."""
    found = luggage.sizes(ref.folder, [*STREAMS, *own.names])
    if final and own.checkpoint:
        for name, (size, _) in luggage.found_below(f"{ref.folder}/{luggage.CHECKPOINT}").items():
            found[f"{luggage.CHECKPOINT}/{name}"] = size
    return found


def add(ref: AttemptRef, own: Belongings, pieces: Pieces, cut: Mapping[str, Sequence[int]]) -> None:
    """Put new pieces in their places. A file that begins anew there begins anew here."""
    for stream, start, content in pieces:
        path = f"{ref.folder}/{stream}"
        if own.output and stream == "stdout":
            own.append(content)  # first: after a crash in between it is there twice, and not never
        with contextlib.suppress(FileNotFoundError):
            if start < os.stat(path).st_size:
                os.truncate(path, start)
        luggage.put(ref.folder, stream, start, content)
    for stream, (start, end) in cut.items():
        _cut(f"{ref.folder}/{stream}", start, end)


def finish(ref: AttemptRef, record: str) -> None:
    """Everything is here: write the record last, and nothing before the rest is safe."""
    for stream in STREAMS:
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(f"{ref.folder}/{stream}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
    write_record(ref.folder, record.encode())


def _cut(path: str, start: int, end: int) -> None:
    """What the node gave back to its disk is given back here, and said beside it as there."""
    mark = f"{start} {end}\n"
    with contextlib.suppress(FileNotFoundError), open(f"{path}.cut") as file:
        if file.read(100) == mark:
            return
    replace_file(f"{path}.cut", mark, sync=False)
    with contextlib.suppress(OSError):  # not every file system can do it; then there is more here than there
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            punch(fd, start, end - start)
        finally:
            os.close(fd)
