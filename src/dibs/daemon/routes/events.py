"""The stream of server-sent events, numbered so that a client that reconnects misses nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from dibs.daemon.app_state import EventFeed
from dibs.daemon.http.errors import encode, errors
from dibs.daemon.http.server import most_connections
from dibs.daemon.schemas.responses import moment
from dibs.errors import DibsError
from dibs.store.store import EventLog, EventRow

_HEARTBEAT = 15.0  # seconds
_PAUSE = 0.02  # seconds between two batches, so that a thousand jobs a second are not a thousand writes a second


_MOST_STREAMS = 64


class TooManyStreams(DibsError):
    """The largest number of event streams is open already."""

    code = "too-many-streams"


def event_routes(events: EventLog, feed: EventFeed) -> APIRouter:
    routes = APIRouter()
    most_streams = min(_MOST_STREAMS, most_connections() // 2)
    open_streams: set[object] = set()

    @routes.get(
        "/v1/events",
        response_class=StreamingResponse,
        responses={
            200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
            **errors(503),
        },
    )
    async def stream(
        since: Annotated[int | None, Query(ge=0, le=2**53, description="events after this one")] = None,
        last_event_id: Annotated[str | None, Header(max_length=20)] = None,
    ) -> Response:
        """The events from now on, or after the event that `since` or Last-Event-ID names.

        A client that reconnects after events were deleted first gets an `events.missed` without an id.
        """
        if len(open_streams) >= most_streams:
            raise TooManyStreams(
                f"{len(open_streams)} event streams are open, and no more are allowed",
                remedy="close one of them, or ask again later",
            )
        begin = _begin(since, last_event_id)
        mark = object()
        open_streams.add(mark)  # before the first write, so that a request in the meantime counts it
        try:
            lines = EventStream(events, feed, events.last_id if begin is None else begin).lines()
            return _CountedStream(lines, lambda: open_streams.discard(mark))
        except BaseException:
            open_streams.discard(mark)
            raise

    return routes


class EventStream:
    """The events of one client."""

    def __init__(self, events: EventLog, feed: EventFeed, after: int) -> None:
        self._events = events
        self._feed = feed
        self._after = after

    async def lines(self) -> AsyncIterator[bytes]:
        """Read from the store as fast as the client does, so nothing piles up for one that does not read."""
        yield b": here\n\n"
        first = self._events.first_id
        if self._after and self._after + 1 < first:
            # Events that it has not seen were deleted: it must read the state again.
            yield b"event: events.missed\ndata: %s\n\n" % encode({"kind": "events.missed", "first": first})
        while not self._feed.is_closed:
            rows = self._feed.since(self._after)
            if rows:
                self._after = rows[-1].id
                yield b"".join(map(_written, rows))
                await asyncio.sleep(_PAUSE)
                continue
            before = asyncio.get_running_loop().time()
            await self._feed.wait(_HEARTBEAT)
            if asyncio.get_running_loop().time() - before >= _HEARTBEAT:
                yield b": still here\n\n"


class _CountedStream(StreamingResponse):
    """A stream that calls a function when it is over, however it ends."""

    def __init__(self, content: AsyncIterator[bytes], over: Any) -> None:
        super().__init__(content, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._over = over

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._over()


def _begin(since: int | None, last_event_id: str | None) -> int | None:
    """A client that reconnects sends the last number it saw, which is newer than the `since` it began with."""
    if last_event_id and last_event_id.isascii() and last_event_id.isdigit():
        return min(int(last_event_id), 2**53)
    return since


def _body(body: dict[str, Any]) -> dict[str, Any]:
    """The recorded event, with its moments in RFC 3339."""
    return {
        key: moment(value) if key.endswith("_at") else _body(value) if key == "trial" else value
        for key, value in body.items()
    }


def _written(row: EventRow) -> bytes:
    body = {**_body(row.body), "id": row.id, "at": moment(row.at), "kind": row.kind, "job": row.job}
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (row.id, row.kind.encode(), encode(body))
