"""The server behind the door: TCP, perhaps with TLS, and few enough connections that the socket is never short."""

import asyncio
import socket
import ssl
from typing import Any

from dibs.daemon.http.protocol import Protocol
from dibs.daemon.http.server import SHORT_OF, Server, most_connections
from dibs.daemon.web.guard import head_of_refusals

_MOST_CONNECTIONS = 128
_TAKEN_AT_ONCE = 16
_HANDSHAKE = 5.0  # seconds
_MOST_HANDSHAKES = 64  # at one time
_GRACE = 2.0  # seconds for what is being answered when the door closes
_LOOK_EVERY = 0.02  # seconds
_PAUSE = 1.0  # seconds after which somebody is taken in again, where there was no descriptor left


class DoorProtocol(Protocol):
    """A connection from a browser. Whoever has shown no token gives way to newer ones."""

    more_headers = head_of_refusals()

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.is_known = False  # set by the guard, which finds us in the request's state
        self.app_state = {**self.app_state, "connection": self}

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.app_state = {}  # or we would hold ourselves

    def is_from_stranger(self, connection: socket.socket) -> bool:
        return False  # any user can connect: the token tells who is who

    @property
    def is_waiting_for_request(self) -> bool:
        return not self.is_known or super().is_waiting_for_request


class DoorServer(Server):
    """Takes callers in by itself: one whose TLS handshake goes on for ever is counted too."""

    def __init__(self, app: Any, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        super().__init__(app, DoorProtocol)
        DoorProtocol.most_connections = min(_MOST_CONNECTIONS, most_connections() // 2)
        self._listener = listener
        self._tls = tls
        self._coming: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._is_listening = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []
        self.started = True
        self._is_listening = True
        self._listen()

    def end(self) -> None:
        """Nobody comes in from now on; what is being asked is answered."""
        if self._is_listening:
            self._is_listening = False
            asyncio.get_running_loop().remove_reader(self._listener)
            if self._pause is not None:
                self._pause.cancel()
            self._listener.close()
        super().end()

    def drop_all(self) -> None:
        """Cut every connection, for instance because its token is good no more."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._coming:
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._until_left(_GRACE)
        self.drop_all()  # streams that would go on for ever; their tasks end as when a reader leaves
        await self._until_left(_GRACE)

    async def _until_left(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (self.server_state.connections or self.server_state.tasks) and loop.time() < until:
            await asyncio.sleep(_LOOK_EVERY)

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._listener, self._take_in)

    def _take_in(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_TAKEN_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in SHORT_OF:
                    raise
                loop.remove_reader(self._listener)  # it would wake us again at once
                self._pause = loop.call_later(_PAUSE, self._listen)
                return
            if len(self._coming) >= _MOST_HANDSHAKES:
                connection.close()
                continue
            connection.setblocking(False)
            task = loop.create_task(self._bring_in(connection))
            self._coming.add(task)
            task.add_done_callback(self._coming.discard)

    async def _bring_in(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE if self._tls else None,
            )
        except OSError:
            connection.close()  # no TLS, or too slow, or gone: nobody to be told

    def _protocol(self) -> DoorProtocol:
        return DoorProtocol(config=self.config, server_state=self.server_state, app_state={})
