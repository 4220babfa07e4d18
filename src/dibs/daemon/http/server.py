"""The server on the UNIX socket, and what uvicorn lacks: a check of the user, deadlines and size limits."""

import asyncio
import contextlib
import errno
import os
import re
import resource
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl

import h11
import uvicorn
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from dibs import paths
from dibs.daemon.http.errors import JSON, SHORT_OF_MEMORY, VERSION_HEADER, JsonResponse, encode, error_body
from dibs.daemon.memory import reserve
from dibs.version import __version__

# The system is short of something: not a bug.
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_KEEP_ALIVE = 5  # seconds
_MOST_CONNECTIONS = 256
_BACKLOG = 1024  # connections that may wait to be accepted
_ACCEPTED_AT_ONCE = 16  # four times as many may be accepted before the first is handled
_OTHER_DESCRIPTORS = 64  # for the store, the jobs and so on
HEADERS = 16 * 1024  # bytes of a request's head
_HEADER_DEADLINE = 5.0  # seconds from a request's first byte to the end of its head
# Bytes read at once. malloc would return the usual 256 KiB to the kernel each time.
_READ_AT_ONCE = 64 * 1024
_STALL = 30.0  # seconds in which the client must read what was written
# A line without a carriage return, or continued on the next line: servers differ about where such a head ends.
_ODD_LINES = re.compile(rb"(?<!\r)\n|\n[ \t]")
# h11 accepts the same length twice; a proxy may not.
_CONTENT_LENGTHS = re.compile(rb"\ncontent-length[ \t]*:", re.IGNORECASE)
BODY = 1024**2  # bytes
BODY_OF_JOBS = 8 * 1024**2
_WITH_ENVIRONMENT = ("/v1/jobs", "/v1/jobs/check", "/v1/sweeps", "/v1/sweeps/check")
_DEADLINE = 30.0  # seconds for a whole body
# Memory that a request takes while it is handled. The JSON reader ends the process if it cannot allocate.
_MEMORY = 4 * 1024**2  # bytes
_MEMORY_PER_BYTE = 8


class Server(uvicorn.Server):
    """uvicorn without its signal handlers, and without waking ten times a second to see whether it should end."""

    def __init__(self, app: Any, protocol: "type[HttpProtocol] | None" = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol or HttpProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                h11_max_incomplete_event_size=HEADERS,
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=2,
                backlog=_ACCEPTED_AT_ONCE,
                loop="none",
            )
        )
        self._is_over = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)  # asyncio has one number for both, and set the smaller one

    async def main_loop(self) -> None:
        await self._is_over.wait()

    async def move_to(self, listener: socket.socket) -> None:
        """Accept connections here instead. Those that are open go on."""
        config = self.config

        def new_connection() -> asyncio.Protocol:
            protocol: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return protocol

        for server in self.servers:
            server.close()
        loop = asyncio.get_running_loop()
        self.servers = [await loop.create_server(new_connection, sock=listener, backlog=_ACCEPTED_AT_ONCE)]
        listener.listen(_BACKLOG)

    def end(self) -> None:
        """Finish the current requests, then let `serve` return."""
        self.should_exit = True
        self._is_over.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpProtocol(H11Protocol):
    """One connection. Other users, slow clients and malformed requests get one response and are disconnected."""

    more_headers = ""  # of responses that are written without the app

    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _is_other_user = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.max_size = _READ_AT_ONCE
        self._is_other_user = self.is_from_other_user(transport.get_extra_info("socket"))
        self._start_deadline()
        if len(self.connections) > self.most_connections():
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        self._stop_stalled()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        try:
            super().data_received(data)
        except MemoryError:
            reserve.release()
            self.refuse(503, *SHORT_OF_MEMORY)
            return
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._start_deadline()
        else:
            self._stop_deadline()

    def handle_events(self) -> None:
        if self.conn.their_state is h11.IDLE:
            waiting = self.conn.trailing_data[0].lstrip(b"\r\n")
            head, end, _ = waiting.partition(b"\r\n\r\n")
            if _ODD_LINES.search(head + end):
                self.refuse(400, "the lines of the request's head must end with CR LF")
                return
            if len(_CONTENT_LENGTHS.findall(head)) > 1:
                self.refuse(400, "the request gives its length twice")
                return
            if len(head) > HEADERS:
                self.refuse(431)
                return
            if self._is_other_user and end:
                self.refuse(403)
                return
        super().handle_events()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for what is not HTTP, while h11's error is being handled."""
        error = sys.exception()
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        self.refuse(status if status in (400, 431) else 400, str(error or msg)[:200] if status == 400 else "")

    def refuse(self, status: int, message: str = "", remedy: str = "", code: str = "") -> None:
        """Send an error if that is still possible, and close the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # the route need not go on
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.abort()
                return
        if self.transport.is_closing():
            return
        # Written without h11: after an error it may be in a state in which it sends nothing.
        body = encode(error_body(status, message, remedy, code))
        head = (
            f"HTTP/1.1 {status} {STATUS_PHRASES[status].decode()}\r\ncontent-type: {JSON}\r\n"
            f"content-length: {len(body)}\r\n{VERSION_HEADER.lower()}: {__version__}\r\n{self.more_headers}"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()

    def shutdown(self) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def most_connections(self) -> int:
        """How many connections of this kind may be open at once."""
        return most_connections()

    def is_from_other_user(self, connection: socket.socket) -> bool:
        """Whether another user of this machine is at the other end."""
        return _peer_uid(connection) != os.geteuid()

    # -- deadlines -------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(_STALL, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_stalled()
        super().resume_writing()

    @property
    def is_waiting_for_request(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _make_room(self) -> None:
        """Drop the connection that has been idle for longest. If none is idle, the new one is refused."""
        others = [
            one
            for one in self.connections
            if isinstance(one, HttpProtocol) and one is not self and not one.transport.is_closing()
        ]
        if len(others) < self.most_connections():
            return  # some are closing already
        if idle := [one for one in others if one.is_waiting_for_request]:
            min(idle, key=lambda one: one._since).transport.abort()
        else:
            self.refuse(503)

    @property
    def _since(self) -> float:
        timer = self._deadline or self.timeout_keep_alive_task
        return timer.when() if timer else 0.0

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(_HEADER_DEADLINE, self._too_slow)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _stop_stalled(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.conn.trailing_data[0]:
            self.refuse(408)
        else:
            self.transport.close()


def _peer_uid(connection: socket.socket) -> int:
    """The user at the other end, as the kernel knows it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)


class UnixSocket:
    """A socket's path. It is bound through its folder, because the path may be longer than the kernel takes."""

    def __init__(self, path: str) -> None:
        self.path = path
        folder, self._name = os.path.split(path)
        self._folder = _private_folder(folder)
        self._made: tuple[int, int] | None = None

    def bind(self) -> socket.socket:
        """Listen here. The caller holds the daemon's lock, so an old socket file is a leftover."""
        self._remove_stale()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(self._short)
            os.chmod(self._short, 0o600)
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise self._refused(error.strerror or str(error)) from error
        listener.setblocking(False)
        self._made = self._inode()
        return listener

    @property
    def is_there(self) -> bool:
        """Whether clients find the socket: it and its folder were not deleted, moved or replaced."""
        try:
            seen = os.lstat(self.path)
        except OSError:
            return False
        return (seen.st_dev, seen.st_ino) == self._made

    def bind_again(self) -> socket.socket:
        """Listen at the same path, in a new folder where that was deleted, too."""
        folder = _private_folder(os.path.dirname(self.path))
        os.close(self._folder)
        self._folder = folder
        return self.bind()

    def remove(self) -> None:
        """Remove the socket file, unless another one has replaced it."""
        with contextlib.suppress(OSError):
            if self._made is not None and self._inode() == self._made:
                os.unlink(self._short)
        os.close(self._folder)

    @property
    def _short(self) -> str:
        return f"/proc/self/fd/{self._folder}/{self._name}"

    def _inode(self) -> tuple[int, int]:
        seen = os.lstat(self._short)
        return seen.st_dev, seen.st_ino

    def _remove_stale(self) -> None:
        try:
            seen = os.lstat(self._short)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(seen.st_mode) or seen.st_uid != os.geteuid():
            raise self._refused("something else is in the way")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(self._short)
            except (ConnectionRefusedError, FileNotFoundError):
                pass
            except OSError as error:
                raise self._refused(error.strerror or str(error)) from error
            else:
                raise self._refused("a daemon with another state folder listens there")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._short)

    def _refused(self, why: str) -> paths.FolderRefused:
        return paths.FolderRefused(
            f"cannot listen at {self.path}: {why}", remedy="set DIBS_SOCKET to a path in a folder of your own"
        )


def most_connections() -> int:
    """How many connections may be open. Jobs and the store need descriptors too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(8, min(_MOST_CONNECTIONS, (soft - _OTHER_DESCRIPTORS) // 2))


def _private_folder(folder: str) -> int:
    """A handle on a private folder. One that exists already is never changed: it may be /tmp."""
    if not os.path.lexists(folder):
        paths.make_private(folder)
    if not paths.is_private(folder):
        raise paths.FolderRefused(
            f"cannot listen in {folder}: other users may read it, or it is not yours",
            remedy="set DIBS_SOCKET to a path in a folder of your own with mode 0700",
        )
    return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_socket_host(scope: Scope, host: str) -> bool:
    return host.lower() in ("localhost", "dibs")


class RequestLimits:
    """ASGI middleware. `is_host` says whether a Host header names this server."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        deadline: float = _DEADLINE,
        is_host: Callable[[Scope, str], bool] = _is_socket_host,
    ) -> None:
        self._app = app
        self._deadline = deadline
        self._is_host = is_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if refusal := _refusal(scope, self._is_host):
            await _refuse(error_body(*refusal), refusal[0], scope, receive, send)
            return
        if not reserve.has_room(_MEMORY + _MEMORY_PER_BYTE * _length(scope)):
            await _refuse(error_body(503, *SHORT_OF_MEMORY), 503, scope, receive, send)
            return
        scope = {**scope, "query_string": _query(scope["query_string"])}
        body = _LimitedBody(_largest(scope), self._deadline, receive)
        has_started = False

        async def send_unless_refused(message: Message) -> None:
            nonlocal has_started
            if body.refusal and not has_started:
                return  # the route's response to half a body is dropped; the refusal is sent below
            has_started = True
            await send(message)

        with contextlib.suppress(ClientDisconnect):  # a client that disconnects in the middle is not a bug
            await self._app(scope, body.receive, send_unless_refused)
        if body.refusal and not has_started:
            await _refuse(error_body(body.refusal), body.refusal, scope, receive, send)


class _LimitedBody:
    """Counts the bytes of a body as they arrive."""

    def __init__(self, largest: int, deadline: float, receive: Receive) -> None:
        self.refusal = 0  # the status with which it is refused
        self._left = largest
        self._deadline = deadline
        self._receive = receive
        self._until: float | None = None
        self._is_complete = False

    async def receive(self) -> Message:
        if self.refusal:
            return {"type": "http.disconnect"}
        if self._is_complete:
            return await self._receive()
        loop = asyncio.get_running_loop()
        self._until = self._until or loop.time() + self._deadline
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            self.refusal = 408
            return {"type": "http.disconnect"}
        self._left -= len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        if self._left < 0:
            self.refusal = 413
            return {"type": "http.disconnect"}
        return message


def _query(raw: bytes) -> list[tuple[str, str]]:
    """The query as pairs. Bytes that are not UTF-8 are escaped as in the store.

    The app itself would replace them with U+FFFD, and then nothing would match.
    """
    pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, errors="surrogateescape")
    return [(_escaped(name), _escaped(value)) for name, value in pairs]


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _refusal(scope: Scope, is_host: Callable[[Scope, str], bool]) -> tuple[int, str] | None:
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    names = [name for name, _ in scope["headers"]]
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if not scope["raw_path"].startswith(b"/"):
        return 400, "the address must begin with a slash"
    if lengths and b"transfer-encoding" in names:
        return 400, "the request gives its length twice"
    if len(hosts) != 1 or not is_host(scope, hosts[0].decode("latin-1")):
        return 421, ""
    if lengths and int(lengths[0]) > _largest(scope):
        return 413, ""
    return None


def _length(scope: Scope) -> int:
    """The length of the body in bytes; of a chunked one the largest that is allowed."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value)
        if name == b"transfer-encoding":
            return _largest(scope)
    return 0


def _largest(scope: Scope) -> int:
    return BODY_OF_JOBS if scope["path"] in _WITH_ENVIRONMENT else BODY


async def _refuse(body: dict[str, Any], status: int, scope: Scope, receive: Receive, send: Send) -> None:
    response: Any = JsonResponse(body, status, {"Connection": "close"})
    await response(scope, receive, send)
