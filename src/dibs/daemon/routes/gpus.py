"""Routes about the GPUs of this machine, and the JSON that they return."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Query, Response
from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs.daemon.app_state import AppState
from dibs.daemon.gpu_history import LONGEST, STEP, GpuHistoryBuffer
from dibs.daemon.http.errors import JsonResponse, StrictRoute, errors
from dibs.daemon.schemas import requests
from dibs.daemon.schemas.requests import Moment
from dibs.daemon.schemas.responses import moment
from dibs.dataclass import dataclass
from dibs.engine.driver import Driver
from dibs.engine.engine import Engine
from dibs.engine.turn.state import OpenAttempt
from dibs.engine.watch.health import Health
from dibs.engine.watch.survey import GpuStanding, GpuUse, pid_of, standing, survey, unseen
from dibs.errors import BadInput
from dibs.leases.files import Holder
from dibs.leases.leases import Leases
from dibs.model.gpus import Card, GpuProcess, Reading
from dibs.model.records import Mark
from dibs.worker_thread import run_in_thread

_POOL_WITHIN = 15.0  # seconds; longer than the deadline of the driver itself
_READ_WITHIN = 2.0  # seconds for a fresh reading; then the last one is shown

GpuState = Literal["free", "held", "busy", "drained", "quarantined", "stale", "lost", "missing", "silent"]


class ChangedGpus(TypedDict):
    changed: list[str]


class HolderObject(TypedDict):
    user: str
    job: str  # its name, or its number
    job_id: int | None  # null: it is not a running job of this queue
    pid: int | None
    share: str
    since_at: Moment | None


class SuspendedObject(TypedDict):
    """A job that stands still: it has nothing of the card until it resumes there."""

    user: str
    job: str  # its name, or its number
    job_id: int | None  # null: it is not a job of this queue
    pid: int | None
    held_bytes: int | None  # of the card's memory, now in the machine's; null: not known
    since_at: Moment | None  # when it was suspended; null: not known


class ProcessObject(TypedDict):
    user: str | None
    pid: int
    memory_bytes: int | None
    kind: Literal["compute", "graphics"]
    name: str
    is_foreign: bool  # it computes there without a claim


class GpuObject(TypedDict):
    index: int | None
    number: str | None
    key: str
    name: str
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    load_percent: float | None
    temperature_celsius: float | None
    power_watts: float | None
    energy_joules: float | None
    ecc_uncorrected: int | None
    slots: int
    state: GpuState
    why: str
    remedy: str
    holders: list[HolderObject]
    suspended: list[SuspendedObject]
    processes: list[ProcessObject]


class Gpus(TypedDict):
    gpus: list[GpuObject]
    pool: str


class GpuPast(TypedDict):
    """One value for each step; null if there was no reading. Load and power are means, the others are maxima."""

    key: str
    load_percent: list[float | None]
    memory_used_bytes: list[int | None]
    power_watts: list[float | None]
    temperature_celsius: list[float | None]


class GpuHistory(TypedDict):
    start_at: Moment
    step_seconds: float
    gpus: list[GpuPast]


def gpu_routes(app: AppState, table: "GpuTable", history: GpuHistoryBuffer) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.get("/v1/gpus", responses={200: {"model": Gpus}, **errors(503)})
    async def gpus() -> Response:
        """Every GPU of this machine, with its leases and processes."""
        reading = await app.driver.look(_READ_WITHIN)
        pool = app.store.queue.setting("pool") or app.settings.gpus  # as it was asked for: `auto`, `0,1`
        return JsonResponse({"gpus": table.objects(reading), "pool": pool})

    @routes.get("/v1/gpus/history", responses={200: {"model": GpuHistory}, **errors(503)})
    async def past(seconds: Annotated[int, Query(ge=STEP, le=LONGEST)] = 600) -> Response:
        """The recent readings of every GPU, in steps of a few seconds."""
        return JsonResponse(history.last(seconds, time.time()))

    @routes.post("/v1/gpus/act", responses={200: {"model": ChangedGpus}, **errors(404, 409, 413, 503)})
    async def act(body: Annotated[requests.GpuAct, Body()]) -> Response:
        """Drain or undrain GPUs, add them to the pool or remove them. Running jobs are not affected."""
        gpus = list(dict.fromkeys(body["gpus"]))
        cards = list(app.engine.cards.pool.cards)
        why = body.get("why", "")
        if why and body["action"] != "drain":
            raise BadInput(f"`{body['action']}` needs no reason", remedy="leave out `why`")
        if body["action"] == "drain":
            changed = app.queue.pool.drain(gpus, why)
        elif body["action"] == "undrain":
            changed = app.queue.pool.undrain(gpus)
        else:
            changed = await _change_pool(app, body["action"] == "add", gpus)
        app.feed.wake()
        names = {card.gpu.key: card.gpu.number for card in [*cards, *app.engine.cards.pool.cards]}
        return JsonResponse({"changed": [names[key] for key in changed]})

    return routes


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuTable:
    """The GPUs as the API shows them: readings, leases and marks together."""

    engine: Engine
    health: Health
    driver: Driver
    leases: Leases
    user: str

    @property
    def latest_reading(self) -> Reading | None:
        watcher = self.driver.watcher
        return watcher.latest if watcher else None

    def objects(self, reading: Reading | None) -> list[dict[str, Any]]:
        """Every GPU. Without a fresh reading, `reading` is None and the last one says which GPUs there are."""
        watcher = self.driver.watcher
        is_silent = watcher is not None and reading is None
        known = self.latest_reading
        cards = {card.gpu.key: card for card in self.engine.cards.pool.cards}
        uses = {
            use.key: use
            for use in survey(
                known,
                self.leases.look(),
                user=self.user,
                rules=self.engine.cards.rules.busy,
            )
        }
        for key, card in cards.items():
            uses.setdefault(key, unseen(key, card.gpu.number, is_asked=known is not None))
        marks = {mark.subject.removeprefix("gpu "): mark for mark in self.engine.store.listing.marks()}
        runs = {one.attempt.folder: one for one in self.engine.state.open.values()}
        why_silent = watcher.failure.message if watcher and watcher.failure else "the driver does not answer"
        return [
            _object(
                use,
                cards.get(use.key),
                self._standing(use, marks.get(use.key), why_silent if is_silent else ""),
                runs,
            )
            for use in sorted(uses.values(), key=lambda use: use.place)
        ]

    def _standing(self, use: GpuUse, mark: Mark | None, silent: str) -> GpuStanding:
        if mark is not None and mark.kind == "quarantined":
            return standing(use, mark.kind, mark.why, self.health.prospect(use.key))
        if mark is not None and mark.kind == "drained":
            return standing(use, mark.kind, mark.why)
        stands = standing(use, silent=silent)
        return replace(stands, state="held") if stands.state == "partly held" else stands


async def _change_pool(app: AppState, is_more: bool, gpus: list[str]) -> list[str]:
    """Add GPUs to the pool or remove them; return the keys of those that changed."""
    before = {card.gpu.key for card in app.engine.cards.pool.cards}
    text = app.queue.pool.with_more(gpus) if is_more else app.queue.pool.without(gpus)
    # Through the watcher, so that a fault that is read here is not lost for the queue.
    pool = await run_in_thread(lambda: app.queue.pool.resolve(text, app.driver.watcher), _POOL_WITHIN, "pool")
    app.queue.pool.set(text, pool)
    return sorted(before ^ {card.gpu.key for card in pool.cards})


def _object(
    use: GpuUse, card: Card | None, stands: GpuStanding, runs: Mapping[str, OpenAttempt]
) -> dict[str, Any]:
    """`runs`: the open attempts, by their folders."""
    seen = use.seen
    gpu = seen.gpu if seen else card.gpu if card else None
    return {
        "index": use.index,
        "number": use.number,
        "key": use.key,
        "name": gpu.name if gpu else "",
        "memory_total_bytes": gpu.memory_total if gpu else None,
        "memory_used_bytes": seen.memory_used if seen else None,
        "load_percent": seen.load if seen else None,
        "temperature_celsius": seen.temperature if seen else None,
        "power_watts": seen.power if seen else None,
        "energy_joules": seen.energy if seen else None,
        "ecc_uncorrected": seen.ecc_uncorrected if seen else None,
        "slots": card.slots if card else 0,  # 0: not in the pool
        "state": stands.state,
        "why": stands.why,
        "remedy": stands.remedy,
        "holders": [_holder(holder, runs.get(holder.folder)) for holder in use.holders],
        "suspended": [_suspended(holder, runs.get(holder.folder)) for holder in use.suspended],
        "processes": [_process(one, is_foreign=one in use.foreign) for one in (seen.processes if seen else ())],
    }


def _process(process: GpuProcess, *, is_foreign: bool) -> dict[str, Any]:
    return {
        "user": process.user,
        "pid": process.pid,
        "memory_bytes": process.memory,
        "kind": process.kind,
        "name": process.name,
        "is_foreign": is_foreign,
    }


def _holder(holder: Holder, run: OpenAttempt | None) -> dict[str, Any]:
    return {
        "user": holder.user,
        "job": holder.job,
        "job_id": run.job.id if run else None,
        "pid": pid_of(holder) or None,
        "share": str(holder.share),
        "since_at": moment(holder.since) if holder.since else None,
    }


def _suspended(holder: Holder, run: OpenAttempt | None) -> dict[str, Any]:
    suspension = run.suspension if run else None
    at = suspension.suspended_at if suspension else None
    return {
        "user": holder.user,
        "job": holder.job,
        "job_id": run.job.id if run else None,
        "pid": pid_of(holder) or None,
        "held_bytes": suspension.held.get(holder.gpu, 0) if suspension else None,
        "since_at": moment(at) if at else None,
    }
