"""What a request must be before a route sees it: for this host, not too large, and complete in time."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dibs.daemon.http.errors import SHORT_OF_MEMORY, JsonResponse, error_body
from dibs.daemon.memory import reserve

BODY = 1024**2  # bytes
BODY_OF_JOBS = 8 * 1024**2
_WITH_ENVIRONMENT = ("/v1/jobs", "/v1/jobs/check", "/v1/sweeps", "/v1/sweeps/check")
_DEADLINE = 30.0  # seconds for a whole body
# Memory that a request takes while it is handled. The JSON reader ends the process if it cannot allocate.
_MEMORY = 4 * 1024**2  # bytes
_MEMORY_PER_BYTE = 8


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
