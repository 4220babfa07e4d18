"""Traces that nobody recorded: days and quarrels made from a seed, the same each time."""

import math
import random
from collections.abc import Callable
from fractions import Fraction

from dibs.model.jobs import Command, Job, JobId, Request, Wishes
from dibs.simulate.machine import Arrival

COMMAND = Command.exact(["true"])  # nobody runs it
_DAY = 86400.0
_LIMITS = (600.0, 1800.0, 3600.0, 2 * 3600.0, 4 * 3600.0, 8 * 3600.0, 24 * 3600.0)  # what people write behind -t
_LOAD = 0.65  # of the GPU-time of the day: in the afternoon they want all there is
_PROJECTS = {"vision": 40, "speech": 30, "robots": 20, "theses": 10}
_WIDTHS = {(1, None): 55, (1, Fraction(1, 2)): 25, (2, None): 12, (4, None): 6, (8, None): 2}


def make(kind: str, *, jobs: int, gpus: int, seed: int) -> list[Arrival]:
    """The made trace of that kind, for a machine of so many GPUs."""
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
        limit = None if chance.random() < 1 / 3 else _limit(seconds)
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
        found.append(_arrival(number, at, seconds, num_gpus=num_gpus, limit=_limit(seconds)))
        # So fast that 65 % of the GPU-time is asked for.
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


def _limit(seconds: float) -> float:
    """What somebody who knows the job well asks for."""
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
