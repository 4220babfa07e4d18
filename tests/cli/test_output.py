"""What a job writes may colour the terminal, and nothing else."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dibs.cli.output import columns, harmless, one_line, table

COLOUR = rb"\x1b\[[0-9;:]*m"
PIECES = [
    *(b"\x1b", b"[", b"]", b"2J", b"31", b"m", b";", b"\x07", b"\n", b"\r", b"x", b" ", b"\\"),
    *(b"\x9b", b"\xc2", b"\xc2\x9b", b"\xe0\x82", b"\xe2\x82\xac"),
]

text = st.text(st.characters(exclude_categories=["Cc", "Cs"]))
noise = st.one_of(st.binary(), st.lists(st.sampled_from(PIECES)).map(b"".join))


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"\xc2\x9b2Jdone\n", b"2Jdone\n"),
        (b"\x9b2Jdone\n", b"2Jdone\n"),
        (b"\xe0\x82\x9b2J", b"\xe02J"),  # the same, written too long
        (b"\xc2\x07\x9b2J", b"\xc22J"),  # the same, if what is between is taken out
        (b"loss 0.1\x1b[\n", b"loss 0.1\n"),
        (b"loss 0.1\x1b[12;3\n", b"loss 0.1\n"),
        (b"loss 0.1\x1b\n", b"loss 0.1\n"),
        (b"loss 0.1\x1b", b"loss 0.1"),
        (b"\x1b\x1b[2J", b""),
        (b"\x1b]0;title\x07text", b"text"),
        ("für 5 € 🙂 Ü\u00a0Л".encode(), "für 5 € 🙂 Ü\u00a0Л".encode()),
        (b"\x1b[1;31mred\x1b[0m", b"\x1b[1;31mred\x1b[0m"),
    ],
)
def test_a_terminal_is_told_nothing_but_colours(written: bytes, shown: bytes) -> None:
    assert harmless(written) == shown


@given(text, st.sampled_from([b"", b"\x1b[m", b"\x1b[38:5:1m"]))
@example("\u2028ß日本𝄞\ud7ff\U0010ffff", b"")
def test_text_and_colours_stay_as_they_are(words: str, colour: bytes) -> None:
    line = colour + words.encode() + b"\t" + colour + b"\n"

    assert harmless(line) == line


@given(noise)
@example(b"\x1b\x1b\x1b[[2J")
@example(b"\xed\xa0\x80\xf4\x90\x80\x80")
def test_nothing_that_is_left_is_obeyed(written: bytes) -> None:
    shown = harmless(written)

    assert b"\x1b" not in re.sub(COLOUR, b"", shown)
    controls = {letter for letter in shown.decode("utf-8", "surrogateescape") if _is_control(letter)}
    assert controls <= {"\n", "\t", "\x1b"}


def _is_control(letter: str) -> bool:
    return letter < " " or "\x7f" <= letter <= "\x9f" or "\udc80" <= letter <= "\udc9f"


@given(
    st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), max_size=12)] * 4), max_size=5),
    st.integers(2, 60),
)
def test_a_table_that_may_drop_columns_fits_every_width(rows: list[tuple[str, ...]], width: int) -> None:
    rows = [tuple(one_line(cell) for cell in row) for row in rows]

    lines = table(("job", "state", "name", "command"), rows, width=width, shrink=3, drop=(3, 2))

    assert len(lines) == 1 + len(rows)
    assert all(columns(line) <= width for line in lines)


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("训练模型", 8, "训练模型"),
        ("训练模型", 7, "训练模…"),
        ("训练模型", 6, "训练…"),
        ("e\u0301e\u0301", 2, "e\u0301e\u0301"),
        ("abc", 2, "a…"),
        ("a\u202eb", 80, "a\\u202eb"),
        ("a\u200bb\ufeff", 80, "a\\u200bb\\ufeff"),
        ("a\nb\tc\r\x1b[2J", 80, "a\\nb c\\r\\x1b[2J"),
        ("\udcff", 80, "\\xff"),
    ],
)
def test_text_in_a_table_takes_the_columns_it_takes(text: str, width: int, shown: str) -> None:
    assert one_line(text, width) == shown
