"""Which commands can be forked from a warm process, and what they are made of."""

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.supervise.warm.python_line import PythonLine, read_line

NO_PYTHON = "its command is no `python SCRIPT`, `python -m MODULE` or `python -c CODE`"
SHELL = "its line needs a shell"


@pytest.mark.parametrize(
    "line, words",
    [
        ("python train.py", ["python", "train.py"]),
        ("python3 -u sub/train.py --lr 0.1 -x", ["python3", "-u", "sub/train.py", "--lr", "0.1", "-x"]),
        ("/v/bin/python3.12 -m pkg.mod a", ["/v/bin/python3.12", "-m", "pkg.mod", "a"]),
        ("python -OB -W ignore -X dev t.py -i", ["python", "-OB", "-W", "ignore", "-X", "dev", "t.py", "-i"]),
        ("python t.py --name 'a b' --n=\"c d\"e", ["python", "t.py", "--name", "a b", "--n=c de"]),
        ("python -c 'print(1)' x", ["python", "-c", "print(1)", "x"]),
        ("python t.py ''", ["python", "t.py", ""]),
    ],
)
def test_a_line_that_only_starts_python_is_taken_apart(line: str, words: list[str]) -> None:
    found = read_line([b"bash", b"-c", line.encode()])
    exact = read_line([word.encode() for word in words])

    assert isinstance(found, PythonLine) and found.by_shell
    assert isinstance(exact, PythonLine) and not exact.by_shell
    assert found.words == exact.words == [word.encode() for word in words]


@pytest.mark.parametrize(
    "line, why",
    [
        ("python train.py | tee log", SHELL),
        ("python train.py > out", SHELL),
        ("python train.py $X", SHELL),
        ('python train.py "$X"', SHELL),
        ("python train.py *.txt", SHELL),
        ("python train.py ~/x", SHELL),
        ("python train.py a\\ b", SHELL),
        ("python train.py {a,b}", SHELL),
        ("python train.py # why", SHELL),
        ("python train.py; ls", SHELL),
        ("python train.py &", SHELL),
        ("cd x && python train.py", SHELL),
        ("LR=1 python train.py", SHELL),
        ("python train.py 'a", SHELL),
        ("'python' train.py", SHELL),
        ("torchrun train.py", NO_PYTHON),
        ("python", NO_PYTHON),
        ("python -m", NO_PYTHON),
        ("python -c", NO_PYTHON),
        ("python2 train.py", NO_PYTHON),
        ("pythonw train.py", NO_PYTHON),
        ("exec python train.py", NO_PYTHON),
        ("python -", "its Python has the option -"),
        ("python -i train.py", "its Python has the option -i"),
        ("python -I train.py", "its Python has the option -I"),
        ("python -uE train.py", "its Python has the option -uE"),
        ("python -X importtime train.py", "its Python has the option -X"),
        ("python --version", "its Python has the option --version"),
    ],
)
def test_everything_else_is_refused_with_a_reason(line: str, why: str) -> None:
    assert read_line([b"bash", b"-c", line.encode()]) == why


def test_another_shell_may_mean_something_else() -> None:
    assert read_line([b"fish", b"-c", b"python train.py"]) == NO_PYTHON


@settings(deadline=None)  # bash starts as fast as the machine lets it
@given(st.lists(st.text("ab =-'\"$\\*~{}|;#!\t\n", max_size=6), max_size=3))
def test_what_is_taken_apart_is_what_bash_would_make_of_it(arguments: list[str]) -> None:
    """However the words were quoted: where we read the line at all, bash reads the same."""
    for quote in (shlex.quote, lambda text: f'"{text}"', lambda text: text):
        line = " ".join(["python3", "t.py", *map(quote, arguments)])
        found = read_line([b"bash", b"-c", line.encode()])
        if isinstance(found, PythonLine):
            shown = subprocess.run(
                ["bash", "-c", f"python3() {{ printf '%s\\0' \"$@\"; }}; {line}"], capture_output=True, check=True
            )
            assert found.argv == shown.stdout.split(b"\0")[:-1]
