"""JSON responses, compressed for clients that accept it, strict JSON bodies, and one shape for every error."""

import asyncio
import contextlib
import gzip
import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dibs.daemon.memory import reserve
from dibs.daemon.schemas.responses import ErrorBody
from dibs.errors import BadInput, DibsError
from dibs.version import __version__

JSON = "application/json"
VERSION_HEADER = "Dibs-Version"

_STATUS = {
    "bad-input": 400,
    "no-gpu": 400,
    "not-allowed": 403,
    "no-such-job": 404,
    "no-such-sweep": 404,
    "no-backend": 404,
    "backend-silent": 503,
    "conflict": 409,
    "log-gone": 410,
    "log-replaced": 410,
    "folder-in-use": 409,
    "store-unusable": 503,
    "probe-failed": 503,
    "too-many-streams": 503,
    "stopping": 503,
}
_AROUND = ("body", "query", "path", "defaults", "jobs")  # what stands around a field in a request
# The code, message and remedy of a status, where an error has none of its own.
_DEFAULTS = {
    400: ("bad-input", "cannot understand the request", "see /openapi.json"),
    401: (
        "not-signed-in",
        "this needs a token, and it is missing or out of date",
        "type `dibs web` in a terminal",
    ),
    403: ("not-allowed", "this queue belongs to another user", "every user has a queue of their own"),
    404: ("not-found", "there is nothing at this address", "see /openapi.json"),
    405: ("wrong-method", "this address does not take that method", "see /openapi.json"),
    408: ("too-slow", "the request did not arrive in time", "send it in one piece"),
    410: ("log-gone", "the output was removed to make room", "the setting keep_logs says how much is kept"),
    413: ("too-large", "the request is too large", "send fewer jobs at once"),
    421: (
        "wrong-host",
        "the Host header does not name this server",
        "the host of this machine's dibs is localhost",
    ),
    431: ("headers-too-large", "the request's headers are too large", "send at most 16 KiB of them"),
    500: ("bug", "dibs has met a bug and goes on", "daemon.log has the traceback: please report it"),
    503: ("too-busy", "there are too many connections", "try again in a moment"),
}
SHORT_OF_MEMORY = (
    *("the daemon is short of memory", "ask for less at once, or try again in a moment"),
    "short-of-memory",
)


class JsonResponse(Response):
    """JSON in ASCII: a path that is not UTF-8 is sent as escaped surrogates."""

    media_type = JSON

    def render(self, content: Any) -> bytes:
        return encode(content)


def encode(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii")


def error_body(status: int, message: str = "", remedy: str = "", code: str = "") -> dict[str, Any]:
    """The body of an error. What is left out is filled in with the defaults of its status."""
    default = _DEFAULTS.get(status, ("error", HTTPStatus(status).phrase, ""))
    body = {"code": code or default[0], "message": message or default[1]}
    return {"error": {**body, "remedy": remedy if message else default[2]}}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for the description of the API."""
    listed = {400, 403, 421, 431, 500, *statuses}
    return {
        status: {"model": ErrorBody, "description": _DEFAULTS.get(status, ("", "Conflict"))[1]}
        for status in listed
    }


def handle_errors(app: FastAPI) -> None:
    """Answer every error in the same shape."""
    # An address with one slash more is another address. A redirection would need the name of this server, and on
    # a UNIX socket there is none.
    app.router.redirect_slashes = False
    app.add_exception_handler(DibsError, _on_dibs_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(MemoryError, _on_memory_error)
    app.add_exception_handler(Exception, _on_bug)


async def _on_dibs_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DibsError)
    status = _STATUS.get(error.code, 400 if isinstance(error, BadInput) else 409)
    body = error_body(status, error.message, error.remedy, error.code)
    if isinstance(error, BadInput) and error.field:
        body["error"]["field"] = error.field
    return JsonResponse(body, status)


async def _on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    why = str(first["msg"]).removeprefix("Value error, ")
    message = f"cannot understand {where[:200]}: {why}" if where else f"cannot understand the request: {why}"
    body = error_body(400, message, "see /openapi.json")
    if field := next((part for part in first["loc"] if isinstance(part, str) and part not in _AROUND), None):
        body["error"]["field"] = field
    return JsonResponse(body, 400)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = 400 if error.status_code == 422 else error.status_code
    phrase = HTTPStatus(error.status_code).phrase
    detail = "" if error.detail in (phrase, "") else str(error.detail)
    body = error_body(status, detail, "see /openapi.json" if detail else "")
    return JsonResponse(body, status, dict(error.headers or {}))


async def _on_memory_error(request: Request, error: Exception) -> Response:
    reserve.release()
    return JsonResponse(error_body(503, *SHORT_OF_MEMORY), 503)


async def _on_bug(request: Request, error: Exception) -> Response:
    # Starlette raises the error again after this response, and the server writes its traceback to the log.
    return JsonResponse(error_body(500), 500)


class StrictRoute(APIRoute):
    """Reads bodies as strict JSON: no NaN, no repeated key, no deep nesting."""

    # The models of the responses take two megabytes, and only the description of the API needs them.
    is_described = False

    def __init__(self, *arguments: Any, **more: Any) -> None:
        if not self.is_described:
            more["responses"] = None
        super().__init__(*arguments, **more)

    def get_route_handler(self) -> Any:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strictly


@contextlib.contextmanager
def described_routes() -> Iterator[None]:
    """Routes that are made in this context keep the models of their responses."""
    StrictRoute.is_described = True
    try:
        yield
    finally:
        StrictRoute.is_described = False


class _StrictRequest(Request):
    async def json(self) -> Any:
        try:
            return read_json(await self.body())
        except BadInput as error:
            raise HTTPException(400, error.message) from None


def read_json(body: bytes) -> Any:
    """The value of a JSON text. A text that readers could understand differently is refused."""
    try:
        return json.loads(body.decode(), object_pairs_hook=_without_repetition, parse_constant=_refuse_constant)
    except RecursionError:
        raise BadInput("the JSON is nested too deeply") from None
    except UnicodeDecodeError:
        raise BadInput("the body is not UTF-8") from None
    except ValueError as error:
        raise BadInput(f"the body is not JSON: {str(error)[:200]}") from None


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


class VersionHeader:
    """ASGI middleware that adds the version of dibs to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._header = (VERSION_HEADER.lower().encode(), __version__.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_version(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), self._header]
            await send(message)

        await self._app(scope, receive, send_with_version)


_SMALLEST_PACKED = 1024  # bytes; less fits into one packet anyway
_ON_LOOP = 32 * 1024  # bytes that take less than a millisecond; larger ones are compressed in a thread
_GZIP_LEVEL = 1  # of a list of jobs an eighth remains; the usual 6 takes twice as long for a fifth less


class JsonCompression:
    """ASGI middleware. Streams, such as events, exports and logs, pass through as they come.

    Over TLS, compression gives away secrets if other sites can cause requests whose responses contain both a
    secret and a text of theirs. Here they cannot: a request needs the token, which no browser adds by itself.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not accepts_gzip(scope):
            await self._app(scope, receive, send)
            return
        held: Message | None = None  # the head of a JSON response, until its body is here

        async def send_compressed(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and _is_json(message):
                held = message
                return
            if held is not None:
                head, held = held, None
                if message["type"] == "http.response.body" and not message.get("more_body", False):
                    head, message = await _compressed(head, message)
                await send(head)
            await send(message)

        await self._app(scope, receive, send_compressed)


def accepts_gzip(scope: Scope) -> bool:
    """Whether the client of a request can read gzip."""
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept-encoding").decode("latin-1")
    for part in accepted.split(","):
        name, _, quality = part.replace(" ", "").lower().partition(";q=")
        if name == "gzip":
            return not re.fullmatch(r"0(\.0*)?", quality)
    return False


def _is_json(head: Message) -> bool:
    headers = dict(head.get("headers", ()))
    return headers.get(b"content-type") == JSON.encode() and b"content-encoding" not in headers


async def _compressed(head: Message, body: Message) -> tuple[Message, Message]:
    content = body.get("body", b"")
    headers = [*head["headers"], (b"vary", b"accept-encoding")]
    if len(content) >= _SMALLEST_PACKED:
        try:
            packed = _pack(content) if len(content) <= _ON_LOOP else await asyncio.to_thread(_pack, content)
        except MemoryError:
            return head, body  # as it is, it needs no more memory
        headers = [header for header in headers if header[0] != b"content-length"]
        headers += [(b"content-length", b"%d" % len(packed)), (b"content-encoding", b"gzip")]
        body = {**body, "body": packed}
    return {**head, "headers": headers}, body


def _pack(content: bytes) -> bytes:
    return gzip.compress(content, _GZIP_LEVEL, mtime=0)
