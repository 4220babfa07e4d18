"""Traces as JSON lines: one job each, in the words of the API. What `dibs export` prints is one."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from fractions import Fraction
from typing import IO, Any

from dibs.errors import BadInput
from dibs.model.field_values import with_values
from dibs.model.fields import BY_KEY
from dibs.model.jobs import ArrayTask, Dependency, Job, JobId, Request, Wishes
from dibs.model.pool import is_gpu_id
from dibs.model.units import parse_moment, parse_share
from dibs.simulate.machine import Arrival
from dibs.simulate.made import COMMAND

_LONGEST_LINE = 4 << 20  # bytes
_MOST_BYTES = 1 << 60
_MOST_SECONDS = 100 * 365 * 86400.0
_EXAMPLE = 'a line is like {"queued_at": 0, "seconds": 600, "num_gpus": 2}'


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in the order in which they came; the first came at 0."""

    arrivals: Sequence[Arrival]
    left_out: int = 0  # recorded jobs that have not run to an end


def read_trace(lines: Iterable[bytes]) -> Trace:
    """The trace in these lines. Strict: what cannot be meant raises BadInput and names its line."""
    found: list[_Line] = []
    left_out = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = _read(line)
        except BadInput as error:
            raise BadInput(
                f"cannot read line {number} of the trace: {error.message}", remedy=error.remedy
            ) from None
        if entry is None:
            left_out += 1
        else:
            found.append(entry)
    if not found:
        raise BadInput("cannot simulate an empty trace", remedy=_EXAMPLE)
    return Trace(_in_order(found), left_out)


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file; of one that never ends only as much as it takes to refuse it."""
    while line := file.readline(_LONGEST_LINE + 1):
        yield line


def line_of(arrival: Arrival) -> str:
    """The line that is read as this arrival."""
    request, wishes = arrival.job.request, arrival.job.request.wishes
    body = {
        "id": arrival.job.id,
        "queued_at": arrival.queued_at,
        "seconds": arrival.seconds,
        "num_gpus": wishes.num_gpus,
        "share": None if wishes.share is None else str(wishes.share),
        "vram_bytes": wishes.vram,
        "only": list(wishes.only),
        "prefer": list(wishes.prefer),
        "gpu_type": wishes.gpu_type,
        "cpus": wishes.cpus,
        "mem_bytes": wishes.mem,
        "time_limit_seconds": request.time_limit,
        "grace_seconds": request.grace,
        "project": request.project,
        "priority": request.priority,
        "begin_at": request.begin,
        "after": [{"job": one.job} for one in request.after],
        "array": request.array and {"most": request.array.most},
        "array_id": request.array and request.array.array,
    }
    return json.dumps({key: value for key, value in body.items() if value not in (None, "", [])})


@dataclass(frozen=True, slots=True)
class _Line:
    """One line, with the numbers and moments that it has."""

    number: int | None
    queued_at: float
    seconds: float
    request: Request
    really_waited: float | None


def _read(line: bytes) -> _Line | None:
    """None for a recorded job that has not run to an end."""
    body = _object(line)
    if "state" not in body:  # a recorded line has more words, and tomorrow others
        _refuse_unknown(body)
    elif body.get("seconds") is None:
        return None
    for word in ("queued_at", "seconds"):
        if body.get(word) is None:
            raise BadInput(f"it has no {word}", remedy=_EXAMPLE)
    values = {
        word: _WORDS[word](value, word) for word, value in body.items() if word in _WORDS and value is not None
    }
    most = values.get("array")
    array = None if most is None else ArrayTask(JobId(values.get("array_id", 0)), 0, most)
    wanted = {BY_KEY[word].name: value for word, value in values.items() if word in BY_KEY}
    request = with_values(Request(command=COMMAND), {**wanted, "array": array})
    queued_at = values["queued_at"]
    waited = max(0.0, values["started_at"] - queued_at) if "started_at" in values else None
    return _Line(values.get("id"), queued_at, values["seconds"], request, waited)


def _in_order(lines: Sequence[_Line]) -> list[Arrival]:
    """The jobs by age, numbered from 1, with their moments counted from the first of them."""
    lines = sorted(lines, key=lambda line: line.queued_at)
    start = lines[0].queued_at
    numbers: dict[int, JobId] = {}
    for place, line in enumerate(lines, 1):
        if line.number is not None and numbers.setdefault(line.number, JobId(place)) != place:
            raise BadInput(
                f"cannot read the trace: two lines have the id {line.number}", remedy="keep one of them"
            )
    found = []
    cards = _numbers_of_cards(lines)
    for place, line in enumerate(lines, 1):
        request = replace(line.request, wishes=_on_cards(line.request.wishes, cards))
        if request.after:  # what is not in the trace was over when the trace began
            after = tuple(Dependency(numbers[one.job]) for one in request.after if one.job in numbers)
            request = replace(request, after=after)
        if request.begin is not None:
            request = replace(request, begin=request.begin - start)
        found.append(
            Arrival(
                job=Job(id=JobId(place), request=request),
                queued_at=line.queued_at - start,
                seconds=line.seconds,
                really_waited=line.really_waited,
            )
        )
    return found


def _numbers_of_cards(lines: Sequence[_Line]) -> dict[str, str]:
    """The queue records cards by UUID. The simulated ones are all alike, so any number will do for each."""
    ids = dict.fromkeys(one for line in lines for one in (*line.request.wishes.only, *line.request.wishes.prefer))
    return {one: str(number) for number, one in enumerate(one for one in ids if not one[:1].isdigit())}


def _on_cards(wishes: Wishes, cards: Mapping[str, str]) -> Wishes:
    if not cards:
        return wishes
    only, prefer = (tuple(cards.get(one, one) for one in ids) for ids in (wishes.only, wishes.prefer))
    return replace(wishes, only=only, prefer=prefer)


def _object(line: bytes) -> Mapping[str, Any]:
    if len(line) > _LONGEST_LINE:
        raise BadInput(f"it is longer than {_LONGEST_LINE} bytes", remedy=_EXAMPLE)
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise BadInput("it is no JSON object", remedy=_EXAMPLE)
    return body


def _refuse_unknown(body: Mapping[str, Any]) -> None:
    for word in body:
        if word not in _WORDS and word not in _ONLY_TOLD:
            import difflib  # only the mistaken pay for it

            near = difflib.get_close_matches(word, _WORDS, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"a trace knows {', '.join(_WORDS)}"
            raise BadInput(f"there is no word {word[:100]!r} in a trace", remedy=remedy)


# -- one word ----------------------------------------------------------------------------------------------


def _wrong(value: object, word: str, remedy: str) -> BadInput:
    import reprlib

    return BadInput(f"{word} cannot be {reprlib.repr(value)}", remedy=remedy)


def _number(value: object, word: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST_SECONDS:
        raise _wrong(value, word, f"it is a number of seconds from 0 to {_MOST_SECONDS:,.0f}")
    return float(value)


def _limit(value: object, word: str) -> float:
    if not (seconds := _number(value, word)):
        raise _wrong(value, word, "leave it out where there is no limit")
    return seconds


def _moment(value: object, word: str) -> float:
    """Seconds, since the epoch or since anything else; or a moment as the API writes it."""
    if isinstance(value, str):
        try:
            return parse_moment(value, zone=UTC)
        except BadInput:
            raise _wrong(value, word, "write it like 2026-11-15T09:30:00Z, or as seconds") from None
    return _number(value, word)


def _count(least: int, most: float = math.inf) -> Callable[[object, str], int]:
    def read(value: object, word: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            limit = "" if most == math.inf else f" to {most:,}"
            raise _wrong(value, word, f"it is a whole number from {least:,}{limit}")
        return value

    return read


def _share(value: object, word: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _wrong(value, word, "write it like 0.5 or 1/3")
    return parse_share(str(value))


def _text(value: object, word: str) -> str:
    if not isinstance(value, str) or len(value) > 4096:
        raise _wrong(value, word, "it is a short text")
    return value


def _gpu_ids(value: object, word: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and is_gpu_id(one) for one in value):
        raise _wrong(value, word, 'it is a list like ["0", "1"]')
    return tuple(value)


def _after(value: object, word: str) -> tuple[Dependency, ...]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise _wrong(value, word, 'it is a list like [{"job": 12}]')
    return tuple(Dependency(JobId(_count(1)(one.get("job"), "job"))) for one in value)


def _most_of_array(value: object, word: str) -> int | None:
    """So many of the array at once."""
    if not isinstance(value, dict):
        raise _wrong(value, word, 'it is an object like {"most": 2}, with an array_id beside it')
    most = value.get("most")
    return None if most is None else _count(1)(most, "most")


_WORDS: dict[str, Callable[[object, str], Any]] = {
    "id": _count(1),
    "queued_at": _moment,
    "started_at": _moment,
    "seconds": _number,
    "num_gpus": _count(0, 10**6),
    "share": _share,
    "vram_bytes": _count(1, _MOST_BYTES),
    "only": _gpu_ids,
    "prefer": _gpu_ids,
    "gpu_type": _text,
    "cpus": _count(1, 10**6),
    "mem_bytes": _count(1, _MOST_BYTES),
    "time_limit_seconds": _limit,
    "grace_seconds": _number,
    "project": _text,
    "priority": _count(-999_999, 999_999),
    "begin_at": _moment,
    "after": _after,
    "array": _most_of_array,
    "array_id": _count(1),
}
_ONLY_TOLD = ("name", "user", "command", "tags")  # for people; the policy does not ask for them
