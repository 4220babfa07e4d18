"""Which job leaves a card before it runs out of memory."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.model.jobs import JobId
from dibs.model.suspensions import Obstacle
from dibs.model.usage import Lesson
from dibs.policy.fitting import first_lesson, with_margin
from dibs.policy.relief import Tenant, room_beside, spare, whom_to_suspend, why_not_back
from dibs.policy.snapshot import MoveRate
from examples import examples

GIB = 1024**3
TOTAL = 141 * GIB
SPEED = MoveRate(2 * GIB, 0.5)


def tenant(job: int, held: float = 20, *, grows: float = 0, may_leave: bool = True, **more) -> Tenant:
    return Tenant(
        key=(JobId(job), 1),
        since=float(job),
        held=int(held * GIB),
        grows=grows * GIB,
        may_leave=may_leave,
        **more,
    )


def leaves(free: float, *tenants: Tenant) -> int | None:
    key = whom_to_suspend(TOTAL, int(free * GIB), tenants, SPEED)
    return None if key is None else key[0]


def test_nobody_leaves_a_card_with_enough_free_memory():
    assert leaves(9, tenant(1), tenant(2), tenant(3)) is None


def test_the_youngest_leaves_where_too_little_is_free():
    assert leaves(8, tenant(2), tenant(3), tenant(1)) == 3


def test_it_leaves_so_early_that_the_others_do_not_take_the_rest_while_it_is_moved():
    # It stands still after half a second, and is gone after 5.5 more: the first one grows by 12 until then.
    assert leaves(20.8, tenant(1, 40, grows=2), tenant(2, 10)) == 2
    assert leaves(20.8, tenant(1, 40, grows=1.9), tenant(2, 10)) is None
    assert leaves(20.8, tenant(1, 40, grows=1.9), tenant(2, 10, grows=1.5)) == 2
    assert leaves(20.8, tenant(1, 40, grows=2), tenant(2, 5)) is None, "it is gone sooner"


def test_who_is_alone_is_left_there_and_meets_the_end_of_the_card_itself():
    assert leaves(0, tenant(1, 140)) is None
    assert leaves(0, tenant(1, 100), tenant(2, 40, is_leaving=True)) is None


def test_only_those_leave_whose_need_is_unknown_and_that_can():
    assert leaves(1, tenant(1), tenant(2, may_leave=False)) == 1
    assert leaves(1, tenant(1, may_leave=False), tenant(2, may_leave=False)) is None
    assert leaves(1, tenant(1), tenant(2, 0)) == 1, "it frees nothing"


def test_what_becomes_free_already_counts_and_what_comes_back_too():
    assert leaves(1, tenant(1), tenant(2), tenant(3, 20, is_leaving=True)) is None
    assert leaves(1, tenant(1), tenant(2), tenant(3, 2, is_leaving=True)) == 2
    assert leaves(20, tenant(1), tenant(2), tenant(3, 15, may_leave=False, comes_back=True)) == 2


TENANTS = st.lists(
    st.builds(
        tenant,
        st.integers(1, 9),
        st.integers(0, 40),
        grows=st.integers(0, 9),
        may_leave=st.booleans(),
        is_leaving=st.booleans(),
    ),
    max_size=9,
    unique_by=lambda one: one.key,
)


@given(TENANTS, st.integers(0, 141))
@settings(max_examples=examples(200))
def test_one_always_stays_and_who_leaves_can(tenants, free):
    staying = {one.key for one in tenants if not one.is_leaving}

    while key := whom_to_suspend(TOTAL, free * GIB, tenants, SPEED):
        (one,) = [each for each in tenants if each.key == key]
        assert one.may_leave and not one.is_leaving
        staying.discard(key)
        assert staying
        tenants = [replace(each, is_leaving=each.is_leaving or each is one) for each in tenants]


def test_who_left_goes_on_when_the_others_have_shown_what_they_need():
    assert why_not_back([True, False]) == "others there still show how much memory they need"
    assert why_not_back([True, True]) == why_not_back([]) == ""
    assert room_beside(TOTAL, 2) > spare(TOTAL)
    assert room_beside(TOTAL, 0) == 0


def test_an_eighth_of_the_card_is_booked_for_each_until_more_is_known():
    lesson = first_lesson(None, [GIB], TOTAL)

    assert lesson is not None
    assert TOTAL // 9 < with_margin(lesson.peak_vram) <= TOTAL // 8


def test_more_is_booked_where_the_first_shows_more():
    assert first_lesson(None, [GIB, 40 * GIB], TOTAL) == Lesson(peak_vram=50 * GIB)


def test_nothing_is_learned_before_the_first_has_used_its_card_and_where_more_is_known():
    known = Lesson(peak_vram=9 * GIB, runs=1)

    assert first_lesson(None, [], TOTAL) is None
    assert first_lesson(known, [20 * GIB], TOTAL) == known
    assert first_lesson(Lesson(needs_card=True), [GIB], TOTAL) == Lesson(needs_card=True)
    stays = Lesson(obstacle=Obstacle.MANAGED_MEMORY)
    assert first_lesson(stays, [GIB], TOTAL) == stays
