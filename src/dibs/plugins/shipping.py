"""Adds functions to the queue and collects their values, for adapters with their own names for jobs."""

from collections.abc import Callable, Sequence
from typing import Any

from dibs.api.call_submitter import CallSubmitter
from dibs.api.calls import Call
from dibs.api.job import Job


def ship(
    function: Callable[[Any], Any], arguments: Sequence[Any], shown: Sequence[str], calls: CallSubmitter
) -> list[Job]:
    """A job for each argument, all or none; `shown` is shown as its command.

    A wrapper around the user's function has it as `func`, which names the job.
    """
    with calls.packed(function, [((argument,), {}) for argument in arguments]) as packed:
        for job, text in zip(packed.jobs, shown, strict=True):
            job["command"] = text
        return [job for job, _ in packed.send()]


def collect(job: Job) -> Any:
    """The value of its function, once; the call of a failed job stays, for `dibs retry`."""
    value = job.result()
    if call := Call.of(job.about):
        call.remove()
    return value
