"""Who may pass a job that waits: those who are sure not to delay it."""

import pytest

from dibs.policy.schedule import schedule
from policy.builders import a_job, a_machine, placed

NOON = 43_200.0


def half_busy(**more):
    """Two GPUs. The first is busy until an hour after noon."""
    return a_machine(gpus=2, busy=[0], until={0: NOON + 3600}, **more)


@pytest.mark.parametrize(("limit", "grace", "passes"), [(3600, 0, True), (3590, 10, True), (3591, 10, False)])
def test_a_short_job_passes_a_wide_one_if_it_is_sure_to_end_in_time(limit, grace, passes):
    wide, short = a_job(gpus=2), a_job(time_limit=limit, grace=grace)

    plan = schedule(half_busy().with_waiting(wide, short, now=NOON))

    assert placed(plan) == ({short.id: [1]} if passes else {})


def test_a_job_without_a_limit_does_not_pass():
    wide, other = a_job(gpus=2), a_job()

    plan = schedule(half_busy().with_waiting(wide, other, now=NOON))

    assert placed(plan) == {}
    assert plan.reasons[other.id].sentence.endswith("GPU 1 is kept for an earlier job")


def test_no_job_passes_one_that_waits_for_one_without_a_limit():
    wide, short = a_job(gpus=2), a_job(time_limit=1)

    plan = schedule(a_machine(gpus=2, busy=[0]).with_waiting(wide, short, now=NOON))

    assert placed(plan) == {}


def test_what_is_known_helps_even_where_not_everything_is():
    wide, short, longer = a_job(gpus=3), a_job(time_limit=3600), a_job(time_limit=3601)
    machine = a_machine(gpus=3, busy=[0, 1], until={0: NOON + 3600})

    plan = schedule(machine.with_waiting(wide, longer, short, now=NOON))

    assert placed(plan) == {short.id: [2]}
    assert plan.reasons[wide.id].until is None


def test_a_holder_past_its_limit_may_end_at_any_moment():
    wide, short = a_job(gpus=2), a_job(time_limit=1)

    plan = schedule(half_busy().with_waiting(wide, short, now=NOON + 7200))

    assert placed(plan) == {}


def test_the_cards_that_open_first_are_kept_and_the_others_may_be_used():
    wide, other = a_job(gpus=1, share="1"), a_job(share="1/2")
    machine = a_machine(gpus=2, taken={0: "1/4", 1: "1/2"}, until={0: NOON + 7200, 1: NOON + 60})

    plan = schedule(machine.with_waiting(wide, other, now=NOON))

    assert placed(plan) == {other.id: [0]}


def test_a_job_may_stand_beside_what_is_kept():
    wide, half, third = a_job(gpus=2, share="1/2"), a_job(share="1/2"), a_job(share="1/2")
    machine = a_machine(gpus=2, busy=[0])

    plan = schedule(machine.with_waiting(wide, half, third, now=NOON))

    assert placed(plan) == {half.id: [1]}


@pytest.mark.parametrize(("vram", "fits"), [(40, True), (41, False)])
def test_a_job_stands_beside_what_is_kept_only_if_the_memory_suffices_for_both(vram, fits):
    wide, other = a_job(gpus=2, vram=40), a_job(vram=vram, share="1/8")
    machine = a_machine(gpus=2, busy=[0], memory=80)

    plan = schedule(machine.with_waiting(wide, other, now=NOON))

    assert placed(plan) == ({other.id: [1]} if fits else {})


def test_jobs_of_the_same_plan_count_with_their_limits():
    first, wide, short = a_job(time_limit=600), a_job(gpus=2), a_job(time_limit=600)
    machine = a_machine(gpus=2)

    plan = schedule(machine.with_waiting(first, wide, short, now=NOON))

    assert placed(plan) == {first.id: [0], short.id: [1]}
    assert plan.reasons[wide.id].until == NOON + 600


def test_a_job_of_the_same_plan_without_a_limit_may_end_at_any_moment():
    first, wide, short = a_job(), a_job(gpus=2), a_job(time_limit=1)

    plan = schedule(a_machine(gpus=2).with_waiting(first, wide, short, now=NOON))

    assert placed(plan) == {first.id: [0]}


def test_a_twin_with_a_shorter_limit_has_a_chance_of_its_own():
    wide, longer, short, shorter = (
        a_job(gpus=2),
        a_job(time_limit=7200),
        a_job(time_limit=60),
        a_job(time_limit=30),
    )

    plan = schedule(half_busy().with_waiting(wide, longer, short, shorter, now=NOON))

    assert placed(plan) == {short.id: [1]}
    assert plan.reasons[shorter.id].code == "no-gpu"


def test_the_second_in_line_is_not_passed_by_what_would_delay_it():
    wide, second = a_job(gpus=2, time_limit=600), a_job(time_limit=7200)
    late, early = a_job(share="1/2", time_limit=3601), a_job(share="1/2", time_limit=3600)

    plan = schedule(half_busy().with_waiting(wide, second, late, early, now=NOON))

    assert placed(plan) == {early.id: [1]}


def test_the_second_in_line_knows_when_the_first_will_have_ended():
    wide, second = a_job(gpus=2, time_limit=600), a_job(time_limit=7200)

    plan = schedule(half_busy().with_waiting(wide, second, now=NOON))

    assert plan.reasons[wide.id].until == NOON + 3600
    assert plan.reasons[second.id].until == NOON + 3600 + 600


def test_a_job_that_waits_for_a_group_starts_when_the_first_of_them_is_whole():
    job, single = a_job(gpus=2), a_job(time_limit=100)
    machine = a_machine(
        gpus=5, busy=[0, 2], until={0: NOON + 100, 2: NOON + 900}, groups=[(0, 1), (2, 3), (4,)], slots=2
    )

    plan = schedule(machine.with_waiting(job, single, now=NOON))

    assert plan.reasons[job.id].until == NOON + 100
    assert placed(plan) == {single.id: [4]}


def test_after_many_kinds_of_jobs_no_more_promises_are_worked_out_but_everything_is_still_kept():
    waiting = [a_job(gpus=2, vram=size) for size in range(1, 40)]
    short = a_job(time_limit=60)
    machine = half_busy(memory=80)

    plan = schedule(machine.with_waiting(*waiting, short, now=NOON))

    assert placed(plan) == {}
    assert plan.reasons[waiting[0].id].until == NOON + 3600
    assert plan.reasons[waiting[-1].id].until is None


def test_a_job_for_more_gpus_than_there_are_today_keeps_them_all():
    wide, short = a_job(gpus=3), a_job(time_limit=1)

    plan = schedule(half_busy().with_waiting(wide, short, now=NOON))

    assert placed(plan) == {}


def test_the_memory_that_a_holder_booked_is_free_at_its_end():
    big, short, late = a_job(vram=60), a_job(vram=10, time_limit=300), a_job(vram=30, time_limit=301)
    machine = a_machine(
        gpus=1, memory=80, taken={0: "1/2"}, memory_booked={0: 40}, memory_free={0: 35}, until={0: NOON + 300}
    )

    plan = schedule(machine.with_waiting(big, late, short, now=NOON))

    assert plan.reasons[big.id].until == NOON + 300
    assert placed(plan) == {short.id: [0]}


def test_the_reason_says_who_holds_the_cards_and_until_when():
    wide = a_job(gpus=2)
    machine = half_busy(holders={0: ("job 12 of bob (pid 4711)",)})

    plan = schedule(machine.with_waiting(wide, now=NOON))

    reason = plan.reasons[wide.id]
    assert reason.sentence == "waits for 2 GPUs: GPU 0 is held by job 12 of bob (pid 4711)"
    assert reason.until == NOON + 3600
