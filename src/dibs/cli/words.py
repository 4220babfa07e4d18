"""A job of the daemon's JSON in words: what it is called, how it ended, which exit code that is."""

import time
from collections.abc import Mapping
from typing import Any

from dibs.cli.output import one_line
from dibs.cli.times import moment

Job = Mapping[str, Any]

WAITING = ("queued", "submitted", "held")
# Of the others the log itself says more than we could.
_EXPLAINED = (
    *("start error", "dependency", "lost", "killed", "gpu-fault"),
    *("import-error", "syntax-error", "port-in-use", "disk-full"),
)
OVER = ("succeeded", "failed", "cancelled", "timed_out", "lost")
STATES = (*WAITING, "running", *OVER)
COLOURS = {
    "running": "green",
    "held": "yellow",
    "failed": "red",
    "timed_out": "red",
    "lost": "red",
    "cancelled": "yellow",
    "succeeded": "dim",
}
_VERBS = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "was stopped",
    "timed_out": "ran out of time",
    "lost": "was lost",
}


def number(job: Job) -> str:
    """`17`, or `17_4` for a task of an array: what can be typed to mean it."""
    array = job.get("array")
    return f"{array['id']}_{array['task']}" if array else str(job["id"])


def called(job: Job) -> str:
    """`17` or `17 (train)`."""
    return f"{number(job)} ({one_line(job['name'], 40)})" if job.get("name") else number(job)


def cards(job: Job) -> list[str]:
    """The GPUs of a job or of an attempt, as people write them: `0`, or `0:1` for a part."""
    return [str(one) for one in job.get("gpu_numbers") or job.get("gpus") or ()]


def place(job: Job) -> str:
    """Where a job or an attempt has its GPUs: `0,1` of this machine, `n1:0,1` or `n1` of a node; else empty."""
    if node := job.get("node"):
        gpus = one_line(job.get("node_gpus") or "", 60)
        return f"{one_line(node, 60)}:{gpus}" if gpus else one_line(node, 60)
    return ",".join(cards(job))


def ending(job: Job) -> str:
    """The shortest true word for its end: `exit 1`, `SIGKILL`, `gpu-oom`; empty where the state says it all."""
    if job["state"] not in ("failed", "cancelled"):
        return ""
    if job.get("cause") not in (None, "", "exit code", "signal", "killed", "stopped"):
        return str(job["cause"])
    if job.get("signal"):
        return signal_name(job["signal"])
    if job.get("exit_code") is not None and job["state"] == "failed":
        return f"exit {job['exit_code']}"
    return ""


def how_it_ended(job: Job) -> str:
    """`failed (exit 1) after 3m05s`, with the reason where the job itself could not say it."""
    from dibs.cli.output import one_line
    from dibs.model.units import show_duration

    how = ending(job)
    took = f" after {show_duration(job['seconds'])}" if job.get("seconds") is not None else ""
    why = f": {one_line(explanation(job), 500)}" if job.get("cause") in _EXPLAINED and job.get("message") else ""
    return f"{_VERBS.get(job['state'], job['state'])}{f' ({how})' if how else ''}{took}{why}"


def explanation(job: Job) -> str:
    """Why it failed and what helps, as far as that is known: `No module named 'torch': is the environment ...`"""
    from dibs.policy.advice import failure_advice

    return failure_advice(job.get("cause"), job.get("message") or "")


def exit_status(job: Job) -> int:
    """As a shell would tell it: the exit code, 128+n for a signal, 124 for the time limit."""
    if job["state"] == "succeeded":
        return 0
    if job["state"] == "timed_out":
        return 124
    if job.get("signal"):
        return 128 + int(job["signal"])
    return int(job.get("exit_code") or 1)


def seconds_so_far(job: Job, now: float | None = None) -> float | None:
    """How long it ran, runs or waits. A clock that was set back makes no negative times."""
    if job.get("seconds") is not None and job["state"] in OVER:
        return float(job["seconds"])
    since = moment(job.get("started_at") if job["state"] == "running" else job.get("queued_at"))
    if since is None or job["state"] in OVER:
        return None
    return max(0.0, (time.time() if now is None else now) - since)


def signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time ones have no names
        return f"signal {number}"
