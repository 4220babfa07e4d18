"""Python files whose yielder() yields jobs."""

import sys

import pytest

from dibs.errors import BadInput
from dibs.inputs.entries import BadEntry
from dibs.inputs.generator import GeneratorFailed, load_generator
from dibs.model.jobs import Command, Request

DEFAULTS = Request(command=Command.exact(["true"]), retries=2)


@pytest.fixture
def jobs_file(tmp_path):
    folder = tmp_path / "a folder; with 'quotes' ü"
    folder.mkdir()

    def write(text: str) -> str:
        path = folder / "jobs.py"
        path.write_text(text)
        return str(path)

    return write


def test_text_and_mappings_become_jobs(jobs_file):
    path = jobs_file(
        """
def yielder():
    yield "a | b"
    yield "[num_gpus=2] c\\n"
    yield {"command": ["d", "e f"], "name": "x", "num_gpus": 0}
    yield "line one\\nline two"
"""
    )

    a, c, d, two = load_generator(path, DEFAULTS, "zsh")

    assert a.command.words == ("zsh", "-c", "a | b")
    assert (c.command.shown, c.wishes.num_gpus) == ("c", 2)
    assert (d.command.words, d.name, d.wishes.num_gpus, d.retries) == (("d", "e f"), "x", 0, 2)
    assert two.command.shown == "line one\nline two"


def test_jobs_are_pulled_one_by_one(jobs_file):
    path = jobs_file(
        """
pulled = []
def yielder():
    n = 0
    while True:
        pulled.append(n)
        yield f"echo {len(pulled)}"
"""
    )

    jobs = load_generator(path, DEFAULTS)

    assert [next(jobs).command.shown for _ in range(3)] == ["echo 1", "echo 2", "echo 3"]


def test_a_list_does_as_well(jobs_file):
    path = jobs_file("def yielder():\n    return ['a', 'b']\n")

    jobs = list(load_generator(path, DEFAULTS))

    assert [job.command.shown for job in jobs] == ["a", "b"]


def test_a_yielder_that_raises_gives_its_jobs_first_and_then_says_where(jobs_file):
    path = jobs_file("def half(n):\n    return n / 0\n\ndef yielder():\n    yield 'a'\n    yield half(1)\n")
    jobs = load_generator(path, DEFAULTS)

    first = next(jobs)
    with pytest.raises(GeneratorFailed) as failure:
        next(jobs)

    assert first.command.shown == "a"
    assert failure.value.message == f"{path} line 2: ZeroDivisionError: division by zero"
    assert failure.value.exit_status == 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("yield 'a'; import sys; sys.exit('no')", "line 2: SystemExit: no"),
        ("return None", "returned None, not jobs"),
        ("return 'train'", "returned 'train', not jobs"),
        ("import json; yield json.loads('{')", "line 2: JSONDecodeError"),
        ("raise ValueError('one\\ntwo')", "ValueError: one"),
    ],
)
def test_every_way_of_failing_is_one_sentence(jobs_file, body, words):
    path = jobs_file(f"def yielder():\n    {body}\n")

    with pytest.raises(GeneratorFailed) as failure:
        list(load_generator(path, DEFAULTS))

    assert words in failure.value.message
    assert "\n" not in failure.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", "has no function yielder()"),
        ("yielder = ['a']\n", "has no function yielder()"),
        ("x = 1\ndef yielder(:\n", "line 2: SyntaxError"),
        ("\nimport no_such_thing_anywhere\n", "line 2: ModuleNotFoundError"),
        ("import sys\nsys.exit(3)\n", "line 2: SystemExit: 3"),
        ("x = '\0'\n", "jobs.py"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused_at_once(jobs_file, text, words):
    path = jobs_file(text)

    with pytest.raises(BadInput) as refusal:
        load_generator(path, DEFAULTS)

    assert words in refusal.value.message


@pytest.mark.parametrize("item", ["3", "None", "b'a'", "['a']", "''", "'a\\0'", "{'num_gpus': 1}", "{1: 2}"])
def test_a_thing_that_is_no_job_is_one_bad_entry(jobs_file, item):
    path = jobs_file(f"def yielder():\n    yield 'a'\n    yield {item}\n    yield 'b'\n")

    a, bad, b = load_generator(path, DEFAULTS)

    assert (a.command.shown, b.command.shown) == ("a", "b")
    assert isinstance(bad, BadEntry)
    assert bad.message.startswith("cannot read 3 as a job") or item != "3"
    assert bad.where == f"{path}, job 2"


def test_neighbouring_modules_are_found_and_shadow_nothing_later(jobs_file, tmp_path):
    path = jobs_file(
        "import neighbour_of_jobs\n"
        "def yielder():\n    import late_neighbour_of_jobs as late\n    yield late.COMMAND\n"
    )
    folder = next(tmp_path.iterdir())
    (folder / "neighbour_of_jobs.py").write_text("")
    (folder / "late_neighbour_of_jobs.py").write_text("COMMAND = 'late'\n")

    [job] = load_generator(path, DEFAULTS)

    assert job.command.shown == "late"
    assert sys.path[0] != str(folder)
    assert not (folder / "__pycache__" / "jobs.cpython-311.pyc").exists()


def test_the_file_is_not_the_main_program(jobs_file):
    path = jobs_file("if __name__ == '__main__':\n    raise SystemExit\ndef yielder():\n    yield __file__\n")

    [job] = load_generator(path, DEFAULTS)

    assert job.command.shown == path


def test_dataclasses_in_the_file_work(jobs_file):
    path = jobs_file(
        "from __future__ import annotations\nfrom dataclasses import dataclass, field\n@dataclass\nclass C:\n"
        "    x: str = 'y'\ndef yielder():\n    yield C().x\n"
    )

    [job] = load_generator(path, DEFAULTS)

    assert job.command.shown == "y"
