"""The checkpoint signal in a training loop."""

import os
import signal
import subprocess
import sys

import pytest

from dibs.integrations.checkpoint import CheckpointSignal, put_in_place


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_job_is_asked_by_the_signal_that_it_was_told(tmp_path):
    folder = tmp_path / "not yet" / "there"
    asked = CheckpointSignal(
        {"DIBS_CHECKPOINT_DIR": str(folder), "DIBS_CHECKPOINT_SIGNAL": str(int(signal.SIGUSR2))}
    )
    before = asked.asked
    os.kill(os.getpid(), signal.SIGUSR2)

    assert (before, asked.asked) == (False, True)
    assert folder.is_dir() and asked.found("state") is None
    asked.path("state").write_text("1")
    assert asked.found("state") == str(folder / "state")


def test_when_the_training_is_over_the_signal_is_ignored(tmp_path):
    asked = CheckpointSignal({"DIBS_CHECKPOINT_DIR": str(tmp_path)})

    asked.ignore()
    os.kill(os.getpid(), signal.SIGUSR1)
    over = asked.asked
    asked.listen()
    os.kill(os.getpid(), signal.SIGUSR1)

    assert (over, asked.asked) == (False, True)


def test_outside_of_a_job_nothing_is_handled():
    before = signal.getsignal(signal.SIGUSR1)

    asked = CheckpointSignal({})
    asked.listen()
    asked.ignore()

    assert signal.getsignal(signal.SIGUSR1) is before
    assert asked.found("state") is None and not asked.asked


def test_leaving_is_success_and_is_said(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        CheckpointSignal({"DIBS_CHECKPOINT_DIR": str(tmp_path)}).leave("step 7")

    assert left.value.code == 0
    assert capsys.readouterr().err == "dibs: step 7 is saved; the job goes on in its next attempt\n"


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_checkpoint_takes_the_place_of_an_earlier_one(tmp_path, kind):
    for name in ("new", "old"):
        path = tmp_path / name
        if kind == "folder":
            path.mkdir()
            path = path / "part"
        path.write_text(name)

    put_in_place(tmp_path / "new", tmp_path / "old")

    path = tmp_path / "old"
    assert (path / "part" if kind == "folder" else path).read_text() == "new"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("module", "package"), [("lightning", "lightning"), ("keras", "keras")])
def test_a_missing_library_is_said_in_a_sentence(module, package):
    program = f"import sys; sys.modules[{package!r}] = None; import dibs.integrations.{module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 1
    assert f"dibs.integrations.{module} needs" in done.stderr.splitlines()[-1]
    assert f"pip install {package}" in done.stderr.splitlines()[-1]
