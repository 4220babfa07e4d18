"""The numbers of a trial: what lines tell, in whatever pieces they come, and what is wrong with them."""

import itertools
import json
import math
import subprocess
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.errors import BadInput
from dibs.sweeps.results import LogReader, MetricsReader, Report, read_result_file


def reading(*lines: str, names: tuple[str, ...] = ("val_loss",)) -> MetricsReader:
    reader = MetricsReader(names)
    reader.feed("".join(line + "\n" for line in lines).encode())
    return reader


@pytest.mark.parametrize(
    ("line", "report"),
    [
        ("val_loss=0.31 step=5", Report(5, {"val_loss": 0.31})),
        ("val_loss=0.31, step=5", Report(5, {"val_loss": 0.31})),
        ("step=5,val_loss=0.31,acc=0.9", Report(5, {"val_loss": 0.31})),
        ("val_loss = 0.31", Report(None, {"val_loss": 0.31})),
        ("val_loss: 0.31; step: 5", Report(5, {"val_loss": 0.31})),
        ("val_loss 0.31", Report(None, {"val_loss": 0.31})),
        ("epoch 3: val_loss=0.31", Report(None, {"val_loss": 0.31})),
        ("epoch: val_loss = 0.31, step = 5", Report(5, {"val_loss": 0.31})),
        ('{"val_loss": 0.31, "step": 5}', Report(5, {"val_loss": 0.31})),
        ('{"val_loss": "0.31", "other": [1, {"a": null}]}', Report(None, {"val_loss": 0.31})),
        ("  val_loss=-1e-3\r", Report(None, {"val_loss": -0.001})),
        ("val_loss=1 step=5.0", Report(5, {"val_loss": 1.0})),
        ("val_loss=1 step=-1", Report(None, {"val_loss": 1.0})),
        ("val_loss=1 step=many", Report(None, {"val_loss": 1.0})),
        ("val_loss=1 step=nan", Report(None, {"val_loss": 1.0})),
        ("val_loss=0.3 acc=nan", Report(None, {"val_loss": 0.3})),
        ("val_loss=3,2nd=4", Report(None, {"val_loss": 3.0})),
        ("val_loss=3,2=4", Report(None, {"val_loss": 3.0})),
        ("sizes=1,2,3 val_loss=3", Report(None, {"val_loss": 3.0})),
    ],
)
def test_a_line_tells_a_number(line, report):
    reader = MetricsReader(["val_loss"])

    assert reader.feed(line.encode() + b"\n") == [report]
    assert reader.result().values == tuple(report.values.values())
    assert not reader.problem


def test_a_shell_can_report(tmp_path):
    file = tmp_path / "metrics"
    script = 'for n in 1 2 3; do echo "val/loss=0.$n step=$n" >> "$DIBS_METRICS"; done'
    subprocess.run(["bash", "-c", script], env={"DIBS_METRICS": str(file)}, check=True)
    reader = MetricsReader(["val/loss"])

    reports = reader.feed(file.read_bytes())

    assert [report.step for report in reports] == [1, 2, 3]
    assert reader.result().values == (0.3,)


def test_half_a_number_is_not_a_number():
    reader = MetricsReader(["val_loss"])

    assert reader.feed(b"val_loss=0.3") == []
    assert reader.feed(b"1\nval_l") == [Report(None, {"val_loss": 0.31})]
    assert reader.result().values == (0.31,)


def test_a_last_line_without_an_end_counts_when_the_command_ended_well():
    reader = MetricsReader(["val_loss"])
    reader.feed(b"val_loss=0.5\nval_loss=0.3")

    assert reader.finish() == [Report(None, {"val_loss": 0.3})]
    assert reader.finish() == []
    assert reader.result().values == (0.3,)


LINES = st.lists(
    st.one_of(
        st.floats(allow_nan=False, allow_infinity=False).map(lambda number: f"val_loss={number!r}"),
        st.floats(-9, 9).map(lambda number: json.dumps({"val_loss": number, "step": 3})),
        st.text("ab=1.é{ ,", max_size=9),
    ),
    max_size=8,
)


@given(LINES, st.lists(st.integers(0, 200), max_size=6))
def test_the_pieces_do_not_matter(lines, cuts):
    data = "".join(line + "\n" for line in lines).encode()
    whole, pieces = MetricsReader(["val_loss"]), MetricsReader(["val_loss"])
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]

    together = whole.feed(data)
    apart = [report for begin, end in itertools.pairwise(edges) for report in pieces.feed(data[begin:end])]

    assert apart == together
    assert pieces.result() == whole.result()


@given(st.binary(max_size=60))
def test_any_bytes_are_read(data):
    reader = MetricsReader(["val_loss"])
    reader.feed(data)
    reader.finish()

    result = reader.result()

    assert (result.values is None) == bool(result.problem)
    assert "\n" not in result.problem


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("val_loss=nan", "val_loss is nan, which is not a finite number"),
        ("val_loss=inf", "val_loss is inf, which is not a finite number"),
        ("val_loss=1e999", "val_loss is 1e999, which is not a finite number"),
        ('{"val_loss": NaN}', "val_loss is NaN, which is not a finite number"),
        ('{"val_loss": null}', "val_loss is null, which is not a finite number"),
        ('{"val_loss": true}', "val_loss is true, which is not a finite number"),
        ('{"val_loss": [0.1]}', "val_loss is [0.1], which is not a finite number"),
        ("val_loss=91%", "val_loss is '91%', which is not a finite number"),
        ("val_loss=0,8", "val_loss is '0,8', which is not a finite number"),
        ("val_loss=1,234.5,step=5", "val_loss is '1,234.5', which is not a finite number"),
        ("val_loss=1,5e-3; step=5", "val_loss is '1,5e-3', which is not a finite number"),
        ("loss=0.3 acc=1", "val_loss was not reported; what was reported is loss, acc"),
        ("done!", "val_loss was not reported; what was written is 'done!', which is not name=value"),
        (
            '{"val_loss": 0.3',
            "val_loss was not reported; what was written is '{\"val_loss\": 0.3', which is not name=value",
        ),
    ],
)
def test_nonsense_is_told_in_one_sentence(line, problem):
    result = reading(line).result()

    assert result.values is None
    assert result.problem == problem


def test_nothing_at_all_is_told_too():
    assert reading().result().problem == "val_loss was not reported"


def test_a_number_that_is_mended_is_no_problem():
    reader = reading("val_loss=nan")
    assert reader.problem.startswith("val_loss is nan")

    reader.feed(b"val_loss=0.5\n")

    assert reader.problem == ""
    assert reader.result().values == (0.5,)


def test_one_metric_of_two_is_not_enough():
    result = reading("loss=0.3", names=("loss", "size")).result()

    assert result.problem == "size was not reported; what was reported is loss"


def test_values_come_in_the_order_of_the_metrics():
    assert reading("size=3", "loss=0.5", names=("loss", "size")).result().values == (0.5, 3.0)


def test_another_nan_than_the_metric_is_not_our_affair():
    assert reading("grad=nan", "val_loss=0.3").result().values == (0.3,)


def test_a_line_that_never_ends_is_not_kept_in_memory():
    reader = MetricsReader(["val_loss"])
    tracemalloc.start()

    for _ in range(100):
        reader.feed(b"x" * 100_000)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    reader.feed(b"\nval_loss=0.3\n")

    assert held < 1_000_000
    assert reader.result().values == (0.3,)


@pytest.mark.parametrize(
    ("content", "values"),
    [
        (b'{"val_loss": 0.3}', (0.3,)),
        (b'{\n  "other": "x",\n  "val_loss": 3e-1\n}\n', (0.3,)),
        (b"val_loss=0.3", (0.3,)),
        (b"val_loss=0.5\nval_loss=0.3\n", (0.3,)),
        (b'{"val_loss": 0.5}\n{"val_loss": 0.3}\n', (0.3,)),
        (b"", None),
        (b"[0.3]", None),
        (b"\xff\xfe", None),
        (b"{" * 100_000, None),
        (b'{"val_loss": NaN}', None),
    ],
)
def test_a_result_file_is_json_or_lines(content, values):
    result = read_result_file(content, ["val_loss"])

    assert result.values == values
    assert bool(result.problem) == (values is None)


@pytest.mark.parametrize(
    ("pattern", "names", "line", "report"),
    [
        (r"val_loss=(\S+)", ["val_loss"], "epoch 3 val_loss=0.31 ok", Report(None, {"val_loss": 0.31})),
        (r"loss (?P<loss>[\d.]+)", ["loss"], "loss 0.5", Report(None, {"loss": 0.5})),
        (r"(?P<step>\d+): (\S+)", ["val/loss"], "7: 0.25", Report(7, {"val/loss": 0.25})),
        (r"(?P<a>\S+) (?P<b>\S+)", ["b", "a"], "1 2", Report(None, {"a": 1.0, "b": 2.0})),
        (r"a=(?P<a>\d)(?: b=(?P<b>\d))?", ["a", "b"], "a=1", Report(None, {"a": 1.0})),
        (r"epoch (?P<step>\d+).*acc[=: ]+([\d.]+)", ["acc"], "epoch 2 | x | acc: 0.9", Report(2, {"acc": 0.9})),
    ],
)
def test_an_expression_finds_numbers_in_a_log(pattern, names, line, report):
    reader = LogReader(pattern, names)

    assert reader.feed(f"before\n{line}\nafter".encode()) == [report]


def test_a_progress_bar_has_many_lines_in_one():
    reader = LogReader(r"loss=(\S+)", ["loss"])

    reports = reader.feed(b"1/3 loss=0.5\r2/3 loss=0.4\r3/3 loss=0.3\n")

    assert [report.values["loss"] for report in reports] == [0.5, 0.4, 0.3]


def test_a_log_without_a_match_is_told_with_the_expression():
    reader = LogReader(r"loss=(\S+)", ["loss"])
    reader.feed(b"hello\n")

    assert reader.result().problem == r"loss was not reported: no line of the log matches 'loss=(\S+)'"


def test_an_expression_is_told_as_it_was_typed():
    with pytest.raises(BadInput) as refusal:
        LogReader(r"(\d+", ["loss"])

    assert r"the expression '(\d+'" in refusal.value.message
    assert r"matches 'loss (\d+)'" in LogReader(r"loss (\d+)", ["loss"]).result().problem


def test_nonsense_in_a_log_is_told():
    reader = LogReader(r"loss=(\S+)", ["loss"])
    reader.feed(b"loss=nan\n")

    assert reader.result().problem == "loss is nan, which is not a finite number"


@pytest.mark.parametrize(
    ("pattern", "names", "words"),
    [
        ("loss=(", ["loss"], "missing )"),
        ("(?<loss>.)", ["loss"], "unknown extension"),
        ("loss=.*", ["loss"], "no group of it is called loss"),
        ("(.)(.)", ["loss"], "no group of it is called loss"),
        ("(.)(.)", ["loss", "acc"], "no group of it is called loss"),
        ("(?P<los>.)", ["loss"], "no group of it is called loss"),
        ("(a+)+$", ["loss"], "can take hours"),
        ("(?:a|b|ab)*(c)", ["loss"], "can take hours"),
        (r"(?:(?:\w+\s?)*)(=)", ["loss"], "can take hours"),
        ("(.*a){20,}", ["loss"], "can take hours"),
        (".*.*.*.*.*=(.)", ["loss"], "can take hours"),
        ("(" * 60 + ")" * 60, ["loss"], "no group of it is called loss"),
        ("(x)" + "a" * 600, ["loss"], "letters"),
        ("a{99999999999999999999}(b)", ["loss"], "cannot use the expression"),
    ],
)
def test_an_expression_that_cannot_be_used_is_refused(pattern, names, words):
    with pytest.raises(BadInput) as refusal:
        LogReader(pattern, names)

    assert words in refusal.value.message
    assert refusal.value.remedy


@given(st.text("a.*+?(){}[]|^$\\\\d1,P<>:=-", max_size=14))
def test_any_text_is_an_expression_or_refused(pattern):
    try:
        reader = LogReader(pattern, ["loss"])
    except BadInput as refusal:
        assert refusal.message.startswith("cannot use the expression")
        return
    reader.feed(b"loss=0.3 a1\n")


def test_the_worst_allowed_expression_still_ends():
    reader = LogReader(r".*.*=(\d+)x", ["loss"])

    assert reader.feed(b"=1" * 50_000 + b"\n") == []


def test_numbers_of_python_arrive_as_they_are():
    reader = MetricsReader(["x"])

    [report] = reader.feed(f"x={math.pi!r}\n".encode())

    assert report.values["x"] == math.pi


@given(
    st.lists(
        st.sampled_from(["a=1", "b=2 a=3", "b=nan", "", "c=1", "junk", "b 7", '{"a": 4}', "a=x"]), max_size=30
    ),
    st.lists(st.integers(0, 100), max_size=6),
    st.sampled_from([("a",), ("a", "b"), ()]),
)
def test_skimming_a_file_finds_the_same_result_as_reading_every_line(lines, cuts, names):
    content = "\n".join(lines).encode()
    places = [0, *sorted(cuts), len(content)]
    skimming, reading = MetricsReader(names), MetricsReader(names)

    for begin, end in itertools.pairwise(places):
        skimming.skim(content[begin:end])
    reading.feed(content)

    for reader in (skimming, reading):
        reader.finish()
    assert skimming.result().values == reading.result().values
    assert bool(skimming.result().problem) == bool(reading.result().problem)


def test_of_a_metric_that_is_told_a_million_times_only_the_last_line_is_looked_at():
    looked_at = []

    class Counting(MetricsReader):
        def told(self, line):
            looked_at.append(line)
            return super().told(line)

    reader = Counting(["loss"])
    reader.skim(b"loss=1\n" * 1_000_000 + b"loss=5\n")

    assert reader.result().values == (5.0,)
    assert looked_at == ["loss=5"]
