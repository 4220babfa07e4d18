"""GPUs that are left to others."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.model.gpus import Claim
from dibs.policy.schedule import impossible, schedule
from examples import examples
from policy.builders import a_job, a_machine, key, placed
from policy.histories import Arrival, Run, play
from policy.test_backfill_properties import LIMITS, arrivals, machines, runs_before
from policy.test_schedule_properties import moments


def plan_of(machine, *jobs, keep_free, in_use=()):
    in_use = frozenset(key(index) for index in in_use)
    return schedule(machine.with_waiting(*jobs, keep_free=keep_free, in_use=in_use))


def test_the_last_untouched_cards_are_left_to_others():
    machine = a_machine(4)
    jobs = [a_job() for _ in range(4)]

    plan = plan_of(machine, *jobs, keep_free=2)

    assert placed(plan) == {jobs[0].id: [0], jobs[1].id: [1]}
    assert plan.reasons[jobs[2].id].code == "min-free"
    assert plan.reasons[jobs[2].id].sentence == "waits: 2 GPUs are left to others (min_free)"


def test_a_card_that_is_in_use_already_is_filled_up():
    machine = a_machine(2, taken={0: "1/2"})
    half, other_half, whole = a_job(share="1/2"), a_job(share="1/2"), a_job()

    plan = plan_of(machine, half, other_half, whole, keep_free=1)

    assert placed(plan) == {half.id: [0]}
    assert plan.reasons[other_half.id].sentence == "waits: 1 GPU is left to others (min_free)"
    assert plan.reasons[whole.id].sentence == (
        "waits for a GPU: GPU 0 is held by job 99; GPU 1 is kept for an earlier job"
    )


def test_cards_that_colleagues_hold_or_compute_on_are_not_those_left_to_them():
    machine = a_machine(4, blocked={0: "is busy (ann, pid 7, 1G)"}, busy=[1])
    first, second = a_job(), a_job()

    plan = plan_of(machine, first, second, keep_free=1)

    assert placed(plan) == {first.id: [2]}


def test_a_card_that_another_program_holds_a_part_of_is_not_one_that_is_left():
    machine = a_machine(3)
    jobs = [a_job() for _ in range(3)]

    plan = plan_of(machine, *jobs, keep_free=1, in_use=[0])

    # How much of 0 is held only the try will tell; of 1 and 2 one is left.
    assert placed(plan) == {jobs[0].id: [0], jobs[1].id: [1]}


def test_a_wide_job_takes_no_more_untouched_cards_than_it_may():
    machine = a_machine(3, taken={0: "1/2"})
    wide = a_job(2, share="1/2")

    plan = plan_of(machine, wide, keep_free=1)

    assert placed(plan) == {wide.id: [1, 0]}


def test_a_group_is_taken_only_where_enough_cards_are_left():
    machine = a_machine(4, groups=[(0, 1), (2, 3)])
    first, second = a_job(2), a_job(2)

    plan = plan_of(machine, first, second, keep_free=1)

    assert placed(plan) == {first.id: [0, 1]}
    assert plan.reasons[second.id].code == "min-free"


def test_small_jobs_do_not_pass_a_wide_one_for_which_too_few_cards_are_left():
    machine = a_machine(5, busy=[0, 1])
    wide, small = a_job(2), a_job()

    plan = plan_of(machine, wide, small, keep_free=2)  # one of three could be taken, and the wide one wants two

    assert placed(plan) == {}
    assert plan.reasons[wide.id].code == "min-free"


def test_small_jobs_do_not_keep_the_cards_in_use_busy_for_ever_while_a_whole_one_waits():
    machine = a_machine(2, taken={0: "1/2"})
    whole, small = a_job(), a_job(share="1/2")

    plan = plan_of(machine, whole, small, keep_free=1)

    assert placed(plan) == {}
    assert plan.reasons[small.id].code == "no-gpu"


def test_no_moment_is_promised_while_cards_are_left_to_others():
    machine = a_machine(2, busy=[0], until={0: 100.0})
    job = a_job()

    plan = plan_of(machine, job, keep_free=1)

    assert plan.reasons[job.id].until is None


@pytest.mark.parametrize(
    ("gpus", "groups", "wanted", "keep_free", "why"),
    [
        (4, (), 4, 1, "it wants 4 GPUs, but 1 of 4 is left to others (min_free)"),
        (4, (), 3, 2, "it wants 3 GPUs, but 2 of 4 are left to others (min_free)"),
        (2, (), 1, 2, "it wants a GPU, but all are left to others (min_free)"),
        (4, [(0, 1), (2, 3)], 1, 3, "it wants a GPU, but 3 of 4 are left to others (min_free)"),
        (4, (), 3, 1, ""),
        (4, (), 0, 4, ""),
        (4, [(0, 1), (2, 3)], 2, 2, ""),
    ],
)
def test_what_could_never_start_beside_them_is_told(gpus, groups, wanted, keep_free, why):
    machine = a_machine(gpus, groups=groups)

    assert impossible(a_job(wanted).request.wishes, machine.pool, keep_free=keep_free) == why


@given(moments(), st.integers(1, 3), st.sets(st.integers(0, 3)))
def test_so_many_untouched_cards_are_never_taken(moment, keep_free, in_use):
    machine, snapshot = moment
    snapshot = replace(snapshot, keep_free=keep_free, in_use=frozenset(map(key, in_use)))

    plan = schedule(snapshot)

    def untouched(views):
        return {
            view.card.gpu.key
            for view in views
            if not view.taken and not view.blocked and view.card.gpu.key not in snapshot.in_use
        }

    before, after = untouched(machine.views), untouched(machine.after(plan).views)
    assert before == after or len(after) >= keep_free
    waiting = {job.id for job in snapshot.waiting}
    assert waiting == plan.reasons.keys() | placed(plan).keys()  # and each that waits has a reason
    assert all(reason.sentence for reason in plan.reasons.values())


@given(st.data())
@settings(max_examples=examples(200), deadline=None)
def test_everything_that_is_not_refused_starts_in_the_end(data):
    machine, keep_free = data.draw(machines()), data.draw(st.integers(1, 2))
    before = data.draw(runs_before(machine))
    line = [
        one
        for one in data.draw(st.lists(arrivals(), min_size=1, max_size=10))
        if not impossible(one.job.request.wishes, machine.pool, keep_free=keep_free)
    ]

    started = play(machine, before, line, keep_free=keep_free)

    assert started.keys() == {one.job.id for one in line}


@st.composite
def half_taken(draw, machine):
    """Jobs that hold a half of some cards, and have a limit."""
    halves = [
        Claim(gpu=view.card.gpu.key, index=view.card.gpu.index, share=Fraction(1, 2))
        for view in machine.views
        if draw(st.booleans())
    ]
    return [Run((claim,), float(limit), float(limit)) for claim in halves if (limit := draw(LIMITS))]


@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_the_head_never_starts_later_because_another_job_passed_it(data):
    machine, keep_free = a_machine(data.draw(st.integers(2, 4))), data.draw(st.integers(1, 2))
    before = data.draw(half_taken(machine))
    head = a_job(data.draw(st.integers(1, 3)))
    others = [
        Arrival(a_job(share="1/2", time_limit=data.draw(st.one_of(st.none(), LIMITS))), 60.0, float(at))
        for at in data.draw(st.lists(st.integers(0, 60), max_size=4))
    ]
    if impossible(head.request.wishes, machine.pool, keep_free=keep_free):
        return

    alone = play(machine, before, [Arrival(head, 10.0)], keep_free=keep_free)
    among = play(machine, before, [Arrival(head, 10.0), *others], keep_free=keep_free)

    assert among[head.id] <= alone[head.id]


@given(moments())
def test_where_nothing_is_left_to_others_nothing_changes(moment):
    _, snapshot = moment

    plan = schedule(replace(snapshot, in_use=frozenset({key(0)})))

    assert placed(plan) == placed(schedule(snapshot))


@given(st.integers(1, 5), st.integers(0, 4), st.integers(1, 4), st.sampled_from(["1", "1/2"]))
def test_what_is_not_refused_starts_on_an_empty_machine(gpus, keep_free, wanted, share):
    machine, job = a_machine(gpus), a_job(wanted, share=share)

    never = impossible(job.request.wishes, machine.pool, keep_free=keep_free)
    plan = plan_of(machine, job, keep_free=keep_free)

    assert bool(placed(plan)) != bool(never)
    assert all(claim.share == Fraction(share) for one in plan.placements for claim in one.claims)
