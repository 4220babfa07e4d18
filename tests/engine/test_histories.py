"""Histories of one engine: jobs in, events out, the clock turned by hand."""

from fractions import Fraction

import pytest

from dibs.model.events import Ended, Queued, Refused, Skipped, Started, Trouble, Waits
from dibs.model.gpus import GpuProcess, GpuReading, Reading
from dibs.model.jobs import Cause, State
from engine.invariants import check_at_the_end
from engine.world import a_request


def test_a_job_is_queued_started_and_ended(make_world):
    world = make_world()

    (job,) = world.submit(a_request())
    world.end(job, code=3)

    assert world.told() == [
        ("queued", 1),
        ("started", (1, [0])),
        ("ended", (1, "failed", None)),
    ]
    assert world.outcome(job).exit_code == 3
    check_at_the_end(world)


def test_jobs_start_in_order_of_priority_and_then_of_age(make_world):
    world = make_world()
    world.submit(a_request("runs"))
    world.submit(a_request("late"), a_request("later"), a_request("urgent", priority=5))

    for number in (1, 4, 2, 3):
        world.end(number)

    assert [job for kind, (job, _) in world.told(Started)] == [1, 4, 2, 3]


def test_the_head_of_the_queue_says_once_why_it_waits(make_world):
    world = make_world()
    world.submit(a_request("one"), a_request("two"), a_request("three"))

    world.turn()
    world.turn()

    assert world.told(Waits) == [
        ("waits", (2, "waits for a GPU: GPU 0 is held by job 1")),
    ]


def test_slots_are_filled_at_once(make_world):
    world = make_world(2, 1)

    world.submit(*[a_request(str(number)) for number in range(5)])

    assert world.running() == [1, 2, 3]


def test_as_many_jobs_start_as_their_shares_allow(make_world):
    world = make_world(1)

    world.submit(*[a_request(str(number), share="1/4") for number in range(6)])

    assert world.running() == [1, 2, 3, 4]
    world.run_out()
    check_at_the_end(world)


def test_as_many_jobs_without_a_gpu_start_as_there_is_room(make_world):
    world = make_world(1, most_without_gpu=3)

    world.submit(*[a_request(str(number), gpus=0) for number in range(5)], a_request("gpu"))

    assert world.running() == [1, 2, 3, 6]


def test_small_shares_are_not_held_up_by_a_stuck_job_of_another_kind(make_world):
    world = make_world(1, 1)
    world.submit(a_request("busy"))
    world.submit(a_request("wide", gpus=2))

    world.submit(*[a_request(str(number), gpus=0) for number in range(4)])

    assert world.running() == [1, 3, 4]


def test_a_card_passes_to_a_job_of_another_shape_without_a_pause(make_world):
    world = make_world(2)
    (first,) = world.submit(a_request("half"))
    (second,) = world.submit(a_request("whole", share="1"))
    world.told()

    world.end(first)

    assert world.running() == [second.id]
    assert world.told(Waits, Started) == [("started", (2, [0]))]


def test_a_failed_job_is_tried_again_after_longer_and_longer_pauses(make_world):
    world = make_world()
    (job,) = world.submit(a_request(retries=2))
    begun = world.now

    world.end(job, code=1)
    world.advance(0.9)
    assert world.running() == []
    world.advance(0.1)
    world.end(job, signal=9)
    world.advance(2)
    world.end(job, code=7)

    assert world.told(Ended) == [
        ("ended", (1, "failed", begun + 1)),
        ("ended", (1, "failed", begun + 3)),
        ("ended", (1, "failed", None)),
    ]
    assert world.outcome(job).exit_code == 7
    check_at_the_end(world)


def test_while_one_job_waits_for_its_retry_others_run(make_world):
    world = make_world()
    world.submit(a_request("flaky", retries=1), a_request("other"))

    world.end(1, code=1)

    assert world.running() == [2]
    world.advance(5)
    assert world.running() == [2]
    world.end(2)
    assert world.running() == [1]


def test_a_lost_job_is_over_unless_its_owner_said_otherwise(make_world):
    world = make_world(1, 1)
    plain, restartable = world.submit(a_request("plain"), a_request("again", restartable=True))

    world.kill_shim(plain)
    world.kill_shim(restartable)
    world.turn()

    assert world.states() == {1: State.LOST, 2: State.RUNNING}
    assert world.running() == [2]
    world.run_out()
    check_at_the_end(world)


def test_drained_it_starts_nothing_more_and_tries_nothing_again(make_world):
    world = make_world()
    world.submit(a_request("runs", retries=5), a_request("waits"))

    world.engine.drain()
    world.end(1, code=1)

    assert world.engine.is_idle
    assert world.running() == []
    assert world.states() == {1: State.FAILED, 2: State.QUEUED}
    assert world.engine.wake_at is None


def test_a_gpu_is_kept_while_a_command_without_its_shim_holds_it(make_world):
    world = make_world()
    first, _ = world.submit(a_request("first"), a_request("second"))

    world.kill_shim(first, command_too=False)
    world.advance(10)

    assert world.running() == [1]
    assert world.states() == {1: State.RUNNING, 2: State.QUEUED}
    assert len(world.told(Trouble)) == 1

    world.machine.end(world.machine.alive()[0])
    world.advance(1)

    assert world.states() == {1: State.LOST, 2: State.RUNNING}
    assert world.running() == [2]


def test_what_never_ran_is_started_again_and_the_try_does_not_count(make_world):
    world = make_world()
    world.machine.false_starts = 2

    (job,) = world.submit(a_request(retries=1))
    world.advance(1)

    assert world.running() == [1]
    assert world.told(Ended) == []
    world.end(job, code=1)
    world.advance(1)
    assert world.machine.starts(job.id) == 2  # its one retry is still there
    world.end(job, code=0)
    assert world.store.job(job.id).attempts == 2
    check_at_the_end(world)


def test_a_machine_that_starts_nothing_for_a_while_fails_no_job(make_world):
    world = make_world()
    world.machine.false_starts = 12

    (job,) = world.submit(a_request())
    world.advance(300)

    assert world.running() == [job.id]
    world.end(job)
    check_at_the_end(world)


def test_what_cannot_be_started_at_all_has_failed_in_the_end(make_world):
    world = make_world()
    world.machine.false_starts = 20

    (job,) = world.submit(a_request())
    world.advance(900)

    outcome = world.outcome(job)
    assert (outcome.exit_code, outcome.cause) == (127, Cause.START_ERROR)
    assert world.machine.ledger == []
    check_at_the_end(world)


def test_false_starts_count_only_when_they_are_in_a_row(make_world):
    world = make_world()
    world.machine.false_starts = 4
    (job,) = world.submit(a_request(retries=1))
    world.advance(60)
    assert world.running() == [1]
    world.machine.false_starts = 4

    world.end(job, code=1)
    world.advance(60)

    assert world.running() == [1]


def test_a_folder_that_cannot_be_made_is_tried_again_and_said_once_a_time(make_world):
    world = make_world()
    world.machine.refuses = "No space left on device"

    world.submit(a_request("one"))
    assert len(world.told(Trouble)) == 1
    world.machine.refuses = ""
    world.advance(3)

    assert world.running() == [1]
    world.run_out()
    check_at_the_end(world)


@pytest.mark.parametrize(
    ("slots", "request_", "problem"),
    [((1,), a_request(gpus=2), ""), ((1, 1), a_request(), "line 3 has a NUL byte")],
)
def test_what_can_never_run_is_refused_at_once_and_takes_nothing(make_world, slots, request_, problem):
    world = make_world(*slots)

    (job,) = world.submit((request_, problem))

    assert world.told() == [("refused", 1)]
    assert world.outcome(job).cause is Cause.REFUSED
    assert world.engine.is_idle
    check_at_the_end(world)


def test_cards_that_foreigners_use_are_left_alone(make_world):
    world = make_world(1, 1)
    cards = [card.gpu for card in world.pool.cards]
    stranger = GpuProcess(pid=4711, user="alice", memory=3 * 1024**3)
    world.engine.cards._is_ours = lambda pid: False
    world.engine.cards.saw(
        Reading(at=None, gpus=(GpuReading(gpu=cards[0], processes=(stranger,)), GpuReading(gpu=cards[1])))
    )

    world.submit(a_request("one"), a_request("two"))

    assert world.told(Started) == [("started", (1, [1]))]
    assert world.engine.waiting == 1


def test_a_card_that_is_being_read_does_not_pass_for_one_that_does_not_answer(make_world):
    world = make_world()
    world.engine.cards.wait_for_reading()

    world.submit(a_request("train"))

    assert world.told(Waits) == [("waits", (1, "waits for a GPU: GPU 0 is being looked at"))]
    world.engine.cards.saw(Reading(at=None, gpus=(GpuReading(gpu=world.pool.cards[0].gpu),)))
    world.turn()
    assert world.running() == [1]


def test_without_an_answer_from_the_cards_nothing_starts(make_world):
    world = make_world()
    world.engine.cards.saw(None, "no answer for 10 s")

    world.submit(a_request())

    assert world.told(Waits) == [("waits", (1, "waits for a GPU: GPU 0 does not answer (no answer for 10 s)"))]
    world.engine.cards.saw(
        Reading(at=None, gpus=tuple(GpuReading(gpu=card.gpu) for card in world.engine.cards.pool.cards))
    )
    world.turn()
    assert world.running() == [1]


def test_nothing_starts_on_a_card_that_the_driver_does_not_show_any_more(make_world):
    world = make_world()
    world.engine.cards.saw(Reading(at=None, gpus=()))

    world.submit(a_request())

    assert world.told(Waits) == [("waits", (1, "waits for a GPU: GPU 0 is not shown by the driver any more"))]
    assert not world.engine.cards.are_unsettled


def test_a_card_that_was_left_is_asked_before_it_is_given_away_again(make_world):
    world = make_world()
    card = world.pool.cards[0].gpu
    world.engine.cards.saw(Reading(at=None, gpus=(GpuReading(gpu=card),)))
    world.submit(a_request("one"), a_request("two"))

    world.end(1)

    assert world.engine.cards.are_unsettled
    assert world.running() == []
    world.engine.cards.saw(Reading(at=None, gpus=(GpuReading(gpu=card),)))
    world.turn()
    assert world.running() == [2]


def test_a_result_folder_that_cannot_be_written_is_said_in_the_same_breath(make_world, monkeypatch):
    world = make_world()
    (job,) = world.submit(a_request())

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dibs.foreground.results.InAttemptFolders.writes_more", True)
    monkeypatch.setattr("dibs.foreground.results.InAttemptFolders.end", full)
    world.end(job)

    assert [kind for kind, _ in world.told(Ended, Trouble)] == ["ended", "trouble"]


def test_stop_reaches_everything_that_runs(make_world):
    world = make_world(1, 1)
    world.submit(a_request("one"), a_request("two"), a_request("three"))

    world.engine.send_to_all("stop")
    world.end(1, signal=15, by="stop")

    assert world.backend.told == [(1, "stop"), (2, "stop")]
    assert world.states()[1] is State.CANCELLED


def test_cards_that_left_the_pool_get_nothing_new(make_world):
    world = make_world(1, 1)
    world.submit(a_request("one"), a_request("two"), a_request("three"))

    world.engine.cards.pool = type(world.pool)(cards=world.pool.cards[:1])
    world.end(2)

    assert world.running() == [1]
    world.end(1)
    assert world.told(Started)[-1] == ("started", (3, [0]))


def test_groups_are_leased_whole(make_world):
    world = make_world(1, 1, 1, 1, groups=[(0, 1), (2, 3)])

    world.submit(a_request("one"), a_request("two"), a_request("three"))

    assert world.told(Started) == [("started", (1, [0, 1])), ("started", (2, [2, 3]))]
    held = {holder.gpu: holder.share for holder in world.leases.holders()}
    assert held == {f"index-{index}": Fraction(1) for index in range(4)}


def test_a_wide_job_gets_its_cards_though_small_ones_keep_coming(make_world):
    world = make_world(1, 1)
    world.submit(a_request("small 1"), a_request("small 2"))
    (wide,) = world.submit(a_request("wide", gpus=2))
    world.submit(*[a_request(f"more {number}") for number in range(5)])

    world.end(1)
    world.end(2)

    assert world.running() == [wide.id]


def test_the_same_text_twice_is_two_jobs(make_world):
    world = make_world(1, 1)

    first, second = world.submit(a_request("same"), a_request("same"))

    assert first.id != second.id
    assert world.running() == [first.id, second.id]
    assert len(world.told(Queued)) == 2
    assert world.told(Skipped, Refused) == []


def test_a_clock_that_is_set_back_hides_no_job(make_world):
    world = make_world()
    world.submit(a_request("flaky", retries=1), a_request("long"))
    world.end(1, code=1)
    world.advance(2)  # the retry is due, and waits for the card

    world.now -= 3600
    world.end(2)

    assert world.running() == [1]


def test_a_clock_that_is_set_back_holds_up_neither_a_retry_nor_a_look(make_world):
    world = make_world()
    job, other = world.submit(a_request("flaky", retries=1), a_request("other"))
    world.end(job, code=1)
    world.kill_shim(other, command_too=False)  # its GPU is looked at every half second

    world.clock_is_off = -3600.0
    world.turn()
    world.machine.alive(other.id)[0].is_alive = False
    world.machine._unlock(next(run for run in world.machine.ledger if run.job == other.id))
    world.advance(2)

    assert world.running() == [job.id]
    assert world.store.job(other.id).state is State.LOST
