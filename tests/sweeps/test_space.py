"""Parameters: which can be meant, and how their values are written."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dibs.errors import BadInput
from dibs.sweeps.params import split_params
from dibs.sweeps.space import Choice, Range, condition_of, number_text, parse_parameter

ENDS = st.floats(-1e12, 1e12, allow_nan=False)
SHARES = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (64.0, "64"),
        (0.001, "0.001"),
        (3e-05, "3e-05"),
        (0.000234, "0.000234"),
        (-2.0, "-2"),
        (1e6, "1000000"),
        (1e300, "1e+300"),
        (0.0, "0"),
        (-0.0, "0"),
    ],
)
def test_numbers_are_written_as_a_person_would(number, text):
    assert number_text(number) == text
    assert float(text) == number


def test_a_step_is_counted_without_noise():
    steps = Range("x", 0.0, 1.0, step=0.1)

    assert " ".join(steps.value_at(place) for place in range(steps.count)) == (
        "0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1"
    )


def test_a_step_that_does_not_divide_the_range_ends_before_it():
    steps = Range("x", 0.0, 1.0, step=0.4)

    assert [steps.value_at(place) for place in range(steps.count)] == ["0", "0.4", "0.8"]


def test_whole_numbers_are_counted_one_by_one():
    layers = Range("layers", -1.0, 3.0, is_integer=True)

    assert [layers.value_at(place) for place in range(layers.count)] == ["-1", "0", "1", "2", "3"]


def test_a_drawn_number_has_six_digits_at_most():
    learning_rate = Range("lr", 1e-5, 1e-1, "log")

    for place in range(100):
        digits = learning_rate.value_of(place / 100).lower().split("e")[0].replace(".", "").lstrip("0")
        assert len(digits) <= 6


def test_a_narrow_range_far_from_zero_still_has_many_values():
    year = Range("t", 1_700_000_000.0, 1_700_000_001.0)

    assert len({year.value_of(place / 1000) for place in range(1000)}) > 900


@given(ENDS, ENDS, SHARES)
def test_what_is_drawn_lies_in_the_range(one, other, share):
    low, high = sorted((one, other))

    assert low <= float(Range("x", low, high).value_of(share)) <= high


@given(st.floats(1e-12, 1e12), st.floats(1e-12, 1e12), SHARES)
def test_what_is_drawn_on_a_log_scale_lies_in_the_range(one, other, share):
    low, high = sorted((one, other))

    assert low <= float(Range("x", low, high, "log").value_of(share)) <= high


@given(st.integers(1, 10**6), st.integers(1, 10**6), SHARES, st.sampled_from(["linear", "log"]))
def test_whole_numbers_are_drawn_whole(one, other, share, scale):
    low, high = sorted((one, other))

    drawn = Range("n", float(low), float(high), scale, is_integer=True).value_of(share)

    assert low <= int(drawn) <= high


def test_a_log_scale_gives_each_decade_its_share():
    learning_rate = Range("lr", 1e-4, 1.0, "log")

    drawn = [math.floor(math.log10(float(learning_rate.value_of(place / 1000)))) for place in range(1000)]

    assert all(200 < drawn.count(decade) < 300 for decade in (-4, -3, -2, -1))


def test_the_ends_of_a_log_scale_of_whole_numbers_are_not_rare():
    width = Range("width", 1.0, 3.0, "log", is_integer=True)

    drawn = [width.value_of(place / 1000) for place in range(1000)]

    assert drawn.count("1") > drawn.count("2") > drawn.count("3") > 100


def test_steps_on_a_log_scale_are_those_of_a_linear_one_and_come_up_by_their_logarithm():
    size = Range("size", 8.0, 64.0, "log", is_integer=True, step=8.0)

    drawn = [size.value_of(place / 1000) for place in range(1000)]

    counts = [drawn.count(size.value_at(place)) for place in range(size.count)]
    assert [size.value_at(place) for place in range(size.count)] == ["8", "16", "24", "32", "40", "48", "56", "64"]
    assert sum(counts) == 1000
    assert counts == sorted(counts, reverse=True) and counts[-1] > 30


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6), st.floats(1e-3, 1e3), SHARES)
def test_what_is_drawn_in_steps_on_a_log_scale_is_one_of_them(one, other, step, share):
    low, high = sorted((one, other))
    assume(step <= high - low)
    steps = Range("x", low, high, "log", step=step)

    drawn = steps.value_of(share)

    assert low <= float(drawn) <= high
    assert steps.text(float(drawn)) == drawn


def test_a_number_drawn_elsewhere_is_put_on_the_range():
    assert Range("x", 0.0, 1.0).text(0.123456789) == "0.123457"
    assert Range("x", 0.0, 0.1234567).text(0.1234567) == "0.1234567"
    assert Range("x", 0.0, 1.0, step=0.25).text(0.5000000001) == "0.5"
    assert Range("n", 1.0, 8.0, is_integer=True).text(3) == "3"
    assert Range("n", 32.0, 256.0, "log", is_integer=True, step=8.0).text(37) == "40"
    assert Range("n", 1.0, 8.0, "log", is_integer=True, step=2.0).text(8) == "7"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Choice("lr", ()), "lr has no values"),
        (lambda: Choice("lr", ("1", "2", "1")), "the value 1 twice"),
        (lambda: Choice("lr", (None, None)), "the value none twice"),
        (lambda: Choice("lr", ("a\0",)), "NUL"),
        (lambda: Choice("1r", ("a",)), "'1r'"),
        (lambda: Choice("x" * 300, ("a",)), "name"),
        (lambda: Range("lr", 1.0, 0.0), "begins at 1 and ends before it, at 0"),
        (lambda: Range("lr", 0.0, 1.0, "log"), "begins at 0, which has no logarithm"),
        (lambda: Range("lr", -1.0, 1.0, "log"), "begins at -1, which has no logarithm"),
        (lambda: Range("lr", math.nan, 1.0), "not a number"),
        (lambda: Range("lr", 0.0, math.inf), "not a number"),
        (lambda: Range("lr", 0.0, 1.0, "cubic"), "'cubic'"),
        (lambda: Range("n", 0.5, 8.0, is_integer=True), "whole number"),
        (lambda: Range("n", 0.0, 2.0**60, is_integer=True), "too large"),
        (lambda: Range("n", 0.0, 8.0, is_integer=True, step=0.5), "step is 0.5"),
        (lambda: Range("x", 0.0, 1.0, step=0.0), "step of x is 0"),
        (lambda: Range("x", 0.0, 1.0, step=-0.1), "step of x is -0.1"),
        (lambda: Range("x", 0.0, 1.0, step=math.nan), "step of x is nan"),
        (lambda: Range("x", 1e15, 1e15 + 1, step=0.01), "too small"),
        (lambda: Range("x", -1e300, 1e300, step=1e-300), "too small"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_remedy(make, words):
    with pytest.raises(BadInput) as refusal:
        make()

    assert words in refusal.value.message
    assert refusal.value.remedy


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
        (["1e-4..1e-1:log:0.5"], "the step of p is 0.5, larger than its range: only 0.0001 would be left"),
        (["0.5..8:int"], "whole number"),
        (["1e999..1e1000"], "not a number"),
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


@pytest.mark.parametrize(
    ("argv", "parameters", "rest"),
    [
        (["-p", "lr", "0.1", "-p", "bs", "32", "64"], [("lr", ("0.1",)), ("bs", ("32", "64"))], []),
        (["-n", "2", "-p", "lr", "1", "--quiet"], [("lr", ("1",))], ["-n", "2", "--quiet"]),
        (["-p", "lr", "-0.1", "-1e-3", "-inf", "-f", "x"], [("lr", ("-0.1", "-1e-3", "-inf"))], ["-f", "x"]),
        (["-p", "lr", "1", "-"], [("lr", ("1",))], ["-"]),
        (["--param", "lr", "1", "--", "-p", "x"], [("lr", ("1",))], ["--", "-p", "x"]),
        (["--", "mkdir", "-p", "a"], [], ["--", "mkdir", "-p", "a"]),
        (["-p", "lr"], [("lr", ())], []),
        (["-p", "tag", "", "a b"], [("tag", ("", "a b"))], []),
        ([], [], []),
    ],
)
def test_parameters_are_split_from_the_rest(argv, parameters, rest):
    assert split_params(argv) == (parameters, rest)


@pytest.mark.parametrize("argv", [["-p"], ["-p", "--quiet"], ["-p", "--", "lr", "1"]])
def test_a_parameter_without_a_name_is_refused(argv):
    with pytest.raises(BadInput) as refusal:
        split_params(argv)

    assert refusal.value.message == "-p needs a name and values"
