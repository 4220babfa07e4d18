"""What happened, kept so that a reader who comes back misses nothing."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dibs.store.listing import Ask

_KEPT = 100_000
_LOOK_EVERY = 1_000  # events between two looks for old ones


@dataclass(frozen=True, slots=True)
class EventRow:
    id: int
    at: float
    kind: str
    job: int | None
    body: dict[str, Any]


class EventLog:
    """Numbered events. Written inside a turn of the store, read at any time."""

    def __init__(self, db: sqlite3.Connection, ask: Ask) -> None:
        self._db = db
        self._ask = ask

    def write(self, at: float, kind: str, job: int | None = None, body: Mapping[str, Any] | None = None) -> None:
        number = self._db.execute(
            "insert into events (at, kind, job, body) values (?, ?, ?, ?)",
            (at, kind, job, json.dumps(body or {})),
        ).lastrowid
        if number and number % _LOOK_EVERY == 0:
            self._db.execute("delete from events where id <= ?", (number - _KEPT,))

    def since(self, number: int, limit: int = 1000) -> list[EventRow]:
        """The events after this one, oldest first."""
        rows = self._ask(
            "select id, at, kind, job, body from events where id > ? order by id limit ?", (number, limit)
        )
        return [EventRow(id, at, kind, job, json.loads(body)) for id, at, kind, job, body in rows]

    @property
    def last_id(self) -> int:
        ((last,),) = self._ask("select max(id) from events")
        return int(last or 0)

    @property
    def first_id(self) -> int:
        """The oldest that is still there; whoever comes back from before it has missed something."""
        ((first,),) = self._ask("select min(id) from events")
        return int(first or 0)
