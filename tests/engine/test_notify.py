"""Telling people, without the queue ever waiting for it."""

import http.server
import json
import os
import sys
import threading
import time
import types
from collections import Counter
from contextlib import contextmanager

import pytest

from dibs.engine.queue.notify import Channels, Notifier
from dibs.model.jobs import Cause, Command, Job, JobId, Outcome, Request
from stories.outside import wait_until

GOOD = Outcome(exit_code=0, seconds=1.0)
BAD = Outcome(exit_code=3, cause=Cause.EXIT_CODE, message="it \x1b[31mfell\nover \udcff")


def a_job(number=17, **more):
    return Job(id=JobId(number), request=Request(command=Command.line("train"), **more))


@contextmanager
def a_notifier(output=None, **more):
    """A notifier and what it announces."""
    said = []
    channels = Channels(
        **{name: more.pop(name) for name in ("command", "webhook", "apprise", "on") if name in more}
    )
    sink = os.open(os.devnull if output is None else output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    one = Notifier(channels, said.append, output=sink, **more)
    try:
        yield one, said
    finally:
        one.close()
        wait_until(lambda: not one._workers, show=lambda: one._workers)
        os.close(sink)


@contextmanager
def a_server(*answers):
    """A webhook that gives these answers in turn, and what it was told. `None` is no answer at all."""
    told = []
    left = list(answers)
    held = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status = left.pop(0) if left else 200
            if status is None:
                held.wait(30)
                return
            self.send_response(status)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/hook", told
    finally:
        held.set()
        server.shutdown()
        server.server_close()
        thread.join()


# -- who is told -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "own", "outcome", "will_retry", "is_told"),
    [
        ("failure", "", BAD, False, True),
        ("failure", "", GOOD, False, False),
        ("failure", "", BAD, True, False),
        ("failure", "end", GOOD, False, True),
        ("end", "", GOOD, False, True),
        ("end", "failure", GOOD, False, False),
        ("never", "", BAD, False, False),
        ("never", "failure", BAD, False, True),
    ],
)
def test_a_jobs_own_wish_goes_before_the_setting(on, own, outcome, will_retry, is_told):
    with a_server() as (url, told), a_notifier(webhook=url, on=on) as (notifier, said):
        notifier.job_ended(a_job(notify=own), outcome, will_retry)
        notifier.job_ended(a_job(99, notify="end"), GOOD, False)  # comes after whatever the first one sends

        wait_until(lambda: 99 in [body["job"] for body in told], show=lambda: (told, said))
        wait_until(lambda: len(told) == 1 + is_told or not notifier._workers, show=lambda: told)

    assert sorted(body["job"] for body in told) == ([17, 99] if is_told else [99])


def test_an_empty_queue_is_news_for_those_who_follow_every_end():
    with a_server() as (url, told), a_notifier(webhook=url, on="end") as (notifier, _):
        notifier.queue_is_empty()

        wait_until(lambda: told)

    assert (told[0]["event"], told[0]["text"], told[0]["job"]) == ("queue.empty", "dibs: the queue is empty", None)


# -- a command ---------------------------------------------------------------------------------------------


def test_a_command_knows_everything_about_the_end_and_obeys_nothing_in_it(tmp_path):
    log = tmp_path / "daemon.log"
    shown = 'echo "$DIBS_JOB_ID|$DIBS_JOB_STATE|$DIBS_JOB_NAME|$DIBS_EXIT_CODE|$DIBS_CAUSE|$DIBS_MESSAGE"'
    with a_notifier(log, command=f"{shown}; cat") as (notifier, said):
        notifier.job_ended(a_job(name="$(touch BAD); é \0"), BAD, False)

        wait_until(lambda: log.exists() and log.read_text().endswith("\n"), show=lambda: said)

    assert log.read_text() == "17|failed|$(touch BAD); é  |3|exit code|it \x1b[31mfell over \\udcff\n"
    assert said == []


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path):
    ran = tmp_path / "pid"
    with a_notifier(command=f"sleep 60 & echo $! > {ran}; wait", command_seconds=2) as (notifier, said):
        notifier.job_ended(a_job(), BAD, False)

        wait_until(lambda: said)
        child = int(ran.read_text())
        wait_until(lambda: not _is_alive(child), show=lambda: child)

    assert said == ["the notify command was ended after 2 seconds"]


def test_a_command_that_fails_is_mentioned():
    with a_notifier(command="exit 5") as (notifier, said):
        notifier.job_ended(a_job(), BAD, False)

        wait_until(lambda: said)

    assert said == ["the notify command ended with status 5"]


def test_the_loop_never_waits_for_a_command(tmp_path):
    with a_notifier(command="sleep 60") as (notifier, _):
        begun = time.monotonic()

        for number in range(1000):
            notifier.job_ended(a_job(number), BAD, False)

        assert time.monotonic() - begun < 30.0


def test_leaving_ends_the_commands_that_run(tmp_path):
    ran = tmp_path / "pid"
    with a_notifier(command=f"echo $$ > {ran}; exec sleep 60") as (notifier, said):
        notifier.job_ended(a_job(), BAD, False)
        wait_until(lambda: ran.exists() and ran.read_text())

    wait_until(lambda: not _is_alive(int(ran.read_text())), show=ran.read_text)
    assert said == []


def test_a_storm_of_ends_is_a_few_commands_at_once_and_a_summary(tmp_path):
    gate, log = tmp_path / "gate", tmp_path / "log"
    command = f'echo "$DIBS_EVENT $DIBS_SENTENCE"; until test -e {gate}; do sleep 0.01; done'
    with a_notifier(log, command=command) as (notifier, _):
        for number in range(10_000):
            notifier.job_ended(a_job(number), BAD, False)
        wait_until(lambda: len(notifier._commands) == len(log.read_text().splitlines()) == 4, show=log.read_text)
        workers = len(notifier._workers)

        gate.touch()
        wait_until(lambda: not notifier._workers, show=log.read_text)

    lines = log.read_text().splitlines()
    (summary,) = (line for line in lines if line.startswith("summary"))
    assert workers == 4
    assert Counter(line.split()[0] for line in lines) == {"job.ended": len(lines) - 1, "summary": 1}
    assert len(lines) < 110
    assert summary == f"summary dibs: {10_000 - len(lines) + 1} more messages: {10_000 - len(lines) + 1} failed"


# -- a webhook ---------------------------------------------------------------------------------------------


def test_a_webhook_gets_json_with_a_text_for_people():
    with a_server() as (url, told), a_notifier(webhook=url) as (notifier, said):
        notifier.job_ended(a_job(name="train", project="vision"), BAD, False)

        wait_until(lambda: told, show=lambda: said)

    assert told == [
        {
            "event": "job.ended",
            "text": "dibs: job 17 (train) failed: exit code 3",
            "job": 17,
            "name": "train",
            "project": "vision",
            "state": "failed",
            "exit_code": 3,
            "signal": None,
            "cause": "exit code",
            "message": "it \x1b[31mfell over \\udcff",
            "counts": {},
        }
    ]


def test_a_webhook_that_stumbles_is_tried_again():
    with a_server(500, 503, 200) as (url, told), a_notifier(webhook=url, pause=0.01) as (notifier, said):
        notifier.job_ended(a_job(), BAD, False)

        wait_until(lambda: len(told) == 3 and not notifier._workers, show=lambda: (told, said))

    assert said == []


@pytest.mark.parametrize(("answers", "tries"), [((500,) * 9, 3), ((404,), 1)])
def test_a_webhook_is_given_up_with_a_sentence(answers, tries):
    with a_server(*answers) as (url, told), a_notifier(webhook=url, pause=0.01) as (notifier, said):
        notifier.job_ended(a_job(), BAD, False)

        wait_until(lambda: said)

    assert len(told) == tries
    assert said[0].startswith("cannot notify of job.ended: ")


def test_a_webhook_that_never_answers_is_given_up():
    with (
        a_server(None, None, None) as (url, told),
        a_notifier(webhook=url, webhook_seconds=1, pause=0.01) as (notifier, said),
    ):
        notifier.job_ended(a_job(), BAD, False)

        wait_until(lambda: said)

    assert len(told) == 3
    assert "timed out" in said[0]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "nonsense", "http://127.0.0.1:1/", "http://[broken"])
def test_an_address_that_is_none_is_a_sentence_and_no_more(url):
    with a_notifier(webhook=url, pause=0.01) as (notifier, said):
        notifier.job_ended(a_job(), BAD, False)

        wait_until(lambda: said)

    assert len(said) == 1 and "\n" not in said[0]


# -- apprise -----------------------------------------------------------------------------------------------


def test_where_apprise_is_not_installed_that_is_said_in_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)
    with a_notifier(apprise="ntfy://dibs") as (notifier, said):
        notifier.job_ended(a_job(), BAD, False)

        wait_until(lambda: said)

    assert said == ["cannot notify of job.ended: apprise is not installed (`pip install 'dibs[notify]'`)"]


def test_apprise_is_given_the_sentence(monkeypatch):
    sent = []

    class Messenger:
        def add(self, url):
            return url == "ntfy://dibs"

        def notify(self, **more):
            sent.append(more)
            return True

    monkeypatch.setitem(sys.modules, "apprise", types.SimpleNamespace(Apprise=Messenger))
    with a_notifier(apprise="ntfy://dibs") as (notifier, said):
        notifier.job_ended(a_job(), Outcome(signal=9, cause=Cause.SIGNAL), False)

        wait_until(lambda: sent, show=lambda: said)

    assert sent == [{"title": "dibs", "body": "dibs: job 17 failed: signal 9"}]


def _is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
