"""Repeats of a point, as a pruner sees them."""

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
