"""Preemptible jobs leave a card on which somebody works without dibs, and go on when it has been quiet."""

from dataclasses import replace

import pytest

from dibs.policy.neighbours import quiet_at, who_makes_way
from dibs.policy.schedule import schedule
from dibs.policy.snapshot import QUIET
from policy.builders import GIB, a_job, a_machine, key
from policy.test_preemption import holding, preemptible, resumed, suspended

ADA = {key(0): ["4711 (ada)"]}


def test_a_preemptible_job_makes_way_for_whoever_works_on_its_card():
    here, elsewhere = preemptible(0), preemptible(1)

    (found,) = who_makes_way([here, elsewhere], ADA, None)

    assert (found.one, found.why) == (here, "for the process 4711 (ada) on GPU 0")


def test_all_processes_are_named_once():
    strangers = {key(0): ["4711 (ada)", "4712 (bob)"], key(1): ["4711 (ada)"]}

    (found,) = who_makes_way([preemptible(0, 1)], strangers, None)

    assert found.why == "for the processes 4711 (ada) and 4712 (bob) on GPU 0, 1"


@pytest.mark.parametrize(
    "change", [{"yields_to_urgent": False}, {"why_not": "it runs in a container"}, {"leaving_since": 0.0}]
)
def test_a_job_that_must_not_or_cannot_be_suspended_stays(change):
    assert who_makes_way([replace(preemptible(0), **change)], ADA, None) == []


def test_an_urgent_job_stays():
    assert who_makes_way([preemptible(0, urgent=True)], ADA, None) == []


def test_no_more_are_moved_than_the_memory_of_the_machine_takes():
    jobs = [preemptible(0, share="1/2", held=40) for _ in range(2)]

    found = who_makes_way(jobs, ADA, 50 * GIB)

    assert [one.one for one in found] == jobs[:1]


def test_a_card_is_quiet_a_while_after_the_last_of_them_was_seen():
    seen = quiet_at({}, [key(0)], 100.0)
    later = quiet_at(seen, [], 100.0 + QUIET - 1)

    assert seen == later == {key(0): 100.0 + QUIET}
    assert quiet_at(later, [], 100.0 + QUIET) == {}
    assert quiet_at(later, [key(0)], 130.0) == {key(0): 130.0 + QUIET}


def test_a_suspended_job_goes_on_when_its_card_is_quiet_and_no_job_takes_its_place_before():
    one, waiting = suspended(0), a_job(priority=-1)
    machine = holding(a_machine(1, memory=80))
    noisy = replace(machine, views=tuple(replace(view, quiet_at=160.0) for view in machine.views))

    early = schedule(noisy.with_waiting(waiting, suspended=[one], now=159.0))
    late = schedule(noisy.with_waiting(waiting, suspended=[one], now=160.0))

    assert (resumed(early), early.placements) == ([], [])
    reason = early.reasons[one.job.id]
    assert (reason.sentence, reason.until) == ("goes on when GPU 0 has been quiet for 60s", 160.0)
    assert resumed(late) == [one.job.id]
