"""Whether an ended job is tried again, and when."""

from collections.abc import Sequence

from dibs.model.jobs import Cause, Job, Outcome

_FIRST_PAUSE = 1.0  # seconds
_LONGEST_PAUSE = 60.0
_MOST_RESTARTS = 100  # of a job that is lost each time: it takes its machine or its supervisor with it
_FINAL = frozenset({Cause.STOPPED, Cause.REFUSED, Cause.DEPENDENCY})


def retry_after(job: Job, outcome: Outcome) -> float | None:
    """Seconds to wait before the next attempt, doubling each time; None when there is none.

    A lost job may have run to its end, so it is started again only where its owner said that it may.
    """
    cause = outcome.cause
    if cause is None or cause in _FINAL:
        return None
    if cause is Cause.LOST and job.request.restartable and job.tries <= _MOST_RESTARTS:
        return 0.0 if job.tries <= 1 else _pause(job.tries - 1)  # at once after a reboot
    if job.tries > job.request.retries or not _is_wanted(cause, job.request.retry_on):
        return None
    return _pause(job.tries)


def retry_names() -> tuple[str, ...]:
    """What `--retry-on` may name."""
    return tuple(retry_name(cause) for cause in Cause if cause not in _FINAL)


def retry_name(cause: str) -> str:
    """A cause as it is written on the command line: `exit-code`."""
    return cause.strip().replace(" ", "-").replace("_", "-").lower()


def _is_wanted(cause: Cause, wanted: Sequence[str]) -> bool:
    """Whether a retry was asked for after this cause. Who names no cause means all."""
    names = set(map(retry_name, wanted))
    # Before `killed` had a name of its own it was a signal, and it still is one.
    return not names or retry_name(cause) in names or (cause is Cause.KILLED and "signal" in names)


def _pause(tries: int) -> float:
    doublings = min(max(0, tries - 1), 10)  # a float ends at 1,024 of them, a job's retries do not
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**doublings)
