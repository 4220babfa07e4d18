"""A sweep as JSON: what is read, written, and refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.errors import BadInput
from dibs.sweeps.space import Choice, Range
from dibs.sweeps.spec import Metric, ResultSource, Spec, read_spec, spec_object

LR = {"name": "lr", "low": 1e-4, "high": 0.1, "scale": "log"}
BS = {"name": "bs", "values": ["32", "64"]}
WHOLE = {"command": "train {lr} {bs}", "parameters": [LR, BS], "method": "random", "samples": 5}

NAMES = ["alpha", "batch-size", "model.lr"]
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
ENDS = st.floats(1e-6, 1e6)


def ranges(name: str) -> st.SearchStrategy[Range]:
    return st.builds(
        lambda ends, scale, step: Range(
            name, min(ends), max(ends), scale, False, (max(ends) - min(ends)) / step or None if step else None
        ),
        st.tuples(ENDS, ENDS),
        st.sampled_from(["linear", "log"]),
        st.one_of(st.none(), st.integers(1, 50)),
    )


def choices(name: str) -> st.SearchStrategy[Choice]:
    values = st.lists(st.one_of(st.none(), TEXTS), min_size=2, max_size=4, unique=True)
    return values.map(lambda found: Choice(name, tuple(found)))


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    parameters = [draw(st.one_of(ranges(name), choices(name))) for name in NAMES]
    words = ["train", *(f"--{name}={{{name}}}" for name in NAMES)]
    command = draw(st.sampled_from([{"words": tuple(words)}, {"line": " ".join(words)}]))
    metrics = draw(st.sampled_from([(Metric("loss"),), (Metric("val/loss", "max"), Metric("size"))]))
    results = draw(
        st.sampled_from([ResultSource(), ResultSource("file", path="out/%j.json"), ResultSource("metrics")])
    )
    is_pruned = len(metrics) == 1 and results.kind == "metrics"
    return Spec(
        **command,
        parameters=tuple(parameters),
        where=draw(st.sampled_from([(), ("alpha != 3", "batch-size is None or model.lr != 1")])),
        method=draw(st.sampled_from(["random", "adaptive"])),
        sampler=draw(st.sampled_from(["tpe", "gp", "qmc"])),
        is_shuffled=draw(st.booleans()),
        samples=draw(st.integers(1, 1000)),
        seed=draw(st.integers(0, 2**32 - 1)),
        metrics=metrics,
        results=results,
        pruner=draw(st.sampled_from(["", "halving", "hyperband", "median"])) if is_pruned else "",
        prune_after=draw(st.integers(0, 9)),
        prune_factor=draw(st.one_of(st.none(), st.integers(2, 9))),
        parallel=draw(st.one_of(st.none(), st.integers(1, 9))),
        reuse=draw(st.booleans()),
        name=draw(st.sampled_from(["", "first try"])),
    )


@given(specs())
def test_reading_undoes_writing(spec):
    assert read_spec(json.loads(json.dumps(spec_object(spec)))) == spec


def test_what_has_a_default_may_be_missing():
    spec = read_spec({"command": "train {bs}", "parameters": [BS]})

    assert spec == Spec(line="train {bs}", parameters=(Choice("bs", ("32", "64")),))


def test_a_sweep_stored_before_its_pruner_had_a_factor_is_read():
    stored = spec_object(read_spec(WHOLE))
    del stored["prune_factor"]

    assert read_spec(stored).prune_factor is None


def test_numbers_among_values_are_texts():
    spec = read_spec(
        {"words": ["train", "{x}"], "parameters": [{"name": "x", "values": [1, 0.5, True, None, "a"]}]}
    )

    assert spec.parameters == (Choice("x", ("1", "0.5", "true", None, "a")),)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"comand": "x"}, "there is no key 'comand'"),
        ({"command": None}, "there is no command"),
        ({"command": "  "}, "there is no command"),
        ({"words": ["train", "{lr}", "{bs}"]}, "there are two commands"),
        ({"command": "train {lr}"}, "bs is not in the command"),
        ({"command": "train {lr} {bs} {seed}"}, "there is no parameter seed"),
        ({"command": "train {lr} {bs}\0"}, "NUL"),
        ({"command": 3}, "command is not a text"),
        ({"shell": ""}, "shell"),
        ({"parameters": []}, "there is no parameter"),
        ({"parameters": {}}, "parameters is not a list"),
        ({"parameters": [LR, BS, LR]}, "lr is given twice"),
        ({"parameters": [LR, BS | {"values": []}]}, "bs has no values"),
        ({"parameters": [LR, BS | {"values": [[1]]}]}, "values is not a list of texts"),
        ({"parameters": [LR, BS | {"values": [float("nan")]}]}, "values is not a list of texts"),
        ({"parameters": [LR, BS | {"low": 1}]}, "there is no key 'low'"),
        ({"parameters": [LR, {"values": ["1"]}]}, "name is missing"),
        ({"parameters": [LR | {"low": -1}, BS]}, "begins at -1, which has no logarithm"),
        ({"parameters": [LR | {"low": True}, BS]}, "low is not a number"),
        ({"parameters": [LR | {"low": float("nan")}, BS]}, "low is not a number"),
        ({"parameters": [LR | {"high": 10**400}, BS]}, "high is not a number"),
        ({"parameters": [{"name": "lr", "low": 1}, BS]}, "high is missing"),
        ({"parameters": [LR | {"scale": "cubic"}, BS]}, "scale is not linear or log"),
        ({"parameters": [LR, BS | {"when": "lr >"}]}, "it is not a condition"),
        ({"where": ["bss > 1"]}, "there is no parameter bss"),
        ({"where": "bs > 1"}, "where is not a list"),
        ({"where": ["bs > 1"] * 101}, "at most 100 conditions"),
        ({"method": "magic"}, "method is not grid or random or adaptive"),
        ({"method": "grid"}, "a grid cannot enumerate lr"),
        ({"samples": None}, "random has no end"),
        ({"method": "adaptive", "samples": None, "metrics": [{"name": "a"}]}, "adaptive has no end"),
        ({"method": "adaptive"}, "an adaptive search needs a metric"),
        ({"samples": 0}, "samples cannot be 0"),
        ({"samples": -1}, "samples cannot be -1"),
        ({"samples": 1.5}, "samples is not a whole number"),
        ({"samples": True}, "samples is not a whole number"),
        ({"samples": "5"}, "samples is not a whole number"),
        ({"samples": 10**300}, "samples cannot be that large"),
        ({"seed": -1}, "seed cannot be -1"),
        ({"seed": 2**32}, "seed cannot be"),
        ({"parallel": 0}, "parallel cannot be 0"),
        ({"shuffle": "yes"}, "shuffle is not true or false"),
        ({"metrics": [{"name": "a"}, {"name": "a"}]}, "a is given twice"),
        ({"metrics": [{"name": "a b"}]}, "'a b' as a metric"),
        ({"metrics": [{"name": "step"}]}, "'step' as a metric"),
        ({"metrics": [{"name": "a", "goal": "lower"}]}, "goal is not min or max"),
        ({"metrics": [{"name": f"m{n}"} for n in range(11)]}, "at most 10 metrics"),
        ({"results": {"from": "log"}, "metrics": [{"name": "a"}]}, "need an expression"),
        ({"results": {"from": "file"}, "metrics": [{"name": "a"}]}, "need its path"),
        ({"results": {"from": "log", "pattern": "a=(.*)"}}, "no metric is named"),
        ({"results": {"pattern": "a=(.*)"}}, "is for results from the log"),
        ({"results": {"path": "a"}}, "is for results from a file"),
        ({"results": {"from": "log", "pattern": "a=("}, "metrics": [{"name": "a"}]}, "cannot use the expression"),
        ({"results": []}, "not an object"),
        ({"pruner": "magic"}, "pruner is not empty or halving"),
        ({"pruner": "median"}, "by one metric"),
        ({"pruner": "median", "metrics": [{"name": "a"}, {"name": "b"}]}, "by one metric"),
        (
            {"pruner": "median", "metrics": [{"name": "a"}], "results": {"from": "file", "path": "r"}},
            "a result file comes at its end",
        ),
        (
            {"method": "adaptive", "sampler": "cmaes", "metrics": [{"name": "a"}, {"name": "b"}]},
            "cmaes knows one metric only",
        ),
        ({"prune_factor": 1}, "prune_factor cannot be 1"),
        ({"name": "17"}, "'17'"),
        ({"name": "@"}, "'@'"),
        ({"name": "a\x1b[2J"}, "cannot call a sweep"),
        ({"name": "x" * 201}, "cannot call a sweep"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_one_sentence_and_a_remedy(changes, words):
    with pytest.raises(BadInput) as refusal:
        read_spec(WHOLE | changes)

    assert words in refusal.value.message
    assert "\n" not in refusal.value.message
    assert refusal.value.remedy


@pytest.mark.parametrize("given", [None, [], "x", 3])
def test_what_is_no_object_is_refused(given):
    with pytest.raises(BadInput):
        read_spec(given)


def test_too_many_parameters_are_counted_and_not_read():
    with pytest.raises(BadInput) as refusal:
        read_spec({"command": "x", "parameters": [None] * 1001})

    assert "at most 1000" in refusal.value.message


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)


@given(st.sampled_from([*spec_object(read_spec(WHOLE)), "words"]), JSON)
def test_any_json_is_a_sweep_or_refused(key, value):
    try:
        spec = read_spec(WHOLE | {key: value})
    except BadInput:
        return
    assert read_spec(spec_object(spec)) == spec


def test_trials_that_leave_their_results_in_one_file_run_one_after_another():
    """Two at a time would read each other's numbers, without an error."""
    metrics = [{"name": "loss"}]
    shared = {**WHOLE, "metrics": metrics, "results": {"from": "file", "path": "r.json"}}
    own = {**WHOLE, "metrics": metrics, "results": {"from": "file", "path": "r-%j.json"}}

    with pytest.raises(BadInput) as refusal:
        read_spec({**shared, "parallel": 2})

    assert "r.json" in refusal.value.message and "%j" in refusal.value.remedy
    assert read_spec(shared).parallel == 1
    assert (read_spec(own).parallel, read_spec({**own, "parallel": 2}).parallel) == (None, 2)
