"""`dibs config`: what is set and where; writing leaves every other line as it was."""

import json
import os
from pathlib import Path

import pytest

from cli.conftest import Typed
from dibs import settings
from dibs.cli.config import _table


@pytest.fixture
def file(socket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(settings, "SYSTEM_FILE", str(tmp_path / "etc.toml"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config é"))
    monkeypatch.delenv("DIBS_NO_START")
    return tmp_path / "config é" / "dibs" / "config.toml"


def test_the_list_shows_values_and_where_they_come_from(file, typed: Typed, monkeypatch):
    monkeypatch.setenv("DIBS_POOL", "0,1")

    rows = {one["name"]: one for one in json.loads(typed("config", "--json").stdout)}
    table = typed("config").stdout

    assert (rows["gpus"]["value"], rows["gpus"]["source"]) == ("0,1", "DIBS_POOL")
    assert rows["retention"]["source"] == "default"
    assert [line.split()[:3] for line in table.splitlines()][:2] == [
        ["setting", "value", "from"],
        ["gpus", "0,1", "DIBS_POOL"],
    ]


def test_in_a_narrow_terminal_no_sentence_is_cut(file):
    found = settings.find_settings({})

    lines = _table(found, 60)

    assert max(map(len, lines)) <= 60
    assert [line.split() for line in lines[1:3]] == [
        ["gpus", "auto", "default"],
        ["The", "GPUs", "that", "dibs", "uses:", "auto,", "or", "ids", "like", "0,1", "or", "0,0,1."],
    ]
    assert " ".join(" ".join(lines).split()).count(found[-1].setting.sentence) == 1


def test_what_was_set_is_got(file, typed: Typed):
    ended = typed("config", "set", "notify_command", 'say "$1" # é \\ \x7f')

    assert ended.status == 0, ended
    assert "dibs daemon restart" in ended.stderr
    assert typed("config", "get", "notify_command").stdout == 'say "$1" # é \\ \x7f\n'
    assert typed("config", "path").stdout == f"{file}\n"


def test_other_lines_and_comments_stay(file, typed: Typed):
    file.parent.mkdir(parents=True)
    file.write_text('# mine\ngpus = "0"   # only "this" one\n\nretention = "1d"\n')

    typed("config", "set", "gpus", "0,1")
    typed("config", "set", "gpu_failures", "4")

    assert file.read_text() == ('# mine\ngpus = "0,1"  # only "this" one\n\nretention = "1d"\ngpu_failures = 4\n')


def test_a_file_behind_a_link_stays_behind_it(file, typed: Typed, tmp_path):
    file.parent.mkdir(parents=True)
    (tmp_path / "dotfiles.toml").write_text("")
    file.symlink_to(tmp_path / "dotfiles.toml")

    typed("config", "set", "no_start", "yes")

    assert file.is_symlink()
    assert (tmp_path / "dotfiles.toml").read_text() == "no_start = true\n"
    assert sorted(os.listdir(tmp_path)) == sorted(["config é", "dotfiles.toml"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["set", "gpu", "1"], "did you mean gpus?"),
        (["get", "gpu"], "did you mean gpus?"),
        (["set", "retention", "soon"], "cannot read 'soon' as retention"),
        (["set", "backends.slurm.options", "partitoin=gpu"], "cannot tell Slurm about 'partitoin'"),
    ],
)
def test_a_mistake_is_one_sentence_and_the_file_stays(file, typed: Typed, words, says):
    ended = typed("config", *words)

    assert ended.status == 2
    assert says in ended.stderr
    assert not file.exists()


@pytest.mark.parametrize(("value", "is_told"), [("99", True), ("3", True), ("2", False), ("0", False)])
def test_a_min_free_that_leaves_no_gpu_to_use_is_told(file, typed: Typed, monkeypatch, value, is_told):
    monkeypatch.setenv("DIBS_GPUS", "0,1,2")

    ended = typed("config", "set", "min_free", value)

    sentence = f"dibs: with min_free = {value} no job gets a GPU: there are 3\n"
    assert ended.status == 0
    assert (sentence in ended.stderr) == is_told


def test_a_value_over_several_lines_is_left_to_its_owner(file, typed: Typed):
    file.parent.mkdir(parents=True)
    text = 'notify_command = """\na\nb"""\n'
    file.write_text(text)

    ended = typed("config", "set", "notify_command", "x")

    assert ended.status == 2
    assert 'by hand: notify_command = "x"' in ended.stderr
    assert file.read_text() == text


def test_a_variable_that_wins_over_the_file_is_told(file, typed: Typed, monkeypatch):
    monkeypatch.setenv("DIBS_RETENTION", "9d")

    assert "DIBS_RETENTION is set, and wins" in typed("config", "set", "retention", "1d").stderr


def test_a_setting_with_dots_is_set_in_its_table_where_the_file_has_one(file, typed: Typed):
    file.parent.mkdir(parents=True)
    file.write_text('gpus = "0"\n[backends.slurm]\nroot = "/shared"  # ours\n')

    for name, value in (("backends.slurm.every", "5s"), ("backends.slurm.root", "/other"), ("web", "never")):
        assert typed("config", "set", name, value).status == 0
        assert typed("config", "get", name).stdout == f"{value}\n"

    assert file.read_text() == (
        'gpus = "0"\nweb = "never"\n[backends.slurm]\nroot = "/other"  # ours\nevery = "5s"\n'
    )
