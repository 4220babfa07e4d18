"""The numbers of a history, worked out by hand."""

import pytest
from hypothesis import given

from dibs.simulate.machine import Rules, SimulatedMachine
from dibs.simulate.report import Fairness, bars, fairness_of, report, series
from dibs.simulate.simulator import simulate
from simulate.traces import comes, machines, traces


def told(trace, gpus=1, **rules):
    machine = SimulatedMachine(num_gpus=gpus)
    return report(simulate(trace, machine, Rules(**rules)), machine)


def test_waits_are_ranks_of_what_was_waited():
    found = told([comes(number, 0, 10) for number in range(1, 101)])

    waits = found.waits
    assert (waits.jobs, waits.median, waits.p95, waits.p99, waits.longest) == (100, 490, 940, 980, 990)
    assert waits.mean == 495


def test_use_counts_what_is_held_and_halves_as_halves():
    found = told([comes(1, 0, 100), comes(2, 50, 100, share="1/2")], gpus=2)

    assert found.makespan == 150
    assert found.use == pytest.approx((100 + 50) / (2 * 150))
    assert found.use_while_queued == pytest.approx(50 / (2 * 50))


def test_jobs_are_told_apart_by_width_and_project():
    found = told(
        [comes(1, gpus=0), comes(2, share="1/2", project="a"), comes(3, gpus=2, project="a"), comes(4, gpus=9)],
        gpus=2,
    )

    assert {name: waits.jobs for name, waits in found.widths.items()} == {"no GPU": 1, "1/2 GPU": 1, "2 GPUs": 1}
    assert {name: one.waits.jobs for name, one in found.projects.items()} == {"": 1, "a": 2}
    assert found.projects["a"].gpu_seconds == 250
    assert (found.jobs, found.ran, [count for _, count in found.never]) == (4, 3, [1])


def test_a_project_that_got_nothing_while_it_waited_is_told():
    trace = [comes(number, 0, 10, project="a" if number <= 5 else "b") for number in range(1, 11)]

    fair, unfair = told(trace), told(trace, turns=False)

    assert unfair.fairness == pytest.approx(0.5)
    assert unfair.competing == 50  # then the last of a has ended
    assert {name: one.fair_part for name, one in unfair.projects.items()} == {"a": 2, "b": 0}
    assert fair.fairness == pytest.approx(1, abs=0.02)
    assert fair.competing == 90


def test_a_project_that_wants_little_has_its_part_with_little():
    """c wants one GPU and has it: that a and b share the rest is fair."""
    trace = [comes(1, 0, 100, project="c")]
    trace += [comes(number, 0, 10, project="ab"[number % 2]) for number in range(2, 42)]

    found = told(trace, gpus=5)

    assert found.fairness == pytest.approx(1, abs=0.001)
    assert found.projects["c"].fair_part == pytest.approx(1)


def test_a_project_that_has_more_than_others_who_wait_has_more_than_its_part():
    trace = [
        comes(1, 0, 100, gpus=3, project="wide"),
        comes(2, 0, 100, project="narrow"),
        comes(3, 0, 1, project="narrow"),
    ]

    found = told(trace, gpus=4)

    assert found.competing == 100
    assert found.projects["wide"].fair_part == pytest.approx(3 / 2)
    assert found.projects["narrow"].fair_part == pytest.approx(1 / 2)


def test_the_index_is_that_of_jain():
    assert Fairness(1.0, {"a": 1.0, "b": 1.0, "c": 1.0}).index == pytest.approx(1)
    assert Fairness(1.0, {"a": 4.0, "b": 0.0, "c": 0.0, "d": 0.0}).index == pytest.approx(1 / 4)
    assert Fairness().index is None


@given(traces(), machines())
def test_what_is_held_adds_up_and_never_exceeds_the_machine(trace, machine):
    history = simulate(trace, machine)
    found = report(history, machine)

    one = series(history.runs, found.makespan, 40)

    held = sum(run.held * (run.ended_at - run.started_at) for run in history.runs)
    assert sum(one.held) * one.step == pytest.approx(held) or not found.makespan
    assert all(value <= machine.num_gpus + 1e-6 for value in one.held)
    assert 0 <= found.use <= 1 + 1e-9
    assert max(one.waiting) <= len(trace)
    assert any(one.waiting) == any(run.waited for run in history.runs) or not found.makespan


@given(traces(), machines())
def test_fairness_is_a_part_of_one(trace, machine):
    found = fairness_of(simulate(trace, machine).runs)

    assert found.index is None or 1 / len(found.parts) - 1e-9 <= found.index <= 1 + 1e-9


def test_the_most_that_wait_within_a_step_are_drawn():
    runs = simulate([comes(1, 0, 100), comes(2, 1, 100), comes(3, 90, 100)], SimulatedMachine(num_gpus=2)).runs

    assert series(runs, 200, 4).waiting == [0, 1, 0, 0]
    assert series(runs, 200, 4).held == pytest.approx([1.98, 2, 1.02, 1])


def test_bars_stand_on_each_other_and_what_is_little_is_still_seen():
    assert bars([0, 4, 8, 16, 0.01, 99], top=16, height=2) == ["   █ █", " ▄██▁█"]
