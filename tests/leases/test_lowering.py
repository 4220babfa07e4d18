"""An attempt that needs less than it took: others see it, and nobody's lock is touched."""

from dataclasses import replace
from fractions import Fraction

from leases.claims import a_claim, busy, some_leases, took


def test_what_is_given_up_can_be_taken_by_others(folder):
    ours, others = some_leases(folder), some_leases(folder)
    lease = took(ours)
    assert busy(others, a_claim(share="1/2"))

    assert ours.lower([a_claim(share="1/4")], folder="/runs/1")

    took(others, a_claim(share="3/4"))
    assert busy(others, a_claim(share="1/10")).holders[0].share == Fraction(1, 4)
    lease.close()


def test_everything_else_in_the_record_stays(folder):
    ours = some_leases(folder)
    lease = took(ours)
    (before,) = ours.holders()

    ours.lower([replace(a_claim(share="1/4"), vram=9)], folder="/runs/1")

    (after,) = ours.holders()
    assert after == replace(before, share=Fraction(1, 4), vram=9)
    lease.close()


def test_an_engine_that_did_not_take_it_can_lower_it_too(folder):
    lease = took(some_leases(folder))

    assert some_leases(folder).lower([a_claim(share="1/4")], folder="/runs/1")

    assert some_leases(folder).holders()[0].share == Fraction(1, 4)
    lease.close()


def test_another_attempts_claim_is_left_alone(folder):
    ours = some_leases(folder)
    lease = took(ours, a_claim(share="1/2"))

    assert ours.lower([a_claim(share="1/4")], folder="/runs/2")

    assert ours.holders()[0].share == Fraction(1, 2)
    lease.close()
