"""The last numbers that jobs have reported. Written inside a turn of the store."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dibs.model.jobs import JobId

# The last number under each name, in the order of the names; None where it is not finite.
Numbers = Mapping[str, float | None]


class ReportedNumbers:
    """One row for each job whose last ended attempt has reported any."""

    def __init__(self, db: sqlite3.Connection, ask: Callable[..., list[Any]]) -> None:
        self._db = db
        self._ask = ask

    def put(self, found: Iterable[tuple[JobId, int, Numbers]]) -> None:
        """Jobs, attempts and what those have reported."""
        self._db.executemany(
            "insert or replace into reported (job, attempt, numbers) select ?, ?, ?"
            " where exists (select 1 from jobs where id = ?)",
            ((job, attempt, json.dumps(dict(numbers)), job) for job, attempt, numbers in found),
        )

    def ended_without(self, most: int) -> Sequence[tuple[JobId, int]]:
        """The attempts of the jobs that ended last and have no row, the newest first."""
        rows = self._ask(
            "select id, attempts from (select id, attempts from jobs where ended_at is not null and attempts > 0"
            " order by id desc limit ?) as one"
            " where not exists (select 1 from reported where job = one.id and attempt = one.attempts)",
            (most,),
        )
        return [(JobId(job), attempt) for job, attempt in rows]
