"""Sweeps in files: our own YAML."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.errors import BadInput
from dibs.inputs.wishes import apply_wishes
from dibs.model.jobs import Command, Request
from dibs.sweeps.space import Choice, Range
from dibs.sweeps.spec import Metric, ResultSource, read_spec
from dibs.sweeps.sweepfile import read_sweep_file, read_sweep_values

DATA = Path(__file__).parent.parent / "data" / "sweeps"
SMALL = "command: train {lr}\nparameters:\n  lr: [1, 2]\n"


def test_a_file_says_all_that_a_sweep_has():
    text = (DATA / "ours.yaml").read_text()

    given, wishes = read_sweep_file(text, "ours.yaml")
    spec = read_spec(given)

    assert spec.parameters == (
        Range("lr", 1e-4, 0.1, "log"),
        Choice("opt", ("adam", "sgd", None)),
        Range("momentum", 0.5, 0.99, when="opt == 'sgd'"),
        Range("layers", 1, 8, is_integer=True),
        Choice("norm", ("batch", None, "layer"), "layers > 1"),
        Choice("amp", ("on", "off")),
        Choice("code", ("010", "1e-4", "2026-01-01", "yes")),
    )
    assert spec.where == ("layers * lr < 0.5",)
    assert (spec.method, spec.samples, spec.seed, spec.parallel, spec.reuse) == ("random", 40, 7, 8, True)
    assert spec.metrics == (Metric("val_loss", "min"),)
    assert spec.results == ResultSource("log", r"val_loss=(\S+)")
    assert spec.name == "first try"
    assert wishes == {"num_gpus": "1", "vram": "8G", "time": "2h", "env": {"SEED": "1"}}


@pytest.mark.parametrize(
    ("said", "metric"),
    [
        ({"metric": "acc:max"}, Metric("acc", "max")),
        ({"metric": "acc:max:best"}, Metric("acc", "max", "best")),
        ({"metric": "acc", "goal": "max"}, Metric("acc", "max")),
        ({"metric": "acc"}, Metric("acc", "min")),
    ],
)
def test_a_metric_is_said_as_on_the_command_line(said, metric):
    given, _ = read_sweep_values({"command": "echo {x}", "parameters": {"x": [1]}, **said}, "dibs.sweep")

    assert read_spec(given).metrics == (metric,)


def test_the_wishes_of_a_file_are_those_of_a_job():
    _, wishes = read_sweep_file((DATA / "ours.yaml").read_text(), "ours.yaml")

    request = apply_wishes(Request(command=Command.line("true"), workdir="/"), wishes)

    assert request.wishes.num_gpus == 1
    assert request.env == (("SEED", "1"),)


def test_a_parameter_may_have_the_keys_of_the_json_form():
    text = """
words: [train, "{a}", "{b}", "{c}"]
parameters:
  a: {low: 1e-4, high: 1, scale: log}
  b: {low: 0, high: 10, integer: true, step: 2, when: "a > 0.1"}
  c: {values: 1..3, when: b=4}
"""

    given, wishes = read_sweep_file(text, "f")

    assert [each["name"] for each in given["parameters"]] == ["a", "b", "c"]
    assert read_spec(given | {"method": "random", "samples": 3}).parameters == (
        Range("a", 1e-4, 1.0, "log"),
        Range("b", 0, 10, is_integer=True, step=2, when="a > 0.1"),
        Range("c", 1, 3, is_integer=True, when="b == '4'"),
    )
    assert wishes == {}


def test_a_command_that_is_a_list_is_its_words():
    given, _ = read_sweep_file("command: [train, --lr, '{lr}']\nparameters: {lr: [1, 2]}\n", "f")

    assert read_spec(given).words == ("train", "--lr", "{lr}")


def test_a_key_that_the_sweep_does_not_have_is_a_wish():
    _, wishes = read_sweep_file(SMALL + "num_gpu: 1\n", "f")

    assert wishes == {"num_gpu": "1"}  # and `apply_wishes` says that there is none of this name


def test_parts_may_be_shared_with_anchors():
    text = """
command: train {a} {b}
parameters:
  a: &few [1, 2]
  b: *few
"""

    given, _ = read_sweep_file(text, "f")

    assert [each["values"] for each in given["parameters"]] == [["1", "2"], ["1", "2"]]


LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is not a list of keys and values"),
        ("- a\n- b\n", "it is not a list of keys and values"),
        ("just text", "it is not a list of keys and values"),
        ("a: [1, 2", "in line"),
        ("a: 1\n\tb: 2", "in line"),
        ("a: 1\n---\nb: 2\n", "in line"),
        ("\x07", "cannot read f"),
        (SMALL + "command: other\n", "the key command is given twice"),
        (LAUGHS, "has too many aliases"),
        ("a: &a [*a]", "too deep"),
        ("a: " + "[" * 5000 + "]" * 5000, "too deep"),
        ("? [1, 2]\n: 3\n", "a key must be a text"),
        ("a: !!python/object/apply:os.system [true]", "is not allowed in a sweep file"),
        ("a: !mine 3", "is not allowed in a sweep file"),
        ("<<: 3", "<< takes mappings"),
        ("command: [train]\nparameters: 3\n", "parameters is not a mapping"),
        ("command: train {lr}\nparameters:\n  lr: {min: 0, max: 1}\n", "low of the parameter lr is not"),
        (SMALL + "words: [train, '{lr}']\n", "there are two commands"),
        ("parameters: [1]\n", "parameters is not a mapping"),
        ("parameters:\n  lr:\n", "lr has no values"),
        ("parameters:\n  lr: []\n", "lr has no values"),
        ("parameters:\n  lr: [[1]]\n", "a value of lr is not a text"),
        ("parameters:\n  lr: 0..1:lgo\n", "cannot read 'lgo'"),
        ("parameters:\n  lr: {low: 1}\n", "high of the parameter lr is not a number"),
        ("parameters:\n  lr: {low: [1], high: 2}\n", "low of the parameter lr is not a number"),
        ("parameters:\n  lr: {low: a, high: 1}\n", "low of the parameter lr is not a number"),
        ("parameters:\n  lr: {values: [1, 2], scael: log}\n", "the parameter lr has no key scael"),
        (SMALL + "samples: many\n", "samples is not a whole number"),
        (SMALL + "samples: [3]\n", "samples is not a whole number"),
        (SMALL + "reuse: 3\n", "reuse is not true or false"),
        (SMALL + "where: 3\nmetric: [a]\n", "metric is not a text"),
        (SMALL + "command:\n  a: b\n", "given twice"),
        ("command:\n  a: b\n", "command is not a text"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_one_sentence(text, words):
    with pytest.raises(BadInput) as refusal:
        read_spec(read_sweep_file(text, "f")[0])

    assert words in refusal.value.message
    assert "\n" not in refusal.value.message
    assert refusal.value.remedy


@given(st.text("abc:-[]{}&*!<>?|'\"#, \n\t0.1~", max_size=40))
def test_any_text_is_a_sweep_or_refused(text):
    try:
        given, wishes = read_sweep_file(text, "f")
    except BadInput:
        return
    assert isinstance(given, dict)
    assert isinstance(wishes, dict)


def test_without_yaml_it_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)

    with pytest.raises(BadInput) as refusal:
        read_sweep_file(SMALL, "f")

    assert "dibs[sweeps]" in refusal.value.remedy


def test_a_sweep_file_may_send_its_trials_elsewhere():
    _, wishes = read_sweep_file(SMALL + "on: slurm\npartition: gpu\n", "a.yaml")

    request = apply_wishes(Request(command=Command.line("true")), wishes)

    assert (request.on, request.on_options) == ("slurm", (("partition", "gpu"),))
