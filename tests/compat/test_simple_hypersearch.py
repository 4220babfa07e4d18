"""`simple_hypersearch`, from the outside, as its document has it."""

import os
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from stories.outside import commands_for_shells, kept_environment

# Printed by the original, version 0.1.4, for the same words.
OF_THE_ORIGINAL = [
    (
        ["train --lr {lr} --bs {bs}", "-p", "lr", "0.1", "0.01", "-p", "bs", "32", "64", "--sampl", "grid"],
        [
            "train --lr 0.1 --bs 32",
            "train --lr 0.1 --bs 64",
            "train --lr 0.01 --bs 32",
            "train --lr 0.01 --bs 64",
        ],
    ),
    (["--sampling-mode", "grid", "--n-samples", "1", "a {x}", "--parameter", "x", "1", "2"], ["a 1"]),
    (["a {{{x}}}", "--sampling-mode=grid", "-p", "x", "-1", "2"], ["a {-1}", "a {2}"]),
    (["a", "--sampling-mode", "grid", "--param", "x", "1", "2"], ["a", "a"]),
    (["a {b-s}", "--sampling-mode", "grid", "-p", "b-s", "1"], ["a 1"]),
]


def hypersearch(*argv: str | bytes, stdout: Any = subprocess.PIPE) -> subprocess.CompletedProcess:
    return run(["simple_hypersearch", *argv], stdout)


def run(argv: Sequence[str | bytes], stdout: Any = subprocess.PIPE) -> subprocess.CompletedProcess:
    environment = kept_environment() | {"PATH": f"{commands_for_shells()}:{os.environ['PATH']}"}
    return subprocess.run(argv, env=environment, stdout=stdout, stderr=subprocess.PIPE, timeout=60)


@pytest.mark.parametrize(("argv", "lines"), OF_THE_ORIGINAL)
def test_a_grid_has_the_lines_of_the_original(argv, lines):
    done = hypersearch(*argv)

    assert done.stdout.decode().splitlines() == lines
    assert (done.returncode, done.stderr) == (0, b"")


def test_by_default_all_combinations_come_shuffled():
    numbers = [str(n) for n in range(50)]

    lines = hypersearch("a {x}", "-p", "x", *numbers).stdout.decode().splitlines()

    assert sorted(lines) == sorted(f"a {n}" for n in numbers)
    assert lines != [f"a {n}" for n in numbers]


def test_a_seed_makes_the_order_the_same_each_time():
    argv = ["a {x} {y}", "-p", "x", *"123456", "-p", "y", *"123456", "--seed", "4", "--n-samples", "9"]

    first, second = hypersearch(*argv), hypersearch(*argv)

    assert first.stdout == second.stdout
    assert len(first.stdout.splitlines()) == 9


def test_values_are_quoted_and_json_and_variables_stay():
    done = hypersearch("""a '{"k": {"x": {x}}}' ${HOME} {x}""", "-p", "x", "b c", "--sampling-mode", "grid")

    assert done.stdout.decode() == """a '{"k": {"x": b c}}' ${HOME} 'b c'\n"""


def test_raw_leaves_values_unquoted():
    pattern = """a '{x}' {x} {{}}"""

    done = hypersearch(pattern, "--raw", "-p", "x", "b c", "$SEED", "--sampling-mode", "grid")

    assert done.stdout.decode().splitlines() == ["a 'b c' b c {}", "a '$SEED' $SEED {}"]


def test_bytes_that_are_no_utf8_pass_through():
    done = hypersearch(b"a \xff {x}", "-p", "x", b"\xfe")

    assert done.stdout == b"a \xff '\xfe'\n"


def test_a_million_million_commands_end_quietly_with_their_reader():
    values = " ".join(str(n) for n in range(100))
    words = " ".join(f"-p {name} {values}" for name in "abcdef")

    done = run(["bash", "-c", f"simple_hypersearch '{{a}}{{b}}{{c}}{{d}}{{e}}{{f}}' {words} | head -n 3"])

    assert (done.returncode, len(done.stdout.splitlines()), done.stderr) == (0, 3, b"")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["a {x}"], "there is no parameter"),
        (["a {x}", "-p"], "-p needs a name and values"),
        (["a {x}", "-p", "x"], "x has no values"),
        (["a {y}", "-p", "x", "1"], "no parameter y"),
        (["a {x:>5}", "-p", "x", "1"], "cannot change how x is written"),
        (["a {x[0]}", "-p", "x", "1"], "cannot change how x is written"),
        (["a {x}", "-p", "x", "1", "-p", "x", "2"], "given twice"),
        (["a {x}", "-p", "x", "1\n2"], "line break"),
        (["a {x}", "-p", "x", "1", "--n-samples", "-1"], "-1 samples"),
        (["a {x}", "-p", "x", "1", "--n-samples", "1.5"], "invalid int value"),
        (["a {x}", "-p", "x", "1", "--sampling-mode", "random"], "invalid choice"),
        (["-p", "x", "1"], "required: command_pattern"),
        (["a {x}", "-p", b"\xff", "1"], "cannot use '\\udcff' as a parameter's name"),
    ],
)
def test_bad_input_is_one_sentence(argv, words):
    done = hypersearch(*argv)

    *_, last = done.stderr.decode().splitlines()
    assert last.startswith("simple_hypersearch: error: ")
    assert words in last
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence():
    with open("/dev/full", "wb") as full:
        done = hypersearch("a {x}", "-p", "x", "1", stdout=full)

    assert done.stderr.startswith(b"simple_hypersearch: error: cannot write the commands: No space left")
    assert len(done.stderr.splitlines()) == 1
