"""What a store remembers of sweeps."""

import os
from dataclasses import replace

import pytest

from dibs.errors import BadInput, NoSuchSweep
from dibs.model.jobs import JobId
from dibs.model.sweeps import SweepId, SweepState, TrialState
from dibs.store import journal_lines
from dibs.store.journal import Journal
from dibs.store.rebuild import rebuild
from dibs.store.store import Store
from store.builders import NOON, a_request, submit
from store.campaign import BAD, METRICS, RUNS, Books, a_sweep, a_trial

ONE_METRIC = {"metrics": METRICS[:1]}
FASTEST = {"metrics": METRICS[1:]}


def begin(store, key="call", **more):
    with store.turn():
        return store.sweeps.add(a_sweep(key, store.keep_environment({}), **more))


def put(store, sweep, *values, state=TrialState.COMPLETE, **more):
    """Trials that have come to these values, one after another."""
    goals = store.sweeps.goals(sweep.id)
    made = []
    with store.turn():
        for number, value in enumerate(values, store.sweeps.next_number(sweep.id)):
            trial = a_trial(sweep.id, number, state=state, values=value, ended_at=NOON + number, command="f")
            made.append(replace(trial, **more))
            store.sweeps.add_trial(made[-1], goals, number)
    return made


def test_a_sweep_is_there_when_the_file_is_opened_again(path):
    store = Store(path)
    sweep = begin(store, name="sizes", why="tea", state=SweepState.HELD, counts_from=3.5, ended_at=NOON)
    (trial,) = put(store, sweep, (1.5, 2.0), job=JobId(7), study=0, pruned_by="step", is_due=True, cause="c")
    trial = replace(trial, reported={"acc": 0.5, "nan": None})
    with store.turn():
        store.sweeps.change_trial(trial, [])
    store.close()

    store = Store(path)

    assert store.sweeps.sweep(sweep.id) == replace(sweep, cursor=1)
    assert store.sweeps.trial(sweep.id, 1) == trial
    assert store.sweeps.with_key("call") == replace(sweep, cursor=1)
    assert store.sweeps.with_key("another") is None
    store.close()


def test_numbers_of_sweeps_are_never_used_again(path):
    store = Store(path)
    begin(store)
    with store.turn():
        store._db.execute("delete from sweeps")

    assert begin(store).id == 2
    store.close()


def test_a_sweep_is_found_by_number_by_name_and_as_the_last(store):
    begin(store, "a", name="sizes")
    begin(store, "b", name="sizes")
    begin(store, "c")

    assert [store.sweeps.find(text) for text in ("1", "sizes", "@", " 2 ")] == [1, 2, 3, 2]
    for text in ("9", "other", "", "@~1"):
        with pytest.raises(NoSuchSweep, match="cannot find sweep"):
            store.sweeps.find(text)


def test_an_empty_store_has_no_last_sweep(store):
    with pytest.raises(NoSuchSweep):
        store.sweeps.find("@")
    assert store.sweeps.unfinished() == []
    assert store.sweeps.page((), below=None, limit=9) == []


def test_sweeps_come_newest_first_page_by_page_and_by_state(store):
    for key in "abc":
        begin(store, key)
    begin(store, "d", state=SweepState.HELD)

    assert [one.id for one in store.sweeps.page((), below=None, limit=2)] == [4, 3]
    assert [one.id for one in store.sweeps.page((), below=3, limit=9)] == [2, 1]
    assert [one.id for one in store.sweeps.page((SweepState.HELD,), below=None, limit=9)] == [4]


def test_trials_are_counted_by_state_whatever_becomes_of_them(store):
    sweep = begin(store)
    first, _ = put(store, sweep, None, None, state=TrialState.OPEN)
    with store.turn():
        store.sweeps.change_trial(replace(first, state=TrialState.FAILED), [])

    assert store.sweeps.counts(sweep.id) == {TrialState.OPEN: 1, TrialState.FAILED: 1}
    assert [trial.number for trial in store.sweeps.open(sweep.id)] == [2]


@pytest.mark.parametrize(("spec", "order"), [(ONE_METRIC, [2, 3, 1]), (FASTEST, [1, 3, 2])])
def test_the_best_come_first_whether_less_or_more_is_better(store, spec, order):
    sweep = begin(store, spec=spec)
    put(store, sweep, (3.0,), (1.0,), (2.0,))
    put(store, sweep, (9.0,), (-9.0,), state=TrialState.PRUNED)

    assert [trial.number for trial in store.sweeps.trials(sweep.id, "best", (), None, 9).trials] == order
    assert [trial.number for trial in store.sweeps.best(sweep.id)] == order[:1]


@pytest.mark.parametrize("order", ["number", "best"])
def test_pages_of_trials_leave_none_out_and_repeat_none(store, order):
    sweep = begin(store, spec=ONE_METRIC)
    put(store, sweep, *[(number % 4 * 1e-20,) for number in range(23)])
    seen, cursor = [], None
    while True:
        page = store.sweeps.trials(sweep.id, order, (), cursor, 5)
        seen += [trial.number for trial in page.trials]
        cursor = page.cursor
        if cursor is None:
            break

    assert sorted(seen) == list(range(1, 24))
    assert seen == [trial.number for trial in store.sweeps.trials(sweep.id, order, (), None, 99).trials]


def test_a_cursor_that_is_none_is_refused(store):
    with pytest.raises(BadInput, match="as a cursor"):
        store.sweeps.trials(begin(store).id, "best", (), "x:1", 5)


def test_of_several_metrics_the_best_are_those_that_none_is_better_than(store):
    sweep = begin(store)  # less loss, more speed
    put(store, sweep, (1.0, 1.0), (2.0, 5.0), (2.0, 4.0), (3.0, 6.0), (1.0, 1.0))

    assert [trial.number for trial in store.sweeps.best(sweep.id)] == [1, 2, 4]

    put(store, sweep, (2.0, 5.5), (0.5, 0.5))

    assert [trial.number for trial in store.sweeps.best(sweep.id)] == [7, 1, 6, 4]


def test_a_front_of_other_metrics_is_of_their_values(store):
    sweep = begin(store)
    trials = put(store, sweep, (1.0, 1.0), (2.0, 5.0))
    assert [trial.number for trial in store.sweeps.best(sweep.id)] == [1, 2]

    with store.turn():
        store.sweeps.change(replace(sweep, spec={"metrics": [*METRICS, {"name": "size"}]}))
        for trial in trials:
            values = (float(trial.number), 1.0, 1.0)
            store.sweeps.change_trial(replace(trial, values=values), store.sweeps.goals(sweep.id))

    assert [trial.number for trial in store.sweeps.best(sweep.id)] == [1]


def test_a_front_forgets_what_a_failed_turn_would_have_added(store):
    sweep = begin(store)
    put(store, sweep, (1.0, 1.0))
    store.sweeps.best(sweep.id)
    with pytest.raises(RuntimeError), store.turn():
        store.sweeps.add_trial(
            a_trial(sweep.id, 2, state=TrialState.COMPLETE, values=(0.0, 9.0)), ["min", "max"], 2
        )
        raise RuntimeError

    assert [trial.number for trial in store.sweeps.best(sweep.id)] == [1]


def test_an_unfinished_sweep_runs_or_has_an_open_trial(store):
    begin(store, "a")
    begin(store, "b", state=SweepState.FINISHED)
    stopped = begin(store, "c", state=SweepState.STOPPED)
    put(store, stopped, None, state=TrialState.OPEN)

    assert store.sweeps.unfinished() == [1, 3]


def test_the_same_work_is_found_in_any_sweep_once_it_is_complete(store):
    one, other = begin(store, "a"), begin(store, "b")
    put(store, one, (1.0, 1.0), fingerprint="same", job=JobId(7))
    put(store, other, None, state=TrialState.FAILED, fingerprint="failed")
    put(store, other, (1.0, 1.0), state=TrialState.REUSED, fingerprint="reused")

    found = store.sweeps.done_before("same", one.spec)

    assert found is not None
    assert (found.sweep, found.number, found.job, found.values) == (1, 1, 7, (1.0, 1.0))
    assert store.sweeps.done_before("failed", one.spec) is store.sweeps.done_before("reused", one.spec) is None


def test_the_same_work_is_not_found_where_it_is_judged_by_other_numbers(store):
    older, newer = begin(store, "a"), begin(store, "b")
    put(store, older, (1.0, 1.0), fingerprint="same")
    put(store, newer, (5.0, 5.0), fingerprint="same")
    with store.turn():  # as `dibs sweep edit` does
        store.sweeps.change(replace(newer, spec=FASTEST))

    found = store.sweeps.done_before("same", older.spec)

    assert found is not None and found.sweep == older.id
    assert store.sweeps.done_before("same", {"metrics": [{**METRICS[0], "take": "best"}]}) is None
    assert store.sweeps.done_before("same", {"metrics": [{**METRICS[1], "target": 3.0}]}).sweep == newer.id


def test_failed_trials_whose_jobs_wait_again_are_found(store):
    sweep = begin(store)
    over, waits = submit(store, "a", "b")
    with store.turn():
        store.refuse(over.id, BAD, NOON)
    put(store, sweep, None, state=TrialState.FAILED, job=over.id)
    put(store, sweep, None, state=TrialState.FAILED, job=waits.id)
    put(store, sweep, None, state=TrialState.FAILED, job=JobId(99))

    assert [trial.number for trial in store.sweeps.revived()] == [2]


def test_the_first_that_ended_after_a_moment_without_those_that_did_not_run(store):
    sweep = begin(store)
    put(store, sweep, None, None, None, state=TrialState.FAILED)
    put(store, sweep, (1.0, 1.0), state=TrialState.REUSED)
    put(store, sweep, None, None, state=TrialState.FAILED)

    assert [trial.number for trial in store.sweeps.first_ended(sweep.id, NOON + 1, 3)] == [2, 3, 5]


def test_environment_and_code_of_a_sweep_are_kept_as_long_as_it_is_there(store):
    with store.turn():
        code, _ = store.queue.keep_code({"commit": "a1"})
        unused, _ = store.queue.keep_code({"commit": "b2"})
        environment = store.keep_environment({"A": "1"})
        store.sweeps.add(a_sweep("call", environment, code=code))
        gone, _ = store.queue.forget_unused()

    assert gone == []
    assert store.listing.code(code) == {"commit": "a1"}
    assert store.listing.code(unused) is None
    assert store.listing.environment(environment) == {"A": "1"}


# -- the journal -----------------------------------------------------------------------------------------


@pytest.fixture
def books(tmp_path):
    folder = tmp_path / "queue"
    folder.mkdir()
    one = Books(str(folder))
    yield one
    one.close()


def made_again(books):
    books.close()
    report = rebuild(books.folder, look=lambda folder: RUNS, spec_of=lambda folder: None, now=NOON + 1e6)
    books.store = Store(f"{books.folder}/store.db")
    books.journal = Journal(f"{books.folder}/journal.jsonl")
    return report


def test_sweeps_and_trials_come_back_with_a_rebuilt_store(books):
    sweep = books.sweep("sizes")
    trial = books.try_point(sweep.id, JobId(4))
    books.change_trial(trial, state=TrialState.COMPLETE, values=(0.5, 2.0), ended_at=NOON, seconds=3.0, study=0)
    books.try_point(sweep.id, JobId(5))
    books.change_sweep(replace(sweep, state=SweepState.HELD, why="tea", cursor=9))
    before = list(books.store.sweeps.all_of(sweep.id))

    report = made_again(books)

    assert report.missing == []
    assert books.store.sweeps.sweep(1).cursor == 9
    assert books.store.sweeps.sweep(1).state is SweepState.HELD
    assert list(books.store.sweeps.all_of(SweepId(1))) == before
    assert books.sweep("the next").id == 2


def test_trials_outlive_jobs_that_were_cleaned_away_also_in_a_compacted_journal(books):
    (job,) = books.add(a_request())
    sweep = books.sweep()
    trial = books.try_point(sweep.id, job.id)
    books.change_trial(trial, state=TrialState.COMPLETE, values=(0.5, 2.0))
    books.end(books.start(job.id))
    books.clean([job.id])
    books.compact()
    before = list(books.store.sweeps.all_of(sweep.id))

    made_again(books)

    assert list(books.store.sweeps.all_of(sweep.id)) == before
    assert before[0].job == job.id


def test_a_sweep_whose_environment_is_gone_is_held_and_named(books):
    books.sweep()
    os.unlink(f"{books.folder}/environments/{books.environment}.json")

    report = made_again(books)

    assert "the environment of sweep 1 is gone" in report.missing
    sweep = books.store.sweeps.sweep(1)
    assert (sweep.state, sweep.why) == (SweepState.HELD, "its environment could not be restored")


def test_a_line_about_an_unknown_sweep_is_named_and_passed_over(books):
    sweep = books.sweep()
    with books.store.turn():
        books.store._db.execute("delete from sweeps")
    trial = a_trial(sweep.id, 1)
    lines = [journal_lines.tried(trial, cursor=1) | {"sweep": 7}, journal_lines.sweep_changed(sweep) | {"id": 7}]
    books.journal.append(lines)

    report = made_again(books)

    assert report.missing == [
        f"line {number} of the journal does not fit the lines before it" for number in (2, 3)
    ]
    assert books.store.sweeps.sweep(1).id == 1
