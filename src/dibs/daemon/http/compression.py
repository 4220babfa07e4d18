"""Compresses JSON responses with gzip for clients that accept it."""

import asyncio
import gzip
import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dibs.daemon.http.errors import JSON

SMALLEST = 1024  # bytes; less fits into one packet anyway
_ON_LOOP = 32 * 1024  # bytes that take less than a millisecond; larger ones are compressed in a thread
_LEVEL = 1  # of a list of jobs an eighth remains; the usual 6 takes twice as long for a fifth less


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
    if len(content) >= SMALLEST:
        try:
            packed = _pack(content) if len(content) <= _ON_LOOP else await asyncio.to_thread(_pack, content)
        except MemoryError:
            return head, body  # as it is, it needs no more memory
        headers = [header for header in headers if header[0] != b"content-length"]
        headers += [(b"content-length", b"%d" % len(packed)), (b"content-encoding", b"gzip")]
        body = {**body, "body": packed}
    return {**head, "headers": headers}, body


def _pack(content: bytes) -> bytes:
    return gzip.compress(content, _LEVEL, mtime=0)
