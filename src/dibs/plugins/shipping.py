"""Functions into the queue and their values back, for adapters that show their jobs in words of their own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dibs.api.calls import Call
from dibs.api.job import Job
from dibs.api.submit import Shipping


def ship(
    function: Callable[[Any], Any], arguments: Sequence[Any], shown: Sequence[str], wishes: Mapping[str, Any]
) -> list[Job]:
    """A job for each argument, all or none; `shown` stands where others have their command.

    A `function` that is ours and calls one of the user's has that one as `func`: by it the job is known.
    """
    with Shipping(wishes).packed(function, [((argument,), {}) for argument in arguments]) as packed:
        for job, text in zip(packed.jobs, shown, strict=True):
            job["command"] = text
        return [job for job, _ in packed.send()]


def collect(job: Job) -> Any:
    """What its function returned, once; of a job that failed the call stays, so that `dibs retry` finds it."""
    value = job.result()
    if call := Call.of(job.about):
        call.remove()
    return value
