"""While jobs of one kind fill the machine, the next takes the place of the one that ended; whatever else happens
is planned for."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dibs.engine.turn import decide as turn
from dibs.engine.watch.sharing_rules import SharingRules
from dibs.model.events import Started, Waits
from dibs.model.gpus import GpuReading, Reading
from dibs.model.jobs import State, Wishes
from dibs.model.records import Mark
from dibs.policy.outcomes import Limits
from engine.invariants import check_at_the_end
from engine.world import a_pool, a_request


@pytest.fixture
def plans(monkeypatch):
    """The plans that were made, one entry each."""
    made = []
    real = turn.schedule

    def counted(snapshot):
        made.append(snapshot)
        return real(snapshot)

    monkeypatch.setattr(turn, "schedule", counted)
    return made


def mark(world, subject):
    with world.engine.change() as change:
        change.next.set_mark(Mark(subject, "set", "maintenance", 0.0))
    world.turn_is_due = False


def unmark(world, subject):
    with world.engine.change() as change:
        change.next.clear_mark(subject)


def some_jobs(count, **wishes):
    return [a_request(f"python train.py --seed {number}", **wishes) for number in range(count)]


def test_the_next_of_a_kind_takes_the_place_of_one_that_ended_without_a_plan(make_world, plans):
    world = make_world(2, 1)
    world.submit(*some_jobs(9))
    before, claims = len(plans), {run.job: run.claims for run in world.machine.alive()}

    world.end(2)
    world.end(1)

    assert len(plans) == before
    assert world.running() == [3, 4, 5]
    assert [run.claims for run in world.machine.alive() if run.job in (4, 5)] == [claims[2], claims[1]]
    world.run_out()
    check_at_the_end(world)


def test_the_last_ones_are_planned_so_that_nothing_stays_free_unseen(make_world, plans):
    world = make_world(2)
    world.submit(*some_jobs(3))
    before = len(plans)

    world.end(1)

    assert len(plans) > before
    assert world.running() == [2, 3]


def test_after_a_moment_a_plan_tells_again_why_the_next_one_waits(make_world, plans):
    world = make_world(1)
    world.submit(*some_jobs(9))
    world.end(1)
    world.told()

    world.advance(1)

    assert world.told(Waits) == [("waits", (3, "waits for a GPU: GPU 0 is held by job 2"))]
    assert world.engine.wake_at is None  # and no timer is set for it again


def test_a_plan_that_was_made_long_ago_does_not_stand(make_world, plans):
    world = make_world(1)
    world.submit(*some_jobs(9))
    before = len(plans)

    world.advance(1)
    world.end(1)

    assert len(plans) > before


def test_a_more_urgent_job_of_the_same_kind_goes_first(make_world):
    world = make_world(1)
    world.submit(*some_jobs(4))
    world.submit(a_request("urgent", priority=5))

    world.end(1)

    assert world.running() == [5]


def test_a_job_of_another_kind_is_planned_for(make_world):
    world = make_world(2)
    world.submit(*some_jobs(6))
    world.submit(a_request("wide", share="1", priority=5))

    world.end(1)
    assert world.running() == [2]  # the wide one waits for both places
    world.end(2)

    assert world.running() == [7]


def test_a_job_of_another_kind_that_came_in_the_same_moment_is_planned_for(make_world):
    world = make_world(2)
    world.submit(*some_jobs(6))

    world.list.submit([a_request("wide", share="1", priority=5)], world.environment)
    world.end(1)

    assert world.running() == [2]


def test_nothing_of_a_project_follows_after_it_was_paused(make_world):
    world = make_world(1)
    world.submit(*[replace(job, project="p") for job in some_jobs(4)])

    mark(world, "project p")
    world.turn()
    world.end(1)

    assert world.running() == []


def test_the_place_of_another_kind_is_not_taken_over_as_it_was(make_world):
    world = make_world(1)
    world.submit(a_request("half", share="1/2", priority=1), a_request("other half", share="1/2", priority=1))
    world.submit(*some_jobs(4))

    world.end(1)
    assert world.running() == [2]
    world.end(2)

    assert world.running() == [3]
    assert world.machine.alive()[0].claims[0].share == 1


def test_nothing_follows_on_a_card_that_was_drained_meanwhile(make_world):
    world = make_world(1, 1)
    world.submit(*some_jobs(6))

    mark(world, f"gpu {world.pool.cards[0].gpu.key}")
    world.end(1)

    assert world.running() == [2]


def test_nothing_follows_on_a_card_that_was_drained_before_the_plan(make_world):
    world = make_world(1, 1)
    world.submit(*some_jobs(6))
    mark(world, f"gpu {world.pool.cards[0].gpu.key}")

    world.end(2)
    world.end(1)

    assert world.running() == [3]
    assert world.machine.alive()[0].claims[0].index == 1


def test_a_place_of_an_older_pool_is_not_passed_on(make_world):
    world = make_world(2)
    world.submit(*some_jobs(6))
    world.engine.cards.pool = a_pool(1)

    world.turn()
    world.end(1)
    assert world.running() == [2]  # half a card is no place any more
    world.end(2)

    assert world.running() == [3]
    assert world.machine.alive()[0].claims[0].share == 1


def test_nothing_follows_while_everything_is_paused(make_world):
    world = make_world(1)
    world.submit(*some_jobs(4))

    mark(world, "queue")
    world.end(1)
    assert world.running() == []
    unmark(world, "queue")
    world.turn()

    assert world.running() == [2]


@pytest.mark.parametrize(
    ("wishes", "rules"),
    [
        (Wishes(shape="auto"), SharingRules()),  # what is learned from the one that ended counts for the next
        (Wishes(vram=1024**3), SharingRules()),  # what the card itself says is left counts beside the books
        (Wishes(), SharingRules(min_free=1)),  # others may have taken the card that was left to them
    ],
    ids=["vram-auto", "vram", "min-free"],
)
def test_where_more_than_the_books_tells_what_fits_each_end_is_planned_for(make_world, plans, wishes, rules):
    world = make_world(1, 1)
    world.engine.cards.rules = rules
    world.submit(*[replace(job, wishes=wishes) for job in some_jobs(9)])
    for number in range(1, 4):
        before = len(plans)

        world.end(number)

        assert len(plans) > before
    world.run_out()
    check_at_the_end(world)


def test_while_one_with_vram_auto_runs_each_end_is_planned_for(make_world, plans):
    world = make_world(1, 1)
    auto = replace(a_request("auto", priority=5), wishes=Wishes(shape="auto"))
    world.submit(auto, *some_jobs(9))
    world.end(2)
    before = len(plans)

    world.end(3)

    assert len(plans) > before


def test_nothing_follows_on_a_card_that_was_not_asked_since_it_was_left(make_world):
    world = make_world(1, 1)

    def look():
        seen = tuple(GpuReading(gpu=card.gpu) for card in world.pool.cards)
        world.engine.cards.saw(Reading(at=datetime.now(UTC), gpus=seen))

    look()
    world.submit(*some_jobs(6))
    world.end(1)
    assert world.running() == [2]
    look()
    world.turn()

    assert world.running() == [2, 3]


def test_nothing_follows_an_end_that_is_not_judged_yet(make_world):
    world = make_world(1)
    judged = []
    world.engine._settlement._judge = lambda attempt, outcome, others, now: outcome if judged else None
    world.submit(*some_jobs(4))

    world.end(1, code=1)
    assert world.running() == []
    judged.append(True)
    world.advance(3)

    assert world.running() == [2]


def test_nothing_follows_on_a_card_that_the_end_itself_took_out(make_world):
    world = make_world(1, 1, limits=Limits(quick_failures=0, gpu_failures=1))
    world.submit(*some_jobs(6))

    world.end(1, code=1)

    assert world.engine.state.resting.keys() == {world.pool.cards[0].gpu.key}
    assert world.running() == [2]


def test_a_turn_that_the_store_refuses_leaves_nothing_behind(make_world):
    world = make_world(2)
    world.submit(*some_jobs(6))

    world.store.is_full = True
    world.end(1)
    world.store.is_full = False
    world.advance(3)

    assert world.running() == [2, 3]
    assert world.states()[1] is State.SUCCEEDED
    world.run_out()
    assert len(world.told(Started)) == 6
    check_at_the_end(world)
