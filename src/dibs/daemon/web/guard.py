"""What a request from a browser must be before the app sees it: from the page itself, and with a token."""

import asyncio
import ipaddress
import os
import re
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dibs.daemon.http.errors import JSON, JsonResponse, error_body, read_json
from dibs.daemon.web.page_files import PageFiles
from dibs.daemon.web.tokens import CODE_LIFE, Permission, TokenStore
from dibs.errors import BadInput, NotAllowed
from dibs.version import __version__

SESSION = "/v1/web/session"
# On the UNIX socket only: with a token it must not be possible to open another listener or to stop the daemon.
_SOCKET_ONLY = re.compile(r"/v1/(stop|web(/.*)?)/?", re.DOTALL)
_SECRETS = re.compile(r"/v1/jobs/[^/]*/environment/?", re.DOTALL)
PERMISSION = "dibs.permission"  # in the scope of a request; not there on the UNIX socket
_NEEDS_TOKEN = re.compile(r"/v1(/.*)?|/metrics|/openapi\.json", re.DOTALL)
_HOST = re.compile(r"(?P<name>localhost|[0-9.]+|\[[0-9a-f:.]+\]|[a-z0-9-]+(\.[a-z0-9-]+)*)(:[0-9]{1,5})?")
_LOCAL = frozenset(("localhost", "127.0.0.1", "[::1]"))
_LARGEST_CODE = 4096  # bytes of a body that contains a code
_CODE_WITHIN = 5.0  # seconds
_HOLD = 1.0  # seconds until a wrong guess is answered
_SOCKET_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")

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


def host_check(names: frozenset[str]) -> Callable[[Scope, str], bool]:
    """A check whether a Host header names this machine: by one of these names, or by the connection's address.

    Any port is accepted, because `ssh -L` changes it. A numeric address cannot be rebound by DNS; a name could be.
    """
    known = _LOCAL | {name.lower() for name in names}

    def check(scope: Scope, host: str) -> bool:
        match = _HOST.fullmatch(host.lower())
        if match is None:
            return False
        address = (scope.get("server") or ("", 0))[0]
        return match["name"] in known or match["name"] in (address, f"[{address}]")

    return check


class SecurityHeaders:
    """ASGI middleware that adds the security headers for browsers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._headers = [(name.encode(), value.encode()) for name, value in HEADERS]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if all(name.lower() != b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message["headers"] = [*headers, *self._headers]
            await send(message)

        await self._app(scope, receive, send_with_headers)


class TokenGuard:
    """ASGI middleware between the limits and the app. The page itself needs no token: it contains no data."""

    def __init__(
        self, app: ASGIApp, page: PageFiles, tokens: TokenStore, user: str, *, hold: float = _HOLD
    ) -> None:
        self._app = app
        self._page = page
        self._tokens = tokens
        self._user = user
        self._hold = hold

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if why := _cross_site(scope, is_page=path in self._page):
            await _refuse(403, scope, receive, send, why, "open the address that `dibs web` prints")
        elif path == SESSION:
            await self._sign_in(scope, receive, send)
        elif path in self._page:
            await self._page(scope, receive, send)
        elif not _NEEDS_TOKEN.fullmatch(path):
            await _refuse(404, scope, receive, send)
        else:
            await self._check_token(scope, receive, send)

    async def _check_token(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = _token(scope)
        permission = self._tokens.permission_of(token) if token else None
        if permission is None:
            if token:
                await _hold(receive, self._hold)
            await _refuse(401, scope, receive, send)
            return
        if connection := scope.get("state", {}).get("connection"):
            connection.has_token = True
        if _SOCKET_ONLY.fullmatch(scope["path"]):
            why = "this can only be done in a terminal on the machine where dibs runs"
            await _refuse(403, scope, receive, send, why, "`dibs daemon stop`, `dibs web --stop`")
        elif permission is Permission.READ and scope["method"] not in ("GET", "HEAD"):
            why = "this page is read-only and can change nothing"
            await _refuse(403, scope, receive, send, why, "`dibs web` without --read-only prints another address")
        elif permission is Permission.READ and _SECRETS.fullmatch(scope["path"]):
            why = "environments may contain passwords, and are not shown on a read-only page"
            await _refuse(403, scope, receive, send, why, "`dibs info --env` shows them to the owner")
        else:
            await self._app({**scope, PERMISSION: permission}, receive, send)

    async def _sign_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Exchange a code for the token."""
        if scope["method"] != "POST":
            await _refuse(405, scope, receive, send)
            return
        try:
            code = await _code(scope, receive)
            if code is None:
                return  # the client has disconnected
            is_other = is_other_user(scope["client"], scope["server"])
            permission = self._tokens.redeem(code, is_other_user=is_other)
        except TimeoutError:
            await _refuse(408, scope, receive, send)
            return
        except BadInput as error:
            await _refuse(400, scope, receive, send, error.message, error.remedy)
            return
        except NotAllowed as error:
            await _refuse(403, scope, receive, send, error.message, error.remedy)
            return
        if permission is None:
            await _hold(receive, self._hold)
            await _refuse(401, scope, receive, send, *_WRONG_CODE)
            return
        response: Any = JsonResponse(
            {
                "token": self._tokens.token(permission),
                "read_only": permission is Permission.READ,
                "user": self._user,
                "version": __version__,
            }
        )
        await response(scope, receive, send)


_WRONG_CODE = (
    f"this code is wrong, was used already, or is older than {CODE_LIFE / 60:g} minutes",
    *("type `dibs web` in a terminal for a new one", "wrong-code"),
)


def security_header_lines() -> str:
    """The same headers as text, for responses that are written without the app."""
    return "".join(f"{name}: {value}\r\n" for name, value in (*HEADERS, ("cache-control", "no-store")))


def _cross_site(scope: Scope, *, is_page: bool) -> str:
    """Why a request does not come from the page itself, or empty. Programs other than browsers do not say."""
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
    # A person may follow a link from another site to the page itself, which contains no data.
    is_followed = _all(scope, b"sec-fetch-mode") == ["navigate"] and _all(scope, b"sec-fetch-dest") == ["document"]
    return "" if is_page and is_followed and scope["method"] == "GET" else "the request comes from another site"


def _token(scope: Scope) -> str:
    """The token of a request; empty if there is none or more than one."""
    sent = _all(scope, b"authorization")
    if len(sent) != 1:
        return ""
    scheme, _, token = sent[0].partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _all(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]


async def _code(scope: Scope, receive: Receive) -> str | None:
    """The code in the body; None if the client has disconnected."""
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
        raise BadInput("the body must be an object with one key, `code`, and a text", remedy='{"code": "..."}')
    return sent["code"]


async def _hold(receive: Receive, seconds: float) -> None:
    """Delay the response to a wrong guess, or until the client disconnects."""
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
    response: Any = JsonResponse(error_body(status, message, remedy, code), status, headers)
    await response(scope, receive, send)


def is_other_user(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """Whether a program of another user than the owner or root has connected; False for other machines.

    `ssh -L` connects as the user who has logged in.
    """
    uid = peer_uid(client, server)
    return uid is not None and uid not in (0, os.geteuid())


def peer_uid(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The owner of the socket at the other end; None if it is on another machine."""
    theirs, ours = _spellings(*client), _spellings(*server)
    for table in _SOCKET_TABLES:
        try:
            with open(table) as lines:
                for line in lines:
                    fields = line.split()
                    if len(fields) > 7 and fields[1] in theirs and fields[2] in ours:
                        return int(fields[7])
        except OSError:
            continue
    return None


def _spellings(host: str, port: int) -> frozenset[str]:
    """The address as the kernel writes it, `0100007F:2049`: groups of four bytes in the machine's byte order."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        address = mapped
    raw = [address.packed]
    if len(address.packed) == 4:
        raw.append(bytes(10) + b"\xff\xff" + address.packed)  # an IPv6 socket that also accepts IPv4
    return frozenset(f"{_grouped(one)}:{port:04X}" for one in raw)


def _grouped(raw: bytes) -> str:
    groups = (int.from_bytes(raw[place : place + 4], "big") for place in range(0, len(raw), 4))
    return "".join(f"{socket.ntohl(group):08X}" for group in groups)
