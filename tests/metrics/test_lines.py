"""Names and values in a line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.metrics.lines import _PAIR, LineSplitter, read_line

WORDS = st.sampled_from(
    ["loss", "a/b", "=", " ", "  ", "0.5", "1e-3", ",", ":", ";", '"', "x", "-", "é", "\t", "nan"]
)


@given(st.lists(WORDS, max_size=12).map("".join))
def test_plain_lines_are_read_as_all_others(line):
    assert (read_line(line) or {}) == {pair[1]: pair[2] for pair in _PAIR.finditer(line)}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("loss=0.5 step=3", {"loss": "0.5", "step": "3"}),
        ("epoch 3: loss=0.2, acc: 0.9", {"loss": "0.2", "acc": "0.9"}),
        ('{"loss": 0.5, "step": 3}', {"loss": 0.5, "step": 3}),
        ('{"loss": ', None),
        ("nothing to see", None),
        ("", None),
    ],
)
def test_pairs_and_objects(line, told):
    assert read_line(line) == told


def test_a_line_counts_when_it_is_whole_and_a_long_one_is_cut():
    splitter = LineSplitter((b"\n", b"\r"))

    assert splitter.feed(b"a\n\n b\rc") == [b"a", b" b"]
    assert splitter.feed(b"d\n" + b"x" * 200_000) == [b"cd"]
    assert len(splitter.finish()[0]) == 65_537
