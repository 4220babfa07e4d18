"""What became of an attempt, from what its folder says. The table of the launch protocol, as one function."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from dibs.model.jobs import Cause, Outcome


class Verdict(Enum):
    RUNNING = "running"  # its shim lives: adopt it
    OVER = "over"  # its exit record is whole
    KEPT = "kept"  # nobody will see its end, but something of it still holds the GPU
    LOST = "lost"
    NEVER_RAN = "never ran"  # nothing was started: it may be queued again


def settle(
    *, is_locked: bool, has_record: bool, has_started: bool, lease_is_held: bool, same_boot: bool
) -> Verdict:
    """Lock first, leases second, records last: a record counts only once its writer is gone.

    A shim writes the record before it has ended what its command left behind. If it is killed in between, the
    outcome is known, but the GPU is not free.
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
    # It saved its work and left, or was ended at its limit. One that failed over the signal did not save it.
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


# What a shim may have seen. A newer one may know more: then its exit code or signal must do.
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
LOST = Outcome(cause=Cause.LOST, message="nobody saw its end: its supervisor was killed or the machine stopped")
