"""Cards that break under jobs, as histories: what is taken out, whose fault it was, and how it comes back."""

from datetime import UTC, datetime

import pytest

from dibs.engine.watch.health import CardTestResult
from dibs.model.events import Trouble
from dibs.model.gpus import CardState, GpuFault, GpuReading, Reading
from dibs.model.jobs import Cause, JobId
from dibs.policy.outcomes import Limits
from engine.queue_world import QueueWorld, a_wish
from engine.world import a_pool


@pytest.fixture
def make_queue(tmp_path):
    worlds = []

    def make(cards=2, slots=1, **more):
        root, leases = tmp_path / "queue 'é\n€", tmp_path / "leases"
        root.mkdir()
        leases.mkdir()
        pool = a_pool(*[slots] * cards)
        worlds.append(QueueWorld(root=str(root), leases_folder=str(leases), pool=pool, **more))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


def see(world, *xids, lost=(), errors=0):
    """A reading now: `see(world, (79, 1))` is an Xid 79 of GPU 1."""
    cards = [card.gpu for card in world.pool.cards]
    reading = Reading(
        at=datetime.fromtimestamp(world.now, UTC),
        gpus=tuple(
            GpuReading(
                gpu=gpu,
                state=CardState.LOST if gpu.index in lost else CardState.OK,
                ecc_uncorrected=errors if gpu.index == 1 else 0,
            )
            for gpu in cards
        ),
        faults=tuple(GpuFault(cards[index].key, xid) for xid, index in xids),
    )
    world.engine.cards.saw(reading)
    world.health.saw(reading)
    world.engine.ask_for_turn()
    world.settle_down()


def marks(world):
    return {mark.subject: (mark.kind, mark.why) for mark in world.store.listing.marks()}


THREE_FAILURES = Limits(quick_failures=0, gpu_failures=3)  # on a card, and it is quarantined
OFF_THE_BUS = {"gpu index-1": ("quarantined", "Xid 79: it has fallen off the bus")}


@pytest.mark.parametrize(
    ("sight", "why"),
    [
        ({"xids": [(79, 1)]}, "Xid 79: it has fallen off the bus"),
        ({"lost": [1]}, "it does not answer any more"),
        ({"errors": 2}, "its memory has 2 new errors that cannot be corrected"),
    ],
)
def test_a_card_that_breaks_is_taken_out_and_nothing_starts_there(make_queue, sight, why):
    world = make_queue()
    see(world)

    see(world, *sight.pop("xids", []), **sight)
    world.add(*[a_wish(str(number)) for number in range(3)])

    assert marks(world) == {"gpu index-1": ("quarantined", why)}
    assert world.running() == [1]
    assert f"GPU 1 is quarantined ({why})" in world.sentence(2)
    assert world.kinds().count("gpu.quarantined") == 1
    assert ("trouble", f"GPU 1 is quarantined: {why}") in world.told(Trouble)


def test_what_a_program_does_wrong_costs_no_card(make_queue):
    world = make_queue()

    see(world, (31, 1), (13, 0), (45, 0), (63, 1))

    assert marks(world) == {}


def test_a_quarantine_is_there_after_a_crash(make_queue):
    world = make_queue()
    see(world)
    see(world, (79, 1))

    world.crash()
    world.resume()
    world.add(a_wish("a"), a_wish("b"))

    assert marks(world) == OFF_THE_BUS
    assert world.running() == [1]


def test_a_card_that_a_user_drained_stays_drained(make_queue):
    world = make_queue()
    world.queue.pool.drain(["1"], "for the party")

    see(world, (79, 1))

    assert marks(world) == {"gpu index-1": ("drained", "for the party")}


def test_an_xid_says_more_than_a_row_of_failures_and_is_told_once(make_queue):
    world = make_queue(2, limits=THREE_FAILURES)
    see(world)
    see(world, lost=[1])

    see(world, (79, 1), lost=[1])
    see(world, (79, 1), (119, 1), lost=[1])

    assert marks(world) == OFF_THE_BUS
    assert world.kinds().count("gpu.quarantined") == 2


def test_a_full_disk_only_puts_a_quarantine_off(make_queue):
    world = make_queue()
    see(world)

    world.store.is_full = True
    see(world, (79, 1))
    before = marks(world)
    world.store.is_full = False
    world.advance(3)
    see(world)

    assert before == {}
    assert marks(world) == OFF_THE_BUS


# -- whose fault it was ------------------------------------------------------------------------------------


def on_gpu_1(world, **more):
    """A job that runs on GPU 1."""
    _, job = world.add(a_wish("other"), a_wish("job", **more))
    assert [claim.index for claim in world._run_of(job).claims] == [1]
    return job


def test_what_ends_on_a_card_after_it_broke_ends_of_it_and_goes_elsewhere(make_queue):
    world = make_queue(3)
    see(world)
    job = on_gpu_1(world, retries=1, retry_on=("gpu-fault",))

    see(world, (79, 1))
    world.now += 20
    world.end(job, code=1)
    world.advance(1)

    assert world.running() == [1, 2]
    assert [claim.index for claim in world._run_of(job).claims] == [2]
    (row,) = [row for row in world.store.events.since(0) if row.kind == "job.ended"]
    assert '"cause": "gpu-fault"' in str(row.body).replace("'", '"')
    assert "GPU 1 failed: Xid 79: it has fallen off the bus" in str(row.body)


def test_what_succeeds_or_has_its_own_reason_or_ends_much_later_is_not_the_cards(make_queue):
    world = make_queue(4)
    see(world)
    jobs = world.add(*[a_wish(str(number)) for number in range(4)])
    see(world, *[(79, index) for index in range(4)])

    world.end(jobs[0], code=0)
    world.end(jobs[1], signal=15, by="stop")
    world.now += 31
    world.end(jobs[2], code=1)
    see(world)

    assert world.outcome(jobs[0]).cause is None
    assert world.outcome(jobs[1]).cause is Cause.STOPPED
    assert (world.outcome(jobs[2]).cause, world.outcome(jobs[2]).message) == (Cause.EXIT_CODE, "")


def test_a_failure_waits_for_what_its_card_says_about_it(make_queue):
    world = make_queue()
    see(world)
    job = on_gpu_1(world)
    world.now += 1

    world.end(job, code=1)
    before = world.state(job.id), world.engine.cards.are_unsettled
    world.now += 0.2
    see(world, (79, 1))

    assert before == ("running", True)
    assert (world.outcome(job).cause, world.outcome(job).exit_code) == (Cause.GPU_FAULT, 1)
    assert marks(world) == OFF_THE_BUS


def test_a_reading_from_before_the_end_says_nothing_about_it(make_queue):
    world = make_queue()
    see(world)
    job = on_gpu_1(world)
    ended_at = world.now + 5

    world.now = ended_at
    world.end(job, code=1)
    world.now = ended_at - 1
    see(world)
    world.now = ended_at + 0.1
    between = world.state(job.id)
    see(world, (31, 1))

    assert between == "running"
    assert world.outcome(job).cause is Cause.EXIT_CODE
    assert world.outcome(job).message == "the driver reported Xid 31: an illegal memory access by the program"


def test_of_several_jobs_on_a_card_the_driver_names_none(make_queue):
    world = make_queue(1, slots=2)
    see(world)
    job, _ = world.add(a_wish("a"), a_wish("b"))
    see(world, (31, 0))

    world.now += 1
    world.end(job, code=1)
    see(world)

    assert world.outcome(job).message.endswith("by the program, or by another job on this card")


def test_cards_that_do_not_answer_delay_no_end_for_long(make_queue):
    world = make_queue()
    see(world)
    job = on_gpu_1(world)
    world.now += 1

    world.end(job, code=1)
    world.advance(2)

    assert world.outcome(job).cause is Cause.EXIT_CODE
    assert world.running() == [1]


def test_a_clock_that_is_set_back_delays_no_end(make_queue):
    world = make_queue()
    see(world)
    job = on_gpu_1(world)
    world.now += 1

    world.end(job, code=1)
    world.clock_is_off = -3600.0
    world.engine.ask_for_turn()  # as with the next reading
    world.settle_down()
    world.advance(3)

    assert world.outcome(job).cause is Cause.EXIT_CODE


def test_where_no_card_can_be_read_no_end_waits(make_queue):
    world = make_queue()
    job = on_gpu_1(world)

    world.end(job, code=1)

    assert world.outcome(job).cause is Cause.EXIT_CODE


@pytest.mark.parametrize("how", [{"code": 0}, {"signal": 15, "by": "stop"}, {"code": 3, "by": "time"}])
def test_what_cannot_be_the_cards_fault_does_not_wait(make_queue, how):
    world = make_queue()
    see(world)
    job = on_gpu_1(world)
    world.now += 1

    world.end(job, **how)

    assert world.outcome(job) is not None


def test_a_crash_while_the_cards_are_asked_loses_nothing(make_queue):
    world = make_queue()
    see(world)
    job = on_gpu_1(world)
    world.now += 1

    world.end(job, code=7)
    world.crash()
    world.resume()

    assert (world.outcome(job).exit_code, world.outcome(job).cause) == (7, Cause.EXIT_CODE)


# -- back again --------------------------------------------------------------------------------------------


def test_a_card_that_passes_its_test_is_used_again(make_queue):
    world = make_queue()
    see(world)
    see(world, (79, 1))
    world.add(a_wish("a"), a_wish("b"))
    due = world.health.tests()

    world.now += 600
    world.health.tested("index-1", CardTestResult(True))
    world.settle_down()

    assert due == {"index-1": world.now}
    assert marks(world) == {} == world.health.tests()
    assert world.running() == [1, 2]
    assert world.kinds()[-3:-1] == ["gpu.tested", "gpu.cleared"]
    assert ("trouble", "GPU 1 has passed its test and is used again") in world.told(Trouble)


def test_what_ran_there_before_is_not_blamed_on_the_card_afterwards(make_queue):
    world = make_queue(1)
    see(world)
    see(world, (79, 0))
    world.now += 5
    world.health.tested("index-0", CardTestResult(True))
    (job,) = world.add(a_wish("a"))

    world.now += 1
    world.end(job, code=1)
    see(world)

    assert world.outcome(job).cause is Cause.EXIT_CODE


def test_a_card_that_fails_its_test_is_tested_again_later_each_time(make_queue):
    world = make_queue()
    see(world, (79, 1))
    pauses = []

    for _ in range(3):
        due = world.health.tests()["index-1"]
        pauses.append(due - world.now)
        world.now = due
        world.health.tested("index-1", CardTestResult(False, "cuInit says no"))
        world.settle_down()

    assert pauses == [600, 1200, 2400]
    assert marks(world) == OFF_THE_BUS
    sentences = [sentence for _, sentence in world.told(Trouble)]
    assert any(
        "GPU 1 has failed its test: cuInit says no; it is tested again at about" in one for one in sentences
    )
    assert "it is tested again at about" in world.health.prospect("index-1")


def test_what_cannot_be_tested_stays_out_until_undrain(make_queue):
    world = make_queue()
    see(world, (79, 1))

    world.health.tested("index-1", CardTestResult(None, "there is nothing to test it with"))
    first = world.health.tests(), world.health.prospect("index-1")
    world.queue.pool.undrain(["1"])
    world.now += 1
    see(world, (79, 1))

    assert first == ({}, "`dibs gpus undrain 1` uses it again")
    assert world.health.tests().keys() == {"index-1"}  # another quarantine, another try


def test_a_card_that_is_lost_is_not_tested_until_it_is_back(make_queue):
    world = make_queue()
    see(world, lost=[1])
    lost = world.health.tests()

    see(world)

    assert lost == {}
    assert world.health.tests().keys() == {"index-1"}


def test_a_decision_of_a_user_during_a_test_counts(make_queue):
    world = make_queue()
    see(world, (79, 1))
    world.queue.pool.drain(["1"], "for the party")

    world.health.tested("index-1", CardTestResult(True))

    assert marks(world) == {"gpu index-1": ("drained", "for the party")}


def test_a_card_that_was_given_back_has_three_failures_before_it_goes_again(make_queue):
    world = make_queue(2, limits=THREE_FAILURES)

    def play(rounds):
        """Jobs fail on GPU 1 and succeed on GPU 0."""
        for _ in range(rounds):
            for job in world.add(a_wish("a", project="p"), a_wish("b", project="p")):
                world.end(job, code=world._run_of(job).claims[0].index)

    play(2)
    world.queue.pool.drain(["1"])
    world.queue.pool.undrain(["1"])
    play(2)
    before = marks(world)
    play(1)

    assert before == {}
    assert marks(world).keys() == {"gpu index-1"}


@pytest.mark.parametrize("way", ["by itself", "by hand"])
def test_a_card_does_not_rest_for_days_because_a_job_elsewhere_takes_days(make_queue, way):
    world = make_queue(2, limits=THREE_FAILURES)
    world.add(a_wish("takes days", project="vision"))
    world.add(*[a_wish(str(number), project="vision") for number in range(4)])
    for job in (2, 3, 4):
        world.end(JobId(job), code=1)
    assert world.running() == [1]
    assert "GPU 1 rests" in world.sentence(5)

    if way == "by hand":
        assert world.queue.pool.undrain(["1"]) == ["index-1"]
        world.settle_down()
    else:
        world.advance(3600)

    assert world.running() == [1, 5]
    assert marks(world) == {}


# -- what the jobs say that failed on a bad card --------------------------------------------------------

EXCUSE = (
    "GPU 1 was quarantined after this: 3 jobs failed there one after another within 10s each, while others "
    "succeeded elsewhere"
)


def fail_three_on_gpu_1(world, **more):
    """Three attempts fail on GPU 1, then a job on GPU 0 succeeds; gives the jobs that failed."""
    world.add(a_wish("takes its time", project="vision"))
    failed = []
    for number in range(3):
        (job,) = world.add(a_wish(str(number), project="vision", **more))
        assert world._run_of(job).claims[0].index == 1
        world.end(job, code=1)
        failed.append(job.id)
    return failed


def messages(world, job):
    rows = [world.store.listing.row(JobId(job)), *world.store.listing.attempts(JobId(job))]
    own, *attempts = [row.outcome.message if row.outcome else "" for row in rows]
    return own, attempts


def test_the_jobs_that_failed_on_a_card_say_that_it_was_quarantined_and_how_they_run_again(make_queue):
    world = make_queue(2, limits=THREE_FAILURES)
    failed = fail_three_on_gpu_1(world)
    before = [messages(world, job) for job in failed]

    world.end(JobId(1))

    assert before == [("", [""])] * 3
    for job in failed:
        said = f"{EXCUSE}; `dibs retry {job}` runs it again"
        assert messages(world, job) == (said, [said])
        assert world.store.listing.row(JobId(job)).outcome.cause is Cause.EXIT_CODE
    assert messages(world, 1) == ("", [""])
    told = [row for row in world.store.events.since(0) if row.kind == "job.excused"]
    assert [row.job for row in told] == failed
    assert [row.body for row in told] == [{"attempt": 1, "message": messages(world, job)[0]} for job in failed]


def test_what_was_said_before_stays_and_what_runs_again_or_is_gone_is_not_asked_for_again(make_queue):
    world = make_queue(2, limits=THREE_FAILURES)
    see(world)
    world.add(a_wish("takes its time", project="vision"))
    (said, retried, gone) = (JobId(2), JobId(3), JobId(4))
    for job in (said, retried, gone):
        world.add(a_wish("fails", project="vision"))
        if job == said:
            see(world, (31, 1))
        world.end(job, code=1)
        see(world)
        world.advance(60)  # the fault of a program is not blamed on later ones
        see(world)
    assert world.state(gone) == "failed"
    world.do("retry", retried)
    with world.engine.change():
        world.store.queue.remove([gone])

    world.end(JobId(1))

    (own, [last]) = messages(world, said)
    assert own == last
    assert own.startswith("the driver reported Xid 31: an illegal memory access by the program; GPU 1 was")
    assert own.endswith("; `dibs retry 2` runs it again")
    assert messages(world, retried) == ("", [EXCUSE])  # it is in the queue already
    assert [row.job for row in world.store.events.since(0) if row.kind == "job.excused"] == [said, retried]


def test_a_job_that_was_tried_again_says_it_of_the_attempt_alone(make_queue):
    world = make_queue(2, limits=THREE_FAILURES)
    failed = fail_three_on_gpu_1(world, retries=1)

    world.end(JobId(1))
    world.run_out()

    for job in failed:
        assert world.state(job) == "succeeded"
        assert messages(world, job) == ("", [EXCUSE, ""])


def test_a_job_on_two_bad_cards_names_both_and_one_way_out(make_queue):
    world = make_queue(4, limits=THREE_FAILURES)
    world.add(a_wish("takes its time", project="vision", gpus=2))
    for job in (2, 3, 4):
        world.add(a_wish("fails", project="vision", gpus=2))
        world.end(JobId(job), code=1)

    world.end(JobId(1))

    said, _ = messages(world, 2)
    assert marks(world).keys() == {"gpu index-2", "gpu index-3"}
    assert said.count("GPU 2 was quarantined") == said.count("GPU 3 was quarantined") == 1
    assert said.count("`dibs retry 2` runs it again") == 1


def test_a_full_disk_takes_the_sentence_back_with_the_quarantine_and_both_come_later(make_queue):
    world = make_queue(2, limits=THREE_FAILURES)
    failed = fail_three_on_gpu_1(world)

    world.store.is_full = True
    world.end(JobId(1))
    before = marks(world), [messages(world, job)[0] for job in failed]
    world.store.is_full = False
    world.advance(10)

    assert before == ({}, ["", "", ""])
    assert marks(world).keys() == {"gpu index-1"}
    assert [messages(world, job)[0].count(EXCUSE) for job in failed] == [1, 1, 1]
