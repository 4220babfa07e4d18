"""Whichever job passes, the head of the line does not start later. Whole histories, in virtual time."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.policy.schedule import impossible, schedule
from examples import examples
from policy.builders import a_job, a_machine
from policy.histories import Arrival, Run, play

SHARES = [None, None, "1", "1/2", "1/3", "1/4", "3/4"]
LIMITS = st.sampled_from([10, 20, 30, 50, 80, 100, 200])


@st.composite
def machines(draw):
    gpus = draw(st.integers(1, 4))
    groups = ()
    if draw(st.integers(0, 4)) == 0:
        cut = draw(st.integers(1, gpus))
        groups = [part for part in (tuple(range(cut)), tuple(range(cut, gpus))) if part]
    memory = draw(st.sampled_from([None, None, 24]))
    return a_machine(gpus, slots=draw(st.integers(1, 2)), groups=groups, memory=memory)


@st.composite
def jobs(draw):
    return a_job(
        draw(st.integers(1, 4)),
        share=draw(st.sampled_from(SHARES)),
        vram=draw(st.sampled_from([None, None, 4, 12])),
        time_limit=draw(st.one_of(st.none(), LIMITS)),
        grace=draw(st.sampled_from([0, 0, 5])),
    )


@st.composite
def runs_before(draw, machine, limits=LIMITS, ends=None):
    """What holds the cards when the history begins: placed by the policy itself, so that it is possible."""
    plan = schedule(machine.with_waiting(*draw(st.lists(jobs(), min_size=1, max_size=6))))
    found = []
    for placement in plan.placements:
        limit = draw(limits)
        ends_at = limit if ends is None else draw(ends)
        found.append(Run(placement.claims, float(min(ends_at, limit or ends_at)), limit and float(limit)))
    return found


@st.composite
def arrivals(draw):
    """Jobs behind the head: they come at any moment, and end at their limit or earlier."""
    job = draw(jobs())
    return Arrival(job, float(draw(st.integers(1, 200))), float(draw(st.integers(0, 60))))


def head_for(draw, machine):
    head = draw(jobs())
    return None if impossible(head.request.wishes, machine.pool) else head


@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_the_head_never_starts_later_because_another_job_passed_it(data):
    machine = data.draw(machines())
    before = data.draw(runs_before(machine))
    head = head_for(data.draw, machine)
    others = data.draw(st.lists(arrivals(), max_size=8))
    if head is None:
        return

    alone = play(machine, before, [Arrival(head, 10.0)])
    among = play(machine, before, [Arrival(head, 10.0), *others])

    assert among[head.id] <= alone[head.id]


@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_whichever_ends_early_the_head_starts_by_the_moment_that_was_promised(data):
    machine = data.draw(machines())
    ends = st.integers(1, 200)
    before = data.draw(runs_before(machine, ends=ends))
    at_their_limits = [Run(run.claims, run.limit_at, run.limit_at) for run in before]
    head = head_for(data.draw, machine)
    others = data.draw(st.lists(arrivals(), max_size=8))
    if head is None:
        return

    promised = play(machine, at_their_limits, [Arrival(head, 10.0)])
    started = play(machine, before, [Arrival(head, 10.0), *others])

    assert started[head.id] <= promised[head.id]


@given(st.data())
@settings(max_examples=examples(200), deadline=None)
def test_a_job_for_every_gpu_is_not_delayed_though_it_is_unknown_when_the_others_end(data):
    gpus = data.draw(st.integers(1, 4))
    machine = a_machine(gpus)
    before = data.draw(runs_before(machine, limits=st.one_of(st.none(), LIMITS), ends=st.integers(1, 200)))
    before = [Run(run.claims, run.limit_at or run.ends_at, run.limit_at) for run in before]
    head = a_job(gpus)
    others = data.draw(st.lists(arrivals(), max_size=8))

    alone = play(machine, before, [Arrival(head, 10.0)])
    among = play(machine, before, [Arrival(head, 10.0), *others])

    assert among[head.id] <= alone[head.id]


@given(st.data())
@settings(max_examples=examples(100), deadline=None)
def test_everything_that_is_possible_starts_in_the_end(data):
    machine = data.draw(machines())
    before = data.draw(runs_before(machine))
    line = [
        one
        for one in data.draw(st.lists(arrivals(), min_size=1, max_size=10))
        if not impossible(one.job.request.wishes, machine.pool)
    ]

    started = play(machine, before, line)

    assert started.keys() == {one.job.id for one in line}


def test_the_histories_do_have_jobs_that_pass():
    """Without it the properties above would be true of a policy that lets no job pass."""
    machine = a_machine(2)
    wide, short = a_job(gpus=2), a_job(time_limit=50)
    (running,) = schedule(a_machine(1).with_waiting(a_job())).placements

    started = play(machine, [Run(running.claims, 60.0, 60.0)], [Arrival(wide, 10.0), Arrival(short, 50.0, 5.0)])

    assert started == {short.id: 5.0, wide.id: 60.0}
