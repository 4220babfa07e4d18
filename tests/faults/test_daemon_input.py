"""What cannot be meant is refused in a sentence, by the command line and by the socket, and leaves no trace.

`tests/daemon/routes/test_jobs.py` asks the API about single values; here is what people type, and whole requests.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from daemon.daemon_process import DaemonProcess
from daemon.listening import connect
from faults.test_daemon_names import OBEYED
from stories.outside import Finished, World, make_world, wait_until


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A queue with two GPUs in which nothing starts."""
    world = make_world(tmp_path_factory.mktemp("input"))
    world.run_daemon(pool="0,1")
    world.dibs("pause")
    yield world
    world.dibs("daemon", "stop")
    world.clean_up()


def _count(world: World) -> int:
    return int(sum(world.client().status()["counts"].values()))


def _assert_refused(world: World, *arguments: str, statuses: tuple[int, ...] = (2,), **more: Any) -> Finished:
    """Refused in two lines, what and what to do; nothing is stored, no GPU taken, no file made."""
    before = _count(world), sorted(path.name for path in (world.state / "queue").iterdir())

    ended = world.dibs("add", *arguments, **more)

    assert ended.status in statuses, (arguments, ended)
    assert len(ended.stderr.splitlines()) == 2, ended.stderr
    assert ended.stderr.startswith("dibs: error: ")
    assert not OBEYED.search(ended.stderr), ended.stderr
    assert (_count(world), sorted(path.name for path in (world.state / "queue").iterdir())) == before
    assert world.holders() == []
    return ended


# -- numbers, times, sizes ---------------------------------------------------------------------------------

NONE_OF_THESE = ("-1", "1.5x", "NaN", "Infinity", "1e300", "true", "", "9" * 30, "１")


@pytest.mark.parametrize("option", ["-n", "--cpus", "--retries", "--vram", "--mem", "-t", "--grace", "--share"])
def test_what_is_no_number_is_refused(queue: World, option: str) -> None:
    for value in NONE_OF_THESE:
        _assert_refused(queue, option, value, "--", "true")


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("-n", ("1.5", "3", "1025")),  # more than there are
        ("--priority", ("1.5", "NaN", "1e9", "9999999", "")),
        ("--cpus", ("0", "100000")),
        ("-t", ("0", "0s")),
        ("--share", ("0", "2", "1/0", "0/1", "-1/2")),
        ("--begin", ("25:00", "NaN", "yesterday", "2026-02-30 10:00", "9" * 20)),
        ("--array", ("5-1", "1-10%0", "1-99999999999", "a", "1-", "0x10", "")),
        ("--checkpoint-signal", ("USR1", "KILL@", "99@10", "USR1@-1", "USR1@NaN", "@10")),
        ("--retry-on", ("boredom",)),
        ("--env", ("NOEQUALS", "=x", "")),
    ],
)
def test_what_is_no_such_wish_is_refused(queue: World, option: str, values: tuple[str, ...]) -> None:
    for value in values:
        _assert_refused(queue, option, value, "--", "true")


@pytest.mark.parametrize("option", ["--only", "--prefer"])
def test_what_is_no_gpu_is_refused(queue: World, option: str) -> None:
    for value in ("-1", "", "0,0", "a b", ",", "0,", "../x", "0\n1", "$(id)"):
        _assert_refused(queue, option, value, "--", "true")


def test_a_gpu_that_is_not_there_is_refused(queue: World) -> None:
    ended = [_assert_refused(queue, "--only", value, "--", "true") for value in ("99", "GPU-3f2a", "0,7")]

    assert all("could never start" in one.stderr for one in ended)


# -- text --------------------------------------------------------------------------------------------------


def test_a_nul_byte_is_refused_wherever_a_file_has_it(queue: World) -> None:
    files = {
        "lines.txt": "true\necho \0\n",
        "name.jsonl": '{"command": "true", "name": "a\\u0000b"}\n',
        "env.jsonl": '{"command": "true", "env": {"A": "\\u0000"}}\n',
        "dir.jsonl": '{"command": "true", "workdir": "/a\\u0000b"}\n',
        "command.jsonl": '{"command": "true\\u0000"}\n',
    }

    for name, content in files.items():
        if name.endswith(".txt"):
            _assert_refused(queue, "-f", queue.write(name, content))
        else:
            before = _count(queue)
            ended = queue.dibs("import", queue.write(name, content))
            assert ended.status == 2, (name, ended)
            assert len(ended.stderr.splitlines()) == 2, ended.stderr
            assert _count(queue) == before


def test_one_argument_may_be_as_long_as_linux_takes_and_no_longer(queue: World) -> None:
    longest = ":" + " " * (131_071 - 2) + "#"

    taken = queue.add("--hold", "-f", queue.write("longest.txt", longest + "\n"))
    ended = _assert_refused(queue, "-f", queue.write("longer.txt", longest + "#\n"))
    huge = _assert_refused(queue, "-", input=": " + "x" * 1_000_000 + "\n")

    assert "131072" in ended.stderr and "1000002" in huge.stderr
    assert len(queue.client().job(taken)["command"]) >= 131_069


def test_more_environment_than_a_program_can_be_given_is_refused(queue: World) -> None:
    daemon = DaemonProcess(queue)
    before = _count(queue)

    much = daemon.try_to_add({"command": "true", "env": {f"V{number}": "x" * 100_000 for number in range(70)}})
    long = daemon.try_to_add({"command": "true", "env": {"V": "x" * 131_072}})
    ours = daemon.try_to_add(
        {"command": "true"}, environment={f"V{number}": "x" * 100_000 for number in range(70)}
    )

    assert {(reply.status, reply.code) for reply in (much, long, ours)} == {(400, "bad-input")}
    assert "this machine starts at most" in much.json["error"]["message"]
    assert _count(queue) == before


def test_bytes_that_are_no_utf8_go_through_everything_unchanged(world: World) -> None:
    world.run_daemon()
    odd = "\udcff\udc80 é\n\t'\"$(id)"
    (world.folder / "d\udcfe").mkdir()

    job = world.add(
        "-C", "d\udcfe", "--env", f"ODD={odd}", "-J", odd, "--tag", odd, "--", "printf", "%s|%s|", odd, "\udcfe"
    )
    spoken = world.add("--", 'printf "%s|%s" "$ODD" "$(pwd)"', env={"ODD": odd}, cwd=world.folder / "d\udcfe")
    world.wait_for(job, spoken)
    log = world.client().log(job).data
    told = world.client().log(spoken).data
    found = json.loads(world.dibs("ls", "--json", str(job)).stdout)["jobs"][0]

    assert log == b"\xff\x80 \xc3\xa9\n\t'\"$(id)|\xfe|"
    assert told.startswith(b"\xff\x80 \xc3\xa9\n\t'\"$(id)|") and told.endswith(b"d\xfe")
    assert (found["name"], found["tags"], found["env"]["ODD"]) == (odd, [odd], odd)
    assert found["workdir"].endswith("d\udcfe")
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def test_a_project_is_text(world: World) -> None:
    world.run_daemon()

    added = world.dibs("add", "--hold", "-P", "\udcff", "--", "true")
    cleaned = world.dibs("clean", "-y", "-P", "\udcfe")

    assert (added.status, cleaned.status) == (2, 0), (added, cleaned)
    assert "is no UTF-8 text" in added.stderr
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def test_what_is_called_by_bytes_that_are_no_utf8_is_found_by_them(world: World) -> None:
    world.run_daemon()
    job = world.add("--hold", "-J", "\udcff", "--", "true")

    found = world.dibs("ls", "--ids", "-J", "\udcff").stdout
    asked = world.dibs("why", "\udcff")

    assert found == f"{job}\n"
    assert asked.status == 0, asked


def test_a_name_that_is_too_long_is_refused(queue: World) -> None:
    for option in ("-J", "-P", "--tag", "--once"):
        _assert_refused(queue, option, "n" * 4096, "--", "true")


# -- dependencies ------------------------------------------------------------------------------------------


def test_a_job_that_is_not_there_cannot_be_waited_for(queue: World) -> None:
    own = _count(queue) + 1
    for option in ("--after", "--after-any", "--after-fail"):
        for value in (str(own), "999999", "0", "-1", "nobody", "@~999999", "17_", ",", "9" * 30):
            _assert_refused(queue, option, value, "--", "true", statuses=(1, 2))


def test_two_jobs_cannot_wait_for_each_other(queue: World) -> None:
    daemon = DaemonProcess(queue)
    first = daemon.add({"command": "true", "hold": True})
    second = daemon.add({"command": "true", "hold": True, "after": [{"job": first}]})

    circle = daemon.call("PATCH", f"/v1/jobs/{first}", {"after": [{"job": second}]})
    itself = daemon.call("PATCH", f"/v1/jobs/{first}", {"after": [{"job": first}]})
    forward = daemon.try_to_add({"command": "a", "after": [{"job": second + 2}]}, {"command": "b"})

    assert circle.status == 400, circle
    assert itself.status == 400, itself
    assert forward.status in (400, 404), forward
    assert daemon.job(first)["after"] == []


def test_a_very_long_chain_is_ended_by_its_first_job_without_falling(world: World) -> None:
    """Longer than Python may call itself."""
    running = world.run_daemon()
    daemon = DaemonProcess(world)
    world.dibs("pause")
    with connect(daemon.socket) as connection:
        answers = connection.makefile("rb")
        for number in range(1, 1051):
            after = [{"job": number - 1}] if number > 1 else []
            body = json.dumps({"key": f"chain {number}", "jobs": [{"command": "true", "after": after}]}).encode()
            head = "POST /v1/jobs HTTP/1.1\r\nHost: dibs\r\nContent-Type: application/json"
            connection.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            assert b" 201 " in answers.readline()
            length = 0
            while (line := answers.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            answers.read(length)

    killed = world.dibs("kill", "1")
    last = wait_until(lambda: (job := world.client().job(1050))["state"] == "cancelled" and job)

    assert killed.status == 0, killed
    assert last["cause"] == "dependency"
    assert world.client().status()["counts"]["cancelled"] == 1050
    assert "Traceback" not in running.stderr
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


# -- whole requests ----------------------------------------------------------------------------------------

BODIES = (
    *(b"", b"nonsense", b"null", b"[]", b'"text"', b"1", b"true", b"{", b'{"a": 1, "a": 2}', b'{"a": NaN}'),
    *(
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xef\xbb\xbf{}",
        b"\xff\xfe{\0}\0",
    ),
    *(b'{"a": "\xff"}', b'{"a": "\\ud800"}', b'{"a": ' + b"9" * 5000 + b"}", b'{"\\u0000": 1}', b"{}" + b" {}"),
)
CHANGING = (
    *(("POST", "/v1/jobs"), ("POST", "/v1/jobs/check"), ("POST", "/v1/jobs/act"), ("PATCH", "/v1/jobs/1")),
    *(("POST", "/v1/pause"), ("POST", "/v1/unpause"), ("POST", "/v1/gpus/act"), ("POST", "/v1/clean")),
    ("POST", "/v1/stop"),
)


@pytest.mark.parametrize(("method", "target"), CHANGING, ids=lambda text: text.rpartition("/")[2])
def test_a_body_that_is_no_request_changes_nothing_and_is_no_bug(queue: World, method: str, target: str) -> None:
    daemon = DaemonProcess(queue)
    before, pid = _count(queue), daemon.get("/v1/status")["pid"]

    replies = [daemon.call(method, target, body) for body in BODIES]

    for body, reply in zip(BODIES, replies, strict=True):
        assert reply.status in (400, 404), (body[:60], reply)
        assert reply.code in ("bad-input", "no-such-job")
    assert _count(queue) == before
    assert daemon.get("/v1/status")["pid"] == pid
    assert daemon.get("/v1/status")["paused"]


def test_words_in_the_place_of_other_words_are_refused_everywhere(queue: World) -> None:
    daemon = DaemonProcess(queue)
    job = daemon.add({"command": "true", "hold": True})
    wrong: list[Any] = [None, True, -1, 1.5, 10**300, "", "x\0y", [], {}, [None], {"a": None}, "\ud800"]
    keys = (
        "num_gpus",
        "priority",
        "retries",
        "only",
        "tags",
        "after",
        "env",
        "words",
        "array",
        "checkpoint",
        "begin_at",
    )
    keys += (
        "time_limit_seconds",
        "grace_seconds",
        "share",
        "vram_bytes",
        "umask",
        "restartable",
        "once",
        "notify",
    )

    replies = [
        (key, value, daemon.call("POST", "/v1/jobs/check", {"jobs": [{"command": "true", key: value}]}))
        for key in keys
        for value in wrong
    ]
    edits = [
        (key, value, daemon.call("PATCH", f"/v1/jobs/{job}", {key: value})) for key in keys for value in wrong
    ]

    bugs = [(key, value, reply) for key, value, reply in replies + edits if reply.status not in (200, 400, 404)]
    assert bugs == []
    assert daemon.job(job)["state"] == "held"
    log = (queue.state / "queue/daemon.log").read_text()
    assert "Traceback" not in log, log[-3000:]


def test_what_was_typed_wrong_takes_no_gpu_and_starts_no_daemon(world: World) -> None:
    world.environ["DIBS_POOL"] = "0"

    ended = [
        world.dibs("add", *words) for words in (["-n", "-1", "--", "true"], ["--only", "", "--", "true"], ["--"])
    ]

    assert [one.status for one in ended] == [2, 2, 2]
    assert world.daemon_pid() is None
    world.assert_nothing_is_left()
