"""What was learned of jobs by their shape. Written inside a turn of the store."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dibs.model.suspensions import Obstacle
from dibs.model.usage import Lesson, Lessons
from dibs.store.codec import text_value

_MOST_ROWS = 10_000  # the oldest is forgotten beyond
_MOST_KEPT = 1024  # shapes in memory; a plan asks for a few hundred
_COLUMNS = "peak_vram, peak_mem, cpus, runs, needs_card, obstacle"


class LessonRow(NamedTuple):
    """A lesson with what it is about, and when it was learned last."""

    shape: str
    gpu: str  # the card's name
    lesson: Lesson
    at: float


class LessonTable:
    """Every plan asks for the shapes that wait, so the last ones are kept in memory."""

    def __init__(
        self, db: sqlite3.Connection, ask: Callable[[str, Sequence[Any]], list[Any]], most_rows: int = _MOST_ROWS
    ) -> None:
        self._db = db
        self._ask = ask
        self._most_rows = most_rows
        self._kept: dict[str, dict[tuple[str, str], Lesson]] = {}

    def of(self, shape: str) -> Lessons:
        """What is known of a shape, for each model of card."""
        kept = self._kept.get(shape)
        if kept is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            rows = self._ask(f"select gpu, {_COLUMNS} from lessons where shape = ?", (text_value(shape),))
            kept = self._kept[shape] = {(shape, gpu): _lesson(*values) for gpu, *values in rows}
        return kept

    def put(self, shape: str, gpu: str, lesson: Lesson, now: float) -> None:
        """What is known now; a lesson that says nothing any more is forgotten."""
        is_new = (shape, gpu) not in self.of(shape)
        if lesson == Lesson():
            self._db.execute(
                "delete from lessons where shape = ? and gpu = ?", (text_value(shape), text_value(gpu))
            )
            self._kept[shape].pop((shape, gpu), None)
            return
        values = (
            lesson.peak_vram,
            lesson.peak_mem,
            lesson.cpus,
            lesson.runs,
            lesson.needs_card,
            lesson.obstacle,
        )
        self._db.execute(
            f"insert or replace into lessons (shape, gpu, {_COLUMNS}, at) values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (text_value(shape), text_value(gpu), *values, now),
        )
        self._kept[shape][(shape, gpu)] = lesson
        if is_new:
            self._forget_oldest()

    def all(self, shape: str | None = None) -> list[LessonRow]:
        """Of one shape or of all, the latest first."""
        where, values = ("", ()) if shape is None else (" where shape = ?", (text_value(shape),))
        order = "order by at desc, shape, gpu"
        rows = self._ask(f"select shape, gpu, at, {_COLUMNS} from lessons{where} {order}", values)
        return [LessonRow(name, gpu, _lesson(*more), at) for name, gpu, at, *more in rows]

    def forget(self, shape: str | None = None) -> int:
        """Forget one shape, or everything; how many lessons that were."""
        where, values = ("", ()) if shape is None else (" where shape = ?", (text_value(shape),))
        self._kept.clear()
        return self._db.execute(f"delete from lessons{where}", values).rowcount

    def drop_kept(self) -> None:
        """What was put in this turn is not in the store after all."""
        self._kept.clear()

    def _forget_oldest(self) -> None:
        gone = self._db.execute(
            "delete from lessons where (shape, gpu) in"
            " (select shape, gpu from lessons order by at desc limit -1 offset ?)",
            (self._most_rows,),
        )
        if gone.rowcount > 0:
            self._kept.clear()


def _lesson(
    peak_vram: int, peak_mem: int, cpus: float, runs: int, needs_card: int, obstacle: str | None
) -> Lesson:
    return Lesson(
        peak_vram=peak_vram,
        peak_mem=peak_mem,
        cpus=cpus,
        runs=runs,
        needs_card=bool(needs_card),
        obstacle=None if obstacle is None else Obstacle(obstacle),
    )
