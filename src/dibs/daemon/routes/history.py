"""Routes to the history of this machine: its cards in the last day or week, and GPU time by week."""

import asyncio
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs.daemon.http.errors import JsonResponse, StrictRoute, errors
from dibs.daemon.schemas.requests import Moment
from dibs.daemon.schemas.responses import moment
from dibs.daemon.weekly_report import MOST_WEEKS, WeeklyReport
from dibs.engine.watch.card_history import CardHistory
from dibs.engine.watch.cards import Cards
from dibs.errors import BadInput
from dibs.model.card_history import HOURS, MINUTES, HistoryBucket, Level
from dibs.model.gpus import Card

_SPANS = {"24h": (MINUTES, 24 * 12), "7d": (HOURS, 7 * 24)}  # seconds of a step, and how many
_USES = ("job", "unused", "others", "idle", "lost")


class CardPast(TypedDict):
    """One value for each step; null if it is not known. The seconds of a step add up to its length."""

    gpu: str  # its number
    key: str
    name: str
    memory_total_bytes: int | None
    load_percent: list[float | None]  # means; the lists with `max` are the highest readings
    load_percent_max: list[float | None]
    memory_used_bytes: list[int | None]
    memory_used_bytes_max: list[int | None]
    power_watts: list[float | None]
    power_watts_max: list[float | None]
    job_seconds: list[int]  # a job of this queue had it; of a part of the card its part
    unused_seconds: list[int]  # the same, but the card had no load
    others_seconds: list[int]  # others used it
    idle_seconds: list[int]
    lost_seconds: list[int]
    unknown_seconds: list[int]  # it was not watched


class MachinePast(TypedDict):
    span: Literal["24h", "7d"]
    since_at: Moment
    step_seconds: int
    gpus: list[CardPast]


class ProjectTime(TypedDict):
    """What the jobs of a project had in a week."""

    project: str
    gpu_hours: float  # of this machine; eight jobs with an eighth of a card for an hour are one
    remote_gpu_hours: float  # of other machines
    energy_watt_hours: float
    mean_load_percent: float | None
    attempts: int


class UserTime(TypedDict):
    """What a user had in a week."""

    user: str
    gpu_hours: float  # by jobs of this queue
    remote_gpu_hours: float
    outside_gpu_hours: float  # of the queue's GPUs, with other leases or none
    energy_watt_hours: float


class MachineTime(TypedDict):
    """What the GPUs of the pool were in a week, in GPU hours."""

    gpus: int
    job_gpu_hours: float
    unused_gpu_hours: float
    others_gpu_hours: float
    idle_gpu_hours: float
    lost_gpu_hours: float
    unknown_gpu_hours: float
    energy_watt_hours: float


class WeekReport(TypedDict):
    week: str  # 2026-W46
    since_at: Moment
    until_at: Moment  # its end, or now
    is_over: bool
    projects: list[ProjectTime]
    users: list[UserTime]
    machine: MachineTime


class MachineReport(TypedDict):
    time_zone: str  # of the machine: its weeks begin on Monday at midnight
    weeks: list[WeekReport]  # the newest first
    is_partial: bool  # there were too many jobs to look at all


def history_routes(history: CardHistory, cards: Cards, report: WeeklyReport) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.get("/v1/history", responses={200: {"model": MachinePast}, **errors(503)})
    async def past(span: Literal["24h", "7d"] = "24h") -> Response:
        """Load, memory, power and use of the pool's cards: a day in steps of five minutes, or a week in hours."""
        step, count = _SPANS[span]
        now = time.time()
        since = (int(now // step) - count + 1) * step
        gpus = []
        for card in cards.pool.cards:
            gpus.append(_card(history, card, since, step, now))
            await asyncio.sleep(0)  # other requests need not wait for all cards
        return JsonResponse({"span": span, "since_at": moment(since), "step_seconds": step, "gpus": gpus})

    @routes.get("/v1/report", responses={200: {"model": MachineReport}, **errors(503)})
    async def weekly(
        week: Annotated[
            str, Query(max_length=60, description="2026-W46, 46 for the last week of this number, or `this`")
        ] = "",
        weeks: Annotated[
            int | None, Query(ge=1, le=MOST_WEEKS, description="up to this one; 4 if left out")
        ] = None,
    ) -> Response:
        """GPU time and energy by week, project and user, and what the GPUs were."""
        if week and weeks is not None:
            raise BadInput("the request has both `week` and `weeks`", remedy="leave one of them out")
        return JsonResponse(await report.make(week, 4 if weeks is None else weeks, time.time()))

    return routes


def _card(history: CardHistory, card: Card, since: int, step: int, now: float) -> dict[str, Any]:
    key = card.gpu.key
    known = history.buckets(key, step, since, now + step)
    until = history.counted_until(key, now)
    buckets = [known.get(at) or HistoryBucket(step, at) for at in range(since, int(now) + 1, step)]
    return {
        "gpu": card.gpu.number,
        "key": key,
        "name": card.gpu.name,
        "memory_total_bytes": card.gpu.memory_total,
        **_levels("load_percent", [one.load for one in buckets], 1),
        **_levels("memory_used_bytes", [one.memory for one in buckets], None),
        **_levels("power_watts", [one.power for one in buckets], 1),
        **{f"{use}_seconds": [round(getattr(one.use, use)) for one in buckets] for use in _USES},
        "unknown_seconds": [
            round(max(0.0, min(until, one.at + step) - one.at - one.use.known)) for one in buckets
        ],
    }


def _levels(name: str, levels: list[Level], digits: int | None) -> dict[str, list[float | None]]:
    return {
        name: [None if one.mean is None else round(one.mean, digits) for one in levels],
        f"{name}_max": [None if one.most is None else round(one.most, digits) for one in levels],
    }
