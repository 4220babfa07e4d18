"""Adding jobs: the JSON of the API, sent with a key, and where it is too much in parts: none is added twice."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from dibs.client.client import Client
from dibs.client.connection import ConnectionBroken, NoAnswer
from dibs.errors import DibsError
from dibs.model.fields import BY_KEY
from dibs.model.jobs import Command, Request, to_json, values_of

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


_MOST_JOBS = 500  # in a request: larger ones are no quicker, and the daemon keeps the memory they took
_MOST_TEXT = 500_000  # characters of commands in a request: far below 8 MiB, even where each is escaped
_ENTERED_A_SECOND = 20_000  # jobs of a list that the daemon takes in, at the least, when all parts are there
_OF_THE_COMMAND = frozenset(("command", "words", "shell"))


class Interrupted(DibsError):
    """Ctrl-C was pressed while the daemon was adding the jobs."""

    code = "interrupted"
    exit_status = 130


class Batch(NamedTuple):
    """Jobs that have something in common. The tasks of an array are sent in one request.

    `after` of a job may name an earlier one of the same call by its place, from 0: `{"place": 3, "kind": "ok"}`.
    """

    jobs: Sequence[Mapping[str, Any]]
    common: Mapping[str, Any] = MappingProxyType({})
    is_array: bool = False


class SentJobs(NamedTuple):
    """The numbers of the jobs; `is_new` is false where they were there already."""

    first: int
    last: int
    is_new: bool
    notes: tuple[str, ...] = ()  # what may hold them up

    @property
    def shown(self) -> str:
        """`17`, `17-116`."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @property
    def number(self) -> int:
        return self.last - self.first + 1


def send(
    client: Client,
    batches: Sequence[Batch],
    *,
    defaults: Mapping[str, Any],
    environment: Mapping[str, str],
    code: Mapping[str, Any] | None,
) -> SentJobs:
    """Add all jobs in their order: all of them, or none.

    More than fit into one request are sent as the parts of one list, which is added with the last part. Every kind
    of wish is checked first, so that a list with a job that could never run is refused before most of it was sent.
    """
    parts = list(_parts(batches))
    total = sum(len(part.jobs) for part in parts)
    if len(parts) > 1:
        check_wishes(client, batches, defaults=defaults)
    key = os.urandom(16).hex()
    sent = 0
    notes: dict[str, None] = {}
    answer: Mapping[str, Any] = {}
    for part in parts:
        is_last = sent + len(part.jobs) == total
        try:
            answer = client.add(
                [_numbered(job, answer) for job in part.jobs],
                key=key,
                defaults={**defaults, **part.common},
                environment=environment,
                code=code,
                part={"offset": sent, "jobs": total} if len(parts) > 1 else None,
                more_patience=total / _ENTERED_A_SECOND if is_last else 0.0,
            )
        except (ConnectionBroken, NoAnswer) as error:
            if is_last:
                _say_what_is_unknown(error, total, bool(defaults.get("once")))
            else:
                error.message += "; nothing was added"
            raise
        except KeyboardInterrupt as end:
            if not is_last:
                raise
            raise Interrupted(
                f"interrupted: {_the_jobs(total)} may have been added", remedy="`dibs ls` shows what is there"
            ) from end
        sent += len(part.jobs)
        notes |= dict.fromkeys(answer.get("notes", ()))
    # A repeated request is answered as an old one; without `once`, it is the request itself that was there before.
    is_new = answer["is_new"] or not defaults.get("once")
    return SentJobs(answer["first"], answer["last"], is_new, tuple(notes))


def _say_what_is_unknown(error: DibsError, jobs: int, is_once: bool) -> None:
    error.message += f"; {_the_jobs(jobs)} may have been added all the same"
    look = "when it answers again (`dibs daemon restart` leaves jobs alone), "
    if is_once:
        error.remedy = f"{look}repeat the command: with the same --once nothing is added twice"
    else:
        error.remedy = f"{look}`dibs ls` shows what is there; a command with --once KEY can be repeated safely"


def _the_jobs(number: int) -> str:
    return "the job" if number == 1 else f"the {number} jobs"


def check_wishes(client: Client, batches: Iterable[Batch], *, defaults: Mapping[str, Any]) -> None:
    """Ask once for every kind of wish; one that could never be granted raises BadInput."""
    kinds: dict[str, Mapping[str, Any]] = {}
    for batch in batches:
        for job in batch.jobs:
            if len(job) == 1 and "command" in job and not batch.common:
                kinds.setdefault("", {"command": "true"})
            else:
                wish = {
                    name: value
                    for name, value in {**batch.common, **job}.items()
                    if name not in _NO_WISH and not (name == "after" and _follows(job))
                }
                kinds.setdefault(json.dumps(wish, sort_keys=True), {**wish, "command": "true"})
    wishes = list(kinds.values())
    for start in range(0, len(wishes), _MOST_JOBS):
        client.check(wishes[start : start + _MOST_JOBS], defaults=defaults)


_NO_WISH = _OF_THE_COMMAND | {"array", "once", "name", "env"}


def _parts(batches: Iterable[Batch]) -> Iterator[Batch]:
    """What is sent in one request each. The first has no job that follows another: its answer tells numbers."""
    waiting: list[Mapping[str, Any]] = []
    size = 0
    is_first = True
    for batch in batches:
        if batch.is_array:
            if waiting:
                yield Batch(waiting)
                waiting, size = [], 0
            yield batch
            is_first = False
            continue
        for job in batch.jobs:
            text = _size(job)
            is_full = len(waiting) == _MOST_JOBS or size + text > _MOST_TEXT
            if waiting and (is_full or (is_first and _follows(job))):
                yield Batch(waiting)
                waiting, size, is_first = [], 0, False
            waiting.append(job)
            size += text
    if waiting:
        yield Batch(waiting)


def _follows(job: Mapping[str, Any]) -> bool:
    """Whether it follows a job of the same call."""
    return any("place" in one for one in job.get("after", ()))


def _numbered(job: Mapping[str, Any], answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The job with numbers instead of places. Those of a list are in a row, and the first answer tells them."""
    if not _follows(job):
        return job
    after = [
        {"job": answer["first"] + one["place"], "kind": one["kind"]} if "place" in one else one
        for one in job["after"]
    ]
    return {**job, "after": after}


def _size(job: Mapping[str, Any]) -> int:
    if len(job) == 1 and "command" in job:
        return len(job["command"])
    return len(json.dumps(job, ensure_ascii=False))


def _join(ranges: list[tuple[int, int]], first: int, last: int) -> None:
    if ranges and ranges[-1][1] + 1 == first:
        ranges[-1] = (ranges[-1][0], last)
    else:
        ranges.append((first, last))
