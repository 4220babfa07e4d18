"""Histories of several engines over one store: crashes, reboots, resumed lists."""

import pytest

from dibs.errors import StoreUnusable
from dibs.model.events import Ended, Refused, Skipped, Started
from dibs.model.jobs import Cause, State
from engine.invariants import check_at_the_end, check_now
from engine.world import Died, a_pool, a_request


def test_what_runs_is_adopted_and_its_end_is_recorded(make_world):
    world = make_world()
    world.submit(a_request("runs"), a_request("waits"))
    world.crash()

    world.resume()

    assert world.told(Started)[-1] == ("adopted", (1, [0]))
    assert world.running() == [1]
    world.end(1, code=5)
    assert world.outcome(1).exit_code == 5
    assert world.running() == [2]
    world.run_out()
    check_at_the_end(world)


def test_what_ended_while_no_engine_ran_is_recorded(make_world):
    world = make_world()
    world.submit(a_request("one"), a_request("two"))
    world.crash()
    world.machine.end(world.machine.alive()[0], code=0)

    world.resume()

    assert world.states() == {1: State.SUCCEEDED, 2: State.RUNNING}


def test_a_lost_job_is_not_queued_again_by_itself_when_its_list_comes_back(make_world):
    world = make_world()
    world.submit(a_request("one"))
    world.crash()
    world.machine.stop()

    world.resume(with_list=True)

    assert world.states() == {1: State.LOST}
    assert world.running() == []


def test_after_a_reboot_what_ran_is_lost_and_the_queue_is_intact(make_world):
    world = make_world()
    world.submit(a_request("ran"), a_request("waited"))
    world.crash()
    world.machine.stop()
    world.boot_id = "another"

    world.resume(with_list=True)
    world.submit(a_request("waited"))

    assert world.states() == {1: State.LOST, 2: State.RUNNING}
    assert world.running() == [2]


def test_after_a_reboot_even_what_shows_no_start_may_have_run(make_world):
    world = make_world()
    world.dies_at = "after-intent"
    with pytest.raises(Died):
        world.submit(a_request("one"))
    world.acknowledged[1] = a_request("one")
    world.crash()
    world.boot_id = "another"

    world.resume(with_list=True)

    assert world.states() == {1: State.LOST}


@pytest.mark.parametrize(
    ("point", "running"),
    [("after-lease", []), ("after-prepare", []), ("after-intent", []), ("after-launch", [1])],
)
def test_a_crash_at_each_point_of_the_launch_starts_everything_once(make_world, point, running):
    world = make_world()
    world.dies_at = point
    with pytest.raises(Died):
        world.submit(a_request("one"), a_request("two"))
    world.acknowledged.update({1: a_request("one"), 2: a_request("two")})
    assert world.running() == running
    world.crash()

    world.resume()
    world.run_out()

    assert [world.machine.starts(job) for job in (1, 2)] == [1, 1]
    assert set(world.states().values()) == {State.SUCCEEDED}
    check_at_the_end(world)


@pytest.mark.parametrize("crash_after", range(12))
def test_one_history_with_a_crash_after_each_step(make_world, crash_after):
    world = make_world(2, 1)
    steps = [
        lambda: world.submit(a_request("a"), a_request("b", retries=1), a_request("c", gpus=2)),
        lambda: world.submit(a_request("d"), a_request("e", gpus=0), a_request("f", restartable=True)),
        lambda: world.end(1, code=0),
        lambda: world.end(2, code=1),
        lambda: world.advance(2),
        lambda: world.kill_shim(6) if 6 in world.running() else None,
        lambda: world.advance(1),
        lambda: world.end(5, signal=11) if 5 in world.running() else None,
        lambda: setattr(world.machine, "false_starts", 1),
        lambda: world.submit(a_request("g")),
        lambda: world.advance(10),
    ]

    for number, step in enumerate(steps):
        if number == crash_after:
            world.crash()
            world.resume()
        step()
        check_now(world)
    if crash_after == len(steps):
        world.crash()
        world.resume()
    world.run_out()

    check_at_the_end(world)


def test_a_resumed_list_skips_what_succeeded_and_repeats_what_did_not(make_world):
    world = make_world(1, 1)
    world.submit(a_request("good"), a_request("bad"))
    world.end(1, code=0)
    world.end(2, code=1)
    world.crash()
    world.told()

    world.resume(with_list=True)
    world.submit(a_request("good"), a_request("bad"), a_request("new"))

    assert world.told() == [
        ("skipped", 1),
        ("queued", 2),
        ("queued", 3),
        ("started", (2, [0])),
        ("started", (3, [1])),
    ]
    world.run_out()
    check_at_the_end(world)


def test_what_was_struck_from_the_list_stays_out(make_world):
    world = make_world()
    world.submit(a_request("runs"), a_request("struck"), a_request("stays"))
    world.crash()

    world.resume(with_list=True)
    world.submit(a_request("runs"), a_request("stays"))
    world.run_out()

    assert world.states() == {1: State.SUCCEEDED, 2: State.HELD, 3: State.SUCCEEDED}
    assert world.machine.starts(2) == 0


def test_a_running_job_that_the_list_names_is_not_started_again(make_world):
    world = make_world(1, 1)
    world.submit(a_request("long"))
    world.crash()

    world.resume(with_list=True)
    world.submit(a_request("long"))
    world.run_out()

    assert world.machine.starts(1) == 1
    check_at_the_end(world)


def test_without_a_list_everything_that_has_not_succeeded_runs(make_world):
    world = make_world(1, 1, 1)
    world.submit(*[a_request(text) for text in ("good", "bad", "cut off", "waits")])
    world.end(1, code=0)
    world.end(2, code=1)
    world.crash()
    for run in world.machine.alive():
        world.machine.end(run, signal=9)

    world.resume()
    world.run_out()

    assert [world.machine.starts(job) for job in (1, 2, 3, 4)] == [1, 2, 2, 2]
    assert set(world.states().values()) == {State.SUCCEEDED}
    check_at_the_end(world)


def test_without_a_list_what_was_refused_stays_refused_and_is_told_again(make_world):
    world = make_world()
    world.submit((a_request("rm -rf <NUL>"), "line 3 has a NUL byte"), a_request("wide", gpus=2))
    world.crash()
    world.told()

    world.resume()

    assert world.machine.ledger == []
    assert world.told() == [("refused", 1), ("refused", 2)]
    assert world.outcome(1).message == "line 3 has a NUL byte"
    check_at_the_end(world)


def test_what_todays_pool_can_never_hold_is_refused_when_the_run_comes_back(make_world):
    world = make_world(1, 1)
    world.submit(a_request("wide", gpus=2), a_request("narrow"))
    world.end(1, code=1)
    world.crash()
    world.machine.stop()
    world.pool = a_pool(1)

    world.resume()
    world.run_out()

    assert world.told(Refused) == [("refused", 1)]
    assert (world.outcome(1).cause, world.outcome(1).exit_code) == (Cause.REFUSED, None)
    check_at_the_end(world)


def test_a_success_stays_one_though_todays_pool_could_not_repeat_it(make_world):
    world = make_world(1, 1)
    world.submit(a_request("wide", gpus=2))
    world.end(1, code=0)
    world.crash()
    world.pool = a_pool(1)
    world.told()

    world.resume(with_list=True)
    world.submit(a_request("wide", gpus=2))

    assert world.told() == [("skipped", 1)]
    assert world.states() == {1: State.SUCCEEDED}


def test_a_job_that_was_set_aside_is_refused_where_it_can_no_longer_run(make_world):
    world = make_world(1, 1)
    world.submit(a_request("busy"), a_request("wide", gpus=2))
    world.crash()
    world.pool = a_pool(1)

    world.resume(with_list=True)
    world.submit(a_request("wide", gpus=2))

    assert world.told(Refused) == [("refused", 2)]
    world.run_out()
    check_at_the_end(world)


def test_a_repeated_job_runs_in_the_environment_of_today(make_world):
    world = make_world()
    world.submit(a_request("needs a venv"))
    world.end(1, code=127)
    world.crash()

    world.resume(with_list=True)
    today = world.list.capture({"PATH": "/venv/bin"})
    (job,) = world.list.submit([a_request("needs a venv")], today)
    world.settle_down()

    assert world.store.job(job.id).environment == today


def test_an_environment_is_recorded_with_the_jobs_that_need_it_also_when_the_disk_was_full(make_world):
    world = make_world()
    today = world.list.capture({"PATH": "/venv/bin"})
    world.store.is_full = True
    with pytest.raises(StoreUnusable):
        world.list.submit([a_request("late")], today)

    world.store.is_full = False
    world.list.submit([a_request("late")], today)

    assert world.store.listing.environment(today) == {"PATH": "/venv/bin"}


def test_retries_that_waited_go_on_waiting_only_until_the_run_comes_back(make_world):
    world = make_world()
    world.submit(a_request("flaky", retries=3))
    world.end(1, code=1)
    world.crash()

    world.resume()

    assert world.running() == [1]
    assert len(world.told(Ended)) == 1
    assert world.told(Skipped) == []


def test_a_gpu_whose_command_lost_its_shim_is_kept_by_the_next_engine_too(make_world):
    world = make_world()
    world.submit(a_request("orphan"), a_request("next"))
    world.machine.alive()[0].has_shim = False
    world.crash()

    world.resume()
    world.advance(10)

    assert world.running() == [1]
    world.machine.end(world.machine.alive()[0])
    world.advance(1)
    assert world.running() == [2]
    assert world.states()[1] is State.LOST
