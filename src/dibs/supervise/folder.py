"""An attempt's folder: created by the engine, filled by the shim, and read again after a restart.

Its record is a file with RECORD_SIZE bytes of state, followed by the spec, a JSON object. The first part is blank
until a shim takes the attempt, then it says `starting`, `running` and at last `ended`. It is written before the
command starts and overwritten in place: neither a full disk nor a half-written file can lose an exit code. A bad
checksum means: no record. Each state, the blank one too, names the attempt it is of: a missing, emptied or copied
record is never taken for a blank one. Standard library only; versioned, because a shim may be older than the
engine that reads what it left.
"""

import contextlib
import fcntl
import json
import os
import stat
import zlib
from collections.abc import Mapping
from errno import EEXIST, EINVAL, EISDIR, ELOOP, ENOSPC, ENOTDIR, ENXIO, EPERM
from types import MappingProxyType
from typing import Any, NamedTuple

RECORD = "record"
_NAMES = (RECORD, "stdout", "stderr")
_CONTROL = "../../../control"  # seen from ROOT/attempts/N/JOB.ATTEMPT
RECORD_SIZE = 1024
_MAGIC = b"DIBS1"
_BLANK = b"\0DIBS"  # as long as _MAGIC; a shim of any version takes a record that begins with a zero byte
_ROUND = 512  # bytes
_LONGEST_SPEC = 64 * 1024**2  # bytes; a job can make its record longer than the memory
_ENCODER = json.JSONEncoder(separators=(",", ":"))  # once: `json.dumps` makes a new one at every call
_HEAD = 20  # bytes: magic, checksum, length
# `opened_at` is the moment of the intent: a number that was given twice has two of them.
_IDENTITY = ("job", "attempt", "opened_at")
_TO_WRITE = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
_WITHOUT_WAITING = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


class NotOurFile(OSError):
    """Something other than a regular file of this user is in its place."""


def open_own_file(path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open a regular file of ours in a folder that a job can write: a descriptor, or OSError.

    A job may have replaced the file. Opening a pipe must not wait for its other end, and a link leads to a file
    that is not the attempt's. NotOurFile says what is there instead.
    """
    try:
        fd = os.open(path, flags | _WITHOUT_WAITING, mode)
    except OSError as error:
        if error.errno in (EISDIR, ELOOP, ENXIO):
            raise _not_ours(path, os.lstat(path)) from None
        raise
    seen = os.fstat(fd)
    if stat.S_ISREG(seen.st_mode) and seen.st_uid == os.geteuid():
        return fd
    os.close(fd)
    raise _not_ours(path, seen)


def replacement_of(path: str) -> str:
    """What is in the place of such a file, `it is a pipe`; empty where the file is there, or nothing."""
    try:
        os.close(open_own_file(path))
    except NotOurFile as error:
        return str(error.strerror)
    except (OSError, ValueError):
        pass
    return ""


def _not_ours(path: str, seen: os.stat_result) -> NotOurFile:
    if stat.S_ISREG(seen.st_mode):
        return NotOurFile(EPERM, f"it belongs to uid {seen.st_uid}", path)
    return NotOurFile(EINVAL, f"it is {_KINDS.get(stat.S_IFMT(seen.st_mode), 'a device')}", path)


def blank_record(spec: dict[str, Any]) -> bytes:
    """A record that no shim has taken, with its spec."""
    text = json.dumps(spec).encode()
    # Padded to a round length, so that the next attempt's spec usually has the same size.
    return _framed(_BLANK, _body(identity_in(spec))) + text.ljust(-(-len(text) // _ROUND) * _ROUND)


def is_blank_record(content: bytes) -> bool:
    """Whether this was written by `blank_record`, and by no shim since. Zeros alone are not blank."""
    return _decode(_BLANK, content) is not None


def may_be_taken(content: bytes) -> bool:
    """Whether a shim may start this attempt: a blank record, or the zeros that an older engine wrote for one."""
    return content[:1] == b"\0"


def identity_in(found: Mapping[str, Any]) -> dict[str, Any]:
    """What tells an attempt from all others, from its spec or its record."""
    return {name: found[name] for name in _IDENTITY if name in found}


def encode_record(record: dict[str, Any]) -> bytes:
    """Exactly RECORD_SIZE bytes. A message that is too long loses its beginning, never its checksum."""
    body = _body(record)
    while len(body) > RECORD_SIZE - _HEAD - 1 and record.get("message"):
        record = {**record, "message": record["message"][len(record["message"]) // 4 + 1 :]}
        body = _body(record)
    return _framed(_MAGIC, body)


def decode_record(content: bytes) -> dict[str, Any] | None:
    """What `encode_record` wrote, or None where it is incomplete."""
    return _decode(_MAGIC, content)


def _framed(magic: bytes, body: bytes) -> bytes:
    head = b"%s %08x %04d " % (magic, zlib.crc32(body), len(body))
    return (head + body).ljust(RECORD_SIZE - 1) + b"\n"


def _decode(magic: bytes, content: bytes) -> dict[str, Any] | None:
    head = content[:_HEAD].split(b" ")
    try:
        if head[0] != magic:
            return None
        body = content[_HEAD : _HEAD + int(head[2])]
        if zlib.crc32(body) != int(head[1], 16):
            return None
        record = json.loads(body.decode())
    except (ValueError, IndexError):
        return None
    return record if isinstance(record, dict) else None


def _body(record: dict[str, Any]) -> bytes:
    return _ENCODER.encode(record).encode()


class AttemptFacts(NamedTuple):
    """The state of an attempt, from its folder."""

    is_locked: bool  # a shim runs it
    record: dict[str, Any] | None  # None where no complete record was written
    has_started: bool  # the command may have run: its record is not blank, or is not there
    identity: Mapping[str, Any] = MappingProxyType({})  # of the attempt that the record is of
    damage: str = ""  # what is wrong with the record

    @property
    def exit_record(self) -> dict[str, Any] | None:
        """How it ended, once that cannot change any more."""
        if self.is_locked or self.record is None or self.record.get("state") != "ended":
            return None
        return self.record

    def is_of(self, job: int, attempt: int, opened_at: float | None) -> bool:
        """Whether it is this attempt's own record. A copy of another, or one from an earlier time, is not.

        Records of older shims do not say when the attempt was opened; None: the caller does not know it either.
        """
        told = self.identity.get("opened_at")
        is_same_time = opened_at is None or told is None or told == opened_at
        return (self.identity.get("job"), self.identity.get("attempt")) == (job, attempt) and is_same_time


def prepare(folder: str, spec: dict[str, Any]) -> int:
    """Create the folder and its record; return the record's descriptor, locked, for the shim.

    Raises OSError where an attempt was made here before, unless it never ran: a blank record is left where the
    intent was not recorded, an empty one where we were killed before we had written it.
    """
    try:
        os.mkdir(folder, 0o700)
    except FileNotFoundError:
        os.makedirs(folder, mode=0o700)
    except FileExistsError:
        if not _is_folder(folder):
            raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), folder) from None
    fd = open_own_file(f"{folder}/{RECORD}", os.O_RDWR | os.O_CREAT)
    try:
        # Locked before it is written: the record of an attempt that runs must not become blank.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = os.pread(fd, RECORD_SIZE, 0)
        if before and not _is_left_by(spec, before):
            raise FileExistsError(EEXIST, "this attempt was started before", folder)
        _write_blank(fd, spec, folder)
    except OSError:
        os.close(fd)
        raise
    return fd


def prepare_unlocked(folder: str, spec: dict[str, Any]) -> bool:
    """Create the folder and its record where locks do not work; False if it exists already, and is not changed.

    Synced: after a power cut the record must still say what the other system was told to run.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    new = f"{folder}/{RECORD}.{os.urandom(6).hex()}"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _write_blank(fd, spec, folder)
        os.fsync(fd)
        os.link(new, f"{folder}/{RECORD}")  # complete or not at all, and never over another
    except FileExistsError:
        return False
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(new)
    return True


def is_silent(folder: str) -> bool:
    """Whether an attempt that is over left no output.

    For the engine's loop, without a deadline: nothing that a job leaves can make it wait. A link in the folder's
    place is not followed, no file in it is opened, and a file system that the job mounted there fails at once,
    since the process that served it has ended with the job.
    """
    try:
        if not _is_folder(folder):
            return False
        for name in os.listdir(folder):
            if name not in _NAMES or not _is_plain(os.lstat(f"{folder}/{name}"), may_be_full=name == RECORD):
                return False
    except OSError:
        return False
    return True


def reuse(old: str, folder: str, spec: dict[str, Any]) -> int | None:
    """Like `prepare`, with the folder of a silent attempt whose outcome is recorded elsewhere.

    Creating four inodes for every job costs more than starting it. None if it cannot be reused.
    """
    try:
        if not _is_folder(old):
            return None
        fd = open_own_file(f"{old}/{RECORD}", os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_blank(fd, spec, folder)
        os.rename(old, folder)
    except OSError:
        os.close(fd)
        return None
    return fd


def read_record(folder: str) -> dict[str, Any] | None:
    """The record now; None where no complete one was written. The lock is not used.

    A read error is raised: on a file system of another machine it must not look like a missing record.
    """
    try:
        with open(open_own_file(f"{folder}/{RECORD}"), "rb", buffering=0) as file:
            return decode_record(file.read(RECORD_SIZE))
    except (FileNotFoundError, NotOurFile):
        return None


def record_of(folder: str) -> dict[str, Any] | None:
    """The same without errors, to show it."""
    with contextlib.suppress(OSError):
        return read_record(folder)
    return None


def record_of_attempt(folder: str, job: int, number: int, opened_at: float | None) -> dict[str, Any] | None:
    """The same of this very attempt: None also for the record of another, which was copied here."""
    try:
        with open(open_own_file(f"{folder}/{RECORD}"), "rb", buffering=0) as file:
            content = file.read(RECORD_SIZE)
            record = decode_record(content)
            found = AttemptFacts(False, record, has_started=True, identity=_identity(record or {}, file.fileno()))
    except OSError:
        return None
    return record if found.is_of(job, number, opened_at) else None


def read_spec(folder: str) -> dict[str, Any] | None:
    """What the shim was told to run; None if it cannot be read."""
    try:
        with open(open_own_file(f"{folder}/{RECORD}"), "rb") as file:
            file.seek(RECORD_SIZE)
            return _spec_in(file.read(_LONGEST_SPEC))
    except OSError:
        return None


def facts(folder: str) -> AttemptFacts:
    """The state of an attempt, without changing it: the lock first, the record second."""
    try:
        fd = open_own_file(f"{folder}/{RECORD}", os.O_RDWR)
    except FileNotFoundError:
        return _facts_without_record(folder, "its record is gone")
    except (NotOurFile, NotADirectoryError, PermissionError):
        return _facts_without_record(folder, "its record was replaced")
    try:
        is_locked = False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_locked = True
        content = os.pread(fd, RECORD_SIZE, 0)
        blank, record = _decode(_BLANK, content), decode_record(content)
        whole = record if blank is None else blank
        if whole is None:
            damage = "its record is damaged" if content else "its record is empty"
            return AttemptFacts(is_locked, None, has_started=True, damage=damage)
        identity = _identity(whole, fd)
    finally:
        os.close(fd)
    return AttemptFacts(is_locked, record, has_started=blank is None, identity=identity)


def _identity(record: Mapping[str, Any], fd: int) -> dict[str, Any]:
    """An older shim does not name the attempt: the spec in the same file does."""
    return identity_in(record) or identity_in(_spec_in(os.pread(fd, _LONGEST_SPEC, RECORD_SIZE)) or {})


def _facts_without_record(folder: str, damage: str) -> AttemptFacts:
    """Of an attempt whose file is not there: it has run, unless its folder was never made."""
    record = _record_of_running(folder)
    return AttemptFacts(is_locked=record is not None, record=record, has_started=True, damage=damage)


def _record_of_running(folder: str) -> dict[str, Any] | None:
    """The record without its file, from the shim of an attempt that runs; None if no shim runs it.

    The shim is the parent of a process that carries the attempt's mark, and its FIFO has its pid in the name.
    """
    parents = {str(parent_of(pid)) for pid in marked_processes(folder)}
    with contextlib.suppress(OSError):
        for name in os.listdir(_control_of(folder)):
            pid, _, _ = name.partition("-")
            if pid in parents:
                return {"state": "running", "shim": int(pid), "control": name}
    return None


def _control_of(folder: str) -> str:
    """Where the FIFOs are. By its name alone: the attempt's folder may have been deleted."""
    return os.path.normpath(os.path.join(folder, _CONTROL))


def watch(folder: str) -> int | None:
    """The writing end of the FIFO of the shim that runs this attempt; None when there is none."""
    try:
        found = facts(folder)
        record = found.record if found.is_locked else None
    except OSError:  # its file system has died; its processes need not have
        record = _record_of_running(folder)
    if record is None or "control" not in record:
        return None
    name = os.path.basename(str(record["control"]))
    try:
        return os.open(f"{_control_of(folder)}/{name}", _TO_WRITE)
    except FileNotFoundError:
        return _deleted_control(record.get("shim"), name)
    except OSError:
        return None


def _deleted_control(shim: object, name: str) -> int | None:
    """The writing end of a FIFO that was deleted, through the descriptor that its shim still has."""
    try:
        for number in os.listdir(f"/proc/{shim}/fd"):
            path = f"/proc/{shim}/fd/{number}"
            # The name has the shim's pid and random letters: it is not that of another process with this pid.
            if os.path.basename(os.readlink(path)) == f"{name} (deleted)":
                return os.open(path, _TO_WRITE)
    except OSError:
        pass  # it has ended
    return None


def tell(folder: str, word: str) -> bool:
    """Send `stop`, `kill` or `signal N` to the shim of this attempt; False when there is none."""
    fd = watch(folder)
    if fd is None:
        return False
    with contextlib.suppress(OSError):
        os.write(fd, f"{word} {os.path.basename(folder)}\n".encode())
    os.close(fd)
    return True


def _spec_in(content: bytes) -> dict[str, Any] | None:
    try:
        spec = json.loads(content)
    except ValueError:
        return None
    return spec if isinstance(spec, dict) else None


def _is_left_by(spec: dict[str, Any], content: bytes) -> bool:
    """Whether this is the blank record of the same attempt, whenever it was to be opened."""
    blank = _decode(_BLANK, content)
    return blank is not None and all(blank.get(name) == spec.get(name) for name in ("job", "attempt"))


def _is_folder(path: str) -> bool:
    """Whether it is a folder itself: a link may lead to a disk that does not answer."""
    return stat.S_ISDIR(os.lstat(path).st_mode)


def _is_plain(seen: os.stat_result, *, may_be_full: bool) -> bool:
    """Whether the next attempt may write here: a job may have replaced its file by a link or a pipe."""
    is_ours = stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1 and seen.st_uid == os.geteuid()
    return is_ours and bool(seen.st_mode & stat.S_IWUSR) and (may_be_full or not seen.st_size)


def _write_blank(fd: int, spec: dict[str, Any], folder: str) -> None:
    # Written, not only extended: then a full disk cannot lose the exit code.
    content = blank_record(spec)
    if os.pwrite(fd, content, 0) != len(content):
        raise OSError(ENOSPC, os.strerror(ENOSPC), folder)
    if os.fstat(fd).st_size != len(content):  # the content before may have been longer
        os.ftruncate(fd, len(content))


def mark_of(folder: str) -> bytes:
    """The variable by which the processes of an attempt are known."""
    return os.fsencode(f"DIBS_METRICS={folder}/metrics")


def marked_processes(folder: str) -> list[int]:
    """The processes that carry the mark of this attempt."""
    found = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with contextlib.suppress(OSError):  # it has ended, or may not be read
            if os.stat(f"/proc/{pid}").st_uid == os.geteuid() and is_marked(pid, folder):
                found.append(pid)
    return found


def parent_of(pid: int) -> int | None:
    """None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may contain anything, parentheses too: count from its end.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def is_marked(pid: int, folder: str) -> bool:
    """Whether a process carries the mark of this attempt. OSError: it has ended, or may not be read."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        return mark_of(folder) in file.read().split(b"\0")
