"""Where jobs are very short, the next ones wait at the shims of those that run, and go on by themselves."""

import pytest

from dibs.model.events import Ended, Started
from dibs.model.jobs import State
from engine.invariants import check_at_the_end, check_now
from engine.test_ahead import ahead, some_jobs
from engine.world import Died, a_pool, a_request

SHORT = 0.001  # seconds


def behind(world):
    """Who waits at whose shim."""
    return {run.job: [other.job for other in run.behind] for run in world.machine.alive()}


def end(world, *jobs, **how):
    """They end in this order before the engine hears of any of them."""
    for job in jobs:
        (run,) = world.machine.alive(job)
        world.machine.end(run, **({"code": 0, "seconds": SHORT} | how))
    world.settle_down()


@pytest.fixture
def one_place(make_world):
    """Job 3 runs, 4 waits behind it."""
    world = make_world(1)
    world.submit(*some_jobs(40))
    end(world, 1)
    end(world, 2)
    end(world, 3)
    world.advance(0.01)
    return world


def test_after_a_short_job_the_next_ones_wait_behind_the_one_that_follows(one_place):
    world = one_place

    assert world.running() == [4]
    end(world, 4)

    assert behind(world) == {5: [6, 7]}
    assert ahead(world) == [8, 9, 10]
    assert world.states()[7] is State.RUNNING  # it may have been started, as far as the disk knows
    assert world.engine.running == 1
    assert world.engine.waiting == 40 - 5
    world.run_out()
    check_at_the_end(world)


def test_each_place_gets_one_before_any_gets_two(make_world):
    world = make_world(3)
    world.submit(*some_jobs(40))
    for job in (1, 2, 3, 4):
        end(world, job)
    world.advance(0.01)

    end(world, *world.running())

    assert sorted(map(len, behind(world).values())) in ([1, 1, 1], [1, 1, 2], [1, 2, 2], [2, 2, 2])
    check_now(world)


def test_they_go_on_without_the_engine_and_it_finds_out(one_place):
    world = one_place
    end(world, 4)
    world.told()

    end(world, 5, 6, 7)
    world.advance(0.01)

    told = [(kind, of[0]) for kind, of in world.told(Ended, Started)]
    assert told == [(kind, job + (kind == "started")) for job in (4, 5, 6, 7) for kind in ("ended", "started")]
    assert [world.states()[job] for job in (5, 6, 7)] == [State.SUCCEEDED] * 3
    check_now(world)


def test_ends_of_short_jobs_are_recorded_together_a_moment_later(one_place):
    world = one_place
    end(world, 4)
    end(world, 5)
    assert world.states()[5] is State.RUNNING
    assert world.engine.running == 1
    assert world.told(Ended)[-1][1][0] != 5

    world.advance(0.01)

    assert world.states()[5] is State.SUCCEEDED
    assert ("ended", (5, "succeeded", None)) in world.told(Ended)


def test_after_a_failure_those_behind_go_back_and_come_again(one_place):
    world = one_place
    end(world, 4)

    end(world, 5, code=1)

    assert world.states()[5] is State.FAILED
    assert world.running() == [6]
    assert [world.machine.starts(job) for job in (6, 7)] == [1, 0]
    world.run_out()
    check_at_the_end(world)


def test_behind_a_job_that_takes_longer_nobody_waits(one_place):
    world = one_place
    end(world, 4)
    (long,) = world.machine.alive(5)

    world.machine.turn_away(long)
    world.settle_down()

    assert behind(world) == {5: []}
    assert ahead(world)[:2] == [6, 7] or world.states()[6] is State.QUEUED
    world.advance(1)
    assert world.states()[6] is State.QUEUED
    end(world, 5)
    assert world.running() == [6]
    world.run_out()
    check_at_the_end(world)


def test_with_a_place_free_elsewhere_they_start_there(make_world):
    world = make_world(2)
    world.submit(*some_jobs(30))
    for job in (1, 2, 3, 4, 5):
        end(world, job)
    world.advance(0.01)
    long, _ = world.running()
    waited = [run.job for run in world.machine.alive(long)[0].behind]

    world.machine.turn_away(world.machine.alive(long)[0])
    world.settle_down()
    for _ in range(4):  # first those who wait behind the other
        end(world, *(job for job in world.running() if job != long))

    assert waited and all(world.machine.starts(job) == 1 for job in waited)
    world.run_out()
    check_at_the_end(world)


def test_whoever_counts_failures_is_asked_before_each_start(make_world):
    world = make_world(1)
    world.engine.most_failures = 3
    world.submit(*some_jobs(30))

    for job in (1, 2, 3, 4, 5):
        end(world, job)
        assert set(map(len, behind(world).values())) == {0}


def test_nobody_waits_behind_jobs_that_take_a_while(make_world):
    world = make_world(2)
    world.submit(*some_jobs(30))

    for job in (1, 2, 3, 4, 5):
        end(world, job, seconds=0.05)
        assert set(map(len, behind(world).values())) == {0}


def test_somebody_else_who_waits_for_the_card_is_not_kept_waiting(one_place):
    world = one_place
    claims = world.machine.alive()[0].claims
    other = type(world.leases)(world.leases_folder, uid=world.leases._uid, user="other")
    other.wish(claims, job="theirs", since=world.now - 100)

    assert behind(world) == {4: [5, 6]}
    end(world, 4)
    end(world, 5)
    end(world, 6)

    assert world.running() == []
    assert ahead(world) == []
    other.close()
    world.advance(1)
    assert world.running() == [7]


def test_the_lease_names_the_one_that_runs(one_place):
    world = one_place
    end(world, 4)
    end(world, 5)
    world.advance(0.01)

    (holder,) = world.leases.holders()

    assert world.running() == [6]
    assert holder.folder.endswith("/6.1")


def test_a_card_that_was_taken_away_gets_nobody_more(one_place):
    world = one_place
    end(world, 4)

    world.engine.cards.pool = a_pool()
    world.turn()
    world.settle_down()
    end(world, 5, 6, 7)

    assert world.running() == []
    world.engine.cards.pool = a_pool(1)
    world.turn()
    world.run_out()
    check_at_the_end(world)


def test_a_word_to_all_reaches_whoever_waits_once_it_runs(one_place):
    world = one_place
    end(world, 4)

    world.engine.drain()
    world.engine.tell_all("stop")
    end(world, 5)
    world.advance(0.1)

    assert world.running() == [6]
    assert {(5, "stop"), (6, "stop")} <= set(world.backend.told)
    end(world, 6, code=None, signal=15, by="stop")
    world.advance(0.1)
    assert world.engine.is_idle
    assert world.states()[7] is State.QUEUED


def test_draining_is_over_only_when_nobody_waits_at_a_shim(one_place):
    world = one_place
    end(world, 4)
    (run,) = world.machine.alive(5)
    waiting, run.behind = run.behind, []

    world.engine.drain()
    end(world, 5, code=1)
    assert not world.engine.is_idle
    run.behind = waiting
    world.machine.turn_away(run)
    world.settle_down()

    assert world.engine.is_idle
    assert world.states()[6] is State.QUEUED


def test_a_killed_shim_loses_what_ran_and_nobody_behind(one_place):
    world = one_place
    end(world, 4)

    world.kill_shim(5)

    assert world.states()[5] is State.LOST
    assert world.running() == [6]
    world.run_out()
    check_at_the_end(world)


def test_one_whose_answer_was_lost_with_its_shim_is_followed_by_the_one_that_runs(one_place):
    """The shim had gone on to 6 when it was killed, and nobody had read what it said of 5."""
    world = one_place
    end(world, 4)
    (fifth,) = world.machine.alive(5)
    world.machine.end(fifth, code=0, seconds=SHORT)
    fifth.said_goodbye = False
    (sixth,) = world.machine.alive(6)
    world.told()

    world.machine.kill_shim(sixth)
    world.settle_down()

    told = [(kind, of[0]) for kind, of in world.told(Ended, Started)]
    assert told == [("ended", 4), ("started", 5), ("ended", 5), ("started", 6)]
    assert world.states()[5] is State.SUCCEEDED
    assert world.states()[6] is State.RUNNING  # its command does
    check_now(world)


def test_ends_are_put_off_for_a_moment_only_however_many_follow(make_world):
    world = make_world(16)
    world.submit(*some_jobs(400))
    for _ in range(3):
        end(world, *world.running())
        world.advance(0.02)
    first = world.running()[0]
    end(world, first)
    assert world.states()[first] is State.RUNNING

    for _ in range(6):
        world.now += 0.001
        end(world, world.running()[0])

    assert world.states()[first] is State.SUCCEEDED


def test_whoever_is_recorded_with_a_plan_goes_back_when_it_is_over(make_world, monkeypatch):
    monkeypatch.setattr("dibs.engine.results.InAttemptFolders.writes_more", True)  # so that nobody waits at a shim
    world = make_world(1)
    world.submit(*some_jobs(200))
    for turn in range(60):
        end(world, *world.running())
        world.now += 0.001
        if turn % 3 == 0:
            world.advance(0.006)

    world.advance(1)

    assert ahead(world) == []
    assert list(world.states().values()).count(State.RUNNING) == 1


def test_a_folder_that_cannot_be_read_now_loses_nobody(one_place, monkeypatch):
    world = one_place
    end(world, 4)
    (fifth,) = world.machine.alive(5)

    def sick(attempt):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(world.backend, "observe", sick)
        world.machine.turn_away(fifth)
        world.settle_down()
    world.advance(3)

    world.run_out()
    check_at_the_end(world)


def test_on_a_full_disk_a_run_that_drains_comes_to_its_end_though_some_were_turned_away(one_place):
    world = one_place
    end(world, 4)
    (fifth,) = world.machine.alive(5)
    waiting, fifth.behind = fifth.behind, []
    world.engine.drain()
    end(world, 5, code=1)

    world.store.is_full = True
    fifth.behind = waiting
    world.machine.turn_away(fifth)
    world.settle_down()

    assert world.engine.is_idle


def test_one_that_was_turned_away_before_the_end_of_the_one_before_was_heard(one_place):
    world = one_place
    end(world, 4)
    (fifth,) = world.machine.alive(5)
    world.told()

    world.machine.turn_away(fifth)
    end(world, 5)
    world.advance(0.2)

    assert [of[0] for _, of in world.told(Started)].count(6) == 1
    assert world.machine.starts(6) == 1
    world.run_out()
    check_at_the_end(world)


def test_a_full_disk_lets_them_go_on_and_loses_no_end(one_place):
    world = one_place
    end(world, 4)

    world.store.is_full = True
    end(world, 5)
    world.advance(0.01)
    end(world, 6)
    assert world.states()[5] is State.RUNNING
    check_now(world)
    world.store.is_full = False
    world.advance(3)

    assert [world.states()[job] for job in (5, 6)] == [State.SUCCEEDED] * 2
    world.run_out()
    check_at_the_end(world)


def test_a_crash_with_some_behind_loses_and_repeats_nothing(one_place):
    world = one_place
    end(world, 4)
    end(world, 5)

    world.crash()
    world.come_back()

    assert world.states()[5] is State.SUCCEEDED
    assert world.running() == [6]
    assert world.states()[7] is State.QUEUED
    world.run_out()
    check_at_the_end(world)


def test_a_crash_after_one_went_on_that_nobody_heard_of(one_place):
    world = one_place
    end(world, 4)
    world.machine.end(world.machine.alive(5)[0], code=0, seconds=SHORT)
    assert world.running() == [6]

    world.crash()
    world.come_back()

    assert world.states()[5] is State.SUCCEEDED
    assert world.running() == [6]
    world.run_out()
    check_at_the_end(world)


def test_a_crash_right_after_it_was_handed_over(one_place):
    world = one_place
    world.dies_at = "after-behind"
    with pytest.raises(Died):
        end(world, 4)

    world.crash()
    world.come_back()

    assert world.running() == [5]
    world.run_out()
    check_at_the_end(world)


def test_a_more_urgent_job_goes_before_those_that_were_only_recorded(one_place):
    world = one_place
    end(world, 4)

    world.submit(a_request("urgent", priority=5))
    end(world, 5, 6, 7)

    assert world.running() == [41]
