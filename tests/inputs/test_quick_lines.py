"""Reading a list quickly gives the same jobs as reading it line by line."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.inputs.entry import BadEntry
from dibs.inputs.lines import parse_lines, parse_lines_quickly
from dibs.model.jobs import Command, Request

DEFAULTS = Request(command=Command((), ""))

# Pieces that mean something to the grammar, put together at random.
PIECES = [
    "\\",
    "\n",
    "\r\n",
    "\n",
    " ",
    "\t",
    "#",
    "[name=x] ",
    "[",
    "<<<",
    ">>>",
    "{",
    '{"command": "a"}',
    "a",
    "b c",
]
ODD = ["\ufeff", "\0", "\udcff", "\x0b", "\x1c", "\u2028", "é", "x" * 5000]


def whole(entry: object) -> object:
    """A plain text as the request that it stands for."""
    return replace(DEFAULTS, command=Command.line(entry)) if isinstance(entry, str) else entry


@given(st.lists(st.sampled_from(PIECES + ODD), max_size=40).map("".join))
def test_any_text_means_the_same(text):
    lines = [line + "\n" for line in text.split("\n")]

    slowly = list(parse_lines(lines, DEFAULTS))
    quickly = [whole(entry) for entry in parse_lines_quickly(lines, DEFAULTS)]

    assert quickly == slowly


def test_plain_lines_stay_text():
    assert list(parse_lines_quickly(["python a.py\n", "b | c > d"], DEFAULTS)) == ["python a.py", "b | c > d"]


def test_the_place_of_a_bad_line_counts_the_plain_ones():
    [_, _, bad] = parse_lines_quickly(["a\n", "b\n", "[nam=x] c\n"], DEFAULTS, name="jobs.txt")

    assert isinstance(bad, BadEntry)
    assert bad.where == "jobs.txt:3"


@pytest.mark.parametrize("line", ["a\n", "b" * 100 + "\n"])
def test_with_an_environment_that_leaves_no_room_every_line_is_looked_at(line):
    [entry] = parse_lines_quickly([line], DEFAULTS, environment_size=10**9)

    assert isinstance(entry, BadEntry)
