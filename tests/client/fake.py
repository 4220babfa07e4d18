"""A daemon that only listens: it writes down what it is asked, and answers what it was told to."""

import json
import os
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from dibs.version import __version__


@dataclass
class Asked:
    method: str
    target: str
    body: Any
    headers: dict[str, str]


@dataclass
class Answer:
    """What is sent back. `breaks`: the connection ends instead, after so many bytes of it."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    breaks: int | None = None
    chunked: bool = False

    @property
    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass
class FakeDaemon:
    """Answers come from `answer`, which gets what was asked; None means the ordinary answer of that route."""

    path: str
    answer: Callable[[Asked], Answer | None] = lambda asked: None
    asked: list[Asked] = field(default_factory=list)
    version: str = __version__
    _numbers: dict[str, tuple[int, int]] = field(default_factory=dict)
    _next: int = 1

    def reply(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        return self.answer(asked) or self.ordinary(asked)

    def ordinary(self, asked: Asked) -> Answer:
        if asked.method == "POST" and asked.target == "/v1/jobs":
            key = asked.body["key"]
            part = asked.body.get("part", {"offset": 0, "jobs": len(asked.body["jobs"])})
            is_new = key not in self._numbers
            if is_new:
                self._numbers[key] = (self._next, self._next + part["jobs"] - 1)
                self._next += part["jobs"]
            first, last = self._numbers[key]
            missing = part["jobs"] - part["offset"] - len(asked.body["jobs"])
            answer = {"first": first, "last": last, "is_new": is_new, "missing": missing}
            return Answer(answer, 202 if missing else 201 if is_new else 200)
        if asked.target == "/v1/jobs/check":
            prospect = {"gpus": [0], "starts_at": None, "reason": None}
            return Answer({"prospects": [prospect for _ in asked.body["jobs"]]})
        if asked.target == "/v1/status":
            return Answer({"version": self.version, "pid": os.getpid()})
        return Answer({"error": {"code": "not-found", "message": f"no {asked.target}", "remedy": ""}}, 404)

    @property
    def added(self) -> list[dict[str, Any]]:
        """The jobs of all calls, as they are with the defaults under them."""
        calls = [one.body for one in self.asked if one.method == "POST" and one.target == "/v1/jobs"]
        return [{**call["defaults"], **job} for call in calls for job in call["jobs"]]


@contextmanager
def listening(
    path: Path | str, answer: Callable[[Asked], Answer | None] = lambda asked: None
) -> Iterator[FakeDaemon]:
    """A fake daemon at this socket, in a folder of ours."""
    fake = FakeDaemon(str(path), answer)
    folder, name = os.path.split(fake.path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    handle = os.open(folder, os.O_PATH)  # the path may be longer than an address may be
    try:
        server = _Server(f"/proc/self/fd/{handle}/{name}", _handler(fake))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            server.server_close()
            os.unlink(path)
            thread.join()
    finally:
        os.close(handle)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that leaves is part of the tests


def _handler(fake: FakeDaemon) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.client_address = ("", 0)
            super().handle_one_request()

        def do_GET(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = fake.reply(Asked(self.command, self.path, json.loads(data) if data else None, headers))
            lines = [f"HTTP/1.1 {answer.status} x", f"Dibs-Version: {fake.version}"]
            lines += [f"{name}: {value}" for name, value in answer.headers.items()]
            body = answer.data
            if answer.chunked:
                lines.append("Transfer-Encoding: chunked")
                half = len(body) // 2
                parts = [part for part in (body[:half], body[half:]) if part]
                body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
            else:
                lines.append(f"Content-Length: {len(body)}")
            whole = "\r\n".join([*lines, "", ""]).encode() + body
            self.wfile.write(whole if answer.breaks is None else whole[: answer.breaks])
            self.close_connection = answer.breaks is not None

        do_POST = do_PATCH = do_GET

        def log_message(self, *args: Any) -> None:
            pass

    return Handler
