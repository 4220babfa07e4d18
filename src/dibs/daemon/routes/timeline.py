"""The route to the attempts of a period, for a chart of which job had which GPU."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs.daemon.card_use import CardUseHistory
from dibs.daemon.http.errors import JsonResponse, StrictRoute, errors
from dibs.daemon.schemas.requests import Moment, StateName, read_moment
from dibs.daemon.schemas.responses import moment
from dibs.engine.watch.cards import Cards
from dibs.errors import BadInput
from dibs.model.gpus import Pool
from dibs.model.jobs import OVER, State
from dibs.store.listing import EndedSpan, Span, Spans

MOST = 10_000  # attempts in one response
_DAY = 86_400.0
_AT_ONCE = 500  # jobs looked at before other tasks run
_MOST_LOOKED_AT = 100_000  # jobs that may have run in the period; only their rows say whether they did


class SpanObject(TypedDict):
    """One attempt, as a bar on a time line."""

    job: int
    attempt: int
    name: str
    project: str
    user: str
    gpus: list[int]
    share: float  # of each of them
    node: str  # the machine, where another system ran it
    node_gpus: str  # its cards there: `0,1`
    started_at: Moment
    ended_at: Moment | None
    state: StateName
    cause: str | None


class CardUseObject(TypedDict):
    """A time in which a card of the pool was not this queue's, or in which it was not watched."""

    gpu: str  # its number
    use: Literal["others", "lost", "unknown"]
    since_at: Moment
    until_at: Moment


class Timeline(TypedDict):
    since_at: Moment | None
    until_at: Moment | None
    attempts: list[SpanObject]
    cards: list[CardUseObject]
    is_partial: bool  # there were more: the oldest are left out


def timeline_routes(spans: Spans, cards: Cards, card_use: CardUseHistory, user: str) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.get("/v1/timeline", responses={200: {"model": Timeline}, **errors(503)})
    async def timeline(
        since: Annotated[
            str, Query(max_length=60, description="RFC 3339, or seconds since the epoch; a day before `until`")
        ] = "",
        until: Annotated[str, Query(max_length=60, description="the same; now if left out")] = "",
        limit: Annotated[int, Query(ge=1, le=MOST)] = MOST,
    ) -> Response:
        """The attempts that ran in a period, by default the last day, in the order in which they began."""
        end = read_moment(until, "until") if until else time.time()
        begin = read_moment(since, "since") if since else end - _DAY
        if begin > end:
            raise BadInput("`since` is later than `until`", remedy="exchange them")
        search = TimelineSearch(spans, begin, end, limit)
        await search.run()
        attempts = []
        for at in range(0, len(search.found), _AT_ONCE):
            attempts += [_object(span, user) for span in search.found[at : at + _AT_ONCE]]
            await asyncio.sleep(0)
        return JsonResponse(
            {
                "since_at": moment(begin),
                "until_at": moment(end),
                "attempts": attempts,
                "cards": _card_uses(card_use, cards.pool, begin, min(end, time.time())),
                "is_partial": search.is_partial,
            }
        )

    return routes


class TimelineSearch:
    """Finds the attempts of a period. Those that ended last are found first, so that the oldest are left out."""

    def __init__(self, spans: Spans, since: float, until: float, limit: int) -> None:
        self.found: list[Span] = []
        self.is_partial = False
        self._spans = spans
        self._since = since
        self._until = until
        self._limit = limit
        self._left_to_look_at = _MOST_LOOKED_AT

    async def run(self) -> None:
        found = self._spans.running(self._since, self._until)
        async for some in self._later():
            found += some
        async for some in self._waiting_again():
            found += some
        since = self._since
        for state in OVER:
            count = 0
            async for some, ended_at in self._within(state, since):
                found += some
                count += len(some)
                if count > self._limit:
                    self.is_partial = True
                    since = ended_at  # attempts that ended before would be left out anyway
                    break
        if len(found) > self._limit:
            self.is_partial = True
            found.sort(key=_end, reverse=True)
            del found[self._limit :]
        found.sort(key=lambda span: (span.started_at, span.job))
        self.found = found

    async def _within(self, state: State, since: float) -> AsyncIterator[tuple[list[Span], float]]:
        """Attempts of jobs that ended in the period, and when the last of these jobs ended."""
        place = EndedSpan(self._until, 2**62)
        while jobs := self._spans.ended_before(state, place, since, _AT_ONCE):
            place = jobs[-1]
            yield self._of([one.job for one in jobs]), place.at
            await asyncio.sleep(0)

    async def _later(self) -> AsyncIterator[list[Span]]:
        """Attempts of jobs that ended after the period: a long one may have begun before."""
        for state in OVER:
            place = EndedSpan(self._until, 2**62)
            while jobs := self._spans.ended_after(state, place, self._look_at()):
                yield self._of([one.job for one in jobs])
                place = jobs[-1]
                await asyncio.sleep(0)

    async def _waiting_again(self) -> AsyncIterator[list[Span]]:
        """Attempts of jobs that wait to be tried again."""
        for state in (State.QUEUED, State.HELD, State.SUBMITTED):
            above = 0
            while jobs := self._spans.waiting(state, above, self._look_at()):
                yield self._of(jobs)
                above = jobs[-1]
                await asyncio.sleep(0)

    def _look_at(self) -> int:
        """How many more jobs may be looked at. If none, the result is marked as partial."""
        portion = min(_AT_ONCE, self._left_to_look_at)
        self._left_to_look_at -= portion
        self.is_partial = self.is_partial or not portion
        return portion

    def _of(self, jobs: list[int]) -> list[Span]:
        return self._spans.of(jobs, self._since, self._until)


def _end(span: Span) -> float:
    return math.inf if span.ended_at is None else span.ended_at


def _card_uses(card_use: CardUseHistory, pool: Pool, since: float, until: float) -> list[dict[str, Any]]:
    numbers = {card.gpu.key: card.gpu.number for card in pool.cards}
    return [
        {
            "gpu": numbers[span.key],
            "use": span.use,
            "since_at": moment(span.since),
            "until_at": moment(span.until),
        }
        for span in card_use.spans(numbers, since, until)
    ]


def _object(span: Span, user: str) -> dict[str, Any]:
    return {
        "job": span.job,
        "attempt": span.attempt,
        "name": span.name,
        "project": span.project,
        "user": user,
        "gpus": list(span.gpus),
        "share": float(span.share),
        "node": span.node,
        "node_gpus": span.node_gpus,
        "started_at": moment(span.started_at),
        "ended_at": moment(span.ended_at),
        "state": str(span.state),
        "cause": span.cause,
    }
