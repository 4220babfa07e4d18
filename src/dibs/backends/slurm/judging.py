"""Where an attempt stands, from Slurm's row and the attempt's folder. Slurm stands in for the lock: first it, then
the record; and what neither explains is doubted for a while before it is lost."""

from collections.abc import Mapping
from typing import Any

from dibs.backends.protocol import Observed, Phase
from dibs.backends.slurm.squeue import Row
from dibs.backends.slurm.words import why_it_ended, why_it_waits, why_it_was_ended
from dibs.model.jobs import Cause

_CONFUSED = 300.0  # seconds after a controller's start in which it may cancel what it mixed up


def judge_live(row: Row) -> Observed:
    """One that Slurm has in its hands."""
    if row.is_queued:
        return Observed(phase=Phase.QUEUED, reason=why_it_waits(row), expected_start=row.start)
    reason = "it is suspended in Slurm; `scontrol resume` lets it go on" if row.is_suspended else ""
    return Observed(phase=Phase.RUNNING, node=row.node, reason=reason)


def judge_unseen(row: Row | None, why: str, *, is_ending: bool, is_patient: bool) -> Observed:
    """One whose folder is away: what Slurm has in its hands is known, and the rest stands as it stood.

    Where somebody asked for its end and Slurm has let it go, there is nothing to wait for.
    """
    if row is not None and row.is_live:
        return judge_live(row)
    if is_ending and not is_patient:
        return Observed(phase=Phase.LOST, cause=Cause.KILLED, reason=why)
    return Observed(phase=Phase.QUEUED, reason=why)


def judge_removed(*, never_started: bool) -> Observed:
    """One whose folder was removed with its cluster."""
    reason = "its folder was removed with its cluster"
    return Observed(phase=Phase.LOST, cause=Cause.LOST, reason=reason, never_started=never_started)


def judge_gone(
    row: Row | None,
    record: Mapping[str, Any] | None,
    *,
    has_started: bool,
    is_patient: bool,
    said: str = "",
    controller_started: float = 0.0,
) -> Observed:
    """One that Slurm has let go, forgotten or taken back.

    `is_patient` while more may still become known: a network file system may show the record later than Slurm
    says that it is over, and a controller that has just come back may still hear of it from its node. `said` is
    what the batch script wrote before it could become a shim.

    A controller that came back gives numbers again that a node still knows, and the node then cancels the new job.
    Nobody wanted that, so one that never started and was cancelled soon after a controller's start counts as lost.
    """
    sentence, cause = why_it_ended(row)
    node = "" if row is None else row.node
    if record is not None and record.get("state") == "ended":
        failed = bool(record.get("code") or record.get("signal"))
        if failed and is_patient and row is not None and row.state == "COMPLETING":
            return Observed(phase=Phase.RUNNING, node=node)  # in a moment Slurm tells whether it had a hand in it
        # Slurm signals everybody, and the command may have ended before its shim had read the word.
        was_asked = record.get("by") == "outside" or (
            row is not None and row.is_live and bool(record.get("signal")) and record.get("by") != "stop"
        )
        if was_asked:
            sentence, cause = why_it_was_ended(row)
            is_theirs = failed
        else:
            # The batch job ends as its command did, so that its exit code says nothing new.
            is_theirs = failed and cause not in (Cause.LOST, Cause.START_ERROR) and record.get("by") != "stop"
        return Observed(
            phase=Phase.ENDED,
            record=record,
            node=str(record.get("node") or node),
            gpus=str(record.get("gpus") or ""),
            reason=sentence if is_theirs else "",
            cause=cause if is_theirs else None,
        )
    if is_patient:
        phase = Phase.RUNNING if has_started else Phase.QUEUED
        return Observed(phase=phase, reason=f"{sentence}; its record is awaited", node=node)
    if cause is Cause.START_ERROR and said:
        sentence = f"{sentence} ({said})"
    if cause is Cause.START_ERROR and has_started:
        cause = Cause.LOST
    is_mixed_up = (
        row is not None
        and row.state == "CANCELLED"
        and row.ended is not None
        and 0 <= row.ended - controller_started < _CONFUSED
    )
    never_started = not has_started and (cause is Cause.LOST or is_mixed_up)
    return Observed(phase=Phase.LOST, reason=sentence, cause=cause, node=node, never_started=never_started)
