"""Requests as the API's new jobs: only what differs travels."""

from typing import Any

from dibs.model.field_values import to_json, values_of
from dibs.model.fields import BY_KEY
from dibs.model.jobs import Command, Request

NOTHING = Request(command=Command((), ""))  # what a new job is that says nothing
_FIELDS = tuple(BY_KEY.values())


def difference(request: Request, base: Request) -> dict[str, Any]:
    """The keys of a new job that make `request` out of `base`; the command where it has one."""
    job: dict[str, Any] = {}
    if request.command is not base.command:
        job |= command_of(request.command)
    for field, value, before in zip(_FIELDS, values_of(request), values_of(base), strict=True):
        if value is not before and value != before:
            job[field.key] = to_json(field, value)
    return job


def command_of(command: Command) -> dict[str, Any]:
    """A line for a shell, or words that no shell touches."""
    words = command.words
    if len(words) == 3 and words[1] == "-c" and words[2] == command.shown:
        return {"command": command.shown} if words[0] == "bash" else {"command": command.shown, "shell": words[0]}
    return {"words": list(words)}
