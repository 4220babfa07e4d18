"""Sweep files of Weights & Biases, as they are."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dibs.errors import BadInput
from dibs.sweeps.points import Points
from dibs.sweeps.space import Choice, Range
from dibs.sweeps.spec import CommandTemplate, Metric, Spec, read_spec
from dibs.sweeps.sweepfile import read_sweep_file
from dibs.sweeps.wandb_trial import parameter_file, wandb_variables

DATA = Path(__file__).parent.parent / "data" / "sweeps"


def read(name: str) -> tuple[Spec, dict[str, Any]]:
    spec, wishes = read_sweep_file((DATA / name).read_text(), name)
    return read_spec(spec), wishes


def config_of(spec: Spec, index: int = 0) -> Any:
    """`wandb.config` of a trial, as W&B reads it."""
    point = Points(spec).at(index)
    assert point is not None
    text = parameter_file(point, spec.config, spec.parameters)
    return {name: one["value"] for name, one in yaml.safe_load(text).items()}


def commands(spec: Spec, count: int) -> list[list[str]]:
    points, template = Points(spec), CommandTemplate(spec)
    return [list(template.expand(point)) for index in range(count) if (point := points.at(index))]


def test_a_bayesian_search():
    spec, wishes = read("wandb_bayes.yaml")

    assert (spec.method, spec.samples, spec.name) == ("adaptive", 60, "unet depth and rate")
    assert spec.metrics == (Metric("valid/dice", "max"),)
    assert (spec.pruner, spec.prune_after) == ("hyperband", 4)
    assert spec.parameters == (
        Range("learning_rate", 1e-5, 3e-2, "log"),
        Range("weight_decay", 0, 0.2),
        Range("depth", 2, 6, is_integer=True),
        Range("batch_size", 4, 64, "log", is_integer=True, drawn=(4, 64)),
        Range("dropout", 0, 0.5, step=0.05, drawn=(0, 0.5)),
        Choice("loss", ("dice", "cross entropy", "focal")),
        Choice("mixed_precision", ("True", "False")),
    )
    assert spec.words == (
        "/usr/bin/env",
        "python",
        "train_segmentation.py",
        "--learning_rate={learning_rate}",
        "--weight_decay={weight_decay}",
        "--depth={depth}",
        "--batch_size={batch_size}",
        "--dropout={dropout}",
        "--loss={loss}",
        "--mixed_precision={mixed_precision}",
        "--epochs=40",
    )
    assert wishes == {"env": {"WANDB_PROJECT": "cells", "WANDB_ENTITY": "lab-three"}}


def test_a_grid_with_nested_parameters():
    spec, wishes = read("wandb_grid.yaml")

    first, *_, last = commands(spec, 12)

    assert Points(spec).size == 12
    assert first == [
        *("/usr/bin/env", "OMP_NUM_THREADS=2", "python", "-u", "run.py", "train"),
        "model={'name': 'small', 'widths': [64, 32], 'heads': {'count': 8}}",
        *("seed=1", "folds=[1, 2]"),
    ]
    assert last[-3:] == [
        "model={'name': 'large', 'widths': [128], 'heads': {'count': 8}}",
        "seed=3",
        "folds=[1, 2]",
    ]
    assert wishes == {}


def test_flags_that_are_there_or_not():
    spec, _ = read("wandb_random.yaml")

    lines = [" ".join(words) for words in commands(spec, 40)]

    assert spec.parameters[:3] == (
        Range("rate", 1e-4, 0.1, "log"),
        Range("trees", 100, 1000, is_integer=True, step=50, drawn=(100, 1000)),
        Range("subsample", 0.5, 1.0),
    )
    assert all(line.startswith("python fit.py --plain --rate=") for line in lines)
    assert all("--verbose" in line and "quiet" not in line for line in lines)
    assert {"--early_stop" in line.split() for line in lines} == {True, False}
    assert not any("early_stop=" in line for line in lines)
    assert {line.rpartition("=")[2] for line in lines} == {"None", "sqrt", "0.5"}


@pytest.mark.parametrize(
    ("macro", "words"),
    [
        ("args", ["--lr=0.1", "--net={'depth': 2}", "--on=True"]),
        ("args_no_equals", ["--lr", "0.1", "--net", "{'depth': 2}", "--on", "True"]),
        ("args_no_hyphens", ["lr=0.1", "net={'depth': 2}", "on=True"]),
        ("args_append_hydra", ["+lr=0.1", "+net={'depth': 2}", "+on=True"]),
        ("args_override_hydra", ["++lr=0.1", "++net={'depth': 2}", "++on=True"]),
        ("args_no_boolean_flags", ["--lr=0.1", "--net={'depth': 2}", "--on"]),
    ],
)
def test_each_way_of_writing_arguments(macro, words):
    file = {
        "program": "t.py",
        "method": "grid",
        "command": ["${interpreter}", "${program}", f"${{{macro}}}"],
        "parameters": {
            "lr": {"values": [0.1, 0.2]},
            "net": {"parameters": {"depth": {"value": 2}}},
            "on": {"value": True},
        },
    }

    spec, _ = read_sweep_file(json.dumps(file), "f.yaml")

    assert commands(read_spec(spec), 1) == [["python", "t.py", *words]]


def test_arguments_as_json():
    spec, _ = read("wandb_json.yaml")

    told = commands(spec, 30)

    assert all(words[:2] == ["./solve", "--config"] and len(words) == 3 for words in told)
    configs = [json.loads(words[2]) for words in told]
    assert {config["solver"] for config in configs} == {"cg", "gmres"}
    assert {config["restart"] for config in configs} == {10, 20, 50}
    assert {config["exact"] for config in configs} == {True, False}
    assert {config["limits"]["time"] for config in configs} == {None, 60}
    assert all(config["limits"]["steps"] == 1000 and config["tag"] == "run {one}" for config in configs)
    assert all(1e-8 <= config["tolerance"] <= 1e-3 for config in configs)


def test_values_that_are_there_twice_are_tried_once():
    spec, _ = read_sweep_file("program: t\nmethod: grid\nparameters: {a: {values: [1, 2, 1]}}\n", "f")

    assert spec["parameters"][0]["values"] == ["1", "2"]


def test_hyperband_can_be_counted_from_the_end():
    rule = "early_terminate: {type: hyperband, max_iter: 27, s: 2, eta: 3, strict: false}\n"

    spec, _ = read_sweep_file(rule + "program: t\nmethod: grid\nparameters: {a: {values: [1, 2]}}\n", "f")

    assert (spec["pruner"], spec["prune_after"]) == ("hyperband", 3)


def test_hyperband_counted_from_the_end_begins_at_the_last_whole_step():
    rule = "early_terminate: {type: hyperband, max_iter: 12, s: 3, eta: 4}\n"

    spec, _ = read_sweep_file(rule + "program: t\nmethod: grid\nparameters: {a: {values: [1, 2]}}\n", "f")

    assert (spec["prune_after"], spec["prune_factor"]) == (3, 4)


@pytest.mark.parametrize(
    ("rule", "factor"),
    [
        ("{type: hyperband, min_iter: 3, eta: 2}", 2),
        ("{type: hyperband, min_iter: 3, eta: 2, s: 4}", 2),
        ("{type: hyperband, min_iter: 3}", None),
    ],
)
def test_eta_is_how_many_trials_one_is_kept_of(rule, factor):
    text = f"early_terminate: {rule}\nprogram: t\nmethod: grid\nmetric: {{name: loss}}\n"

    spec, _ = read_sweep_file(text + "parameters: {a: {values: [1, 2]}}\n", "f")

    read = read_spec(spec)
    assert (read.pruner, read.prune_after, read.prune_factor) == ("hyperband", 3, factor)


def test_the_file_of_their_tutorial():
    text = """
        program: train.py
        method: random
        run_cap: 400
        metric: {name: loss, goal: minimize}
        parameters:
          optimizer: {values: [adam, sgd]}
          fc_layer_size: {values: [128, 256, 512]}
          dropout: {values: [0.3, 0.4, 0.5]}
          epochs: {value: 1}
          learning_rate: {distribution: uniform, min: 0, max: 0.1}
          batch_size: {distribution: q_log_uniform_values, q: 8, min: 32, max: 256}
    """

    spec = read_spec(read_sweep_file(text, "f")[0])

    drawn = [int(words[-1].removeprefix("--batch_size=")) for words in commands(spec, 400)]
    assert spec.parameters[-1] == Range("batch_size", 32, 256, "log", is_integer=True, step=8, drawn=(32, 256))
    assert all(size % 8 == 0 and 32 <= size <= 256 for size in drawn)
    assert sum(size < 90 for size in drawn) > 160  # half of them lie below the geometric mean


@pytest.mark.parametrize(
    ("rule", "parameter"),
    [
        ("q_log_uniform_values, min: 30, max: 250, q: 8", Range("a", 32, 248, "log", True, 8, drawn=(30, 250))),
        ("q_log_uniform_values, min: 0.1, max: 1, q: 0.05", Range("a", 0.1, 1, "log", step=0.05, drawn=(0.1, 1))),
        ("q_log_uniform, min: 2.5, max: 5, q: 4", Range("a", 12, 148, "log", True, 4, drawn=(12.1825, 148.413))),
        ("q_log_uniform_values, min: 1, max: 9", Range("a", 1, 9, "log", True, drawn=(1, 9))),
        ("inv_log_uniform_values, min: 0.001, max: 0.1", Range("a", 0.001, 0.1, "log")),
        ("inv_log_uniform, min: 0, max: 2", Range("a", 0.135335, 1, "log")),
    ],
)
def test_logarithmic_distributions(rule, parameter):
    text = f"program: t\nmethod: random\nrun_cap: 9\nparameters: {{a: {{distribution: {rule}}}}}\n"

    spec, _ = read_sweep_file(text, "f")

    assert read_spec(spec).parameters == (parameter,)


def test_a_grid_goes_through_all_multiples():
    rule = "{distribution: q_log_uniform_values, q: 8, min: 30, max: 60}"

    spec, _ = read_sweep_file(f"program: t\nmethod: grid\nparameters: {{a: {rule}}}\n", "f")

    assert [words[-1] for words in commands(read_spec(spec), 5)] == [
        "--a=32",
        "--a=40",
        "--a=48",
        "--a=56",
        "--a=64",
    ]


@pytest.mark.parametrize(
    "distribution", ["", "distribution: categorical, ", "distribution: categorical_w_probabilities, "]
)
def test_equal_probabilities_are_none(distribution):
    rule = f"{{{distribution}values: [x, y], probabilities: [0.5, 0.5]}}"

    spec, _ = read_sweep_file(f"program: t\nmethod: grid\nparameters: {{a: {rule}}}\n", "f")

    assert read_spec(spec).parameters == (Choice("a", ("x", "y")),)


def test_a_variable_in_the_command_is_read_where_the_sweep_is_added():
    text = "command: ['${envvar:PYTHON}', t.py, '--data=${envvar:DATA}/${envvar:SET}', '${args}']\n"

    spec, _ = read_sweep_file(
        text + "method: grid\nparameters: {a: {values: [1, 2]}}\n",
        "f",
        {"PYTHON": "python3.12", "DATA": "/data $x", "SET": ""},
    )

    assert commands(read_spec(spec), 1) == [["python3.12", "t.py", "--data=/data $x/", "--a=1"]]


@pytest.mark.parametrize(
    ("environment", "words"), [({}, "the variable DATA, which is not set"), ({"DATA": "{a}"}, "DATA has a brace")]
)
def test_a_variable_that_cannot_be_put_in_is_refused(environment, words):
    text = "command: [t, '${envvar:DATA}', '${args}']\nmethod: grid\nparameters: {a: {values: [1, 2]}}\n"

    with pytest.raises(BadInput) as refusal:
        read_sweep_file(text, "f", environment)

    assert words in refusal.value.message
    assert refusal.value.remedy


def test_a_search_without_an_end_needs_to_be_told_how_many():
    spec, _ = read_sweep_file("program: t\nmethod: random\nparameters: {a: {min: 0.0, max: 1}}\n", "f")

    with pytest.raises(BadInput) as refusal:
        read_spec(spec)

    assert "--samples" in refusal.value.remedy
    assert read_spec(spec | {"samples": 3}).samples == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("method: magic", "the method is 'magic'"),
        ("method:", "the method is None"),
        ("run_cap: many", "run_cap is not a whole number"),
        ("colour: red", "what to do with the key colour"),
        ("controller: {type: local}", "what to do with the key controller"),
        ("metric: loss", "metric is not a mapping"),
        ("metric: {goal: minimize}", "the name of the metric is not a text"),
        ("metric: {name: a, goal: lower}", "the goal is 'lower'"),
        ("metric: {name: a, target: high}", "the target of the metric is not a number"),
        ("metric: {name: a, impute: worst}", "what to do with impute of metric"),
        ("early_terminate: {type: envelope}", "not hyperband"),
        ("early_terminate: {type: hyperband}", "min_iter is not a whole number"),
        ("early_terminate: {type: hyperband, min_iter: 3, eta: 1}", "eta is 1"),
        ("early_terminate: {type: hyperband, min_iter: 3, strict: true}", "strict"),
        ("early_terminate: {type: hyperband, min_iter: 3, max_iter: 9}", "min_iter and max_iter"),
        ("early_terminate: {type: hyperband, max_iter: 9}", "s is not a whole number"),
        ("early_terminate: {type: hyperband, min_iter: 3, bands: 3}", "what to do with bands"),
        ("command: python train.py", "the command is not a list"),
        ("command: ['${args}', '${args_json}']", "has 2 of the macros"),
        ("command: ['${args_no_boolean_flags}', '${args_json}']", "has 2 of the macros"),
        ("command: ['${program}', '${args_json_file}']", "the macro ${args_json_file} is not supported"),
        ("command: ['${args}', '${envvar:}']", "what to do with ${envvar:}"),
        ("command: ['${args}', '${envvar}']", "what to do with ${envvar}"),
        ("command: ['${args}', 'a${program}']", "what to do with a${program}"),
        ("program:", "there is no program"),
        ("parameters:", "parameters is not a mapping"),
        ("parameters: {a: 3}", "a is not a mapping"),
        ("parameters: {a: {}}", "neither value, values, nor min and max"),
        ("parameters: {a: {min: 3}}", "neither value, values, nor min and max"),
        ("parameters: {a: {min: 3, max: x}}", "an end of a is not a number"),
        ("parameters: {a: {min: 3, max: .inf}}", "an end of a is not a number"),
        ("parameters: {a: {min: 3, max: 1}}", "ends before it"),
        ("parameters: {a: {values: 3}}", "the values of a are not a list"),
        ("parameters: {a: {values: []}}", "a has no values"),
        ("parameters: {a: {values: [1], min: 3}}", "what to do with min of a"),
        ("parameters: {a: {values: [1, 2], probabilities: [0.1, 0.8]}}", "the probabilities of a add up to 0.9"),
        ("parameters: {a: {values: [1, 2], probabilities: [0.1, 0.8, 0.1]}}", "2 values and 3 probabilities"),
        ("parameters: {a: {distribution: beta, a: 1}}", "b of a is not a text"),
        ("parameters: {a: {distribution: normal, mu: 0, sigma: 0}}", "sigma of a must be above 0"),
        ("parameters: {a: {distribution: gumbel}}", "the distribution 'gumbel'"),
        ("parameters: {a: {values: [1, 2], probabilities: 0.5}}", "the probabilities of a are not a list"),
        ("parameters: {a: {distribution: categorical}}", "is categorical and has no values"),
        ("parameters: {a: {distribution: constant}}", "is constant and has no value"),
        ("parameters: {a: {distribution: inv_log_uniform_values, min: 0, max: 2}}", "no logarithm"),
        ("parameters: {a: {distribution: q_uniform, min: 1, max: 2, q: 0}}", "q of a is 0"),
        ("parameters: {a: {distribution: q_uniform, min: 1, max: 1e300, q: 1e-300}}", "q of a is 1e-300"),
        ("parameters: {a: {distribution: q_log_uniform_values, min: 8, max: 64, q: -8}}", "q of a is -8"),
        ("parameters: {a: {distribution: log_uniform, min: 1, max: 1e4}}", "the exponent 10000"),
        ("parameters: {a: {distribution: log_uniform_values, min: 0, max: 1}}", "no logarithm"),
        ("parameters: {a: {parameters: {b: {value: 1}}, values: [1]}}", "what to do with values of a"),
        ("parameters: {'a b': {values: [1]}}", "'a b' as a parameter's name"),
    ],
)
def test_what_has_no_equal_here_is_refused_with_a_sentence(change, words):
    whole = {
        "program": "program: t.py",
        "method": "method: bayes",
        "metric": "metric: {name: loss}",
        "parameters": "parameters: {x: {min: 0, max: 1}}",
    }
    whole[change.partition(":")[0]] = change

    with pytest.raises(BadInput) as refusal:
        read_sweep_file("\n".join(whole.values()), "their.yaml")

    assert words in refusal.value.message
    assert refusal.value.remedy


@pytest.mark.parametrize("values", ["[1, auto]", "['a\"b', c]", "[null, a]"])
def test_values_that_cannot_be_written_alike_are_refused_in_json(values):
    text = "command: ['${program}', '${args_json}']\nprogram: t\nmethod: grid\nparameters: {a: {values: %s}}\n"

    with pytest.raises(BadInput) as refusal:
        read_sweep_file(text % values, "f")

    assert "cannot be written in one way" in refusal.value.message


def test_only_constants_are_no_search():
    spec, _ = read_sweep_file("program: t\nmethod: grid\nparameters: {a: {value: 1}}\n", "f")

    with pytest.raises(BadInput) as refusal:
        read_spec(spec)

    assert "there is no parameter" in refusal.value.message


def parameter_of(rule: str, **more: Any) -> Any:
    text = f"program: t\nmethod: random\nrun_cap: 9\nparameters: {{a: {{{rule}}}}}\n"
    spec = read_spec(read_sweep_file(text, "f")[0] | more)
    return spec.parameters[0]


def test_multiples_of_q_are_drawn_as_round_of_x_divided_by_q():
    """Of 0, 5 and 10 the ends come up half as often, and 7 of 3 to 7 is rounded to 5."""
    drawn = [
        parameter_of("distribution: q_uniform, min: 0, max: 10, q: 5").value_of(i / 1000) for i in range(1000)
    ]

    assert {value: round(drawn.count(value), -1) for value in ("0", "5", "10")} == {"0": 250, "5": 500, "10": 250}
    log = parameter_of("distribution: q_log_uniform_values, min: 1, max: 64, q: 8")
    assert [log.value_of(share) for share in (0, 0.3, 0.4, 0.999)] == ["0", "0", "8", "64"]
    narrow = parameter_of("distribution: q_uniform, min: 3, max: 7, q: 10")
    assert [narrow.value_of(share) for share in (0, 0.4, 0.6)] == ["0", "0", "10"]


@pytest.mark.parametrize(
    ("rule", "middle", "share"),
    [
        ("distribution: normal, mu: 3, sigma: 2", "3", "4.34898"),
        ("distribution: normal", "0", "0.67449"),
        ("distribution: q_normal, mu: 3, sigma: 2, q: 0.5", "3", "4.5"),
        ("distribution: log_normal, mu: 0, sigma: 1", "1", "1.96303"),
        ("distribution: beta, a: 2, b: 5", "0.26445", "0.389479"),
        ("distribution: q_beta, a: 2, b: 5, q: 0.1", "0.3", "0.4"),
    ],
)
def test_curves_are_drawn_by_their_quantiles(rule, middle, share):
    curve = parameter_of(rule)

    assert (curve.value_of(0.5), curve.value_of(0.75)) == (middle, share)
    assert abs(curve.share_of(curve.value_of(0.75)) - 0.75) < 0.06


@pytest.mark.parametrize("parts", ["[.3333, .3333, .3334]", "[0.333, 0.333, 0.333]"])
def test_probabilities_that_differ_by_their_rounding_are_equal(parts):
    assert parameter_of(f"values: [x, y, z], probabilities: {parts}") == Choice("a", ("x", "y", "z"))


def test_unequal_probabilities_are_drawn_as_often():
    choice = parameter_of("values: [x, y, x], probabilities: [0.1, 0.7, 0.2]")

    drawn = [choice.value_of(i / 1000) for i in range(1000)]
    assert (round(drawn.count("x"), -1), round(drawn.count("y"), -1)) == (300, 700)
    assert choice.value_of(choice.share_of("y")) == "y"


@pytest.mark.parametrize("command", ["['${program}']", "['${program}', '${args_no_boolean_flags}']"])
def test_the_config_of_a_trial_has_the_types_of_the_file(command):
    spec = """
program: t.py
method: grid
command: %s
parameters:
  lr: {values: [1e-5, 0.5]}
  version: {values: ["1.0"]}
  amp: {values: [false, true]}
  name: {values: [~, 'true: "x" {é}']}
  optimizer: {parameters: {beta: {values: [[0.9, 1e-8]]}, kind: {value: adam}}}
  epochs: {value: 40}
  nothing: {value: ~}
"""
    read, _ = read_sweep_file(spec % command, "their.yaml")

    first = config_of(read_spec(read))
    assert first == {
        "lr": 1e-5,
        "version": "1.0",
        "amp": False,
        "name": None,
        "optimizer": {"beta": [0.9, 1e-8], "kind": "adam"},
        "epochs": 40,
        "nothing": None,
    }
    assert type(first["epochs"]) is int
    last = config_of(read_spec(read), 7)
    assert (last["lr"], last["amp"], last["name"]) == (0.5, True, 'true: "x" {é}')


def test_numbers_of_ranges_are_numbers_in_the_config():
    spec = read_spec(
        {
            "words": ["train"],
            "parameters": [
                {"name": "lr", "low": 1, "high": 1.0},
                {"name": "layers", "low": 3, "high": 3, "integer": True},
            ],
            "method": "random",
            "samples": 1,
            "results": {"from": "wandb"},
        }
    )

    assert repr(config_of(spec)) == "{'lr': 1.0, 'layers': 3}"


def test_points_that_only_the_config_tells_apart_are_different_work():
    text = "program: t\nmethod: grid\ncommand: ['${program}']\nparameters: {a: {values: [1, 2]}}\n"
    template = CommandTemplate(read_spec(read_sweep_file(text, "f")[0]))

    assert template.fingerprint({"a": "1"}, "/") != template.fingerprint({"a": "2"}, "/")


def test_runs_are_offline_unless_the_sweep_says_otherwise_and_no_two_have_one_id():
    def of(number: int, key: str = "key", **given: str) -> dict[str, str]:
        return wandb_variables(3, number, key, given)

    assert (of(1)["WANDB_MODE"], of(1)["WANDB_SWEEP_ID"]) == ("offline", "dibs-3")
    assert of(1, WANDB_MODE="online")["WANDB_MODE"] == "online"
    assert "WANDB_SWEEP_ID" not in of(1, WANDB_MODE="online")
    assert len({of(1)["WANDB_RUN_ID"], of(2)["WANDB_RUN_ID"], of(1, "other")["WANDB_RUN_ID"]}) == 3


@pytest.mark.parametrize("config", [3, [3], [{}], [{"path": []}], [{"path": [1]}], [{"path": ["a"], "b": 1}]])
def test_a_config_that_is_none_is_refused(config):
    spec = {"command": "t {a}", "parameters": [{"name": "a", "values": ["1"]}], "config": config}

    with pytest.raises(BadInput) as refusal:
        read_spec(spec)

    assert "config" in refusal.value.message
