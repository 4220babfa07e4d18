"""How a parameter is typed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.errors import BadInput
from dibs.sweeps.notation import condition_of, parse_parameter
from dibs.sweeps.params import split_params
from dibs.sweeps.space import Choice, Range


@pytest.mark.parametrize(
    ("words", "parameter"),
    [
        (["1e-4..1e-1:log"], Range("p", 1e-4, 1e-1, "log")),
        (["1..8"], Range("p", 1, 8, is_integer=True)),
        (["-8..8"], Range("p", -8, 8, is_integer=True)),
        (["1..8.0"], Range("p", 1, 8)),
        (["0..1:0.1"], Range("p", 0, 1, step=0.1)),
        (["0..100:5"], Range("p", 0, 100, is_integer=True, step=5)),
        (["0...5"], Range("p", 0, 0.5)),
        ([".1..0.5"], Range("p", 0.1, 0.5)),
        (["1..1000:log:int"], Range("p", 1, 1000, "log", is_integer=True)),
        (["1e0..1e3:int:log"], Range("p", 1, 1000, "log", is_integer=True)),
        (["1..1000:log"], Range("p", 1, 1000, "log", is_integer=True)),
        (["1..1000:log:float"], Range("p", 1, 1000, "log")),
        (["32..256:log:8"], Range("p", 32, 256, "log", is_integer=True, step=8)),
        (["0.1..1:0.1:log"], Range("p", 0.1, 1, "log", step=0.1)),
        (["0.5..0.99", "if", "optimizer=sgd"], Range("p", 0.5, 0.99, when="optimizer == 'sgd'")),
        (["0.5..0.99", "if", "optimizer == 'sgd'"], Range("p", 0.5, 0.99, when="optimizer == 'sgd'")),
        (["1", "2", "if", "a=1", "and", "b=2"], Choice("p", ("1", "2"), "a == '1' and b == '2'")),
        (["32", "64"], Choice("p", ("32", "64"))),
        (["adam"], Choice("p", ("adam",))),
        (["none", "0.9"], Choice("p", (None, "0.9"))),
        (["null"], Choice("p", (None,))),
        (["None", "'none'", '"null"'], Choice("p", ("None", "none", "null"))),
        (["if"], Choice("p", ("if",))),
        (["", "a b"], Choice("p", ("", "a b"))),
        (["../data"], Choice("p", ("../data",))),
        (["1../x"], Choice("p", ("1../x",))),
        (["v1..v2"], Choice("p", ("v1..v2",))),
    ],
)
def test_words_are_values_or_a_range(words, parameter):
    assert parse_parameter("p", words) == parameter


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ([], "p has no values"),
        (["0..1:lgo"], "cannot read 'lgo'"),
        (["0..1:"], "cannot read ''"),
        (["0..1:0.1:0.2"], "cannot read '0.2'"),
        (["0..1:int:float"], "cannot read 'float'"),
        (["0..x"], "cannot read the range '0..x'"),
        (["1..2..3"], "cannot read the range"),
        (["1.."], "cannot read the range '1..'"),
        (["0..1", "5"], "has the range 0..1 and other values too"),
        (["5..1"], "begins at 5 and ends before it"),
        (["0..1:log"], "no logarithm"),
        (["-1..1:log"], "no logarithm"),
        (["0..1:0"], "step of p is 0"),
        (["0.5..8:int"], "whole number"),
        (["1e999..1e1000"], "no number"),
        (["1", "1"], "twice"),
        (["1", "if"], "nothing follows the `if` of p"),
    ],
)
def test_what_cannot_be_meant_is_refused(words, refused):
    with pytest.raises(BadInput) as refusal:
        parse_parameter("p", words)

    assert refused in refusal.value.message
    assert refusal.value.remedy


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("optimizer=sgd", "optimizer == 'sgd'"),
        ("optimizer!=sgd", "optimizer != 'sgd'"),
        ("optimizer=sgd,adam", "optimizer in ('sgd', 'adam')"),
        ("optimizer!=sgd,adam", "optimizer not in ('sgd', 'adam')"),
        ("model.layers=3", "model.layers == '3'"),
        ("optimizer == 'sgd'", "optimizer == 'sgd'"),
        ("a=1 and b!=2 or c=3,4", "a == '1' and b != '2' or c in ('3', '4')"),
        ("a=1 and", "a=1 and"),
        ("a=1 b=2 c=3", "a=1 b=2 c=3"),
        ("a=1 and b>2", "a=1 and b>2"),
        ("bs>3", "bs>3"),
        ("bs>=3", "bs>=3"),
        ("a==b", "a==b"),
    ],
)
def test_a_short_condition_is_written_out(text, condition):
    assert condition_of(text) == condition


def test_a_range_below_zero_is_a_value_of_p_and_no_option():
    parameters, rest = split_params(["-p", "x", "-1..1", "-p", "y", "-1e-3..-1e-4", "--quiet"])

    assert parameters == [("x", ("-1..1",)), ("y", ("-1e-3..-1e-4",))]
    assert rest == ["--quiet"]


@given(st.lists(st.text("01.e-:logint'none ifx=", max_size=12), max_size=4))
def test_any_words_are_a_parameter_or_refused(words):
    try:
        parameter = parse_parameter("p", words)
    except BadInput as refusal:
        assert refusal.remedy
        return
    assert parameter.name == "p"
