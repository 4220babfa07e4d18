"""When and where waiting jobs will start."""

import math
import signal
import time
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.model.jobs import ArrayTask, JobId
from dibs.policy.forecast import Line, Prospect, forecast, starting_order
from dibs.policy.schedule import schedule
from examples import examples
from policy.builders import GIB, a_job, a_machine, placed
from policy.histories import Arrival, Run, at, play


def prospects(snapshot, seconds=None):
    """Of every waiting job. `seconds` by job, else 60."""
    return forecast(a_line(snapshot, seconds), [job.id for job in snapshot.waiting])


def a_line(snapshot, seconds=None, **more):
    durations = {} if seconds is None else seconds
    return Line(snapshot=snapshot, durations=lambda job: durations.get(job.id, 60.0), **more)


def test_what_can_start_at_once_starts_now():
    job = a_job(gpus=2)

    found = prospects(a_machine(gpus=2).with_waiting(job, now=1000.0))

    assert found == {job.id: Prospect(1000.0, (0, 1))}


def test_the_next_starts_when_the_first_is_expected_to_end():
    jobs = [a_job() for _ in range(5)]

    found = prospects(a_machine(gpus=2).with_waiting(*jobs, now=1000.0))

    assert [found[job.id].starts_at for job in jobs] == [1000, 1000, 1060, 1060, 1120]
    assert [found[job.id].gpus for job in jobs] == [(0,), (1,), (0,), (1,), (0,)]


def test_a_holder_of_today_ends_at_its_limit():
    job = a_job(vram=50)
    machine = a_machine(
        gpus=1, memory=80, taken={0: "1/2"}, memory_booked={0: 40}, memory_free={0: 10}, until={0: 1500.0}
    )

    found = prospects(machine.with_waiting(job, now=1000.0))

    assert found[job.id] == Prospect(1500.0, (0,))


def test_the_end_of_a_job_without_a_limit_is_unknown_and_the_start_of_what_waits_for_it():
    wide, other = a_job(gpus=2), a_job()

    found = prospects(a_machine(gpus=2, busy=[0]).with_waiting(wide, other, now=1000.0))

    unknown = Prospect(unknown="it is not known when job 99 ends")
    assert found == {wide.id: unknown, other.id: unknown}


def test_where_there_is_neither_a_gpu_nor_room_for_a_job_without_one_there_is_an_answer():
    """`dibs why` stopped the daemon for ever on a machine without GPUs whose room was taken."""
    jobs = [a_job(gpus=0), a_job(gpus=0)]
    line = a_line(replace(a_machine(gpus=0).with_waiting(*jobs, now=1000.0), room_without_gpu=0))

    found = _within_a_second(lambda: forecast(line, [job.id for job in jobs]))
    order = _within_a_second(lambda: starting_order(line))

    assert {one.unknown for one in found.values()} == {"it is not known when what it waits for ends"}
    assert order == [job.id for job in jobs]


def _within_a_second(ask):
    """An endless loop is a failure, not a test that hangs. A second of the processor: the machine may be busy."""

    def give_up(*_):
        raise AssertionError("it is still looking")

    old = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, 1.0)
    try:
        return ask()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, old)


def test_what_does_not_depend_on_the_unknown_is_known():
    unknown, second, third = a_job(only=["0"]), a_job(only=["0"]), a_job(only=["1"])
    machine = a_machine(gpus=2).with_waiting(unknown, second, third, now=1000.0)

    found = prospects(machine, {unknown.id: None})

    assert found[unknown.id].starts_at == 1000
    assert found[second.id] == Prospect(unknown=f"job {unknown.id}, which goes first, has no time limit")
    assert found[third.id].starts_at == 1000


def test_a_job_of_unknown_length_ends_at_its_limit():
    first, second = a_job(time_limit=300, grace=10), a_job()
    machine = a_machine(gpus=1).with_waiting(first, second, now=1000.0)

    assert prospects(machine, {first.id: None})[second.id].starts_at == 1310
    assert prospects(machine, {first.id: 9999.0})[second.id].starts_at == 1310
    assert prospects(machine, {first.id: 100.0})[second.id].starts_at == 1100


def test_a_job_for_later_starts_then_and_others_before_it():
    later, now = a_job(begin=1030.0), a_job()

    found = prospects(a_machine(gpus=1).with_waiting(later, now, now=1000.0))

    assert found[now.id].starts_at == 1000
    assert found[later.id].starts_at == 1060


def test_cpus_memory_room_and_arrays_are_given_back():
    most = ArrayTask(JobId(7), 1, 1)
    jobs = [
        *(a_job(gpus=0, cpus=6) for _ in range(2)),
        *(a_job(gpus=1, mem=40) for _ in range(2)),
        *(a_job(gpus=1, array=most, only=["2"]) for _ in range(2)),
    ]
    machine = a_machine(gpus=3).with_waiting(*jobs, now=0.0, cpus_free=8, mem_free=64 * GIB, room_without_gpu=1)

    found = prospects(machine)

    assert [found[job.id].starts_at for job in jobs] == [0, 60, 0, 60, 0, 60]


def test_paused_projects_have_no_moment():
    job = a_job(project="vision")

    found = prospects(a_machine(gpus=1).with_waiting(job, paused={"vision": ""}))

    assert found[job.id] == Prospect(unknown="it is not known when the pause ends")


def test_a_job_starts_when_what_it_follows_is_expected_to_end():
    first, second, third, runs = a_job(), a_job(), a_job(), JobId(900)
    snapshot = a_machine(gpus=4).with_waiting(first, second, third, now=1000.0)
    line = a_line(snapshot, needs={second.id: [first.id], third.id: [runs]}, ends={runs: 1300.0})

    found = forecast(line, [second.id, third.id])

    assert [found[job.id].starts_at for job in (second, third)] == [1060, 1300]


def test_a_job_that_follows_one_without_a_known_end_has_no_moment():
    job = a_job()
    line = a_line(a_machine(gpus=1).with_waiting(job), needs={job.id: [JobId(900)]})

    assert forecast(line, [job.id]) == {job.id: Prospect(unknown="it is not known when job 900 ends")}


def test_a_job_that_follows_a_running_one_without_a_limit_waits_for_that_one():
    first, job = a_job(), a_job(gpus=0)
    machine = a_machine(gpus=1, busy=[0]).with_waiting(first, job)
    line = Line(
        snapshot=machine, durations=lambda _: None, needs={job.id: [JobId(900)]}, ends={JobId(900): math.inf}
    )

    assert forecast(line, [job.id]) == {job.id: Prospect(unknown="it is not known when job 900 ends")}


def test_the_order_of_starting_is_not_that_of_the_line():
    wide, follower, narrow = a_job(gpus=2), a_job(), a_job(time_limit=10)
    paused, later = a_job(project="vision"), a_job(begin=500.0)
    waiting = [wide, follower, paused, later, narrow]
    machine = a_machine(gpus=2, busy=[0], until={0: 300.0}).with_waiting(*waiting, paused={"vision": ""})
    line = a_line(machine, {job.id: None for job in waiting}, needs={follower.id: [wide.id]})

    order = starting_order(line)

    assert order == [job.id for job in (narrow, wide, follower, later, paused)]


def test_only_the_jobs_that_were_asked_for_are_told_of():
    first, second = a_job(), a_job()
    snapshot = a_machine(gpus=1).with_waiting(first, second)

    found = forecast(a_line(snapshot), [second.id])

    assert found == {second.id: Prospect(60.0, (0,))}


def test_a_job_far_down_the_line_has_no_moment_and_costs_no_time():
    jobs = [a_job(time_limit=100.0 + number % 7) for number in range(3000)]
    snapshot = a_machine(gpus=8).with_waiting(*jobs)
    began = time.process_time()

    found = prospects(snapshot)

    assert found[jobs[499].id].starts_at is not None
    assert found[jobs[500].id] == Prospect(unknown="more than 500 jobs go first")
    assert time.process_time() - began < 5


def test_an_overdue_holder_may_end_at_any_moment():
    job = a_job()

    found = prospects(a_machine(gpus=1, busy=[0], until={0: 900.0}).with_waiting(job, now=1000.0))

    assert found[job.id].starts_at == 1000


@given(st.data())
@settings(max_examples=examples(100), deadline=None)
def test_the_forecast_is_what_happens_if_everything_runs_as_expected(data):
    gpus = data.draw(st.integers(1, 3))
    machine = a_machine(gpus, slots=data.draw(st.integers(1, 2)))
    arrivals = [
        Arrival(
            a_job(
                data.draw(st.integers(1, gpus)),
                time_limit=data.draw(st.sampled_from([None, 50, 100])),
                share=data.draw(st.sampled_from([None, "1/2", "1"])),
            ),
            float(data.draw(st.integers(1, 120))),
        )
        for _ in range(data.draw(st.integers(1, 8)))
    ]
    plan = schedule(machine.with_waiting(a_job(time_limit=30.0)))
    before = [Run(placement.claims, 30.0, 30.0) for placement in plan.placements]

    happened = play(machine, before, arrivals)
    found = prospects(
        at(machine, before).with_waiting(*(one.job for one in arrivals)),
        {one.job.id: one.runs for one in arrivals},
    )

    assert {job: one.starts_at for job, one in found.items()} == happened


def test_the_first_plan_of_a_forecast_is_the_plan():
    jobs = [a_job(gpus=2), a_job(time_limit=5), a_job(share="1/2")]
    snapshot = a_machine(gpus=3, busy=[0], until={0: 50.0}).with_waiting(*jobs)

    now = {job: list(one.gpus) for job, one in prospects(snapshot).items() if one.starts_at == 0}

    assert now == placed(schedule(snapshot))
