"""Routes to the output of jobs: as bytes, as lines, and searched."""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs.daemon.attempts import find_attempt
from dibs.daemon.http.errors import JsonResponse, StrictRoute, errors
from dibs.daemon.logs.lines import MOST as MOST_TEXT
from dibs.daemon.logs.lines import LogFile, LogIndex, SearchResult, SearchText, read_lines, search
from dibs.daemon.logs.output import EMPTY, AttemptOutput, Piece, read, read_output
from dibs.daemon.routes.jobs import AttemptNumber, Number
from dibs.daemon.schemas.requests import StateName
from dibs.engine.launch.browse import BrowsableFolders
from dibs.model.jobs import JobId
from dibs.store.listing import Listing

MOST = 1024**2  # bytes in one response
MOST_LINES = 2_000  # in one response
_MOST_MATCHES = 1_000
_COUNT_FOR = 0.25  # seconds of counting lines for one response; a gigabyte needs several responses
_READ_FOR = 5.0  # seconds
_SEARCH_FOR = 2.0  # seconds
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_INTEGER = {"required": True, "schema": {"type": "integer"}}
_TEXT = {"required": True, "schema": {"type": "string"}}

Stream = Literal["stdout", "stderr"]


class LogLines(TypedDict):
    """Output for display: progress bars folded, long lines cut, holes marked."""

    job: int
    attempt: int  # 0: it has had none
    state: StateName
    first: int | None  # the number of the first line here, from 0; null while the lines are being counted
    lines: list[str]
    total: int | None  # lines; null while they are being counted: ask again
    is_complete: bool  # all lines are here that were asked for, as far as there are that many
    is_open: bool  # the last line has no newline yet: more of it may come
    size: int  # bytes of the file
    cut: str  # `FIRST-END`: bytes that were cut out of its middle


class LogMatch(TypedDict):
    line: int  # its number, from 0
    text: str  # around the match, without colours


class LogMatches(TypedDict):
    matches: list[LogMatch]
    next: int | None  # the line from which to go on; null: that was all
    is_over: bool  # the file was looked through to its end


def log_routes(listing: Listing, results: BrowsableFolders) -> APIRouter:
    """The output as bytes."""
    routes = APIRouter()
    at_once = asyncio.Semaphore(8)

    @routes.get(
        "/v1/jobs/{number}/log",
        response_class=Response,
        responses={
            200: {
                "content": _BYTES,
                "headers": {
                    "Dibs-Offset": _INTEGER,
                    "Dibs-Size": _INTEGER,
                    "Dibs-Attempt": _INTEGER,
                    "Dibs-State": _TEXT,
                    "Dibs-Cut": {
                        "required": False,
                        "schema": {"type": "string"},
                        "description": "FIRST-END: bytes that were cut out of the file's middle and read as NULs",
                    },
                },
            },
            **errors(404, 410, 503),
        },
    )
    async def log(
        number: Number,
        stream: Annotated[Stream, Query()] = "stdout",
        attempt: AttemptNumber = None,
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=0, le=MOST)] = MOST,
        tail: Annotated[int | None, Query(ge=0, le=1_000_000, description="the last so many lines")] = None,
    ) -> Response:
        """Bytes that a job wrote. A client that follows the output asks again from offset + length."""
        output = _output_of(listing, results, number, stream, attempt)
        piece = EMPTY
        if output.path:
            async with at_once:
                piece = await read_output(output.path, lambda: output.read(offset, limit, tail))
        return Response(
            piece.content,
            media_type="application/octet-stream",
            headers={
                "Dibs-Offset": str(piece.offset),
                "Dibs-Size": str(piece.size),
                "Dibs-State": str(output.state),
                "Dibs-Attempt": str(output.attempt),
                **({"Dibs-Cut": str(piece.cut)} if piece.cut.end else {}),
            },
        )

    @routes.get(
        "/v1/jobs/{number}/log/raw",
        response_class=StreamingResponse,
        responses={
            200: {"content": _BYTES, "headers": {"Content-Disposition": _TEXT}},
            **errors(404, 410, 503),
        },
    )
    async def raw(
        number: Number,
        stream: Annotated[Stream, Query()] = "stdout",
        attempt: AttemptNumber = None,
    ) -> Response:
        """All that a job has written so far, as a file to keep. A hole is replaced by a line that names it."""
        output = _output_of(listing, results, number, stream, attempt)
        begin = EMPTY
        if output.path:
            begin = await read_output(output.path, lambda: output.read(0, 0))
        name = f"job-{number}.{'log' if stream == 'stdout' else 'err'}"
        return StreamingResponse(
            _whole(output.path, begin),
            media_type="application/octet-stream",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    return routes


def line_routes(listing: Listing, results: BrowsableFolders) -> APIRouter:
    """The output by lines."""
    routes = APIRouter(route_class=StrictRoute)
    index = LogIndex()
    at_once, searching = asyncio.Semaphore(8), asyncio.Semaphore(2)

    @routes.get("/v1/jobs/{number}/log/lines", responses={200: {"model": LogLines}, **errors(404, 410, 503)})
    async def lines(
        number: Number,
        stream: Annotated[Stream, Query()] = "stdout",
        attempt: AttemptNumber = None,
        first: Annotated[
            int, Query(ge=-MOST_LINES, le=2**53, description="from 0 on; -500: the last 500, whatever `count` is")
        ] = 0,
        count: Annotated[int, Query(ge=0, le=MOST_LINES)] = 500,
    ) -> Response:
        """Lines of a job's output, for display."""
        output = _output_of(listing, results, number, stream, attempt)
        async with at_once:
            found = await read_output(output.path, lambda: _checked_lines(index, output, first, count))
        return JsonResponse({"job": output.job, "attempt": output.attempt, "state": str(output.state), **found})

    @routes.get("/v1/jobs/{number}/log/search", responses={200: {"model": LogMatches}, **errors(404, 410, 503)})
    async def looked_for(
        number: Number,
        q: Annotated[
            str,
            Query(min_length=1, max_length=200, pattern=r"^[^\u0000\r\n]+$", description="in any case"),
        ],
        stream: Annotated[Stream, Query()] = "stdout",
        attempt: AttemptNumber = None,
        first: Annotated[int, Query(ge=0, le=2**53, description="the line to begin with, from 0 on")] = 0,
        limit: Annotated[int, Query(ge=1, le=_MOST_MATCHES)] = 100,
    ) -> Response:
        """Lines of a job's output that contain a text, as many as are found in two seconds."""
        output = _output_of(listing, results, number, stream, attempt)
        async with searching:
            found = await read_output(output.path, lambda: _search(index, output, q, first, limit))
        return JsonResponse(
            {
                "matches": [{"line": one.line, "text": one.text} for one in found.matches],
                "next": found.next,
                "is_over": found.next is None,
            }
        )

    return routes


def _output_of(
    listing: Listing, results: BrowsableFolders, number: int, stream: Stream, attempt: int | None
) -> AttemptOutput:
    """The output of one attempt, the last if none is named."""
    job = listing.row(JobId(number)).job
    row = find_attempt(listing, job.id, attempt)
    if row is None:
        return AttemptOutput(job.id, 0, job.state, "", "")
    folder = row.attempt.folder
    path = results.streams(job, folder, row.attempt.node)[stream == "stderr"]
    return AttemptOutput(job.id, row.attempt.number, job.state, folder, path)


async def _whole(path: str, begin: Piece) -> AsyncIterator[bytes]:
    """The file up to the size that it had at the beginning, in pieces, without its hole."""
    hole, at = begin.cut, 0
    while at < begin.size:
        if hole.first <= at < hole.end:
            yield b"[... %d bytes cut]\n" % (hole.end - hole.first)
            at = hole.end
            continue
        stop = hole.first if at < hole.first else begin.size
        piece = await read_output(path, partial(read, path, at, min(MOST, stop - at), None))
        if not piece.content:
            return  # the file was truncated meanwhile
        yield piece.content
        at += len(piece.content)


def _checked_lines(index: LogIndex, output: AttemptOutput, first: int, count: int) -> dict[str, Any]:
    found = _lines(index, output.path, first, count)
    output.check_exists(found["size"])
    return found


def _lines(index: LogIndex, path: str, first: int, count: int) -> dict[str, Any]:
    now = time.monotonic()
    with index.open(path) as file:
        if file is None:
            return _lines_object(None, 0, [], True)
        file.count(now + _COUNT_FOR)
        if first < 0:
            return _last_lines(file, -first, now + _READ_FOR)
        start = file.start_of(first)
        if start is None:
            return _lines_object(file, first, [], file.is_counted)
        found = read_lines(file, start, count, now + _READ_FOR)
        return _lines_object(file, first, found.lines, len(found.lines) == count or found.is_end)


def _last_lines(file: LogFile, count: int, deadline: float) -> dict[str, Any]:
    """Read from the end, so that the last lines are there before all lines are counted."""
    found = read_lines(file, file.start_of_tail(count, MOST_TEXT), count, deadline, 2 * MOST_TEXT)
    first = None if file.total is None else file.total - len(found.lines)
    return _lines_object(file, first, found.lines, len(found.lines) == count or first == 0)


def _lines_object(file: LogFile | None, first: int | None, lines: list[str], is_complete: bool) -> dict[str, Any]:
    return {
        "first": first,
        "lines": lines,
        "total": file.total if file else 0,
        "is_complete": is_complete,
        "is_open": file is not None and not file.ends_line,
        "size": file.size if file else 0,
        "cut": str(file.cut) if file else "",
    }


def _search(index: LogIndex, output: AttemptOutput, text: str, first: int, limit: int) -> SearchResult:
    with index.open(output.path) as file:
        output.check_exists(file.size if file else 0)
        if file is None:
            return SearchResult([], None)
        return search(file, SearchText(text), first, limit, time.monotonic() + _SEARCH_FOR)
