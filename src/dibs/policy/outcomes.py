"""How an attempt ended, from its folder (the table of the launch protocol), and whether its job is tried again."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from dibs.model.jobs import Cause, Job, Outcome

_FIRST_PAUSE = 1.0  # seconds
_LONGEST_PAUSE = 60.0
_MOST_RESTARTS = 100  # of a job that is lost each time: it may crash its machine or its supervisor
_FINAL = frozenset({Cause.STOPPED, Cause.REFUSED, Cause.DEPENDENCY})


class Verdict(Enum):
    RUNNING = "running"  # its shim lives: adopt it
    OVER = "over"  # its exit record is whole
    KEPT = "kept"  # its end will not be seen, but a process of it still holds the GPU
    LOST = "lost"
    NEVER_RAN = "never ran"  # nothing was started: it may be queued again


def settle(
    *, is_locked: bool, has_record: bool, has_started: bool, lease_is_held: bool, same_boot: bool
) -> Verdict:
    """Lock first, leases second, records last: a record counts only once its writer has ended.

    A shim writes the record before it has ended the processes that its command left behind. If it is killed in
    between, the outcome is known, but the GPU is not free.
    """
    if is_locked:
        return Verdict.RUNNING
    if lease_is_held:
        return Verdict.KEPT
    if has_record:
        return Verdict.OVER
    if not same_boot or has_started:
        # After a power cut `started` may be missing though the command ran: it was never synced.
        return Verdict.LOST
    return Verdict.NEVER_RAN


def outcome_of(record: Mapping[str, Any]) -> Outcome:
    """How the attempt ended, from its exit record."""
    code, signal, by = record.get("code"), record.get("signal"), record.get("by", "")
    message = str(record.get("message", ""))
    # It saved its work and ended, or was ended at its limit. If it failed on the signal, it did not save.
    checkpointed = record.get("checkpointed") is True and (by == "time" or code == 0)
    cause: Cause | None
    if by == "start":
        cause = Cause.START_ERROR
        code = code if code is not None else 127
    elif by == "time" or checkpointed:
        cause = Cause.TIME_LIMIT
        message = message or ("checkpointed" if checkpointed else "")
    elif by == "stop":
        cause = Cause.STOPPED
    elif code == 0:
        cause = None
    elif (seen := record.get("cause")) in _SEEN:
        cause = Cause(seen)
    else:
        cause = Cause.EXIT_CODE if signal is None else Cause.SIGNAL
    return Outcome(
        exit_code=code,
        signal=signal,
        cause=cause,
        message=message,
        seconds=record.get("seconds"),
        checkpointed=checkpointed,
    )


# The causes that a shim may record. A newer shim may record others: then the exit code or signal counts.
_SEEN = frozenset(
    {
        Cause.GPU_OOM,
        Cause.GPU_FAULT,
        Cause.HOST_OOM,
        Cause.IMPORT_ERROR,
        Cause.SYNTAX_ERROR,
        Cause.PORT_IN_USE,
        Cause.DISK_FULL,
        Cause.KILLED,
    }
)
LOST = Outcome(cause=Cause.LOST, message="its end was not seen: its supervisor was killed or the machine stopped")


def retry_after(job: Job, outcome: Outcome) -> float | None:
    """Seconds to wait before the next attempt, doubling each time; None when there is none.

    A lost job may have run to its end, so it is started again only if it was declared restartable.
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
    """Whether a retry is wanted after this cause; no names mean all causes."""
    names = set(map(retry_name, wanted))
    # A kill counted as a signal before it had a name of its own, and still does.
    return not names or retry_name(cause) in names or (cause is Cause.KILLED and "signal" in names)


def _pause(tries: int) -> float:
    doublings = min(max(0, tries - 1), 10)  # a float overflows at 1,024 of them
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**doublings)
