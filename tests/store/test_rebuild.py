"""A store that is made again from its journal is the same store."""

import fcntl
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dibs.errors import FolderInUse, StoreUnusable
from dibs.model.jobs import After, ArrayTask, Dependency, JobId, State
from dibs.model.usage import Usage
from dibs.store import journal_lines
from dibs.store import rebuild as rebuilding
from dibs.store.codec import encode_request
from dibs.store.journal import Journal
from dibs.store.rebuild import rebuild
from dibs.store.store import Store
from dibs.supervise.folder import AttemptFacts
from examples import examples
from store.builders import NOON, a_request
from store.campaign import BAD, BLANK, GONE, RUNS, Books, picture

TODAY = NOON + 1_000_000


@pytest.fixture
def folder(tmp_path):
    one = tmp_path / "queue 'é\n%20?"
    one.mkdir()
    return str(one)


@pytest.fixture
def books(folder):
    one = Books(folder)
    yield one
    one.close()


def again(books, facts=lambda folder: RUNS, spec_of=lambda folder: None, used=lambda folder: None):
    """Rebuild, and return the report and the new store, open."""
    books.close()
    report = rebuild(books.folder, look=facts, spec_of=spec_of, now=TODAY, used=used)
    books.store = Store(f"{books.folder}/store.db")
    books.journal = Journal(f"{books.folder}/journal.jsonl")
    return report, books.store


def over(**record):
    def look(folder):
        job, number = map(int, os.path.basename(folder).split("."))
        ended = {"state": "ended", "ended": NOON + 77, **record}
        return AttemptFacts(
            is_locked=False, record=ended, has_started=True, identity={"job": job, "attempt": number}
        )

    return look


# -- the same store --------------------------------------------------------------------------------------


@given(choices=st.lists(st.integers(0, 10_000), max_size=40), compacts=st.booleans())
@example(choices=[*range(40)], compacts=True)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_history_is_restored_to_the_last_column(tmp_path_factory, choices, compacts):
    folder = str(tmp_path_factory.mktemp("queue"))
    books = Books(folder)
    for choice in choices:
        books.anything(choice)
    if compacts:
        books.compact()
        for choice in choices[:5]:
            books.anything(choice)
    books.close()
    before = picture(f"{folder}/store.db")

    report = rebuild(folder, look=lambda folder: RUNS, spec_of=lambda folder: None, now=TODAY)

    if compacts:  # what is not needed any more may be forgotten
        before = {**before, "submissions": [], "code": []}
    after = picture(f"{folder}/store.db")
    assert {name: after[name] if before[name] else [] for name in after} == before
    assert report.missing == []


@pytest.mark.parametrize("plant", ["written in the next turn", "ends are not written", "changes are not written"])
def test_the_planted_bugs_are_found_by_this_comparison(folder, plant):
    books = Books(folder, plant=plant)
    first, second = books.add(a_request("a"), a_request("b"))
    attempt = books.start(first.id)
    books.end(attempt, BAD)
    books.hold(second.id)
    books.close()
    before = picture(f"{folder}/store.db")

    rebuild(folder, look=lambda folder: RUNS, spec_of=lambda folder: None, now=TODAY)

    assert picture(f"{folder}/store.db") != before


def test_more_lines_than_one_turn_takes_are_all_told(books, monkeypatch):
    monkeypatch.setattr(rebuilding, "_LINES_A_TURN", 3)
    for number in range(10):
        books.add(a_request(f"job {number}"))

    report, store = again(books)

    assert report.jobs == 10
    assert store.counts() == {State.QUEUED: 10}


def test_numbers_go_on_after_the_highest_that_was_ever_given(books):
    jobs = books.add(*[a_request(str(number)) for number in range(5)])
    books.clean([job.id for job in jobs])
    books.journal.compact(lambda number: False)

    report, _ = again(books)

    assert report.jobs == 0
    assert [job.id for job in books.add(a_request("new"))] == [6]


def test_a_call_that_is_repeated_gets_the_same_numbers(books):
    books.add(a_request("a"), a_request("b"))

    _, store = again(books)

    assert store.queue.numbers_of("call 1") == (1, 2)


def test_readers_of_events_miss_none(books):
    books.add(a_request())
    with books.store.turn():
        for _ in range(50):
            books.store.events.write(NOON, "job.ended", 1)
    seen = books.store.events.last_id

    _, store = again(books)

    assert [event.kind for event in store.events.since(seen)] == ["store.rebuilt"]


def test_what_attempts_used_comes_back_from_their_folders(books):
    measured, short = books.add(a_request("measured"), a_request("short"))
    folder = books.start(measured.id).folder
    books.end(books.store.open_attempts()[0][1])
    books.end(books.start(short.id))
    usage = Usage(seconds=9.0, peak_vram=7)

    again(books, used={folder: usage}.get)

    assert books.store.listing.row(measured.id).usage == usage
    assert books.store.listing.row(short.id).usage is None


# -- what the store did not take ---------------------------------------------------------------------------


def test_a_later_call_takes_the_place_of_one_that_was_never_acknowledged(books):
    (kept,) = books.add(a_request("kept"))
    ghosts = [replace(kept, id=JobId(number), request=a_request("ghost")) for number in (2, 3, 4)]
    texts = [encode_request(job.request) for job in ghosts]
    books.journal.append([journal_lines.added(ghosts, texts, key="lost call", now=NOON)])  # and then it was killed
    books.add(a_request("two"))

    report, store = again(books)

    shown = [job.request.command.shown for job in store.waiting("{}", TODAY, 9)]
    assert shown == ["kept", "two"]
    assert store.queue.numbers_of("lost call") is None
    assert report.missing == []


def test_a_start_that_was_written_twice_counts_once(books):
    (job,) = books.add(a_request(retries=3))
    attempt = books.start(job.id)
    books.journal.append([journal_lines.started(attempt)])

    _, store = again(books)

    assert store.job(job.id).tries == 1
    assert [row.attempt.number for row in store.listing.attempts(job.id)] == [1]


# -- attempts whose end was not recorded ----------------------------------------------------------------------


def test_what_still_runs_is_left_for_the_next_daemon_to_adopt(books):
    (job,) = books.add(a_request())
    attempt = books.start(job.id)

    report, store = again(books, lambda folder: RUNS)

    assert [found for _, found in store.open_attempts()] == [attempt]
    assert report.missing == []


def test_an_exit_record_in_its_folder_wins(books):
    (job,) = books.add(a_request())
    books.start(job.id)

    _, store = again(books, over(code=7))

    row = store.listing.row(job.id)
    assert (row.job.state, row.outcome.exit_code, row.ended_at) == (State.FAILED, 7, NOON + 77)


def test_what_was_told_to_save_its_work_is_left_for_the_daemon_to_queue_again(books):
    (job,) = books.add(a_request())
    books.start(job.id)

    _, store = again(books, over(code=0, by="checkpoint", checkpointed=True))

    assert store.job(job.id).state is State.RUNNING


@pytest.mark.parametrize(
    ("facts", "missing"),
    [
        (GONE, ["how job 1 ended is not known: its record is gone (attempt 1)"]),
        (GONE._replace(damage=""), []),
        (BLANK, []),
    ],
    ids=["gone", "started", "blank"],
)
def test_what_has_no_end_is_left_for_the_daemon_to_judge(books, facts, missing):
    (job,) = books.add(a_request())
    books.start(job.id)

    report, store = again(books, lambda folder: facts)

    assert len(store.open_attempts()) == 1  # something of it may still hold the GPU
    assert report.missing == missing


def test_a_record_that_was_copied_from_another_attempt_settles_nothing(books):
    (job,) = books.add(a_request())
    books.start(job.id)

    _, store = again(books, lambda folder: over(code=0)("attempts/0/7.1"))

    assert len(store.open_attempts()) == 1


def test_a_folder_that_cannot_be_read_is_named_and_its_job_not_touched(books):
    (job,) = books.add(a_request())
    books.start(job.id)

    def look(folder):
        raise PermissionError(13, "Permission denied")

    report, store = again(books, look)

    assert store.job(job.id).state is State.RUNNING
    assert "Permission denied" in report.missing[0]


def test_followers_of_a_job_that_ended_meanwhile_go_on_or_are_held(books):
    (first,) = books.add(a_request("first"))
    ok, fail = books.add(
        a_request("ok", after=(Dependency(first.id, After.OK),)),
        a_request("fail", after=(Dependency(first.id, After.FAIL),)),
    )
    books.start(first.id)

    report, store = again(books, over(code=0))

    assert (store.job(ok.id).state, store.job(ok.id).blockers) == (State.QUEUED, 0)
    assert (store.job(fail.id).state, store.job(fail.id).why_held) == (
        State.HELD,
        "job 1, which it was to follow, has ended (succeeded)",
    )
    assert report.missing == ["job 3 waits for job 1, which has ended (succeeded)"]


# -- what only the folders know ----------------------------------------------------------------------------

SPEC = {
    "job": 1,
    "attempt": 1,
    "words": ["bash", "-c", "train"],
    "env": {"DIBS_JOB_NAME": "n", "GPU": "cuda0", "SEED": "1", "DIBS_GPUS": "0"},
    "workdir": "/data",
    "grace": 5.0,
    "time_limit": None,
}


def test_a_start_that_a_power_cut_took_from_the_journal_is_found_in_its_folder(books):
    (job,) = books.add(a_request())
    os.makedirs(f"{books.folder}/attempts/0/1.1")

    _, store = again(books, over(code=3), lambda folder: SPEC)

    row = store.listing.row(job.id)
    assert (row.job.state, row.job.attempts, row.outcome.exit_code) == (State.FAILED, 1, 3)


def test_a_folder_that_was_made_but_never_used_is_no_start(books):
    (job,) = books.add(a_request())
    os.makedirs(f"{books.folder}/attempts/0/1.1")

    _, store = again(books, lambda folder: BLANK, lambda folder: SPEC)

    assert store.job(job.id) == job


def test_a_job_that_is_in_no_line_is_restored_from_its_folder(books):
    os.makedirs(f"{books.folder}/attempts/0/1.1")
    spec = {**SPEC, "environment": f"/somewhere/{books.environment}.json"}

    report, store = again(books, over(code=0), lambda folder: spec)

    row = store.listing.row(JobId(1))
    request = row.job.request
    assert row.job.state is State.SUCCEEDED
    assert (request.command.shown, request.name, request.workdir) == ("train", "n", "/data")
    assert request.env == (("SEED", "1"),)
    assert report.missing == ["job 1 is not in the journal; what its folder says was restored"]
    assert [job.id for job in books.add(a_request("new"))] == [2]


def test_a_cleaned_job_does_not_come_back_from_a_folder_that_was_left(books):
    (job,) = books.add(a_request())
    books.end(books.start(job.id))
    books.clean([job.id])
    os.makedirs(f"{books.folder}/attempts/0/1.1")

    report, _ = again(books, over(code=0), lambda folder: SPEC)

    assert (report.jobs, report.missing) == (0, [])


def test_a_folder_that_is_used_for_another_attempt_tells_nothing_about_this_one(books):
    books.add(a_request())
    os.makedirs(f"{books.folder}/attempts/0/1.1")

    _, store = again(books, over(code=0), lambda folder: {**SPEC, "job": 1001})

    assert store.counts() == {State.QUEUED: 1}


# -- what is missing -----------------------------------------------------------------------------------------


def test_jobs_whose_environment_is_gone_are_held_with_the_reason(books):
    waiting, ended = books.add(a_request("waits"), a_request("ended"))
    books.end(books.start(ended.id))
    os.unlink(f"{books.folder}/environments/{books.environment}.json")

    report, store = again(books)

    assert store.job(waiting.id).why_held == "its environment could not be restored"
    assert store.job(ended.id).state is State.SUCCEEDED
    assert report.missing == ["the environment of job 1-2 is gone"]


def test_an_environment_that_was_changed_is_not_taken_for_the_right_one(books):
    books.add(a_request())
    Path(f"{books.folder}/environments/{books.environment}.json").write_text('{"HOME": "/elsewhere"}')

    report, store = again(books)

    assert store.job(JobId(1)).state is State.HELD
    assert report.missing[0] == f"the environment {books.environment} is damaged"


def test_a_damaged_line_is_named_and_the_rest_restored(books):
    books.add(a_request("one"))
    books.add(a_request("two"))
    books.add(a_request("three", after=(Dependency(JobId(2)),)))
    path = Path(f"{books.folder}/journal.jsonl")
    lines = path.read_bytes().split(b"\n")
    lines[3] = b"\0" * len(lines[3])  # the second job
    path.write_bytes(b"\n".join(lines))

    report, store = again(books)

    assert report.missing == [
        "line 4 of the journal is damaged",
        "job 3 waits for job 2, which could not be restored",
    ]
    assert store.counts() == {State.QUEUED: 1, State.HELD: 1}
    assert [job.id for job in books.add(a_request("new"))] == [4]


def test_an_end_whose_start_cannot_be_read_still_counts(books):
    (job,) = books.add(a_request())
    books.end(books.start(job.id), BAD)
    path = Path(f"{books.folder}/journal.jsonl")
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], b"?", *lines[3:]]))

    report, store = again(books)

    assert store.listing.row(job.id).outcome.exit_code == BAD.exit_code
    assert report.missing == ["line 3 of the journal is damaged"]


def test_lines_of_another_dibs_are_named_and_passed_over(books):
    books.add(a_request())
    books.journal.append([{"k": "dance"}, {"k": "start", "job": 99}, {"k": "end"}])

    report, _ = again(books)

    assert report.jobs == 1
    assert len(report.missing) == 3


def test_without_a_journal_that_is_said(books):
    books.add(a_request())
    os.unlink(f"{books.folder}/journal.jsonl")

    report, _ = again(books)

    assert report.missing == ["the journal cannot be read: No such file or directory"]


def test_the_head_of_an_array_may_be_gone(books):
    tasks = [a_request("task", array=ArrayTask(JobId(0), number)) for number in (1, 2, 1, 2)]
    jobs = books.add(*tasks)
    assert [job.request.array.array for job in jobs] == [1, 1, 3, 3]
    for job in (jobs[0], jobs[2]):
        books.end(books.start(job.id))
        books.clean([job.id])
    books.journal.compact(lambda number: number in (2, 4))

    _, store = again(books)

    assert [store.job(JobId(number)).request.array.array for number in (2, 4)] == [1, 3]
    assert store.listing.find("3_2") == [4]


# -- the exchange --------------------------------------------------------------------------------------------


def test_it_is_refused_while_a_daemon_works_here_and_nothing_changes(books):
    books.add(a_request())
    books.close()
    before = sorted(os.listdir(books.folder))
    with open(f"{books.folder}/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        with pytest.raises(FolderInUse, match="a daemon works with it"):
            rebuild(books.folder, look=lambda folder: RUNS, spec_of=lambda folder: None, now=TODAY)

    assert sorted(os.listdir(books.folder)) == sorted([*before, "lock"])
    books.store, books.journal = Store(f"{books.folder}/store.db"), Journal(f"{books.folder}/journal.jsonl")


def test_the_old_store_and_its_log_are_kept_however_often_it_is_rebuilt(books):
    books.add(a_request())
    books.close()
    garbage = {"store.db": b"first", "store.db-wal": b"log", "store.db-shm": b"index"}
    olds = []
    for round_ in range(3):
        for name, content in garbage.items():
            Path(books.folder, name).write_bytes(content + b"%d" % round_)
        olds.append(rebuild(books.folder, look=lambda folder: RUNS, spec_of=lambda folder: None, now=TODAY).old)

    for round_, old in enumerate(olds):
        assert Path(old).read_bytes() == b"first%d" % round_
        assert Path(f"{old}-wal").read_bytes() == b"log%d" % round_
    assert len(set(olds)) == 3
    assert os.stat(f"{books.folder}/store.db").st_mode & 0o777 == 0o600
    books.store, books.journal = Store(f"{books.folder}/store.db"), Journal(f"{books.folder}/journal.jsonl")


@pytest.mark.parametrize("killed_at", range(1, 5))
def test_wherever_it_is_stopped_no_store_opens_that_is_not_whole(books, killed_at, monkeypatch):
    books.add(a_request("one"))
    books.close()
    path = Path(books.folder, "store.db")
    damaged = path.read_bytes()[:5000]
    path.write_bytes(damaged)
    Path(f"{path}-wal").write_bytes(b"log")
    steps = iter(range(1, 99))
    for name in ("link", "replace", "rename"):
        monkeypatch.setattr(rebuilding.os, name, _dying(getattr(os, name), steps, killed_at))
    with pytest.raises(KeyboardInterrupt):
        rebuild(books.folder, look=lambda folder: RUNS, spec_of=lambda folder: None, now=TODAY)
    monkeypatch.undo()

    shutil.copytree(books.folder, f"{books.folder} copy")  # SQLite removes a log that makes no sense
    with pytest.raises(StoreUnusable):
        Store(f"{books.folder} copy/store.db")
    report = rebuild(books.folder, look=lambda folder: RUNS, spec_of=lambda folder: None, now=TODAY)

    kept = [file.read_bytes() for file in Path(books.folder).glob("store.db.damaged-*")]
    assert damaged in kept and b"log" in kept
    assert (report.jobs, report.missing) == (1, [])
    books.store, books.journal = Store(str(path)), Journal(f"{books.folder}/journal.jsonl")


def _dying(act, steps, killed_at):
    def do(*arguments, **more):
        if next(steps) == killed_at:
            raise KeyboardInterrupt
        return act(*arguments, **more)

    return do
