"""The route to the attempts of a period, for a chart of which job had which GPU."""

import asyncio
import math
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs.daemon.attempt_search import AT_ONCE, AttemptSearch
from dibs.daemon.http.errors import JsonResponse, StrictRoute, errors
from dibs.daemon.schemas.requests import Moment, StateName, read_moment
from dibs.daemon.schemas.responses import moment
from dibs.engine.watch.card_history import CardHistory
from dibs.engine.watch.cards import Cards
from dibs.errors import BadInput
from dibs.model.gpus import Pool
from dibs.model.jobs import OVER
from dibs.store.listing import Span, Spans

MOST = 10_000  # attempts in one response
_DAY = 86_400.0


class StillObject(TypedDict):
    """A time in which an attempt stood still."""

    since_at: Moment
    until_at: Moment | None  # null: it still does
    frees_cards: bool  # others could have its cards meanwhile


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
    suspended: list[StillObject]  # the oldest first


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


def timeline_routes(spans: Spans, cards: Cards, history: CardHistory, user: str) -> APIRouter:
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
        for at in range(0, len(search.found), AT_ONCE):
            attempts += [_object(span, user) for span in search.found[at : at + AT_ONCE]]
            await asyncio.sleep(0)
        return JsonResponse(
            {
                "since_at": moment(begin),
                "until_at": moment(end),
                "attempts": attempts,
                "cards": _card_uses(history, cards.pool, begin, min(end, time.time())),
                "is_partial": search.is_partial,
            }
        )

    return routes


class TimelineSearch:
    """Finds the attempts of a period. Those that ended last are found first, so that the oldest are left out."""

    def __init__(self, spans: Spans, since: float, until: float, limit: int) -> None:
        self.found: list[Span] = []
        self._search = AttemptSearch(spans, since, until)
        self._since = since
        self._limit = limit
        self._is_cut = False

    @property
    def is_partial(self) -> bool:
        return self._is_cut or self._search.is_partial

    async def run(self) -> None:
        found: list[Span] = []
        async for some in self._search.not_over_in_time():
            found += some
        since = self._since
        for state in OVER:
            count = 0
            async for some, ended_at in self._search.ended_in_time(state, since):
                found += some
                count += len(some)
                if count > self._limit:
                    self._is_cut = True
                    since = ended_at  # attempts that ended before would be left out anyway
                    break
        if len(found) > self._limit:
            self._is_cut = True
            found.sort(key=_end, reverse=True)
            del found[self._limit :]
        found.sort(key=lambda span: (span.started_at, span.job))
        self.found = found


def _end(span: Span) -> float:
    return math.inf if span.ended_at is None else span.ended_at


def _card_uses(history: CardHistory, pool: Pool, since: float, until: float) -> list[dict[str, Any]]:
    numbers = {card.gpu.key: card.gpu.number for card in pool.cards}
    return [
        {
            "gpu": numbers[span.key],
            "use": span.use,
            "since_at": moment(span.since),
            "until_at": moment(span.until),
        }
        for span in history.uses(numbers, since, until)
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
        "suspended": [
            {"since_at": moment(one.since), "until_at": moment(one.until), "frees_cards": one.frees_cards}
            for one in span.suspended
        ],
    }
