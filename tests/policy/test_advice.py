"""One plain sentence about a failure, with what helps."""

import pytest

from dibs.model.jobs import Cause
from dibs.policy.advice import advised


@pytest.mark.parametrize(
    ("cause", "message", "sentence"),
    [
        (
            Cause.IMPORT_ERROR,
            "ModuleNotFoundError: No module named 'torch'",
            "No module named 'torch': is the environment active where dibs was called?",
        ),
        (
            Cause.DISK_FULL,
            "OSError: [Errno 28] No space left on device",
            "[Errno 28] No space left on device: `df -h` shows which disk is full, "
            "`df -i` where it has too many files",
        ),
        (Cause.EXIT_CODE, "", ""),
        (Cause.EXIT_CODE, "the driver reported Xid 31: x", "the driver reported Xid 31: x"),
        (Cause.KILLED, "SIGKILL ended it: ann or root did", "SIGKILL ended it: ann or root did"),
        (None, "", ""),
    ],
)
def test_a_failure_is_one_sentence(cause, message, sentence):
    assert advised(cause, message) == sentence


@pytest.mark.parametrize("cause", [one for one in Cause if "-" in one])
def test_every_cause_that_is_read_from_a_log_has_advice(cause):
    assert advised(cause, "Its last words.").startswith("Its last words: ")
