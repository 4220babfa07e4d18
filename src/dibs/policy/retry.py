"""Whether an ended job is tried again, and when."""

from dibs.model.jobs import Cause, Job, Outcome

_FIRST_PAUSE = 1.0  # seconds
_LONGEST_PAUSE = 60.0
_FINAL = frozenset({Cause.STOPPED, Cause.REFUSED})


def retry_after(job: Job, outcome: Outcome) -> float | None:
    """Seconds to wait before the next attempt, doubling each time; None when there is none.

    A lost job may have run to its end, so it is started again only where its owner said that it may.
    """
    if outcome.cause is None or outcome.cause in _FINAL:
        return None
    if outcome.cause is Cause.LOST and job.request.restartable:
        return 0.0
    if job.tries > job.request.retries:
        return None
    doublings = min(max(0, job.tries - 1), 10)  # a float ends at 1,024 of them, a job's retries do not
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**doublings)
