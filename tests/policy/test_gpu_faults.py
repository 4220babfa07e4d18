"""Whether a card is broken, whose fault a failure was, and when a card that was taken out is tested."""

from datetime import UTC, datetime

import pytest

from dibs.model.gpus import CardState, Gpu, GpuFault, GpuReading, Reading
from dibs.model.jobs import Cause, Outcome
from dibs.policy.gpu_faults import (
    LONGEST_PAUSE,
    CardTests,
    after_test,
    as_gpu_fault,
    broken_cards,
    fault_of_card,
    fault_of_program,
    may_be_gpu_fault,
    next_test,
    program_faults,
    reason_for,
    with_detail,
)

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def a_reading(*faults, **cards):
    """`a_reading((79, "g0"), g0=0, g1=None)`: Xids, and of each card its errors; `lost` where it is lost."""
    return Reading(
        at=NOON,
        gpus=tuple(
            GpuReading(gpu=Gpu(key=key, index=index), state=CardState.LOST)
            if errors == "lost"
            else GpuReading(gpu=Gpu(key=key, index=index), ecc_uncorrected=errors)
            for index, (key, errors) in enumerate(cards.items())
        ),
        faults=tuple(GpuFault(gpu, xid) for xid, gpu in faults),
    )


@pytest.mark.parametrize("xid", [46, 48, 62, 64, 74, 79, 94, 95, 119, 120, 140, 143, 171])
def test_an_xid_that_asks_for_a_reset_or_a_repair_is_the_cards(xid):
    assert broken_cards(None, a_reading((xid, "g1"), g0=0, g1=0)) == {"g1": fault_of_card(xid)}
    assert fault_of_card(xid).startswith(f"Xid {xid}: ")
    assert not fault_of_program(xid)


@pytest.mark.parametrize("xid", [13, 31, 43, 69, 109])
def test_an_xid_that_a_program_causes_is_no_cards(xid):
    reading = a_reading((xid, "g1"), g0=0, g1=0)

    assert broken_cards(None, reading) == {}
    assert program_faults(reading) == {"g1": fault_of_program(xid)}


@pytest.mark.parametrize("xid", [45, 63, 92, 154, 9999])
def test_an_xid_that_only_reports_has_no_cause(xid):
    reading = a_reading((xid, "g1"), g0=0, g1=0)

    assert (broken_cards(None, reading), program_faults(reading)) == ({}, {})


def test_a_memory_error_without_a_number_is_the_cards():
    assert broken_cards(None, a_reading((None, "g0"), g0=0)) == {
        "g0": "its memory has an error that cannot be corrected"
    }


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (0, 1, "its memory has 1 new error that cannot be corrected"),
        (3, 5, "its memory has 2 new errors that cannot be corrected"),
        (3, 3, None),
        (3, 0, None),  # the driver was loaded again
        (None, 5, None),  # their age is unknown
        (3, None, None),
    ],
)
def test_errors_that_grow_are_the_cards(before, now, why):
    found = broken_cards(a_reading(g0=before), a_reading(g0=now))

    assert found == ({"g0": why} if why else {})


def test_what_was_there_before_we_looked_counts_for_nothing():
    assert broken_cards(None, a_reading(g0=7)) == {}


def test_a_card_breaks_once_when_it_is_lost():
    fine, gone = a_reading(g0=0, g1=0), a_reading(g0=0, g1="lost")

    assert broken_cards(fine, gone) == {"g1": "it does not answer any more"}
    assert broken_cards(None, gone) == {"g1": "it does not answer any more"}
    assert broken_cards(gone, gone) == {}


def test_an_xid_says_more_than_what_follows_from_it():
    assert broken_cards(a_reading(g0=0), a_reading((48, "g0"), g0=1)) == {"g0": fault_of_card(48)}


@pytest.mark.parametrize("cause", [Cause.EXIT_CODE, Cause.SIGNAL, Cause.KILLED])
def test_what_ends_on_a_broken_card_without_a_reason_of_its_own_ends_of_it(cause):
    outcome = Outcome(exit_code=1, cause=cause, seconds=7)

    assert may_be_gpu_fault(outcome)
    assert as_gpu_fault(outcome, "1", fault_of_card(79)) == Outcome(
        exit_code=1, cause=Cause.GPU_FAULT, seconds=7, message="GPU 1 failed: Xid 79: it has fallen off the bus"
    )


@pytest.mark.parametrize("cause", sorted({*Cause, None} - {Cause.EXIT_CODE, Cause.SIGNAL, Cause.KILLED}, key=str))
def test_what_succeeded_or_has_a_reason_of_its_own_does_not(cause):
    assert not may_be_gpu_fault(Outcome(cause=cause))


def test_what_a_program_did_is_added_to_what_is_known():
    bare, told = Outcome(cause=Cause.SIGNAL, signal=6), Outcome(cause=Cause.EXIT_CODE, message="it says")

    assert with_detail(bare, fault_of_program(31)).message == (
        "the driver reported Xid 31: an illegal memory access by the program"
    )
    assert with_detail(told, "Xid 13: x").message == "it says; the driver reported Xid 13: x"


@pytest.mark.parametrize(
    ("at", "found"), [(99.0, None), (100.0, ("g1", "why")), (149.0, ("g1", "why")), (119.0, None)]
)
def test_a_card_is_blamed_for_what_happened_while_the_attempt_ran_and_shortly_before_its_end(at, found):
    since, now = (100.0, 110.0) if at < 110 else (100.0, 150.0)

    assert reason_for({"g1": (at, "why")}, ["g0", "g1"], since=since, now=now, seconds=30) == found
    assert reason_for({"g2": (at, "why")}, ["g0", "g1"], since=since, now=now, seconds=30) is None


# -- tests -------------------------------------------------------------------------------------------------


def test_the_pause_before_a_test_doubles_up_to_a_day():
    tried, since, pauses = CardTests(), 1_000_000.0, []

    for _ in range(10):
        at = next_test(since, tried, 600)
        pauses.append(at - max(since, tried.last))
        tried = after_test(since, tried, at)

    assert pauses == [600, 1200, 2400, 4800, 9600, 19200, 38400, 76800, LONGEST_PAUSE, LONGEST_PAUSE]


def test_a_card_that_passes_and_fails_its_jobs_again_comes_back_less_and_less_often():
    tried = after_test(0.0, CardTests(), 600.0)  # passed, and 100 s later the rule has taken it out again

    assert next_test(700.0, tried, 600) == 700 + 1200


def test_a_card_that_was_good_for_a_day_is_like_new():
    tried = CardTests(count=5, last=1000.0)
    later = 1000.0 + LONGEST_PAUSE

    assert next_test(later, tried, 600) == later + 600
    assert after_test(later, tried, later + 600).count == 1


def test_a_first_pause_of_more_than_a_day_is_kept():
    assert next_test(0.0, CardTests(), 2 * LONGEST_PAUSE) == 2 * LONGEST_PAUSE
