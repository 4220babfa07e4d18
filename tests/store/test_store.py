"""What a store remembers."""

import os
import stat
from dataclasses import replace

import pytest

from dibs.model.jobs import Cause, Outcome, State
from dibs.model.usage import Usage
from dibs.store.codec import class_of
from dibs.store.store import Store
from store.builders import NOON, a_request, an_attempt, run, submit

GOOD = Outcome(exit_code=0, seconds=1.0)
BAD = Outcome(exit_code=3, cause=Cause.EXIT_CODE, seconds=1.0)


def test_what_was_submitted_is_there_when_the_file_is_opened_again(path):
    store = Store(path)
    (job,) = submit(store, "train")
    store.close()

    again = Store(path)

    assert again.job(job.id) == job
    again.close()


def test_an_error_inside_a_turn_takes_everything_back(store):
    with pytest.raises(RuntimeError), store.turn():
        store.submit(a_request(), store.keep_environment({}), NOON)
        raise RuntimeError

    assert store.counts() == {}
    (job,) = submit(store, "train")  # and the text was not counted
    assert job.id == 1


def test_numbers_are_never_used_again(path):
    store = Store(path)
    submit(store, "one", "two")
    with store.turn():
        store._db.execute("delete from jobs")
    store.close()

    store = Store(path)
    (job,) = submit(store, "three")

    assert job.id == 3
    store.close()


def test_the_kth_line_with_a_text_is_the_kth_job_with_that_text(path):
    store = Store(path)
    first = [job.id for job in submit(store, "a", "b", "a", "a")]
    store.close()

    store = Store(path)
    again = [job.id for job in submit(store, "new", "a", "a", "b", "a", "a")]

    assert first == [1, 2, 3, 4]
    assert again == [5, 1, 3, 2, 4, 6]
    store.close()


def test_a_line_that_asks_for_more_time_is_the_same_job(path):
    store = Store(path)
    submit(store, "a")
    store.close()
    store = Store(path)

    (job,) = submit(store, "a", time_limit=60.0, retries=3, priority=9, num_gpus=2)

    assert job.id == 1
    assert job.request.time_limit is None  # until it is queued again
    with store.turn():
        job = store.queue_again(job.id, a_request("a", time_limit=60.0, num_gpus=2), "an environment")
    assert (job.request.time_limit, job.environment) == (60.0, "an environment")
    assert store.waiting_classes() == [class_of(job.request)]
    store.close()


def test_another_folder_or_variable_makes_it_another_job(store):
    with store.turn():
        key = store.keep_environment({})
        jobs = [
            store.submit(request, key, NOON)[0].id
            for request in (a_request(), a_request(workdir="/data"), a_request(env=(("SEED", "1"),)))
        ]

    assert jobs == [1, 2, 3]


def test_an_environment_is_stored_once_however_many_jobs_share_it(store):
    with store.turn():
        keys = [store.keep_environment(one) for one in ({"A": "1", "B": "2"}, {"B": "2", "A": "1"}, {"A": "2"})]

    assert keys[0] == keys[1] != keys[2]
    assert store._db.execute("select count(*) from environments").fetchone() == (2,)


def test_an_environment_of_a_turn_that_failed_is_stored_by_the_next(store):
    with pytest.raises(RuntimeError), store.turn():
        store.keep_environment({"A": "1"})
        raise RuntimeError

    with store.turn():
        store.keep_environment({"A": "1"})

    assert store._db.execute("select count(*) from environments").fetchone() == (1,)


def test_waiting_jobs_come_by_priority_and_then_by_age(store):
    submit(store, "a", "b")
    submit(store, "urgent", priority=5)
    submit(store, "later", priority=-1)
    submit(store, "c")

    found = store.waiting(class_of(a_request()), NOON, 4)

    assert [job.request.command.shown for job in found] == ["urgent", "a", "b", "c"]


def test_each_kind_of_wish_that_waits_is_named_once(store):
    submit(store, "a", "b")
    submit(store, "wide", "wider", num_gpus=2)
    (job,) = submit(store, "big", vram=7)
    run(store, job, GOOD)

    assert store.waiting_classes() == ['{"num_gpus":2}', "{}"]
    assert Store.waiting_classes(store) == sorted(store.waiting_classes())


def test_no_wishes_wait_in_an_empty_store(store):
    assert store.waiting_classes() == []
    assert store.delayed((NOON, 0), 9) == store.waiting("{}", NOON, 9) == store.open_attempts() == []


def test_a_retry_waits_for_its_moment(store):
    (job,) = submit(store, "flaky")

    run(store, job, BAD, retry_at=NOON + 10)

    assert store.waiting("{}", NOON + 9, 9) == []
    assert [late.id for late in store.delayed((NOON + 9, 0), 9)] == [job.id]
    assert [ready.id for ready in store.waiting("{}", NOON + 10, 9)] == [job.id]
    assert store.delayed((NOON + 10, job.id), 9) == []
    assert store.job(job.id).tries == 1


def test_an_open_attempt_is_found_again_with_its_claims_and_folder(path):
    folder = os.fsdecode(b"/runs/\xff \xc3\xa9\n/1.1")
    store = Store(path)
    (job,) = submit(store, "train")
    with store.turn():
        store.open_attempt(an_attempt(job, folder=folder))
    store.close()

    store = Store(path)
    ((found, attempt),) = store.open_attempts()

    assert attempt == an_attempt(job, folder=folder)
    assert found == replace(job, state=State.RUNNING, attempts=1, tries=1)
    store.close()


def test_an_attempt_that_never_ran_leaves_no_trace(store):
    (job,) = submit(store, "train")
    with store.turn():
        store.open_attempt(an_attempt(job))

    with store.turn():
        store.forget_attempt(an_attempt(job), None)

    assert store.job(job.id) == job
    assert store.open_attempts() == []


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (GOOD, State.SUCCEEDED),
        (BAD, State.FAILED),
        (Outcome(signal=9, cause=Cause.SIGNAL), State.FAILED),
        (Outcome(exit_code=143, cause=Cause.TIME_LIMIT), State.TIMED_OUT),
        (Outcome(signal=15, cause=Cause.STOPPED), State.CANCELLED),
        (Outcome(cause=Cause.LOST, message="its end was not seen"), State.LOST),
    ],
)
def test_how_it_ended_is_kept_exactly(store, outcome, state):
    (job,) = submit(store, "train")

    run(store, job, outcome)

    (row,) = store.rows([state], 9)
    assert row.outcome == outcome
    assert (row.gpus, row.folder) == ((3,), "/runs/1.1")
    assert store.counts() == {state: 1}


def test_what_an_attempt_used_is_kept_with_its_end(store):
    (job,) = submit(store, "train")
    usage = Usage(seconds=12.5, peak_vram=2**33, mean_load=31.0, energy=4.2, astray=("GPU-b",))
    attempt = an_attempt(job)
    with store.turn():
        store.open_attempt(attempt)
    assert store.listing.row(job.id).usage is None

    with store.turn():
        store.end_attempt(attempt, Outcome(exit_code=0), NOON, None, usage)

    assert store.listing.row(job.id).usage == usage
    assert [row.usage for row in store.listing.attempts(job.id)] == [usage]


def test_a_measurement_that_cannot_be_read_does_not_hide_its_job(store):
    (job,) = submit(store, "train")
    run(store, job, Outcome(exit_code=0))
    for text in ("{", "[]", '{"seconds":"long"}'):
        with store.turn():
            store._db.execute("update attempts set usage = ?", (text,))

        assert store.listing.row(job.id).usage is None


def test_a_message_that_is_no_utf8_can_still_be_kept(store):
    (job,) = submit(store, "train")

    run(store, job, Outcome(exit_code=127, cause=Cause.START_ERROR, message="no " + os.fsdecode(b"\xff")))

    assert store.rows([State.FAILED], 9)[0].outcome.message == "no \\udcff"


def test_what_has_not_succeeded_is_left_over_unless_it_was_refused(store):
    good, bad, refused, running, waiting = submit(store, "good", "bad", "refused", "running", "waiting")
    run(store, good, GOOD)
    run(store, bad, BAD)
    with store.turn():
        store.refuse(refused.id, Outcome(cause=Cause.REFUSED, message="never"), NOON)
        store.open_attempt(an_attempt(running))
        store.hold_leftovers()

    found = store.leftovers()

    assert found == [bad.id, waiting.id]


def test_a_job_that_is_queued_again_forgets_how_it_ended(store):
    (job,) = submit(store, "train")
    run(store, job, BAD)

    with store.turn():
        again = store.queue_again(job.id)

    assert again == replace(job, attempts=1)
    assert store.rows([State.QUEUED], 9)[0].outcome is None


def test_a_refusal_takes_the_place_of_an_earlier_end(store):
    (job,) = submit(store, "train")
    run(store, job, BAD)
    refused = Outcome(cause=Cause.REFUSED, message="it wants 2 GPUs")

    with store.turn():
        store.refuse(job.id, refused, NOON)

    assert store.rows([State.FAILED], 9)[0].outcome == refused


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_the_file_and_its_log_are_for_our_eyes_only(path, mask):
    before = os.umask(mask)
    try:
        store = Store(path)
        submit(store, "train")
        modes = {name: stat.S_IMODE(os.stat(f"{path}{name}").st_mode) for name in ("", "-wal")}
        left = os.listdir(os.path.dirname(path))
        store.close()
    finally:
        os.umask(before)

    assert modes == {"": 0o600, "-wal": 0o600}
    assert sorted(left) == ["store.db", "store.db-wal"]


def test_a_list_counts_and_lists_as_before_without_what_the_readers_of_a_queue_need(path):
    store = Store(path, is_list=True)
    good, bad, _ = submit(store, "good", "bad", "left")

    run(store, good, GOOD)
    run(store, bad, BAD)

    assert store.counts() == {State.SUCCEEDED: 1, State.FAILED: 1, State.QUEUED: 1}
    assert [row.job.id for row in store.rows((State.FAILED,), -1)] == [bad.id]
    assert store.leftovers() == [bad.id]
    store.close()


def test_a_list_is_made_in_one_go_and_opened_again_without_a_change(path):
    store = Store(path, is_list=True)
    assert store._db.total_changes == 0
    submit(store, "one")
    store.close()

    again = Store(path, is_list=True)

    assert again._db.total_changes == 0
    assert again.counts() == {State.QUEUED: 1}
    again.close()


def test_a_list_writes_no_page_for_the_readers_of_a_queue(path):
    store = Store(path, is_list=True)

    names = {name for (name,) in store._db.execute("select name from sqlite_master where tbl_name = 'jobs'")}

    assert not names & {"jobs_turn", "jobs_state", "jobs_ended", "job_added", "job_changed", "job_removed"}
    store.close()


def test_a_list_writes_over_its_log_before_it_has_grown_much(path):
    store = Store(path, is_list=True)

    for turn in range(40):
        submit(store, *(f"train {turn} {number} {'x' * 4000}" for number in range(60)))

    assert os.path.getsize(path) > 8 * 1024**2  # that much went through it
    assert os.path.getsize(f"{path}-wal") < 6 * 1024**2
    store.close()
