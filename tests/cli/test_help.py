"""Every command explains itself, in a width that people have."""

import click
import pytest

from dibs.cli.main import _COMMANDS, _USES, dibs
from dibs.cli.sweep import _VERBS

OTHERS = ("doctor", "daemon", "config")  # groups and checks whose sub-commands have the examples
COMMANDS = [
    *_COMMANDS,
    *(f"sweep {verb}" for verb in _VERBS),
    "gpus release",
    "gpus drain",
    "gpus undrain",
    "gpus add",
    "gpus remove",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_has_a_sentence_and_fits_a_terminal(typed, words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")

    done = typed(*words.split(), "--help")

    lines = done.stdout.splitlines()
    assert done.status == 0
    assert lines[0].startswith(f"Usage: dibs {words} ")
    assert lines[2].startswith("  ") and lines[2].strip()[0].isupper()
    assert max(map(len, lines)) <= 104
    assert "Examples:" in done.stdout or words in OTHERS or words.startswith("gpus ")


@pytest.mark.parametrize("words", [[], ["daemon"], ["cluster"]])
def test_a_group_alone_shows_what_it_has(typed, words):
    alone, asked = typed(*words), typed(*words, "--help")

    assert (alone.status, alone.stdout, alone.stderr) == (0, asked.stdout, "")


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_option_says_what_it_does(name):
    command = dibs.get_command(click.Context(dibs), name)

    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            assert param.help, f"{param.opts} of dibs {name}"


def test_every_command_is_shown_once_by_its_use(typed):
    shown = typed("--help").stdout.splitlines()

    for name in _COMMANDS:
        assert sum(line.startswith(f"  {name} ") for line in shown) == 1
    assert {name for names in _USES.values() for name in names} <= _COMMANDS.keys()


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        ("help", "dibs [OPTIONS]"),
        ("help kill", "dibs kill"),
        ("help sweep show", "dibs sweep show"),
        ("list --help", "dibs ls"),
        ("status --help", "dibs ls"),
        ("cancel --help", "dibs kill"),
        ("submit --help", "dibs add"),
        ("logs --help", "dibs log"),
    ],
)
def test_the_words_of_other_queues_are_understood(typed, words, usage):
    done = typed(*words.split())

    assert done.status == 0
    assert done.stdout.startswith(f"Usage: {usage} ")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("rm", "`dibs clean` forgets"),
        ("kil", "did you mean `dibs kill`? `dibs --help` shows"),
        ("retri", "`dibs retry`"),
    ],
)
def test_a_command_that_there_is_not_is_answered_with_what_may_be_meant(typed, word, meant):
    done = typed(word)

    assert done.status == 2
    assert meant in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_the_options_of_add_stand_under_headings_as_those_of_sbatch_do(typed, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")

    done = typed("add", "--help")

    headings = [line for line in done.stdout.splitlines() if line.endswith(":") and not line.startswith(" ")]
    rest = done.stdout.partition("Other options:")[2].partition("Examples:")[0]
    assert headings[:3] == ["What to run:", "GPUs:", "Other resources:"]
    assert [line.split()[0] for line in rest.splitlines() if line.strip()] == ["--dry-run", "-q,", "--json", "-h,"]
