"""Which command lines are executed without a shell, and that the result is the same."""

import os
import subprocess

import pytest

from dibs.supervise.command import plain_words, shell_is_changed


def a_line(text: str, shell: str = "bash") -> list[bytes]:
    return [shell.encode(), b"-c", text.encode()]


@pytest.mark.parametrize(
    "text",
    ["python train.py --lr 0.1", "./run.sh a=b  c", "/usr/bin/env", "true", "nvidia-smi -L", "a,b @x %y +z"],
)
def test_plain_words_need_no_shell(text):
    assert plain_words(a_line(text)) == text.encode().split()


@pytest.mark.parametrize(
    "text",
    [
        "echo $HOME",
        "a | b",
        "a > b",
        "a; b",
        "a && b",
        "ls *.txt",
        "ls ~",
        "echo 'x'",
        "A=1 python x.py",
        "cd /tmp",
        "exit 3",
        "time python x.py",
        "if",
        "[ -f x ]",
        "{a,b}",
        "a\nb",
        "# a",
        "-x",
        "%1",
        "a \\b",
        "é",
        "",
    ],
)
def test_what_a_shell_would_look_at_twice_goes_to_the_shell(text):
    assert plain_words(a_line(text)) is None


def test_only_bash_and_sh_are_left_out():
    assert plain_words(a_line("true", "zsh")) is None
    assert plain_words([b"python", b"-c", b"true"]) is None
    assert plain_words(a_line("true", "/bin/sh")) == [b"true"]


def test_every_bash_builtin_and_keyword_goes_to_the_shell():
    names = subprocess.run(
        ["bash", "-c", "compgen -bk"], capture_output=True, text=True, check=True
    ).stdout.split()

    plain = [name for name in names if plain_words(a_line(name))]

    assert sorted(plain) == ["false", "true"]


def test_an_environment_that_changes_bash_is_noticed():
    assert not shell_is_changed(name.encode() for name in os.environ if not name.startswith("BASH"))
    assert shell_is_changed([b"PATH", b"BASH_ENV"])
    assert shell_is_changed([b"BASH_FUNC_module%%"])
