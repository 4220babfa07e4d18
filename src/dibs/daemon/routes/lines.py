"""The routes to a job's output by lines: some of them by their numbers, and those in which a text stands."""

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from dibs.daemon.app_state import Desk
from dibs.daemon.http.errors import Answer, StrictRoute, errors
from dibs.daemon.logs.index import LogFile, LogIndex
from dibs.daemon.logs.search import Found, Wanted, search
from dibs.daemon.logs.text import MOST, take
from dibs.daemon.routes.jobs import AttemptNumber, Number
from dibs.daemon.routes.logs import Output, Stream, output_of, read_aside
from dibs.daemon.schemas import responses as objects

MOST_LINES = 2_000  # in one answer
_MOST_MATCHES = 1_000
_COUNTING = 0.25  # seconds of it for one answer; a gigabyte needs a few of them
_READING = 5.0  # seconds
_SEARCHING = 2.0  # seconds


def lines_routes(desk: Desk) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)
    index = LogIndex()
    at_once, searching = asyncio.Semaphore(8), asyncio.Semaphore(2)

    @routes.get(
        "/v1/jobs/{number}/log/lines", responses={200: {"model": objects.LogLines}, **errors(404, 410, 503)}
    )
    async def lines(
        number: Number,
        stream: Annotated[Stream, Query()] = "stdout",
        attempt: AttemptNumber = None,
        first: Annotated[
            int, Query(ge=-MOST_LINES, le=2**53, description="from 0 on; -500: the last 500, whatever `count` is")
        ] = 0,
        count: Annotated[int, Query(ge=0, le=MOST_LINES)] = 500,
    ) -> Response:
        """Lines of a job's output, as people read them."""
        output = output_of(desk, number, stream, attempt)
        async with at_once:
            found = await read_aside(output.path, lambda: _told(index, output, first, count))
        return Answer({"job": output.job, "attempt": output.attempt, "state": str(output.state), **found})

    @routes.get(
        "/v1/jobs/{number}/log/search", responses={200: {"model": objects.LogMatches}, **errors(404, 410, 503)}
    )
    async def looked_for(
        number: Number,
        q: Annotated[
            str,
            Query(min_length=1, max_length=200, pattern=r"^[^\u0000\r\n]+$", description="small or large letters"),
        ],
        stream: Annotated[Stream, Query()] = "stdout",
        attempt: AttemptNumber = None,
        first: Annotated[int, Query(ge=0, le=2**53, description="the line to begin with, from 0 on")] = 0,
        limit: Annotated[int, Query(ge=1, le=_MOST_MATCHES)] = 100,
    ) -> Response:
        """Lines of a job's output in which a text stands, as many as are found in two seconds."""
        output = output_of(desk, number, stream, attempt)
        async with searching:
            found = await read_aside(output.path, lambda: _found(index, output, q, first, limit))
        return Answer(
            {
                "matches": [{"line": one.line, "text": one.text} for one in found.matches],
                "next": found.next,
                "is_over": found.next is None,
            }
        )

    return routes


def _told(index: LogIndex, output: Output, first: int, count: int) -> dict[str, Any]:
    found = _lines(index, output.path, first, count)
    output.check_is_there(found["size"])
    return found


def _lines(index: LogIndex, path: str, first: int, count: int) -> dict[str, Any]:
    now = time.monotonic()
    with index.open(path) as file:
        if file is None:
            return _answer(None, 0, [], True)
        file.count(now + _COUNTING)
        if first < 0:
            return _last(file, -first, now + _READING)
        start = file.start_of(first)
        if start is None:
            return _answer(file, first, [], file.is_counted)
        taken = take(file, start, count, now + _READING)
        return _answer(file, first, taken.lines, len(taken.lines) == count or taken.is_end)


def _last(file: LogFile, count: int, deadline: float) -> dict[str, Any]:
    """Read from the end: the last lines are there before all are counted."""
    taken = take(file, file.start_of_tail(count, MOST), count, deadline, 2 * MOST)
    first = None if file.total is None else file.total - len(taken.lines)
    return _answer(file, first, taken.lines, len(taken.lines) == count or first == 0)


def _answer(file: LogFile | None, first: int | None, lines: list[str], is_complete: bool) -> dict[str, Any]:
    return {
        "first": first,
        "lines": lines,
        "total": file.total if file else 0,
        "is_complete": is_complete,
        "is_open": file is not None and not file.ends_line,
        "size": file.size if file else 0,
        "cut": str(file.cut) if file else "",
    }


def _found(index: LogIndex, output: Output, text: str, first: int, limit: int) -> Found:
    with index.open(output.path) as file:
        output.check_is_there(file.size if file else 0)
        if file is None:
            return Found([], None)
        return search(file, Wanted(text), first, limit, time.monotonic() + _SEARCHING)
