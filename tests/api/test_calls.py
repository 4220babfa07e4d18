"""Calls on their shelf: what the job's side makes of them, and what becomes of those that nobody collects."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import cloudpickle
import pytest

import dibs
from dibs.api import calls
from dibs.api.call_submitter import CallSubmitter
from dibs.api.calls import Call, shown_call, write_call
from dibs.errors import BadInput, DibsError
from dibs.worker_thread import wait_in_thread
from stories.outside import World

WORK = str(Path(calls.__file__).with_name("work.py"))


def worked(call: Call, *, attempt: int = 1, **env: str) -> "subprocess.CompletedProcess[str]":
    """The job's side, without a job around it."""
    return subprocess.run(
        [sys.executable, WORK, "--x", call.folder],
        env={**os.environ, "DIBS_ATTEMPT": str(attempt), **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_call_is_made_and_its_value_is_laid_beside_it(here: World) -> None:
    call = write_call(lambda a, b: a + b, (1,), {"b": 2})

    ended = worked(call)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    found = call.result(1)
    assert found is not None and found.get(dibs.Job(1)) == 3
    assert call.result(2) is None
    assert sorted(os.listdir(call.folder)) == ["call", "result-1"]


@pytest.mark.parametrize("replace", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_a_result_that_the_job_replaced_is_none_and_is_not_waited_for(
    here: World, replace: Callable[[str], None]
) -> None:
    call = write_call(str, (1,))
    replace(f"{call.folder}/result-1")

    assert wait_in_thread(lambda: call.result(1), 20, "test") is None


@pytest.mark.parametrize("file", [None, "<stdin>", "train.py"])
def test_spawned_processes_import_the_script_only_where_it_is_a_file(
    here: World, monkeypatch: pytest.MonkeyPatch, file: str | None
) -> None:
    (here.folder / "train.py").touch()
    monkeypatch.chdir(here.folder)
    main = ModuleType("__main__")
    if file:
        main.__file__ = file
    monkeypatch.setitem(sys.modules, "__main__", main)

    call = write_call("os:getpid")

    with open(f"{call.folder}/call", "rb") as written:
        found = json.loads(written.readline())["main"]
    assert found == (str(here.folder / "train.py") if file == "train.py" else "")


def test_a_script_that_is_imported_by_spawned_processes_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # As multiprocessing marks such a process.
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)

    with pytest.raises(BadInput, match="each would add the jobs again"), CallSubmitter({}).packed(abs, [((), {})]):
        pass


def test_another_version_of_python_is_said_in_a_sentence(here: World) -> None:
    call = write_call(str, (1,))
    path = Path(call.folder) / "call"
    head, _, data = path.read_bytes().partition(b"\n")
    path.write_bytes(json.dumps({**json.loads(head), "python": [2, 7]}).encode() + b"\n" + data)

    ended = worked(call)

    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert ended.returncode == 1
    assert ended.stderr == f"dibs: the job runs Python {ours}, but the function comes from 2.7\n"
    found = call.result(1)
    assert found is not None and found.head["kind"] == "refused"


def test_the_job_side_needs_nothing_but_the_interpreter(here: World) -> None:
    call = write_call(abs, (-1,))

    ended = subprocess.run(
        [sys.executable, "-I", "-S", WORK, "--x", call.folder], env={}, capture_output=True, text=True, timeout=60
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert call.result(1) is not None


def test_a_function_is_read_by_a_cloudpickle_that_was_brought_along_and_the_lack_of_one_is_said(
    here: World, tmp_path: Path
) -> None:
    there = tmp_path / "dibs" / "api" / "work.py"
    there.parent.mkdir(parents=True)
    shutil.copy(WORK, there)
    call = write_call(lambda: 7, path=())

    def ended() -> "subprocess.CompletedProcess[str]":
        words = [sys.executable, "-I", "-S", str(there), "--x", call.folder]
        return subprocess.run(words, env={}, capture_output=True, text=True, timeout=60)

    lacking = ended()
    shutil.copytree(Path(cloudpickle.__file__).parent, tmp_path / "dibs" / "carried" / "cloudpickle")
    brought = ended()

    assert lacking.returncode == 1 and lacking.stderr.count("\n") == 1
    assert f"has no cloudpickle - `{sys.executable} -m pip install cloudpickle` there" in lacking.stderr
    assert (brought.returncode, brought.stderr) == (0, "")
    found = call.result(1)
    assert found is not None and found.get(dibs.Job(1)) == 7


def test_a_call_that_was_collected_cannot_be_made_again(here: World) -> None:
    call = write_call(abs, (-1,))
    call.remove()

    ended = worked(call)

    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "the function of this job is gone" in ended.stderr


def test_files_beside_the_job_side_are_no_modules_of_the_users(here: World) -> None:
    def looks() -> object:
        import importlib.util

        return [importlib.util.find_spec(name) for name in ("watch", "wishes", "submit", "following")]

    call = write_call(looks)
    assert worked(call).returncode == 0

    found = call.result(1)
    assert found is not None and found.get(dibs.Job(1)) == [None] * 4


@pytest.mark.parametrize(("returned", "status"), [(None, 0), (0, 0), (3, 3), (-15, 143), ("x", 1), (True, 1)])
def test_what_a_runner_returns_is_the_exit_code(here: World, returned: object, status: int) -> None:
    call = write_call(lambda command: returned, ("a command",), is_runner=True)

    assert worked(call).returncode == status


def test_a_call_is_shown_short_and_in_one_line() -> None:
    assert shown_call(print, [1, "a\nb"], {"lr": 0.1}) == "print(1, 'a\\nb', lr=0.1)"
    assert len(shown_call(print, ["x" * 1000] * 50, {})) <= 200
    assert shown_call(lambda: 0, [], {}) == "lambda()"
    assert "\0" not in shown_call(print, [], {"a": type("Odd", (), {"__repr__": lambda self: "\0\udcff"})()})


def test_a_full_disk_leaves_nothing_behind_and_is_said(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(DibsError, match="No space left on device"):
        write_call(str)

    assert os.listdir(here.state / "queue" / "calls") == []


def test_what_nobody_collects_goes_some_days_after_its_job(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    @dibs.job(num_gpus=0)
    def one() -> int:
        return 1

    over, waits, removed = one.submit(), one.wishing(hold=True).submit(), one.submit()
    assert over.wait(60) and removed.wait(60)
    left = write_call(str)  # by somebody who died before there was a job
    folders = {job.id: Path(job.refresh().about["words"][-1]) for job in (over, waits, removed)}
    (folders[removed.id] / "job").write_text("99")

    def tidied(days: float) -> set[Path]:
        now = time.time()
        monkeypatch.setattr(calls, "_tidied_at", {})
        monkeypatch.setattr(time, "time", lambda: now + days * 86_400)
        try:
            write_call(str).remove()
        finally:
            monkeypatch.undo()
            for name, value in here.environ.items():
                monkeypatch.setenv(name, value)
        return {path for path in [*folders.values(), Path(left.folder)] if path.exists()}

    assert tidied(0.5) == {*folders.values(), Path(left.folder)}
    assert tidied(2) == {folders[over.id], folders[waits.id]}
    assert tidied(9) == {folders[waits.id]}
