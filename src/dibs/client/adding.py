"""Adding jobs: requests as the JSON of the API, sent in chunks with a key each: none is added twice."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from dibs.client.client import Client
from dibs.errors import DibsError
from dibs.model.fields import BY_KEY
from dibs.model.jobs import Command, Request, to_json, values_of

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


_MOST_JOBS = 500  # in a chunk: larger ones are no quicker, and the daemon keeps the memory they took
_MOST_TEXT = 500_000  # characters of commands in a chunk: far below 8 MiB, even where each is escaped
_OF_THE_COMMAND = frozenset(("command", "words", "shell"))


class Interrupted(DibsError):
    """Ctrl-C was pressed between two chunks."""

    code = "interrupted"
    exit_status = 130


class Batch(NamedTuple):
    """Jobs that have something in common. The tasks of an array are stored in one call."""

    jobs: Sequence[Mapping[str, Any]]
    common: Mapping[str, Any] = MappingProxyType({})
    is_array: bool = False


class SentJobs(NamedTuple):
    """The numbers of the jobs; `is_new` is false where they were there already."""

    ranges: tuple[tuple[int, int], ...]
    is_new: bool
    notes: tuple[str, ...] = ()  # what may hold them up

    @property
    def shown(self) -> str:
        """`17`, `17-116`, and where another call added jobs in between `17-2016,2020-3000`."""
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in self.ranges)

    @property
    def number(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)


def send(
    client: Client,
    batches: Sequence[Batch],
    *,
    defaults: Mapping[str, Any],
    environment: Mapping[str, str],
    code: Mapping[str, Any] | None,
) -> SentJobs:
    """Add all jobs in their order.

    One chunk is taken whole or not at all. Where there are more, every kind of wish is checked first, so that
    nothing is stored when a later job could never run.
    """
    chunks = list(_chunks(batches))
    if len(chunks) > 1:
        check_wishes(client, batches, defaults=defaults)
    key = os.urandom(16).hex()
    ranges: list[tuple[int, int]] = []
    notes: dict[str, None] = {}
    is_new = False
    for number, chunk in enumerate(chunks):
        try:
            answer = client.add(
                chunk.jobs,
                key=f"{key}-{number}",
                defaults={**defaults, **chunk.common},
                environment=environment,
                code=code,
            )
        except DibsError as error:
            if ranges:
                error.message += f"; jobs {SentJobs(tuple(ranges), True).shown} are added, the rest is not"
            raise
        except KeyboardInterrupt as end:
            if not ranges:
                raise
            raise Interrupted(
                f"interrupted: jobs {SentJobs(tuple(ranges), True).shown} are added, perhaps some more",
                remedy="`dibs ls` shows what is there",
            ) from end
        _join(ranges, answer["first"], answer["last"])
        is_new = is_new or answer["is_new"]
        notes |= dict.fromkeys(answer.get("notes", ()))
    return SentJobs(tuple(ranges), is_new, tuple(notes))


def check_wishes(client: Client, batches: Iterable[Batch], *, defaults: Mapping[str, Any]) -> None:
    """Ask once for every kind of wish; one that could never be granted raises BadInput."""
    kinds: dict[str, Mapping[str, Any]] = {}
    for batch in batches:
        for job in batch.jobs:
            if len(job) == 1 and "command" in job and not batch.common:
                kinds.setdefault("", {"command": "true"})
            else:
                wish = {name: value for name, value in {**batch.common, **job}.items() if name not in _NO_WISH}
                kinds.setdefault(json.dumps(wish, sort_keys=True), {**wish, "command": "true"})
    wishes = list(kinds.values())
    for start in range(0, len(wishes), _MOST_JOBS):
        client.check(wishes[start : start + _MOST_JOBS], defaults=defaults)


_NO_WISH = _OF_THE_COMMAND | {"array", "once", "name", "env"}


def _chunks(batches: Iterable[Batch]) -> Iterator[Batch]:
    waiting: list[Mapping[str, Any]] = []
    size = 0
    for batch in batches:
        if batch.is_array:
            if waiting:
                yield Batch(waiting)
                waiting, size = [], 0
            yield batch
            continue
        for job in batch.jobs:
            text = _size(job)
            if len(waiting) == _MOST_JOBS or (waiting and size + text > _MOST_TEXT):
                yield Batch(waiting)
                waiting, size = [], 0
            waiting.append(job)
            size += text
    if waiting:
        yield Batch(waiting)


def _size(job: Mapping[str, Any]) -> int:
    if len(job) == 1 and "command" in job:
        return len(job["command"])
    return len(json.dumps(job, ensure_ascii=False))


def _join(ranges: list[tuple[int, int]], first: int, last: int) -> None:
    if ranges and ranges[-1][1] + 1 == first:
        ranges[-1] = (ranges[-1][0], last)
    else:
        ranges.append((first, last))
