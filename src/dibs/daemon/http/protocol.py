"""What uvicorn does not do: who is there, how long they may take, and what they may send."""

import asyncio
import os
import re
import socket
import struct
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from dibs import __version__
from dibs.daemon.http.errors import JSON, SHORT_OF_MEMORY, VERSION, encode, problem
from dibs.daemon.reserve import reserve

HEADERS = 16 * 1024  # bytes of a request's head
_HEADER_DEADLINE = 5.0  # seconds from a request's first byte to the end of its head
_PIECE = 64 * 1024  # bytes read at once; the usual 256 are more than malloc keeps, and each comes from the kernel
_STALL = 30.0  # seconds in which somebody must read what we write
# A line that ends without a carriage return, or goes on in the next one: readers differ about where the head ends.
_ODD_LINES = re.compile(rb"(?<!\r)\n|\n[ \t]")
# h11 takes the same length twice for one; a reader in between may not.
_LENGTHS = re.compile(rb"\ncontent-length[ \t]*:", re.IGNORECASE)


class Protocol(H11Protocol):
    """One connection. Strangers, slow ones and those with odd requests get one answer and are closed."""

    most_connections = 256  # set by the server, before the first one
    more_headers = ""  # of answers that are written by hand

    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _is_stranger = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.max_size = _PIECE
        self._is_stranger = self.is_from_stranger(transport.get_extra_info("socket"))
        self._start_deadline()
        if len(self.connections) > self.most_connections:
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
            reserve.give_up()
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
                self.refuse(400, "the lines of the request's head do not end as they must")
                return
            if len(_LENGTHS.findall(head)) > 1:
                self.refuse(400, "the request tells its length twice")
                return
            if len(head) > HEADERS:
                self.refuse(431)
                return
            if self._is_stranger and end:
                self.refuse(403)
                return
        super().handle_events()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for what is no HTTP, while h11's error is being handled."""
        error = sys.exception()
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        self.refuse(status if status in (400, 431) else 400, str(error or msg)[:200] if status == 400 else "")

    def refuse(self, status: int, message: str = "", remedy: str = "", code: str = "") -> None:
        """Answer where that is still possible, and close."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # whoever works on the request need not go on
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.abort()
                return
        if self.transport.is_closing():
            return
        # Written by hand: after an error h11 may be in a state in which it says nothing more.
        body = encode(problem(status, message, remedy, code))
        head = (
            f"HTTP/1.1 {status} {STATUS_PHRASES[status].decode()}\r\ncontent-type: {JSON}\r\n"
            f"content-length: {len(body)}\r\n{VERSION.lower()}: {__version__}\r\n{self.more_headers}"
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

    def is_from_stranger(self, connection: socket.socket) -> bool:
        """Whether another user is at the other end."""
        return _peer_uid(connection) != os.geteuid()

    # -- those who take too long -----------------------------------------------------------------------

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
        """Drop who has asked for nothing for longest; where everybody is being served, the new one is refused."""
        others = [
            one
            for one in self.connections
            if isinstance(one, Protocol) and one is not self and not one.transport.is_closing()
        ]
        if len(others) < self.most_connections:
            return  # some are on their way out already
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
    """Who is at the other end, as the kernel knows it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)
