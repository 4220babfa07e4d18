"""The grammar of job lists."""

import io
import os
import subprocess
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.inputs.entries import BadEntry
from dibs.inputs.lines import LONGEST_JOB, parse_lines, parse_lines_quickly, text_lines
from dibs.model.jobs import Command, Request, Wishes
from dibs.model.units import parse_size

DEFAULTS = Request(command=Command.exact(["true"]))
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("[]{}<>\\#='\" \t\r\n\0\udcff"))


def entries(text: str | bytes, defaults: Request = DEFAULTS):
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    return list(parse_lines(text_lines(io.BytesIO(raw)), defaults, name="jobs.txt"))


def commands(text: str | bytes) -> list[str]:
    return [entry.command.shown for entry in entries(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\n\n  \t\n# no\n  # no\nb", ["a", "b"]),
        ("  a  b \n", ["a  b "]),
        ("a # kept\n", ["a # kept"]),
        ("a \\\nb \\\n  c\nd\n", ["a b   c", "d"]),
        ("a \\\n# b\n", ["a # b"]),
        ("# no \\\na\n", ["a"]),
        ("a \\\\\nb\n", ["a \\\\", "b"]),
        ("a \\\n\nb\n", ["a ", "b"]),
        ("a \\\n", ["a "]),
        ("a \\", ["a \\"]),
        ("\\\n\\\n", []),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a \\\r\nb\r\n", ["a b"]),
        ("\ufeffa\n", ["a"]),
        ("\ufeff# no\na\n", ["a"]),
        ("<<<\na\n  # kept\n\nb \\\n c\n>>>\nd\n", ["a\n  # kept\n\nb \\\n c", "d"]),
        ("  <<< \n<<<x\n  >>>\n", ["<<<x"]),
        ("<<<\r\na\r\nb\r\n>>>\r\n", ["a\nb"]),
        ("<<<\na\r\nb\n>>>\n", ["a\r\nb"]),
        ("[ -f x ] && y\n", ["[ -f x ] && y"]),
        ("[[ a = b ]]\n", ["[[ a = b ]]"]),
        ("{ a; b; }\n", ["{ a; b; }"]),
        ('{ "a b"; }\n', ['{ "a b"; }']),
        ("{a,b}\n", ["{a,b}"]),
        ("cat <<< x\n", ["cat <<< x"]),
        ("", []),
    ],
)
def test_a_list_of_lines_becomes_jobs(text, expected):
    assert commands(text) == expected


def test_a_line_is_run_by_the_shell_that_was_asked_for():
    [job] = parse_lines(["a | b\n"], DEFAULTS, "zsh")

    assert job.command.words == ("zsh", "-c", "a | b")


def test_wishes_in_front_of_a_line_go_on_top_of_the_defaults():
    defaults = replace(DEFAULTS, wishes=Wishes(num_gpus=4, vram=7), retries=3, workdir="/data")

    [job, other] = entries(
        "[num_gpus=2 vram=18G time=2h name='my ]run' only=0,1 prefer=1 restartable=yes workdir=x]  train\nplain\n",
        defaults,
    )

    assert job.command.shown == "train"
    assert job.wishes == Wishes(num_gpus=2, vram=parse_size("18G"), only=("0", "1"), prefer=("1",))
    assert (job.time_limit, job.name, job.restartable, job.workdir) == (7200, "my ]run", True, "/data/x")
    assert job.retries == 3
    assert other == replace(defaults, command=Command.line("plain"))


def test_a_block_takes_wishes_too():
    [job] = entries("[num_gpus=0 priority=-3] <<<\na\nb\n>>>\n")

    assert (job.command.shown, job.wishes.num_gpus, job.priority) == ("a\nb", 0, -3)


def test_a_json_line_is_a_job_with_all_its_words():
    [job] = entries('{"command": "train", "num_gpus": 2, "share": 0.5, "time": 45, "env": {"A": "x", "N": 1}}\n')

    assert job.command == Command.line("train")
    assert (job.wishes.num_gpus, str(job.wishes.share), job.time_limit) == (2, "1/2", 2700)
    assert job.env == (("A", "x"), ("N", "1"))


def test_a_json_command_of_words_meets_no_shell():
    [job] = entries('{"command": ["echo", "$HOME; a b"]}\n')

    assert job.command.words == ("echo", "$HOME; a b")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a\0b", "NUL byte"),
        ("[num_gpu=2] a", "did you mean num_gpus?"),
        ("[num_gpus=1.5] a", "cannot read '1.5' as num_gpus"),
        ("[num_gpus=-1] a", "cannot read '-1' as num_gpus"),
        ("[num_gpus=1e300] a", "cannot read '1e300' as num_gpus"),
        ("[num_gpus=2 num_gpus=3] a", "num_gpus is given twice"),
        ("[num_gpus=2 fast] a", "cannot read 'fast' as a wish"),
        ("[num_gpus=2 a", "no ] at their end"),
        ("[name='x] a", "no ] at their end"),
        ("[name=17_3] a", "cannot use '17_3' as a name"),
        ("[num_gpus=2]", "the command is empty"),
        ("[command=x] a", "command cannot stand in [...]"),
        ("[only=0,0] a", "name every GPU once"),
        ("[only=-1] a", "cannot read '-1' as only"),
        ("[only=] a", "cannot read '' as only"),
        (">>>", "none is open"),
        ("{}", "no command"),
        ('{"command": ""}', "the command is empty"),
        ('{"command": []}', "cannot read [] as command"),
        ('{"command": "a", "command": "b"}', "'command' twice"),
        ('{"command": "a", "num_gpus": true}', "cannot read True as num_gpus"),
        ('{"command": "a", "num_gpus": null}', "cannot read None as num_gpus"),
        ('{"command": "a", "num_gpus": 1.5}', "cannot read 1.5 as num_gpus"),
        ('{"command": "a", "share": NaN}', "NaN is not JSON"),
        ('{"command": "a", "share": 1e-400}', "as share"),
        ('{"command": "a", "time": 1e999}', "cannot read inf as time"),
        ('{"command": "a", "name": "x\\u0000"}', "NUL byte"),
        ('{"command": "a\\ud800"}', "half a character"),
        ('{"command": "a", "env": {"A=B": "1"}}', "name of a variable"),
        ('{"command": "a", "env": {"A": true}}', "the variable A"),
        ('{"command": "a",}', "cannot read the line as JSON"),
        ('{"command": "a", "x": ' + "[" * 100_000, "nested too deeply"),
        ('{"command": "a", "num_gpus": ' + "9" * 5000 + "}", "too long"),
        ("a" * 131_072, "131072 bytes"),
        ("é" * 70_000, "140000 bytes"),
        ("a" * (LONGEST_JOB + 1), "more than 1048576 characters"),
        ("a" * (9 * LONGEST_JOB), "more than 1048576 characters"),
    ],
)
def test_a_bad_line_is_one_bad_entry_and_the_others_are_jobs(line, words):
    before, bad, after = entries(f"before\n{line}\nafter\n")

    assert (before.command.shown, after.command.shown) == ("before", "after")
    assert isinstance(bad, BadEntry)
    assert words in bad.message
    assert "\n" not in bad.message
    assert len(bad.message) < 400
    assert bad.where == "jobs.txt:2"


def test_the_longest_argument_that_linux_takes_is_taken():
    [job] = entries("a" * 131_071)

    assert len(job.command.shown) == 131_071


def test_a_command_that_does_not_fit_beside_the_environment_is_refused():
    [bad] = parse_lines(["true\n"], DEFAULTS, environment_size=10**9)

    assert "the command and its environment" in bad.message


def test_a_block_that_never_ends_is_told_by_its_first_line():
    job, bad = entries("a\n\n<<<\nb\n")

    assert job.command.shown == "a"
    assert bad.where == "jobs.txt:3"
    assert ">>>" in bad.message


@pytest.mark.parametrize("opening", ["[num_gpu=2] <<<", "[num_gpus=2 <<<"])
def test_the_lines_of_a_block_with_bad_wishes_are_not_run_one_by_one(opening):
    bad, job = entries(f"{opening}\nrm a\nrm b\n>>>\nafter\n")

    assert isinstance(bad, BadEntry)
    assert bad.where == "jobs.txt:1"
    assert job.command.shown == "after"


def test_an_entry_is_placed_where_it_begins():
    [bad] = entries("# x\n\n[num_gpus=x] \\\na\n")

    assert bad.where == "jobs.txt:3"


def test_bytes_that_are_no_utf8_pass_through_exactly():
    [job] = entries(b"printf %s '\xff\xfe\xe9'\n")

    words = [os.fsencode(word) for word in job.command.words]

    assert subprocess.run(words, capture_output=True, check=True).stdout == b"\xff\xfe\xe9"


def test_a_job_comes_as_soon_as_its_line_is_complete():
    reading, writing = os.pipe()
    seen: list[str] = []
    arrived = threading.Semaphore(0)

    def read() -> None:
        with open(reading, "rb") as stream:
            for entry in parse_lines(text_lines(stream), DEFAULTS):
                seen.append(entry.command.shown)
                arrived.release()

    reader = threading.Thread(target=read)
    reader.start()
    for text in (b"one\n", b"two \\\n 2\n", b"<<<\nthree\n>>>\n"):
        os.write(writing, text)
        assert arrived.acquire(timeout=60), seen
    os.close(writing)
    reader.join(60)

    assert seen == ["one", "two  2", "three"]


@given(ANY_TEXT)
def test_no_text_makes_the_parser_fall(text):
    found = entries(text)

    assert all(isinstance(entry, Request | BadEntry) for entry in found)


@given(st.lists(st.text(st.characters(exclude_categories=["C"], exclude_characters="\\[{<>\u2028\u2029\x85"))))
def test_a_file_without_special_syntax_is_one_job_per_line(lines):
    plain = [line for line in lines if line.strip(" ") and not line.lstrip(" ").startswith("#")]

    found = entries("".join(f"{line}\n" for line in lines))

    assert len(found) == len(plain)
    assert [job.command.shown for job in found if isinstance(job, Request)] == [
        line.lstrip(" ") for line in plain if line.strip()
    ]


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
