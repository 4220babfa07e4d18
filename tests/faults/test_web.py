"""What hostile pages, neighbours and broken clients send to the page's listener (part H of the faults).

A page in the browser of the owner can send what it likes, and read no answer; another user of the machine can
connect, and has no token. Neither reaches a route.
"""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.daemon_process import DaemonProcess
from daemon.http.test_server import an_app, rss
from daemon.listening import Reply, call, read_all
from daemon.web_client import WebClient, open_page, serving_page
from dibs.daemon.http import server as http_server
from dibs.daemon.web import guard
from dibs.daemon.web import listener as web_listener
from dibs.daemon.web.tokens import Permission, TokenStore
from stories.outside import World, wait_until

pytestmark = pytest.mark.usefixtures("one_listener_at_a_time")


class Counted:
    """An app that counts the requests that reach it."""

    def __init__(self) -> None:
        self.calls = 0
        self._app = an_app()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls += 1
        await self._app(scope, receive, send)


@pytest.fixture(scope="module")
def app() -> Counted:
    return Counted()


@pytest.fixture(scope="module")
def page_server(app: Counted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WebClient, TokenStore]]:
    root = tmp_path_factory.mktemp("page")
    page = root / "page"
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text("<!doctype html>")
    (page / "assets" / "index-12345678.js").write_text("1")
    with serving_page(app, root / "keys", page=page) as found:
        yield found


@pytest.fixture
def daemon(world: World) -> Iterator[DaemonProcess]:
    """A daemon that runs."""
    one = DaemonProcess(world)
    one.start()
    yield one
    one.end()


@pytest.fixture
def web_client(page_server: tuple[WebClient, TokenStore], app: Counted) -> WebClient:
    """Has the right token: whatever is refused is refused for another reason."""
    app.calls = 0
    return page_server[0]


def test_a_request_with_a_token_reaches_the_app(web_client, app):
    assert web_client.get("/v1/status").json == {"ok": True}
    assert web_client.call("POST", "/v1/pause", {}).status == 200
    assert app.calls == 2


# -- 81, 83: other pages -----------------------------------------------------------------------------------

EVIL = [
    "http://evil.example",
    "https://evil.example",
    "null",
    "http://localhost.evil.example",
    "http://127.0.0.1",
    "http://127.0.0.1:1",
    "http://localhost",
    "file://",
    "ftp://SELF",
    "chrome-extension://SELF",
    "http://SELF/",
    "http://user@SELF",
    "chrome-extension://abcdefgh",
    "",
    "127.0.0.1",
]


@pytest.mark.parametrize("origin", EVIL)
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{}"),
        ("text/plain", b"{}"),
        ("application/x-www-form-urlencoded", b"%7B%7D="),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="{}"\r\n\r\n\r\n--x--'),
    ],
)
def test_another_page_can_change_nothing(web_client, app, origin, kind, body):
    origin = origin.replace("SELF", web_client.name)
    for target in ("/v1/pause", "/v1/web/session"):
        reply = web_client.call("POST", target, body, Origin=origin, Content_Type=kind)
        assert (reply.status, reply.code) == (403, "not-allowed")

    assert app.calls == 0


@pytest.mark.parametrize("origin", EVIL)
@pytest.mark.parametrize("more", [{}, {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "x"}])
def test_another_page_can_listen_to_nothing(web_client, app, origin, more):
    origin = origin.replace("SELF", web_client.name)
    reply = web_client.ask(web_client.head("GET", "/v1/events", Origin=origin, **more) + b"\r\n")

    assert (reply.status, reply.code) == (403, "not-allowed")
    assert not [name for name in reply.headers if name.startswith("access-control")]
    assert app.calls == 0


def test_a_preflight_is_answered_with_no_permission(web_client, app):
    reply = web_client.call(
        *("OPTIONS", "/v1/pause"),
        Origin="http://evil.example",
        Access_Control_Request_Method="POST",
        Access_Control_Request_Headers="authorization",
        Authorization=None,
    )

    assert reply.status == 403
    assert not [name for name in reply.headers if name.startswith("access-control")]
    assert app.calls == 0


@pytest.mark.parametrize("site", ["cross-site", "same-site", "strange", ""])
@pytest.mark.parametrize("mode", ["cors", "no-cors", "navigate"])
def test_what_the_browser_calls_foreign_is_refused(web_client, app, site, mode):
    """Another port of localhost is the same site to a browser, and another page all the same."""
    told = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": mode, "Sec_Fetch_Dest": "document"}

    for method, target, body in [("GET", "/v1/status", None), ("POST", "/v1/pause", {}), ("POST", "/", {})]:
        assert web_client.call(method, target, body, **told).status == 403

    assert app.calls == 0


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_our_own_page_is_let_in(web_client, site):
    origin = f"http://{web_client.name}"

    assert web_client.get("/v1/status", Origin=origin, Sec_Fetch_Site=site).status == 200
    assert web_client.call("POST", "/v1/pause", {}, Origin=origin.upper(), Sec_Fetch_Site=site).status == 200


def test_a_link_to_the_page_can_be_followed_and_not_framed(web_client):
    told = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Authorization": None}

    assert web_client.get("/", Sec_Fetch_Dest="document", **told).status == 200
    assert web_client.get("/", Sec_Fetch_Dest="iframe", **told).status == 403
    assert (
        web_client.get("/assets/index-12345678.js", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status
        == 403
    )


def test_two_origins_are_one_too_many(web_client, app):
    head = web_client.head("POST", "/v1/pause", Origin=f"http://{web_client.name}", Content_Length="0")

    reply = web_client.ask(head + f"Origin: http://{web_client.name}\r\n\r\n".encode())

    assert reply.status == 403
    assert app.calls == 0


# -- 82: other names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8265", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:65535"]
)
def test_our_own_names_are_answered_at_any_port(web_client, host):
    assert web_client.get("/v1/status", Host=host).status == 200
    assert web_client.get("/v1/status", Host=host, Origin=f"http://{host}").status == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8265", "localhost.evil.example", "127.0.0.1.nip.io", "evil.localhost"),
        *(
            "localhost.",
            "127.0.0.1.",
            "localhost:",
            "localhost:x",
            "localhost:123456",
            "localhost:-1",
            "localhost :1",
        ),
        *(
            "127.0.0.2",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "0.0.0.0",
            "0",
            "::1",
            "[::]",
            "[::ffff:127.0.0.1]",
        ),
        *(
            "user@localhost",
            "localhost@evil.example",
            "localhost/evil",
            "localhost#",
            "localhost?x",
            "localhost\\evil",
        ),
        *(
            "localhost,evil.example",
            "xn--localhost",
            "LOCALHOſT".encode().decode("latin-1"),
            "dibs",
            "",
            "[",
            "[]",
        ),
    ],
)
def test_another_name_is_sent_away_before_any_route(web_client, app, host):
    for target in ("/v1/status", "/", "/nothing"):
        reply = web_client.get(target, Host=host)
        assert (reply.status, reply.code) in [(421, "wrong-host"), (400, "bad-input")]

    assert app.calls == 0


@pytest.mark.parametrize(
    "hosts", [[], ["localhost", "localhost"], ["localhost", "evil.example"], ["evil.example", "localhost"]]
)
def test_no_name_and_two_names_are_refused(web_client, app, hosts):
    head = web_client.head("GET", "/v1/status", Host=None)

    reply = web_client.ask(head + "".join(f"Host: {host}\r\n" for host in hosts).encode() + b"\r\n")

    assert reply.status in (400, 421)
    assert reply.code
    assert app.calls == 0


# -- 84, 85: requests that readers understand in different ways, and large ones ----------------------------

HEAD = "Content-Type: application/json\r\n"


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="CL+TE"),
        pytest.param(b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", id="two lengths"),
        pytest.param(b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", id="one length twice"),
        pytest.param(b"Content-Length: +2\r\n\r\n{}", id="a signed length"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", id="chunk junk"),
        pytest.param(b"Transfer-Encoding: gzip\r\n\r\n{}", id="another encoding"),
        pytest.param(b"X-Long: a\r\n b\r\n\r\n", id="obs-fold"),
        pytest.param(b"X: 1\nY: 2\r\n\r\n", id="one LF"),
        pytest.param(b"Authorization : Bearer x\r\n\r\n", id="a blank before the colon"),
        pytest.param(b"X: \0\r\n\r\n", id="NUL"),
    ],
)
def test_an_odd_request_is_refused_and_the_connection_closed(web_client, app, rest):
    app.calls = 0

    reply = web_client.ask(web_client.head("POST", "/v1/pause") + rest)

    assert (reply.status, reply.code) == (400, "bad-input")
    assert is_dressed(reply)
    assert web_client.get("/v1/status").status == 200


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET http://localhost/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/status\r\n\r\n",
        b"GET /v1/status HTTP/1.1\nHost: localhost\n\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(web_client, app, request_bytes):
    reply = web_client.ask(request_bytes)

    assert (reply.status, reply.code) == (400, "bad-input")
    assert app.calls == 0


def test_a_request_hidden_behind_one_without_a_token_is_not_carried_out(web_client, app):
    """The body of a refused request is never taken for the next request."""
    hidden = web_client.head("POST", "/v1/pause", Content_Length="2") + b"\r\n{}"
    head = web_client.head("POST", "/v1/pause", Authorization=None, Content_Length=str(len(hidden)))

    answers = web_client.ask(head + b"\r\n" + hidden).raw

    assert answers.count(b"HTTP/1.1") == 1
    assert answers.startswith(b"HTTP/1.1 401")
    assert app.calls == 0


@pytest.mark.parametrize(
    "more", [b"X: " + b"a" * 17_000, b"Authorization: Bearer " + b"a" * 17_000, b"X: " + b"a" * 300_000]
)
def test_a_head_that_is_too_large_is_refused(web_client, more):
    reply = web_client.ask(web_client.head("GET", "/v1/status") + more + b"\r\n\r\n")

    assert (reply.status, reply.code) == (431, "headers-too-large")
    assert is_dressed(reply)


def test_a_body_without_end_is_cut_and_costs_no_memory(web_client):
    before = rss()
    with web_client.connect() as connection:
        connection.sendall(web_client.head("POST", "/v1/pause", Transfer_Encoding="chunked") + b"\r\n")
        chunk, sent = b"10000\r\n" + b"x" * 65536 + b"\r\n", 0
        try:
            while sent < 200 * 1024**2:
                connection.sendall(chunk)
                sent += len(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass
        reply = Reply(read_all(connection))

    assert reply.raw == b"" or (reply.status, reply.code) == (413, "too-large")
    assert sent < 16 * 1024**2
    assert rss() - before < 32 * 1024**2


def test_a_bomb_in_a_body_is_not_unpacked(web_client):
    import gzip

    bomb = gzip.compress(bytes(10 * 1024**2))
    for target in ("/v1/pause", "/v1/web/session"):
        reply = web_client.call("POST", target, bomb, Content_Encoding="gzip")
        assert reply.status in (200, 400)  # taken as the bytes that it is
        assert reply.status == 400 or reply.json["bytes"] == len(bomb)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/plain", b'{"code": "x"}'),
        ("application/x-www-form-urlencoded", b"code=x"),
        ("application/json", b""),
        ("application/json", b"[]"),
        ("application/json", b'{"code": 1}'),
        ("application/json", b'{"code": "x", "code": "x"}'),
        ("application/json", b'{"code": "x", "more": 1}'),
        ("application/json", b'{"code": NaN}'),
        ("application/json", b'{"code": "\xff"}'),
        ("application/json", b"[" * 3000),
        ("application/json", b'{"code": "' + b"x" * 5000 + b'"}'),
    ],
)
def test_what_is_no_code_is_refused(web_client, kind, body):
    reply = web_client.call("POST", "/v1/web/session", body, Content_Type=kind, Authorization=None)

    assert (reply.status, reply.code) == (400, "bad-input")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_a_session_is_asked_for_in_one_way(web_client, method):
    assert web_client.call(method, "/v1/web/session", Authorization=None).status == 405


# -- 86: slow ones, and many -------------------------------------------------------------------------------


def test_a_head_that_trickles_in_is_not_waited_for(web_client, monkeypatch):
    monkeypatch.setattr(http_server, "_HEADER_DEADLINE", 0.3)
    with web_client.connect() as connection:
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for byte in web_client.head("GET", "/v1/status") * 100:
                connection.send(bytes([byte]))
                time.sleep(0.01)
        reply = Reply(read_all(connection))

    assert not reply.raw or (reply.status, reply.code) == (408, "too-slow")


def test_a_connection_that_says_nothing_is_closed(web_client, monkeypatch):
    monkeypatch.setattr(http_server, "_HEADER_DEADLINE", 0.3)
    with web_client.connect() as connection:
        assert read_all(connection) == b""


def test_a_body_that_does_not_come_is_not_waited_for(web_client):
    head = web_client.head("POST", "/v1/pause", Content_Length="100", Content_Type="application/json")

    reply = web_client.ask(head + b"\r\n{")

    assert (reply.status, reply.code) == (408, "too-slow")


def test_a_code_that_does_not_come_is_waited_for_even_less(app, tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "_CODE_WITHIN", 0.3)
    with serving_page(app, tmp_path, deadline=600.0) as (web_client, _):
        head = web_client.head("POST", "/v1/web/session", Content_Length="100", Content_Type="application/json")
        reply = web_client.ask(head + b"\r\n{")

    assert (reply.status, reply.code) == (408, "too-slow")


def test_those_without_a_token_give_way_to_one_who_comes_later(app, tmp_path, monkeypatch):
    monkeypatch.setattr(web_listener, "_MOST_CONNECTIONS", 8)
    with serving_page(app, tmp_path) as (web_client, _), web_client.connect() as page:
        page.sendall(web_client.head("GET", "/v1/endless") + b"\r\n")
        assert page.recv(100).startswith(b"HTTP/1.1 200")
        # Each is in the middle of a request, and would be for five seconds.
        busy = [web_client.connect() for _ in range(60)]
        for one in busy:
            head = web_client.head("POST", "/v1/web/session", Content_Length="9", Content_Type="application/json")
            one.sendall(head + b"\r\n{")

        assert web_client.get("/v1/status").status == 200

        got = 0
        while got < 32 * 1024**2:  # more than was on its way when the others came
            piece = page.recv(65536)
            assert piece, "the page was put out"
            got += len(piece)
        for one in busy:
            one.close()


def test_a_thousand_idle_connections_keep_the_command_line_from_nothing(daemon: DaemonProcess):
    web_client = open_page(daemon)
    assert daemon.running is not None
    before = len(os.listdir(f"/proc/{daemon.running.pid}/fd"))
    idle = []
    try:
        for number in range(1000):
            connection = web_client.connect()
            idle.append(connection)
            if number % 4 == 0:
                connection.sendall(b"GET /v1/status HTTP/1.1\r\n")  # a head without an end
            if number % 100 == 99:
                assert call(daemon.socket, "GET", "/v1/status").status == 200
                assert web_client.get("/v1/status").status == 200
        files = len(os.listdir(f"/proc/{daemon.running.pid}/fd"))
    finally:
        for connection in idle:
            connection.close()

    assert files - before < 128 + 64 + 20
    assert daemon.get("/v1/status")
    assert "Traceback" not in daemon.log


def test_where_there_are_no_descriptors_left_the_listener_waits_and_comes_back(daemon: DaemonProcess):
    import resource

    web_client = open_page(daemon)
    assert daemon.running is not None
    pid = daemon.running.pid
    _, hard = before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")) + 4, hard))
    crowd = [web_client.connect() for _ in range(30)]
    try:
        used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        time.sleep(0.5)
        later = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    finally:
        for connection in crowd:
            connection.close()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

    busy = int(later[11]) + int(later[12]) - int(used[11]) - int(used[12])
    assert busy < 30  # hundredths of a second; it does not spin
    wait_until(lambda: web_client.get("/v1/status").status == 200)
    assert daemon.get("/v1/status")


# -- 87: streams -------------------------------------------------------------------------------------------


def test_streams_are_bounded_and_the_socket_has_its_own(daemon: DaemonProcess):
    web_client = open_page(daemon)
    readers, refused = [], 0
    for _ in range(80):
        connection = web_client.connect()
        connection.sendall(web_client.head("GET", "/v1/events") + b"\r\n")
        status = int(connection.recv(12).split()[1])
        refused += status == 503
        readers.append(connection)

    assert refused == 80 - 64
    assert daemon.get("/v1/status")
    for connection in readers:
        connection.close()


# -- 89: where the token must not be -----------------------------------------------------------------------


def test_the_token_is_in_its_file_and_nowhere_else(daemon: DaemonProcess):
    full, reading = open_page(daemon), open_page(daemon, read_only=True)
    tokens = [full.token.encode(), reading.token.encode()]
    job = daemon.add("echo $0; env; sleep 60")
    for web_client in (full, reading):
        for target in ("/v1/status", f"/v1/jobs/{job}", "/v1/nothing", "/v1/jobs?limit=x", "/metrics", "/"):
            reply = web_client.get(target)
            assert not [token for token in tokens if token in reply.raw]
        web_client.call("POST", "/v1/jobs/act", {"action": "hold", "ids": [99]})
        web_client.ask(web_client.head("GET", "/v1/status", Host="evil.example") + b"\r\n")
        web_client.ask(web_client.head("GET", "/v1/status") + b"X: 1\nbroken\r\n\r\n")
        web_client.get("/v1/status", Authorization=f"Bearer {web_client.token}x")
    assert full.token not in daemon.post("/v1/web", {}).values()
    wait_until(lambda: daemon.state(job) == "running")
    lines = b"".join(_read(Path(f"/proc/{name}/cmdline")) for name in os.listdir("/proc") if name.isdigit())
    listed = subprocess.run(["ps", "axeww"], capture_output=True, check=True).stdout
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [job]})
    daemon.wait(job)
    daemon.end()

    files = [path for path in daemon.world.folder.parent.rglob("*") if path.is_file() and path.name != "web-token"]
    assert len(files) > 5
    for place, content in [("ps", listed), ("cmdline", lines), *((path, path.read_bytes()) for path in files)]:
        assert not [token for token in tokens if token in content], place
    assert tokens[0] in _read(daemon.queue / "web-token")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


# -- 90: guessing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        *(None, "", "Bearer", "Bearer ", "Bearer x", "Basic eDp4", "Bearer " + "0" * 64, "Bearer " + "a" * 10_000),
        *(
            "TOKEN",
            "bearer",
            "Token TOKEN",
            "Bearer TOKENx",
            "Bearer TOKE",
            "Bearer TOKEN TOKEN",
            "Bearer\tTOKEN",
            "BearerTOKEN",
        ),
    ],
)
def test_whatever_is_not_the_token_is_none(web_client, app, said):
    said = said and said.replace("TOKEN", web_client.token)

    reply = web_client.ask(web_client.head("GET", "/v1/status", Authorization=said) + b"\r\n")

    assert (reply.status, reply.code) == (401, "not-signed-in")
    assert reply.headers["connection"] == "close"  # the next guess costs a new one
    assert app.calls == 0


def test_two_tokens_are_none(web_client, app):
    head = web_client.head("GET", "/v1/status")

    for second in (web_client.token, "x"):
        assert web_client.ask(head + f"Authorization: Bearer {second}\r\n\r\n".encode()).status == 401

    assert app.calls == 0


@pytest.mark.parametrize(
    "target", ["/v1/status?token=TOKEN", "/v1/status?access_token=TOKEN", "/v1/status#TOKEN", "/v1/TOKEN"]
)
def test_a_token_in_an_address_is_not_looked_for(web_client, app, target):
    reply = web_client.ask(
        web_client.head(
            "GET",
            target.replace("TOKEN", web_client.token),
            Authorization=None,
            Cookie=f"token={web_client.token}",
        )
        + b"Connection: close\r\n\r\n"
    )

    assert reply.status in (400, 401)
    assert app.calls == 0


def test_a_wrong_guess_takes_its_time_and_delays_no_other_client(app, tmp_path):
    with serving_page(app, tmp_path, hold=60.0) as (web_client, keys):
        code = keys.new_code(Permission.ALL).text
        guesses = [web_client.connect() for _ in range(3)]
        for guess in guesses[:2]:
            guess.sendall(web_client.head("GET", "/v1/status", Authorization="Bearer wrong") + b"\r\n")
        body = b'{"code": "wrong"}'
        head = web_client.head(
            "POST", "/v1/web/session", Content_Type="application/json", Content_Length=str(len(body))
        )
        guesses[2].sendall(head + b"\r\n" + body)

        assert web_client.get("/v1/status").status == 200
        assert web_client.get("/v1/status", Authorization=None).status == 401
        assert web_client.sign_in(code).status == 200

        for guess in guesses:
            guess.settimeout(0.2)
            with pytest.raises(TimeoutError):
                guess.recv(1)
            guess.close()


def test_ten_wrong_codes_void_the_right_one(page_server, web_client):
    _, keys = page_server
    code = keys.new_code(Permission.ALL).text

    replies = [web_client.call("POST", "/v1/web/session", {"code": f"wrong {number}"}) for number in range(10)]

    assert {(reply.status, reply.code) for reply in replies} == {(401, "wrong-code")}
    assert web_client.call("POST", "/v1/web/session", {"code": code}).status == 401


# -- 91, 93: paths and headers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/v1/../v1/status",
            "/v1/%2e%2e/etc/passwd",
            "/../v1/status",
            "/v1//status",
            "/v1/status%00",
            "/v1/jobs/..%2f..%2fx",
        ),
        *(
            "/%2fetc/passwd",
            "/V1/status",
            "/v1%2fstatus/x",
            "/assets/..%2f..%2fweb-token",
            "/..%2fkeys%2fweb-token",
        ),
    ],
)
def test_no_path_leads_out(web_client, path):
    reply = web_client.get(path)

    assert (reply.status, reply.code) == (404, "not-found")
    assert web_client.token not in reply.body.decode()


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/"),
        ("GET", "/v1/status"),
        ("GET", "/nothing"),
        ("POST", "/"),
        ("GET", "/v1/bug"),
        ("GET", "/v1/web"),
    ],
)
def test_every_answer_tells_browsers_what_not_to_do(web_client, method, target):
    told = [web_client.call(method, target), web_client.call(method, target, Host="evil.example")]
    told += [web_client.call(method, target, Authorization=None), web_client.call(method, target, Origin="null")]

    for reply in told:
        assert is_dressed(reply), reply
        assert reply.headers["cache-control"] == "no-store"
        assert "set-cookie" not in reply.headers
        assert "access-control-allow-origin" not in reply.headers


def is_dressed(reply: Reply) -> bool:
    told = reply.headers
    policy = dict(part.strip().split(" ", 1) for part in told["content-security-policy"].split(";"))
    return policy == {
        **dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'"),
        **dict.fromkeys(("script-src", "style-src", "connect-src", "font-src"), "'self'"),
        "img-src": "'self' data:",
    } and (
        told["x-content-type-options"],
        told["referrer-policy"],
        told["x-frame-options"],
        told["cross-origin-opener-policy"],
        told["cross-origin-resource-policy"],
    ) == ("nosniff", "no-referrer", "DENY", "same-origin", "same-origin")


def test_one_page_open_for_long_leaves_no_connection_behind(web_client):
    """A page asks again and again on one connection."""
    with web_client.connect() as connection:
        for _ in range(3):
            connection.sendall(web_client.head("GET", "/v1/status") + b"\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection) == b""
