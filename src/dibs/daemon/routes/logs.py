"""The routes to a job's output as bytes."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from dibs.daemon.app_state import Desk
from dibs.daemon.http.errors import errors
from dibs.daemon.logs.index import Cut, open_output, read_cut
from dibs.daemon.logs.pruning import was_removed
from dibs.daemon.routes.jobs import AttemptNumber, Number
from dibs.daemon.worker_thread import aside
from dibs.errors import LogGone, StoreUnusable
from dibs.model.jobs import JobId, State

MOST = 1024**2  # bytes in one answer
_BLOCK = 65536
_PATIENCE = 10.0  # seconds; a file may lie on a network that does not answer
Stream = Literal["stdout", "stderr"]
_T = TypeVar("_T")
_HEADER = {"required": True, "schema": {"type": "integer"}}


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file, where they begin, and how large it was."""

    content: bytes
    offset: int
    size: int
    cut: Cut


_NOTHING = Piece(b"", 0, 0, Cut())


def log_routes(desk: Desk) -> APIRouter:
    routes = APIRouter()
    at_once = asyncio.Semaphore(8)

    @routes.get(
        "/v1/jobs/{number}/log",
        response_class=Response,
        responses={
            200: {
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
                "headers": {
                    "Dibs-Offset": _HEADER,
                    "Dibs-Size": _HEADER,
                    "Dibs-Attempt": _HEADER,
                    "Dibs-State": {"required": True, "schema": {"type": "string"}},
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
        """Bytes that a job wrote. A reader that follows asks again from offset + length."""
        output = output_of(desk, number, stream, attempt)
        piece = _NOTHING
        if output.path:
            async with at_once:
                piece = await read_aside(
                    output.path, lambda: output.checked(read(output.path, offset, limit, tail))
                )
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
            200: {
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
                "headers": {"Content-Disposition": {"required": True, "schema": {"type": "string"}}},
            },
            **errors(404, 410, 503),
        },
    )
    async def raw(
        number: Number,
        stream: Annotated[Stream, Query()] = "stdout",
        attempt: AttemptNumber = None,
    ) -> Response:
        """All that a job has written until now, as a file to keep. What was cut out is named in its place."""
        output = output_of(desk, number, stream, attempt)
        begin = _NOTHING
        if output.path:
            begin = await read_aside(output.path, lambda: output.checked(read(output.path, 0, 0, None)))
        name = f"job-{number}.{'log' if stream == 'stdout' else 'err'}"
        return StreamingResponse(
            _whole(output.path, begin),
            media_type="application/octet-stream",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    return routes


@dataclass(frozen=True, slots=True)
class Output:
    """Where an attempt writes, and how its job stands."""

    job: int
    attempt: int  # 0: it has had none
    state: State
    folder: str
    path: str  # empty where there is nothing yet

    def check_is_there(self, size: int) -> None:
        """LogGone where there is nothing because it was removed. Beside the loop: this looks into the folder."""
        if not size and was_removed(self.folder):
            raise LogGone(self.job)

    def checked(self, piece: Piece) -> Piece:
        self.check_is_there(piece.size)
        return piece


def output_of(desk: Desk, number: int, stream: Stream, attempt: int | None) -> Output:
    """What one attempt wrote, the last if none is named."""
    job = desk.store.listing.row(JobId(number)).job
    row = desk.attempt(job.id, attempt)
    if row is None:
        return Output(job.id, 0, job.state, "", "")
    folder = row.attempt.folder
    path = desk.results.streams(job, folder)[stream == "stderr"]
    return Output(job.id, row.attempt.number, job.state, folder, path)


def read(path: str, offset: int, limit: int, tail: int | None) -> Piece:
    """A piece of a file. What is not there yet, or not there any more, is empty; so is a pipe or a device."""
    with open_output(path) as fd:
        if fd is None:
            return _NOTHING
        seen = os.fstat(fd).st_size
        if tail is not None:
            offset = _start_of_tail(fd, seen, tail, limit)
        content = os.pread(fd, limit, offset)
        # It may have grown since; whoever follows must not believe that it became smaller.
        size = max(seen, offset + len(content) if content else 0)
        return Piece(content, min(offset, seen), size, read_cut(path, size))


def _start_of_tail(fd: int, size: int, lines: int, limit: int) -> int:
    """Where the last lines begin, but not further back than `limit` bytes."""
    lowest = max(0, size - limit)
    if not lines:
        return size
    start, left = size, lines
    # The newline at the very end closes the last line, it does not begin another one.
    if size and os.pread(fd, 1, size - 1) == b"\n":
        left += 1
    while start > lowest:
        begin = max(lowest, start - _BLOCK)
        block = os.pread(fd, start - begin, begin)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            left -= 1
            if not left:
                return begin + at + 1
        start = begin
    return lowest


async def _whole(path: str, begin: Piece) -> AsyncIterator[bytes]:
    """The file as long as it was at the beginning, in pieces, without its hole."""
    hole, at = begin.cut, 0
    while at < begin.size:
        if hole.first <= at < hole.end:
            yield b"[... %d bytes cut]\n" % (hole.end - hole.first)
            at = hole.end
            continue
        stop = hole.first if at < hole.first else begin.size
        piece = await read_aside(path, partial(read, path, at, min(MOST, stop - at), None))
        if not piece.content:
            return  # it was made shorter meanwhile
        yield piece.content
        at += len(piece.content)


async def read_aside(path: str, work: Callable[[], _T]) -> _T:
    """What this work on a file gives; StoreUnusable where its disk does not answer."""
    try:
        return await aside(work, _PATIENCE, "log-reader")
    except TimeoutError:
        raise StoreUnusable(f"cannot read {path}: its disk does not answer", remedy="try again later") from None
    except OSError as error:
        raise StoreUnusable(f"cannot read {path}: {error.strerror}", remedy="try again later") from error
