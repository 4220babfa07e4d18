"""HTTP/1.1 over a UNIX socket, as much of it as the daemon needs, and the errors it answers with.

Not `http.client`: the e-mail parser that it loads for headers takes a fifth of the time of `dibs add`.
"""

import math
import os
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from dibs import errors
from dibs.errors import DibsError, NoDaemon, NotAllowed

_T = TypeVar("_T")


class NotListening(NoDaemon):
    """There is no daemon at this moment. One may be started."""


class ConnectionBroken(NoDaemon):
    """The connection ended in the middle of a call. Whether the call was carried out is not known."""


class NoAnswer(NoDaemon):
    """A daemon listens, but has not answered in time."""


def error_of(status: int, body: object) -> DibsError:
    """The error that an answer's `{"error": {"code", "message", "remedy"}}` describes."""
    told = body.get("error") if isinstance(body, dict) else None
    told = told if isinstance(told, dict) else {}
    code = str(told.get("code", "bad-answer"))
    kind: Any = _CLASSES.get(code, DibsError)
    error: DibsError = kind.__new__(kind)
    # By way of the family's own constructor: NoSuchJob's takes a reference, and these words are made already.
    DibsError.__init__(
        error,
        str(told.get("message") or f"the daemon answered with status {status}"),
        remedy=str(told.get("remedy") or ""),
    )
    if kind is DibsError:
        error.code = code
        error.exit_status = 2 if 400 <= status < 500 else 1
    return error


_CLASSES = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, DibsError) and kind is not DibsError
}


_HTTP = b"HTTP/1."  # how each answer begins
_MOST_OF_A_HEAD = 65_536  # bytes
_PIECE = 65_536  # bytes
_PAUSE = 0.01  # seconds, where the daemon's line of callers is full
_LOOK_AFTER = 2.5  # seconds of silence until the daemon is asked another question, which it has as long to answer


class AnswerHead(NamedTuple):
    """The beginning of an answer."""

    status: int
    headers: Mapping[str, str]  # names in small letters


class Connection:
    """One connection. A call that fails in the middle leaves it closed."""

    def __init__(self, path: str, *, seconds: float) -> None:
        """Connect within `seconds`, to a socket in a folder of ours and to a process of ours."""
        self._path = path
        self._patience = min(seconds, 2 * _LOOK_AFTER)
        self._until = time.monotonic() + self._patience
        self._quiet_until = math.inf
        self._rest = b""
        self._socket = _connect(path, self._until)

    def close(self) -> None:
        self._socket.close()

    def ask(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        *,
        seconds: float,
        quiet: float = 0.0,
        headers: Mapping[str, str] | None = None,
    ) -> AnswerHead:
        """Send one request and read the head of the answer; `pieces` gives its body.

        NoAnswer after `seconds`, and earlier if the daemon is silent for five and answers no other question
        either. For `quiet` seconds its silence is expected.
        """
        self._patience = seconds
        self._until = time.monotonic() + seconds
        self._quiet_until = time.monotonic() + quiet
        lines = [f"{method} {target} HTTP/1.1", "Host: dibs"]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self._send("\r\n".join([*lines, "", ""]).encode("ascii") + (body or b""))
        head = self._head()
        while 100 <= head.status < 200:
            head = self._head()
        if "dibs-version" not in head.headers:  # every answer of a daemon has it
            raise self._foreign()
        return head

    def pieces(self, head: AnswerHead, *, seconds: float | None = None) -> Iterator[bytes]:
        """The body, as it arrives. `seconds` is the longest silence, where the whole may take for ever."""
        if "chunked" in head.headers.get("transfer-encoding", ""):
            yield from self._chunks(seconds)
        elif (length := head.headers.get("content-length")) is not None:
            yield from self._counted(_number(length, 10), seconds)
        elif head.status not in (204, 304):
            while piece := self._some(seconds):
                yield piece

    def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._when_ready(partial(self._socket.send, rest)) :]
        except OSError as error:
            # An answer may be there already: that the body is too large, say.
            if not self._has_answer():
                raise _broken() from error

    def _has_answer(self) -> bool:
        try:
            self._rest += self._socket.recv(_PIECE)
        except OSError:
            return False
        return bool(self._rest)

    def _head(self) -> AnswerHead:
        while (end := self._rest.find(b"\r\n\r\n")) < 0:
            if len(self._rest) > _MOST_OF_A_HEAD or not _HTTP.startswith(self._rest[: len(_HTTP)]):
                raise self._foreign()
            self._more()
        lines = self._rest[:end].decode("latin-1").split("\r\n")
        self._rest = self._rest[end + 4 :]
        words = lines[0].split(" ", 2)
        if len(words) < 2 or not words[0].startswith(_HTTP.decode()) or not words[1].isdecimal():
            raise self._foreign()
        pairs = (line.partition(":") for line in lines[1:])
        return AnswerHead(int(words[1]), {name.lower(): value.strip() for name, _, value in pairs})

    def _chunks(self, seconds: float | None) -> Iterator[bytes]:
        while size := _number(self._line(seconds).partition(b";")[0].decode("latin-1"), 16):
            yield from self._counted(size, seconds)
            self._line(seconds)
        while self._line(seconds):
            pass  # trailers, and the empty line behind them

    def _counted(self, size: int, seconds: float | None) -> Iterator[bytes]:
        while size:
            if not self._rest:
                self._more(seconds)
            piece, self._rest = self._rest[:size], self._rest[size:]
            size -= len(piece)
            yield piece

    def _line(self, seconds: float | None) -> bytes:
        while b"\n" not in self._rest:
            if len(self._rest) > _MOST_OF_A_HEAD:
                raise _broken()
            self._more(seconds)
        line, _, self._rest = self._rest.partition(b"\n")
        return line.rstrip(b"\r")

    def _more(self, seconds: float | None = None) -> None:
        piece = self._receive(seconds)
        if not piece:
            raise _broken()
        self._rest += piece

    def _some(self, seconds: float | None) -> bytes:
        piece, self._rest = self._rest or self._receive(seconds), b""
        return piece

    def _receive(self, seconds: float | None) -> bytes:
        try:
            if seconds is None:
                return self._when_ready(partial(self._socket.recv, _PIECE))
            self._socket.settimeout(seconds)
            return self._socket.recv(_PIECE)
        except TimeoutError:
            raise self._too_late(seconds or 0.0) from None
        except OSError as error:
            raise _broken() from error

    def _when_ready(self, act: Callable[[], _T]) -> _T:
        """Send or receive some bytes. While that is not possible the daemon must answer another question."""
        while True:
            now = time.monotonic()
            if now >= self._until:
                raise self._too_late(self._patience)
            silence = max(0.0, self._quiet_until - now) + _LOOK_AFTER
            self._socket.settimeout(min(self._until - now, silence))
            try:
                return act()
            except TimeoutError:
                left = min(_LOOK_AFTER, self._until - time.monotonic())
                if left > 0 and not _answers(self._path, left):
                    raise self._too_late(silence + left) from None

    def _foreign(self) -> NoDaemon:
        pid, _ = _peer(self._socket)
        self.close()
        return NoDaemon(
            f"the program that listens at {self._path} (pid {pid}) is not a daemon of dibs",
            remedy="end that program, or set DIBS_SOCKET to another path",
        )

    def _too_late(self, seconds: float) -> NoAnswer:
        self.close()
        return NoAnswer(
            f"the daemon has not answered for {round(seconds, 1):g} seconds",
            remedy="`dibs daemon log` shows what it does; `dibs daemon restart` leaves the jobs alone",
        )


def _answers(path: str, seconds: float) -> bool:
    """Whether the daemon answers a question at all, in this time."""
    try:
        connection = Connection(path, seconds=seconds)
        try:
            connection.ask("GET", "/v1/status", seconds=seconds, quiet=math.inf)
        finally:
            connection.close()
    except NoDaemon:
        return False
    return True


def _connect(path: str, until: float) -> socket.socket:
    folder, name = os.path.split(path)
    try:
        handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _not_listening(path) from error
    try:
        _check_folder(os.fstat(handle), folder)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # An address of a socket ends at 107 bytes; this one is short, and inside the folder just checked.
            _reach(connection, f"/proc/self/fd/{handle}/{name}", until, path)
            _check_peer(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection
    finally:
        os.close(handle)


def _reach(connection: socket.socket, address: str, until: float, path: str) -> None:
    while True:
        try:
            connection.settimeout(max(_PAUSE, until - time.monotonic()))
            return connection.connect(address)
        except BlockingIOError:  # so many wait to be let in that the kernel takes no more
            if time.monotonic() > until:
                raise NoAnswer(
                    "the daemon accepts no connection", remedy="`dibs daemon log` shows what it does"
                ) from None
            time.sleep(_PAUSE)
        except OSError as error:
            raise _not_listening(path) from error


def _check_folder(seen: os.stat_result, folder: str) -> None:
    if seen.st_uid != os.geteuid() or stat.S_IMODE(seen.st_mode) & 0o077:
        whose = "is open to others" if seen.st_uid == os.geteuid() else f"belongs to uid {seen.st_uid}"
        raise NotAllowed(
            f"cannot use the socket in {folder}: the folder {whose}",
            remedy="chmod 700 it, or set DIBS_SOCKET to a path in a folder of your own",
        )


def _check_peer(connection: socket.socket, path: str) -> None:
    _, uid = _peer(connection)
    if uid != os.geteuid():
        raise NotAllowed(
            f"cannot use {path}: the process that listens there has uid {uid}",
            remedy="set DIBS_SOCKET to a path in a folder of your own",
        )


def _peer(connection: socket.socket) -> tuple[int, int]:
    """The pid and the uid of the process that listens."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", credentials)
    return pid, uid


def _number(text: str, base: int) -> int:
    try:
        number = int(text.strip(), base)
    except ValueError:
        raise _broken() from None
    if number < 0:
        raise _broken()
    return number


def _broken() -> ConnectionBroken:
    return ConnectionBroken(
        "the connection to the daemon broke", remedy="try again; `dibs daemon status` tells how it is"
    )


def _not_listening(path: str) -> NotListening:
    return NotListening(f"there is no daemon: no process listens at {path}", remedy="start one: dibs daemon start")
