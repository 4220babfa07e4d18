"""A client of the page's TCP listener, which sends requests as bytes."""

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from daemon.daemon_process import DaemonProcess
from daemon.listening import Reply, read_all
from dibs.daemon.http.errors import VersionHeader
from dibs.daemon.http.server import RequestLimits
from dibs.daemon.web.guard import SecurityHeaders, TokenGuard, host_check
from dibs.daemon.web.listener import WebServer
from dibs.daemon.web.page_files import PageFiles
from dibs.daemon.web.tokens import Permission, TokenStore
from stories.outside import PATIENCE


class WebClient:
    """Sends requests to the page. `token` is sent unless a call gives another one."""

    def __init__(self, port: int, token: str = "", host: str = "127.0.0.1") -> None:
        self.port = port
        self.token = token
        self.host = host
        self.tls: ssl.SSLContext | None = None

    @property
    def name(self) -> str:
        """The host and the port, as in the address bar."""
        return f"{self.host}:{self.port}"

    def connect(self, seconds: float = PATIENCE) -> socket.socket:
        connection = socket.create_connection((self.host, self.port), timeout=seconds)
        return self.tls.wrap_socket(connection, server_hostname=self.host) if self.tls else connection

    def ask(self, request: bytes) -> Reply:
        """Send bytes as they are and read until the server closes."""
        with self.connect() as connection:
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(request)
            return Reply(read_all(connection))

    def head(self, method: str, target: str, **headers: str | None) -> bytes:
        """A request's first lines, without the empty one; None leaves a header out."""
        token = f"Bearer {self.token}" if self.token else None
        told = {"Host": self.name, "Authorization": token}
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in told.items() if value is not None]
        return "".join(f"{line}\r\n" for line in lines).encode("latin-1")

    def call(self, method: str, target: str, body: Any = None, **headers: str | None) -> Reply:
        """One call on a connection of its own."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if body is not None:
            headers = {"Content_Type": "application/json", "Content_Length": str(len(content)), **headers}
        return self.ask(self.head(method, target, Connection="close", **headers) + b"\r\n" + content)

    def get(self, target: str, **headers: str | None) -> Reply:
        return self.call("GET", target, **headers)

    def sign_in(self, code: str) -> Reply:
        """Sign in as the page does; its token is sent from now on."""
        reply = self.call("POST", "/v1/web/session", {"code": code}, Authorization=None)
        if reply.status == 200:
            self.token = str(reply.json["token"])
        return reply


def open_page(daemon: DaemonProcess, **wishes: Any) -> WebClient:
    """Open the page of a daemon, and sign in."""
    entry = daemon.post("/v1/web", wishes)
    host, _, port = entry["address"].split("/")[2].rpartition(":")
    web_client = WebClient(int(port), host=host.strip("[]"))
    if entry["address"].startswith("http:"):
        assert web_client.sign_in(entry["code"]).status == 200
    return web_client


@contextmanager
def serving_page(
    app: Any, folder: Path, *, page: Path | None = None, hold: float = 0.0, deadline: float = 0.5
) -> Iterator[tuple[WebClient, TokenStore]]:
    """Serve this app to browsers in a thread, until the block ends."""
    folder.mkdir(exist_ok=True)
    keys = TokenStore(str(folder / "web-token"))
    guard = TokenGuard(app, PageFiles(str(page or folder / "none")), keys, "ann", hold=hold)
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    listener.setblocking(False)
    begun: list[tuple[asyncio.AbstractEventLoop, WebServer]] = []
    is_up = threading.Event()

    async def serve() -> None:
        limits = RequestLimits(guard, deadline=deadline, is_host=host_check(frozenset()))
        server = WebServer(SecurityHeaders(VersionHeader(limits)), listener, None)
        begun.append((asyncio.get_running_loop(), server))
        asyncio.get_running_loop().call_later(0.0, is_up.set)
        await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert is_up.wait(PATIENCE)
    try:
        yield WebClient(listener.getsockname()[1], keys.token(Permission.ALL)), keys
    finally:
        loop, server = begun[0]
        loop.call_soon_threadsafe(server.end)
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the listener did not close"


def a_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])
