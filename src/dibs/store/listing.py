"""Queries for the command line, the API and the page. A page costs the same with a thousand jobs or a million."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dibs.dataclass import dataclass
from dibs.errors import BadInput, NoSuchJob
from dibs.model.jobs import OVER, Cause, JobId, Outcome, State
from dibs.model.records import Mark
from dibs.model.units import JOB_RANGE, LAST_JOB, TASK, is_job_number
from dibs.store.codec import (
    ATTEMPT_ROW,
    JOB_ROW,
    AttemptRow,
    JobRow,
    attempt_row_of,
    job_row_of,
    text_value,
)

Ask = Callable[..., list[Any]]  # a question and its values; StoreUnusable if the disk fails
Scanned = tuple[int, Any]  # a job's number, and by what it is sorted; None where it has nothing of the kind

_MOST_IN_RANGE = 100_000
_LATELY = 10_000  # jobs
# How a page is sorted: the column, and whether it runs backwards.
_ORDERS = {"newest": ("id", True), "oldest": ("id", False), "ended": ("ended_at", True)}
ORDERS = (*_ORDERS, "turn")  # of pages
# What `scan` tells beside a job's number, by the order that it is for.
_KEYS = {
    "newest": "null",
    "oldest": "null",
    "ended": "ended_at",
    "turn": "-priority, coalesce(rank, id)",
    "name": "nullif(name, '')",
    "project": "nullif(project, '')",
    "seconds": "seconds",
    "priority": "-priority, coalesce(rank, id)",
    "state": "state",
    "tags": "json_extract(request, '$.tags[0]')",
    "array": "array_id, task",
    "gpus": "(select json_extract(claims, '$[0][1]') from attempts"  # the first one
    " where job = jobs.id and number = jobs.attempts)",
    "attempts": "nullif(attempts, 0)",
    "exit_code": "exit_code",
    "cause": "cause",
    "queued": "queued_at",
    "started": "started_at",
    "changed": "coalesce(ended_at, started_at, queued_at)",
    "metrics": "coalesce((select json_extract(found, '$[0]') from trials where job = jobs.id),"  # the first one
    " (select one.value from reported, json_each(numbers) as one"
    " where job = jobs.id and attempt = jobs.attempts and one.value is not null limit 1))",
}
SORTED_BY = tuple(_KEYS)
PARAMETER, METRIC = "param.", "metric."  # before the name of one, in the word for an order
# The same for one parameter of the trials of sweeps, and for one metric of all jobs.
_NAMED = {
    PARAMETER: "(select json_extract(point, ?) from trials where job = jobs.id)",
    METRIC: "coalesce("
    "(select json_extract(found, '$[' || one.key || ']') from trials join sweeps on sweeps.id = sweep,"
    " json_each(spec, '$.metrics') as one where job = jobs.id and json_extract(one.value, '$.name') = ?1),"
    " (select json_extract(reported, ?2) from trials where job = jobs.id),"
    " (select json_extract(numbers, ?2) from reported where job = jobs.id and attempt = jobs.attempts))",
}

_SPAN = (
    "a.job, a.number, jobs.name, jobs.project, a.claims, a.opened_at, a.ended_at, a.cause, a.node, a.node_gpus,"
    " a.usage, (select json_group_array(json_array(s.suspended_at, s.resuming_at, s.ended_at, s.frees_cards))"
    " from suspensions as s where s.job = a.job and s.attempt = a.number and s.suspended_at is not null)"
)
_NONE_STOOD_STILL = "[]"
_HAS_ENDED = "ended_at is not null"  # said for the index, which knows only these
# What was only handed to another system has not run.
_OVERLAPS = "a.opened_at <= ? and coalesce(a.ended_at, ?) >= ? and (a.backend = '' or a.node <> '')"


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """Which jobs are meant. What is empty leaves all."""

    states: tuple[State, ...] = ()
    project: str | None = None
    name: str | None = None
    tag: str | None = None
    array: int | None = None
    since: float | None = None  # the last thing that happened to it was after this moment
    ranges: tuple[tuple[int, int], ...] = ()  # of numbers, both ends included
    text: str = ""  # somewhere in its name, its command, its project or a tag, in any case; or its number

    @property
    def is_tallied(self) -> bool:
        """Whether it asks for nothing but states and a project, whose jobs are counted already."""
        others = (self.name, self.tag, self.array, self.since)
        return not self.ranges and not self.text and all(one is None for one in others)

    @property
    def is_narrow(self) -> bool:
        """Whether it names so few jobs that their states need not be looked up first."""
        return bool(self.project or self.name or self.ranges) or self.array is not None


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[JobRow]
    cursor: str | None  # where the next page begins; None: this was the last


@dataclass(frozen=True, slots=True)
class RemoteJobRow:
    """A job that another system runs, and where."""

    job: int
    name: str
    node: str
    node_gpus: str


class Listing:
    """Reads only."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.spans = Spans(ask)

    def page(
        self,
        wanted: Filter,
        order: str = "newest",
        cursor: str | None = None,
        limit: int = 100,
        first: Sequence[int] = (),
    ) -> Page:
        """Jobs without looking at more than these. A text is not looked for here: it may stand in any of them.

        `first` are the numbers of those that start first, for the order `turn`.
        """
        if order == "turn":
            return Page(self._in_turn(wanted, limit, first), None)
        if order not in _ORDERS:
            raise BadInput(f"cannot sort by {order!r}", remedy=f"sort by {', '.join(ORDERS)}")
        column, is_backwards = _ORDERS[order]
        where, values = _conditions(wanted)
        if column == "ended_at":
            where.append("ended_at is not null")
        if cursor is not None:
            where.append(f"({column}, id) {'<' if is_backwards else '>'} (?, ?)")
            values += _read_cursor(cursor)
        way = "desc" if is_backwards else "asc"
        rows = self._sorted(wanted, where, values, f"{column} {way}, id {way}", limit + 1)
        found = [job_row_of(row) for row in rows[:limit]]
        if len(rows) <= limit:
            return Page(found, None)
        last = found[-1]
        return Page(found, f"{last.job.id if column == 'id' else last.ended_at!r}:{last.job.id}")

    def _sorted(self, wanted: Filter, where: list[str], values: list[Any], order: str, limit: int) -> list[Any]:
        """The first rows in this order, each read in the order of an index: no million is ever sorted."""
        states = wanted.states or (OVER if order.startswith("ended_at") else ())
        if not states or wanted.is_narrow:
            if states:
                # The plus: an index on the state would find many, and the narrower one comes sorted already.
                where = [*where, f"+state in ({','.join('?' * len(states))})"]
                values = [*values, *states]
            condition = f"where {' and '.join(where)}" if where else ""
            return self._ask(f"select {JOB_ROW} from jobs {condition} order by {order} limit ?", (*values, limit))
        condition = " and ".join(["state = ?", *where])
        one = f"select id, ended_at from jobs where {condition} order by {order} limit ?"
        heads = " union all ".join([f"select * from ({one})"] * len(states))
        return self._ask(
            f"select {JOB_ROW} from jobs where id in (select id from ({heads}) order by {order} limit ?)"
            f" order by {order}",
            (*(value for state in states for value in (state, *values, limit)), limit),
        )

    def _in_turn(self, wanted: Filter, limit: int, first: Sequence[int]) -> list[JobRow]:
        """Those that start first, then all others by priority and place."""
        where, values = _conditions(wanted)
        condition = " and ".join([*where, "state = 'queued'"])
        known = json.dumps([*first])
        rows = self._ask(
            f"select {JOB_ROW} from (select key as place, value as number from json_each(?))"
            f" join jobs on id = number where {condition} order by place limit ?",
            (known, *values, limit),
        )
        rows += self._ask(
            f"select {JOB_ROW} from jobs where {condition} and id not in (select value from json_each(?))"
            " order by priority desc, coalesce(rank, id) limit ?",
            (*values, known, limit - len(rows)),
        )
        return [job_row_of(row) for row in rows]

    def scan(self, wanted: Filter, order: str, first: int, last: int) -> list[Scanned]:
        """The jobs meant among those with these numbers, the newest first, and what to sort them by.

        This looks at each of them. A caller that has many asks for a few thousand numbers at a time.
        """
        if wanted.ranges:
            # SQLite reads by one of two conditions on the number, and not always by the narrower one.
            inside = tuple((max(a, first), min(b, last)) for a, b in wanted.ranges if a <= last and b >= first)
            if not inside:
                return []
            wanted = replace(wanted, ranges=() if inside == ((first, last),) else inside)
        where, values = _conditions(wanted)
        if order == "turn":
            where.append("state = 'queued'")
        elif wanted.states:
            where.append(f"state in ({','.join('?' * len(wanted.states))})")
            values += wanted.states
        if order == "ended":
            where.append("ended_at is not null")
        is_folded = not wanted.text.isascii()
        if wanted.text and not is_folded:
            words, more = _text_condition(wanted.text)
            where.append(words)
            values += more
        elif is_folded:
            where.append(r"instr(request, '\u')")  # SQLite knows small and large letters of ASCII only
        key, named = _sort_key(order)
        columns = f"{key}, request" if is_folded else key
        rows = self._ask(
            f"select id, {columns} from jobs"
            f" where {' and '.join(['id between ? and ?', *where])} order by id desc",
            (*named, first, last, *values),
        )
        if is_folded:
            rows = [row[:-1] for row in rows if _stands_in(wanted.text, row[-1])]
        if not rows or len(rows[0]) == 2:
            return rows
        return [(row[0], None if row[1] is None else row[1:]) for row in rows]

    def bounds(self, below: int | None = None) -> tuple[int, int]:
        """The lowest and the highest number of all jobs, or of those below this one; (1, 0) where none is."""
        row = self._one("select min(id) from jobs")
        high = self._one("select max(id) from jobs where id < ?", (2**63 - 1 if below is None else below,))
        return (1, 0) if row[0] is None or high[0] is None else (row[0], high[0])

    def rows(self, jobs: Sequence[int]) -> list[JobRow]:
        """Those of these jobs that are still there, in this order."""
        found = {
            row[0]: row
            for row in self._ask(
                f"select {JOB_ROW} from jobs where id in (select value from json_each(?))", (json.dumps([*jobs]),)
            )
        }
        return [job_row_of(found[job]) for job in jobs if job in found]

    def row(self, job: JobId) -> JobRow:
        row = self._one(f"select {JOB_ROW} from jobs where id = ?", (job,))
        if row is None:
            raise NoSuchJob(job)
        return job_row_of(row)

    def states(self, jobs: Sequence[JobId]) -> dict[JobId, State]:
        """Where these jobs stand; those that are not there are left out."""
        found = {}
        for job in jobs:
            row = self._one("select state from jobs where id = ?", (job,))
            if row is not None:
                found[job] = State(row[0])
        return found

    def attempts(self, job: JobId) -> list[AttemptRow]:
        rows = self._ask(f"select {ATTEMPT_ROW} from attempts where job = ? order by number", (job,))
        return [attempt_row_of(row) for row in rows]

    def away(self, backend: str) -> list[RemoteJobRow]:
        """The jobs that run on machines of another system."""
        rows = self._ask(
            "select id, name, node, node_gpus from jobs join attempts on job = id and number = attempts"
            " where state = 'running' and backend = ? order by id",
            (backend,),
        )
        return [RemoteJobRow(*row) for row in rows]

    def was_used(self, backend: str) -> bool:
        """Whether another system has run one of the last thousands of jobs."""
        row = self._one(
            "select 1 from attempts where backend = ? and job > (select max(job) from attempts) - ? limit 1",
            (backend, _LATELY),
        )
        return row is not None

    def ahead_of(self, job: JobId, now: float) -> int:
        """How many queued jobs of the same class that may start now stand before this one."""
        row = self._one(
            "select count(*) from jobs as other join jobs as this on this.id = ?"
            " where other.class = this.class and other.state = 'queued' and other.blockers = 0"
            " and (other.not_before is null or other.not_before <= ?)"
            " and (other.priority > this.priority or (other.priority = this.priority"
            " and coalesce(other.rank, other.id) < coalesce(this.rank, this.id)))",
            (job, now),
        )
        return int(row[0])

    def blockers(self, job: JobId) -> list[tuple[JobId, str, State | None]]:
        """The jobs that this one waits for: number, wanted end, and where they stand."""
        rows = self._ask(
            "select needs, kind, state from dependencies left join jobs on id = needs"
            " where job = ? order by needs",
            (job,),
        )
        return [(JobId(needs), kind, None if state is None else State(state)) for needs, kind, state in rows]

    def needs(self, limit: int) -> dict[JobId, list[JobId]]:
        """The first jobs that wait for others, and for which."""
        rows = self._ask(
            "select job, needs from dependencies where job in"
            " (select job from dependencies order by needs, job limit ?) order by job, needs",
            (limit,),
        )
        found: dict[JobId, list[JobId]] = {}
        for job, needed in rows:
            found.setdefault(JobId(job), []).append(JobId(needed))
        return found

    def find(self, reference: str) -> list[JobId]:
        """`17`, `@`, `@~2`, `17_4`, `17_` (the whole array), `3-9`, or a name.

        A name means what was added last under it: a job, or all jobs of that name which one call added.
        """
        text = reference.strip()
        if is_job_number(text):
            rows = self._numbers("select id from jobs where id = ?", int(text))
        elif last := re.fullmatch(LAST_JOB, text):
            rows = self._numbers("select id from jobs order by id desc limit 1 offset ?", int(last[1] or 0))
        elif task := re.fullmatch(TASK, text):
            rows = self._of_array(int(task[1]), None if task[2] is None else int(task[2]))
        elif span := re.fullmatch(JOB_RANGE, text):
            rows = self._numbers(
                "select id from jobs where id between ? and ? order by id limit ?",
                int(span[1]),
                int(span[2]),
                _MOST_IN_RANGE,
            )
        else:
            rows = self._of_name(text_value(text)) if text else []
        if not rows:
            raise NoSuchJob(reference if reference.strip() else "''")
        return rows

    def _of_name(self, name: str) -> list[JobId]:
        newest = self._one(
            "select id, batch from jobs where name = ? and name <> '' order by id desc limit 1", (name,)
        )
        if newest is None or newest[1] is None:
            return [] if newest is None else [JobId(newest[0])]
        return self._numbers(
            "select id from jobs where name = ? and name <> '' and id >= ? and batch = ? order by id",
            name,
            newest[1],
            newest[1],
        )

    def _of_array(self, array: int, task: int | None) -> list[JobId]:
        if task is None:
            return self._numbers("select id from jobs where array_id = ? order by task", array)
        return self._numbers("select id from jobs where array_id = ? and task = ?", array, task)

    def counts(self, project: str | None = None) -> dict[State, int]:
        """How many jobs are in each state."""
        where, values = ("", ()) if project is None else (" where project = ?", (project,))
        rows = self._ask(f"select state, sum(jobs) from tally{where} group by state having sum(jobs) > 0", values)
        return {State(state): jobs for state, jobs in rows}

    def projects(self) -> dict[str, dict[State, int]]:
        rows = self._ask("select project, state, jobs from tally where jobs > 0 order by project")
        found: dict[str, dict[State, int]] = {}
        for project, state, jobs in rows:
            found.setdefault(project, {})[State(state)] = jobs
        return found

    def environments_of_queued(self, most: int) -> list[dict[str, str]]:
        """The environments of the queued jobs that were added last."""
        newest = "select environment from jobs where state = 'queued' order by id desc limit ?"
        keys = self._ask(f"select distinct environment from ({newest})", [most])
        return [self.environment(key) for (key,) in keys]

    def environment(self, key: str) -> dict[str, str]:
        row = self._one("select content from environments where key = ?", (key,))
        found: dict[str, str] = json.loads(row[0]) if row else {}
        return found

    def code(self, key: str) -> dict[str, Any] | None:
        row = self._one("select content from code where key = ?", (key,))
        found: dict[str, Any] | None = json.loads(row[0]) if row else None
        return found

    def blocked(self) -> int:
        """How many queued jobs wait for other jobs."""
        row = self._one(
            "select count(*) from (select distinct job from dependencies) join jobs on id = job"
            " where state = 'queued'"
        )
        count: int = row[0]
        return count

    def marks(self) -> list[Mark]:
        rows = self._ask("select subject, kind, why, since from marks order by subject")
        return [Mark(*row) for row in rows]

    def seconds_of(self, project: str, name: str) -> float | None:
        """How long the last succeeded job of the same project and name ran."""
        if not project and not name:
            return None
        where, values = _conditions(Filter(project=project, name=name))
        row = self._one(
            f"select seconds from (select id, seconds, state from jobs where {' and '.join(where)}"
            " order by id desc limit 100) where state = 'succeeded' order by id desc limit 1",
            values,
        )
        return None if row is None else row[0]

    def _one(self, question: str, values: Sequence[Any] = ()) -> Any:
        rows = self._ask(question, values)
        return rows[0] if rows else None

    def _numbers(self, question: str, *values: Any) -> list[JobId]:
        return [JobId(number) for (number,) in self._ask(question, values)]


def _sort_key(order: str) -> tuple[str, list[Any]]:
    """What jobs are sorted by in this order, and the values in it."""
    if order in _KEYS:
        return _KEYS[order], []
    kind, name = next(((kind, order.removeprefix(kind)) for kind in _NAMED if order.startswith(kind)), ("", ""))
    if not name or '"' in name:
        raise BadInput(
            f"cannot sort by {order[:60]!r}", remedy=f"sort by {', '.join(SORTED_BY)}, param.NAME or metric.NAME"
        )
    path = f'$."{name}"'
    return _NAMED[kind], [path] if kind == PARAMETER else [name, path]


def _conditions(wanted: Filter) -> tuple[list[str], list[Any]]:
    where: list[str] = []
    values: list[Any] = []
    for column, value in (("project", wanted.project), ("name", wanted.name)):
        if value is not None:
            # Said twice where there is a value: the index holds those that have one.
            where.append(f"{column} = ? and {column} <> ''" if value else f"{column} = ?")
            values.append(text_value(value))
    if wanted.array is not None:
        where.append("array_id = ?")
        values.append(wanted.array)
    if wanted.tag is not None:
        where.append("exists (select 1 from json_each(request, '$.tags') where value = ?)")
        values.append(text_value(wanted.tag))
    if wanted.since is not None:
        where.append("coalesce(ended_at, started_at, queued_at) >= ?")
        values.append(wanted.since)
    if wanted.ranges:
        where.append("(" + " or ".join("id between ? and ?" for _ in wanted.ranges) + ")")
        values += [end for span in wanted.ranges for end in span]
    return where, values


def _text_condition(text: str) -> tuple[str, list[Any]]:
    """For text in ASCII. The first part is quick and finds too much: the request holds all four, as JSON."""
    exact = _like(text)
    where = (
        r"request like ? escape '\' and (name like ? escape '\' or project like ? escape '\'"
        r" or json_extract(request, '$.shown') like ? escape '\'"
        r" or exists (select 1 from json_each(request, '$.tags') where value like ? escape '\'))"
    )
    values: list[Any] = [_like(json.dumps(text)[1:-1]), exact, exact, exact, exact]
    if re.fullmatch(r"[0-9]{1,18}", text):
        return f"(id = ? or {where})", [int(text), *values]
    return where, values


def _like(text: str) -> str:
    return "%" + re.sub(r"([\\%_])", r"\\\1", text) + "%"


def _stands_in(text: str, request: str) -> bool:
    try:
        body = json.loads(request)
    except ValueError:
        return False  # reading this job raises an error that names the damaged row
    wanted = text.casefold()
    texts = [*(body.get(name, "") for name in ("name", "project", "shown")), *body.get("tags", ())]
    return any(wanted in text.casefold() for text in texts)


def _read_cursor(text: str) -> tuple[float, int]:
    try:
        place, number = text.split(":")
        return float(place), int(number)
    except ValueError:
        raise BadInput(f"cannot read the cursor {text[:50]!r}", remedy="take it from the page before") from None


# -- attempts by their time -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StillSpan:
    """A time in which an attempt stood still."""

    since: float
    until: float | None  # None: it still does
    off_until: float | None  # until it had its cards again; None: it has not
    frees_cards: bool  # False: its memory stayed there, and no other job could have them


@dataclass(frozen=True, slots=True)
class Span:
    """One attempt, as a bar on a time line."""

    job: int
    attempt: int
    name: str
    project: str
    gpus: tuple[int, ...]
    started_at: float
    ended_at: float | None  # None while it runs
    state: State
    cause: str | None
    node: str = ""  # the machine, where another system ran it
    node_gpus: str = ""  # its cards there: `0,1`; `0,1,+2` where it has two more on other nodes
    share: Fraction = Fraction(1)  # of each card
    usage: str = ""  # what was measured: `codec.read_usage` reads it
    suspended: tuple[StillSpan, ...] = ()

    def off_cards(self, now: float) -> list[tuple[float, float]]:
        """The times in which it had nothing of its cards, though it had not ended."""
        return [
            (one.since, now if one.off_until is None else one.off_until)
            for one in self.suspended
            if one.frees_cards
        ]

    @property
    def gpu_count(self) -> float:
        """How much of GPUs it had: two cards are 2, an eighth of one is 0.125."""
        if self.node:
            named = [one for one in self.node_gpus.split(",") if one]
            more = [one for one in named if re.fullmatch(r"\+[0-9]{1,6}", one)]  # on other nodes
            return float(len(named) - len(more) + sum(map(int, more)))
        return float(len(self.gpus) * self.share)


@dataclass(frozen=True, slots=True)
class EndedSpan:
    """A job that is over; the position of a reader in the list of them."""

    at: float
    job: int


class Spans:
    """Attempts by the time in which they ran. No index has that time, so they are found through their jobs.

    Each question looks at as many jobs as it is told, so that others are not held up."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def running(self, since: float, until: float) -> list[Span]:
        """Of jobs that run or are suspended now, earlier attempts too."""
        rows = self._ask(
            f"select {_SPAN} from jobs join attempts as a on a.job = jobs.id"
            f" where jobs.state in ('running', 'suspended') and {_OVERLAPS}",
            (until, until, since),
        )
        return [_span(row) for row in rows]

    def ended_before(self, state: State, place: EndedSpan, since: float, limit: int) -> list[EndedSpan]:
        """Jobs that ended before this place and not before `since`, the last one first."""
        rows = self._ask(
            f"select ended_at, id from jobs where state = ? and {_HAS_ENDED} and (ended_at, id) < (?, ?)"
            " and ended_at >= ?"
            " order by ended_at desc, id desc limit ?",
            (state, place.at, place.job, since, limit),
        )
        return [EndedSpan(*row) for row in rows]

    def ended_after(self, state: State, place: EndedSpan, limit: int) -> list[EndedSpan]:
        """Jobs that ended after this place, the first one first."""
        rows = self._ask(
            f"select ended_at, id from jobs where state = ? and {_HAS_ENDED} and (ended_at, id) > (?, ?)"
            " order by ended_at, id limit ?",
            (state, place.at, place.job, limit),
        )
        return [EndedSpan(*row) for row in rows]

    def waiting(self, state: State, above: int, limit: int) -> list[int]:
        """Numbers of queued or held jobs above this one, whether or not they have run before."""
        rows = self._ask(
            "select id from jobs where state = ? and id > ? order by id limit ?", (state, above, limit)
        )
        return [number for (number,) in rows]

    def of(self, jobs: Sequence[int], since: float, until: float) -> list[Span]:
        """The attempts of these jobs that ran in this time."""
        rows = self._ask(
            f"select {_SPAN} from jobs join attempts as a on a.job = jobs.id"
            " where jobs.id in (select value from json_each(?)) and jobs.attempts > 0 and jobs.queued_at <= ?"
            f" and {_OVERLAPS}",
            (json.dumps(jobs), until, until, until, since),
        )
        return [_span(row) for row in rows]


def _span(row: Any) -> Span:
    job, number, name, project, claims, opened_at, ended_at, cause, node, node_gpus, usage, still = row
    suspended = () if still == _NONE_STOOD_STILL else _suspended(still, ended_at)
    if ended_at is not None:
        state = _state(cause)
    else:
        state = State.SUSPENDED if suspended and suspended[-1].until is None else State.RUNNING
    gpus, share = _gpus(claims)
    return Span(
        *(job, number, name, project, gpus, opened_at, ended_at, state, cause, node, node_gpus, share, usage),
        suspended,
    )


def _suspended(text: str, ended_at: float | None) -> tuple[StillSpan, ...]:
    """They end with the attempt, whose end may have been found later than it was."""

    def before_end(at: float | None) -> float | None:
        return at if ended_at is None else ended_at if at is None else min(at, ended_at)

    return tuple(
        StillSpan(since, before_end(until), before_end(until if off_until is None else off_until), bool(frees))
        for since, off_until, until, frees in json.loads(text)
    )


@lru_cache(1024)
def _gpus(claims: str) -> tuple[tuple[int, ...], Fraction]:
    """The places of the cards and the share of each; the rest of a claim is not decoded for ten thousand bars."""
    try:
        found = json.loads(claims)
        return tuple(claim[1] for claim in found), Fraction(found[0][2]) if found else Fraction(1)
    except (ValueError, TypeError, IndexError, ZeroDivisionError):
        return (), Fraction(1)


@lru_cache(64)
def _state(cause: str | None) -> State:
    return Outcome(cause=Cause(cause) if cause else None).state
