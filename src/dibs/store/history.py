"""What the cards of the pool were and used, in bounded space. Written inside a turn of the store."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dibs.model.card_history import HOURS, KEPT, HistoryBucket, Level, UseSeconds
from dibs.model.weeks import GpuTime
from dibs.store.codec import text_value

_MOST_CARDS = 256
_MOST_USERS = 64  # of one hour; the rest is counted together
_MOST_PROJECTS = 1_000  # of one week; the rest is counted together
_OTHERS = "(others)"
_LONGEST = HOURS * KEPT[HOURS]  # seconds
_BUCKET = (
    "step, at, job, unused, others, idle, lost,"
    " load_mean, load_most, memory_mean, memory_most, power_mean, power_most"
)
_GPU_TIME = "seconds, remote_seconds, watt_hours, load_seconds, measured_seconds, attempts"


class UseRow(NamedTuple):
    """A time in which a card was watched. `use` is empty where it was free or held by jobs of this queue."""

    gpu: str
    since: float
    until: float
    use: str


class OutsideUse(NamedTuple):
    """GPU time that a user had outside of the queue in one hour."""

    at: int
    user: str
    seconds: float
    joules: float


class HistoryTables:
    """Rings of buckets, spans of use, and GPU time that no attempt tells of."""

    def __init__(self, db: sqlite3.Connection, ask: Callable[[str, Sequence[Any]], list[Any]]) -> None:
        self._db = db
        self._ask = ask

    # -- buckets ---------------------------------------------------------------------------------------

    def put_buckets(self, gpu: str, buckets: Iterable[HistoryBucket]) -> None:
        self._db.executemany(
            f"insert or replace into card_history (gpu, slot, {_BUCKET})"
            " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    *(text_value(gpu), one.at // one.step % KEPT[one.step], one.step, one.at),
                    *(one.use.job, one.use.unused, one.use.others, one.use.idle, one.use.lost),
                    *(one.load.mean, one.load.most, one.memory.mean, one.memory.most),
                    *(one.power.mean, one.power.most),
                )
                for one in buckets
            ),
        )

    def buckets(self, gpu: str, step: int, since: float, until: float) -> list[HistoryBucket]:
        """Those of a card that begin between two moments, the oldest first."""
        rows = self._ask(
            f"select {_BUCKET} from card_history where gpu = ? and step = ? and at >= ? and at < ? order by at",
            (text_value(gpu), step, since, until),
        )
        return [_bucket(*row) for row in rows]

    def buckets_at(self, gpu: str, at: float) -> list[HistoryBucket]:
        """Those of a card that a moment lies in."""
        rows = self._ask(
            f"select {_BUCKET} from card_history where gpu = ? and (step, slot) in (values (?, ?), (?, ?))",
            (text_value(gpu), *(value for step, kept in KEPT.items() for value in (step, at // step % kept))),
        )
        return [bucket for row in rows if (bucket := _bucket(*row)).at <= at < bucket.at + bucket.step]

    def cards(self) -> list[str]:
        """The keys of all cards with a history."""
        return [gpu for (gpu,) in self._ask("select distinct gpu from card_history", ())]

    def forget_old(self, now: float) -> None:
        """Forget what is older than a ring is long, and of very many cards those that were read least recently."""
        self._db.execute("delete from card_history where at < ?", (now - _LONGEST,))
        self._db.execute("delete from card_uses where until < ?", (now - _LONGEST,))
        self._db.execute("delete from outside_use where at < ?", (now - _LONGEST,))
        gone = self._ask(
            "select gpu from card_history group by gpu order by max(at) desc limit -1 offset ?", (_MOST_CARDS,)
        )
        for row in gone:
            self._db.execute("delete from card_history where gpu = ?", row)
            self._db.execute("delete from card_uses where gpu = ?", row)

    # -- spans of use ----------------------------------------------------------------------------------

    def put_uses(self, rows: Iterable[UseRow]) -> None:
        self._db.executemany(
            "insert or replace into card_uses (gpu, since, until, use) values (?, ?, ?, ?)",
            ((text_value(row.gpu), *row[1:]) for row in rows),
        )

    def uses(self, gpu: str) -> list[UseRow]:
        """Of a card, the oldest first."""
        rows = self._ask(
            "select gpu, since, until, use from card_uses where gpu = ? order by since", (text_value(gpu),)
        )
        return [UseRow(*row) for row in rows]

    def forget_uses(self, gpu: str, before: float, after: float) -> None:
        """Forget the spans of a card that begin before a moment, and those that begin after another."""
        self._db.execute(
            "delete from card_uses where gpu = ? and (since < ? or since > ?)", (text_value(gpu), before, after)
        )

    # -- use that no attempt tells of --------------------------------------------------------------------

    def add_outside(self, uses: Iterable[OutsideUse]) -> None:
        for one in uses:
            others = self._ask("select user from outside_use where at = ?", (one.at,))
            user = text_value(one.user)
            if len(others) >= _MOST_USERS and (user,) not in others:
                user = _OTHERS
            self._db.execute(
                "insert into outside_use (at, user, seconds, joules) values (?, ?, ?, ?)"
                " on conflict do update set"
                " seconds = seconds + excluded.seconds, joules = joules + excluded.joules",
                (one.at, user, one.seconds, one.joules),
            )

    def outside(self, since: float, until: float) -> list[OutsideUse]:
        """Of the hours that overlap this time."""
        rows = self._ask(
            "select at, user, seconds, joules from outside_use where at > ? and at < ? order by at, user",
            (since - HOURS, until),
        )
        return [OutsideUse(*row) for row in rows]

    def add_cleaned(self, week: str, projects: Mapping[str, GpuTime]) -> None:
        """Keep the GPU time of attempts that are about to be forgotten."""
        for name, time in projects.items():
            project = text_value(name)
            known = self._ask("select project from cleaned_use where week = ?", (week,))
            if len(known) >= _MOST_PROJECTS and (project,) not in known:
                project = _OTHERS
            self._db.execute(
                f"insert into cleaned_use (week, project, {_GPU_TIME}) values (?, ?, ?, ?, ?, ?, ?, ?)"
                " on conflict do update set seconds = seconds + excluded.seconds,"
                " remote_seconds = remote_seconds + excluded.remote_seconds,"
                " watt_hours = watt_hours + excluded.watt_hours,"
                " load_seconds = load_seconds + excluded.load_seconds,"
                " measured_seconds = measured_seconds + excluded.measured_seconds,"
                " attempts = attempts + excluded.attempts",
                (
                    *(week, project, time.seconds, time.remote_seconds, time.watt_hours),
                    *(time.load_seconds, time.measured_seconds, time.attempts),
                ),
            )

    def cleaned(self, week: str) -> dict[str, GpuTime]:
        """The GPU time of attempts that were forgotten, by project."""
        rows = self._ask(f"select project, {_GPU_TIME} from cleaned_use where week = ?", (week,))
        return {project: GpuTime(*values) for project, *values in rows}


def _bucket(step: int, at: int, *row: Any) -> HistoryBucket:
    levels = [Level(mean, most) for mean, most in zip(row[5::2], row[6::2], strict=True)]
    return HistoryBucket(step, at, UseSeconds(*row[:5]), *levels)
