"""Urgent jobs go before all others, and keep their own order among themselves."""

from hypothesis import given
from hypothesis import strategies as st

from dibs.model.jobs import Job
from dibs.policy.schedule import fair_order
from policy.builders import a_job

JOBS = st.lists(
    st.builds(
        a_job,
        priority=st.integers(-999_999, 999_999),
        urgent=st.booleans(),
        project=st.sampled_from(["", "a", "b"]),
    ),
    max_size=12,
)


def test_an_urgent_job_goes_before_one_of_the_highest_priority() -> None:
    first, urgent = a_job(priority=999_999), a_job(priority=-999_999, urgent=True)

    assert sorted([first, urgent], key=lambda job: job.order) == [urgent, first]


def test_the_turns_of_projects_do_not_put_another_job_before_an_urgent_one() -> None:
    urgent, other = a_job(project="greedy", urgent=True), a_job(project="modest", priority=7)

    assert fair_order([other, urgent], {"greedy": 9.0, "modest": 0.0}) == [urgent, other]


def test_urgent_jobs_of_one_priority_take_turns() -> None:
    a, again, b = (a_job(project=project, urgent=True) for project in ("a", "a", "b"))

    assert fair_order([a, again, b], {}) == [a, b, again]


@given(JOBS)
def test_every_urgent_job_goes_first_and_among_equals_the_priority_decides(jobs: list[Job]) -> None:
    for found in (sorted(jobs, key=lambda job: job.order), fair_order(jobs, {})):
        keys = [(not job.request.urgent, -job.request.priority) for job in found]
        assert keys == sorted(keys)
