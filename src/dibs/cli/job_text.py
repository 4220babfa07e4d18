"""A job of the JSON API as text: its name, its state, its times, and how it ended."""

import signal
import time
from collections.abc import Mapping
from typing import Any

from dibs.cli.output import one_line
from dibs.errors import BadInput
from dibs.model.units import parse_moment, show_duration

Job = Mapping[str, Any]

WAITING = ("queued", "submitted", "held")
# For other causes the log says more than the message.
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


def job_number(job: Job) -> str:
    """`17`, or `17_4` for a task of an array: as it is typed to name the job."""
    array = job.get("array")
    return f"{array['id']}_{array['task']}" if array else str(job["id"])


def job_name(job: Job) -> str:
    """`17` or `17 (train)`."""
    return f"{job_number(job)} ({one_line(job['name'], 40)})" if job.get("name") else job_number(job)


def gpu_numbers(job: Job) -> list[str]:
    """The GPUs of a job or of an attempt: `0`, or `0:1` for a part."""
    return [str(one) for one in job.get("gpu_numbers") or job.get("gpus") or ()]


def gpu_place(job: Job) -> str:
    """Where a job or an attempt has its GPUs: `0,1` of this machine, `n1:0,1` or `n1` of a node; else empty."""
    if node := job.get("node"):
        gpus = one_line(job.get("node_gpus") or "", 60)
        return f"{one_line(node, 60)}:{gpus}" if gpus else one_line(node, 60)
    return ",".join(gpu_numbers(job))


def short_outcome(job: Job) -> str:
    """The outcome in one or two words: `exit 1`, `SIGKILL`, `gpu-oom`; empty where the state says it all."""
    if job["state"] not in ("failed", "cancelled"):
        return ""
    if job.get("cause") not in (None, "", "exit code", "signal", "killed", "stopped"):
        return str(job["cause"])
    if job.get("signal"):
        return signal_name(job["signal"])
    if job.get("exit_code") is not None and job["state"] == "failed":
        return f"exit {job['exit_code']}"
    return ""


def outcome_text(job: Job) -> str:
    """`failed (exit 1) after 3m05s`, with the reason where the job itself could not say it."""
    how = short_outcome(job)
    took = f" after {show_duration(job['seconds'])}" if job.get("seconds") is not None else ""
    why = f": {one_line(explanation(job), 500)}" if job.get("cause") in _EXPLAINED and job.get("message") else ""
    return f"{_VERBS.get(job['state'], job['state'])}{f' ({how})' if how else ''}{took}{why}"


def explanation(job: Job) -> str:
    """Why it failed and what helps, as far as that is known: `No module named 'torch': is the environment ...`"""
    from dibs.policy.advice import failure_advice  # only for jobs that failed

    return failure_advice(job.get("cause"), job.get("message") or "")


def exit_status(job: Job) -> int:
    """As in a shell: the exit code, 128+n for a signal, 124 for the time limit."""
    if job["state"] == "succeeded":
        return 0
    if job["state"] == "timed_out":
        return 124
    if job.get("signal"):
        return 128 + int(job["signal"])
    return int(job.get("exit_code") or 1)


def elapsed_seconds(job: Job, now: float | None = None) -> float | None:
    """How long it ran, runs or waits; never negative, also where the clock was set back."""
    if job.get("seconds") is not None and job["state"] in OVER:
        return float(job["seconds"])
    since = _seconds_at(job.get("started_at") if job["state"] == "running" else job.get("queued_at"))
    if since is None or job["state"] in OVER:
        return None
    return max(0.0, (time.time() if now is None else now) - since)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time ones have no names
        return f"signal {number}"


def _seconds_at(text: str | None) -> float | None:
    """Seconds since the epoch; None where the daemon named no moment."""
    try:
        return parse_moment(text) if text else None
    except BadInput:
        return None


def show_moment(text: str | None, *, now: float | None = None) -> str:
    """`14:30:05`, or with the date where it is another day; `-` where there is none."""
    at = _seconds_at(text)
    if at is None:
        return "-"
    then, today = time.localtime(at), time.localtime(time.time() if now is None else now)
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)


def show_about(text: str | None, *, now: float | None = None) -> str:
    """`14:30`: an estimated time, without seconds."""
    shown = show_moment(text, now=now)
    return shown[:5] if shown.count(":") == 2 else shown


def why_sentence(job: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """`job 17 waits for 2 GPUs: ...`; of a job that does not wait, what it does instead."""
    job_text = f"job {job_name(job)}"
    if job["state"] in OVER:
        outcome, text = outcome_text(job), one_line(explanation(job), 500)
        return f"{job_text} does not wait: it {outcome}{f': {text}' if text and text not in outcome else ''}"
    if job["state"] == "running":
        runs = f"{job_text} does not wait: it runs{_where(job)} for {show_duration(elapsed_seconds(job))}"
        reason = answer.get("reason")  # why a job that runs elsewhere makes no progress
        return f"{runs}; {one_line(reason['sentence'], 1000)}" if reason else runs
    return f"{job_text} {waiting_text(answer)}"


def _where(job: Mapping[str, Any]) -> str:
    """` on GPU 0, 1`, or ` on node n1, GPU 0,1`."""
    if node := job.get("node"):
        gpus = job.get("node_gpus")
        return f" on node {one_line(node, 60)}{f', GPU {one_line(gpus, 60)}' if gpus else ''}"
    return f" on GPU {', '.join(gpu_numbers(job))}" if gpu_numbers(job) else ""


def waiting_text(answer: Mapping[str, Any]) -> str:
    """The daemon's reason, and when the job may start where that is known."""
    reason = answer.get("reason")
    if not reason:
        return "waits at Slurm" if answer.get("state") == "submitted" else "starts next"
    text = one_line(reason["sentence"], 1000)
    if answer.get("starts_at") and "until about" not in text:
        text += f"; it may start at about {show_about(answer['starts_at'])}"
    return text
