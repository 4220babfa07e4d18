"""The page's listener of a real daemon: opened on request, with a token, and again after a restart."""

import json
import os
import signal
import socket
import ssl
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from daemon.daemon_process import DaemonProcess
from daemon.sweeping import begin, values
from daemon.web_client import WebClient, a_free_port, open_page
from dibs.daemon.web.guard import peer_uid
from dibs.version import __version__
from stories.outside import NOBODY, World, needs_root, wait_until

pytestmark = pytest.mark.usefixtures("one_listener_at_a_time")


def listening_ports(pid: int) -> set[int]:
    """The TCP ports at which a process listens."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            continue
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def ports_of(daemon: DaemonProcess) -> set[int]:
    assert daemon.running is not None
    return listening_ports(daemon.running.pid)


# -- opening -----------------------------------------------------------------------------------------------


@pytest.fixture
def open_daemon(shared: DaemonProcess) -> Iterator[DaemonProcess]:
    """The daemon of this file, whose page is closed after the test."""
    yield shared
    shared.post("/v1/web/close", {})


def test_nothing_listens_on_the_network_until_it_is_requested(daemon: DaemonProcess):
    assert ports_of(daemon) == set()
    assert not (daemon.queue / "web-token").exists()

    web_client = open_page(daemon)

    assert ports_of(daemon) == {web_client.port}
    assert web_client.get("/v1/status").json["version"] == __version__
    assert stat.S_IMODE(os.stat(daemon.queue / "web-token").st_mode) == 0o600


def test_a_session_tells_who_one_is(open_daemon: DaemonProcess):
    entry = open_daemon.post("/v1/web", {})
    web_client = WebClient(int(entry["address"].rpartition(":")[2].strip("/")))

    reply = web_client.sign_in(entry["code"])

    assert reply.json.keys() == {"token", "read_only", "user", "version"}
    assert (reply.json["read_only"], reply.json["version"]) == (False, __version__)
    assert reply.json["user"] == open_daemon.get("/v1/status")["user"]
    assert reply.json["token"] == (open_daemon.queue / "web-token").read_text().strip()
    assert web_client.sign_in(entry["code"]).code == "wrong-code"


def test_asking_again_gives_another_code_for_the_same_door(daemon: DaemonProcess):
    first, second = daemon.post("/v1/web", {}), daemon.post("/v1/web", {"read_only": True})

    assert first["address"] == second["address"]
    assert first["code"] != second["code"]
    assert len(ports_of(daemon)) == 1


def test_where_the_usual_port_is_taken_the_next_free_one_is_used(daemon: DaemonProcess, tmp_path):
    web_client = open_page(daemon)
    from stories.outside import make_world

    (tmp_path / "other").mkdir()
    other = DaemonProcess(make_world(tmp_path / "other"))
    other.start()
    try:
        another = open_page(other)
    finally:
        other.end()
        other.world.clean_up()

    assert 8265 <= web_client.port < another.port < 8365


def test_a_port_that_was_asked_for_and_is_taken_is_told(daemon: DaemonProcess):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        reply = daemon.call("POST", "/v1/web", {"port": port})

    assert (reply.status, reply.code) == (400, "bad-input")
    assert f"cannot listen at 127.0.0.1:{port}: another program does" in reply.json["error"]["message"]
    assert ports_of(daemon) == set()


def test_a_port_that_cannot_be_had_leaves_the_door_where_it_is(daemon: DaemonProcess):
    web_client = open_page(daemon)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        daemon.call("POST", "/v1/web", {"port": taken.getsockname()[1]})

    assert web_client.get("/v1/status").status == 200


def test_another_port_moves_the_door(daemon: DaemonProcess):
    old, port = open_page(daemon), a_free_port()

    new = open_page(daemon, port=port)

    assert ports_of(daemon) == {port} == {new.port}
    assert new.token == old.token


def test_without_tls_the_machines_own_name_is_none_of_its_names(open_daemon: DaemonProcess):
    web_client = open_page(open_daemon)

    assert web_client.get("/v1/status", Host=socket.gethostname()).status == 421


@pytest.mark.parametrize(
    "wish",
    [
        {"port": 0},
        {"port": 65536},
        {"port": True},
        {"port": "8265"},
        {"host": ""},
        {"host": "no such name.invalid"},
        {"host": "a" * 254},
        {"host": "a..b"},
        {"host": "\0"},
        {"host": "127.0.0.1", "certificate": "/nowhere.pem"},
        {"host": "127.0.0.1", "certificate": "/nowhere.pem", "key": "/nowhere.key"},
        {"certificate": "/dev/null", "key": "/dev/null"},
        {"surprise": 1},
    ],
)
def test_what_cannot_be_meant_opens_nothing(shared: DaemonProcess, wish: dict[str, Any]):
    reply = shared.call("POST", "/v1/web", wish)

    assert (reply.status, reply.code) == (400, "bad-input")
    assert ports_of(shared) == set()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::ffff:0.0.0.0"])
def test_the_network_is_refused_without_tls(shared: DaemonProcess, host: str):
    reply = shared.call("POST", "/v1/web", {"host": host})

    assert (reply.status, reply.code) == (400, "bad-input")
    assert "others on the network" in reply.json["error"]["message"]
    assert ports_of(shared) == set()


# -- closing, and coming back ------------------------------------------------------------------------------


def test_a_closed_page_accepts_no_connection_and_stays_closed(daemon: DaemonProcess):
    web_client = open_page(daemon, port=8399)  # beyond those that a daemon takes by itself
    with web_client.connect() as reader:
        reader.sendall(web_client.head("GET", "/v1/events") + b"\r\n")
        assert reader.recv(100)

        assert daemon.post("/v1/web/close", {}) == {"changed": True}

        assert ports_of(daemon) == set()
        while reader.recv(65536):  # until it is closed
            pass
    with pytest.raises(ConnectionRefusedError):
        web_client.connect()
    assert daemon.post("/v1/web/close", {}) == {"changed": False}
    daemon.end()
    daemon.start()
    assert ports_of(daemon) == set()
    assert "Traceback" not in daemon.log


@pytest.mark.parametrize("how", ["end", "kill"])
def test_an_open_page_finds_the_next_daemon_and_keeps_its_token(daemon: DaemonProcess, how: str):
    web_client = open_page(daemon)

    daemon.kill() if how == "kill" else daemon.end()
    daemon.start()

    wait_until(lambda: ports_of(daemon) == {web_client.port})
    assert web_client.get("/v1/status").status == 200
    assert "Traceback" not in daemon.log


def test_the_daemon_ends_though_pages_are_listening(daemon: DaemonProcess):
    web_client = open_page(daemon)
    readers = [web_client.connect() for _ in range(5)]
    for reader in readers:
        reader.sendall(web_client.head("GET", "/v1/events") + b"\r\n")
        reader.recv(100)

    ended = daemon.end()

    for reader in readers:
        reader.close()
    assert ended is not None and ended.status == 0
    assert "Traceback" not in daemon.log


def test_if_another_program_has_the_port_meanwhile_the_token_is_changed(daemon: DaemonProcess):
    web_client = open_page(daemon)
    old = web_client.token
    daemon.end()
    with socket.create_server(("127.0.0.1", web_client.port)):
        daemon.start()
        wait_until(lambda: "another program does" in daemon.log)
        wait_until(lambda: (daemon.queue / "web-token").read_text().strip() != old)

    again = open_page(daemon)

    assert again.get("/v1/status", Authorization=f"Bearer {old}").status == 401
    assert again.get("/v1/status").status == 200


@pytest.mark.parametrize(
    "memory", ["", "{}", "[]", '{"host": 1, "port": null}', "\udcff", '{"host": "0.0.0.0", "port": 1}']
)
def test_a_spoilt_memory_keeps_the_daemon_from_nothing(daemon: DaemonProcess, memory: str):
    daemon.end()
    (daemon.queue / "web.json").write_bytes(memory.encode("utf-8", "surrogateescape"))

    daemon.start()

    assert daemon.get("/v1/status")
    assert ports_of(daemon) <= set(range(8265, 8365))
    assert open_page(daemon).get("/v1/status").status == 200


def test_the_setting_opens_it_at_the_start(world: World):
    daemon, port = DaemonProcess(world), a_free_port()

    daemon.start(DIBS_WEB=f"127.0.0.1:{port}")

    wait_until(lambda: ports_of(daemon) == {port})
    assert WebClient(port).get("/v1/status").status == 401
    daemon.end()


def test_the_setting_can_forbid_it(world: World):
    daemon = DaemonProcess(world)
    daemon.start(DIBS_WEB="never")

    reply = daemon.call("POST", "/v1/web", {})

    assert (reply.status, reply.code) == (403, "not-allowed")
    assert ports_of(daemon) == set()
    daemon.end()


# -- who may do what ---------------------------------------------------------------------------------------


def test_a_reader_sees_everything_and_changes_nothing(daemon: DaemonProcess):
    reader = open_page(daemon, read_only=True)
    job = daemon.add({"command": "sleep 60", "hold": True})

    assert reader.get(f"/v1/jobs/{job}").json["command"] == "sleep 60"
    for method, target, body in [
        ("POST", "/v1/jobs/act", {"action": "kill", "ids": [job]}),
        ("PATCH", f"/v1/jobs/{job}", {"priority": 5}),
        ("POST", "/v1/pause", {}),
        ("POST", "/v1/jobs", {"key": "k", "jobs": [{"command": "true"}]}),
        ("DELETE", f"/v1/jobs/{job}", None),
    ]:
        reply = reader.call(method, target, body)
        assert (reply.status, reply.code) == (403, "not-allowed")
        assert "change nothing" in reply.json["error"]["message"]
    assert daemon.state(job) == "held"
    assert daemon.get("/v1/status")["paused"] is False


def test_environments_may_hold_passwords_and_are_not_for_readers(open_daemon: DaemonProcess):
    reader, owner = open_page(open_daemon, read_only=True), open_page(open_daemon)
    job = open_daemon.add({"command": "true", "hold": True})

    refused = reader.call("GET", f"/v1/jobs/{job}/environment")

    assert (refused.status, refused.code) == (403, "not-allowed")
    assert owner.call("GET", f"/v1/jobs/{job}/environment").status == 200


def test_a_browser_gets_no_secrets_of_a_captured_environment(open_daemon: DaemonProcess):
    owner = open_page(open_daemon)
    secrets = {"HF_TOKEN": "a", "aws_secret_access": "b", "API_KEY": "c", "DB_PASSWORD": "d"}
    job = open_daemon.add({"command": "true", "hold": True}, environment={"PATH": "/bin", **secrets})

    shown = owner.call("GET", f"/v1/jobs/{job}/environment").json["environment"]

    assert shown == {"PATH": "/bin", **dict.fromkeys(secrets, "***")}
    assert open_daemon.get(f"/v1/jobs/{job}/environment")["environment"] == {"PATH": "/bin", **secrets}


def test_no_address_shows_readers_the_values_of_variables(open_daemon: DaemonProcess):
    reader, owner = open_page(open_daemon, read_only=True), open_page(open_daemon)
    secret = {"command": "true", "env": {"API_KEY": "hunter2"}}
    job = open_daemon.add(secret)
    edited = open_daemon.add({**secret, "hold": True})
    reply = open_daemon.call("PATCH", f"/v1/jobs/{edited}", {"env": {"API_KEY": "hunter2", "OTHER": "hunter2"}})
    assert reply.status == 200, reply
    sweep = begin(
        open_daemon, "true {x}", values("x", 1), wishes={"env": secret["env"]}, metrics=[], method="grid"
    )
    open_daemon.wait(job)
    paths = open_daemon.get("/openapi.json")["paths"]
    queries = {"/v1/jobs/wait": f"?ids={job}", "/v1/find": f"?ref={job}", "/v1/sweeps/find": "?ref=@"}
    queries |= {"/v1/jobs/{number}/log/search": "?q=x", "/v1/events": "?since=1"}
    targets = [
        path.replace("{number}", str(sweep if path.startswith("/v1/sweeps") else number)) + queries.get(path, "")
        for path, methods in paths.items()
        for number in (job, edited)
        if "get" in methods
    ]

    told = {target: first_bytes(reader, target) for target in dict.fromkeys(targets)}

    assert len(told) > 25
    assert {target for target, answer in told.items() if b"hunter2" in answer} == set()
    assert b'"API_KEY":"***"' in told[f"/v1/jobs/{job}"]
    assert b'"API_KEY":"***"' in told["/v1/export"]
    assert owner.get(f"/v1/jobs/{job}").json["env"] == {"API_KEY": "hunter2"}


def first_bytes(client: WebClient, target: str) -> bytes:
    """The response, or what comes of a stream in a moment."""
    with client.connect(0.5) as connection:
        connection.sendall(client.head("GET", target, Connection="close") + b"\r\n")
        answer = b""
        with suppress(TimeoutError):
            while piece := connection.recv(65536):
                answer += piece
        return answer


def test_a_page_can_do_what_the_command_line_can(open_daemon: DaemonProcess):
    web_client = open_page(open_daemon)
    job = open_daemon.add({"command": "sleep 60", "hold": True})

    reply = web_client.call(
        "POST", "/v1/jobs/act", {"action": "kill", "ids": [job]}, Origin=f"http://{web_client.name}"
    )

    assert reply.json["changed"] == [job]


@pytest.mark.parametrize(
    "target", ["/v1/stop", "/v1/web", "/v1/web/close", "/v1/web/renew", "/v1/st%6fp", "/v1/web/x"]
)
def test_the_door_does_not_lead_to_its_own_lock(open_daemon: DaemonProcess, target: str):
    web_client = open_page(open_daemon)

    for method in ("POST", "GET"):
        reply = web_client.call(method, target, {} if method == "POST" else None)
        assert (reply.status, reply.code) == (403, "not-allowed")

    assert web_client.get("/v1/status").status == 200


@pytest.mark.parametrize(
    "target", ["/v1/status", "/metrics", "/openapi.json", "/v1/events", "/v1/nothing", "/v1", "/v1/stop"]
)
def test_nothing_is_told_without_a_token(open_daemon: DaemonProcess, target: str):
    web_client = open_page(open_daemon)

    reply = web_client.get(target, Authorization=None)

    assert (reply.status, reply.code) == (401, "not-signed-in")
    assert reply.headers["www-authenticate"] == "Bearer"


def test_a_new_token_signs_every_browser_out(daemon: DaemonProcess):
    web_client = open_page(daemon)
    with web_client.connect() as reader:
        reader.sendall(web_client.head("GET", "/v1/events") + b"\r\n")
        assert reader.recv(100)

        daemon.post("/v1/web/renew", {})

        with pytest.raises(ConnectionResetError):
            while reader.recv(65536):
                pass
            raise ConnectionResetError
    assert web_client.get("/v1/status").status == 401
    assert open_page(daemon).get("/v1/status").status == 200


@needs_root
def test_another_user_cannot_use_a_code_that_they_saw(daemon: DaemonProcess):
    entry = daemon.post("/v1/web", {})
    port = int(entry["address"].rpartition(":")[2].strip("/"))
    code = (
        "import sys, urllib.request, urllib.error\n"
        "kind = {'Content-Type': 'application/json'}\n"
        "request = urllib.request.Request(sys.argv[1], sys.argv[2].encode(), kind)\n"
        "try: print(urllib.request.urlopen(request).status)\n"
        "except urllib.error.HTTPError as error: print(error.code, error.read().decode())\n"
    )
    target = f"http://127.0.0.1:{port}/v1/web/session"

    done = subprocess.run(
        ["/usr/bin/python3", "-c", code, target, json.dumps({"code": entry["code"]})],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith("403"), done
    assert "another user" in done.stdout
    assert WebClient(port).sign_in(entry["code"]).status == 200


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_tells_who_has_connected(family):
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as server:
        here = server.getsockname()[:2]
        with socket.create_connection(here) as connection:
            there = connection.getsockname()[:2]

            assert peer_uid(there, here) == os.geteuid()
            assert peer_uid((host, 1), here) is None


# -- TLS ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Made by ourselves for 127.0.0.2."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=dibs"),
            *("-addext", "subjectAltName=IP:127.0.0.2", "-keyout", key, "-out", cert),
        ],
        capture_output=True,
        check=True,
    )
    return cert, key


def behind_tls(daemon: DaemonProcess, certificate: tuple[str, str]) -> tuple[WebClient, str]:
    cert, key = certificate
    entry = daemon.post("/v1/web", {"host": "127.0.0.2", "certificate": cert, "key": key})
    assert entry["address"].startswith("https://127.0.0.2:")
    web_client = WebClient(int(entry["address"].rpartition(":")[2].strip("/")), host="127.0.0.2")
    web_client.tls = ssl.create_default_context(cafile=cert)
    return web_client, entry["code"]


def test_with_a_certificate_it_speaks_tls_and_still_wants_a_token(daemon: DaemonProcess, certificate):
    web_client, code = behind_tls(daemon, certificate)

    assert web_client.get("/v1/status").status == 401
    assert web_client.sign_in(code).status == 200
    assert web_client.get("/v1/status", Origin=f"https://{web_client.name}").status == 200
    assert web_client.get("/v1/status", Host="evil.example").status == 421
    assert web_client.get("/v1/status", Host=socket.gethostname()).status == 200
    daemon.end()
    daemon.start()
    wait_until(lambda: ports_of(daemon) == {web_client.port})
    assert web_client.get("/v1/status").status == 200


def test_clients_without_tls_are_dropped_and_affect_no_other(daemon: DaemonProcess, certificate):
    web_client, _ = behind_tls(daemon, certificate)
    plain = WebClient(web_client.port, host="127.0.0.2")

    for request in (b"GET / HTTP/1.1\r\nHost: 127.0.0.2\r\n\r\n", b"\x16\x03\x01" + b"\xff" * 500, b"\0" * 100):
        for _ in range(3):
            assert not plain.ask(request).raw.startswith(b"HTTP")
    silent = [plain.connect() for _ in range(200)]  # more than may be in a handshake at one time

    assert daemon.get("/v1/status")
    for connection in silent:
        connection.close()
    wait_until(lambda: _answers(web_client))
    assert "Traceback" not in daemon.log
    assert daemon.running is not None
    daemon.running.signal(signal.SIGTERM)
    assert daemon.running.wait().status == 0


def _answers(web_client: WebClient) -> bool:
    try:
        return web_client.get("/v1/status").status == 401
    except OSError:
        return False


def test_a_key_that_does_not_fit_is_told(shared: DaemonProcess, certificate, tmp_path):
    cert, key = certificate
    other = str(tmp_path / "key.pem")
    subprocess.run(["openssl", "genrsa", "-out", other, "2048"], capture_output=True, check=True)
    locked = str(tmp_path / "locked.pem")
    subprocess.run(
        ["openssl", "rsa", "-aes256", "-passout", "pass:secret", "-in", key, "-out", locked],
        capture_output=True,
        check=True,
    )

    for bad in (other, locked):
        reply = shared.call("POST", "/v1/web", {"host": "127.0.0.2", "certificate": cert, "key": bad})
        assert (reply.status, reply.code) == (400, "bad-input")
        assert "cannot use the certificate" in reply.json["error"]["message"]
