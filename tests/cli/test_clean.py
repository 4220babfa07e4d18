"""`dibs clean` asks first."""

import json

import pytest

from cli.fake_daemon import a_job


@pytest.fixture(autouse=True)
def some_jobs(daemon):
    daemon.jobs = {1: a_job(1, "succeeded"), 2: a_job(2, "failed"), 3: a_job(3, "running")}


def test_yes_removes_what_was_chosen(daemon, typed):
    done = typed("clean", "--older", "30d", "--state", "succeeded", "--project", "a", "--yes")

    assert daemon.bodies() == [{"older_seconds": 2592000.0, "state": ["succeeded"], "project": "a"}]
    assert done.stderr == "removed 1 job\n"


def test_json_has_the_number(daemon, typed):
    assert json.loads(typed("clean", "--yes", "--json").stdout) == {"removed": 2, "kept": []}


def test_it_says_where_lies_what_jobs_wrote_in_their_copies_of_the_code(daemon, typed):
    daemon.kept = [f"/state/queue/code/{number:032x}" for number in range(3)]

    done = typed("clean", "--yes")

    assert done.stderr == (
        "removed 2 jobs\n"
        "what they wrote in copies of the code (--snapshot) is kept until you delete it:\n"
        + "".join(f"  {folder}\n" for folder in daemon.kept)
    )


def test_without_a_terminal_nobody_can_be_asked(daemon, typed, monkeypatch):
    monkeypatch.setattr("os.isatty", lambda fd: False)

    done = typed("clean")

    assert done.status == 2
    assert "--yes" in done.stderr
    assert daemon.bodies() == []


@pytest.mark.parametrize(("answer", "left"), [("y", [3]), ("n", [1, 2, 3]), ("", [1, 2, 3])])
def test_a_person_is_told_how_many_and_asked(daemon, typed, monkeypatch, answer, left):
    asked = []
    monkeypatch.setattr("os.isatty", lambda fd: fd == 0)
    monkeypatch.setattr("click.confirm", lambda text, **_: asked.append(text) or answer == "y")

    typed("clean")

    assert asked == ["remove 2 jobs, and their output?"]
    assert list(daemon.jobs) == left


def test_of_one_job_its_output_is_removed(daemon, typed, monkeypatch):
    asked = []
    del daemon.jobs[2]
    monkeypatch.setattr("os.isatty", lambda fd: fd == 0)
    monkeypatch.setattr("click.confirm", lambda text, **_: asked.append(text))

    typed("clean")

    assert asked == ["remove 1 job, and its output?"]


def test_what_runs_cannot_be_cleaned_away(daemon, typed):
    done = typed("clean", "--state", "running", "--yes")

    assert done.status == 2
    assert daemon.bodies() == []
