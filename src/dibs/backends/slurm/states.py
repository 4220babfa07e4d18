"""Where an attempt is and why, from Slurm's row and the attempt's folder.

Slurm takes the place of the lock: its row counts first, then the record. What neither explains is doubted for a
while before the attempt is lost.
"""

import re
from collections.abc import Mapping
from signal import SIGKILL, SIGTERM
from typing import Any

from dibs.backends.protocol import Observed, Phase
from dibs.backends.slurm.squeue import SqueueRow
from dibs.model.jobs import Cause
from dibs.supervise.batch_job import FENCED, NO_FOLDER
from dibs.supervise.script_job import FILES_NOT_BROUGHT, NO_ROOM, NO_SOURCE

_CONFUSED = 300.0  # seconds after a controller's start in which it may cancel what it mixed up


def judge_live(row: SqueueRow) -> Observed:
    """One that Slurm has in its hands."""
    if row.is_queued:
        return Observed(
            phase=Phase.QUEUED, reason=why_it_waits(row), is_held=row.is_held, expected_start=row.start
        )
    reason = "it is suspended in Slurm; `scontrol resume` lets it go on" if row.is_suspended else ""
    return Observed(phase=Phase.RUNNING, node=row.node, reason=reason)


def judge_unseen(row: SqueueRow | None, why: str, *, is_ending: bool, is_patient: bool) -> Observed:
    """One whose folder is away: what Slurm has in its hands is known, and the rest stands as it stood.

    Where its end was asked for and Slurm has let it go, there is nothing to wait for.
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
    row: SqueueRow | None,
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

    A controller that came back gives numbers again that a node still knows. The node then cancels the new job, or
    removes its script with what is left of the old one. So one that never started, and was cancelled or found no
    script soon after a controller's start, may be submitted again.
    """
    sentence, cause = why_it_ended(row)
    node = "" if row is None else row.node
    if record is not None and record.get("state") == "ended":
        failed = bool(record.get("code") or record.get("signal"))
        if failed and is_patient and row is not None and row.state == "COMPLETING":
            # In a moment Slurm tells whether it had a hand in it.
            return Observed(phase=Phase.RUNNING, node=node, reason="it is ending in Slurm")
        # Slurm signals all processes: the command may have ended before its shim handled the signal.
        was_asked = record.get("by") == "outside" or (
            row is not None and row.is_live and bool(record.get("signal")) and record.get("by") != "stop"
        )
        if was_asked:
            sentence, cause = why_it_was_ended(row)
            is_theirs = failed
        else:
            # The batch job ends as its command did, so that its exit code says nothing new.
            if row is not None and row.is_out_of_memory and not failed and not record.get("by"):
                sentence, cause, failed = _CHILD_WITHOUT_MEMORY, Cause.HOST_OOM, True
            is_theirs = failed and record.get("by") != "stop"
            is_theirs &= cause not in (Cause.LOST, Cause.START_ERROR) or _was_moved_away(row, record)
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
        and (row.state == "CANCELLED" or _has_no_script(row))
        and row.ended is not None
        and 0 <= row.ended - controller_started < _CONFUSED
    )
    never_started = not has_started and (cause is Cause.LOST or is_mixed_up)
    return Observed(phase=Phase.LOST, reason=sentence, cause=cause, node=node, never_started=never_started)


_WAITS = {
    "None": "Slurm has not looked at it yet",
    "Resources": "other jobs have what it needs",
    "Priority": "jobs with a higher priority go first",
    "Dependency": "another Slurm job must end first",
    "DependencyNeverSatisfied": "what it waits for can never happen any more",
    "BeginTime": "its begin time has not come",
    "JobArrayTaskLimit": "as many elements of its array run as may run at once",
    "JobHeldUser": "it is held in Slurm; `scontrol release` lets it go",
    "JobHeldAdmin": "an administrator of the cluster holds it",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition takes no jobs now",
    "PartitionNodeLimit": "it wants more nodes than its partition allows, or nodes of it are down",
    "PartitionTimeLimit": "its time limit is longer than its partition allows",
    "ReqNodeNotAvail": "a node that it needs is down, drained or reserved",
    "NodeDown": "a node that it needs is down",
    "Reservation": "its reservation has not begun",
    "ReservationDeleted": "its reservation is gone",
    "Licenses": "no licence is free",
    "BadConstraints": "no node has what it asks for",
    "Cleaning": "Slurm still cleans up after an earlier run of it",
    "Prolog": "the node is being prepared",
    "JobLaunchFailure": "Slurm could not start it on its node",
    "AccountNotAllowed": "its account may not use this partition",
    "QOSNotAllowed": "its QOS may not be used here",
    "InvalidAccount": "its account is not known",
    "InvalidQOS": "its QOS is not known",
    "FedJobLock": "the clusters have not agreed who runs it",
    "MaxMemPerLimit": "it wants more memory than its partition allows",
    "NodesRequiredforjobareDOWN": "the nodes that it needs are down, drained or kept for jobs of higher priority",
}
_WHOSE = {"QOS": "QOS", "Assoc": "account"}
_WHAT = {
    "GRES": "GPUs",
    "Cpu": "CPUs",
    "CPU": "CPUs",
    "Mem": "memory",
    "Memory": "memory",
    "Node": "nodes",
    "Jobs": "jobs at once",
    "SubmitJob": "jobs submitted",
    "SubmitJobs": "jobs submitted",
    "Wall": "time",
    "WallDuration": "time",
    "Billing": "billing units",
}
_ENDS: dict[str, tuple[str, Cause]] = {
    "NODE_FAIL": ("its node failed", Cause.LOST),
    "BOOT_FAIL": ("its node could not be started", Cause.LOST),
    "OUT_OF_MEMORY": ("it used more memory than Slurm gave it", Cause.HOST_OOM),
    "PREEMPTED": ("a job that goes first took its place", Cause.LOST),  # so that one that may run again is queued
    "TIMEOUT": ("it reached Slurm's time limit", Cause.TIME_LIMIT),
    "DEADLINE": ("it could not be over by its deadline", Cause.TIME_LIMIT),
    "CANCELLED": ("it was cancelled in Slurm", Cause.KILLED),
    "REVOKED": ("another cluster took it", Cause.LOST),
}
_CHILD_WITHOUT_MEMORY = (
    "a process of it used more memory than Slurm gave it, and was killed; the command itself succeeded"
)
_GONE = "Slurm does not know it any more"
_TAKEN_BACK = "Slurm could not start it on a node and took it back"
_SCRIPTS = {
    NO_FOLDER: "its folder is not there on {node}: is backends.slurm.root on a file system that all nodes share?",
    NO_ROOM: "it cannot write on {node}: is backends.slurm.node_root a folder of yours there, with room?",
    NO_SOURCE: "dibs itself is not there on {node}: backends.slurm.source names where it is on the nodes",
    FILES_NOT_BROUGHT: (
        "its function or checkpoint did not get to {node} within half an hour: is there room on its disk?"
    ),
    181: (  # Slurm's own: it could not open the file for the job's output, which is in that folder
        "its folder is not there on {node}, or cannot be written: is backends.slurm.root on a file system that all"
        " nodes share?"
    ),
    126: "the Python of dibs cannot be executed on {node}: backends.slurm.python names it",
    127: "the Python of dibs is not there on {node}: backends.slurm.python names it",
}


def why_it_waits(row: SqueueRow) -> str:
    """Why a job is pending, as a sentence that ends without a stop."""
    if row.was_taken_back and row.reason == "BeginTime":  # we never ask for one
        return f"{_TAKEN_BACK}; it tries again"
    return _why(row.reason)


def why_it_ended(row: SqueueRow | None) -> tuple[str, Cause]:
    """How Slurm explains an end without an exit record: a sentence and a cause."""
    if row is None:
        return _GONE, Cause.LOST
    if row.is_live:
        return _TAKEN_BACK, Cause.LOST
    state = _state(row)
    if state in _ENDS:
        sentence, cause = _ENDS[state]
        where = f" ({row.node})" if row.node and cause is Cause.LOST else ""
        return f"{sentence}{where}", cause
    if state in ("FAILED", "COMPLETED") and row.exit_code == FENCED:
        return "another copy of it was started, and Slurm does not know that one any more", Cause.LOST
    if state == "FAILED" and (row.exit_code < 128 or row.exit_code in _SCRIPTS):
        sentence = _SCRIPTS.get(row.exit_code, "its supervisor failed on {node}")
        return sentence.format(node=row.node or "its node"), Cause.START_ERROR
    return f"Slurm says {state.lower() or 'nothing'} (exit code {row.exit_code})", Cause.LOST


def why_it_was_ended(row: SqueueRow | None) -> tuple[str, Cause]:
    """How Slurm explains that it asked one for its end which has written that down."""
    if row is None:
        return "Slurm asked for its end, and does not know it any more", Cause.KILLED
    if row.is_live:
        return "Slurm took it back while it ran: it was requeued, or another job took its place", Cause.LOST
    return why_it_ended(row) if _state(row) in _ENDS else ("it was ended in Slurm", Cause.KILLED)


def _has_no_script(row: SqueueRow) -> bool:
    """Whether it failed before our script could say why."""
    return _state(row) == "FAILED" and 0 < row.exit_code < 128 and row.exit_code not in {*_SCRIPTS, FENCED}


def _was_moved_away(row: SqueueRow | None, record: Mapping[str, Any]) -> bool:
    """Whether it ended because another job took its place, or because an operator set its node down.

    Where a node died for itself, no process was there to signal the command.
    """
    state = "" if row is None else _state(row)
    return state == "PREEMPTED" or (state == "NODE_FAIL" and record.get("signal") in (SIGTERM, SIGKILL))


def _state(row: SqueueRow) -> str:
    return row.state.split()[0].rstrip("+") if row.state else ""


def _why(reason: str) -> str:
    word = reason.split(",")[0].split("(")[0].strip()
    if word.startswith("Nodes required for job"):
        word = "NodesRequiredforjobareDOWN"
    if word in _WAITS:
        return _WAITS[word]
    if not word:
        return _WAITS["None"]
    return why_limited(word) or f"Slurm says: {reason[:200]}"


def named_limit(text: str) -> str:
    """Slurm's word for the limit that it refused a job for, `AssocMaxSubmitJobLimit`; or nothing."""
    found = re.search(r"\b(?:(?:Assoc|QOS)[A-Z]\w+|Max[A-Z]\w+PerAccount)\b", text)
    return found[0] if found is not None and why_limited(found[0]) else ""


def why_limited(word: str) -> str:
    """What a limit of an account or a QOS is about, from Slurm's word for it; empty where it is another word."""
    # What an account may have in a QOS is the only limit that does not begin with what it is of.
    whole = f"QOS{word}" if re.fullmatch(r"Max[A-Z]\w+PerAccount", word) else word
    limit = re.fullmatch(
        r"(QOS|Assoc)(Max|Grp|Min)?([A-Za-z]+?)(Minutes|RunMinutes)?(Per[A-Z]\w+?)?(Limit)?", whole
    )
    if limit is None:
        return ""
    whose, kind, what = _WHOSE[limit[1]], limit[2], _WHAT.get(limit[3], limit[3])
    if kind == "Min":
        return f"it wants less than its {whose} asks for: {what} ({word})"
    return f"its {whose} has reached a limit: {what} ({word})"
