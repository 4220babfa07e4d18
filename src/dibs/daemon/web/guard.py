"""What a request from a browser must be before the app sees it: from our own page, and with a token."""

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dibs import __version__
from dibs.daemon.http.errors import JSON, Answer, problem, read_json
from dibs.daemon.web.page_files import Page
from dibs.daemon.web.peer import is_stranger
from dibs.daemon.web.tokens import CODE_LIFE, Keys, Right
from dibs.errors import BadInput, NotAllowed

SESSION = "/v1/web/session"
# Behind the UNIX socket only: whoever has a token must not open another door, or leave the queue without a daemon.
_ONLY_INSIDE = re.compile(r"/v1/(stop|web(/.*)?)/?", re.DOTALL)
_SECRETS = re.compile(r"/v1/jobs/[^/]*/environment/?", re.DOTALL)
_NEEDS_TOKEN = re.compile(r"/v1(/.*)?|/metrics|/openapi\.json", re.DOTALL)
_HOST = re.compile(r"(?P<name>localhost|[0-9.]+|\[[0-9a-f:.]+\]|[a-z0-9-]+(\.[a-z0-9-]+)*)(:[0-9]{1,5})?")
_LOCAL = frozenset(("localhost", "127.0.0.1", "[::1]"))
_LARGEST_CODE = 4096  # bytes of a body with a code
_CODE_WITHIN = 5.0  # seconds
_HOLD = 1.0  # seconds that a wrong guess takes

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)


def is_our_host(names: frozenset[str]) -> Callable[[Scope, str], bool]:
    """Whether a Host is one of this machine's: by these names, or by the address that was connected to.

    The port may be any: `ssh -L` changes it. An address in figures cannot be rebound, a name could be.
    """
    known = _LOCAL | {name.lower() for name in names}

    def check(scope: Scope, host: str) -> bool:
        match = _HOST.fullmatch(host.lower())
        if match is None:
            return False
        address = (scope.get("server") or ("", 0))[0]
        return match["name"] in known or match["name"] in (address, f"[{address}]")

    return check


class Dressed:
    """Puts on every answer what a browser must know about it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._headers = [(name.encode(), value.encode()) for name, value in HEADERS]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if all(name.lower() != b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message["headers"] = [*headers, *self._headers]
            await send(message)

        await self._app(scope, receive, dressed)


class Guard:
    """Between the gate and the app. The page itself is for everybody who can connect: it tells nothing."""

    def __init__(self, app: ASGIApp, page: Page, keys: Keys, user: str, *, hold: float = _HOLD) -> None:
        self._app = app
        self._page = page
        self._keys = keys
        self._user = user
        self._hold = hold

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if why := _why_foreign(scope, is_page=path in self._page):
            await _refuse(403, scope, receive, send, why, "open the address that `dibs web` prints")
        elif path == SESSION:
            await self._begin_session(scope, receive, send)
        elif path in self._page:
            await self._page(scope, receive, send)
        elif not _NEEDS_TOKEN.fullmatch(path):
            await _refuse(404, scope, receive, send)
        else:
            await self._let_in(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = _token(scope)
        right = self._keys.right_of(token) if token else None
        if right is None:
            if token:
                await _hold(receive, self._hold)
            await _refuse(401, scope, receive, send)
            return
        if connection := scope.get("state", {}).get("connection"):
            connection.is_known = True
        if _ONLY_INSIDE.fullmatch(scope["path"]):
            why = "this can only be done in a terminal on the machine where dibs runs"
            await _refuse(403, scope, receive, send, why, "`dibs daemon stop`, `dibs web --stop`")
        elif right is Right.READ and scope["method"] not in ("GET", "HEAD"):
            why = "this page may look and change nothing"
            await _refuse(403, scope, receive, send, why, "`dibs web` without --read-only prints another address")
        elif right is Right.READ and _SECRETS.fullmatch(scope["path"]):
            why = "environments may hold passwords, and are not shown to those who only look"
            await _refuse(403, scope, receive, send, why, "`dibs info --env` shows them to the owner")
        else:
            await self._app(scope, receive, send)

    async def _begin_session(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give the token for a code."""
        if scope["method"] != "POST":
            await _refuse(405, scope, receive, send)
            return
        try:
            code = await _code(scope, receive)
            if code is None:
                return  # it has gone
            right = self._keys.take(code, is_stranger=is_stranger(scope["client"], scope["server"]))
        except TimeoutError:
            await _refuse(408, scope, receive, send)
            return
        except BadInput as error:
            await _refuse(400, scope, receive, send, error.message, error.remedy)
            return
        except NotAllowed as error:
            await _refuse(403, scope, receive, send, error.message, error.remedy)
            return
        if right is None:
            await _hold(receive, self._hold)
            await _refuse(401, scope, receive, send, *_WRONG_CODE)
            return
        token = self._keys.token(right)
        answer: Any = Answer(
            {"token": token, "read_only": right is Right.READ, "user": self._user, "version": __version__}
        )
        await answer(scope, receive, send)


_WRONG_CODE = (
    f"this code is wrong, was used already, or is older than {CODE_LIFE / 60:g} minutes",
    *("type `dibs web` in a terminal for a new one", "wrong-code"),
)


def head_of_refusals() -> str:
    """The same headers for answers that are written by hand."""
    return "".join(f"{name}: {value}\r\n" for name, value in (*HEADERS, ("cache-control", "no-store")))


def _why_foreign(scope: Scope, *, is_page: bool) -> str:
    """Why a request does not come from our own page, or empty. Programs other than browsers do not tell."""
    origins = _all(scope, b"origin")
    if len(origins) > 1:
        return "the request comes from two origins"
    if origins:
        scheme, _, place = origins[0].lower().partition("://")
        if scheme not in ("http", "https") or [place] != [host.lower() for host in _all(scope, b"host")]:
            return "the request comes from another page"
    sites = _all(scope, b"sec-fetch-site")
    if all(site in ("same-origin", "none") for site in sites):
        return ""
    # A link in somebody's notes leads here, and is followed by a person; what it leads to tells nothing.
    is_followed = _all(scope, b"sec-fetch-mode") == ["navigate"] and _all(scope, b"sec-fetch-dest") == ["document"]
    return "" if is_page and is_followed and scope["method"] == "GET" else "the request comes from another site"


def _token(scope: Scope) -> str:
    """The one that was sent; empty where there is none, or it is not clear which."""
    said = _all(scope, b"authorization")
    if len(said) != 1:
        return ""
    scheme, _, token = said[0].partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _all(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]


async def _code(scope: Scope, receive: Receive) -> str | None:
    """What was sent as a code; None where the sender has left."""
    kinds = [kind.partition(";")[0].strip().lower() for kind in _all(scope, b"content-type")]
    if kinds != [JSON]:
        raise BadInput("a code is sent as JSON", remedy=f"Content-Type: {JSON}")
    body = b""
    async with asyncio.timeout(_CODE_WITHIN):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > _LARGEST_CODE:
                raise BadInput("this is too long for a code", remedy='{"code": "..."}')
            if not message.get("more_body", False):
                break
    sent = read_json(body)
    if not isinstance(sent, dict) or sent.keys() != {"code"} or not isinstance(sent["code"], str):
        raise BadInput("a code is one key with a text", remedy='{"code": "..."}')
    return sent["code"]


async def _hold(receive: Receive, seconds: float) -> None:
    """Let a wrong guess wait. One that goes away meanwhile is not waited for."""
    try:
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        pass


async def _refuse(
    status: int, scope: Scope, receive: Receive, send: Send, message: str = "", remedy: str = "", code: str = ""
) -> None:
    headers = {"Connection": "close"}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    answer: Any = Answer(problem(status, message, remedy, code), status, headers)
    await answer(scope, receive, send)
