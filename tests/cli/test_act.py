"""`dibs kill`, `retry`, `hold`, `release`, `pause` and `unpause`."""

import json

import pytest

from cli.fake_daemon import a_job


@pytest.fixture(autouse=True)
def some_jobs(daemon):
    daemon.jobs = {number: a_job(number, project="a") for number in range(1, 10)}
    daemon.jobs[9] = a_job(9, "failed")


@pytest.mark.parametrize("action", ["kill", "hold", "release", "retry"])
def test_many_jobs_are_named_at_once_and_each_is_meant_once(daemon, typed, action):
    daemon.jobs = {number: a_job(number, "running") for number in range(1, 10)}
    daemon.names = {"train": [7]}

    done = typed(action, "1", "3-5", "4", "train", "@")

    assert daemon.bodies() == [{"action": action, "ids": [1, 3, 4, 5, 7, 9], "signal": None}]
    assert done.status == 0
    assert done.stderr.endswith("6 jobs: 1,3-5,7,9\n")


@pytest.mark.parametrize(("word", "number"), [("TERM", 15), ("sigusr1", 10), ("9", 9), ("64", 64)])
def test_a_signal_has_a_name_or_a_number(daemon, typed, word, number):
    typed("kill", "--signal", word, "1")

    assert daemon.bodies()[0]["signal"] == number


@pytest.mark.parametrize("word", ["0", "65", "-1", "HUPP", "", "1.5", "SIG"])
def test_what_is_no_signal_is_refused(daemon, typed, word):
    assert typed("kill", "--signal", word, "1").status == 2
    assert daemon.calls == []


def test_what_was_left_as_it_is_is_said(daemon, typed):
    daemon.unchanged = {1: "it is over"}
    daemon.jobs[2] = a_job(2, "running")

    some, none = typed("kill", "1", "2"), typed("kill", "1")

    assert (some.status, none.status) == (0, 1)
    assert some.stderr == "ending job 2\ndibs: job 1 was left as it is: it is over\n"
    assert none.stderr == "dibs: job 1 was left as it is: it is over\n"


def test_jobs_that_had_not_started_are_cancelled_and_only_the_others_are_ending(daemon, typed):
    daemon.jobs |= {1: a_job(1, "running"), 2: a_job(2, "submitted"), 3: a_job(3, "held")}

    both, waiting, told = typed("kill", "1-4"), typed("kill", "3"), typed("kill", "1", "3", "--json")

    assert both.stderr == "cancelled 2 jobs: 3-4\nending 2 jobs: 1-2\n"
    assert waiting.stderr == "cancelled job 3\n"
    assert json.loads(told.stdout) == {"changed": [1, 3], "cancelled": [3], "unchanged": []}


def test_a_thousand_that_were_left_do_not_fill_the_screen(daemon, typed):
    daemon.unchanged = dict.fromkeys(range(1, 1000), "it is over")

    done = typed("kill", *map(str, range(1, 1000)))

    assert len(done.stderr.splitlines()) == 11
    assert done.stderr.splitlines()[-1] == "dibs: … and 989 more"


def test_json_has_both(daemon, typed):
    daemon.unchanged = {1: "job 1 is over"}

    done = typed("hold", "1", "2", "--json")

    assert json.loads(done.stdout) == {"changed": [2], "unchanged": [{"id": 1, "why": "job 1 is over"}]}


def test_retry_takes_everything_that_failed_and_leaves_what_was_cancelled_alone(daemon, typed):
    states = {1: "cancelled", 2: "timed_out", 3: "lost", 4: "succeeded"}
    daemon.jobs |= {number: a_job(number, state, project="a") for number, state in states.items()}

    typed("retry", "--failed")
    typed("retry", "--failed", "--project", "a")

    assert [body["ids"] for body in daemon.bodies()] == [[2, 3, 9], [2, 3]]


def test_retry_takes_only_what_failed_since_a_moment(daemon, typed):
    typed("retry", "--failed", "--since", "2026-11-15")

    assert [query["since"] for query in daemon.queries("/v1/jobs")] == ["2026-11-15T00:00:00Z"]


def test_a_dry_run_of_retry_says_which_jobs_are_meant_and_changes_nothing(daemon, typed):
    daemon.jobs |= {number: a_job(number, "failed") for number in range(2, 5)}

    said, told = typed("retry", "--failed", "--dry-run"), typed("retry", "--failed", "--dry-run", "--json")

    assert said.stdout == "would queue again: 4 jobs: 2-4,9\n"
    assert json.loads(told.stdout) == {"jobs": [2, 3, 4, 9]}
    assert daemon.bodies() == []


@pytest.mark.parametrize(
    ("number", "words", "is_asked"), [(20, (), False), (21, (), True), (21, ("--yes",), False)]
)
def test_a_person_is_asked_before_more_than_20_jobs_are_tried_again(
    daemon, typed, monkeypatch, number, words, is_asked
):
    daemon.jobs = {one: a_job(one, "failed") for one in range(1, number + 1)}
    monkeypatch.setattr("os.isatty", lambda fd: fd == 0)
    monkeypatch.setattr("click.confirm", lambda question, **_: False)

    done = typed("retry", "--failed", *words)

    assert done.status == int(is_asked)
    assert bool(daemon.bodies()) != is_asked


def test_where_no_person_is_at_the_terminal_any_number_is_tried_again(daemon, typed):
    daemon.jobs = {one: a_job(one, "failed") for one in range(1, 31)}

    done = typed("retry", "--failed")

    assert (done.status, done.stderr) == (0, "queued again: 30 jobs: 1-30\n")


def test_a_project_is_held_and_released(daemon, typed):
    typed("hold", "--project", "a")
    typed("release", "--project", "a")

    assert [body["filter"] for body in daemon.bodies()] == [
        {"state": ["queued"], "project": "a"},
        {"state": ["held"], "project": "a"},
    ]


@pytest.mark.parametrize(
    "words",
    [
        *(("kill",), ("retry",), ("retry", "--project", "a"), ("retry", "1", "--failed"), ("hold", "")),
        *(("retry", "1", "--dry-run"), ("retry", "1", "--since", "2h")),
    ],
)
def test_it_must_be_clear_which_jobs_are_meant(daemon, typed, words):
    done = typed(*words)

    assert done.status == 2
    assert daemon.bodies() == []


def test_the_daemons_own_refusal_is_told(daemon, typed):
    daemon.refusal = (503, "store-unusable", "the disk is full")

    done = typed("kill", "1")

    assert done.status == 1
    assert done.stderr == "dibs: error: the disk is full\n  try something else\n"


@pytest.mark.parametrize(
    ("words", "path", "body"),
    [
        (["pause"], "/v1/pause", {}),
        (["unpause"], "/v1/unpause", {}),
        (["pause", "--project", "a"], "/v1/pause", {"project": "a"}),
        (["unpause", "-P", "a"], "/v1/unpause", {"project": "a"}),
        (["pause", "--gpu", "1"], "/v1/gpus/act", {"action": "drain", "gpus": ["1"]}),
        (["unpause", "--gpu", "0,1"], "/v1/gpus/act", {"action": "undrain", "gpus": ["0", "1"]}),
    ],
)
def test_the_queue_a_project_or_a_gpu(daemon, typed, words, path, body):
    done = typed(*words)

    assert [(called, sent) for method, called, _, sent in daemon.calls if method == "POST"] == [(path, body)]
    assert done.status == 0
    assert done.stderr


def test_a_project_that_no_job_has_is_paused_and_that_is_told(daemon, typed):
    daemon.jobs = {1: a_job(1, project="vision"), 2: a_job(2, project="text")}

    typo, known = typed("pause", "-P", "vison"), typed("pause", "-P", "vision")

    assert typo.status == 0
    assert typo.stderr == (
        "project vison is paused: what runs goes on\ndibs: no job has this project yet; did you mean vision?\n"
    )
    assert "no job" not in known.stderr


def test_json_tells_whether_it_changed(daemon, typed):
    assert json.loads(typed("pause", "--json").stdout) == {"changed": True}


@pytest.mark.parametrize("words", [["--project", "a", "--gpu", "1"], ["--project", ""], ["--gpu", "x y"]])
def test_what_cannot_be_meant_is_refused(daemon, typed, words):
    assert typed("pause", *words).status == 2
    assert daemon.calls == []
