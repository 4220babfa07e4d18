"""Which jobs are suspended for an urgent one, and when suspended jobs go on."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.model.gpus import Claim
from dibs.model.jobs import Job
from dibs.policy.placement import Placer
from dibs.policy.preemption import expected_seconds, learned_speed
from dibs.policy.schedule import kind_of, longest, schedule
from dibs.policy.snapshot import WHOLE, CardView, Hold, MoveSpeed, Plan, PreemptibleJob, Snapshot, SuspendedJob
from examples import examples
from policy.builders import GIB, Machine, a_job, a_machine, key, placed


def a_claim(card: int, share: str = "1", vram: int = 0) -> Claim:
    return Claim(gpu=key(card), index=card, share=Fraction(share), vram=vram * GIB)


def preemptible(
    *cards: int,
    share: str = "1",
    vram: int = 0,
    held: float = 20,
    priority: int = 0,
    is_leaving: bool = False,
    ends_at: float | None = None,
    urgent: bool = False,
) -> PreemptibleJob:
    job = a_job(len(cards), priority=priority, urgent=urgent, preemptible=True)
    claims = tuple(a_claim(card, share, vram) for card in cards)
    since = 0.0 if is_leaving else None
    return PreemptibleJob((job.id, 1), job, claims, int(held * GIB), since, ends_at)


def suspended(
    *cards: int, share: str = "1", vram: int = 0, held: float = 20, priority: int = 0, project: str = ""
) -> SuspendedJob:
    job = a_job(len(cards), priority=priority, project=project, preemptible=True)
    return SuspendedJob((job.id, 1), job, tuple(a_claim(card, share, vram) for card in cards), int(held * GIB))


def holding(machine: Machine, *running: PreemptibleJob, free: int | None = 80) -> Machine:
    """The machine with these jobs on it; the cards report so many GiB of free memory."""
    return replace(machine, views=tuple(_with(view, running, free) for view in machine.views))


def _with(view: CardView, running: Sequence[PreemptibleJob], free: int | None) -> CardView:
    ours = [(one, claim) for one in running for claim in one.claims if claim.gpu == view.card.gpu.key]
    return replace(
        view,
        taken=view.taken + sum((claim.share for _, claim in ours), Fraction(0)),
        vram_taken=view.vram_taken + sum(claim.vram for _, claim in ours),
        memory_free=None if free is None else free * GIB,
        holders=(*view.holders, *(f"job {one.job.id}" for one, _ in ours)),
        ends=(*view.ends, *(Hold(claim.share, claim.vram, one.ends_at) for one, claim in ours)),
    )


def told(plan: Plan) -> list[int]:
    """The jobs that are to be suspended."""
    return [one.job.id for one in plan.suspensions]


def resumed(plan: Plan) -> list[int]:
    return [one.job.id for one in plan.resumptions]


# -- who is suspended ----------------------------------------------------------------------------------


def test_an_urgent_job_that_finds_no_card_has_a_preemptible_one_suspended() -> None:
    one = preemptible(0)
    urgent = a_job(urgent=True)

    plan = schedule(holding(a_machine(1), one).with_waiting(urgent, preemptible=[one]))

    assert [(each.key, each.for_job) for each in plan.suspensions] == [(one.key, urgent.id)]
    assert plan.placements == []
    assert [(promise.job.id, [claim.index for claim in promise.claims]) for promise in plan.promises] == [
        (urgent.id, [0])
    ]
    assert plan.reasons[urgent.id].sentence == f"waits for job {one.job.id} to be suspended, about 13s for 20G"


def test_a_job_that_is_not_urgent_has_nothing_suspended() -> None:
    one = preemptible(0)

    assert told(schedule(holding(a_machine(1), one).with_waiting(a_job(priority=9), preemptible=[one]))) == []


def test_an_urgent_job_that_finds_a_free_card_has_nothing_suspended() -> None:
    one, urgent = preemptible(0), a_job(urgent=True)

    plan = schedule(holding(a_machine(2), one).with_waiting(urgent, preemptible=[one]))

    assert (placed(plan), told(plan)) == ({urgent.id: [1]}, [])


def test_the_lowest_priority_goes_then_the_fewest_bytes_then_the_latest_end() -> None:
    low = preemptible(0, priority=-1, held=60)
    small = preemptible(1, held=2)
    soon, late = preemptible(2, held=8, ends_at=100.0), preemptible(3, held=8, ends_at=900.0)
    running = [soon, late, low, small]
    machine = holding(a_machine(4), *running)

    order = []
    while running:
        (job,) = told(schedule(machine.with_waiting(a_job(urgent=True), preemptible=running)))
        order.append(job)
        running = [one for one in running if one.job.id != job]

    assert order == [low.job.id, small.job.id, late.job.id, soon.job.id]


def test_one_job_is_suspended_rather_than_two_smaller_ones() -> None:
    halves = [preemptible(0, share="1/2", held=1), preemptible(0, share="1/2", held=1)]
    whole = preemptible(1, held=30)
    machine = holding(a_machine(2), *halves, whole)

    assert told(schedule(machine.with_waiting(a_job(urgent=True), preemptible=[*halves, whole]))) == [whole.job.id]


def test_two_jobs_of_a_lower_priority_are_suspended_rather_than_one_of_a_higher() -> None:
    halves = [preemptible(0, share="1/2"), preemptible(0, share="1/2")]
    whole = preemptible(1, priority=1, held=1)
    machine = holding(a_machine(2), *halves, whole)

    plan = schedule(machine.with_waiting(a_job(urgent=True), preemptible=[*halves, whole]))

    assert sorted(told(plan)) == sorted(one.job.id for one in halves)


def test_nothing_is_suspended_where_that_does_not_help() -> None:
    one = preemptible(0)
    machine = holding(a_machine(2, busy=[1]), one)
    urgent = a_job(2, urgent=True)

    plan = schedule(machine.with_waiting(urgent, preemptible=[one]))

    assert told(plan) == []
    assert "is held by job 99" in plan.reasons[urgent.id].sentence


def test_nothing_is_suspended_on_a_card_that_other_programs_hold_too() -> None:
    one = preemptible(0, share="1/2")
    machine = holding(a_machine(1, taken={0: "1/2"}), one)
    views = tuple(replace(view, has_others=True) for view in machine.views)

    plan = schedule(replace(machine, views=views).with_waiting(a_job(urgent=True, share="1/2"), preemptible=[one]))

    assert told(plan) == []


def test_an_urgent_job_that_runs_is_not_suspended_for_another() -> None:
    one = preemptible(0, urgent=True)

    assert told(schedule(holding(a_machine(1), one).with_waiting(a_job(urgent=True), preemptible=[one]))) == []


def test_an_urgent_job_waits_for_what_is_being_suspended_already() -> None:
    leaving, other = preemptible(0, is_leaving=True), preemptible(1, held=1)
    urgent = a_job(urgent=True)

    plan = schedule(holding(a_machine(2), leaving, other).with_waiting(urgent, preemptible=[leaving, other]))

    assert told(plan) == []
    assert plan.reasons[urgent.id].sentence.startswith(f"waits for job {leaving.job.id} to be suspended")


def test_the_expected_start_counts_from_the_beginning_of_the_suspension_and_is_unknown_when_that_is_over() -> None:
    def until(now: float) -> float | None:
        leaving, urgent = preemptible(0, is_leaving=True), a_job(urgent=True)
        plan = schedule(holding(a_machine(1), leaving).with_waiting(urgent, preemptible=[leaving], now=now))
        return plan.reasons[urgent.id].until

    assert (round(until(0.0) or 0), round(until(10.0) or 0), until(20.0)) == (13, 13, None)


def test_two_urgent_jobs_do_not_wait_for_the_same_card() -> None:
    leaving, other = preemptible(0, is_leaving=True), preemptible(1)
    jobs = [a_job(urgent=True), a_job(urgent=True)]

    plan = schedule(holding(a_machine(2), leaving, other).with_waiting(*jobs, preemptible=[leaving, other]))

    assert [(one.job.id, one.for_job) for one in plan.suspensions] == [(other.job.id, jobs[1].id)]


def test_the_free_card_of_a_wide_urgent_job_is_kept_while_another_is_suspended() -> None:
    one, small = preemptible(0), a_job()
    urgent = a_job(2, urgent=True)

    plan = schedule(holding(a_machine(2), one).with_waiting(urgent, small, preemptible=[one]))

    assert (told(plan), placed(plan)) == ([one.job.id], {})
    assert plan.reasons[small.id].sentence


def test_room_that_the_urgent_job_leaves_goes_to_nobody_before_it_is_there() -> None:
    one = preemptible(0)
    urgent, small = a_job(urgent=True, share="1/4"), a_job(share="1/4")

    assert placed(schedule(holding(a_machine(1), one).with_waiting(urgent, small, preemptible=[one]))) == {}


def test_a_preemptible_job_on_a_card_that_is_gone_makes_no_room() -> None:
    one, gone = preemptible(0), preemptible(5, held=1)

    plan = schedule(holding(a_machine(1), one).with_waiting(a_job(urgent=True), preemptible=[gone, one]))

    assert told(plan) == [one.job.id]


def test_of_many_small_jobs_no_more_are_suspended_than_needed_though_not_every_set_is_tried() -> None:
    running = [preemptible(card, share="1/8", held=card + part) for card in range(8) for part in range(8)]
    machine = holding(a_machine(8), *running)

    plan = schedule(machine.with_waiting(a_job(2, urgent=True), preemptible=running))

    assert len(told(plan)) == 16


def test_memory_that_a_job_holds_beyond_what_it_booked_counts_as_leaving() -> None:
    one, stays = preemptible(0, share="1/4", vram=20, held=40), preemptible(0, share="1/4", vram=20)
    machine = holding(a_machine(1, memory=80, memory_free={0: 20}), one, stays)

    def suspends(vram: int) -> list[int]:
        urgent = a_job(urgent=True, share="1/2", vram=vram)
        return told(schedule(machine.with_waiting(urgent, preemptible=[one])))

    assert (suspends(60), suspends(61)) == ([one.job.id], [])


def test_no_more_is_suspended_than_the_memory_of_the_machine_takes() -> None:
    first, second = preemptible(0, held=60), preemptible(1, held=60)
    machine = holding(a_machine(2), first, second)
    wide, narrow = a_job(2, urgent=True), a_job(urgent=True)

    for room, job, expected in ((100, wide, 0), (140, wide, 2), (100, narrow, 1)):
        snapshot = machine.with_waiting(job, preemptible=[first, second], memory_to_fill=room * GIB)
        assert len(told(schedule(snapshot))) == expected
    both = machine.with_waiting(narrow, a_job(urgent=True), preemptible=[first, second], memory_to_fill=100 * GIB)
    assert len(told(schedule(both))) == 1


# -- who goes on ---------------------------------------------------------------------------------------


def test_a_suspended_job_goes_on_where_it_was_when_there_is_room() -> None:
    one = suspended(1)

    plan = schedule(holding(a_machine(2)).with_waiting(suspended=[one]))

    assert (resumed(plan), plan.reasons) == ([one.job.id], {})


def test_a_suspended_job_waits_for_its_own_card() -> None:
    one = suspended(1)

    plan = schedule(holding(a_machine(2, busy=[1])).with_waiting(suspended=[one]))

    assert resumed(plan) == []
    assert plan.reasons[one.job.id].sentence == "waits to resume on GPU 1: held by job 99"


def test_a_suspended_job_of_two_cards_names_the_one_that_it_waits_for() -> None:
    one = suspended(0, 1, held=40)

    plan = schedule(holding(a_machine(2, blocked={1: "is drained"})).with_waiting(suspended=[one]))

    assert plan.reasons[one.job.id].sentence == "waits to resume on GPU 0, 1: GPU 1 is drained"


def test_a_job_is_not_restored_into_a_card_with_too_little_free_memory() -> None:
    one = suspended(0, held=20)

    def plan(free: int | None) -> Plan:
        return schedule(holding(a_machine(1), free=free).with_waiting(suspended=[one]))

    assert resumed(plan(22)) == [one.job.id]
    assert (
        plan(21).reasons[one.job.id].sentence
        == "waits to resume on GPU 0: has 21G of free memory, and 21.5G is needed"
    )
    assert "does not tell" in plan(None).reasons[one.job.id].sentence


def test_two_jobs_are_not_restored_into_the_same_free_memory() -> None:
    first, second = suspended(0, share="1/2", held=20), suspended(0, share="1/2", held=20)

    plan = schedule(holding(a_machine(1), free=40).with_waiting(suspended=[first, second]))

    assert resumed(plan) == [first.job.id]


@pytest.mark.parametrize(("priority", "goes_first"), [(-1, True), (0, True), (1, False)])
def test_a_suspended_job_goes_before_waiting_ones_of_its_priority(priority: int, goes_first: bool) -> None:
    one, waiting = suspended(0), a_job(priority=priority)

    plan = schedule(holding(a_machine(1)).with_waiting(waiting, suspended=[one]))

    assert resumed(plan) == ([one.job.id] if goes_first else [])
    assert placed(plan) == ({} if goes_first else {waiting.id: [0]})


def test_an_urgent_job_goes_before_a_suspended_one() -> None:
    one, urgent = suspended(0, priority=9), a_job(urgent=True)

    plan = schedule(holding(a_machine(1)).with_waiting(urgent, suspended=[one]))

    assert (resumed(plan), placed(plan)) == ([], {urgent.id: [0]})


def test_small_jobs_do_not_starve_a_suspended_one() -> None:
    one, small = suspended(0), a_job(share="1/2")

    plan = schedule(holding(a_machine(1, taken={0: "1/2"})).with_waiting(small, suspended=[one]))

    assert (placed(plan), resumed(plan)) == ({}, [])


def test_a_short_job_may_use_the_card_before_the_suspended_one_can() -> None:
    one, short, long = suspended(0), a_job(share="1/2", time_limit=50), a_job(share="1/2", time_limit=500)
    machine = holding(a_machine(1, taken={0: "1/2"}, until={0: 100.0}))

    plan = schedule(machine.with_waiting(long, short, suspended=[one]))

    assert list(placed(plan)) == [short.id]
    assert plan.reasons[one.job.id].until == 100.0


def test_a_suspended_job_of_a_paused_project_stays() -> None:
    one = suspended(0, project="a")

    plan = schedule(holding(a_machine(1)).with_waiting(suspended=[one], paused={"a": ""}))

    assert (resumed(plan), plan.reasons[one.job.id].code) == ([], "paused")


def test_a_suspended_job_that_had_nearly_all_of_a_card_goes_on_once_the_card_is_empty() -> None:
    one = suspended(0, held=78)

    goes_on = schedule(holding(a_machine(1, memory=80), free=80).with_waiting(suspended=[one]))
    waits = schedule(holding(a_machine(1, memory=80), free=78).with_waiting(suspended=[one]))

    assert resumed(goes_on) == [one.job.id]
    assert resumed(waits) == []


def test_a_suspended_job_waits_for_its_cpus_and_they_are_kept_for_it() -> None:
    one = suspended(0)
    one = replace(one, job=a_job(1, cpus=4))
    later = a_job(0, cpus=2)
    machine = holding(a_machine(1))

    waits = schedule(machine.with_waiting(later, suspended=[one], cpus_free=3, room_without_gpu=2))
    goes_on = schedule(machine.with_waiting(later, suspended=[one], cpus_free=5, room_without_gpu=2))

    assert waits.reasons[one.job.id].sentence == "waits to resume on GPU 0: 4 CPUs: 3 free"
    assert (resumed(waits), waits.placements) == ([], [])
    assert (resumed(goes_on), goes_on.placements) == ([one.job.id], [])


# -- how long it takes ---------------------------------------------------------------------------------


def test_the_expected_time_is_that_of_a_measured_card_until_more_is_known() -> None:
    assert round(expected_seconds(20 * GIB, MoveSpeed())) == 13
    assert round(expected_seconds(20 * GIB, MoveSpeed(), resumes=True)) == 4


def test_the_speed_is_learned_from_small_and_large_moves() -> None:
    slow = [(10**9 * size, 1.0 + 2 * size) for size in (1, 10, 40)]
    speed = learned_speed([(0, 1.0), (10**6, 1.0), *slow], [])

    assert expected_seconds(20 * 10**9, speed) == pytest.approx(41.0)
    assert speed.resume == MoveSpeed().resume


@given(st.lists(st.tuples(st.integers(0, 10**12), st.floats(-1, 1e6))), st.integers(0, 10**12))
def test_what_was_learned_never_makes_a_time_that_is_none(moves: list[tuple[int, float]], size: int) -> None:
    speed = learned_speed(moves, moves)

    assert 0 <= expected_seconds(size, speed) < math.inf


# -- properties ----------------------------------------------------------------------------------------

SHARES = ["1", "1/2", "1/4"]


@st.composite
def moments(draw: st.DrawFn) -> Snapshot:
    gpus = draw(st.integers(1, 3))
    free = [WHOLE] * gpus
    running: list[PreemptibleJob] = []
    for card in range(gpus):
        for _ in range(draw(st.sampled_from([0, 0, 1, 2, 3]))):
            share = draw(st.sampled_from(SHARES))
            cards = [card]
            if share == "1" and card + 1 < gpus and free[card + 1] == WHOLE and draw(st.booleans()):
                cards.append(card + 1)
            if any(free[one] < Fraction(share) for one in cards):
                continue
            for one in cards:
                free[one] -= Fraction(share)
            running.append(
                preemptible(
                    *cards,
                    share=share,
                    vram=draw(st.sampled_from([0, 5])) if share != "1" else 0,
                    held=draw(st.sampled_from([0, 5, 20])),
                    priority=draw(st.integers(-1, 1)),
                    is_leaving=draw(st.sampled_from([False, False, True])),
                    ends_at=draw(st.sampled_from([None, 50.0])),
                    urgent=draw(st.sampled_from([False, False, True])),
                )
            )
    machine = holding(a_machine(gpus, memory=80), *running, free=draw(st.sampled_from([80, 80, 10, None])))
    waiting = draw(
        st.lists(
            st.builds(
                a_job,
                st.integers(0, 3),
                urgent=st.booleans(),
                priority=st.integers(-1, 1),
                share=st.sampled_from([None, *SHARES]),
                vram=st.sampled_from([None, None, 5, 40]),
                time_limit=st.sampled_from([None, 20]),
            ),
            max_size=5,
        )
    )
    stopped = draw(
        st.lists(
            st.builds(
                suspended,
                st.integers(0, gpus),  # one of them is gone
                share=st.sampled_from(SHARES),
                held=st.sampled_from([0, 0, 20]),
                priority=st.integers(-1, 1),
            ),
            max_size=6,
        )
    )
    return machine.with_waiting(
        *sorted(waiting, key=lambda job: job.order),
        preemptible=[one for one in running if draw(st.sampled_from([True, True, True, False]))],
        suspended=stopped,
        room_without_gpu=1,
        keep_free=draw(st.sampled_from([0, 0, 1])),
    )


def fits_without(snapshot: Snapshot, gone: Sequence[PreemptibleJob], job: Job) -> bool:
    """Whether a job could start on the machine if these had left, and nothing else waited."""
    table = Placer(replace(snapshot, waiting=()))
    return table.after(gone).place(job.request.wishes, longest(job)) is not None


@settings(max_examples=examples(300))
@given(moments(), st.integers(1, 3), st.sampled_from(SHARES))
def test_never_more_is_suspended_than_an_urgent_job_needs(snapshot: Snapshot, gpus: int, share: str) -> None:
    job = a_job(gpus, share=share, urgent=True)
    snapshot = replace(snapshot, waiting=[job], suspended=())
    plan = schedule(snapshot)

    leaving = [one for one in snapshot.preemptible if one.is_leaving]
    keys = [one.key for one in plan.suspensions]
    victims = [one for one in snapshot.preemptible if one.key in keys]
    others = [one for one in snapshot.preemptible if not one.is_leaving and not one.job.request.urgent]
    assert bool(victims) == (
        not fits_without(snapshot, leaving, job) and fits_without(snapshot, [*leaving, *others], job)
    )
    for spared in victims:
        assert fits_without(snapshot, [*leaving, *victims], job)
        assert not fits_without(snapshot, [*leaving, *(one for one in victims if one is not spared)], job)


@settings(max_examples=examples(300))
@given(moments())
def test_only_preemptible_jobs_that_are_not_urgent_are_suspended_once_and_for_urgent_ones(
    snapshot: Snapshot,
) -> None:
    plan = schedule(snapshot)

    known = {one.key: one for one in snapshot.preemptible}
    urgent = {job.id for job in snapshot.waiting if job.request.urgent}
    for one in plan.suspensions:
        assert not known[one.key].is_leaving and not one.job.request.urgent
        assert one.for_job in urgent and plan.reasons[one.for_job].code == "suspending"
    assert len({one.key for one in plan.suspensions}) == len(plan.suspensions)


@settings(max_examples=examples(300))
@given(moments())
def test_no_share_is_claimed_twice_by_what_starts_and_what_resumes(snapshot: Snapshot) -> None:
    plan = schedule(snapshot)

    taken = {view.card.gpu.key: view.taken for view in snapshot.cards}
    booked = {view.card.gpu.key: view.vram_taken for view in snapshot.cards}
    for one in (*plan.placements, *plan.resumptions):
        for claim in one.claims:
            taken[claim.gpu] += claim.share
            booked[claim.gpu] += claim.vram
    assert all(share <= WHOLE for share in taken.values())
    assert all(size <= 80 * GIB for size in booked.values())


@given(
    st.lists(st.builds(suspended, st.integers(0, 1), share=st.sampled_from(SHARES), held=st.just(0)), max_size=6),
    st.lists(st.builds(a_job, share=st.sampled_from(SHARES), priority=st.integers(0, 1)), max_size=6),
)
def test_what_resumes_and_what_starts_share_empty_cards(stopped: list[SuspendedJob], waiting: list[Job]) -> None:
    machine = holding(a_machine(2))
    plan = schedule(machine.with_waiting(*sorted(waiting, key=lambda job: job.order), suspended=stopped))

    taken = {key(0): Fraction(0), key(1): Fraction(0)}
    for one in (*plan.placements, *plan.resumptions):
        for claim in one.claims:
            taken[claim.gpu] += claim.share
    assert max(taken.values()) <= WHOLE


@settings(max_examples=examples(300))
@given(moments())
def test_every_job_that_waits_and_every_suspended_one_that_stays_has_a_reason(snapshot: Snapshot) -> None:
    plan = schedule(snapshot)

    moving = {one.job.id for one in (*plan.placements, *plan.resumptions)}
    everyone = {*(job.id for job in snapshot.waiting), *(one.job.id for one in snapshot.suspended)}
    assert plan.reasons.keys() == everyone - moving
    assert all(reason.sentence for reason in plan.reasons.values())


@settings(max_examples=examples(300))
@given(moments())
def test_no_job_of_a_lower_or_the_same_priority_delays_a_suspended_one(snapshot: Snapshot) -> None:
    """It resumes with these jobs behind it, or without them: they change nothing."""
    for one in snapshot.suspended:
        precedence = one.job.request.precedence
        before = [job for job in snapshot.waiting if job.request.precedence > precedence]
        alone = schedule(replace(snapshot, waiting=before))
        assert (one in schedule(snapshot).resumptions) == (one in alone.resumptions)


@settings(max_examples=examples(300))
@given(moments())
def test_jobs_that_nobody_may_suspend_and_nothing_suspended_leave_the_plan_as_it_was(snapshot: Snapshot) -> None:
    without = replace(snapshot, suspended=())
    plan = schedule(replace(without, preemptible=()))
    calm = [job for job in snapshot.waiting if not job.request.urgent]

    assert plan.suspensions == [] and plan.resumptions == []
    assert schedule(replace(without, waiting=calm)) == schedule(replace(without, waiting=calm, preemptible=()))


def test_an_urgent_job_is_another_kind_than_one_that_is_not() -> None:
    assert kind_of(a_job().request) != kind_of(a_job(urgent=True).request)


def test_a_suspended_job_without_a_gpu_has_its_place_among_those_without_one_again() -> None:
    stopped = suspended(held=0)
    machine = a_machine(1)

    full = schedule(machine.with_waiting(suspended=[stopped], room_without_gpu=0))
    last = schedule(machine.with_waiting(a_job(0), suspended=[stopped], room_without_gpu=1))

    assert resumed(full) == []
    assert full.reasons[stopped.job.id].sentence == "waits to resume: one of the jobs without a GPU must end first"
    assert (resumed(last), placed(last)) == ([stopped.job.id], {})


def test_nothing_is_learned_from_a_move_during_which_the_clock_was_set_or_that_was_interrupted() -> None:
    assert learned_speed([(20 * GIB, 86400.0), (100, 3600.0)], [(20 * GIB, 86400.0)]) == MoveSpeed()
