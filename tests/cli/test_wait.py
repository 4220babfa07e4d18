"""`dibs wait`: its exit code is the job's."""

import json
import threading
import time

import pytest

from cli.fake_daemon import a_job
from client.fake import Answer, listening
from dibs.client import connection
from dibs.version import __version__
from stories.outside import wait_until


@pytest.mark.parametrize(
    ("job", "status"),
    [
        (a_job(1, "succeeded"), 0),
        (a_job(1, "failed", exit_code=3), 3),
        (a_job(1, "failed", exit_code=None, signal=9, cause="signal"), 137),
        (a_job(1, "timed_out", exit_code=None, signal=15), 124),
        (a_job(1, "cancelled", exit_code=None), 1),
        (a_job(1, "cancelled", exit_code=None, signal=15), 143),
        (a_job(1, "lost", exit_code=None), 1),
    ],
)
def test_the_exit_code_is_the_jobs(daemon, typed, job, status):
    daemon.jobs[1] = job

    assert typed("wait", "1").status == status


def test_of_many_it_is_the_highest(daemon, typed):
    daemon.jobs = {number: a_job(number, "failed", exit_code=number) for number in (1, 5, 3)}

    done = typed("wait", "1-5")

    assert done.status == 5
    assert done.stderr.splitlines()[0] == "job 1 failed (exit 1) after 3m05s"


def test_it_comes_back_when_the_last_one_is_over(daemon, typed):
    daemon.jobs = {1: a_job(1, "succeeded"), 2: a_job(2, "running")}

    def live():
        wait_until(lambda: len(daemon.queries("/v1/jobs/wait")) > 1)
        daemon.jobs[2] = a_job(2, "failed", exit_code=7)

    other = threading.Thread(target=live)
    other.start()
    done = typed("wait", "1", "2")
    other.join()

    assert done.status == 7
    assert [query["ids"] for query in daemon.queries("/v1/jobs/wait")][:2] == ["1-2", "2"]


def test_after_its_own_timeout_it_says_what_still_runs(daemon, typed):
    daemon.jobs = {1: a_job(1, "succeeded"), 2: a_job(2, "running")}

    done = typed("wait", "1", "2", "--timeout", "0.2s")

    assert done.status == 75
    assert done.stderr.splitlines()[-1] == "dibs: job 2 is not over yet"


def test_json_has_those_over_and_those_that_are_not(daemon, typed):
    daemon.jobs = {1: a_job(1, "failed"), 2: a_job(2, "running")}

    done = typed("wait", "1", "2", "--timeout", "0.2s", "--json")

    assert json.loads(done.stdout) == {"jobs": [a_job(1, "failed")], "waiting": [2], "error": None}
    assert done.status == 75


def test_a_timeout_counts_though_the_daemon_does_not_answer_and_its_own_failure_is_told(socket, typed):
    held = threading.Event()

    def answer(asked):
        if asked.target.startswith("/v1/jobs/wait"):
            held.wait(10)
        return Answer({"ids": [1], "version": __version__})

    with listening(socket, answer):
        began = time.monotonic()
        done = typed("wait", "1", "--timeout", "0.3s", "--json")
        seconds = time.monotonic() - began
        held.set()

    assert (done.status, seconds < 2.0) == (69, True)
    told = json.loads(done.stdout)
    assert (told["jobs"], told["waiting"], told["error"]["code"]) == ([], [1], "no-daemon")
    assert "69 is the exit code of `dibs wait` itself" in done.stderr


def test_a_reference_is_looked_up_again_when_the_daemon_is_back(socket, typed, monkeypatch):
    monkeypatch.setattr(connection, "_LOOK_AFTER", 0.1)
    is_back = threading.Event()
    questions = []

    def answer(asked):
        questions.append(asked.target)
        if len(questions) > 4:  # each was given up after a look whether any other is answered
            is_back.set()
        is_back.wait(10)
        return Answer({"ids": [1], "jobs": [a_job(1, "failed", exit_code=3)], "waiting": []})

    with listening(socket, answer):
        done = typed("wait", "@")

    assert (done.status, questions[:3]) == (3, ["/v1/find?ref=%40", "/v1/status", "/v1/find?ref=%40"]), done
    assert "the daemon is away" in done.stderr


def test_a_timeout_counts_for_the_look_up_of_a_reference_too(socket, typed, monkeypatch):
    monkeypatch.setattr(connection, "_LOOK_AFTER", 0.2)
    held = threading.Event()

    def answer(asked):
        held.wait(10)
        return Answer({"ids": [1]})

    with listening(socket, answer):
        began = time.monotonic()
        done = typed("wait", "@", "--timeout", "1s")
        seconds = time.monotonic() - began
        held.set()

    assert (done.status, 1.0 < seconds < 4.0) == (69, True), (done, seconds)
    assert "has not answered for 0 seconds" not in done.stderr


def test_a_job_that_was_cleaned_away_is_not_waited_for_for_ever(daemon, typed):
    daemon.jobs = {1: a_job(1, "succeeded")}

    done = typed("wait", "1", "2")

    assert done.status == 1
    assert "cannot find job 2" in done.stderr
