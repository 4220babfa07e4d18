"""Answers: JSON that survives text which is no UTF-8, and one shape for every error."""

import contextlib
import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from dibs import __version__
from dibs.daemon.reserve import reserve
from dibs.daemon.schemas.responses import ErrorBody
from dibs.errors import BadInput, DibsError

JSON = "application/json"
VERSION = "Dibs-Version"

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
    "folder-in-use": 409,
    "store-unusable": 503,
    "probe-failed": 503,
    "too-many-streams": 503,
    "stopping": 503,
}
_SAID = {
    400: ("bad-input", "cannot understand the request", "see /openapi.json"),
    401: ("not-signed-in", "this needs a token, and there is none or an old one", "type `dibs web` in a terminal"),
    403: ("not-allowed", "this queue belongs to somebody else", "every user has a queue of their own"),
    404: ("not-found", "there is nothing at this address", "see /openapi.json"),
    405: ("wrong-method", "this address does not take that method", "see /openapi.json"),
    408: ("too-slow", "the request did not arrive in time", "send it in one piece"),
    410: ("log-gone", "the output was removed to make room", "the setting keep_logs says how much is kept"),
    413: ("too-large", "the request is too large", "send fewer jobs at once"),
    421: ("wrong-host", "this is not the host that you meant", "the host of this machine's dibs is localhost"),
    431: ("headers-too-large", "the request's headers are too large", "send at most 16 KiB of them"),
    500: ("bug", "dibs has met a bug and goes on", "daemon.log has the traceback: please report it"),
    503: ("too-busy", "there are too many connections", "try again in a moment"),
}
SHORT_OF_MEMORY = (
    *("the daemon is short of memory", "ask for less at once, or try again in a moment"),
    "short-of-memory",
)


class Answer(Response):
    """JSON in ASCII: a path that is no UTF-8 travels as escaped surrogates."""

    media_type = JSON

    def render(self, content: Any) -> bytes:
        return encode(content)


def encode(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii")


def problem(status: int, message: str = "", remedy: str = "", code: str = "") -> dict[str, Any]:
    """The body of an error; what is left out is what that status usually means."""
    usual = _SAID.get(status, ("error", HTTPStatus(status).phrase, ""))
    body = {"code": code or usual[0], "message": message or usual[1]}
    return {"error": {**body, "remedy": remedy if message else usual[2]}}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for the description of the API."""
    told = {400, 403, 421, 431, 500, *statuses}
    return {status: {"model": ErrorBody, "description": _SAID.get(status, ("", "Conflict"))[1]} for status in told}


def answer_errors(app: FastAPI) -> None:
    """Whatever goes wrong, the caller gets the same shape."""
    app.add_exception_handler(DibsError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_bad_request)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(MemoryError, _on_shortage)
    app.add_exception_handler(Exception, _on_bug)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DibsError)
    status = _STATUS.get(error.code, 400 if isinstance(error, BadInput) else 409)
    return Answer(problem(status, error.message, error.remedy, error.code), status)


async def _on_bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    said = str(first["msg"]).removeprefix("Value error, ")
    message = f"cannot understand {where[:200]}: {said}" if where else f"cannot understand the request: {said}"
    return Answer(problem(400, message, "see /openapi.json"), 400)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = 400 if error.status_code == 422 else error.status_code
    usual = HTTPStatus(error.status_code).phrase
    said = "" if error.detail in (usual, "") else str(error.detail)
    return Answer(problem(status, said, "see /openapi.json" if said else ""), status, dict(error.headers or {}))


async def _on_shortage(request: Request, error: Exception) -> Response:
    reserve.give_up()
    return Answer(problem(503, *SHORT_OF_MEMORY), 503)


async def _on_bug(request: Request, error: Exception) -> Response:
    # Starlette raises it again after this answer, and the server writes its traceback to the log.
    return Answer(problem(500), 500)


class StrictRoute(APIRoute):
    """Reads bodies as strict JSON: no NaN, no key twice, nothing too deep."""

    # What it answers with is two megabytes of models, which only the description needs.
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
    """Routes that are made in here tell what they answer with."""
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
    """What stands there, and only if it can be meant in one way."""
    try:
        return json.loads(body.decode(), object_pairs_hook=_once, parse_constant=_no_number)
    except RecursionError:
        raise BadInput("the JSON is nested too deeply") from None
    except UnicodeDecodeError:
        raise BadInput("the body is not UTF-8") from None
    except ValueError as error:
        raise BadInput(f"the body is not JSON: {str(error)[:200]}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


class Stamp:
    """Puts our version on every answer."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._header = (VERSION.lower().encode(), __version__.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def stamped(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), self._header]
            await send(message)

        await self._app(scope, receive, stamped)
