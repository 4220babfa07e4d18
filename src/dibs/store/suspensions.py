"""Suspensions of attempts. Written inside a turn of the store."""

import json
import sqlite3
from collections.abc import Sequence

from dibs.model.jobs import AttemptKey, JobId, State
from dibs.model.suspensions import Rung, Suspension, SuspensionPhase
from dibs.store.codec import text_value
from dibs.store.listing import Ask

_COLUMNS = (
    "number, phase, why, resumes, began_at, suspended_at, resuming_at, ended_at, rung, held, frees_cards, why_not"
)
_LATEST = 20  # suspensions from which it is learned how long the next one takes


class SuspensionTable:
    """One row for each suspension. The last of an attempt may be open."""

    def __init__(self, db: sqlite3.Connection, ask: Ask) -> None:
        self._db = db
        self._ask = ask

    def put(self, attempt: AttemptKey, one: Suspension) -> None:
        """It stands like this now, and its job with it."""
        self._db.execute(
            f"insert or replace into suspensions (job, attempt, {_COLUMNS})"
            " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *attempt,
                one.number,
                one.phase,
                text_value(one.why),
                one.resumes,
                one.began_at,
                one.suspended_at,
                one.resuming_at,
                one.ended_at,
                one.rung,
                json.dumps(dict(one.held)),
                one.frees_cards,
                text_value(one.why_not),
            ),
        )
        self._db.execute(
            "update jobs set state = ? where id = ? and attempts = ? and state in ('running', 'suspended')",
            (State.SUSPENDED if one.stands_still else State.RUNNING, *attempt),
        )

    def of_open(self) -> dict[AttemptKey, list[Suspension]]:
        """The suspensions of attempts that have not ended, oldest first."""
        rows = self._ask(
            f"select s.job, s.attempt, {', '.join(f's.{name}' for name in _COLUMNS.split(', '))}"
            " from suspensions as s join jobs on jobs.id = s.job and jobs.attempts = s.attempt"
            " where jobs.state in ('running', 'suspended') order by s.job, s.number"
        )
        found: dict[AttemptKey, list[Suspension]] = {}
        for job, attempt, *columns in rows:
            found.setdefault((JobId(job), attempt), []).append(_suspension(*columns))
        return found

    def of(self, jobs: Sequence[int]) -> dict[AttemptKey, list[Suspension]]:
        """Those of these jobs, oldest first."""
        found: dict[AttemptKey, list[Suspension]] = {}
        for job in jobs:
            rows = self._ask(
                f"select attempt, {_COLUMNS} from suspensions where job = ? order by attempt, number", (job,)
            )
            for attempt, *columns in rows:
                found.setdefault((JobId(job), attempt), []).append(_suspension(*columns))
        return found

    def latest(self) -> list[Suspension]:
        """The last ones in which memory of a card was moved."""
        rows = self._ask(
            f"select {_COLUMNS} from suspensions where rung = 'cuda' order by began_at desc limit ?",
            (_LATEST,),
        )
        return [_suspension(*columns) for columns in rows]


def _suspension(
    number: int,
    phase: str,
    why: str,
    resumes: int,
    began_at: float,
    suspended_at: float | None,
    resuming_at: float | None,
    ended_at: float | None,
    rung: str | None,
    held: str,
    frees_cards: int,
    why_not: str,
) -> Suspension:
    return Suspension(
        number=number,
        phase=SuspensionPhase(phase),
        why=why,
        resumes=bool(resumes),
        began_at=began_at,
        suspended_at=suspended_at,
        resuming_at=resuming_at,
        ended_at=ended_at,
        rung=None if rung is None else Rung(rung),
        held=json.loads(held),
        frees_cards=bool(frees_cards),
        why_not=why_not,
    )
