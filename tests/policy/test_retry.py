"""Whether an ended job is tried again, and when."""

import pytest

from dibs.model.jobs import Cause, Outcome
from dibs.policy.retry import retry_after
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


@pytest.mark.parametrize("cause", [Cause.STOPPED, Cause.REFUSED])
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
