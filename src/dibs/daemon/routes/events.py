"""The stream of events: server-sent, numbered, so that a reader who comes back misses nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from dibs.daemon.app_state import Desk
from dibs.daemon.http.errors import encode, errors
from dibs.daemon.schemas.serializers import moment
from dibs.errors import DibsError
from dibs.store.eventlog import EventRow

_HEARTBEAT = 15.0  # seconds
_PAUSE = 0.02  # seconds between two batches: a thousand jobs a second are not a thousand writes a second


class TooManyStreams(DibsError):
    """As many readers as we can serve are listening already."""

    code = "too-many-streams"


def events_routes(desk: Desk) -> APIRouter:
    routes = APIRouter()
    open_streams: set[object] = set()

    @routes.get(
        "/v1/events",
        response_class=StreamingResponse,
        responses={
            200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
            **errors(503),
        },
    )
    async def events(
        since: Annotated[int | None, Query(ge=0, le=2**53, description="events after this one")] = None,
        last_event_id: Annotated[str | None, Header(max_length=20)] = None,
    ) -> Response:
        """What happens from now on, or after the event that is named by `since` or Last-Event-ID.

        A reader that was away for so long that events were forgotten first gets an `events.missed` without an id.
        """
        if len(open_streams) >= desk.most_streams:
            raise TooManyStreams(
                f"{len(open_streams)} readers listen already, more are not served",
                remedy="close one of them, or ask again later",
            )
        begin = _begin(since, last_event_id)
        mark = object()
        open_streams.add(mark)  # before the first write: whoever comes meanwhile must count it
        try:
            stream = _Stream(desk, desk.store.events.last_id if begin is None else begin)
            return _Counted(stream.lines(), lambda: open_streams.discard(mark))
        except BaseException:
            open_streams.discard(mark)
            raise

    return routes


class _Stream:
    def __init__(self, desk: Desk, after: int) -> None:
        self._desk = desk
        self._after = after

    async def lines(self) -> AsyncIterator[bytes]:
        """Reads from the store as fast as its reader does, so nothing piles up for one who does not read."""
        news = self._desk.news
        yield b": here\n\n"
        first = self._desk.store.events.first_id
        if self._after and self._after + 1 < first:
            # It was away for so long that old events were forgotten meanwhile: it must look for itself.
            yield b"event: events.missed\ndata: %s\n\n" % encode({"kind": "events.missed", "first": first})
        while not news.is_closed:
            rows = news.since(self._after)
            if rows:
                self._after = rows[-1].id
                yield b"".join(map(_written, rows))
                await asyncio.sleep(_PAUSE)
                continue
            before = asyncio.get_running_loop().time()
            await news.something(_HEARTBEAT)
            if asyncio.get_running_loop().time() - before >= _HEARTBEAT:
                yield b": still here\n\n"


class _Counted(StreamingResponse):
    """A stream that says when it is over, however it ends."""

    def __init__(self, content: AsyncIterator[bytes], over: Any) -> None:
        super().__init__(content, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._over = over

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._over()


def _begin(since: int | None, last_event_id: str | None) -> int | None:
    """A reader that was cut off sends the number it saw last; that is newer than what it began with."""
    if last_event_id and last_event_id.isascii() and last_event_id.isdigit():
        return min(int(last_event_id), 2**53)
    return since


def _told(body: dict[str, Any]) -> dict[str, Any]:
    """What was recorded, with moments as people and other programs write them."""
    return {
        key: moment(value) if key.endswith("_at") else _told(value) if key == "trial" else value
        for key, value in body.items()
    }


def _written(row: EventRow) -> bytes:
    body = {**_told(row.body), "id": row.id, "at": moment(row.at), "kind": row.kind, "job": row.job}
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (row.id, row.kind.encode(), encode(body))
