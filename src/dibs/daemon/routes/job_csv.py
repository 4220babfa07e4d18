"""The route that returns the table of jobs as CSV: all rows that match, with chosen columns."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from dibs.daemon.app_state import AppState
from dibs.daemon.http.errors import StrictRoute, errors
from dibs.daemon.routes.jobs import SortedJobQuery, sorted_jobs
from dibs.daemon.schemas.responses import moment
from dibs.errors import BadInput
from dibs.model.jobs import Outcome
from dibs.store.codec import JobRow, text_value
from dibs.store.listing import METRIC, PARAMETER

Cell = str | int | float | None

_USUAL = "id,name,command,project,state,gpus,seconds,queued_at,started_at,ended_at"
_AT_ONCE = 100  # rows that are read before other requests are served
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a cell that begins so is computed by a spreadsheet


class JobCsvQuery(SortedJobQuery):
    columns: Annotated[
        str,
        Field(
            max_length=4000,
            pattern=r"^[^\u0000]*$",
            description="names with commas between: those of a job, param.NAME and metric.NAME",
        ),
    ] = _USUAL


def csv_routes(app: AppState) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.get(
        "/v1/jobs.csv",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}, **errors(503)},
    )
    async def table(asked: Annotated[JobCsvQuery, Query()]) -> Response:
        """The jobs that match as CSV, one line each."""
        columns = _columns(asked.columns, app.user)
        wanted = asked.filter()
        is_ours = asked.user in (None, app.user)
        jobs = (await sorted_jobs(app, wanted, asked)).jobs if is_ours else ()
        return StreamingResponse(
            _lines(app, columns, jobs),
            media_type="text/csv",
            headers={"Content-Disposition": 'attachment; filename="jobs.csv"'},
        )

    return routes


async def _lines(
    app: AppState, columns: Mapping[str, Callable[[JobRow], Cell]], jobs: Sequence[int]
) -> AsyncIterator[bytes]:
    yield _encoded([list(columns)])
    for begin in range(0, len(jobs), _AT_ONCE):
        rows = app.store.listing.rows(jobs[begin : begin + _AT_ONCE])
        yield _encoded([[tell(row) for tell in columns.values()] for row in rows])
        await asyncio.sleep(0)


def _encoded(rows: Sequence[Sequence[Cell]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([[harmless(cell) for cell in row] for row in rows])
    return text_value(text.getvalue()).encode()


def harmless(cell: Cell) -> Cell:
    """The cell as a spreadsheet may read it: text that it would take for a formula begins with an apostrophe."""
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _columns(text: str, user: str) -> dict[str, Callable[[JobRow], Cell]]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    known = {**_COLUMNS, "user": lambda row: user}
    if not names:
        raise BadInput("there is no column to show", remedy=f"columns are {', '.join(known)}")
    return {name: known.get(name) or _of_trial(name, known) for name in names}


def _of_trial(name: str, known: Mapping[str, Any]) -> Callable[[JobRow], Cell]:
    for kind, tell in ((PARAMETER, _parameter), (METRIC, _metric)):
        if name.startswith(kind) and (own := name.removeprefix(kind)):
            return lambda row: tell(row, own)
    raise BadInput(
        f"there is no column {name[:60]!r}", remedy=f"columns are {', '.join(known)}, param.NAME and metric.NAME"
    )


def _parameter(row: JobRow, name: str) -> Cell:
    return row.trial.point.get(name) if row.trial else None


def _metric(row: JobRow, name: str) -> Cell:
    return row.metrics.get(name)


def _pairs(pairs: Mapping[str, object]) -> str:
    return " ".join(f"{name}={'none' if value is None else value}" for name, value in pairs.items())


def _array(row: JobRow) -> Cell:
    array = row.job.request.array
    return None if array is None else f"{array.array}_{array.task}"


def _gpus(row: JobRow) -> Cell:
    if row.node:
        return f"{row.node}:{row.node_gpus}" if row.node_gpus else row.node
    return " ".join(row.gpu_numbers)


def _of_outcome(tell: Callable[[Outcome], Cell]) -> Callable[[JobRow], Cell]:
    return lambda row: None if row.outcome is None else tell(row.outcome)


_COLUMNS: dict[str, Callable[[JobRow], Cell]] = {
    "id": lambda row: row.job.id,
    "name": lambda row: row.job.request.name,
    "command": lambda row: row.job.request.command.shown,
    "project": lambda row: row.job.request.project,
    "state": lambda row: str(row.job.state),
    "priority": lambda row: row.job.request.priority,
    "tags": lambda row: " ".join(row.job.request.tags),
    "array": _array,
    "gpus": _gpus,
    "attempts": lambda row: row.job.attempts,
    "exit_code": _of_outcome(lambda outcome: outcome.exit_code),
    "signal": _of_outcome(lambda outcome: outcome.signal),
    "cause": _of_outcome(lambda outcome: str(outcome.cause) if outcome.cause else None),
    "message": _of_outcome(lambda outcome: outcome.message),
    "why_held": lambda row: row.job.why_held,
    "queued_at": lambda row: moment(row.queued_at),
    "started_at": lambda row: moment(row.started_at),
    "ended_at": lambda row: moment(row.ended_at),
    "seconds": _of_outcome(lambda outcome: outcome.seconds),
    "workdir": lambda row: row.job.request.workdir,
    "params": lambda row: _pairs(row.trial.point) if row.trial else "",
    "metrics": lambda row: _pairs(row.metrics),
}
