"""The files of the built page, by name. A path in a request is never looked up on the disk."""

import asyncio
import gzip
import os
import re
from dataclasses import field

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dibs.daemon.http.errors import JsonResponse, accepts_gzip, error_body
from dibs.dataclass import dataclass

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
_COMPRESSED = (".png", ".ico", ".woff2")
# The build puts a hash of the content into the name, so a file under such a name never changes.
_HASHED = re.compile(r"/assets/[^/]+-[\w-]{8}\.\w+")


class PageFiles:
    """An ASGI app that serves the page. Files are found when it is made, and read at the first request."""

    def __init__(self, folder: str = FOLDER) -> None:
        self._files = _find(folder)

    def __contains__(self, path: str) -> bool:
        return path in self._files or path == "/"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._response(scope)
        await response(scope, receive, send)

    async def _response(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            return JsonResponse(error_body(405), 405, {"Allow": "GET, HEAD"})
        file = self._files.get(scope["path"])
        if file is None:
            return JsonResponse(error_body(404, *_NOT_BUILT), 404)
        if not file.content:
            try:
                await asyncio.to_thread(file.load)
            except OSError:
                return JsonResponse(error_body(404, *_GONE), 404)
        headers = {"Content-Type": file.kind, "Cache-Control": file.cache_control, "Vary": "Accept-Encoding"}
        if file.packed and accepts_gzip(scope):
            return Response(file.packed, headers={**headers, "Content-Encoding": "gzip"})
        return Response(file.content, headers=headers)


_NOT_BUILT = (
    *("this dibs was installed without its page", "in a checkout: cd web && npm ci && npm run build"),
    "not-found",
)
_GONE = (
    *("this file of the page is gone: another version of dibs was installed", "`dibs daemon restart`"),
    "not-found",
)


@dataclass(slots=True)
class _File:
    path: str
    kind: str
    cache_control: str
    content: bytes = field(default=b"", repr=False)
    packed: bytes = field(default=b"", repr=False)

    def load(self) -> None:
        with open(self.path, "rb") as file:
            content = file.read()
        packed = b"" if self.path.endswith(_COMPRESSED) else gzip.compress(content, mtime=0)
        self.packed = packed if len(packed) < len(content) else b""
        self.content = content  # last, because another request may check it meanwhile


def _find(folder: str) -> dict[str, _File]:
    files = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            kind = _TYPES.get(os.path.splitext(name)[1])
            if kind is None or os.path.islink(path):
                continue
            url = "/" + os.path.relpath(path, folder)
            if url == "/index.html":
                files["/"] = _File(path, kind, "no-store")
            else:
                cache_control = "public, max-age=31536000, immutable" if _HASHED.fullmatch(url) else "no-cache"
                files[url] = _File(path, kind, cache_control)
    return files
