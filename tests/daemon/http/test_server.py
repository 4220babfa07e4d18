"""What strangers, broken clients and hostile ones send: bytes on a real socket."""

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from daemon.listening import Reply, ask, call, connect, listening, read_all
from dibs import paths
from dibs.daemon.http import server
from dibs.daemon.http.errors import JsonResponse, VersionHeader, handle_errors
from dibs.daemon.http.server import BODY, BODY_OF_JOBS, RequestLimits, UnixSocket, most_connections
from dibs.version import __version__
from stories.outside import NOBODY, PATIENCE, needs_root, wait_until

GET = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n"


def an_app() -> FastAPI:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.get("/v1/status")
    async def status() -> Response:
        return JsonResponse({"ok": True})

    @app.post("/v1/jobs")
    async def jobs(request: Request) -> Response:
        return JsonResponse({"bytes": len(await request.body())})

    @app.post("/v1/pause")
    async def pause(request: Request) -> Response:
        return JsonResponse({"bytes": len(await request.body())})

    @app.get("/v1/bug")
    async def bug() -> Response:
        raise ZeroDivisionError

    @app.get("/v1/endless")
    async def endless() -> Response:
        async def flood():
            while True:
                yield b"x" * 65536
                await asyncio.sleep(0)

        return StreamingResponse(flood())

    handle_errors(app)
    return app


@pytest.fixture
def socket_path(tmp_path: Path) -> Iterator[str]:
    with listening(VersionHeader(RequestLimits(an_app(), deadline=0.5)), tmp_path / "d" / "socket") as path:
        yield path


def rss() -> int:
    """Bytes of this process, in which the server runs."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# -- one shape ---------------------------------------------------------------------------------------------


def test_every_answer_names_the_version(socket_path):
    good, bad = call(socket_path, "GET", "/v1/status"), call(socket_path, "GET", "/nothing")

    assert (good.status, bad.status) == (200, 404)
    assert good.headers["dibs-version"] == bad.headers["dibs-version"] == __version__


@pytest.mark.parametrize(
    ("method", "target", "status", "code"),
    [
        ("GET", "/nothing", 404, "not-found"),
        ("DELETE", "/v1/status", 405, "wrong-method"),
        ("GET", "/v1/../../etc/passwd", 404, "not-found"),
        ("GET", "/v1/%2e%2e/%2e%2e/etc/passwd", 404, "not-found"),
        ("GET", "/v1/status%00", 404, "not-found"),
        ("GET", "/v1/status/", 404, "not-found"),
        ("POST", "/v1/pause/", 404, "not-found"),
        ("GET", "/v1/bug", 500, "bug"),
    ],
)
def test_whatever_goes_wrong_the_error_has_one_shape(socket_path, method, target, status, code):
    reply = call(socket_path, method, target)

    assert (reply.status, reply.code) == (status, code)
    assert reply.headers["content-type"] == "application/json"


def test_a_bug_in_one_call_leaves_the_next_one_alone(socket_path):
    first = call(socket_path, "GET", "/v1/bug")

    second = call(socket_path, "GET", "/v1/status")

    assert (first.status, second.status) == (500, 200)


# -- the host ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "dibs", "LOCALHOST"])
def test_our_own_names_are_answered(socket_path, host):
    assert call(socket_path, "GET", "/v1/status", host=host).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1", "localhost:80", "[::1]", "", "0.0.0.0"]
)
def test_another_host_is_sent_away_before_any_route(socket_path, host):
    reply = call(socket_path, "GET", "/v1/status", host=host)

    assert (reply.status, reply.code) == (421, "wrong-host")


def test_two_hosts_are_none(socket_path):
    reply = ask(socket_path, GET + b"Host: localhost\r\n\r\n")

    assert reply.status in (400, 421)
    assert reply.code


# -- requests that readers understand in different ways ----------------------------------------------------

POST = b"POST /v1/pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="CL+TE"),
        pytest.param(POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", id="two lengths"),
        pytest.param(POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", id="one length twice"),
        pytest.param(POST + b"Content-Length: -2\r\n\r\n{}", id="a negative length"),
        pytest.param(POST + b"Content-Length: +2\r\n\r\n{}", id="a signed length"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", id="chunk junk"),
        pytest.param(POST + b"Transfer-Encoding: gzip\r\n\r\n{}", id="another encoding"),
        pytest.param(GET + b"X-Long: a\r\n b\r\n\r\n", id="obs-fold"),
        pytest.param(GET.replace(b"\r\n", b"\n") + b"\n", id="LF only"),
        pytest.param(GET + b"X: 1\nY: 2\r\n\r\n", id="one LF"),
        pytest.param(b"GET http://localhost/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n", id="absolute"),
        pytest.param(b"GET /v1/status\r\n\r\n", id="HTTP/0.9"),
        pytest.param(b"GET /v1/status HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(b"GET /v1/status HTTP/1.1\r\nHost : localhost\r\n\r\n", id="a blank before the colon"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", id="TLS"),
        pytest.param(b"\0\0\0\0\r\n\r\n", id="NULs"),
        pytest.param(b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", id="a star"),
        pytest.param(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", id="CONNECT"),
    ],
)
def test_an_odd_request_is_refused_and_the_connection_closed(socket_path, request_bytes):
    reply = ask(socket_path, request_bytes)

    assert (reply.status, reply.code) == (400, "bad-input")
    assert call(socket_path, "GET", "/v1/status").status == 200


def test_a_second_request_behind_the_first_is_looked_at_as_well(socket_path):
    with connect(socket_path) as connection:
        connection.sendall(GET + b"\r\n" + GET.replace(b"\r\n", b"\n") + b"\n")
        answers = read_all(connection)

    assert answers.count(b"HTTP/1.1 200") == 1
    assert answers.count(b"HTTP/1.1 400") == 1


# -- too large ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(GET + b"X: " + b"a" * 17_000 + b"\r\n\r\n", id="a header"),
        pytest.param(GET + b"".join(b"X%d: 1\r\n" % n for n in range(3000)) + b"\r\n", id="many headers"),
        pytest.param(b"GET /" + b"a" * 17_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", id="an address"),
        pytest.param(GET + b"X: " + b"a" * 300_000, id="a header without an end"),
    ],
)
def test_a_head_that_is_too_large_is_refused(socket_path, request_bytes):
    reply = ask(socket_path, request_bytes)

    assert (reply.status, reply.code) == (431, "headers-too-large")


@pytest.mark.parametrize(("target", "most"), [("/v1/pause", BODY), ("/v1/jobs", BODY_OF_JOBS)])
def test_a_body_may_be_so_large_and_no_larger(socket_path, target, most):
    fits = call(socket_path, "POST", target, b"x" * most)
    too_large = call(socket_path, "POST", target, b"x" * (most + 1))

    assert (fits.status, fits.json) == (200, {"bytes": most})
    assert (too_large.status, too_large.code) == (413, "too-large")


def test_a_body_in_chunks_without_end_is_cut_and_costs_no_memory(socket_path):
    before = rss()
    with connect(socket_path) as connection:
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        sent = 0
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        try:
            while sent < 200 * 1024**2:
                connection.sendall(chunk)
                sent += len(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass
        reply = Reply(read_all(connection))

    assert (reply.status, reply.code) == (413, "too-large")
    assert sent < 16 * 1024**2
    assert rss() - before < 32 * 1024**2


def test_a_body_that_is_announced_too_large_is_refused_before_it_is_sent(socket_path):
    with connect(socket_path) as connection:
        connection.sendall(POST + b"Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n")

        reply = Reply(read_all(connection))

    assert (reply.status, reply.code) == (413, "too-large")


# -- too slow ----------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(server, "_HEADER_DEADLINE", 0.3)


@pytest.mark.usefixtures("impatient")
def test_a_head_that_trickles_in_is_not_waited_for(socket_path):
    with connect(socket_path) as connection:
        began = time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for byte in GET * 100:
                connection.send(bytes([byte]))
                time.sleep(0.01)
        took = time.monotonic() - began
        reply = Reply(read_all(connection))

    assert (reply.status, reply.code) == (408, "too-slow")
    assert took < 30


def test_a_body_that_trickles_in_is_not_waited_for(socket_path):
    with connect(socket_path) as connection:
        connection.sendall(POST + b"Content-Length: 10000\r\n\r\n")
        began = time.monotonic()
        try:
            for _ in range(3000):
                connection.send(b"x")
                time.sleep(0.01)
        except (BrokenPipeError, ConnectionResetError):
            pass
        reply = Reply(read_all(connection))

    assert (reply.status, reply.code) == (408, "too-slow")
    assert time.monotonic() - began < 20


@pytest.mark.usefixtures("impatient")
def test_a_connection_that_says_nothing_is_closed(socket_path):
    with connect(socket_path) as connection:
        assert read_all(connection) == b""


def test_a_reader_who_does_not_read_is_dropped(socket_path, monkeypatch):
    monkeypatch.setattr(server, "_STALL", 0.3)
    before = rss()
    with connect(socket_path) as connection:
        connection.sendall(b"GET /v1/endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
        poll = wait_until(lambda: _is_dropped(connection))

    assert poll
    assert rss() - before < 32 * 1024**2
    assert call(socket_path, "GET", "/v1/status").status == 200


def _is_dropped(connection: socket.socket) -> bool:
    """Whether the other side has closed, without reading anything of what it sent."""
    try:
        connection.send(b"x")
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


def test_a_thousand_idle_connections_delay_no_request(tmp_path):
    own = os.path.join(tmp_path, "d", "socket")
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path\n"
        "from daemon.http.test_server import an_app\n"
        "from daemon.listening import listening\n"
        "from dibs.daemon.http.errors import VersionHeader\n"
        "from dibs.daemon.http.server import RequestLimits\n"
        "with listening(VersionHeader(RequestLimits(an_app())), Path(sys.argv[1])):\n"
        "    print('up', flush=True); sys.stdin.read()\n"
    )
    tests = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", code, own, tests], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout
    idle = []
    try:
        assert process.stdout.readline() == "up\n"
        slowest = 0.0
        for number in range(1000):
            idle.append(connect(own))
            if number % 100 == 99:
                began = time.monotonic()
                reply = call(own, "GET", "/v1/status")
                slowest = max(slowest, time.monotonic() - began)
                assert reply.status == 200
        open_files = len(os.listdir(f"/proc/{process.pid}/fd"))
    finally:
        for connection in idle:
            connection.close()
        process.stdin.close()
        process.wait(PATIENCE)
        process.stdout.close()

    assert slowest < 10
    assert open_files < most_connections() + 50


def test_where_descriptors_are_few_connections_are_fewer(monkeypatch):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 256))
    assert most_connections() == 96


def test_when_all_connections_are_busy_one_more_is_refused(tmp_path, monkeypatch):
    with listening(VersionHeader(RequestLimits(an_app())), tmp_path / "d" / "socket") as path:
        monkeypatch.setattr(server, "most_connections", lambda: 2)
        busy = [connect(path) for _ in range(2)]
        for connection in busy:
            connection.sendall(b"GET /v1/endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.recv(10)

        with connect(path) as late:
            reply = Reply(read_all(late))

        for connection in busy:
            connection.close()
    assert (reply.status, reply.code) == (503, "too-busy")


def test_two_calls_may_share_a_connection(socket_path):
    with connect(socket_path) as connection:
        connection.sendall(GET + b"\r\n")
        first = b""
        while not first.endswith(b"}"):
            first += connection.recv(65536)
        connection.sendall(GET + b"Connection: close\r\n\r\n")
        second = read_all(connection)

    assert first.startswith(b"HTTP/1.1 200")
    assert second.startswith(b"HTTP/1.1 200")


# -- who is there ------------------------------------------------------------------------------------------


@needs_root
def test_another_user_is_turned_away_even_where_the_socket_is_open(socket_path):
    os.chmod(socket_path, 0o777)
    for folder in (Path(socket_path).parent, *Path(socket_path).parent.parents):
        if folder != Path("/"):
            os.chmod(folder, os.stat(folder).st_mode | 0o055)
    code = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        "s.sendall(b'GET /v1/status HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\n"
        "answer = b''\n"
        "while piece := s.recv(65536): answer += piece\n"
        "sys.stdout.buffer.write(answer)\n"
    )

    done = subprocess.run(
        ["/usr/bin/python3", "-c", code, socket_path],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        check=True,
    )

    reply = Reply(done.stdout)
    assert (reply.status, reply.code) == (403, "not-allowed")


# -- the socket's place ------------------------------------------------------------------------------------


def test_the_socket_is_ours_alone_however_long_its_path_is(tmp_path):
    place = tmp_path / ("a long folder with a 'name' é " * 6) / "socket"
    with listening(VersionHeader(RequestLimits(an_app())), place) as path:
        reply = call(path, "GET", "/v1/status")
        modes = stat.S_IMODE(os.stat(place.parent).st_mode), stat.S_IMODE(os.stat(place).st_mode)

    assert reply.status == 200
    assert modes == (0o700, 0o600)
    assert not place.exists()


def test_a_folder_that_others_may_look_into_is_refused_and_left_as_it_is(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)

    with pytest.raises(paths.FolderRefused, match="cannot listen"):
        UnixSocket(str(folder / "socket"))

    assert stat.S_IMODE(folder.stat().st_mode) == 0o777


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_socket_is_not_removed(tmp_path, kind):
    folder = tmp_path / "d"
    folder.mkdir(mode=0o700)
    victim = tmp_path / "victim"
    victim.write_text("dear")
    place = folder / "socket"
    {"file": place.touch, "folder": place.mkdir, "link": lambda: place.symlink_to(victim)}[kind]()
    address = UnixSocket(str(place))

    with pytest.raises(paths.FolderRefused, match="in the way"):
        address.bind()

    address.remove()
    assert place.is_symlink() or place.exists()
    assert victim.read_text() == "dear"


def test_a_socket_without_a_listener_is_replaced(tmp_path):
    folder = tmp_path / "d"
    folder.mkdir(mode=0o700)
    old = socket.socket(socket.AF_UNIX)
    old.bind(str(folder / "socket"))
    old.close()

    with listening(VersionHeader(RequestLimits(an_app())), folder / "socket") as path:
        reply = call(path, "GET", "/v1/status")

    assert reply.status == 200


@pytest.mark.parametrize("what", ["socket", "folder", "replaced"])
def test_a_socket_that_is_gone_is_noticed_and_made_again(tmp_path, what):
    folder = tmp_path / "d"
    address = UnixSocket(str(folder / "socket"))
    first = address.bind()
    assert address.is_there
    (folder / "socket").unlink()
    if what == "folder":
        folder.rmdir()
    elif what == "replaced":
        (folder / "socket").touch()

    assert not address.is_there
    if what == "replaced":
        with pytest.raises(paths.FolderRefused, match="in the way"):
            address.bind_again()
    else:
        second = address.bind_again()
        assert address.is_there
        connect(folder / "socket").close()
        second.close()
    first.close()
    address.remove()


def test_a_socket_with_a_listener_is_not_taken_over(socket_path):
    address = UnixSocket(socket_path)

    with pytest.raises(paths.FolderRefused, match="another state folder"):
        address.bind()

    address.remove()
    assert call(socket_path, "GET", "/v1/status").status == 200


def test_the_server_ends_at_once_in_spite_of_an_unfinished_request(tmp_path):
    began = 0.0
    with listening(VersionHeader(RequestLimits(an_app())), tmp_path / "d" / "socket") as path:
        half = connect(path)
        half.sendall(GET)
        idle = connect(path)
        wait_until(lambda: threading.active_count() > 1)
        began = time.monotonic()
    took = time.monotonic() - began

    half.close()
    idle.close()
    assert took < 30


def test_json_survives_text_that_is_no_utf8():
    assert json.loads(JsonResponse({"path": "a\udcff"}).body) == {"path": "a\udcff"}
