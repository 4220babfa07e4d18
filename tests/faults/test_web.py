"""What hostile pages, neighbours and broken clients send to the door (part H of the faults we stand).

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

from daemon.house import House
from daemon.http.test_server import an_app, rss
from daemon.listening import Reply, call, said
from daemon.outdoors import Street, open_page, standing
from dibs.daemon.http import server as http_server
from dibs.daemon.web import guard
from dibs.daemon.web import listener as web_listener
from dibs.daemon.web.tokens import Permission, TokenStore
from stories.outside import World, wait_until

pytestmark = pytest.mark.usefixtures("at_the_door")


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
def door(app: Counted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Street, TokenStore]]:
    root = tmp_path_factory.mktemp("door")
    page = root / "page"
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text("<!doctype html>")
    (page / "assets" / "index-12345678.js").write_text("1")
    with standing(app, root / "keys", page=page) as found:
        yield found


@pytest.fixture
def house(world: World) -> Iterator[House]:
    """A daemon that runs."""
    one = House(world)
    one.start()
    yield one
    one.end()


@pytest.fixture
def street(door: tuple[Street, TokenStore], app: Counted) -> Street:
    """Has the right token: whatever is refused is refused for another reason."""
    app.calls = 0
    return door[0]


def test_the_door_leads_somewhere(street, app):
    assert street.get("/v1/status").json == {"ok": True}
    assert street.call("POST", "/v1/pause", {}).status == 200
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
def test_another_page_can_change_nothing(street, app, origin, kind, body):
    origin = origin.replace("SELF", street.name)
    for target in ("/v1/pause", "/v1/web/session"):
        reply = street.call("POST", target, body, Origin=origin, Content_Type=kind)
        assert (reply.status, reply.code) == (403, "not-allowed")

    assert app.calls == 0


@pytest.mark.parametrize("origin", EVIL)
@pytest.mark.parametrize("more", [{}, {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "x"}])
def test_another_page_can_listen_to_nothing(street, app, origin, more):
    origin = origin.replace("SELF", street.name)
    reply = street.ask(street.head("GET", "/v1/events", Origin=origin, **more) + b"\r\n")

    assert (reply.status, reply.code) == (403, "not-allowed")
    assert not [name for name in reply.headers if name.startswith("access-control")]
    assert app.calls == 0


def test_a_preflight_is_answered_with_no_permission(street, app):
    reply = street.call(
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
def test_what_the_browser_calls_foreign_is_refused(street, app, site, mode):
    """Another port of localhost is the same site to a browser, and another page all the same."""
    told = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": mode, "Sec_Fetch_Dest": "document"}

    for method, target, body in [("GET", "/v1/status", None), ("POST", "/v1/pause", {}), ("POST", "/", {})]:
        assert street.call(method, target, body, **told).status == 403

    assert app.calls == 0


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_our_own_page_is_let_in(street, site):
    origin = f"http://{street.name}"

    assert street.get("/v1/status", Origin=origin, Sec_Fetch_Site=site).status == 200
    assert street.call("POST", "/v1/pause", {}, Origin=origin.upper(), Sec_Fetch_Site=site).status == 200


def test_a_link_to_the_page_can_be_followed_and_not_framed(street):
    told = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Authorization": None}

    assert street.get("/", Sec_Fetch_Dest="document", **told).status == 200
    assert street.get("/", Sec_Fetch_Dest="iframe", **told).status == 403
    assert (
        street.get("/assets/index-12345678.js", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status
        == 403
    )


def test_two_origins_are_one_too_many(street, app):
    head = street.head("POST", "/v1/pause", Origin=f"http://{street.name}", Content_Length="0")

    reply = street.ask(head + f"Origin: http://{street.name}\r\n\r\n".encode())

    assert reply.status == 403
    assert app.calls == 0


# -- 82: other names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8265", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:65535"]
)
def test_our_own_names_are_answered_at_any_port(street, host):
    assert street.get("/v1/status", Host=host).status == 200
    assert street.get("/v1/status", Host=host, Origin=f"http://{host}").status == 200


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
def test_another_name_is_sent_away_before_any_route(street, app, host):
    for target in ("/v1/status", "/", "/nothing"):
        reply = street.get(target, Host=host)
        assert (reply.status, reply.code) in [(421, "wrong-host"), (400, "bad-input")]

    assert app.calls == 0


@pytest.mark.parametrize(
    "hosts", [[], ["localhost", "localhost"], ["localhost", "evil.example"], ["evil.example", "localhost"]]
)
def test_no_name_and_two_names_are_refused(street, app, hosts):
    head = street.head("GET", "/v1/status", Host=None)

    reply = street.ask(head + "".join(f"Host: {host}\r\n" for host in hosts).encode() + b"\r\n")

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
def test_an_odd_request_is_refused_and_the_connection_closed(street, app, rest):
    app.calls = 0

    reply = street.ask(street.head("POST", "/v1/pause") + rest)

    assert (reply.status, reply.code) == (400, "bad-input")
    assert is_dressed(reply)
    assert street.get("/v1/status").status == 200


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
def test_what_is_no_request_is_refused(street, app, request_bytes):
    reply = street.ask(request_bytes)

    assert (reply.status, reply.code) == (400, "bad-input")
    assert app.calls == 0


def test_a_request_hidden_behind_one_without_a_token_is_not_carried_out(street, app):
    """The body of a refused request is never taken for the next request."""
    hidden = street.head("POST", "/v1/pause", Content_Length="2") + b"\r\n{}"
    head = street.head("POST", "/v1/pause", Authorization=None, Content_Length=str(len(hidden)))

    answers = street.ask(head + b"\r\n" + hidden).raw

    assert answers.count(b"HTTP/1.1") == 1
    assert answers.startswith(b"HTTP/1.1 401")
    assert app.calls == 0


@pytest.mark.parametrize(
    "more", [b"X: " + b"a" * 17_000, b"Authorization: Bearer " + b"a" * 17_000, b"X: " + b"a" * 300_000]
)
def test_a_head_that_is_too_large_is_refused(street, more):
    reply = street.ask(street.head("GET", "/v1/status") + more + b"\r\n\r\n")

    assert (reply.status, reply.code) == (431, "headers-too-large")
    assert is_dressed(reply)


def test_a_body_without_end_is_cut_and_costs_no_memory(street):
    before = rss()
    with street.connect() as connection:
        connection.sendall(street.head("POST", "/v1/pause", Transfer_Encoding="chunked") + b"\r\n")
        chunk, sent = b"10000\r\n" + b"x" * 65536 + b"\r\n", 0
        try:
            while sent < 200 * 1024**2:
                connection.sendall(chunk)
                sent += len(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass
        reply = Reply(said(connection))

    assert reply.raw == b"" or (reply.status, reply.code) == (413, "too-large")
    assert sent < 16 * 1024**2
    assert rss() - before < 32 * 1024**2


def test_a_bomb_in_a_body_is_not_unpacked(street):
    import gzip

    bomb = gzip.compress(bytes(10 * 1024**2))
    for target in ("/v1/pause", "/v1/web/session"):
        reply = street.call("POST", target, bomb, Content_Encoding="gzip")
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
def test_what_is_no_code_is_refused(street, kind, body):
    reply = street.call("POST", "/v1/web/session", body, Content_Type=kind, Authorization=None)

    assert (reply.status, reply.code) == (400, "bad-input")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_a_session_is_asked_for_in_one_way(street, method):
    assert street.call(method, "/v1/web/session", Authorization=None).status == 405


# -- 86: slow ones, and many -------------------------------------------------------------------------------


def test_a_head_that_trickles_in_is_not_waited_for(street, monkeypatch):
    monkeypatch.setattr(http_server, "_HEADER_DEADLINE", 0.3)
    with street.connect() as connection:
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for byte in street.head("GET", "/v1/status") * 100:
                connection.send(bytes([byte]))
                time.sleep(0.01)
        reply = Reply(said(connection))

    assert not reply.raw or (reply.status, reply.code) == (408, "too-slow")


def test_a_connection_that_says_nothing_is_closed(street, monkeypatch):
    monkeypatch.setattr(http_server, "_HEADER_DEADLINE", 0.3)
    with street.connect() as connection:
        assert said(connection) == b""


def test_a_body_that_does_not_come_is_not_waited_for(street):
    head = street.head("POST", "/v1/pause", Content_Length="100", Content_Type="application/json")

    reply = street.ask(head + b"\r\n{")

    assert (reply.status, reply.code) == (408, "too-slow")


def test_a_code_that_does_not_come_is_waited_for_even_less(app, tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "_CODE_WITHIN", 0.3)
    with standing(app, tmp_path, deadline=600.0) as (street, _):
        head = street.head("POST", "/v1/web/session", Content_Length="100", Content_Type="application/json")
        reply = street.ask(head + b"\r\n{")

    assert (reply.status, reply.code) == (408, "too-slow")


def test_those_without_a_token_give_way_to_one_who_comes_later(app, tmp_path, monkeypatch):
    monkeypatch.setattr(web_listener, "_MOST_CONNECTIONS", 8)
    with standing(app, tmp_path) as (street, _), street.connect() as page:
        page.sendall(street.head("GET", "/v1/endless") + b"\r\n")
        assert page.recv(100).startswith(b"HTTP/1.1 200")
        # Each is in the middle of a request, and would be for five seconds.
        busy = [street.connect() for _ in range(60)]
        for one in busy:
            head = street.head("POST", "/v1/web/session", Content_Length="9", Content_Type="application/json")
            one.sendall(head + b"\r\n{")

        assert street.get("/v1/status").status == 200

        got = 0
        while got < 32 * 1024**2:  # more than was on its way when the others came
            piece = page.recv(65536)
            assert piece, "the page was put out"
            got += len(piece)
        for one in busy:
            one.close()


def test_a_thousand_idle_connections_keep_the_command_line_from_nothing(house: House):
    street = open_page(house)
    assert house.running is not None
    before = len(os.listdir(f"/proc/{house.running.pid}/fd"))
    idle = []
    try:
        for number in range(1000):
            connection = street.connect()
            idle.append(connection)
            if number % 4 == 0:
                connection.sendall(b"GET /v1/status HTTP/1.1\r\n")  # a head without an end
            if number % 100 == 99:
                assert call(house.socket, "GET", "/v1/status").status == 200
                assert street.get("/v1/status").status == 200
        files = len(os.listdir(f"/proc/{house.running.pid}/fd"))
    finally:
        for connection in idle:
            connection.close()

    assert files - before < 128 + 64 + 20
    assert house.get("/v1/status")
    assert "Traceback" not in house.log


def test_where_there_are_no_descriptors_left_the_door_waits_and_comes_back(house: House):
    import resource

    street = open_page(house)
    assert house.running is not None
    pid = house.running.pid
    _, hard = before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")) + 4, hard))
    crowd = [street.connect() for _ in range(30)]
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
    wait_until(lambda: street.get("/v1/status").status == 200)
    assert house.get("/v1/status")


# -- 87: streams -------------------------------------------------------------------------------------------


def test_streams_are_bounded_and_the_socket_has_its_own(house: House):
    street = open_page(house)
    readers, refused = [], 0
    for _ in range(80):
        connection = street.connect()
        connection.sendall(street.head("GET", "/v1/events") + b"\r\n")
        status = int(connection.recv(12).split()[1])
        refused += status == 503
        readers.append(connection)

    assert refused == 80 - 64
    assert house.get("/v1/status")
    for connection in readers:
        connection.close()


# -- 89: where the token must not be -----------------------------------------------------------------------


def test_the_token_is_in_its_file_and_nowhere_else(house: House):
    full, reading = open_page(house), open_page(house, read_only=True)
    tokens = [full.token.encode(), reading.token.encode()]
    job = house.add("echo $0; env; sleep 60")
    for street in (full, reading):
        for target in ("/v1/status", f"/v1/jobs/{job}", "/v1/nothing", "/v1/jobs?limit=x", "/metrics", "/"):
            reply = street.get(target)
            assert not [token for token in tokens if token in reply.raw]
        street.call("POST", "/v1/jobs/act", {"action": "hold", "ids": [99]})
        street.ask(street.head("GET", "/v1/status", Host="evil.example") + b"\r\n")
        street.ask(street.head("GET", "/v1/status") + b"X: 1\nbroken\r\n\r\n")
        street.get("/v1/status", Authorization=f"Bearer {street.token}x")
    assert full.token not in house.post("/v1/web", {}).values()
    wait_until(lambda: house.state(job) == "running")
    lines = b"".join(_read(Path(f"/proc/{name}/cmdline")) for name in os.listdir("/proc") if name.isdigit())
    listed = subprocess.run(["ps", "axeww"], capture_output=True, check=True).stdout
    house.post("/v1/jobs/act", {"action": "kill", "ids": [job]})
    house.wait(job)
    house.end()

    files = [path for path in house.world.folder.parent.rglob("*") if path.is_file() and path.name != "web-token"]
    assert len(files) > 5
    for place, content in [("ps", listed), ("cmdline", lines), *((path, path.read_bytes()) for path in files)]:
        assert not [token for token in tokens if token in content], place
    assert tokens[0] in _read(house.queue / "web-token")


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
def test_whatever_is_not_the_token_is_none(street, app, said):
    said = said and said.replace("TOKEN", street.token)

    reply = street.ask(street.head("GET", "/v1/status", Authorization=said) + b"\r\n")

    assert (reply.status, reply.code) == (401, "not-signed-in")
    assert reply.headers["connection"] == "close"  # the next guess costs a new one
    assert app.calls == 0


def test_two_tokens_are_none(street, app):
    head = street.head("GET", "/v1/status")

    for second in (street.token, "x"):
        assert street.ask(head + f"Authorization: Bearer {second}\r\n\r\n".encode()).status == 401

    assert app.calls == 0


@pytest.mark.parametrize(
    "target", ["/v1/status?token=TOKEN", "/v1/status?access_token=TOKEN", "/v1/status#TOKEN", "/v1/TOKEN"]
)
def test_a_token_in_an_address_is_not_looked_for(street, app, target):
    reply = street.ask(
        street.head(
            "GET", target.replace("TOKEN", street.token), Authorization=None, Cookie=f"token={street.token}"
        )
        + b"Connection: close\r\n\r\n"
    )

    assert reply.status in (400, 401)
    assert app.calls == 0


def test_a_wrong_guess_takes_its_time_and_delays_no_other_client(app, tmp_path):
    with standing(app, tmp_path, hold=60.0) as (street, keys):
        code = keys.new_code(Permission.ALL).text
        guesses = [street.connect() for _ in range(3)]
        for guess in guesses[:2]:
            guess.sendall(street.head("GET", "/v1/status", Authorization="Bearer wrong") + b"\r\n")
        body = b'{"code": "wrong"}'
        head = street.head(
            "POST", "/v1/web/session", Content_Type="application/json", Content_Length=str(len(body))
        )
        guesses[2].sendall(head + b"\r\n" + body)

        assert street.get("/v1/status").status == 200
        assert street.get("/v1/status", Authorization=None).status == 401
        assert street.sign_in(code).status == 200

        for guess in guesses:
            guess.settimeout(0.2)
            with pytest.raises(TimeoutError):
                guess.recv(1)
            guess.close()


def test_ten_wrong_codes_void_the_right_one(door, street):
    _, keys = door
    code = keys.new_code(Permission.ALL).text

    replies = [street.call("POST", "/v1/web/session", {"code": f"wrong {number}"}) for number in range(10)]

    assert {(reply.status, reply.code) for reply in replies} == {(401, "wrong-code")}
    assert street.call("POST", "/v1/web/session", {"code": code}).status == 401


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
def test_no_path_leads_out(street, path):
    reply = street.get(path)

    assert (reply.status, reply.code) == (404, "not-found")
    assert street.token not in reply.body.decode()


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
def test_every_answer_tells_browsers_what_not_to_do(street, method, target):
    told = [street.call(method, target), street.call(method, target, Host="evil.example")]
    told += [street.call(method, target, Authorization=None), street.call(method, target, Origin="null")]

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


def test_one_page_open_for_long_leaves_no_connection_behind(street):
    """A page asks again and again on one connection."""
    with street.connect() as connection:
        for _ in range(3):
            connection.sendall(street.head("GET", "/v1/status") + b"\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")
        connection.shutdown(socket.SHUT_WR)
        assert said(connection) == b""
