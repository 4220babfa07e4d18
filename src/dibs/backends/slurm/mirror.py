"""Our copy of an attempt's folder whose original is on a node, and what goes to the node and back.

The copy looks like the folder of an attempt on a shared file system, so that readers of logs, metrics and records
need not know. It also says whether a copy of the attempt may be with Slurm (`handed`).

A called function and an earlier attempt's checkpoint go to the node; the function's result, the new checkpoint and
the output for a file that the user named come back. The attempt's spec says where each belongs here.
"""

import binascii
import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dibs.backends.protocol import AttemptRef
from dibs.backends.slurm.files import write_record
from dibs.dataclass import dataclass
from dibs.errors import BackendRefused
from dibs.files import replace_file
from dibs.model.jobs import folder_of_call
from dibs.supervise import folder, node_files
from dibs.supervise.folder import open_own_file
from dibs.supervise.logs import punch
from dibs.supervise.node_files import CALL, CHECKPOINT
from dibs.supervise.node_sync import STREAMS

LEFT_BEHIND = ".left-behind"  # in the folder for checkpoints: where a newer one is that was too big to be fetched
_HANDED = "handed"
Pieces = Sequence[tuple[str, int, bytes]]  # of files: the name, the place in it, the content


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptFiles:
    """The places here of what belongs to an attempt; empty where it has no such thing."""

    folder: str  # the attempt's own
    result: str = ""  # its name: of each attempt its own
    call: str = ""  # the folder of the call
    checkpoint: str = ""  # the job's folder for checkpoints
    output: str = ""  # the file that takes its output, where that is not in the attempt's folder
    error: str = ""  # the same of its stderr, where that is a file of its own
    umask: int = 0o077

    @property
    def names(self) -> tuple[str, ...]:
        """The files of its folder, beside output and record, that are fetched."""
        return (self.result,) if self.call else ()

    def check(self) -> None:
        """Refuse what cannot be carried, in one sentence."""
        if self.checkpoint and (left := _read(f"{self.checkpoint}/{LEFT_BEHIND}")):
            raise BackendRefused(
                f"cannot go on from its checkpoint: {left}",
                remedy=f"save less at a time, or begin anew: rm {self.checkpoint}/{LEFT_BEHIND}",
            )
        there = self.outgoing()
        size = sum(one for one, _ in there.values())
        if size > node_files.MOST_BYTES or len(there) > node_files.MOST_FILES:
            most = _shown(node_files.MOST_BYTES, node_files.MOST_FILES)
            raise BackendRefused(
                f"cannot carry its function or its checkpoint to a node: {_shown(size, len(there))},"
                f" and without a shared file system {most} are the most",
                remedy="give the function a path instead of data, keep fewer checkpoints, or share a file system",
            )
        for path in filter(None, (self.output, self.error)):
            try:
                if "%N" not in path:  # of a node that is not known yet
                    self.append(path, b"")
            except OSError as error:
                raise BackendRefused(
                    f"cannot write its output to {path}: {error.strerror}", remedy="name another file"
                ) from error

    def outgoing(self) -> node_files.FileSizes:
        """What goes there."""
        found: node_files.FileSizes = {}
        if self.call:
            with contextlib.suppress(FileNotFoundError):  # collected, or given up: work.py says so
                seen = os.stat(f"{self.call}/{CALL}")
                found[CALL] = seen.st_size, seen.st_mtime_ns
        if self.checkpoint:
            for name, about in node_files.found_below(self.checkpoint).items():
                found[f"{CHECKPOINT}/{name}"] = about
        return found

    def path(self, name: str) -> str:
        """Where that is here which goes there under this name."""
        if name == CALL:
            return f"{self.call}/{CALL}"
        return os.path.realpath(f"{self.checkpoint}/{name.removeprefix(f'{CHECKPOINT}/')}")

    def packed(self, names: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Files as text for the batch script, with their times."""
        found = {}
        for name in names:
            with open(open_own_file(self.path(name)), "rb") as file:
                text = binascii.b2a_base64(file.read(), newline=False).decode()
                found[name] = text, os.fstat(file.fileno()).st_mtime_ns
        return found

    def on(self, node: str) -> "AttemptFiles":
        """The same, once it is known where it runs."""
        short = node.partition(".")[0]
        return replace(self, output=self.output.replace("%N", short), error=self.error.replace("%N", short))

    def append(self, path: str, content: bytes) -> None:
        """Append to a file that the user named, as a command here would; other jobs may write to it, too."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        fd = os.open(path, how, 0o644 & ~self.umask)
        try:
            os.set_blocking(fd, True)
            while content:
                content = content[os.write(fd, content) :]
        finally:
            os.close(fd)

    def unpack(self, node: str, found: Mapping[str, Any], there: str) -> None:
        """Everything of it is in the attempt's folder: put it in its places. May be done twice.

        `there` is its folder on the node, in which what is too big was left.
        """
        excess: Mapping[str, int] = found.get("excess", {})
        if self.call and os.path.isdir(self.call):
            if self.result in excess:
                said = _too_big(excess[self.result], node, f"{there}/{self.result}")
                replace_file(f"{self.folder}/{self.result}", said)
            if os.path.exists(f"{self.folder}/{self.result}"):
                _move(f"{self.folder}/{self.result}", f"{self.call}/{self.result}")
        if not self.checkpoint:
            return
        if CHECKPOINT in excess:
            os.makedirs(self.checkpoint, mode=0o700, exist_ok=True)
            most = _shown(node_files.MOST_BYTES, node_files.MOST_FILES)
            size = f"it has more than the {most} that are fetched ({_shown(excess[CHECKPOINT])})"
            left = f"{size}, and is still on node {node} in {there}/{CHECKPOINT}"
            replace_file(f"{self.checkpoint}/{LEFT_BEHIND}", left.encode("utf-8", "surrogateescape"))
        elif CHECKPOINT in found:
            self._exchange_checkpoint()

    def _exchange_checkpoint(self) -> None:
        """What came back takes the place of what was there, which the attempt had and may have removed."""
        new, old = f"{self.folder}/{CHECKPOINT}", f"{self.folder}/{CHECKPOINT}.old"
        os.makedirs(new, mode=0o700, exist_ok=True)
        os.makedirs(os.path.dirname(self.checkpoint), mode=0o700, exist_ok=True)
        for path in node_files.found_below(new):
            _sync(os.path.realpath(f"{new}/{path}"))
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(old)
        with contextlib.suppress(FileNotFoundError):
            shutil.move(self.checkpoint, old)
        shutil.move(new, self.checkpoint)
        shutil.rmtree(old, ignore_errors=True)


def belongings(ref: AttemptRef, spec: Mapping[str, Any]) -> AttemptFiles:
    """What a spec says. A checkpoint folder is ours only beside attempts: the user may have set the variable."""
    call = folder_of_call(spec["words"])
    root = ref.folder.rpartition("/attempts/")[0]  # not that of the settings, which may be another by now
    checkpoint = spec["env"].get("DIBS_CHECKPOINT_DIR", "")
    return AttemptFiles(
        folder=ref.folder,
        result=f"result-{ref.attempt}",
        call=call,
        checkpoint=checkpoint if checkpoint.startswith(f"{root}/checkpoints/") else "",
        output="" if spec["stdout"].startswith(f"{ref.folder}/") else spec["stdout"],
        error=""
        if spec["stderr"] == spec["stdout"] or spec["stderr"].startswith(f"{ref.folder}/")
        else spec["stderr"],
        umask=spec["umask"],
    )


@dataclass(frozen=True, slots=True)
class SubmittedCopies:
    """How often an attempt was given to Slurm, and whether the last copy may still start or has started."""

    times: int = 0
    is_open: bool = False

    def name(self, ref: AttemptRef) -> str:
        """What the last copy is called on the nodes. A new copy is another one: the old one's fence stays shut."""
        return f"{ref.key}.{ref.attempt}.{self.times}"


def handed(ref: AttemptRef) -> SubmittedCopies:
    """What we wrote down before it was given to Slurm."""
    try:
        with open(open_own_file(f"{ref.folder}/{_HANDED}")) as file:
            times, word = file.read(100).split()
    except FileNotFoundError:
        return SubmittedCopies()
    return SubmittedCopies(int(times), word == "open")


def remember(ref: AttemptRef, found: SubmittedCopies) -> None:
    """Synced: who comes back after a power cut must not start a second copy beside the first."""
    replace_file(f"{ref.folder}/{_HANDED}", f"{found.times} {'open' if found.is_open else 'closed'}\n")


def spec(ref: AttemptRef) -> dict[str, Any]:
    """What its shim was told, as it was before it was made fit for a node."""
    found = folder.read_spec(ref.folder)
    if found is None:
        raise OSError(f"{ref.folder}/{folder.RECORD} cannot be read")
    return found


def sizes(ref: AttemptRef, own: AttemptFiles, *, final: bool) -> dict[str, int]:
    """How much of each file we have. What it saves for the next attempt comes at its end."""
    found = node_files.sizes(ref.folder, [*STREAMS, *own.names])
    if final and own.checkpoint:
        for name, (size, _) in node_files.found_below(f"{ref.folder}/{node_files.CHECKPOINT}").items():
            found[f"{node_files.CHECKPOINT}/{name}"] = size
    return found


def add(ref: AttemptRef, own: AttemptFiles, pieces: Pieces, cut: Mapping[str, Sequence[int]]) -> None:
    """Put new pieces in their places. A file that begins anew there begins anew here."""
    for stream, start, content in pieces:
        path = f"{ref.folder}/{stream}"
        if named := {"stdout": own.output, "stderr": own.error}.get(stream):
            own.append(named, content)  # first: after a crash in between it is there twice, and not never
        with contextlib.suppress(FileNotFoundError), _opened(path, os.O_WRONLY) as fd:
            if start < os.fstat(fd).st_size:
                os.ftruncate(fd, start)
        node_files.put(ref.folder, stream, start, content)
    for stream, (start, end) in cut.items():
        _cut(f"{ref.folder}/{stream}", start, end)


def finish(ref: AttemptRef, record: str) -> None:
    """Everything is here: write the record last, and nothing before the rest is safe."""
    for stream in STREAMS:
        with contextlib.suppress(FileNotFoundError):
            _sync(f"{ref.folder}/{stream}")
    write_record(ref.folder, record.encode())


def _cut(path: str, start: int, end: int) -> None:
    """What the node gave back to its disk is given back here, and said beside it as there."""
    mark = f"{start} {end}\n"
    with contextlib.suppress(OSError), open(open_own_file(f"{path}.cut")) as file:
        if file.read(100) == mark:
            return
    replace_file(f"{path}.cut", mark, sync=False)
    # Not every file system can do it; then there is more here than there.
    with contextlib.suppress(OSError), _opened(path, os.O_WRONLY) as fd:
        punch(fd, start, end - start)


def _too_big(size: int, node: str, path: str) -> bytes:
    """In the place of a result: why there is none, as work.py would say it."""
    message = f"what it returned has {_shown(size)}, too much to be fetched; it is still on node {node} in {path}"
    return json.dumps({"kind": "refused", "message": message, "traceback": ""}).encode() + b"\n"


def _shown(size: int, files: int = 0) -> str:
    text = f"{size / 1024**3:.1f}G" if size >= 1024**3 else f"{max(1, size // 1024**2)}M"
    return f"{text} in {files} files" if files else text


def _move(source: str, target: str) -> None:
    """On whatever disk the target is: whole or not at all."""
    shutil.move(source, f"{target}.new")
    _sync(f"{target}.new")
    os.replace(f"{target}.new", target)


def _read(path: str) -> str:
    try:
        with open(open_own_file(path), "rb") as file:
            return file.read(4096).decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _sync(path: str) -> None:
    with _opened(path) as fd:
        os.fsync(fd)


@contextlib.contextmanager
def _opened(path: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    fd = open_own_file(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)
