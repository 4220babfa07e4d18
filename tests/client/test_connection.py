"""How calls travel: over a socket in a folder of ours, repeated only where that is safe, errors in our classes."""

import os
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from client.fake import Answer, Asked, listening
from dibs.client import client as client_module
from dibs.client import connection
from dibs.client.client import Client, RetryingClient
from dibs.client.connection import ConnectionBroken, NoAnswer, NotListening
from dibs.errors import BadInput, Conflict, DibsError, NoDaemon, NoSuchJob, NotAllowed, StoreUnusable


@pytest.fixture
def path(tmp_path: Path) -> str:
    folder = tmp_path / "a folder é"
    folder.mkdir(mode=0o700)
    return str(folder / "socket")


def breaking(times: int, after: int = 0, only: str = "") -> object:
    """An answer that breaks off so many times before the ordinary one is given."""
    seen = []

    def answer(asked: Asked) -> Answer | None:
        if only and asked.target != only:
            return None
        seen.append(asked)
        return Answer({"first": 1, "last": 1, "is_new": True}, breaks=after) if len(seen) <= times else None

    return answer


def test_an_answer_in_chunks_is_put_together(path):
    with listening(path, lambda asked: Answer({"pid": 7}, chunked=True)):
        client = Client(path)

        assert client.status() == {"pid": 7}
        assert client.status() == {"pid": 7}  # on the same connection: nothing of the first is left in it


def test_a_path_longer_than_an_address_of_a_socket_is_reached(tmp_path):
    folder = tmp_path / ("long" * 40)
    folder.mkdir(mode=0o700)

    with listening(folder / "socket"):
        assert Client(str(folder / "socket")).status()["pid"] == os.getpid()


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707])
def test_a_socket_in_a_folder_that_is_open_to_others_is_refused(path, mode):
    with listening(path) as fake:
        os.chmod(os.path.dirname(path), mode)

        with pytest.raises(NotAllowed, match="open to others") as refusal:
            Client(path).status()

    assert fake.asked == []
    assert refusal.value.exit_status == 77


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_socket_in_somebody_elses_folder_is_refused(path):
    with listening(path) as fake:
        os.chown(os.path.dirname(path), 65534, 65534)

        with pytest.raises(NotAllowed, match="belongs to uid 65534"):
            Client(path).status()

    assert fake.asked == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_daemon_of_somebody_else_is_refused(path, monkeypatch):
    with listening(path) as fake:
        # The folder seems to be ours, and the listener is root.
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
        os.chown(os.path.dirname(path), 65534, 65534)

        with pytest.raises(NotAllowed, match="the process that listens there has uid 0"):
            Client(path).status()

    assert fake.asked == []


@contextmanager
def answering(path: str, answer: bytes) -> Iterator[None]:
    """Another program at the socket, which answers every connection with these bytes."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(answer)

    with socketserver.ThreadingUnixStreamServer(path, Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield
        server.shutdown()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\n\r\n<html></html>",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 \xb2 x\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\0\xff",
    ],
)
def test_another_program_at_the_socket_is_one_sentence(path, answer):
    with answering(path, answer), pytest.raises(NoDaemon) as refusal:
        Client(path).status()

    assert (
        refusal.value.message == f"the program that listens at {path} (pid {os.getpid()}) is not a daemon of dibs"
    )
    assert "DIBS_SOCKET" in refusal.value.remedy


@pytest.mark.parametrize("length", ["-5", "1e3", "\xb2", ""])
@pytest.mark.parametrize("way", ["Content-Length: {}\r\n\r\nxxxxx", "Transfer-Encoding: chunked\r\n\r\n{}\r\nxxx"])
def test_a_length_that_is_no_number_breaks_the_connection(path, way, length):
    answer = f"HTTP/1.1 200 OK\r\nDibs-Version: 1\r\n{way.format(length)}".encode("latin-1")

    with answering(path, answer), pytest.raises(ConnectionBroken):
        Client(path).status()


@pytest.mark.parametrize("kind", ["nothing", "dead socket", "no folder"])
def test_where_nobody_listens_one_sentence_says_so(path, kind):
    if kind == "dead socket":
        with listening(path):
            os.link(path, f"{path}.kept")
        os.rename(f"{path}.kept", path)
    if kind == "no folder":
        path = f"{os.path.dirname(path)}/none/socket"

    with pytest.raises(NotListening) as missing:
        Client(path).status()

    assert missing.value.exit_status == 69
    assert missing.value.remedy


@pytest.mark.parametrize(
    ("status", "code", "kind", "exit_status"),
    [
        (400, "bad-input", BadInput, 2),
        (403, "not-allowed", NotAllowed, 77),
        (404, "no-such-job", NoSuchJob, 1),
        (409, "conflict", Conflict, 1),
        (503, "store-unusable", StoreUnusable, 1),
        (418, "new-in-version-9", DibsError, 2),
        (500, "bug", DibsError, 1),
    ],
)
def test_an_error_comes_back_as_its_class_with_its_words(path, status, code, kind, exit_status):
    told = {"error": {"code": code, "message": "cannot do it", "remedy": "try this"}}

    with listening(path, lambda asked: Answer(told, status)), pytest.raises(kind) as error:
        Client(path).status()

    assert (error.value.message, error.value.remedy, error.value.code) == ("cannot do it", "try this", code)
    assert error.value.exit_status == exit_status


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b'{"error": 3}', b"\xff"])
def test_an_answer_that_is_none_of_ours_is_an_error_and_no_traceback(path, body):
    with listening(path, lambda asked: Answer(body, 502)), pytest.raises(DibsError, match="502"):
        Client(path).status()


@pytest.mark.parametrize("after", [0, 12, 60])
def test_a_call_with_a_key_is_repeated_when_the_connection_breaks(path, after):
    with listening(path, breaking(2, after)) as fake:
        answer = Client(path).add([{"command": "true"}], key="k")

    assert answer == {"first": 1, "last": 1, "is_new": True, "missing": 0}
    assert [one.body["key"] for one in fake.asked] == ["k", "k", "k"]


@pytest.mark.parametrize(("action", "signal"), [("retry", None), ("kill", 10)])
def test_a_call_that_must_not_happen_twice_is_not_repeated(path, action, signal):
    with listening(path, breaking(1)) as fake, pytest.raises(ConnectionBroken):
        Client(path).act(action, [1], signal=signal)

    assert len(fake.asked) == 1


def test_a_connection_that_breaks_for_ever_is_given_up(path):
    with listening(path, breaking(100)) as fake, pytest.raises(ConnectionBroken):
        Client(path).status()

    assert 1 < len(fake.asked) < 10


def test_a_daemon_that_does_not_answer_is_not_waited_for_for_ever(path):
    def answer(asked: Asked) -> Answer:
        held.wait(10)
        return Answer({})

    held = threading.Event()
    with listening(path, answer):
        with pytest.raises(NoAnswer, match="has not answered for 0"):
            Client(path, patience=0.2).status()
        held.set()


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_silent_daemon_is_given_up_early_unless_it_answers_another_question(path, is_alive, monkeypatch):
    monkeypatch.setattr(connection, "_LOOK_AFTER", 0.1)
    held = threading.Event()

    def answer(asked: Asked) -> Answer:
        if asked.target == "/v1/status" and is_alive:
            held.set()
        held.wait(10)
        return Answer({"gpus": []})

    with listening(path, answer):
        if is_alive:
            assert Client(path).gpus() == {"gpus": []}
        else:
            with pytest.raises(NoAnswer, match=r"has not answered for 0\.2 seconds"):
                Client(path).gpus()
        held.set()


def test_no_look_at_a_silent_daemon_lasts_longer_than_the_patience(path, monkeypatch):
    monkeypatch.setattr(connection, "_LOOK_AFTER", 1.0)
    held = threading.Event()

    def answer(asked: Asked) -> Answer:
        held.wait(10)
        return Answer({})

    with listening(path, answer):
        began = time.monotonic()
        with pytest.raises(NoAnswer, match=r"has not answered for 1\.2 seconds"):
            Client(path, patience=1.2).gpus()
        seconds = time.monotonic() - began
        held.set()

    assert seconds < 1.9


def test_silence_that_is_expected_is_no_reason_to_look(path, monkeypatch):
    monkeypatch.setattr(connection, "_LOOK_AFTER", 0.05)

    def answer(asked: Asked) -> Answer:
        time.sleep(0.2)
        return Answer({"jobs": [], "waiting": []})

    with listening(path, answer) as fake:
        Client(path).wait([1], seconds=2.0)

    assert [asked.target for asked in fake.asked] == ["/v1/jobs/wait?ids=1&timeout_seconds=2"]


def test_patience_is_counted_from_the_last_sign_of_life(path, monkeypatch):
    monkeypatch.setattr(client_module, "_AWAY_SECONDS", 0.2)
    monkeypatch.setattr(client_module, "_AWAY_PAUSE", 0.1)
    answers = iter([ConnectionBroken("killed")] * 8)

    def question(client: Client) -> str:
        for error in answers:
            raise error
        return "an answer"

    with listening(path):
        patient = RetryingClient(Client(path), lambda said: None, {"DIBS_SOCKET": path})
        assert patient.ask(question) == "an answer"

    with pytest.raises(NoDaemon):
        patient.ask(lambda client: client.status())


def test_no_patience_is_left_after_the_moment_that_was_named(path):
    patient = RetryingClient(Client(path), lambda said: None, {"DIBS_SOCKET": path})

    with pytest.raises(NoDaemon):
        patient.ask(lambda client: client.status(), until=time.monotonic() + 0.1)


def test_bytes_that_are_no_utf8_travel_in_both_directions(path):
    def echo(asked: Asked) -> Answer:
        return Answer({"first": 1, "last": 1, "is_new": True, "echo": asked.body["jobs"][0]["command"]})

    with listening(path, echo):
        answer = Client(path).add([{"command": "echo \udcff é \U0001f600"}], key="k")

    assert answer["echo"] == "echo \udcff é \U0001f600"


def test_filters_stand_in_the_address_and_empty_ones_do_not(path):
    with listening(path, lambda asked: Answer({"jobs": [], "cursor": None})) as fake:
        list(Client(path).jobs(state=("queued", "held"), project="", name="a b&c", since=None, tag="\udcff"))

    [asked] = fake.asked
    assert asked.target == "/v1/jobs?limit=1000&state=queued%2Cheld&name=a+b%26c&tag=%FF"


def test_all_pages_are_read(path):
    pages = {"": ([1, 2], "c"), "c": ([3], None)}

    def answer(asked: Asked) -> Answer:
        jobs, cursor = pages["c" if "cursor=c" in asked.target else ""]
        return Answer({"jobs": [{"id": number} for number in jobs], "cursor": cursor})

    with listening(path, answer):
        found = [job["id"] for job in Client(path).jobs()]

    assert found == [1, 2, 3]


def test_a_piece_of_a_log_knows_its_place(path):
    headers = {"Dibs-Offset": "4", "Dibs-Size": "99", "Dibs-State": "running", "Dibs-Attempt": "2"}

    with listening(path, lambda asked: Answer(b"\0\xffab", headers=headers)) as fake:
        part = Client(path).log(7, stream="stderr", offset=4)

    assert (part.data, part.offset, part.end, part.size, part.state, part.attempt) == (
        b"\0\xffab",
        4,
        8,
        99,
        "running",
        2,
    )
    assert fake.asked[0].target == "/v1/jobs/7/log?stream=stderr&offset=4"


def test_another_version_is_told_once(path):
    said: list[str] = []
    with listening(path) as fake:
        fake.version = "9.9.9"
        client = Client(path, notice=said.append)
        client.status()
        client.status()

    [sentence] = said
    assert "9.9.9" in sentence and "dibs daemon restart" in sentence


def test_the_same_version_is_not_worth_a_word(path):
    said: list[str] = []
    with listening(path):
        Client(path, notice=said.append).status()

    assert said == []


def test_a_daemon_that_went_away_in_the_middle_is_started_again(path):
    """The daemon is killed during the call; the key makes it safe to ask the next one."""
    started = []

    with listening(path, breaking(100)):
        client = Client(path, start=lambda: started.append(running.__enter__()))
        client._connect().close()
    running = listening(path)
    try:
        answer = client.add([{"command": "true"}], key="k")
    finally:
        running.__exit__(None, None, None)

    assert answer["first"] == 1
    assert len(started) == 1
