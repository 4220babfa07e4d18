"""Attempts by the time in which they ran. No index knows them by it, so they are found by way of their jobs."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dibs.model.jobs import Cause, Outcome, State

_SPAN = "a.job, a.number, jobs.name, jobs.project, a.claims, a.opened_at, a.ended_at, a.cause, a.node, a.node_gpus"
_HAS_ENDED = "ended_at is not null"  # said for the index, which knows only these
# What was only handed to another system has not run.
_OVERLAPS = "a.opened_at <= ? and coalesce(a.ended_at, ?) >= ? and (a.backend = '' or a.node <> '')"


@dataclass(frozen=True, slots=True)
class Span:
    """One attempt, as a bar on a time line."""

    job: int
    attempt: int
    name: str
    project: str
    gpus: tuple[int, ...]
    started_at: float
    ended_at: float | None  # None while it runs
    state: State
    cause: str | None
    node: str = ""  # the machine, where another system ran it
    node_gpus: str = ""  # its cards there


@dataclass(frozen=True, slots=True)
class EndedSpan:
    """A job that is over; the place of a reader who goes through them."""

    at: float
    job: int


class Spans:
    """Reads only. Each question looks at as many jobs as it is told, so that others are not held up."""

    def __init__(self, ask: Callable[..., list[Any]]) -> None:
        self._ask = ask

    def running(self, since: float, until: float) -> list[Span]:
        """Of jobs that run now, earlier attempts too."""
        rows = self._ask(
            f"select {_SPAN} from jobs join attempts as a on a.job = jobs.id"
            f" where jobs.state = 'running' and {_OVERLAPS}",
            (until, until, since),
        )
        return [_span(row) for row in rows]

    def ended_before(self, state: State, place: EndedSpan, since: float, limit: int) -> list[EndedSpan]:
        """Jobs that ended before this place and not before `since`, the last one first."""
        rows = self._ask(
            f"select ended_at, id from jobs where state = ? and {_HAS_ENDED} and (ended_at, id) < (?, ?)"
            " and ended_at >= ?"
            " order by ended_at desc, id desc limit ?",
            (state, place.at, place.job, since, limit),
        )
        return [EndedSpan(*row) for row in rows]

    def ended_after(self, state: State, place: EndedSpan, limit: int) -> list[EndedSpan]:
        """Jobs that ended after this place, the first one first."""
        rows = self._ask(
            f"select ended_at, id from jobs where state = ? and {_HAS_ENDED} and (ended_at, id) > (?, ?)"
            " order by ended_at, id limit ?",
            (state, place.at, place.job, limit),
        )
        return [EndedSpan(*row) for row in rows]

    def waiting(self, state: State, above: int, limit: int) -> list[int]:
        """Numbers of queued or held jobs above this one, whether or not they have run before."""
        rows = self._ask(
            "select id from jobs where state = ? and id > ? order by id limit ?", (state, above, limit)
        )
        return [number for (number,) in rows]

    def of(self, jobs: Sequence[int], since: float, until: float) -> list[Span]:
        """The attempts of these jobs that ran in this time."""
        rows = self._ask(
            f"select {_SPAN} from jobs join attempts as a on a.job = jobs.id"
            " where jobs.id in (select value from json_each(?)) and jobs.attempts > 0 and jobs.queued_at <= ?"
            f" and {_OVERLAPS}",
            (json.dumps(jobs), until, until, until, since),
        )
        return [_span(row) for row in rows]


def _span(row: Any) -> Span:
    job, number, name, project, claims, opened_at, ended_at, cause, node, node_gpus = row
    state = State.RUNNING if ended_at is None else _state(cause)
    return Span(job, number, name, project, _gpus(claims), opened_at, ended_at, state, cause, node, node_gpus)


@lru_cache(1024)
def _gpus(claims: str) -> tuple[int, ...]:
    """The places of the cards; the rest of a claim is not decoded for ten thousand bars."""
    try:
        return tuple(claim[1] for claim in json.loads(claims))
    except (ValueError, TypeError, IndexError):
        return ()


@lru_cache(64)
def _state(cause: str | None) -> State:
    return Outcome(cause=Cause(cause) if cause else None).state
