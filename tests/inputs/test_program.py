"""A key of what a command would run: equal only where the results can be expected to be equal."""

import os
import sys
from pathlib import Path

import pytest

from dibs.inputs.program import is_volatile, program_key

LINE = "python3 train.py --lr {lr} --config conf.yaml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("import model.net\n")
    (tmp_path / "conf.yaml").write_text("layers: 3\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "net.py").write_text("x = 1\n")
    return tmp_path


def key(folder: Path, line: object = LINE, **variables: str) -> str:
    return program_key(line, str(folder), {"PATH": os.environ["PATH"], **variables})  # type: ignore[arg-type]


def test_it_is_the_same_for_the_same_program_after_another_login(folder):
    before = key(folder, SSH_CONNECTION="1", SHLVL="1", DATA="100")
    (folder / "result.json").write_text("{}")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.py").write_text("")

    assert key(folder, SSH_CONNECTION="2", SHLVL="3", TMUX="/tmp/x", DATA="100") == before != ""


@pytest.mark.parametrize("name", ["train.py", "conf.yaml", "model/net.py", "model/new.py"])
def test_an_edited_file_of_the_program_changes_it(folder, name):
    before = key(folder)
    with (folder / name).open("a") as file:
        file.write("# edited\n")

    assert key(folder) != before


def test_a_variable_changes_it(folder):
    assert len({key(folder), key(folder, DATA="100"), key(folder, DATA="500")}) == 3


def test_another_environment_first_in_the_path_changes_it(folder, tmp_path):
    other = tmp_path / "venv" / "bin"
    other.mkdir(parents=True)
    (other / "python3").symlink_to(sys.executable)
    path = os.environ["PATH"]

    before = program_key(LINE, str(folder), {"PATH": path})

    assert program_key(LINE, str(folder), {"PATH": f"{other}:{path}"}) != before


def test_an_installed_package_changes_it(folder, tmp_path):
    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python3").symlink_to(sys.executable)
    packages = venv / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    os.utime(packages, ns=(1, 1))
    line = [str(venv / "bin" / "python3"), "train.py"]

    before = key(folder, line)
    (packages / "torch").mkdir()

    assert key(folder, line) != before


def test_another_interpreter_at_the_same_path_changes_it(folder, tmp_path):
    program = tmp_path / "bin" / "python3"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    before = program_key(["python3", "train.py"], str(folder), {"PATH": str(program.parent)})
    program.write_text("#!/bin/sh\nexec python3.12\n")

    assert program_key(["python3", "train.py"], str(folder), {"PATH": str(program.parent)}) != before


def test_a_module_is_looked_for_below_the_working_folder(folder):
    before = key(folder, "python3 -m model.net {lr}")
    (folder / "model" / "net.py").write_text("x = 2\n")

    assert key(folder, "python3 -m model.net {lr}") != before


def test_words_that_are_no_files_and_open_quotes_are_no_trouble(folder):
    assert key(folder, "echo 'open {lr}") != ""
    assert key(folder, ["nosuch", "a\0b", ""]) != ""


def test_too_many_files_have_no_key(folder, monkeypatch):
    monkeypatch.setattr("dibs.inputs.program._MOST_FILES", 2)

    assert key(folder) == ""


def test_what_changes_with_a_login_is_left_out():
    assert all(is_volatile(name) for name in ("SSH_AUTH_SOCK", "PS1", "DIBS_STATE", "_"))
    assert not any(is_volatile(name) for name in ("PATH", "PYTHONPATH", "DATA", "OMP_NUM_THREADS", "HOME"))
