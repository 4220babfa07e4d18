"""Buckets of time: nothing is counted twice, nothing is lost, and what was held without use is told apart."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.model.card_history import (
    HOLDS_FOR,
    HOURS,
    KEPT,
    MINUTES,
    UNUSED_AFTER,
    CardBuckets,
    CardMoment,
    CardParts,
    HistoryBucket,
    UseSeconds,
    pieces,
)

BEGIN = 1_000_000 * HOURS
HELD = CardParts(job=1.0)
parts = st.builds(
    lambda job, others, lost: CardParts(job=job, others={"ann": others * (1 - job)}, is_lost=lost),
    st.sampled_from([0.0, 0.125, 1.0]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.booleans(),
)
level = st.none() | st.floats(0, 100)
moments = st.lists(
    st.tuples(
        st.floats(0, 2 * MINUTES), st.builds(CardMoment, parts=parts, load=level, memory=level, power=level)
    ),
    max_size=40,
)


def counted(times: Sequence[tuple[float, CardMoment]], at: float = BEGIN) -> tuple[CardBuckets, float, float]:
    """The buckets, the moment of the end, and the seconds that they are of."""
    buckets, seconds = CardBuckets(), 0.0
    for pause, moment in times:
        at += pause
        seconds += buckets.add(at, moment)
    return buckets, at, seconds


def of(buckets: CardBuckets, step: int) -> list[HistoryBucket]:
    return [one for (length, _), one in buckets.unwritten.items() if length == step]


def total(buckets: Sequence[HistoryBucket]) -> UseSeconds:
    found = UseSeconds()
    for one in buckets:
        found.add_part(one.use)
    return found


@given(moments)
def test_every_second_stands_in_one_bucket_of_each_length(times):
    buckets, end, seconds = counted(times)

    assert seconds <= end - BEGIN + 1e-6
    fine, coarse = of(buckets, MINUTES), of(buckets, HOURS)
    assert total(fine).known == pytest.approx(seconds, abs=1e-3)
    assert total(coarse).job == pytest.approx(total(fine).job, abs=1e-3)
    for one in [*fine, *coarse]:
        assert one.at % one.step == 0
        assert one.use.known <= one.step + 1e-3


@given(moments)
def test_a_mean_lies_among_its_readings_and_the_maximum_is_one_of_them(times):
    buckets, *_ = counted(times)

    seen = {moment.load for _, moment in times}
    for one in of(buckets, HOURS):
        if one.load.mean is not None:
            assert one.load.most in seen
            assert -1e-9 <= one.load.mean <= one.load.most + 1e-9


@given(st.floats(0, 1e6), st.floats(0, 1e5), st.sampled_from(list(KEPT)))
def test_the_pieces_of_a_stretch_are_the_stretch(begin, length, step):
    found = list(pieces(begin, begin + length, step))

    assert sum(seconds for _, seconds in found) == pytest.approx(length, abs=1e-3)
    assert [at for at, _ in found] == list(
        range(int(begin // step) * step, int(begin // step) * step + len(found) * step, step)
    )


def test_eight_jobs_with_an_eighth_are_one_card():
    buckets, *_ = counted([(0, CardMoment(parts=CardParts(job=8 * 0.125))), (30, CardMoment(parts=CardParts()))])
    (bucket,) = of(buckets, MINUTES)

    assert bucket.use == UseSeconds(job=30)


def test_an_eighth_leaves_the_rest_idle_and_the_parts_of_others_are_theirs():
    moment = CardMoment(parts=CardParts(job=0.125, others={"ann": 0.5}))
    buckets, *_ = counted([(0, moment), (40, moment)])

    assert of(buckets, MINUTES)[0].use == UseSeconds(job=5, others=20, idle=15)


def test_a_reading_holds_for_a_while_only():
    buckets, _, seconds = counted([(0, CardMoment(parts=HELD)), (10_000, CardMoment(parts=HELD))])

    assert seconds == HOLDS_FOR
    assert total(of(buckets, HOURS)).known == HOLDS_FOR


def test_a_card_that_is_held_without_load_is_unused_after_a_minute_and_at_work_again_at_once():
    idle, busy = CardMoment(parts=HELD, load=0), CardMoment(parts=HELD, load=90)
    times = [(0, busy), *[(10, idle)] * 13, *[(10, busy)] * 3]

    buckets, *_ = counted(times)

    use = total(of(buckets, MINUTES))
    assert use.unused == 130 - UNUSED_AFTER
    assert use.job == 160 - use.unused


def test_no_load_counts_only_where_it_is_known_and_a_job_holds_the_card():
    for moment in (CardMoment(parts=HELD), CardMoment(parts=CardParts(), load=0)):
        buckets, *_ = counted([(10, moment)] * 20)

        assert total(of(buckets, MINUTES)).unused == 0


def test_a_bucket_that_an_earlier_run_began_is_continued():
    earlier = CardBuckets()
    for at in (0, 30):
        earlier.add(BEGIN + at, CardMoment(parts=HELD, load=100))
    later = CardBuckets(earlier.unwritten.values())
    for at in (60, 90):
        later.add(BEGIN + at, CardMoment(parts=CardParts(), load=50))

    (bucket,) = of(later, HOURS)

    assert bucket.use == UseSeconds(job=30, idle=30)
    assert (bucket.load.mean, bucket.load.most) == (75, 100)


def test_a_clock_that_was_set_back_counts_no_second_twice():
    buckets = CardBuckets()
    for at in (0, 30, 60, 5, 35, 65):
        buckets.add(BEGIN + MINUTES + at, CardMoment(parts=HELD))
    for at in (0, 30):
        buckets.add(BEGIN + at, CardMoment(parts=HELD))

    assert all(one.use.known <= one.step for one in of(buckets, MINUTES))


def test_a_store_that_takes_nothing_does_not_fill_the_memory():
    buckets, *_ = counted([(HOLDS_FOR, CardMoment(parts=HELD))] * 12_000)

    assert len(buckets.unwritten) <= 2 * max(KEPT.values())
