"""The wishes of a job as Python keywords, with the names and readers of `dibs add` and JSON lines."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dibs.errors import BadInput
from dibs.inputs.checks import check_output
from dibs.inputs.wishes import apply_wishes, check_checkpoint
from dibs.model.fields import Kind, Verb, fields_of
from dibs.model.jobs import NOTHING, After, Dependency, JobId, Request, with_values

if TYPE_CHECKING:
    from dibs.client.client import Client

_KEYWORDS = {field.word: field for field in fields_of(Verb.PYTHON)}
_AFTER = {word: After(field.choices[0]) for word, field in _KEYWORDS.items() if field.kind is Kind.DEPENDENCIES}


def read_wishes(wishes: Mapping[str, Any], *, client: "Client | None" = None) -> Request:
    """A request without a command; BadInput as from `dibs add` for invalid wishes.

    `client` resolves dependencies that are given as `@` or by name.
    """
    said = {word: value for word, value in wishes.items() if value is not None}
    after = [
        Dependency(JobId(number), kind)
        for word, kind in _AFTER.items()
        if word in said
        for number in _numbers(said.pop(word), word, client)
    ]
    request = apply_wishes(replace(NOTHING, workdir=_here(), umask=_umask()), said, known=_KEYWORDS)
    if "workdir" in said and not os.path.isdir(request.workdir):
        raise BadInput(f"there is no folder {request.workdir}", remedy="make it, or name another as workdir")
    if len({one.job for one in after}) < len(after):
        raise BadInput("the same job is in two kinds of dependencies", remedy="name it once")
    check_checkpoint(request)
    for name in ("output", "error"):
        if path := getattr(request, name):
            path = os.path.join(request.workdir, path)
            check_output(path)
            request = with_values(request, {name: path})
    return replace(request, after=tuple(after))


def _numbers(value: Any, word: str, client: "Client | None") -> Iterable[int]:
    listed = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
    numbers: dict[int, None] = {}
    for one in listed:
        found = getattr(one, "id", one)
        if isinstance(found, str) and client is not None:
            names = [name.strip() for name in found.split(",") if name.strip()]
            numbers |= dict.fromkeys(client.find(*names)) if names else {}
        elif isinstance(found, int) and not isinstance(found, bool) and found > 0:
            numbers[found] = None
        else:
            raise BadInput(f"cannot read {one!r} as {word}", remedy="name jobs by their numbers, or give the jobs")
    if not numbers:
        raise BadInput(f"{word} names no job", remedy="leave it out, or name jobs like [12, 13]")
    return numbers


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise BadInput(
            "the folder you are in has been removed", remedy="change to one, or name it as workdir"
        ) from None


def _umask() -> int | None:
    """The umask of this process, read without setting it: other threads may create files meanwhile."""
    try:
        with open("/proc/self/status") as lines:
            return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), None)
    except OSError:
        return None
