"""The page's files: those of the package, by name. No path that somebody sends is ever looked up on the disk."""

import asyncio
import gzip
import os
import re
from dataclasses import dataclass, field

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dibs.daemon.http.errors import Answer, problem

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
_PACKED_ALREADY = (".png", ".ico", ".woff2")
# The build puts a part of the content's hash into the name: under one name there is only ever one content.
_HASHED = re.compile(r"/assets/[^/]+-[\w-]{8}\.\w+")


class Page:
    """What there is to see. The files are found now, and read when the first reader comes."""

    def __init__(self, folder: str = FOLDER) -> None:
        self._files = _found(folder)

    def __contains__(self, path: str) -> bool:
        return path in self._files or path == "/"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(scope)
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            return Answer(problem(405), 405, {"Allow": "GET, HEAD"})
        file = self._files.get(scope["path"])
        if file is None:
            return Answer(problem(404, *_NOT_BUILT), 404)
        if not file.content:
            try:
                await asyncio.to_thread(file.load)
            except OSError:
                return Answer(problem(404, *_GONE), 404)
        headers = {"Content-Type": file.kind, "Cache-Control": file.keeping, "Vary": "Accept-Encoding"}
        if file.packed and _takes_gzip(scope):
            return Response(file.packed, headers={**headers, "Content-Encoding": "gzip"})
        return Response(file.content, headers=headers)


_NOT_BUILT = (
    *("this dibs was installed without its page", "in a checkout: cd web && npm ci && npm run build"),
    "not-found",
)
_GONE = (
    *("this part of the page went away with the version that is running", "`dibs daemon restart`"),
    "not-found",
)


@dataclass(slots=True)
class _File:
    path: str
    kind: str
    keeping: str
    content: bytes = field(default=b"", repr=False)
    packed: bytes = field(default=b"", repr=False)

    def load(self) -> None:
        with open(self.path, "rb") as file:
            content = file.read()
        packed = b"" if self.path.endswith(_PACKED_ALREADY) else gzip.compress(content, mtime=0)
        self.packed = packed if len(packed) < len(content) else b""
        self.content = content  # last: somebody may look meanwhile


def _found(folder: str) -> dict[str, _File]:
    files = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            kind = _TYPES.get(os.path.splitext(name)[1])
            if kind is None or os.path.islink(path):
                continue
            asked = "/" + os.path.relpath(path, folder)
            if asked == "/index.html":
                files["/"] = _File(path, kind, "no-store")
            else:
                keeping = "public, max-age=31536000, immutable" if _HASHED.fullmatch(asked) else "no-cache"
                files[asked] = _File(path, kind, keeping)
    return files


def _takes_gzip(scope: Scope) -> bool:
    said = b",".join(value for name, value in scope["headers"] if name == b"accept-encoding").decode("latin-1")
    for part in said.split(","):
        name, _, quality = part.replace(" ", "").lower().partition(";q=")
        if name == "gzip":
            return not re.fullmatch(r"0(\.0*)?", quality)
    return False
