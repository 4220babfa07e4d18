"""Adding jobs over the API, and asking about them."""

import json
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from daemon.daemon_process import DaemonProcess
from daemon.listening import ask
from dibs.model.jobs import request_json
from field_samples import everything
from stories.outside import PATIENCE, wait_until


def test_a_job_is_added_run_and_told_about(shared: DaemonProcess):
    number = shared.add({"command": "echo out; echo err >&2; exit 3", "name": "it", "project": "p", "tags": ["t"]})

    (job,) = shared.wait(number)

    assert (job["id"], job["state"], job["exit_code"], job["cause"]) == (number, "failed", 3, "exit code")
    assert (job["name"], job["project"], job["tags"], job["num_gpus"]) == ("it", "p", ["t"], 1)
    assert job["gpus"] in ([0], [1])
    assert job["queued_at"] <= job["started_at"] <= job["ended_at"]
    assert job["queued_at"].endswith("Z")
    whole = shared.job(number)
    assert [one["number"] for one in whole["attempts_list"]] == [1]
    assert whole["attempts_list"][0]["pid"] > 0
    assert whole["stdout"].startswith(whole["folder"])
    assert shared.get(f"/v1/jobs/{number}/environment")["environment"]["PATH"] == "/usr/bin:/bin"


def test_a_job_that_failed_comes_with_what_helps(shared: DaemonProcess):
    number = shared.add({"words": [sys.executable, "-c", "import no_such_module"]})

    shared.wait(number)

    whole = shared.job(number)
    assert whole["cause"] == "import-error"
    assert whole["explanation"].startswith("No module named 'no_such_module': is the environment active")


def test_the_same_key_gets_the_same_numbers(daemon: DaemonProcess):
    body = {"key": "once upon a time", "jobs": [{"command": "true"}, {"command": "true"}]}

    first, second = (daemon.call("POST", "/v1/jobs", body) for _ in range(2))

    assert (first.status, second.status) == (201, 200)
    assert first.json == {"first": 1, "last": 2, "is_new": True, "missing": 0, "notes": []}
    assert second.json == {"first": 1, "last": 2, "is_new": False, "missing": 0, "notes": []}
    assert len(daemon.get("/v1/jobs")["jobs"]) == 2


def test_a_list_in_parts_is_added_with_its_last_part(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    parts = [
        {"key": "k", "part": {"offset": offset, "jobs": 3}, "jobs": [{"command": "true", "name": "many"}] * count}
        for offset, count in ((0, 2), (2, 1))
    ]

    first = daemon.call("POST", "/v1/jobs", parts[0])
    assert (first.status, first.json["missing"], daemon.get("/v1/jobs")["jobs"]) == (202, 1, [])
    last, again = (daemon.call("POST", "/v1/jobs", parts[1]) for _ in range(2))

    assert (last.status, again.status) == (201, 200)
    assert last.json == {"first": 1, "last": 3, "is_new": True, "missing": 0, "notes": []}
    assert again.json == {**last.json, "is_new": False}
    assert daemon.get("/v1/find?ref=many") == {"ids": [1, 2, 3]}


def test_each_job_is_its_own_keys_on_top_of_the_defaults(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})

    first = daemon.add(
        {"command": "a"},
        {"command": "b", "num_gpus": 0, "env": {"B": "1"}},
        {"words": ["c", "d e"]},
        {"command": "f", "shell": "sh", "priority": 7},
        defaults={"name": "n", "num_gpus": 2, "env": {"A": "1"}, "shell": "zsh", "time_limit_seconds": 60},
    )

    one, two, three, four = (daemon.job(first + number) for number in range(4))
    assert (one["words"], one["num_gpus"], one["env"]) == (["zsh", "-c", "a"], 2, {"A": "1"})
    assert (two["words"], two["num_gpus"], two["env"]) == (["zsh", "-c", "b"], 0, {"B": "1"})
    assert (three["words"], three["command"], three["num_gpus"]) == (["c", "d e"], "c 'd e'", 2)
    assert (four["words"], four["priority"], four["name"]) == (["sh", "-c", "f"], 7, "n")
    assert {job["time_limit_seconds"] for job in (one, two, three, four)} == {60.0}


def test_whatever_can_be_asked_for_comes_back(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    other = daemon.add("true")
    wanted = {
        "command": "true",
        "name": "n",
        "project": "p",
        "workdir": "/tmp",
        "env": {"A": "b"},
        "num_gpus": 1,
        "share": "1/2",
        "vram_bytes": 1024,
        "gpu_type": "",
        "cpus": 1,
        "mem_bytes": 4096,
        "only": ["0"],
        "prefer": ["1"],
        "time_limit_seconds": 3600.0,
        "grace_seconds": 3.0,
        "priority": -5,
        "retries": 2,
        "restartable": True,
        "bind": True,
        "tags": ["x"],
        "after": [{"job": other, "kind": "any"}],
        "begin_at": "2040-01-01T00:00:00.000Z",
        "output": "/tmp/o",
        "notify": "end",
        "checkpoint": {"signal": 10, "seconds": 60.0},
        "once": "k",
        "warm": ["torch", "a.b"],
    }

    number = daemon.add(wanted | {"hold": True, "umask": 0o27, "array": {"task": 4, "most": 2}})

    job = daemon.job(number)
    assert {key: job[key] for key in wanted} == wanted
    assert (job["state"], job["array"]) == ("held", {"id": number, "task": 4, "most": 2})


def test_once_gives_the_job_that_is_there(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    first = daemon.add({"command": "true", "once": "k"})

    again = daemon.try_to_add({"command": "false", "once": "k"})

    assert again.status == 200
    assert again.json == {"first": first, "last": first, "is_new": False, "missing": 0, "notes": []}


# -- bytes -------------------------------------------------------------------------------------------------


def test_text_that_is_no_utf8_comes_back_as_it_went(daemon: DaemonProcess):
    odd = "caf\udce9 \udcff\U0001f600"

    number = daemon.add({"command": f"printf '%s' '{odd}'; printf %s \"$ODD\"", "name": odd, "env": {"ODD": odd}})

    (job,) = daemon.wait(number)
    assert (job["name"], job["env"]["ODD"], job["state"]) == (odd, odd, "succeeded")
    assert daemon.call("GET", f"/v1/jobs/{number}/log").body == (odd * 2).encode("utf-8", "surrogateescape")


def test_sql_in_every_text_is_only_text(shared: DaemonProcess):
    sql = "'; drop table jobs; --"
    shared.post("/v1/pause", {"project": sql})

    number = shared.add({"command": sql, "name": sql, "project": sql, "tags": [sql], "once": sql})

    for filter in ("name", "project", "tag"):
        found = shared.get(f"/v1/jobs?{filter}={quote(sql)}")["jobs"]
        assert [job["id"] for job in found] == [number]
    assert shared.get(f"/v1/find?ref={quote(sql)}") == {"ids": [number]}
    assert shared.job(number)["tags"] == [sql]


# -- what is refused, with nothing stored ------------------------------------------------------------------

NUMBERS = [-1, 1.5, 10**300, True, "1", None, [], {}]


@pytest.mark.parametrize(
    "job",
    [
        *[pytest.param({"command": "x", "num_gpus": value}, id=f"num_gpus {value!r:.9}") for value in NUMBERS],
        *[pytest.param({"command": "x", "priority": v}, id=f"priority {v!r:.9}") for v in NUMBERS if v != -1],
        *[pytest.param({"command": "x", "retries": value}, id=f"retries {value!r:.9}") for value in NUMBERS],
        pytest.param({}, id="no command"),
        pytest.param({"command": ""}, id="an empty command"),
        pytest.param({"command": " \n"}, id="a blank command"),
        pytest.param({"words": []}, id="no words"),
        pytest.param({"words": [""]}, id="an empty word"),
        pytest.param({"command": "a\0b"}, id="NUL in the command"),
        pytest.param({"command": "x", "name": "a\0b"}, id="NUL in the name"),
        pytest.param({"command": "x", "env": {"A": "\0"}}, id="NUL in a variable"),
        pytest.param({"command": "x", "env": {"A=B": "c"}}, id="= in a variable's name"),
        pytest.param({"command": "x", "env": {"": "c"}}, id="a variable without a name"),
        pytest.param({"command": "x", "workdir": "/a\0b"}, id="NUL in the folder"),
        pytest.param({"command": "x", "workdir": "here"}, id="a relative folder"),
        pytest.param({"command": "x", "name": "\ud800"}, id="half a character"),
        pytest.param({"command": "x", "name": "n" * 4096}, id="a long name"),
        pytest.param({"command": "x", "name": "7427"}, id="a number as a name"),
        pytest.param({"command": "x" * 131_072}, id="a long command"),
        pytest.param({"words": ["x", *["y" * 131_000] * 60]}, id="more words than the kernel takes"),
        pytest.param({"command": "x", "comand": "y"}, id="an unknown key"),
        pytest.param({"command": "x", "time_limit_seconds": 0}, id="no time"),
        pytest.param({"command": "x", "time_limit_seconds": -1}, id="negative time"),
        pytest.param({"command": "x", "share": "0"}, id="no share"),
        pytest.param({"command": "x", "share": "2"}, id="two cards as a share"),
        pytest.param({"command": "x", "share": "1/0"}, id="a share by zero"),
        pytest.param({"command": "x", "share": 0.5}, id="a share as a number"),
        pytest.param({"command": "x", "only": ["99"]}, id="a GPU that is not there"),
        pytest.param({"command": "x", "only": ["-1"]}, id="a negative GPU"),
        pytest.param({"command": "x", "only": [""]}, id="a GPU without a name"),
        pytest.param({"command": "x", "only": ["0", "0"]}, id="a GPU twice"),
        pytest.param({"command": "x", "only": ["a b"]}, id="no GPU's name"),
        pytest.param({"command": "x", "num_gpus": 3}, id="more GPUs than there are"),
        pytest.param({"command": "x", "begin_at": "soon"}, id="no moment"),
        pytest.param({"command": "x", "begin_at": "2030-01-01T00:00:00"}, id="a moment without a zone"),
        pytest.param({"command": "x", "after": [{"job": 999_999}]}, id="after a job that is not there"),
        pytest.param({"command": "x", "after": [{"job": 0}]}, id="after job 0"),
        pytest.param({"command": "x", "after": [{"job": 1, "kind": "maybe"}]}, id="after in some way"),
        pytest.param({"command": "x", "retry_on": ["boredom"]}, id="no cause"),
        pytest.param({"command": "x", "warm": ["torch;"]}, id="no module"),
        pytest.param({"command": "x", "umask": 0o1000}, id="no umask"),
        pytest.param({"command": "x", "checkpoint": {"signal": 65, "seconds": 1}}, id="no signal"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_stored(shared: DaemonProcess, job):
    before = shared.get("/v1/status")["counts"]

    reply = shared.try_to_add({"command": "true"}, job)

    assert reply.status in (400, 404)
    assert reply.code in ("bad-input", "no-such-job")
    assert shared.get("/v1/status")["counts"] == before


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"nonsense", id="no JSON"),
        pytest.param(b'{"key": "k", "jobs": [{"command": "x", "command": "y"}]}', id="a key twice"),
        pytest.param(b'{"key": "k", "jobs": [{"command": "x", "priority": NaN}]}', id="NaN"),
        pytest.param(b'{"key": "k", "jobs": [{"command": "x", "grace_seconds": Infinity}]}', id="Infinity"),
        pytest.param(b'{"key": "k", "jobs": [{"command": "x", "grace_seconds": 1e999}]}', id="1e999"),
        pytest.param(b'{"key": "k", "jobs": [{"command": "x", "priority": ' + b"9" * 5000 + b"}]}", id="9..9"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, id="deep and whole"),
        pytest.param(b'\xef\xbb\xbf{"key": "k", "jobs": [{"command": "x"}]}', id="a BOM"),
        pytest.param('{"key": "k", "jobs": [{"command": "x"}]}'.encode("utf-16"), id="UTF-16"),
        pytest.param(b'{"key": "k", "jobs": [{"command": "\xff"}]}', id="raw bytes"),
        pytest.param(b'[{"command": "x"}]', id="a list"),
        pytest.param(b'"text"', id="text"),
        pytest.param(b"null", id="null"),
        pytest.param(b'{"key": "k", "jobs": []}', id="no jobs"),
        pytest.param(b'{"key": "", "jobs": [{"command": "x"}]}', id="no key"),
        pytest.param(b'{"jobs": [{"command": "x"}]}', id="without a key"),
        pytest.param(json.dumps({"key": "k", "jobs": [{"command": "x"}] * 5001}).encode(), id="too many"),
    ],
)
def test_json_that_can_be_read_in_two_ways_is_refused(shared: DaemonProcess, body):
    before = shared.get("/v1/status")["counts"]

    reply = shared.call("POST", "/v1/jobs", body)

    assert (reply.status, reply.code) == (400, "bad-input")
    assert shared.get("/v1/status")["counts"] == before


def test_a_body_that_does_not_say_that_it_is_json_is_refused(shared: DaemonProcess):
    body = json.dumps({"key": "k", "jobs": [{"command": "x"}]}).encode()
    request = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: dibs\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )

    reply = ask(shared.socket, request.encode() + body)

    assert (reply.status, reply.code) == (400, "bad-input")


def test_the_refusal_names_the_job_that_is_meant(shared: DaemonProcess):
    reply = shared.try_to_add({"command": "true"}, {"command": " "})

    assert reply.json["error"]["message"] == "job 2 of this call: the command is empty"


# -- lists -------------------------------------------------------------------------------------------------


def test_a_list_is_read_page_by_page(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    daemon.add(*["true"] * 5, defaults={"name": "n"})

    found, cursor = [], ""
    while True:
        page = daemon.get(f"/v1/jobs?limit=2{cursor}")
        found += [job["id"] for job in page["jobs"]]
        if page["cursor"] is None:
            break
        cursor = f"&cursor={quote(page['cursor'])}"

    assert found == [5, 4, 3, 2, 1]
    assert page["counts"]["queued"] == 5
    assert [job["id"] for job in daemon.get("/v1/jobs?order=oldest&ids=2-3,5")["jobs"]] == [2, 3, 5]
    assert [job["id"] for job in daemon.get("/v1/jobs?order=turn&limit=1")["jobs"]] == [1]
    assert daemon.get("/v1/jobs?state=running,failed")["jobs"] == []
    assert daemon.get("/v1/jobs?user=somebody-else")["jobs"] == []
    assert len(daemon.get("/v1/jobs?since=2020-01-01T00:00:00Z")["jobs"]) == 5
    assert daemon.get(f"/v1/jobs?since={time.time() + 100:.0f}")["jobs"] == []


@pytest.mark.parametrize(
    "query",
    [
        "state=boring",
        "limit=0",
        "limit=1001",
        "limit=x",
        "order=sideways",
        "cursor=x",
        "cursor=nan:1",
        "cursor=1:99999999999999999999999",
        "since=later",
        "ids=a-b",
        "ids=99999999999999999999",
        "array=0",
        "colour=red",
    ],
)
def test_a_question_that_cannot_be_meant_is_refused(shared: DaemonProcess, query):
    reply = shared.call("GET", f"/v1/jobs?{query}")

    assert (reply.status, reply.code) == (400, "bad-input")


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", "99999999999999999999", "%2e%2e", "1%00"])
def test_what_is_no_number_of_a_job_is_refused(shared: DaemonProcess, number):
    replies = [shared.call("GET", f"/v1/jobs/{number}{rest}") for rest in ("", "/log", "/why", "/environment")]

    assert {reply.status for reply in replies} <= {400, 404}
    assert all(reply.code for reply in replies)


def test_a_job_that_is_not_there_is_said_to_be_missing(shared: DaemonProcess):
    replies = [shared.call("GET", f"/v1/jobs/99999{rest}") for rest in ("", "/log", "/why", "/environment")]
    replies += [shared.call("GET", "/v1/find?ref=nobody"), shared.call("GET", "/v1/jobs/wait?ids=99999")]
    replies += [shared.call("PATCH", "/v1/jobs/99999", {"priority": 1})]
    replies += [shared.call("POST", "/v1/jobs/act", {"action": "kill", "ids": [99999]})]

    assert {(reply.status, reply.code) for reply in replies} == {(404, "no-such-job")}


def test_what_is_exported_can_be_added_again(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    daemon.add({"command": "true", "name": "n", "num_gpus": 0, "env": {"A": "b"}}, {"words": ["a", "b c"]})

    lines = [json.loads(line) for line in daemon.call("GET", "/v1/export").body.splitlines()]

    assert [(line["id"], line["state"]) for line in lines] == [(1, "queued"), (2, "queued")]
    for line in lines:
        wanted = {key: value for key, value in line.items() if key not in ("id", "state")}
        again = daemon.job(daemon.add(wanted))
        assert {key: again[key] for key in wanted} == wanted


# -- waiting -----------------------------------------------------------------------------------------------


def test_who_waits_is_told_as_soon_as_the_last_one_is_over(shared: DaemonProcess):
    number = shared.add("true", "sleep 0.3")

    began = time.monotonic()
    jobs = shared.wait(number, number + 1)

    assert [job["state"] for job in jobs] == ["succeeded", "succeeded"]
    assert time.monotonic() - began < PATIENCE / 4  # and not when the wait ends by itself


def test_who_waits_is_told_who_is_not_over_yet(shared: DaemonProcess):
    number = shared.add("true", "sleep 60")
    shared.wait(number)

    found = shared.get(f"/v1/jobs/wait?ids={number}-{number + 1}&timeout_seconds=0.1")

    assert [job["id"] for job in found["jobs"]] == [number]
    assert found["waiting"] == [number + 1]
    shared.post("/v1/jobs/act", {"action": "kill", "ids": [number + 1]})


def test_who_waits_hears_of_a_job_that_is_cancelled_while_it_waits(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    number = daemon.add("true")
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(daemon.wait(number)))
    waiting.start()
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})
    waiting.join(PATIENCE)

    assert [job["state"] for job in answers[0]] == ["cancelled"]


# -- the log -----------------------------------------------------------------------------------------------


def test_a_log_is_read_from_anywhere(shared: DaemonProcess):
    number = shared.add("seq 1 1000; echo oops >&2")
    shared.wait(number)
    whole = "".join(f"{n}\n" for n in range(1, 1001)).encode()

    def read(query: str = ""):
        return shared.call("GET", f"/v1/jobs/{number}/log{query}")

    assert read().body == whole
    assert read("?stream=stderr").body == b"oops\n"
    assert read("?offset=2&limit=4").body == whole[2:6]
    assert read("?offset=99999").body == b""
    assert read("?offset=99999").headers["dibs-offset"] == str(len(whole))
    tail = read("?tail=2")
    assert tail.body == b"999\n1000\n"
    assert tail.headers["dibs-offset"] == str(len(whole) - 9)
    assert tail.headers["dibs-size"] == str(len(whole))
    assert (tail.headers["dibs-state"], tail.headers["dibs-attempt"]) == ("succeeded", "1")
    assert read("?tail=0").body == b""
    assert read("?tail=5000").body == whole
    assert (read("?attempt=7").status, read("?attempt=7").code) == (400, "bad-input")
    assert read("?stream=/etc/passwd").status == 400


def test_a_job_that_has_not_begun_has_an_empty_log(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    number = daemon.add("true")

    reply = daemon.call("GET", f"/v1/jobs/{number}/log")

    assert (reply.status, reply.body, reply.headers["dibs-attempt"]) == (200, b"", "0")


@pytest.mark.parametrize("trick", ["mkfifo", "ln -s /dev/zero", "mkdir"])
def test_what_a_job_puts_in_the_place_of_its_log_blocks_no_reader(shared: DaemonProcess, trick):
    number = shared.add(f'out=$(readlink /proc/self/fd/1); rm "$out"; {trick} "$out"; exit 1')
    shared.wait(number)

    began = time.monotonic()
    reply = shared.call("GET", f"/v1/jobs/{number}/log")

    assert (reply.status, reply.body) == (200, b"")
    assert time.monotonic() - began < PATIENCE / 2


# -- changing ----------------------------------------------------------------------------------------------


def test_jobs_are_held_released_killed_and_tried_again(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    number = daemon.add("true", "true")

    held = daemon.post("/v1/jobs/act", {"action": "hold", "ids": [number]})
    again = daemon.post("/v1/jobs/act", {"action": "hold", "ids": [number]})
    assert held == {"changed": [number], "cancelled": [], "unchanged": [], "left_out": {}}
    assert again["changed"] == []
    assert again["unchanged"][0]["id"] == number
    assert daemon.state(number) == "held"

    assert daemon.post("/v1/jobs/act", {"action": "release", "filter": {}})["changed"] == [number]
    killed = daemon.post("/v1/jobs/act", {"action": "kill", "filter": {"state": ["queued"]}})
    assert sorted(killed["changed"]) == sorted(killed["cancelled"]) == [number, number + 1]
    assert daemon.state(number) == "cancelled"
    assert daemon.post("/v1/jobs/act", {"action": "retry", "filter": {}})["changed"] == [number, number + 1]
    daemon.post("/v1/unpause", {})
    assert {job["state"] for job in daemon.wait(number, number + 1)} == {"succeeded"}


def test_a_job_that_was_told_to_end_says_so_until_it_has_ended(shared: DaemonProcess):
    number = shared.add("trap '' TERM; echo ready; while :; do sleep 0.05; done")
    wait_until(lambda: shared.call("GET", f"/v1/jobs/{number}/log").body == b"ready\n")
    assert not shared.job(number)["is_ending"]

    shared.post("/v1/jobs/act", {"action": "kill", "ids": [number]})
    asked = shared.job(number)
    shared.post("/v1/jobs/act", {"action": "kill", "ids": [number]})

    assert (asked["state"], asked["is_ending"]) == ("running", True)
    (job,) = shared.wait(number)
    assert (job["state"], job["is_ending"]) == ("cancelled", False)


def test_a_signal_reaches_the_job(shared: DaemonProcess):
    number = shared.add("trap 'exit 7' USR1; echo ready; while :; do sleep 0.05; done")
    wait_until(lambda: shared.call("GET", f"/v1/jobs/{number}/log").body == b"ready\n")

    shared.post("/v1/jobs/act", {"action": "kill", "ids": [number], "signal": 10})

    (job,) = shared.wait(number)
    assert job["exit_code"] == 7


@pytest.mark.parametrize(
    "body",
    [
        {"action": "kill"},
        {"action": "kill", "ids": []},
        {"action": "kill", "ids": [1], "filter": {}},
        {"action": "hug", "ids": [1]},
        {"action": "hold", "ids": [1], "signal": 9},
        {"action": "kill", "ids": [1], "signal": 0},
        {"action": "kill", "ids": ["1"]},
        {"action": "kill", "ids": [True]},
    ],
)
def test_an_act_that_cannot_be_meant_is_refused(shared: DaemonProcess, body):
    reply = shared.call("POST", "/v1/jobs/act", body)

    assert (reply.status, reply.code) == (400, "bad-input")


def test_a_job_is_changed_before_it_starts_and_not_after(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    number = daemon.add("false", "true")

    changed = daemon.call(
        "PATCH", f"/v1/jobs/{number}", {"command": "echo new", "priority": 3, "time_limit_seconds": 9}
    )
    moved = daemon.call("PATCH", f"/v1/jobs/{number + 1}", {"top": True})

    assert (changed.status, changed.json["command"], changed.json["priority"]) == (200, "echo new", 3)
    assert changed.json["time_limit_seconds"] == 9
    assert moved.status == 200
    assert [job["id"] for job in daemon.get("/v1/jobs?order=turn")["jobs"]] == [number + 1, number]
    daemon.post("/v1/unpause", {})
    daemon.wait(number, number + 1)
    late = daemon.call("PATCH", f"/v1/jobs/{number}", {"priority": 1})
    assert (late.status, late.code) == (409, "conflict")


def test_whatever_can_be_asked_for_can_be_changed_and_is_there_after_a_rebuild(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    daemon.add("true")
    number = daemon.add("true")
    elsewhere = {"on": "", "on_options": {}}  # this machine: Slurm takes neither GPUs by number nor `warm`
    wishes = {key: value for key, value in request_json(everything()).items() if key != "array"}
    outside = {"image": "", "container_engine": "", "mounts": [], "image_pull": ""}  # no image is here
    wanted = wishes | elsewhere | outside | {"num_gpus": 1, "gpu_type": "", "begin_at": "2040-01-01T00:00:00.000Z"}

    changed = daemon.call("PATCH", f"/v1/jobs/{number}", wanted)

    del wanted["umask"], wanted["hold"]  # its state tells
    assert (changed.status, changed.json.get("state")) == (200, "held"), changed.json
    assert {key: changed.json[key] for key in wanted} == wanted
    daemon.end()
    (daemon.queue / "store.db").unlink()
    for log in ("-wal", "-shm"):
        (daemon.queue / f"store.db{log}").unlink(missing_ok=True)
    assert daemon.world.dibs("doctor", "--rebuild", "--yes").status == 0
    daemon.start()
    assert {key: daemon.job(number)[key] for key in wanted} == wanted
    assert daemon.job(number)["state"] == "held"


@pytest.mark.parametrize(
    "change",
    [
        {"after": [{"job": 2}]},
        {"after": [{"job": 3}]},
        {"after": [{"job": 1}, {"job": 1}]},
        {"checkpoint": {"signal": 10, "seconds": 60}},
        {"warm": ["1a"]},
        {"env": {"A=B": "1"}},
        {"notify": "always"},
        {"name": "17_3"},
        {"array": {"task": 1}},
        {"array": None},
        {"hold": 1},
        {"command": " "},
        {"num_gpus": 9},
        {"top": True, "before": 1},
        {"top": 1},
        {"before": "1"},
        {"state": "succeeded"},
    ],
)
def test_a_change_that_cannot_be_meant_changes_nothing(paused: DaemonProcess, change):
    before = paused.job(2)

    reply = paused.call("PATCH", "/v1/jobs/2", change)

    assert reply.status == 400
    assert reply.code == "bad-input"
    assert paused.job(2) == before


def test_a_chain_of_jobs_runs_in_order_and_ends_where_one_fails(shared: DaemonProcess):
    shared.post("/v1/pause", {})
    numbers = [shared.add("exit 1")]
    for _ in range(3):
        numbers.append(shared.add({"command": "true", "after": [{"job": numbers[-1]}]}))

    shared.post("/v1/unpause", {})

    jobs = shared.wait(*numbers)

    assert jobs[0]["state"] == "failed"
    assert {(job["cause"], job["attempts"]) for job in jobs[1:]} == {("dependency", 0)}


def test_why_a_job_waits_is_one_sentence_everywhere(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    number = daemon.add("true")

    why = daemon.get(f"/v1/jobs/{number}/why")

    assert why["state"] == "queued"
    assert "paused" in why["reason"]["sentence"]
    assert daemon.job(number)["reason"] == why["reason"]


def test_one_request_tells_the_reasons_of_all_that_wait(daemon: DaemonProcess):
    daemon.post("/v1/pause", {})
    first = daemon.add(*["true"] * 3)
    held = daemon.add({"command": "true", "hold": True})

    told = daemon.get("/v1/reasons")
    some = daemon.get("/v1/reasons?limit=2")

    paused = daemon.get(f"/v1/jobs/{first}/why")["reason"]
    assert told["reasons"][0] == {**paused, "jobs": [first, first + 1, first + 2]}
    assert [one["jobs"] for one in told["reasons"][1:]] == [[held]]
    assert [one["jobs"] for one in some["reasons"]] == [[first, first + 1], [held]]
    assert (told["is_partial"], some["is_partial"]) == (False, True)


def test_the_order_by_turn_is_that_of_starting_on_every_page(daemon: DaemonProcess):
    first = daemon.add(*["sleep 60"] * 2)  # one for each of its GPUs
    old = daemon.post("/v1/jobs", {"key": "a", "jobs": [{"command": "a", "project": "a"}] * 3})["first"]
    new = daemon.post("/v1/jobs", {"key": "b", "jobs": [{"command": "b", "project": "b"}]})["first"]

    whole = daemon.get("/v1/jobs?order=turn")["jobs"]
    part = daemon.get("/v1/jobs?order=turn&offset=1&limit=2")["jobs"]

    assert [job["id"] for job in whole] == [old, new, old + 1, old + 2]
    assert [job["id"] for job in part] == [new, old + 1]
    assert daemon.get(f"/v1/jobs/{new}/why")["no_estimate"] == "what holds the GPUs has no time limit"
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [first, first + 1]})


def test_what_would_become_of_a_job_is_told_and_nothing_is_stored(daemon: DaemonProcess):
    fine = daemon.post("/v1/jobs/check", {"jobs": [{"command": "true"}]})
    never = daemon.call("POST", "/v1/jobs/check", {"jobs": [{"command": "true", "num_gpus": 5}]})

    assert len(fine["prospects"]) == 1
    assert (never.status, never.code) == (400, "bad-input")
    assert daemon.get("/v1/jobs")["jobs"] == []


def test_why_a_start_cannot_be_estimated_is_told_before_a_job_is_added(daemon: DaemonProcess):
    first = daemon.add(*["sleep 60"] * 2)  # one for each of its GPUs
    follows = {"command": "true", "num_gpus": 0, "after": [{"job": first, "kind": "ok"}]}

    told = daemon.post("/v1/jobs/check", {"jobs": [{"command": "true"}, follows]})["prospects"]
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [first, first + 1]})
    daemon.wait(first, first + 1)
    three = daemon.post("/v1/jobs/check", {"jobs": [{"command": "true"}] * 3})["prospects"]

    assert [(one["starts_at"], one["no_estimate"]) for one in told] == [
        (None, "what holds the GPUs has no time limit"),
        (None, f"it is not known when job {first} ends"),
    ]
    assert three[2]["no_estimate"] == "another job of this list, which goes first, has no time limit"


def test_old_jobs_are_forgotten_with_their_folders(daemon: DaemonProcess):
    number = daemon.add("echo hi", "sleep 60")
    folder = daemon.wait(number)[0]["folder"]

    removed = daemon.post("/v1/clean", {})

    assert removed == {"removed": 1, "kept": []}
    assert daemon.call("GET", f"/v1/jobs/{number}").status == 404
    wait_until(lambda: daemon.state(number + 1) == "running")
    wait_until(lambda: not Path(folder).exists())
    assert daemon.call("POST", "/v1/clean", {"state": ["running"]}).status == 400
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number + 1]})
