"""The server for browsers: TCP, with or without TLS. It leaves enough descriptors for the UNIX socket."""

import asyncio
import socket
import ssl
from typing import Any

from dibs.daemon.http.server import SHORTAGES, HttpProtocol, Server, most_connections
from dibs.daemon.web.guard import security_header_lines

_MOST_CONNECTIONS = 128
_ACCEPTED_AT_ONCE = 16
_HANDSHAKE = 5.0  # seconds
_MOST_HANDSHAKES = 64  # at one time
_GRACE = 2.0  # seconds for current requests when the listener closes
_CHECK_EVERY = 0.02  # seconds
_PAUSE = 1.0  # seconds until connections are accepted again after a shortage of descriptors


class WebProtocol(HttpProtocol):
    """A connection from a browser. One without a token is dropped first when there are too many."""

    more_headers = security_header_lines()

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.has_token = False  # set by the guard, which finds this object in the state of the request
        self.app_state = {**self.app_state, "connection": self}

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.app_state = {}  # breaks a reference cycle

    def most_connections(self) -> int:
        return min(_MOST_CONNECTIONS, most_connections() // 2)

    def is_from_other_user(self, connection: socket.socket) -> bool:
        return False  # any user can connect: the token decides

    @property
    def is_waiting_for_request(self) -> bool:
        return not self.has_token or super().is_waiting_for_request


class WebServer(Server):
    """Accepts connections itself, so that one with an endless TLS handshake is counted too."""

    def __init__(self, app: Any, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        super().__init__(app, WebProtocol)
        self._listener = listener
        self._tls = tls
        self._handshakes: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._is_listening = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []
        self.started = True
        self._is_listening = True
        self._listen()

    def end(self) -> None:
        """Accept no more connections, and finish the current requests."""
        if self._is_listening:
            self._is_listening = False
            asyncio.get_running_loop().remove_reader(self._listener)
            if self._pause is not None:
                self._pause.cancel()
            self._listener.close()
        super().end()

    def drop_all(self) -> None:
        """Close every connection at once, for instance because its token was replaced."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._handshakes:
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._until_closed(_GRACE)
        self.drop_all()  # event streams never end by themselves; their tasks end as when a client disconnects
        await self._until_closed(_GRACE)

    async def _until_closed(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (self.server_state.connections or self.server_state.tasks) and loop.time() < until:
            await asyncio.sleep(_CHECK_EVERY)

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in SHORTAGES:
                    raise
                loop.remove_reader(self._listener)  # it would be ready again at once
                self._pause = loop.call_later(_PAUSE, self._listen)
                return
            if len(self._handshakes) >= _MOST_HANDSHAKES:
                connection.close()
                continue
            connection.setblocking(False)
            task = loop.create_task(self._handshake(connection))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE if self._tls else None,
            )
        except OSError:
            connection.close()  # no TLS, too slow, or disconnected

    def _protocol(self) -> WebProtocol:
        return WebProtocol(config=self.config, server_state=self.server_state, app_state={})
