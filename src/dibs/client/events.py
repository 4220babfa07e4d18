"""The daemon's events, one after another, without a gap when the connection breaks."""

import json
import time
from collections.abc import Iterator
from typing import Any

from dibs.client.client import Client
from dibs.client.connection import ConnectionBroken, NoAnswer, NotListening

_SILENCE = 40.0  # seconds; the daemon says something every 15
_LONGEST_EVENT = 8 * 1024**2  # bytes
_PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0)  # seconds between tries; the last again and again


def follow_events(client: Client, since: int | None = None, *, patience: float = 30.0) -> Iterator[dict[str, Any]]:
    """Events from `since` on (None: from now on), for ever.

    A connection that breaks is made again, from the last event seen on; when that fails for `patience` seconds,
    what failed is raised. After `events.missed`, which has no id, events are missing: look for yourself.
    """
    return (event for event in listen(client, since, patience=patience) if event is not None)


def listen(client: Client, since: int | None = None, *, patience: float = 30.0) -> Iterator[dict[str, Any] | None]:
    """The same, and None where a connection was made, and now and then where there is nothing to say."""
    last = since
    failed_at: float | None = None
    tries = 0
    while True:
        try:
            for event in _one_connection(client, last):
                failed_at, tries = None, 0
                if event is not None and "id" in event:
                    if last is not None and event["id"] <= last:
                        continue
                    last = event["id"]
                yield event
        except (ConnectionBroken, NoAnswer, NotListening):
            now = time.monotonic()
            failed_at = now if failed_at is None else failed_at
            if now - failed_at > patience:
                raise
        time.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
        tries += 1


def _one_connection(client: Client, last: int | None) -> Iterator[dict[str, Any] | None]:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    target = "/v1/events" if last is None else f"/v1/events?since={last}"
    data: list[bytes] = []
    rest = b""
    with client.opened(target, silence=_SILENCE, headers=headers) as pieces:
        for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > _LONGEST_EVENT:
                raise ConnectionBroken("the daemon sends an event without an end", remedy="`dibs daemon restart`")
            for line in lines:
                line = line.rstrip(b"\r")
                if line.startswith(b"data:"):
                    data.append(line[5:].removeprefix(b" "))
                elif not line and data:
                    yield json.loads(b"\n".join(data))
                    data = []
                elif line.startswith(b":"):
                    yield None
