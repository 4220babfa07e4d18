"""`dibs edit`: only what was named is sent."""

import json

import pytest

from cli.fake_daemon import a_job


@pytest.fixture(autouse=True)
def some_jobs(daemon):
    daemon.jobs = {number: a_job(number, env={"A": "1", "B": "b"}) for number in range(1, 10)}
    daemon.jobs[3]["array"] = {"id": 3, "task": 7, "most": 2}


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (["--priority", "5"], {"priority": 5}),
        (["--priority", "-5"], {"priority": -5}),
        (
            ["--name", "x", "-P", "a", "--tag", "p", "--tag", "q"],
            {"name": "x", "project": "a", "tags": ["p", "q"]},
        ),
        (
            ["-n", "2", "--vram", "18G", "--share", "0.5"],
            {"num_gpus": 2, "vram_bytes": 18 << 30, "vram": None, "share": "1/2"},
        ),
        (["--vram", "auto:12G"], {"vram_bytes": 12 << 30, "vram": "auto"}),
        (["--vram", "none", "--only", "none", "-t", "none"], None),
        (["-t", "2h", "--grace", "30s"], {"time_limit_seconds": 7200.0, "grace_seconds": 30.0}),
        (["--only", "0,1", "--prefer", "1"], {"only": ["0", "1"], "prefer": ["1"]}),
        (
            ["--gpu-type", "h200", "--cpus", "4", "--mem", "8G"],
            {"gpu_type": "h200", "cpus": 4, "mem_bytes": 8 << 30},
        ),
        (["--retries", "2", "--restartable"], {"retries": 2, "restartable": True}),
        (["--no-restartable"], {"restartable": False}),
        (["--hold"], {"hold": True}),
        (["--no-hold"], {"hold": False}),
        (["--once", "nightly"], {"once": "nightly"}),
        (["--once", "none"], {"once": ""}),
        (["--array-limit", "4"], {"array": {"task": 7, "most": 4}}),
        (["--array-limit", "none"], {"array": {"task": 7, "most": None}}),
        (["--top"], {"top": True}),
        (["--before", "7"], {"before": 7}),
        (["--tag", "none"], {"tags": []}),
        (["--begin", "none"], {"begin_at": None}),
        (["--begin", "2030-01-31 22:00"], {"begin_at": "2030-01-31T22:00:00Z"}),
        (["--notify", "never"], {"notify": "never"}),
        (["--notify", "none"], {"notify": ""}),
        (["--warm", "torch,a.b"], {"warm": ["torch", "a.b"]}),
        (["--retries", "1", "--retry-on", "lost,exit-code"], {"retries": 1, "retry_on": ["lost", "exit code"]}),
        (["--checkpoint-signal", "USR1@60"], {"checkpoint": {"signal": 10, "seconds": 60.0}}),
        (["--env", "A=2", "--env", "C="], {"env": {"A": "2", "B": "b", "C": ""}}),
        (["--env", "none", "--env", "C=3"], {"env": {"C": "3"}}),
        (["--after", "1,2"], {"after": [{"job": 1, "kind": "ok"}, {"job": 2, "kind": "ok"}]}),
        (
            ["--after-any", "1", "--after-fail", "2"],
            {"after": [{"job": 1, "kind": "any"}, {"job": 2, "kind": "fail"}]},
        ),
        (["--after", "none"], {"after": []}),
        (
            ["--warm", "none", "--retry-on", "none", "--checkpoint-signal", "none"],
            {"warm": [], "retry_on": [], "checkpoint": None},
        ),
        (["-C", "/tmp", "-o", "/usr/a.log"], {"workdir": "/tmp", "output": "/usr/a.log"}),
        (["--name", ""], {"name": ""}),
        (["--", "python", "a b.py"], {"words": ["python", "a b.py"], "command": "python 'a b.py'"}),
        (
            ["--", "python a.py | tee log"],
            {"words": ["bash", "-c", "python a.py | tee log"], "command": "python a.py | tee log"},
        ),
        (
            ["--shell", "sh", "--", "python a.py | tee log"],
            {"words": ["sh", "-c", "python a.py | tee log"], "command": "python a.py | tee log"},
        ),
    ],
)
def test_what_was_named_is_sent_and_nothing_else(daemon, typed, words, sent):
    done = typed("edit", "3", *words)

    wanted = {"vram_bytes": None, "vram": None, "only": [], "time_limit_seconds": None} if sent is None else sent
    assert daemon.bodies("PATCH") == [wanted]
    assert (done.status, done.stderr) == (0, "changed job 3\n")


def test_several_that_go_to_the_top_stand_there_as_they_were_named(daemon, typed):
    typed("edit", "3", "5", "--top")

    assert [path for method, path, _, _ in daemon.calls if method == "PATCH"] == ["/v1/jobs/5", "/v1/jobs/3"]


def test_json_is_the_job(daemon, typed):
    assert json.loads(typed("edit", "3", "--priority", "5", "--json").stdout) == a_job(
        3, priority=5, env={"A": "1", "B": "b"}, array={"id": 3, "task": 7, "most": 2}
    )


def test_a_line_is_given_to_another_shell(daemon, typed):
    daemon.jobs[3] = a_job(3, command="a | b", words=["bash", "-c", "a | b"])

    assert typed("edit", "3", "--shell", "sh").status == 0

    assert daemon.bodies("PATCH") == [{"words": ["sh", "-c", "a | b"], "command": "a | b"}]


def test_words_that_no_shell_reads_have_no_other(daemon, typed):
    daemon.jobs[3] = a_job(3, command="python a.py", words=["python", "a.py"])

    done = typed("edit", "3", "--shell", "sh")

    assert (done.status, daemon.bodies("PATCH")) == (2, [])
    assert "job 3 is no line for a shell" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        *([], ["--"], ["--top", "--before", "2"], ["--priority", "1.5"], ["--vram", "0"], ["--cpus", "0"]),
        *(["--retry-on", "luck"], ["--env", "A"], ["--warm", "1a"], ["--notify", "always"], ["--after", ","]),
        *(["--once", ""], ["--array-limit", "0"], ["--array-limit", ""], ["5", "--once", "k"]),
        *(["4", "--array-limit", "2"], ["--array", "1-3"]),
        *(["--checkpoint-signal", "LOUD@60"], ["--after", "1", "--after-any", "1"], ["-C", "/not/there"]),
    ],
)
def test_what_cannot_be_meant_changes_nothing(daemon, typed, words):
    assert typed("edit", "3", *words).status == 2
    assert daemon.bodies("PATCH") == []


def test_of_several_those_that_have_started_stay_as_they_are_and_are_named(daemon, typed):
    daemon.jobs[4]["state"] = "running"

    done = typed("edit", "3-5", "--priority", "5")

    assert (done.status, done.stderr.splitlines()) == (
        0,
        ["changed 2 jobs: 3,5", "dibs: cannot change job 4: it is running"],
    )


def test_a_job_that_has_started_is_refused_by_the_daemon(daemon, typed):
    daemon.refusal = (409, "conflict", "cannot change job 3: it runs already")

    done = typed("edit", "3", "--priority", "5")

    assert done.status == 1
    assert "it runs already" in done.stderr
