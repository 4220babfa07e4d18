"""What disks say, as sentences."""

import errno
import os

import pytest

from dibs.backends.slurm.files import NotReached
from dibs.files import cannot_write, error_text


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.EROFS, "read-only file system; make it writable"),
        (errno.EACCES, "permission denied; make it writable"),
        (errno.ENOSPC, "no space left on device; make room there"),
        (errno.EDQUOT, "disk quota exceeded; make room there"),
        (errno.ENOENT, "no such file or directory; bring it back"),
        (errno.ESTALE, "stale file handle; bring it back"),
    ],
)
def test_it_is_told_what_cannot_be_done_why_and_what_helps(number: int, sentence: str):
    error = OSError(number, os.strerror(number), "/shared/q1/attempts/0/1.1/record.0f")

    assert cannot_write(error, "/shared/q1", "backends.slurm.root") == (
        f"cannot write to /shared/q1: {sentence}, or set backends.slurm.root to another folder"
    )
    assert cannot_write(error, "/shared/q1", "") == f"cannot write to /shared/q1: {sentence}"


def test_our_own_words_stay_as_they_are():
    assert error_text(NotReached("N1 does not answer")) == "N1 does not answer"
