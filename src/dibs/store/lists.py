"""Lists that arrive in several requests. Their parts are no jobs before all of them have arrived."""

import json
import sqlite3
from collections.abc import Sequence

from dibs.model.jobs import JobId
from dibs.model.records import StagedList, StagedPart
from dibs.store.codec import text_value

_LIST = "first, last, key, arrived, at, environment, code"


class ListTables:
    """Everything here happens inside a turn of the store."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def with_key(self, key: str) -> StagedList | None:
        return self._list("key = ?", text_value(key))

    def starting_at(self, first: int) -> StagedList | None:
        return self._list("first = ?", first)

    def begin(self, new: StagedList, now: float) -> None:
        """Reserve the numbers of a new list."""
        self._db.execute(
            "insert into lists (first, last, key, at) values (?, ?, ?, ?)",
            (new.first, new.last, text_value(new.key), now),
        )
        has_count = "update sqlite_sequence set seq = max(seq, ?) where name = 'jobs'"
        if not self._db.execute(has_count, (new.last,)).rowcount:
            self._db.execute("insert into sqlite_sequence values ('jobs', ?)", (new.last,))

    def put(self, part: StagedPart, now: float) -> None:
        """Keep a part until all have arrived."""
        self._db.execute(
            "insert into parts values (?, ?, ?)", (part.first, part.list.first, json.dumps(part.requests))
        )
        self._db.execute(
            "update lists set arrived = arrived + ?, at = ? where first = ?",
            (len(part.requests), now, part.list.first),
        )

    def complete(self, whole: StagedList, now: float) -> None:
        """All parts have arrived: from now on they become jobs."""
        self._db.execute(
            "update lists set environment = ?, code = ?, is_complete = 1, at = ? where first = ?",
            (whole.environment, whole.code, now, whole.first),
        )

    def next_part(self) -> StagedPart | None:
        """The next part that is to become jobs."""
        row = self._db.execute(
            "select parts.first, requests, list from lists join parts on list = lists.first"
            " where is_complete order by parts.first limit 1"
        ).fetchone()
        if row is None:
            return None
        whole = self.starting_at(row[2])
        assert whole is not None
        return StagedPart(whole, JobId(row[0]), json.loads(row[1]))

    def remove_part(self, part: StagedPart) -> None:
        """Its jobs are in the queue. With the last part the list is forgotten."""
        first = part.list.first
        self._db.execute("delete from parts where first = ?", (part.first,))
        self._db.execute(
            "delete from lists where first = ? and not exists (select 1 from parts where list = ?)", (first, first)
        )

    def unfinished(self, before: float) -> Sequence[StagedList]:
        """Those of which a part is missing, and no other has arrived since a moment."""
        rows = self._db.execute(
            f"select {_LIST} from lists where not is_complete and at < ? order by first", (before,)
        ).fetchall()
        return [StagedList(*row) for row in rows]

    def remove(self, first: int, last: int) -> None:
        """Forget the lists that begin between these numbers, with their parts."""
        which = "in (select first from lists where first between ? and ?)"
        self._db.execute(f"delete from parts where list {which}", (first, last))
        self._db.execute("delete from lists where first between ? and ?", (first, last))

    @property
    def is_empty(self) -> bool:
        return self._db.execute("select 1 from lists limit 1").fetchone() is None

    def _list(self, where: str, value: object) -> StagedList | None:
        row = self._db.execute(f"select {_LIST} from lists where {where}", (value,)).fetchone()
        return None if row is None else StagedList(*row)
