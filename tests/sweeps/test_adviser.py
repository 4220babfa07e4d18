"""The daemon's side of an adviser: children that die, hang and are missing."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys

import pytest

from dibs.errors import BadInput, DibsError
from dibs.sweeps import adviser as adviser_module
from dibs.sweeps.adviser import JOURNAL, Adviser, AdviserFailed, EndedTrial, adviser_problem, importance_of
from dibs.sweeps.space import Choice, Range
from stories.fork_server import adviser_forks
from stories.outside import MUST_EXECUTE, adviser_environment, advisers_fork_server
from sweeps.adviser_child import STUDY, a_spec, loss


@pytest.fixture
def in_loop(tmp_path, monkeypatch):
    """Runs a story with an adviser, forked unless it is to be executed, in a loop of its own, and closes it."""

    def run(story, spec=None, *, is_executed=MUST_EXECUTE, **more):
        if not is_executed:
            monkeypatch.setattr(
                adviser_module, "_start_child", adviser_forks(advisers_fork_server().name, adviser_environment())
            )

        async def whole():
            adviser = Adviser(tmp_path / "sweep 7", spec or a_spec(), STUDY, **more)
            try:
                return await story(adviser)
            finally:
                await adviser.close()

        return asyncio.run(whole())

    return run


def child_of(adviser):
    """The process id of its child."""
    return adviser._child.pid


def test_a_search_from_the_first_point_to_the_last(in_loop):
    async def story(adviser):
        left_over = await adviser.start({})
        losses = []
        for _ in range(6):
            (asked,) = await adviser.ask()
            losses.append(loss(asked.point))
            await adviser.tell(EndedTrial(asked.number, "complete", (losses[-1],)))
        return left_over, losses

    left_over, losses = in_loop(story, is_executed=True)

    assert left_over == []
    assert len(set(losses)) == 6


def test_a_child_that_was_killed_is_replaced_without_a_word(in_loop):
    async def story(adviser):
        await adviser.start({})
        first = await adviser.ask(2)
        os.kill(child_of(adviser), signal.SIGKILL)
        await adviser.tell(EndedTrial(0, "complete", (1.0,)))
        os.kill(child_of(adviser), signal.SIGKILL)
        return first + await adviser.ask(2)

    asked = in_loop(story)

    assert [each.number for each in asked] == [0, 1, 2, 3]
    assert len({each.point["x"] for each in asked}) == 4


def test_a_child_killed_while_it_is_asked_loses_nothing_and_repeats_nothing(in_loop):
    async def story(adviser):
        await adviser.start({})
        asked = []
        for delay in (0.0, 0.005, 0.02, 0.05):
            question = asyncio.create_task(adviser.ask(8))
            await asyncio.sleep(delay)
            if adviser._child is not None:
                os.kill(child_of(adviser), signal.SIGKILL)
            asked += await question
            await adviser.tell(EndedTrial(0, "failed"))  # to a child that lives, also if one died after its answer
        await adviser.close()
        return asked, await adviser.start({each.number: each.point for each in asked})

    asked, left_over = in_loop(story)

    assert sorted(each.number for each in asked) == list(range(32))
    assert left_over == []


def test_a_child_that_hangs_is_replaced_after_its_deadline(in_loop):
    async def story(adviser):
        await adviser.start({})
        os.kill(child_of(adviser), signal.SIGSTOP)
        return await adviser.ask()

    (asked,) = in_loop(story, deadline_seconds=4)

    assert asked.number == 0


def test_what_does_not_answer_twice_is_given_up_with_a_sentence(in_loop, tmp_path):
    folder = tmp_path / "sweep 7"
    folder.mkdir()
    # Every child waits for the one before it, and this one never ends.
    with open(folder / "optuna.lock-adviser", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        with pytest.raises(AdviserFailed) as failed:
            in_loop(lambda adviser: adviser.start({}), deadline_seconds=1)

    assert failed.value.message == "cannot continue the search: the adviser did not answer within 1 s, twice"
    assert str(folder / "adviser.log") in failed.value.remedy


def test_a_point_whose_asker_was_cancelled_is_given_to_the_next(in_loop):
    async def story(adviser):
        await adviser.start({})
        await adviser.ask()
        question = asyncio.create_task(adviser.ask())
        await asyncio.sleep(0)
        while (adviser._folder / JOURNAL).read_bytes().count(b'"point"') < 2:
            await asyncio.sleep(0)  # until it is in the journal; the answer may still be under way
            if question.done():
                return [each.number for each in await question]
        question.cancel()
        await asyncio.wait([question])
        return [each.number for each in await adviser.ask(2)]

    assert in_loop(story) in ([1, 2], [1])


def test_a_grid_that_is_begun_twice_has_one_trial(in_loop):
    spec = a_spec(method="grid", samples=None, pruner="median", parameters=(Choice("a", ("1", "2")),))

    async def story(adviser):
        await adviser.start({})
        first = await adviser.begin({"a": "1"})
        await adviser.close()
        left_over = await adviser.start({})  # the store never heard of it
        return left_over, first, await adviser.begin({"a": "1"}), await adviser.begin({"a": "2"})

    assert in_loop(story, spec) == ([], 0, 0, 1)


def test_pruning_is_a_yes_or_a_no(in_loop):
    async def story(adviser):
        await adviser.start({})
        for asked in await adviser.ask(6):
            assert await adviser.report(asked.number, 1, 0.5) is False
            await adviser.tell(EndedTrial(asked.number, "complete", (0.5,)))
        (last,) = await adviser.ask()
        return await adviser.report(last.number, 1, 7.0)

    assert in_loop(story, a_spec(pruner="median")) is True


def test_a_journal_that_cannot_be_written_is_told_in_a_sentence(in_loop, tmp_path):
    (tmp_path / "sweep 7" / JOURNAL).mkdir(parents=True)

    with pytest.raises(AdviserFailed, match="cannot keep the study: Is a directory"):
        in_loop(lambda adviser: adviser.start({}))


def test_conditions_that_cannot_be_fulfilled_do_not_end_the_adviser(in_loop):
    async def story(adviser):
        await adviser.start({})
        child = child_of(adviser)
        with pytest.raises(DibsError, match=r"none fulfils round\(x, 2\) == 0.001"):
            await adviser.ask()
        return child == child_of(adviser)

    assert in_loop(story, a_spec(where=("round(x, 2) == 0.001",)))


def test_without_optuna_it_says_what_to_install(in_loop, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)

    problem = adviser_problem(a_spec())

    assert problem == "cannot search adaptively: Optuna is not installed; pip install 'dibs[sweeps]'"
    with pytest.raises(AdviserFailed) as failed:
        in_loop(lambda adviser: adviser.start({}))
    assert failed.value.message == problem


def test_a_grid_without_a_pruner_needs_no_optuna(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    spec = a_spec(method="grid", samples=None, parameters=(Choice("a", ("1", "2")),))

    assert adviser_problem(spec) == ""
    assert asyncio.run(importance_of(spec, [])).why.startswith("importance is computed by Optuna, which is not")


@pytest.mark.parametrize(
    ("sampler", "module", "remedy"),
    [
        ("gp", "torch", "pip install torch"),
        ("cmaes", "cmaes", "pip install 'dibs[sweeps]'"),
        ("qmc", "scipy", "pip install 'dibs[sweeps]'"),
    ],
)
def test_a_sampler_that_lacks_a_library_is_refused_by_its_name(monkeypatch, sampler, module, remedy):
    monkeypatch.setitem(sys.modules, "torch", sys)
    monkeypatch.setitem(sys.modules, module, None)

    problem = adviser_problem(a_spec(sampler=sampler))

    assert problem == f"cannot search with {sampler}: it needs {module}, which is not installed; {remedy}"


def test_a_sampler_that_moves_in_ranges_is_refused_where_there_is_none():
    with pytest.raises(BadInput, match="the sampler cmaes moves in ranges, and no parameter is one"):
        a_spec(sampler="cmaes", parameters=(Choice("a", ("1", "2")),))


def test_importance_is_computed_by_a_child_of_its_own():
    spec = a_spec(method="random", parameters=(Range("x", 0, 1), Range("y", 0, 1)))
    points = [{"x": f"{(place * 7 % 20) / 20:g}", "y": f"{(place * 3 % 20) / 20:g}"} for place in range(20)]

    importance = asyncio.run(importance_of(spec, [(point, [float(point["x"])]) for point in points]))

    assert [name for name, _ in importance.shares] == ["x", "y"]
    assert importance.shares[0][1] > 0.6


def test_the_daemon_imports_neither_optuna_nor_numpy():
    lines = "import sys, dibs.sweeps.adviser; print(sys.modules.keys() & {'optuna', 'numpy', 'scipy'})"

    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"
