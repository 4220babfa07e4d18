"""Files given with -f, and the reader that fits each."""

import os
import threading

import pytest

from dibs.errors import BadInput
from dibs.inputs.entries import BadEntry
from dibs.inputs.sources import read_file, read_stream
from dibs.model.jobs import Command, Request

DEFAULTS = Request(command=Command.exact(["true"]))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("jobs.txt", "a\nb\n", ["a", "b"]),
        ("jobs", "# a comment first\na\n", ["a"]),
        ("jobs.jsonl", '{"command": "a"}\n{"command": "b"}\n', ["a", "b"]),
        ("jobs.py", "def yielder():\n    yield 'a'\n", ["a"]),
        ("empty", "", []),
    ],
)
def test_a_file_is_read_by_the_reader_that_fits(tmp_path, name, text, expected):
    path = tmp_path / name
    path.write_text(text)

    source = read_file(str(path), DEFAULTS)

    assert [entry.command.shown for entry in source.entries] == expected
    assert source.warnings == ()


def test_a_file_that_names_its_interpreter_is_run_whole(tmp_path):
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/bash\n#SBATCH --mem=4G\necho a\necho b\n")

    source = read_file(str(path), DEFAULTS)

    [job] = source.entries
    assert job.command.words == ("/bin/bash", str(path))
    assert "--mem" in source.warnings[0]


def test_the_same_work_has_the_same_key_wherever_its_line_stands(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a\nb\n")
    two.write_text("# new\nnew\n[retries=2] b\na\n")

    keys_of_one = {job.command.shown: job.content_key for job in read_file(str(one), DEFAULTS).entries}
    keys_of_two = {job.command.shown: job.content_key for job in read_file(str(two), DEFAULTS).entries}

    assert keys_of_one.items() <= keys_of_two.items()


@pytest.mark.parametrize("name", ["missing", "missing.py", "", "a\0b", "folder", "folder.py", "under/a/file"])
def test_a_file_that_cannot_be_read_is_refused_before_anything_starts(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "under").write_text("a file")

    with pytest.raises(BadInput) as refusal:
        read_file(name, DEFAULTS)

    assert repr(name) in refusal.value.message
    assert refusal.value.remedy


def test_a_file_is_not_read_before_its_jobs_are_wanted(tmp_path):
    path = tmp_path / "jobs"
    path.write_text("a\n")

    source = read_file(str(path), DEFAULTS)
    path.write_text("a\nb\n")

    assert len(list(source.entries)) == 2


def test_a_fifo_without_a_writer_does_not_hold_up_the_start(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)

    source = read_file(str(path), DEFAULTS)
    writer = threading.Thread(target=path.write_text, args=("a\nb\n",))
    writer.start()

    assert [job.command.shown for job in source.entries] == ["a", "b"]
    writer.join()


def test_a_stream_is_a_job_list(tmp_path):
    path = tmp_path / "list"
    path.write_text("a\n[x=1] b\n")

    with path.open("rb") as stream:
        job, bad = read_stream(stream, DEFAULTS).entries

    assert job.command.shown == "a"
    assert bad.where == "stdin:2"


def test_in_the_foreground_a_job_for_slurm_is_a_line_that_cannot_run(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text("[on=slurm] a\n[on=local] b\n[partition=gpu] c\nd\n")

    first, second, third, fourth = read_file(str(path), DEFAULTS).entries

    assert isinstance(first, BadEntry) and isinstance(third, BadEntry)
    assert first.message == "it is to run on Slurm, and `dibs run` runs here; add it: dibs add -f FILE"
    assert isinstance(second, Request) and (second.command.shown, second.on) == ("b", "")
    assert isinstance(fourth, Request)
