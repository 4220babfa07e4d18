"""Requests as the API's new jobs: only what differs travels."""

from datetime import UTC, datetime
from typing import Any

from dibs.model.jobs import Command, Request
from dibs.model.units import AUTO


def difference(request: Request, base: Request) -> dict[str, Any]:
    """The keys of a new job that make `request` out of `base`; the command where it has one."""
    job: dict[str, Any] = {}
    if request.command is not base.command:
        job |= command_of(request.command)
    if request.wishes is not base.wishes:
        for field, key in _WISHES.items():
            value = getattr(request.wishes, field)
            if value != getattr(base.wishes, field):
                job[key] = _READY.get(field, _as_it_is)(value)
    for field, key in _FIELDS.items():
        value = getattr(request, field)
        if value is not (before := getattr(base, field)) and value != before:
            job[key] = _READY.get(field, _as_it_is)(value)
    return job


def command_of(command: Command) -> dict[str, Any]:
    """A line for a shell, or words that no shell touches."""
    words = command.words
    if len(words) == 3 and words[1] == "-c" and words[2] == command.shown:
        return {"command": command.shown} if words[0] == "bash" else {"command": command.shown, "shell": words[0]}
    return {"words": list(words)}


def moment(seconds: float) -> str:
    """A moment in the daemon's words."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _as_it_is(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


NOTHING = Request(command=Command((), ""))  # what a new job is that says nothing

_WISHES = {
    "num_gpus": "num_gpus",
    "share": "share",
    "vram": "vram_bytes",
    "shape": "vram",
    "only": "only",
    "prefer": "prefer",
    "gpu_type": "gpu_type",
    "cpus": "cpus",
    "mem": "mem_bytes",
}
_FIELDS = {
    "name": "name",
    "workdir": "workdir",
    "env": "env",
    "priority": "priority",
    "retries": "retries",
    "restartable": "restartable",
    "time_limit": "time_limit_seconds",
    "grace": "grace_seconds",
    "project": "project",
    "tags": "tags",
    "umask": "umask",
    "output": "output",
    "after": "after",
    "begin": "begin_at",
    "hold": "hold",
    "array": "array",
    "retry_on": "retry_on",
    "checkpoint": "checkpoint",
    "bind": "bind",
    "notify": "notify",
    "once": "once",
    "warm": "warm",
    "on": "on",
    "on_options": "on_options",
}
_READY: dict[str, Any] = {
    "share": lambda share: None if share is None else str(share),
    "shape": lambda shape: AUTO if shape else None,
    "env": dict,
    "on_options": dict,
    "after": lambda after: [{"job": one.job, "kind": str(one.kind)} for one in after],
    "begin": lambda begin: None if begin is None else moment(begin),
    "array": lambda array: None if array is None else {"task": array.task, "most": array.most},
    "checkpoint": lambda one: None if one is None else {"signal": one.signal, "seconds": one.seconds},
}
