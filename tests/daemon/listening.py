"""A server on a real socket in a thread, and functions that send it requests as bytes."""

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dibs.daemon.http.server import Server, UnixSocket
from stories.outside import PATIENCE


@contextmanager
def listening(app: Any, path: Path) -> Iterator[str]:
    """Serve an app at this path for as long as the block lasts."""
    begun: list[tuple[asyncio.AbstractEventLoop, Server]] = []
    is_up = threading.Event()

    async def serve() -> None:
        address = UnixSocket(str(path))
        try:
            server = Server(app)
            begun.append((asyncio.get_running_loop(), server))
            serving = asyncio.ensure_future(server.serve(sockets=[address.bind()]))
            asyncio.get_running_loop().call_later(0.0, is_up.set)
            await serving
        finally:
            address.remove()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert is_up.wait(PATIENCE)
    try:
        yield str(path)
    finally:
        loop, server = begun[0]
        loop.call_soon_threadsafe(server.end)
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server did not end"


def connect(path: str, seconds: float = PATIENCE) -> socket.socket:
    """Through the folder: the path may be longer than the kernel takes."""
    folder, name = os.path.split(path)
    handle = os.open(folder, os.O_PATH)
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(seconds)
        while True:
            try:
                connection.connect(f"/proc/self/fd/{handle}/{name}")
                break
            except BlockingIOError:  # the backlog is full
                time.sleep(0.01)
    finally:
        os.close(handle)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    pieces = []
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            break
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces)


def ask(path: str, request: bytes) -> "Reply":
    """Send bytes as they are and read until the server closes."""
    with connect(path) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # it has answered before it read the rest
            connection.sendall(request)
        return Reply(read_all(connection))


def call(path: str, method: str, target: str, body: Any = None, **headers: str) -> "Reply":
    """One call on a connection of its own."""
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {target} HTTP/1.1", f"Host: {headers.pop('host', 'localhost')}", "Connection: close"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ask(path, "\r\n".join(lines).encode() + b"\r\n\r\n" + content)


class Reply:
    """A parsed response. `status` is 0 if there was none."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        head, _, self.body = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1]) if raw else 0
        self.headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        if self.headers.get("transfer-encoding") == "chunked":
            self.body = _joined(self.body)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of the error. The shape of the error is checked."""
        error = self.json["error"]
        assert error.keys() - {"field"} == {"code", "message", "remedy"}
        assert all(isinstance(value, str) for value in error.values())
        assert error["message"]
        return str(error["code"])

    def __repr__(self) -> str:
        return f"Reply({self.raw[:2000]!r})"


def _joined(chunks: bytes) -> bytes:
    pieces = []
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        length = int(size, 16)
        pieces.append(rest[:length])
        chunks = rest[length + 2 :] if length else b""
    return b"".join(pieces)
