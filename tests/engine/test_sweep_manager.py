"""The work on sweeps, inside a loop of our own: what is rare outside is made to happen."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from errno import ENOSPC
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pytest

from dibs.build.queue import BuiltQueue, build_queue
from dibs.engine.driver import Driver
from dibs.engine.sweeps import actions, checkpoints, new_trials
from dibs.engine.sweeps import run as sweep_run
from dibs.engine.sweeps.actions import SweepChanges
from dibs.engine.sweeps.manager import NewSweep
from dibs.errors import BadInput, Conflict, StoreUnusable
from dibs.model.jobs import Command, Request, State, Wishes
from dibs.model.sweeps import Sweep, SweepState, TrialState
from dibs.settings import load_settings
from dibs.store.journal import Journal

WHOLE = {"name": "x", "low": 1, "high": 1_000_000, "integer": True}
REQUEST = Request(command=Command.line("true"), wishes=Wishes(num_gpus=0), workdir="/")
_calls = count()
LONG = 60.0  # seconds; only a failing test waits for so long


class Room:
    """A queue in this process."""

    def __init__(self, parts: BuiltQueue, said: list[str]) -> None:
        self.parts = parts
        self.said = said
        self.fallen: list[Any] = []

    def add(self, command: str = "true {x}", *parameters: dict[str, Any], **more: Any) -> Sweep:
        spec = {"command": command, "parameters": list(parameters or [WHOLE]), **more}
        new = NewSweep(
            key=f"call {next(_calls)}", spec=spec, request=REQUEST, environment={"PATH": "/usr/bin:/bin"}
        )
        return self.table.sweep(self.parts.sweeping.add(new).id)

    @property
    def table(self) -> Any:
        return self.parts.engine.store.sweeps

    async def until(self, sweep: Sweep, *states: SweepState) -> Sweep:
        async with asyncio.timeout(LONG):
            while self.table.sweep(sweep.id).state not in states or self.table.open(sweep.id):
                await asyncio.sleep(0.01)
        return self.table.sweep(sweep.id)

    def points(self, sweep: Sweep) -> list[str]:
        return [trial.point["x"] for trial in self.table.all_of(sweep.id)]


@pytest.fixture
def live(tmp_path: Path) -> Callable[[Callable[[Room], Awaitable[None]]], None]:
    """Live through a scenario with a queue; called again, another daemon takes up what the first one left."""
    environ = {
        "DIBS_STATE": str(tmp_path),
        "DIBS_LEASES": str(tmp_path / "leases"),
        "DIBS_PROBE": "none",
        "DIBS_POOL": "0,1",
    }
    root = tmp_path / "queue"
    root.mkdir(mode=0o700)

    def run(scenario: Callable[[Room], Awaitable[None]]) -> None:
        async def life() -> None:
            loop = asyncio.get_running_loop()
            driver, said = Driver(loop), []
            settings = load_settings(environ)
            hooks = driver.hooks(lambda events: None)
            parts = build_queue(environ, root=str(root), hooks=hooks, settings=settings, log=said.append)
            driver.drive(parts.engine)
            room = Room(parts, said)
            loop.set_exception_handler(lambda loop, context: room.fallen.append(context["exception"]))
            parts.engine.resume()
            parts.sweeping.resume()
            parts.engine.warm_up()
            try:
                await scenario(room)
            finally:
                await parts.sweeping.close()
                driver.stop()
                parts.engine.close()
                parts.journal.close()
                parts.engine.store.close()

        asyncio.run(life())

    return run


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """So many points in a row are enough to give up; in truth it is a million."""
    for module in (new_trials, sweep_run):
        monkeypatch.setattr(module, "MOST_LEFT_OUT", 2_000)
    return 2_000


@pytest.mark.parametrize("more", [{}, {"method": "random", "samples": 5}])
def test_a_sweep_whose_conditions_leave_out_everything_is_held_and_says_why(live, few, more):
    async def scenario(room: Room) -> None:
        sweep = room.add(where=["x * x == 2"], **more)
        held = await room.until(sweep, SweepState.HELD)
        assert held.why == (
            "its conditions left out 2,000 points in a row; there may be none that fits;"
            " `dibs sweep release 1` looks further"
        )
        assert held.cursor == few
        assert room.points(sweep) == []

        room.parts.sweeping.act(sweep.id, "release")
        assert (await room.until(sweep, SweepState.HELD)).cursor == 2 * few  # it does not begin anew

    live(scenario)


def test_a_search_that_has_drawn_every_point_is_finished(live, few):
    async def scenario(room: Room) -> None:
        x = {"name": "x", "values": ["1", "2"], "weights": [0.9, 0.1]}
        sweep = room.add("true {x}", x, method="random", samples=10, seed=1)
        done = await room.until(sweep, SweepState.FINISHED, SweepState.HELD)
        assert (done.state, done.why, sorted(room.points(sweep))) == (SweepState.FINISHED, "", ["1", "2"])

    live(scenario)


def test_points_that_are_far_apart_are_found(live, few):
    async def scenario(room: Room) -> None:
        sweep = room.add(where=["x % 1999 == 0"], parallel=2)
        async with asyncio.timeout(LONG):
            while len(room.points(sweep)) < 3:
                await asyncio.sleep(0.01)
        room.parts.sweeping.act(sweep.id, "stop")
        assert room.points(sweep)[:3] == ["1999", "3998", "5997"]

    live(scenario)


@pytest.mark.parametrize("space", [{"name": "x", "low": 0, "high": 1}, {**WHOLE, "high": 30, "scale": "log"}])
def test_a_random_search_draws_on_after_a_restart_as_if_there_had_been_none(live, space):
    wanted = {"method": "random", "seed": 3}
    drawn: list[list[str]] = []

    async def first(room: Room) -> None:
        whole = room.add("true {x}", space, samples=12, **wanted)
        part = room.add("true {x}", space, samples=7, **wanted)
        await room.until(whole, SweepState.FINISHED)
        await room.until(part, SweepState.FINISHED)
        drawn.append(room.points(whole))

    async def second(room: Room) -> None:
        part = room.table.sweep(2)
        room.parts.sweeping.act(part.id, "resume", samples=12)
        await room.until(part, SweepState.FINISHED)
        drawn.append(room.points(part))

    live(first)
    live(second)

    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 12


def test_a_disk_that_is_full_for_a_while_costs_no_trial_and_makes_none_twice(live, monkeypatch):
    append, refusals = Journal.append, iter(range(6))
    monkeypatch.setattr(sweep_run, "_AFTER_TROUBLE", 0.05)

    def refusing(self: Journal, lines: Any) -> None:
        lines = list(lines)
        if any(line["k"] in ("trial", "sweep-set") for line in lines) and next(refusals, None) is not None:
            raise OSError(ENOSPC, "No space left on device")
        append(self, lines)

    monkeypatch.setattr(Journal, "append", refusing)

    async def scenario(room: Room) -> None:
        sweep = room.add("true {x}", {**WHOLE, "high": 9}, parallel=2)
        await room.until(sweep, SweepState.FINISHED)
        assert room.points(sweep) == [str(x) for x in range(1, 10)]
        assert room.table.counts(sweep.id) == {TrialState.COMPLETE: 9}
        assert room.parts.engine.store.queue.next_number() == 10
        assert any("No space left" in sentence for sentence in room.said)

    live(scenario)


def test_a_sweep_is_not_there_if_it_cannot_be_written_down(live, monkeypatch):
    append = Journal.append

    def refusing(self: Journal, lines: Any) -> None:
        lines = list(lines)
        if any(line["k"] == "sweep" for line in lines):
            raise OSError(ENOSPC, "No space left on device")
        append(self, lines)

    monkeypatch.setattr(Journal, "append", refusing)

    async def scenario(room: Room) -> None:
        with pytest.raises(StoreUnusable, match="No space left"):
            room.add()
        assert room.table.page((), below=None, limit=9) == []

    live(scenario)


def test_a_bug_holds_its_sweep_and_leaves_the_others_alone(live, monkeypatch):
    settle = sweep_run.settle

    async def falls(work: Any, advice: Any) -> None:
        if work.id == 1:
            raise RuntimeError("a bug")
        await settle(work, advice)

    monkeypatch.setattr(sweep_run, "settle", falls)

    async def scenario(room: Room) -> None:
        small = {**WHOLE, "high": 3}
        bad, good = room.add("true {x}", small), room.add("true a {x}", small)
        assert "this is a bug" in (await room.until(bad, SweepState.HELD)).why
        assert (await room.until(good, SweepState.FINISHED)).why == ""
        async with asyncio.timeout(LONG):
            while not room.fallen:
                await asyncio.sleep(0.01)
        assert [str(error) for error in room.fallen] == ["a bug"]

    live(scenario)


def test_an_idle_sweep_has_no_task_and_no_thread(live):
    async def scenario(room: Room) -> None:
        assert len(asyncio.all_tasks()) == 1
        before = threading.active_count()
        sweep = room.add("true {x}", {**WHOLE, "high": 3})
        await room.until(sweep, SweepState.FINISHED)
        async with asyncio.timeout(LONG):
            while len(asyncio.all_tasks()) > 1 or threading.active_count() > before:
                await asyncio.sleep(0.01)

    live(scenario)


def test_a_sweep_that_is_resumed_while_its_task_ends_goes_on(live, monkeypatch):
    """The task lets its adviser go, which takes a moment, and only then it is gone."""
    monkeypatch.setattr(sweep_run.LazyAdviser, "close", lambda self: asyncio.sleep(0.2))

    async def scenario(room: Room) -> None:
        sweep = room.add("true {x}", {"name": "x", "low": 0, "high": 1}, method="random", samples=2)
        await room.until(sweep, SweepState.FINISHED)
        room.parts.sweeping.act(sweep.id, "resume", samples=4)
        await room.until(sweep, SweepState.FINISHED)
        assert len(room.points(sweep)) == 4

    live(scenario)


LOSS = [{"name": "loss", "goal": "min"}]
SMALL = {**WHOLE, "high": 4}


def edit(room: Room, sweep: Sweep, **changes: Any) -> Awaitable[Any]:
    return room.parts.sweeping.edit(sweep.id, SweepChanges(**changes))


def read_whole(*arguments: Any) -> NoReturn:
    """In the place of a table's `all_of`: a sweep may have 100,000 trials, and one loop serves all sweeps."""
    raise AssertionError("all trials were read")


def values_of(room: Room, sweep: Sweep) -> list[Any]:
    return [trial.values and trial.values[0] for trial in room.table.all_of(sweep.id)]


def test_the_best_value_of_a_trial_is_its_result_on_request(live):
    command = "printf 'loss=%s\\n' {x} 0.5 nan > $DIBS_METRICS"

    async def scenario(room: Room) -> None:
        sweep = room.add(command, SMALL, metrics=[{"name": "loss", "take": "best"}])
        await room.until(sweep, SweepState.FINISHED)
        assert values_of(room, sweep) == [0.5, 0.5, 0.5, 0.5]

    live(scenario)


def test_a_search_is_over_when_a_trial_reaches_the_target(live):
    async def scenario(room: Room) -> None:
        metrics = [{"name": "loss", "goal": "max", "target": 3}]
        sweep = room.add('echo loss={x} > "$DIBS_METRICS"', metrics=metrics, parallel=1)
        done = await room.until(sweep, SweepState.FINISHED)
        assert (done.why, room.points(sweep)) == ("trial 3 has reached the target: loss 3", ["1", "2", "3"])
        with pytest.raises(Conflict, match="trial 3 has reached the target"):
            room.parts.sweeping.act(sweep.id, "resume")

        await edit(room, sweep, target=5)
        room.parts.sweeping.act(sweep.id, "resume")
        assert (await room.until(sweep, SweepState.FINISHED)).why == "trial 5 has reached the target: loss 5"

    live(scenario)


def test_a_trial_that_reports_nan_is_ended_on_request(live):
    async def scenario(room: Room) -> None:
        command = 'echo "loss=nan step=2" > "$DIBS_METRICS"; test {x} = 2 || sleep 600'
        sweep = room.add(command, {**WHOLE, "high": 2}, metrics=LOSS, stop_on_nan=True)
        await room.until(sweep, SweepState.FINISHED)
        first, second = room.table.all_of(sweep.id)
        assert (first.state, first.why) == (TrialState.FAILED, "stopped: loss is not finite at step 2")
        assert second.state is TrialState.FAILED and "loss is nan" in second.why

    live(scenario)


def test_another_metric_judges_what_was_reported_before(live):
    async def scenario(room: Room) -> None:
        sweep = room.add("""echo "loss={x} acc=$((9 - {x}))" > "$DIBS_METRICS" """, SMALL, metrics=LOSS)
        await room.until(sweep, SweepState.FINISHED)
        assert room.table.best(sweep.id)[0].values == (1.0,)

        done = await edit(room, sweep, metrics=[{"name": "acc", "goal": "min"}])
        assert (done.changed, done.trials, room.table.best(sweep.id)[0].values) == (True, 4, (5.0,))
        await edit(room, sweep, metrics=[{"name": "f1"}])
        assert {trial.state for trial in room.table.all_of(sweep.id)} == {TrialState.FAILED}
        await edit(room, sweep, metrics=LOSS)
        assert values_of(room, sweep) == [1.0, 2.0, 3.0, 4.0]
        assert not (await edit(room, sweep, metrics=LOSS)).changed

        await edit(room, sweep, metrics=[{"name": "acc"}], parameters=[{"name": "x", "values": ["1", "7"]}])
        room.parts.sweeping.act(sweep.id, "resume")
        await room.until(sweep, SweepState.FINISHED)
        assert room.points(sweep) == ["1", "2", "3", "4", "7"]

    live(scenario)


def test_a_trial_that_is_retried_while_others_are_judged_stays_open_or_due(live, monkeypatch, tmp_path):
    judged_anew = actions.judged_anew
    again = tmp_path / "again"
    command = f'echo loss={{x}} acc={{x}} > "$DIBS_METRICS"; test -e {again} && sleep 600; test $(({{x}} % 2)) = 0'

    async def scenario(room: Room) -> None:
        sweep = room.add(command, SMALL, metrics=LOSS, parallel=1)
        await room.until(sweep, SweepState.FINISHED)

        async def retried_meanwhile(context: Any, reader: Any, trial: Any, spec: Any) -> Any:
            if trial.number == 4:
                again.touch()
                room.parts.sweeping.act(sweep.id, "retry-failed")
                async with asyncio.timeout(LONG):
                    while not room.table.open(sweep.id):
                        await asyncio.sleep(0.01)
            return await judged_anew(context, reader, trial, spec)

        monkeypatch.setattr(actions, "judged_anew", retried_meanwhile)
        assert (await edit(room, sweep, metrics=[{"name": "acc"}])).trials == 3
        first, second, third, fourth = room.table.all_of(sweep.id)
        assert (first.state, first.is_due) == (TrialState.OPEN, False)
        assert (third.state, third.is_due) == (TrialState.FAILED, True)
        assert (second.values, fourth.values) == ((2.0,), (4.0,))
        room.parts.sweeping.act(sweep.id, "stop")
        await room.until(sweep, SweepState.STOPPED)

    live(scenario)


def test_other_values_are_tried_without_repeating_any(live):
    async def scenario(room: Room) -> None:
        sweep = room.add("true {x}", SMALL)
        await room.until(sweep, SweepState.FINISHED)

        await edit(room, sweep, parameters=[{"name": "x", "values": ["2", "7", "9"]}])
        room.parts.sweeping.act(sweep.id, "resume")
        await room.until(sweep, SweepState.FINISHED)
        assert room.points(sweep) == ["1", "2", "3", "4", "7", "9"]
        with pytest.raises(BadInput, match="the sweep has no parameter y"):
            await edit(room, sweep, parameters=[{"name": "y", "values": ["1"]}])

    live(scenario)


def test_an_adaptive_search_goes_on_in_other_ranges(live):
    pytest.importorskip("optuna")

    async def scenario(room: Room) -> None:
        x = {"name": "x", "low": 0, "high": 1}
        sweep = room.add('echo loss={x} > "$DIBS_METRICS"', x, metrics=LOSS, method="adaptive", samples=4)
        await room.until(sweep, SweepState.FINISHED)

        changes = {"samples": 8, "parameters": [{**x, "low": 0.5, "high": 3}]}
        await edit(room, sweep, **changes, metrics=[{"name": "loss", "goal": "max"}])
        room.parts.sweeping.act(sweep.id, "resume")
        done = await room.until(sweep, SweepState.FINISHED, SweepState.HELD)
        assert (done.state, done.why) == (SweepState.FINISHED, "")
        assert all(0.5 <= float(x) <= 3 for x in room.points(sweep)[4:])
        assert len(room.points(sweep)) == 8

    live(scenario)


def test_points_are_repeated_and_judged_by_their_mean(live):
    async def scenario(room: Room) -> None:
        command = 'test {x}{seed} = 13 || echo "loss=$(({x} * {seed}))" > "$DIBS_METRICS"'
        two = {**WHOLE, "high": 2}
        sweep = room.add(command, two, metrics=LOSS, repeat=3, over="seed", parallel=2)
        await room.until(sweep, SweepState.FINISHED)
        trials = list(room.table.all_of(sweep.id))
        assert [(one.point["x"], one.point["seed"], one.repeat_of) for one in trials] == [
            *(("1", str(seed), 1) for seed in (1, 2, 3)),
            *(("2", str(seed), 4) for seed in (1, 2, 3)),
        ]
        assert (trials[0].means, trials[0].spreads) == ((1.5,), (0.5**0.5,))  # the third has failed
        assert (trials[3].means, trials[3].spreads) == ((4.0,), (2.0,))
        assert [one.number for one in room.table.best(sweep.id)] == [1]
        page = room.table.trials(sweep.id, "best", (), None, 9)
        assert [one.number for one in page.trials] == [1, 4]

    live(scenario)


def test_what_a_study_is_told_of_repeats_is_their_mean(live):
    optuna = pytest.importorskip("optuna")
    told = []

    async def scenario(room: Room) -> None:
        x = {"name": "x", "low": 0, "high": 1}
        command = 'echo "loss={seed}" > "$DIBS_METRICS" # {x}'
        more = {"method": "adaptive", "samples": 2, "repeat": 2, "over": "seed", "parallel": 3}
        sweep = room.add(command, x, metrics=LOSS, **more)
        await room.until(sweep, SweepState.FINISHED)
        told.append(room.parts.sweeping.about(room.table.sweep(sweep.id)).journal)
        assert len({one.study for one in room.table.all_of(sweep.id)}) == 2

    live(scenario)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(told[0]))
    study = optuna.load_study(study_name="sweep-1", storage=storage)
    assert [trial.value for trial in study.trials] == [1.5, 1.5]


def test_a_point_that_is_pruned_is_pruned_with_all_its_repeats(live, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.setattr(sweep_run, "_LOOK_AT_REPORTS", 0.05)

    async def scenario(room: Room) -> None:
        report = 'echo "loss={x} step=1" >> "$DIBS_METRICS"'
        command = (
            f"{report}; sleep 0.3; test {{x}} = 9 && sleep 600; echo loss={{x}} step=2 >> $DIBS_METRICS # {{seed}}"
        )
        values = {"name": "x", "values": ["1", "1.5", "2", "2.5", "3", "9"]}
        sweep = room.add(
            command, values, metrics=LOSS, repeat=2, over="seed", parallel=1, pruner="median", prune_after=0
        )
        await room.until(sweep, SweepState.FINISHED)
        trials = list(room.table.all_of(sweep.id))
        assert [one.state for one in trials[:10]] == [TrialState.COMPLETE] * 10
        # With one place the second repeat of the last point is never begun.
        assert [(one.number, one.state) for one in trials[10:]] == [(11, TrialState.PRUNED)]
        assert trials[10].means is None

    live(scenario)


# Adds x to what its checkpoint holds, and reports the sum.
TRAINING = """n=$(cat "$DIBS_CHECKPOINT_DIR/n" 2>/dev/null || echo 0); n=$((n + {x}));
echo $n > "$DIBS_CHECKPOINT_DIR/n"; echo "sum=$n" > "$DIBS_METRICS" """
POPULATION = {
    "method": "population",
    "population": 4,
    "samples": 12,
    "metrics": [{"name": "sum", "goal": "max"}],
}


def test_a_population_takes_over_the_checkpoints_of_its_best(live, monkeypatch):
    async def scenario(room: Room) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(type(room.table), "all_of", read_whole)
            sweep = room.add(TRAINING, {**WHOLE, "high": 100}, **POPULATION)
            await room.until(sweep, SweepState.FINISHED)
            assert (await edit(room, sweep, parallel=3)).changed
        trials = {trial.number: trial for trial in room.table.all_of(sweep.id)}
        assert len(trials) == 12
        assert all(trials[number].continues is None for number in range(1, 5))
        for trial in list(trials.values())[4:]:
            before = trials[trial.continues]
            assert trial.values == (before.values[0] + float(trial.point["x"]),)
        best = max(range(1, 5), key=lambda number: trials[number].values)
        assert sum(trials[number].continues == best for number in range(5, 9)) == 2

    live(scenario)


def test_a_population_whose_trials_save_nothing_is_held_with_a_sentence(live):
    async def scenario(room: Room) -> None:
        sweep = room.add('echo sum={x} > "$DIBS_METRICS"', **POPULATION)
        async with asyncio.timeout(LONG):
            while room.table.sweep(sweep.id).state is not SweepState.HELD:
                await asyncio.sleep(0.01)
        why = room.table.sweep(sweep.id).why
        assert "cannot copy the checkpoint of trial" in why and "it has saved nothing" in why
        assert "$DIBS_CHECKPOINT_DIR" in why
        room.parts.sweeping.act(sweep.id, "release")  # which lets no trial begin without its checkpoint
        async with asyncio.timeout(LONG):
            while room.table.sweep(sweep.id).state is not SweepState.HELD:
                await asyncio.sleep(0.01)
        assert room.table.counts(sweep.id)[TrialState.COMPLETE] == 4

        trial = room.table.open(sweep.id)[0]
        refused = room.parts.queue.release([trial.job])  # by hand
        assert refused.unchanged == [(trial.job, "it has no copy of the checkpoint that it continues yet")]

    live(scenario)


def test_a_member_that_was_stopped_before_it_had_its_checkpoint_waits_for_it_again(live, monkeypatch):
    copy = checkpoints.copy_folder

    def refusing(source: str, target: str) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "copy_folder", refusing)

    async def scenario(room: Room) -> None:
        sweep = room.add(TRAINING, {**WHOLE, "high": 100}, **{**POPULATION, "samples": 8})
        held = await_state(room, sweep, SweepState.HELD)
        assert "No space left on device" in (await held).why
        room.parts.sweeping.act(sweep.id, "stop")
        await room.until(sweep, SweepState.STOPPED)

        monkeypatch.setattr(checkpoints, "copy_folder", copy)
        room.parts.sweeping.act(sweep.id, "resume")
        await room.until(sweep, SweepState.FINISHED)
        trials = {trial.number: trial for trial in room.table.all_of(sweep.id)}
        for number in range(5, 9):
            before = trials[trials[number].continues]
            assert trials[number].values == (before.values[0] + float(trials[number].point["x"]),)

    live(scenario)


def test_a_population_that_is_held_lets_no_trial_begin(live, monkeypatch):
    copy = checkpoints.copy_folder

    def refusing(source: str, target: str) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "copy_folder", refusing)

    async def scenario(room: Room) -> None:
        sweep = room.add(TRAINING, {**WHOLE, "high": 100}, **{**POPULATION, "population": 2, "samples": 4})
        await await_state(room, sweep, SweepState.HELD)
        waiting = [one.job for one in room.table.open(sweep.id)]

        monkeypatch.setattr(checkpoints, "copy_folder", copy)
        await checkpoints.hand_over(room.parts.sweeping._runs[sweep.id].work)
        assert set(room.parts.engine.store.listing.states(waiting).values()) == {State.HELD}

        room.parts.sweeping.act(sweep.id, "release")
        await room.until(sweep, SweepState.FINISHED)
        assert len(room.points(sweep)) == 4

    live(scenario)


def test_the_copy_of_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    source, target = tmp_path / "source", tmp_path / "copies" / "7"
    (source / "deep").mkdir(parents=True)
    (source / "model").write_bytes(b"1")
    (source / "deep" / "state").write_bytes(b"2")
    (source / "last").symlink_to("model")
    done: list[str] = []
    rename = os.rename

    def noted(handle: int) -> None:
        done.append(os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), tmp_path))

    def renamed(before: str, after: str) -> None:
        done.append("renamed")
        rename(before, after)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "rename", renamed)
    checkpoints.copy_folder(str(source), str(target))

    part = "copies/7.part"
    assert set(done[:-2]) == {f"{part}/deep/state", f"{part}/deep", f"{part}/model", part}
    assert done[-2:] == ["renamed", "copies"]
    assert (target / "last").read_bytes() == b"1"


async def await_state(room: Room, sweep: Sweep, state: SweepState) -> Sweep:
    """Also while trials are open."""
    async with asyncio.timeout(LONG):
        while room.table.sweep(sweep.id).state is not state:
            await asyncio.sleep(0.01)
    return room.table.sweep(sweep.id)
