"""Compressed responses: JSON that is worth it, for clients that accept it, and nothing that is streamed."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterator

import pytest
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse

from daemon.listening import Reply, call, connect, listening
from dibs.daemon.http.errors import JsonCompression, JsonResponse

ROWS = {1: 10, 2: 8_000, 3: 200_000}  # bytes or more: too small, at once, in a thread


def an_app() -> FastAPI:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.get("/v1/rows/{kind}")
    async def rows(kind: int) -> Response:
        return JsonResponse({"rows": [f"row {number}" for number in range(ROWS[kind] // 8)]})

    @app.get("/v1/log")
    async def log() -> Response:
        return Response(b"a line\n" * 1000, media_type="text/plain")

    @app.get("/v1/events")
    async def events() -> Response:
        async def lines() -> AsyncIterator[bytes]:
            yield b": here\n\n"
            await asyncio.sleep(600)

        return StreamingResponse(lines(), media_type="text/event-stream")

    app.add_middleware(JsonCompression)
    return app


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("compression")
    folder.chmod(0o700)
    with listening(an_app(), folder / "socket") as one:
        yield one


def get(path: str, target: str, accepted: str = "gzip, br") -> Reply:
    return call(path, "GET", target, Accept_Encoding=accepted)


@pytest.mark.parametrize("kind", [2, 3])
def test_json_that_is_worth_it_is_compressed(path: str, kind: int):
    plain = get(path, f"/v1/rows/{kind}", "identity")

    reply = get(path, f"/v1/rows/{kind}")

    assert reply.headers["content-encoding"] == "gzip"
    assert reply.headers["vary"] == "accept-encoding"
    assert int(reply.headers["content-length"]) == len(reply.body) < len(plain.body) / 3
    assert json.loads(gzip.decompress(reply.body)) == plain.json
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize(
    ("target", "accepted"), [("/v1/rows/1", "gzip"), ("/v1/rows/2", "gzip;q=0, br"), ("/v1/log", "gzip")]
)
def test_small_answers_logs_and_clients_that_cannot_read_it_are_left_alone(path: str, target: str, accepted: str):
    reply = get(path, target, accepted)

    assert "content-encoding" not in reply.headers
    assert int(reply.headers["content-length"]) == len(reply.body)


def test_an_event_arrives_at_once(path: str):
    with connect(path) as connection:
        connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n")
        seen = b""
        while b": here\n\n" not in seen:
            seen += connection.recv(65536)

    assert b"content-encoding" not in seen
