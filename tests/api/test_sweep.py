"""`dibs.sweep`: a search from Python, with the keys of a sweep file."""

import sys
import types

import pytest

import dibs
from stories.outside import World

LINE = 'echo "loss=$(({x} * {x} + {y})) other=1" >> "$DIBS_METRICS"'


def test_the_trials_of_a_sweep_come_as_they_end_with_callbacks_and_a_table(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    sweep = dibs.sweep(
        LINE,
        {"x": [-2, 1, 3], "y": "4..5"},
        metric="loss",
        goal="min",
        num_gpus=0,
        callbacks=[lambda one, trial: told.append((one.id, trial.number))],
    )

    seen = list(sweep)

    assert sorted(trial.number for trial in seen) == list(range(1, 7))
    assert sorted(told) == [(sweep.id, number) for number in range(1, 7)]
    assert all(trial.value == trial.params["x"] ** 2 + trial.params["y"] for trial in seen)  # type: ignore[operator]
    best = sweep.best
    assert best is not None and best.job is not None
    assert (best.params, best.value, best.state) == ({"x": 1, "y": 4}, 5.0, "complete")
    assert best.job.about["command"] == best.command
    assert sweep.state == "finished" and repr(dibs.sweep_by_id("@")) == repr(sweep)
    row = {name: value for name, value in sweep.rows()[best.number - 1].items() if name not in ("seconds", "job")}
    assert row == {"number": best.number, "state": "complete", "loss": 5.0, "why": "", "x": 1, "y": 4}
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=lambda rows: rows))  # type: ignore[arg-type]
    assert sweep.dataframe() == sweep.rows()
    monkeypatch.setitem(sys.modules, "pandas", None)  # type: ignore[arg-type]
    with pytest.raises(dibs.DibsError, match="pandas is not installed"):
        sweep.dataframe()


def test_the_best_of_repeated_points_has_their_mean(here: World) -> None:
    sweep = dibs.sweep(
        'echo "loss=$(({x} * 10 + {seed} * {seed}))" >> "$DIBS_METRICS"',
        {"x": [2, 1]},
        metric="loss:min",
        num_gpus=0,
        search={"repeat": 3, "over": "seed"},
    )

    own = {trial.number: trial.value for trial in sweep}

    best = sweep.best
    assert best is not None and best.params["x"] == 1
    mean, spread = 10 + 14 / 3, (((1 - 14 / 3) ** 2 + (4 - 14 / 3) ** 2 + (9 - 14 / 3) ** 2) / 2) ** 0.5
    assert (best.value, best.values) == (pytest.approx(mean), pytest.approx([mean]))
    assert best.spreads == pytest.approx([spread])
    assert own[best.number] == 11.0 == sweep.trials[best.number - 1].value
    assert sweep.trials[best.number - 1].means == pytest.approx([mean])


def test_it_is_the_same_as_a_file_and_keywords_go_before_it(here: World) -> None:
    (here.folder / "sweep.yaml").write_text(
        "command: echo {x} {y}\nparameters:\n  x: [1, 2]\n  y: [3]\nproject: mine\nnum_gpus: 0\nwhere: x < 5\n"
    )

    from_file = dibs.sweep("sweep.yaml", {"y": [7]}, project="ours", hold=True)  # type: ignore[call-arg]
    from_here = dibs.sweep(
        "echo {x} {y}",
        {"x": [1, 2], "y": [7]},
        search={"where": "x < 5"},
        num_gpus=0,
        project="ours",
    )

    one, other = from_file.about, from_here.about
    assert {**one["spec"], "program": ""} == {**other["spec"], "program": ""}
    assert one["project"] == other["project"] == "ours"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("echo {x}", {"x": "0.1..0.9"}), "no end of values"),
        (("echo {x}", {"y": [1]}), "y"),
        (("missing.yaml",), "cannot read missing.yaml"),
        ((print, {"x": [1]}), "ask_and_tell takes functions"),
    ],
)
def test_what_is_no_sweep_is_refused_in_a_sentence(here: World, words: tuple, sentence: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(dibs.BadInput, match=sentence) as refused:
        dibs.sweep(*words)

    assert refused.value.remedy or sentence == "y"


def test_a_strategy_of_ones_own_runs_functions_and_commands(here: World) -> None:
    def square(x: int) -> int:
        if x == 3:
            raise ValueError("not 3")
        return x * x

    functions = dibs.ask_and_tell(square, num_gpus=0)
    commands = dibs.ask_and_tell('echo "loss={x}" >> "$DIBS_METRICS"; test {x} != 3', metric="loss", num_gpus=0)
    found = []
    for loop in (functions, commands):
        loop.add({"x": 3})
        for point in loop:
            found.append((point.params["x"], point.value, type(point.error).__name__))
            if point.params["x"] < 5:
                loop.add({"x": point.params["x"] + 1})

    assert found == [
        *((3, None, "ValueError"), (4, 16, "NoneType"), (5, 25, "NoneType")),
        *((3, None, "JobFailed"), (4, 4.0, "NoneType"), (5, 5.0, "NoneType")),
    ]
    with pytest.raises(dibs.BadInput, match="needs a metric"):
        dibs.ask_and_tell("echo {x}")


def test_leaving_the_block_ends_the_points_that_run(here: World) -> None:
    with dibs.ask_and_tell("sleep {seconds}", metric="loss", num_gpus=0) as loop:
        job = loop.add({"seconds": 600})

    assert job.wait(60) and job.state == "cancelled"


def test_joblib_runs_its_calls_in_the_queue(here: World) -> None:
    joblib = pytest.importorskip("joblib")
    import dibs.integrations.joblib

    def square(x: int) -> int:
        return x * x

    with joblib.parallel_config(backend="dibs", n_jobs=2, num_gpus=0, project="joblib"):
        found = joblib.Parallel()(joblib.delayed(square)(number) for number in range(6))
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(divmod)(1, number) for number in (1, 0))

    assert found == [0, 1, 4, 9, 16, 25]
    jobs = list(dibs.jobs(project="joblib"))
    assert {job.name for job in jobs} == {"square", "divmod"}
    assert {job.about["array"]["most"] for job in jobs} == {2}
    with pytest.raises(dibs.BadInput), joblib.parallel_config(backend="dibs", num_gpus=-1):
        pass
