"""Traces: JSON lines with one job each, as from `dibs export`, or generated from a seed."""

import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from fractions import Fraction
from typing import IO, Any

from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.model.fields import BY_KEY
from dibs.model.jobs import ArrayTask, Command, Dependency, Job, JobId, Request, Wishes, with_values
from dibs.model.units import is_gpu_id, parse_moment, parse_share
from dibs.simulate.machine import Arrival

_LONGEST_LINE = 4 << 20  # bytes
_MOST_BYTES = 1 << 60
_MOST_SECONDS = 100 * 365 * 86400.0
_EXAMPLE = 'a line is like {"queued_at": 0, "seconds": 600, "num_gpus": 2}'


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in the order of their arrival; the first arrives at 0."""

    arrivals: Sequence[Arrival]
    left_out: int = 0  # recorded jobs that have not run to an end


def read_trace(lines: Iterable[bytes]) -> Trace:
    """The trace in these lines; BadInput with the number of the line for an invalid one."""
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
    """The lines of a file; a line that is too long is cut, so that it is refused."""
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
    if "state" not in body:  # a recorded line may have other keys, also those of newer versions
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
    """The jobs by age, numbered from 1, with times relative to the first of them."""
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
        if request.after:  # jobs that are not in the trace were over before it began
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
    """GPU numbers instead of recorded UUIDs. The simulated cards are identical, so any numbers are right."""
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
            import difflib  # only needed for an error

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
    """How many tasks of the array run at once."""
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
_ONLY_TOLD = ("name", "user", "command", "tags")  # not used by the policy


COMMAND = Command.exact(["true"])  # never run
_DAY = 86400.0
_LIMITS = (600.0, 1800.0, 3600.0, 2 * 3600.0, 4 * 3600.0, 8 * 3600.0, 24 * 3600.0)  # usual values of -t
_LOAD = 0.65  # of the GPU time of the day: in the afternoon all GPUs are wanted
_PROJECTS = {"vision": 40, "speech": 30, "robots": 20, "theses": 10}
_WIDTHS = {(1, None): 55, (1, Fraction(1, 2)): 25, (2, None): 12, (4, None): 6, (8, None): 2}


def make(kind: str, *, jobs: int, gpus: int, seed: int) -> list[Arrival]:
    """The generated trace of that kind, for a machine with so many GPUs."""
    return KINDS[kind](jobs, gpus, random.Random(f"{kind} {seed}"))


def _a_day(jobs: int, gpus: int, chance: random.Random) -> list[Arrival]:
    """Four projects, jobs of all widths, most of them by day, a third of them without a time limit."""
    moments = sorted(_by_day(chance) for _ in range(jobs))
    widths = [width for width in _WIDTHS if width[0] <= gpus]
    wishes = chance.choices(widths, [_WIDTHS[width] for width in widths], k=jobs)
    lengths = [chance.lognormvariate(0.0, 1.3) for _ in range(jobs)]
    asked = sum(
        length * num_gpus * float(share or 1) for length, (num_gpus, share) in zip(lengths, wishes, strict=True)
    )
    scale = _LOAD * gpus * _DAY / asked if asked else 1.0
    projects = chance.choices(list(_PROJECTS), list(_PROJECTS.values()), k=jobs)
    found = []
    for number, (at, (num_gpus, share), length, project) in enumerate(
        zip(moments, wishes, lengths, projects, strict=True), 1
    ):
        seconds = min(max(10.0, length * scale), 20 * 3600.0)
        limit = None if chance.random() < 1 / 3 else _usual_limit(seconds)
        found.append(
            _arrival(
                number, at - moments[0], seconds, num_gpus=num_gpus, share=share, limit=limit, project=project
            )
        )
    return found


def _wide_jobs(jobs: int, gpus: int, chance: random.Random) -> list[Arrival]:
    """One job in twenty wants every GPU for about an hour; the others one, for minutes or for hours."""
    found, at = [], 0.0
    for number in range(1, jobs + 1):
        if number % 20 == 0:
            num_gpus, seconds = gpus, chance.uniform(2400, 3600)
        elif chance.random() < 0.2:
            num_gpus, seconds = 1, chance.uniform(2 * 3600, 4 * 3600)
        else:
            num_gpus, seconds = 1, chance.uniform(120, 900)
        found.append(_arrival(number, at, seconds, num_gpus=num_gpus, limit=_usual_limit(seconds)))
        # At a rate that needs 65 % of the GPU time.
        at += chance.expovariate(_LOAD * gpus / (0.05 * gpus * 3000 + 0.19 * 10800 + 0.76 * 510))
    return found


def _rivals(jobs: int, gpus: int, chance: random.Random) -> list[Arrival]:
    """One project queues half of the jobs at once, and another the other half a minute later."""
    return [
        _arrival(number, 0.0 if number <= jobs // 2 else 60.0, chance.uniform(300, 900), project=project)
        for number in range(1, jobs + 1)
        for project in ("early" if number <= jobs // 2 else "late",)
    ]


def _halves(jobs: int, gpus: int, chance: random.Random) -> list[Arrival]:
    """Jobs that each need half a card, all at once."""
    return [_arrival(number, 0.0, chance.uniform(300, 900), share=Fraction(1, 2)) for number in range(1, jobs + 1)]


def _arrival(
    number: int,
    at: float,
    seconds: float,
    *,
    num_gpus: int = 1,
    share: Fraction | None = None,
    limit: float | None = None,
    project: str = "",
) -> Arrival:
    request = Request(
        command=COMMAND, wishes=Wishes(num_gpus=num_gpus, share=share), time_limit=limit, project=project
    )
    return Arrival(
        job=Job(id=JobId(number), request=request), queued_at=float(round(at)), seconds=float(round(seconds))
    )


def _usual_limit(seconds: float) -> float:
    """The time limit of a user who knows the job well."""
    return next((limit for limit in _LIMITS if limit >= 1.2 * seconds), _LIMITS[-1])


def _by_day(chance: random.Random) -> float:
    """A moment of the day: three times as likely at three in the afternoon as at three in the morning."""
    while True:
        at = chance.uniform(0, _DAY)
        if chance.random() < (2 - math.cos((at / _DAY - 3 / 24) * 2 * math.pi)) / 3:
            return at


KINDS: dict[str, Callable[[int, int, random.Random], list[Arrival]]] = {
    "day": _a_day,
    "wide": _wide_jobs,
    "rivals": _rivals,
    "halves": _halves,
}
