"""Sweeps and their trials. Written inside a turn of the store, read at any time."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dibs.dataclass import dataclass
from dibs.errors import BadInput, NoSuchSweep, StoreUnusable
from dibs.model.jobs import JobId
from dibs.model.sweeps import Sweep, SweepId, SweepState, Trial, TrialState
from dibs.policy.sweeps import Goal, front, score
from dibs.store.codec import decode_request, encode_request, text_value
from dibs.store.file import LEFT_UNCHANGED

_SWEEP = "id, key, name, spec, request, environment, code, state, why, cursor, counts_from, queued_at, ended_at"
_TRIAL = (
    "sweep, number, point, command, fingerprint, state, job, found, why, cause, seconds, reused_from, ended_at,"
    " study, pruned_by, is_due, reported, continues, repeat_of, means, spreads"
)
_AT_ONCE = 1_000  # rows of a long list


@dataclass(frozen=True, slots=True)
class TrialPage:
    trials: list[Trial]
    cursor: str | None  # where the next page begins; None: this was the last


class SweepTable:
    """What is known of every sweep."""

    def __init__(self, db: sqlite3.Connection, ask: Callable[..., list[Any]]) -> None:
        self._db = db
        self._ask = ask
        # Of sweeps with several metrics: of how many trials with values, and those that none is better than.
        self._fronts: dict[SweepId, tuple[int, dict[int, tuple[float, ...]]]] = {}

    # -- writing ---------------------------------------------------------------------------------------

    def add(self, sweep: Sweep) -> Sweep:
        """With the next number, where it has none."""
        cursor = self._db.execute(
            f"insert into sweeps ({_SWEEP}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                sweep.id or None,
                text_value(sweep.key),
                text_value(sweep.name),
                json.dumps(dict(sweep.spec)),
                encode_request(sweep.request),
                sweep.environment,
                sweep.code,
                sweep.state,
                text_value(sweep.why),
                sweep.cursor,
                sweep.counts_from,
                sweep.queued_at,
                sweep.ended_at,
            ),
        )
        return replace(sweep, id=SweepId(cursor.lastrowid or 0))

    def change(self, sweep: Sweep) -> None:
        """Where it stands now, and what it is to do."""
        self._db.execute(
            "update sweeps set spec = ?, state = ?, why = ?, cursor = ?, counts_from = ?, ended_at = ?"
            " where id = ?",
            (
                json.dumps(dict(sweep.spec)),
                sweep.state,
                text_value(sweep.why),
                sweep.cursor,
                sweep.counts_from,
                sweep.ended_at,
                sweep.id,
            ),
        )
        self._fronts.pop(sweep.id, None)  # its metrics may be others

    def add_trial(self, trial: Trial, goals: Sequence[Goal], cursor: int) -> None:
        """A new point, and where its sweep goes on after it."""
        self._db.execute(
            "insert into trials (sweep, number, point, command, fingerprint, state) values (?, ?, ?, ?, ?, ?)",
            (
                trial.sweep,
                trial.number,
                json.dumps(dict(trial.point)),
                text_value(trial.command),
                trial.fingerprint,
                trial.state,
            ),
        )
        self.change_trial(trial, goals)
        self._db.execute("update sweeps set cursor = ? where id = ?", (cursor, trial.sweep))

    def change_trial(self, trial: Trial, goals: Sequence[Goal]) -> None:
        """What became of it; its point stays."""
        self._db.execute(
            "update trials set state = ?, job = ?, found = ?, score = ?, why = ?, cause = ?, seconds = ?,"
            " reused_from = ?, ended_at = ?, study = ?, pruned_by = ?, is_due = ?, reported = ?,"
            " continues = ?, repeat_of = ?, means = ?, spreads = ? where sweep = ? and number = ?",
            (
                trial.state,
                trial.job,
                None if trial.values is None else json.dumps(trial.values),
                _score(trial, goals),
                text_value(trial.why),
                trial.cause,
                trial.seconds,
                trial.reused_from,
                trial.ended_at,
                trial.study,
                text_value(trial.pruned_by),
                trial.is_due,
                text_value(json.dumps(dict(trial.reported))),
                trial.continues,
                trial.repeat_of,
                None if trial.means is None else json.dumps(trial.means),
                None if trial.spreads is None else json.dumps(trial.spreads),
                trial.sweep,
                trial.number,
            ),
        )
        if trial.repeat_of is not None:
            self._fronts.pop(trial.sweep, None)  # a mean may change when a repeat is tried again
        elif trial.state.has_values and trial.values and trial.sweep in self._fronts:
            self._put_into_front(trial, goals)

    def remove(self, sweep: SweepId) -> None:
        """Forget it and its trials. Its number is never given again."""
        for statement in (
            "delete from trials where sweep = ?",
            "delete from trial_tally where sweep = ?",
            "delete from sweeps where id = ?",
        ):
            self._db.execute(statement, (sweep,))
        self._fronts.pop(sweep, None)

    def drop_kept(self) -> None:
        """What was written in this turn is not in the store after all."""
        self._fronts.clear()

    # -- sweeps ----------------------------------------------------------------------------------------

    def sweep(self, number: int) -> Sweep:
        rows = self._ask(f"select {_SWEEP} from sweeps where id = ?", (number,))
        if not rows:
            raise NoSuchSweep(number)
        return _sweep(rows[0])

    def with_key(self, key: str) -> Sweep | None:
        """What an earlier call with this key added."""
        rows = self._ask(f"select {_SWEEP} from sweeps where key = ?", (text_value(key),))
        return _sweep(rows[0]) if rows else None

    def page(self, states: Sequence[SweepState], *, below: int | None, limit: int) -> list[Sweep]:
        """The newest first."""
        where, values = ["id < ?"], [2**62 if below is None else below]
        if states:
            where.append(f"state in ({','.join('?' * len(states))})")
        rows = self._ask(
            f"select {_SWEEP} from sweeps where {' and '.join(where)} order by id desc limit ?",
            (*values, *states, limit),
        )
        return [_sweep(row) for row in rows]

    def find(self, reference: str) -> SweepId:
        """The number that `3`, `@` (the last) or a name (the last one of that name) stands for."""
        text = reference.strip()
        if text.isascii() and text.isdigit():
            rows = self._ask("select id from sweeps where id = ?", (int(text[:18]),))
        elif text == "@":
            rows = self._ask("select max(id) from sweeps having max(id) is not null")
        else:
            rows = self._ask(
                "select max(id) from sweeps where name = ? and name <> '' group by name", (text_value(text),)
            )
        if not rows:
            raise NoSuchSweep(reference if text else "''")
        return SweepId(rows[0][0])

    def unfinished(self) -> list[SweepId]:
        """Those that run, or of which a trial may still run."""
        rows = self._ask(
            "select id from sweeps where state = 'running' or exists (select 1 from trial_tally"
            " where sweep = sweeps.id and trial_tally.state = 'open' and trials > 0) order by id"
        )
        return [SweepId(number) for (number,) in rows]

    # -- trials ----------------------------------------------------------------------------------------

    def counts(self, sweep: SweepId) -> dict[TrialState, int]:
        rows = self._ask("select state, trials from trial_tally where sweep = ? and trials > 0", (sweep,))
        return {TrialState(state): trials for state, trials in rows}

    def trials(
        self, sweep: SweepId, order: str, states: Sequence[TrialState], cursor: str | None, limit: int
    ) -> TrialPage:
        """Some trials: by their `number`, or the `best` first, of those that have a value."""
        where, values = ["sweep = ?"], [sweep]
        key = "score, number" if order == "best" else "number"
        if order == "best":
            where.append("score is not null")
        if states:
            where.append(f"state in ({','.join('?' * len(states))})")
            values += states  # type: ignore[arg-type]
        if cursor is not None:
            value, number = _read_cursor(cursor)
            where.append("(score, number) > (?, ?)" if order == "best" else "number > ?")
            values += [value, number] if order == "best" else [number]  # type: ignore[list-item]
        rows = self._ask(
            f"select score, {_TRIAL} from trials where {' and '.join(where)} order by {key} limit ?",
            (*values, limit + 1),
        )
        found = [_trial(row[1:]) for row in rows[:limit]]
        if len(rows) <= limit:
            return TrialPage(found, None)
        last = rows[limit - 1]
        return TrialPage(found, f"{last[0] if order == 'best' else 0.0!r}:{found[-1].number}")

    def trial(self, sweep: SweepId, number: int) -> Trial | None:
        rows = self._ask(f"select {_TRIAL} from trials where sweep = ? and number = ?", (sweep, number))
        return _trial(rows[0]) if rows else None

    def all_of(self, sweep: SweepId, states: Sequence[TrialState] = ()) -> Iterator[Trial]:
        """Every trial in these states, or all, in their order. Others may write in between."""
        last = 0
        among = f"and state in ({','.join('?' * len(states))})" if states else ""
        while rows := self._ask(
            f"select {_TRIAL} from trials where sweep = ? and number > ? {among} order by number limit ?",
            (sweep, last, *states, _AT_ONCE),
        ):
            yield from map(_trial, rows)
            last = rows[-1][1]

    def open(self, sweep: SweepId) -> list[Trial]:
        """There are only as many as run at once."""
        rows = self._ask(
            f"select {_TRIAL} from trials where sweep = ? and state = 'open' order by number", (sweep,)
        )
        return [_trial(row) for row in rows]

    def due(self, sweep: SweepId, limit: int) -> list[Trial]:
        """What failed and is to be tried again."""
        rows = self._ask(
            f"select {_TRIAL} from trials where sweep = ? and is_due order by number limit ?", (sweep, limit)
        )
        return [_trial(row) for row in rows]

    def of_jobs(self, jobs: Iterable[JobId]) -> list[Trial]:
        """The trials that these jobs are, where they are any."""
        rows = self._ask(
            f"select {_TRIAL} from trials where job in (select value from json_each(?)) order by sweep, number",
            (json.dumps(list(jobs)),),
        )
        return [_trial(row) for row in rows]

    def revived(self) -> list[Trial]:
        """Failed ones whose jobs were queued again."""
        rows = self._ask(
            f"select {', '.join(f't.{one}' for one in _TRIAL.split(', '))} from sweeps join trials as t"
            " on t.sweep = sweeps.id and t.state = 'failed' join jobs on jobs.id = t.job"
            " where jobs.ended_at is null"
        )
        return [_trial(row) for row in rows]

    def pruned_jobs(self) -> dict[JobId, str]:
        """The jobs whose end was asked for because they were not worth it, and the sentence."""
        rows = self._ask(
            "select t.job, t.pruned_by from sweeps join trials as t on t.sweep = sweeps.id and t.state = 'open'"
            " where t.pruned_by <> '' and t.job is not null"
        )
        return {JobId(job): why for job, why in rows}

    def done_before(self, fingerprint: str, spec: Mapping[str, Any], of: SweepId | None = None) -> Trial | None:
        """One that did the same work and has its values, by the same metrics as in this spec.

        It is of one sweep, or of any. Another sweep's metrics may have been edited since its trial began.
        """
        rows = self._ask(
            f"select (select spec from sweeps where id = trials.sweep), {_TRIAL} from trials"
            " where fingerprint = ? and state = 'complete' and sweep = coalesce(?, sweep) order by sweep desc",
            (fingerprint, of),
        )
        wanted = _judged_by(spec)
        return next((_trial(row) for its, *row in rows if its and _judged_by(json.loads(its)) == wanted), None)

    def of_point(self, sweep: SweepId, first: int, repeats: int) -> list[Trial]:
        """The trials of one point, of which this is the first; they have consecutive numbers."""
        rows = self._ask(
            f"select {_TRIAL} from trials where sweep = ? and number between ? and ? and repeat_of = ?"
            " order by number",
            (sweep, first, first + repeats - 1, first),
        )
        return [_trial(row) for row in rows]

    def generation(self, sweep: SweepId, number: int, size: int) -> list[Trial]:
        """The trials of a generation of so many; the first one has the number 0."""
        rows = self._ask(
            f"select {_TRIAL} from trials where sweep = ? order by number limit ? offset ?",
            (sweep, size, number * size),
        )
        return [_trial(row) for row in rows]

    def next_number(self, sweep: SweepId) -> int:
        ((last,),) = self._ask("select max(number) from trials where sweep = ?", (sweep,))
        return int(last or 0) + 1

    def first_ended(self, sweep: SweepId, since: float, limit: int) -> list[Trial]:
        """The first ones that ended after a moment, of those that ran."""
        rows = self._ask(
            f"select {_TRIAL} from trials where sweep = ? and ended_at > ? and state <> 'reused'"
            " order by ended_at, number limit ?",
            (sweep, since, limit),
        )
        return [_trial(row) for row in rows]

    def best(self, sweep: SweepId) -> list[Trial]:
        """The best one; of several metrics all that no other is better than in everything."""
        goals = self.goals(sweep)
        if len(goals) < 2:
            rows = self._ask(
                f"select {_TRIAL} from trials where sweep = ? and score is not null"
                " order by score, number limit 1",
                (sweep,),
            )
            return [_trial(row) for row in rows]
        found = (self.trial(sweep, number) for number in self._front(sweep, goals))
        return [one for one in found if one is not None]

    def goals(self, sweep: SweepId) -> list[Goal]:
        """Whether less or more is better, for each metric."""
        rows = self._ask("select spec from sweeps where id = ?", (sweep,))
        return goals_of(json.loads(rows[0][0])) if rows else []

    def _front(self, sweep: SweepId, goals: Sequence[Goal]) -> list[int]:
        """What has values keeps them, so their number tells whether the front is still the same."""
        counts = self.counts(sweep)
        count = sum(trials for state, trials in counts.items() if state.has_values)
        if self._fronts.get(sweep, (-1, {}))[0] != count:
            rows = self._ask(
                "select number, coalesce(means, found) from trials where sweep = ? and score is not null"
                " order by number",
                (sweep,),
            )
            found = {number: tuple(json.loads(values)) for number, values in rows}
            self._fronts[sweep] = (count, {number: found[number] for number in front(list(found.items()), goals)})
        return list(self._fronts[sweep][1])

    def _put_into_front(self, trial: Trial, goals: Sequence[Goal]) -> None:
        """Compare a new one with those that none is better than, instead of all with all."""
        count, known = self._fronts[trial.sweep]
        if trial.number not in known and trial.values:
            found = {**known, trial.number: trial.values}
            chosen = {number: found[number] for number in front(list(found.items()), goals)}
            self._fronts[trial.sweep] = (count + 1, chosen)


def _score(trial: Trial, goals: Sequence[Goal]) -> float | None:
    if trial.repeat_of is None and not trial.state.has_values:
        return None
    return score(trial.judged_values, goals)


def goals_of(spec: Any) -> list[Goal]:
    return [metric.get("goal", "min") for metric in spec.get("metrics", ())]


def _judged_by(spec: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Which numbers a sweep takes from what its trials report."""
    found: list[tuple[str, ...]] = []
    for metric in spec.get("metrics", ()):
        take = metric.get("take", "last")
        found.append((metric["name"], take, metric.get("goal", "min") if take == "best" else ""))
    return found


def _sweep(row: Sequence[Any]) -> Sweep:
    number, key, name, spec, request, environment, code, state, why, cursor, counts_from, queued_at, ended_at = row
    try:
        return Sweep(
            id=SweepId(number),
            key=key,
            name=name,
            spec=json.loads(spec),
            request=decode_request(request),
            environment=environment,
            code=code,
            state=SweepState(state),
            why=why,
            cursor=cursor,
            counts_from=counts_from,
            queued_at=queued_at,
            ended_at=ended_at,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StoreUnusable(f"cannot read sweep {number}: its row is damaged", remedy=LEFT_UNCHANGED) from error


def _trial(row: Sequence[Any]) -> Trial:
    sweep, number, point, command, fingerprint, state, job, found, why, cause, *more = row
    seconds, reused_from, ended_at, study, pruned_by, is_due, reported, continues, repeat_of, means, spreads = more
    try:
        return Trial(
            sweep=SweepId(sweep),
            number=number,
            point=json.loads(point),
            command=command,
            fingerprint=fingerprint,
            state=TrialState(state),
            job=None if job is None else JobId(job),
            values=None if found is None else tuple(json.loads(found)),
            why=why,
            cause=cause,
            seconds=seconds,
            reused_from=None if reused_from is None else JobId(reused_from),
            ended_at=ended_at,
            study=study,
            pruned_by=pruned_by,
            is_due=bool(is_due),
            reported=json.loads(reported),
            continues=continues,
            repeat_of=repeat_of,
            means=None if means is None else tuple(json.loads(means)),
            spreads=None if spreads is None else tuple(json.loads(spreads)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StoreUnusable(
            f"cannot read trial {number} of sweep {sweep}: its row is damaged", remedy=LEFT_UNCHANGED
        ) from error


def _read_cursor(text: str) -> tuple[float, int]:
    value, _, number = text.partition(":")
    try:
        return float(value), int(number)
    except ValueError:
        raise BadInput(f"cannot read {text[:60]!r} as a cursor", remedy="take it from the page before") from None
