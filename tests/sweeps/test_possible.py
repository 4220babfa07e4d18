"""Conditions that no point can fulfil are refused, and others never."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.errors import BadInput
from dibs.sweeps import possible
from dibs.sweeps.conditions import Condition
from dibs.sweeps.possible import check_possible
from dibs.sweeps.space import parse_words
from examples import examples

SPACE = [
    parse_words("lr", "1e-4..1e-1:log"),
    parse_words("bs", "32 64 128"),
    parse_words("opt", "adam sgd"),
    parse_words("momentum", "0.5..0.9 if opt=sgd"),
    parse_words("n", "1..1000000"),
    parse_words("data/aug", "none flip 3"),
]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("lr > 1", ""),
        ("bs == 33", ""),
        ("lr < 0.01 and lr > 0.05", ""),
        ("lr ** 2 > 0.5 or n % 2 == 3", ""),
        ("not lr < 1", ""),
        ("abs(lr - 0.5) < 0.1", ""),
        ("lr == bs", ""),
        ("momentum > 0.95", ""),
        ("opt == 'adm'", ""),
        ("opt in ('a', 'b')", ""),
        ("data/aug == 'flop'", ""),
        ("opt * bs < 4", "opt is text, as 'adam', and no number"),
        ("opt > 3", "opt is text, as 'adam', and is compared with 3, a number"),
        ("bs / (lr * 0) > 1", "lr * 0 is 0, and nothing can be divided by it"),
    ],
)
def test_what_can_never_hold_is_refused_and_what_fails_inside_is_told(text, why):
    with pytest.raises(BadInput) as refusal:
        check_possible(SPACE, [text])

    assert refusal.value.message == f"no point fulfils {text}{f': {why}' if why else ''}"


def test_a_parameter_that_would_never_have_a_value_is_refused():
    with pytest.raises(BadInput) as refusal:
        check_possible([*SPACE, parse_words("k", "1 2 if opt=sgdd")], [])

    assert refusal.value.message == "k would never have a value: no point fulfils opt == 'sgdd'"


def test_conditions_that_contradict_each_other_are_refused_together():
    with pytest.raises(BadInput, match=r"no point fulfils lr < 0\.01 and lr > 0\.05"):
        check_possible(SPACE, ["lr < 0.01", "lr > 0.05"])


@pytest.mark.parametrize(
    "text",
    [
        "amp == true",
        "amp == True",
        "amp in (true, 3)",
        "bs == (n > 3)",
        "n > 5 and n == true",
        "lr < 1" + 400 * "0",
    ],
)
def test_what_is_compared_with_a_truth_or_with_a_huge_number_is_not_refused(text):
    space = [*SPACE, parse_words("amp", "true false")]

    check_possible(space, [text])


NUMBERS = st.sampled_from(["x", "y", "z", "0", "1", "2.5", "-3"])
OPERATORS = st.sampled_from(["+", "-", "*", "/", "//", "%", "**"])
EXPRESSIONS = st.recursive(
    NUMBERS | st.just("word"),
    lambda inner: st.one_of(
        st.tuples(inner, OPERATORS, inner).map(lambda t: f"({' '.join(t)})"),
        inner.map(lambda text: f"abs({text})"),
        inner.map(lambda text: f"round({text})"),
        inner.map(lambda text: f"-({text})"),
        st.tuples(inner, inner).map(lambda t: f"min({t[0]}, {t[1]})"),
    ),
    max_leaves=4,
)
COMPARED = st.one_of(
    st.tuples(EXPRESSIONS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), EXPRESSIONS).map(" ".join),
    st.tuples(EXPRESSIONS, EXPRESSIONS).map(lambda t: f"{t[0]} in ({t[1]}, 'a', none)"),
    st.sampled_from(["x is None", "word not in ('a',)", "z != none", "word"]),
)
CONDITIONS = st.recursive(
    COMPARED,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({' '.join(t)})"),
        inner.map(lambda text: f"not ({text})"),
    ),
    max_leaves=3,
)
SMALL = [
    parse_words("x", "0..2"),
    parse_words("y", "-1.0..1:0.5"),
    parse_words("z", "3 b"),
    parse_words("word", "a none if x=1"),
]


@settings(max_examples=examples(300))
@given(CONDITIONS)
def test_by_the_ends_alone_no_condition_is_refused_that_some_point_fulfils(text):
    condition = Condition(text, [one.name for one in SMALL])
    holds = any(condition.holds(point) for point in possible._combinations(SMALL))

    # Without trying the values: what is under test is the proof.
    assert possible._Look({one.name: possible._domain(one) for one in SMALL}).can_be_true(condition) or not holds
