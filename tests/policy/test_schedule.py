"""Which job starts where."""

from fractions import Fraction

import pytest

from dibs.model.jobs import Wishes
from dibs.policy.fitting import booking
from dibs.policy.schedule import impossible, schedule
from policy.builders import GIB, a_job, a_machine, placed


def test_each_job_gets_a_card_of_its_own():
    first, second, third = a_job(), a_job(), a_job()
    machine = a_machine(gpus=2)

    plan = schedule(machine.with_waiting(first, second, third))

    assert placed(plan) == {first.id: [0], second.id: [1]}
    assert plan.reasons.keys() == {third.id}


def test_slots_are_filled_card_by_card_before_a_second_job_shares_one():
    jobs = [a_job() for _ in range(4)]
    machine = a_machine(gpus=2, slots={0: 2, 1: 1})

    plan = schedule(machine.with_waiting(*jobs))

    assert placed(plan) == {jobs[0].id: [0], jobs[1].id: [1], jobs[2].id: [0]}
    assert {claim.share for claim in plan.placements[0].claims} == {Fraction(1, 2)}


def test_a_share_books_that_part_of_a_card_whatever_its_slots():
    jobs = [a_job(share="1/3") for _ in range(4)]
    machine = a_machine(gpus=1)

    plan = schedule(machine.with_waiting(*jobs))

    assert len(plan.placements) == 3
    assert sum(claim.share for one in plan.placements for claim in one.claims) == 1


def test_a_job_for_two_gpus_gets_two_different_ones():
    wide = a_job(gpus=2)
    machine = a_machine(gpus=2, slots=2)

    plan = schedule(machine.with_waiting(wide))

    assert placed(plan) == {wide.id: [0, 1]}


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_group_is_given_whole_with_and_without_a_count(gpus):
    job, other = a_job(gpus=gpus), a_job(gpus=gpus)
    machine = a_machine(gpus=4, groups=[(0, 1), (2, 3)])

    plan = schedule(machine.with_waiting(job, other))

    assert placed(plan) == {job.id: [0, 1], other.id: [2, 3]}


def test_a_group_with_one_busy_card_is_not_given_away():
    job = a_job()
    machine = a_machine(gpus=4, busy=[1], groups=[(0, 1), (2, 3)])

    plan = schedule(machine.with_waiting(job))

    assert placed(plan) == {job.id: [2, 3]}


def test_a_job_that_waits_for_a_wide_group_leaves_the_narrow_ones_to_others():
    wide, narrow = a_job(gpus=2), a_job(gpus=1)
    machine = a_machine(gpus=3, busy=[0, 1], groups=[(0, 1), (2,)])

    plan = schedule(machine.with_waiting(wide, narrow))

    assert placed(plan) == {narrow.id: [2]}


def test_only_waits_for_exactly_that_card():
    job = a_job(only=["0"])
    machine = a_machine(gpus=2, busy=[0])

    plan = schedule(machine.with_waiting(job))

    assert placed(plan) == {}
    assert plan.reasons[job.id].sentence == "waits for a GPU: GPU 0 is held by job 99"


def test_only_holds_for_groups_too():
    job = a_job(only=["2", "3"])
    machine = a_machine(gpus=4, groups=[(0, 1), (2, 3)])

    plan = schedule(machine.with_waiting(job))

    assert placed(plan) == {job.id: [2, 3]}


def test_a_preferred_card_is_taken_first_and_another_when_it_is_busy():
    job = a_job(prefer=["1", "2"])

    free = schedule(a_machine(gpus=3).with_waiting(job))
    busy = schedule(a_machine(gpus=3, busy=[1]).with_waiting(job))
    neither = schedule(a_machine(gpus=3, busy=[1, 2]).with_waiting(job))

    assert [placed(plan)[job.id] for plan in (free, busy, neither)] == [[1], [2], [0]]


def test_a_card_may_be_named_by_the_beginning_of_its_key():
    job = a_job(only=["index-1"])

    plan = schedule(a_machine(gpus=2).with_waiting(job))

    assert placed(plan) == {job.id: [1]}


def test_a_wide_job_at_the_head_keeps_the_cards_it_waits_for():
    wide, short = a_job(gpus=2), a_job(gpus=1)
    machine = a_machine(gpus=2, busy=[0])

    plan = schedule(machine.with_waiting(wide, short))

    assert placed(plan) == {}
    assert plan.reasons[short.id].sentence.endswith("GPU 1 is kept for an earlier job")


def test_a_short_job_passes_a_wide_one_on_a_card_that_the_wide_one_does_not_need():
    wide, short = a_job(gpus=2), a_job(gpus=1)
    machine = a_machine(gpus=3, busy=[0, 1])

    plan = schedule(machine.with_waiting(wide, short))

    assert placed(plan) == {}  # GPU 2 is one of the two emptiest: it is the wide job's

    machine = a_machine(gpus=4, busy=[0], taken={1: "1/2", 2: "1/2"}, slots=2)
    wide = a_job(gpus=3, share="1")

    plan = schedule(machine.with_waiting(wide, short))

    assert placed(plan) == {}


def test_a_stream_of_small_jobs_does_not_pass_a_wide_one_for_ever():
    wide = a_job(gpus=3)
    ends_next = [0, 1, 2]
    machine = a_machine(gpus=3, busy=ends_next)

    for ended in range(1, 4):
        machine = a_machine(gpus=3, busy=ends_next[ended:])
        plan = schedule(machine.with_waiting(wide, *[a_job() for _ in range(5)]))

    assert placed(plan)[wide.id] == [0, 1, 2]


def test_what_is_kept_for_a_big_job_is_a_card_that_can_hold_it():
    big, small = a_job(vram=60), a_job(vram=10)
    machine = a_machine(gpus=2, memory=[24, 80], taken={1: "1/2"}, memory_booked={1: 40})

    plan = schedule(machine.with_waiting(big, small, a_job(vram=10), a_job(vram=10)))

    assert placed(plan)[small.id] == [0]
    assert all(indices == [0] for indices in placed(plan).values())


def test_memory_is_booked_against_the_cards_total():
    jobs = [a_job(vram=30) for _ in range(3)]
    machine = a_machine(gpus=1, memory=80)

    plan = schedule(machine.with_waiting(*jobs))

    assert placed(plan) == {jobs[0].id: [0], jobs[1].id: [0]}
    assert plan.placements[0].claims[0].vram == 30 * GIB
    assert plan.placements[0].claims[0].share == Fraction(30, 80)
    assert plan.reasons[jobs[2].id].code == "no-gpu"


def test_memory_that_is_used_but_not_booked_counts_too():
    job = a_job(vram=30)
    machine = a_machine(gpus=1, memory=80, taken={0: "1/8"}, memory_booked={0: 10}, memory_free={0: 20})

    plan = schedule(machine.with_waiting(job))

    assert plan.reasons[job.id].sentence == "waits for a GPU: GPU 0 has 20G of memory left"


def test_memory_that_is_booked_but_not_used_yet_counts_too():
    job = a_job(vram=30)
    machine = a_machine(gpus=1, memory=80, taken={0: "1/2"}, memory_booked={0: 60}, memory_free={0: 79})

    plan = schedule(machine.with_waiting(job))

    assert plan.reasons[job.id].sentence == "waits for a GPU: GPU 0 has 20G of memory left"


def test_jobs_without_a_gpu_run_beside_full_cards_as_far_as_there_is_room():
    first, second, third = (a_job(gpus=0) for _ in range(3))
    machine = a_machine(gpus=1, busy=[0])

    plan = schedule(machine.with_waiting(first, second, third, room_without_gpu=2))

    assert placed(plan) == {first.id: [], second.id: []}
    assert plan.reasons[third.id].code == "no-room"


@pytest.mark.parametrize("groups", [(), [(0, 1)]])
def test_a_job_without_a_gpu_that_waits_keeps_no_card_from_others(groups):
    without, other = a_job(gpus=0), a_job(gpus=2)
    machine = a_machine(gpus=2, groups=groups)

    plan = schedule(machine.with_waiting(without, other, room_without_gpu=0))

    assert placed(plan) == {other.id: [0, 1]}


def test_nothing_starts_on_a_blocked_card_and_the_reason_says_why():
    job = a_job()
    machine = a_machine(gpus=1, blocked={0: "is busy (alice, pid 4711, 3G)"})

    plan = schedule(machine.with_waiting(job))

    assert plan.reasons[job.id].sentence == "waits for a GPU: GPU 0 is busy (alice, pid 4711, 3G)"


def test_a_reason_names_every_holder():
    job = a_job(gpus=2)
    machine = a_machine(gpus=2, busy=[0, 1], holders={0: ("job 3", "job 4"), 1: ("job 7 of alice (pid 4711)",)})

    plan = schedule(machine.with_waiting(job))

    assert plan.reasons[job.id].sentence == (
        "waits for 2 GPUs: GPU 0 is held by job 3 and job 4; GPU 1 is held by job 7 of alice (pid 4711)"
    )


def test_a_card_that_was_given_away_a_moment_ago_has_a_reason_of_its_own():
    first, second = a_job(), a_job()

    plan = schedule(a_machine(gpus=1).with_waiting(first, second))

    assert plan.reasons[second.id].sentence == "waits for a GPU: GPU 0 is about to start another job"


def test_a_pool_that_was_emptied_still_gives_a_reason():
    job = a_job()

    plan = schedule(a_machine(gpus=0).with_waiting(job))

    assert plan.reasons[job.id].sentence == "waits for a GPU: no GPU may be used now"


@pytest.mark.parametrize(
    ("wishes", "why"),
    [
        (Wishes(), ""),
        (Wishes(num_gpus=0), ""),
        (Wishes(num_gpus=2, vram=24 * GIB), ""),
        (Wishes(num_gpus=3), "it wants 3 GPUs, but only 2 may be used (GPU 0, 1)"),
        (Wishes(only=("7",)), "it wants GPU 7 only, which is not among GPU 0, 1"),
        (Wishes(num_gpus=2, only=("0",)), "it wants 2 GPUs, but only 1 may be used (GPU 0)"),
        (Wishes(vram=81 * GIB), "it wants 81G of GPU memory, but the largest card has 80G"),
        (Wishes(num_gpus=2, vram=25 * GIB), "it wants 25G of GPU memory on 2 GPUs, but only 1 has that much"),
        (Wishes(vram=25 * GIB, only=("0",)), "it wants 25G of GPU memory, but the largest card has 24G"),
    ],
)
def test_what_can_never_run_is_told_why(wishes, why):
    pool = a_machine(gpus=2, memory=[24, 80]).pool

    found = impossible(wishes, pool)

    assert found == why


@pytest.mark.parametrize(
    ("wishes", "why"),
    [
        (Wishes(), ""),
        (Wishes(num_gpus=2), ""),
        (Wishes(num_gpus=0), ""),
        (Wishes(only=("2",)), ""),
        (Wishes(only=("0", "1")), ""),
        (Wishes(num_gpus=3), "it wants 3 GPUs, but the groups have 1 or 2"),
        (Wishes(only=("0",)), "it wants GPU 0 only, but no group lies within that"),
        (Wishes(num_gpus=2, only=("2",)), "it wants GPU 2 only, but no group lies within that"),
        (Wishes(num_gpus=2, vram=25 * GIB), "it wants 25G of GPU memory, but the largest card has 24G"),
    ],
)
def test_what_no_group_can_ever_hold_is_told_why(wishes, why):
    pool = a_machine(gpus=3, memory=[24, 24, 80], groups=[(0, 1), (2,)]).pool

    found = impossible(wishes, pool)

    assert found == why


def test_a_declared_card_is_believed_to_have_the_memory():
    pool = a_machine(gpus=1).pool

    found = impossible(Wishes(vram=500 * GIB), pool)

    assert found == ""
    assert booking(pool.cards[0], Wishes(vram=500 * GIB)) == 1
