"""Whether an ended job is tried again, and when."""

from pathlib import Path

import pytest

from dibs.model.jobs import Cause, Outcome
from dibs.policy.retry import retry_after, retry_names
from dibs.policy.settle import LOST
from policy.builders import a_job

FAILED = Outcome(exit_code=1, cause=Cause.EXIT_CODE)


def test_success_is_never_tried_again():
    job = a_job(retries=3, restartable=True, tries=1)

    assert retry_after(job, Outcome(exit_code=0)) is None


def test_without_retries_a_failure_is_final():
    job = a_job(tries=1)

    assert retry_after(job, FAILED) is None


def test_the_pause_doubles_up_to_a_minute():
    pauses = [retry_after(a_job(retries=10, tries=tries), FAILED) for tries in range(1, 11)]

    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_the_last_of_very_many_retries_is_as_good_as_the_first():
    job = a_job(retries=999_999, tries=5_000)

    assert retry_after(job, FAILED) == 60


def test_after_the_declared_number_of_retries_it_is_over():
    jobs = [a_job(retries=2, tries=tries) for tries in (1, 2, 3)]

    pauses = [retry_after(job, FAILED) for job in jobs]

    assert pauses == [1, 2, None]


@pytest.mark.parametrize("cause", [Cause.STOPPED, Cause.REFUSED, Cause.DEPENDENCY])
def test_what_somebody_ended_or_refused_is_not_tried_again(cause):
    job = a_job(retries=3, restartable=True, tries=1)

    assert retry_after(job, Outcome(cause=cause)) is None


@pytest.mark.parametrize("cause", [Cause.SIGNAL, Cause.TIME_LIMIT, Cause.START_ERROR, Cause.EXIT_CODE])
def test_every_other_failure_is(cause):
    job = a_job(retries=1, tries=1)

    assert retry_after(job, Outcome(cause=cause)) == 1


def test_a_lost_job_is_started_again_only_where_its_owner_said_so():
    jobs = [a_job(tries=1), a_job(tries=1, restartable=True), a_job(tries=1, retries=1), a_job(tries=2, retries=1)]

    pauses = [retry_after(job, LOST) for job in jobs]

    assert pauses == [None, 0, 1, None]


def test_a_job_that_is_lost_again_and_again_waits_longer_each_time_and_not_for_ever():
    pauses = [retry_after(a_job(restartable=True, tries=tries), LOST) for tries in range(1, 103)]

    assert pauses[:9] == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert pauses[98:] == [60, 60, None, None]


@pytest.mark.parametrize(
    ("retry_on", "cause", "again"),
    [
        (["exit-code"], Cause.EXIT_CODE, True),
        (["exit code"], Cause.EXIT_CODE, True),
        (["Exit-Code"], Cause.EXIT_CODE, True),
        (["time-limit", "gpu-oom"], Cause.GPU_OOM, True),
        (["time-limit", "gpu-oom"], Cause.TIME_LIMIT, True),
        (["gpu-oom"], Cause.EXIT_CODE, False),
        (["import-error", "killed"], Cause.IMPORT_ERROR, True),
        (["exit-code"], Cause.IMPORT_ERROR, False),
        (["killed"], Cause.KILLED, True),
        (["signal"], Cause.KILLED, True),
        (["killed"], Cause.SIGNAL, False),
        (["lost"], Cause.LOST, True),
        (["gpu-oom"], Cause.LOST, False),
    ],
)
def test_only_the_causes_that_were_named_are_tried_again(retry_on, cause, again):
    job = a_job(retries=1, tries=1, retry_on=retry_on)

    assert (retry_after(job, Outcome(cause=cause)) is not None) == again


def test_a_restartable_job_is_restarted_whatever_else_it_is_tried_for():
    job = a_job(restartable=True, tries=2, retry_on=["gpu-oom"])

    assert retry_after(job, LOST) == 1


def test_naming_a_cause_does_not_add_retries():
    job = a_job(retries=0, tries=1, retry_on=["lost", "exit-code"])

    assert retry_after(job, FAILED) is None
    assert retry_after(job, LOST) is None


@pytest.mark.parametrize("name", retry_names())
def test_every_name_that_may_be_given_has_a_cause_that_it_means(name):
    again = [cause for cause in Cause if retry_after(a_job(retries=1, retry_on=[name]), Outcome(cause=cause))]

    assert name == again[0].replace(" ", "-")
    assert again[1:] == ([Cause.KILLED] if name == "signal" else [])  # which is a signal, too


@pytest.mark.parametrize("name", retry_names())
def test_every_name_is_told_where_people_look(name):
    root = Path(__file__).parents[2]

    assert f"| `{name}` |" in (root / "docs" / "queue.md").read_text()
    assert (
        f" {name}"
        in (root / "tests" / "data" / "golden" / "dibs-add-help.txt").read_text().split("--retry-on:")[1]
    )
