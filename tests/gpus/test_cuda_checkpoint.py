"""Whether this machine's driver can suspend jobs, and why not."""

import pytest

from cuda.machine import FakeMachine
from dibs.gpus.cuda_checkpoint import CheckpointFailed, find_cuda_checkpoint, why_not_suspend


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"DIBS_PROBE": "none"}, "DIBS_PROBE=none ignores the driver"),
        ({"DIBS_PROBE": "fake:/cards.json", "DIBS_CUDA_LIBRARY": ""}, "there is no CUDA driver here"),
        ({"DIBS_CUDA_LIBRARY": "/no/such/file"}, "there is no CUDA driver here"),
        ({}, ""),
    ],
)
def test_the_driver_is_the_machines_or_the_one_that_is_named(tmp_path, environ, why):
    machine = FakeMachine(tmp_path / "machine")

    asked = machine.environ | environ

    assert why_not_suspend(asked) == why
    assert (find_cuda_checkpoint(asked) is None) == bool(why)


def test_an_old_driver_is_named_with_the_version_that_is_needed(tmp_path):
    machine = FakeMachine(tmp_path / "machine", old=True)

    assert find_cuda_checkpoint(machine.environ) is None
    assert why_not_suspend(machine.environ) == "driver 550 is too old: 570 or newer"


def test_a_driver_that_does_not_start_says_its_code(tmp_path, monkeypatch):
    machine = FakeMachine(tmp_path / "machine")
    monkeypatch.setenv("FAKE_CUDA", machine.environ["FAKE_CUDA"])
    (machine.folder / "init").write_text("999")
    driver = find_cuda_checkpoint(machine.environ)

    with pytest.raises(CheckpointFailed, match=r"the driver failed \(CUDA error 999\)"):
        driver.start()
