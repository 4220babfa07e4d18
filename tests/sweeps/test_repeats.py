"""Repeats of a point, as a pruner sees them."""

import weakref
from collections.abc import Iterator

from dibs.engine.sweeps.repeats import Curves
from dibs.model.sweeps import SweepId, Trial, TrialState


def a_repeat(number: int, state: TrialState = TrialState.OPEN) -> Trial:
    return Trial(sweep=SweepId(1), number=number, point={}, command="", fingerprint="", state=state, repeat_of=3)


def test_a_step_is_judged_by_the_mean_when_all_repeats_that_have_begun_reached_it():
    curves = Curves()
    begun = [a_repeat(3), a_repeat(4)]

    assert curves.judged(begun[0], [(1, 2.0), (2, 4.0)], begun) == []
    assert curves.judged(begun[1], [(1, 6.0)], begun) == [(1, 4.0)]
    assert curves.judged(begun[1], [(1, 8.0)], begun) == []  # the first value of a step counts
    ended = [a_repeat(3), a_repeat(4, TrialState.COMPLETE)]
    assert curves.judged(begun[0], [], ended) == [(2, 4.0)]


def test_the_only_one_that_has_begun_is_judged_alone():
    assert Curves().judged(a_repeat(3), [(1, 2.0)], [a_repeat(3)]) == [(1, 2.0)]


class Value(float):
    """One whose end is seen."""


class Counted(list[Trial]):
    looks = 0

    def __iter__(self) -> Iterator[Trial]:
        self.looks += 1
        return super().__iter__()


def test_a_value_is_forgotten_when_its_step_was_judged():
    curves = Curves()
    two = [a_repeat(3), a_repeat(4)]
    first, second = Value(2.0), Value(4.0)
    kept = [weakref.ref(first), weakref.ref(second)]
    assert curves.judged(two[0], [(1, first), (2, second)], two) == []
    assert curves.judged(two[1], [(1, 6.0)], two) == [(1, 4.0)]

    del first, second
    assert [one() for one in kept] == [None, 4.0]
    assert curves.judged(two[1], [(1, 1.0), (2, 0.0)], two) == [(2, 2.0)]  # each step once


def test_a_look_without_news_does_not_look_at_the_steps_before():
    curves = Curves()
    two = Counted([a_repeat(3), a_repeat(4)])
    curves.judged(two[0], [(step, 1.0) for step in range(100)], two)
    two.looks = 0

    assert curves.judged(two[0], [], two) == []
    assert two.looks <= 1


def test_a_point_that_is_over_is_forgotten():
    curves = Curves()
    one = [a_repeat(3)]
    value = Value(1.0)
    kept = weakref.ref(value)
    curves.judged(a_repeat(4), [(1, value)], one)
    del value
    curves.forget(3)

    assert kept() is None
