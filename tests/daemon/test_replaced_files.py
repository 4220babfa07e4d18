"""A job replaces files in its own folder: the daemon answers, and the job is shown, ended and cleaned up."""

import json
import os
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from daemon.daemon_process import DaemonProcess
from dibs.daemon.logs.output import read
from dibs.worker_thread import wait_in_thread
from stories.outside import PATIENCE, wait_until

REPLACEMENTS = ("mkfifo record", "mkdir record")  # tests/supervise has more kinds


def replacing(trick: str, then: str = "sleep 600") -> dict[str, Any]:
    line = f'cd "$(dirname "$DIBS_METRICS")"; sleep 0.1; rm record; {trick}; echo ready; {then}'
    return {"command": line, "grace_seconds": 5.0, "num_gpus": 0}


def output(daemon: DaemonProcess, number: int) -> bytes:
    return daemon.call("GET", f"/v1/jobs/{number}/log").body


def start(daemon: DaemonProcess, then: str = "sleep 600") -> list[int]:
    """One job for each trick, once its record is replaced."""
    first = daemon.add(*(replacing(trick, then) for trick in REPLACEMENTS))
    numbers = list(range(first, first + len(REPLACEMENTS)))
    wait_until(
        lambda: all(output(daemon, number) == b"ready\n" for number in numbers),
        show=lambda: [output(daemon, number) for number in numbers],
    )
    return numbers


def test_jobs_that_replaced_their_records_are_shown_and_killed(daemon: DaemonProcess):
    numbers = start(daemon)

    shown = [daemon.job(number) for number in numbers]
    listed = daemon.get("/v1/jobs")["jobs"]
    killed = daemon.post("/v1/jobs/act", {"action": "kill", "ids": numbers})

    assert [one["state"] for one in shown] == ["running"] * 2
    assert [one["state"] for one in listed] == ["running"] * 2
    assert killed == {"changed": numbers, "cancelled": [], "unchanged": [], "left_out": {}}
    assert [one["state"] for one in daemon.wait(*numbers)] == ["cancelled"] * 2


def test_the_end_of_a_job_that_replaced_its_record_is_known_to_the_daemon_that_started_it(daemon: DaemonProcess):
    first = daemon.add(*(replacing(trick, "exit 3") for trick in REPLACEMENTS))

    ended = daemon.wait(*range(first, first + len(REPLACEMENTS)))

    assert [(one["state"], one["exit_code"]) for one in ended] == [("failed", 3)] * 2


def test_the_next_daemon_adopts_jobs_that_replaced_their_records(daemon: DaemonProcess):
    numbers = start(daemon, "while [ ! -e ../../../end ]; do sleep 0.05; done")
    killed, *others = numbers
    daemon.kill()
    daemon.start()

    states = [daemon.state(number) for number in numbers]
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [killed]})
    daemon.wait(killed)
    (daemon.queue / "end").touch()
    ended = daemon.wait(*others)
    checked = daemon.world.dibs("doctor", "--json", timeout=PATIENCE)
    cleaned = daemon.post("/v1/clean", {"older_seconds": 0})

    assert states == ["running"] * 2
    assert [one["state"] for one in ended] == ["lost"]
    assert "record" not in json.dumps(json.loads(checked.stdout))
    assert cleaned == {"removed": 2, "kept": []}
    assert not list((daemon.queue / "attempts").glob("*/*"))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_in_the_place_of_the_mark_of_a_cut_blocks_no_reader(tmp_path: Path, make: Any):
    (tmp_path / "stdout").write_bytes(b"hello\n")
    make(tmp_path / "stdout.cut")

    piece = wait_in_thread(lambda: read(str(tmp_path / "stdout"), 0, 100, None), PATIENCE, "test")

    assert piece.content == b"hello\n"


def test_a_link_in_the_place_of_a_log_is_not_followed(daemon: DaemonProcess):
    secret = daemon.world.folder / "secret"
    secret.write_text("the secret\n")
    link = f"ln -sf {quote(str(secret))}"
    number = daemon.add(f'cd "$(dirname "$DIBS_METRICS")"; {link} stdout; {link} stderr')
    (ended,) = daemon.wait(number)

    answers = [
        daemon.call("GET", f"/v1/jobs/{number}/log{way}stream={stream}").body
        for way in ("?", "/raw?", "/lines?", "/search?q=secret&")
        for stream in ("stdout", "stderr")
    ]

    assert Path(ended["folder"], "stdout").read_text() == "the secret\n"
    assert not [answer for answer in answers if b"the secret" in answer]
    shown = daemon.world.dibs("log", str(number))
    sentence, remedy = shown.stderr.splitlines()
    assert (shown.status, shown.stdout) == (1, "")
    assert sentence.startswith(f"dibs: error: cannot show the output of job {number}: ")
    assert sentence.endswith("/stdout was replaced, it is a symbolic link")
    assert remedy == "  `ls -l` shows what is there; jobs can change the files in their folders"


def test_the_record_of_another_attempt_is_not_shown_as_its_own(daemon: DaemonProcess):
    first = daemon.add("echo here")
    daemon.wait(first)
    go_on = "while [ ! -e ../../../go ]; do sleep 0.02; done"
    copy = f"cat ../{first}.1/record > record"
    number = daemon.add(f'cd "$(dirname "$DIBS_METRICS")"; {go_on}; {copy}; echo copied; sleep 600')
    wait_until(lambda: daemon.job(number)["attempts_list"][-1]["pid"])  # its own record is whole
    (daemon.queue / "go").touch()
    wait_until(lambda: output(daemon, number) == b"copied\n")

    (shown,) = daemon.job(number)["attempts_list"]
    (own,) = daemon.job(first)["attempts_list"]

    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})
    assert None not in (own["pid"], own["cpu_seconds"], own["max_rss_bytes"])
    assert (shown["pid"], shown["cpu_seconds"], shown["max_rss_bytes"]) == (None, None, None)
