"""Routes about the cards."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from dibs.daemon.app_state import Desk
from dibs.daemon.http.errors import Answer, StrictRoute, errors
from dibs.daemon.schemas import requests as models
from dibs.daemon.schemas import responses as objects
from dibs.daemon.schemas.gpus import Gpus
from dibs.daemon.schemas.serializers import moment
from dibs.daemon.worker_thread import aside
from dibs.engine.standing import Standing, standing
from dibs.engine.survey import GpuUse, pid_of, survey, unseen
from dibs.errors import BadInput
from dibs.leases.records import Holder
from dibs.model.gpus import GpuProcess, Reading
from dibs.model.pool import Card
from dibs.store.queue import Mark

_DRIVER_PATIENCE = 15.0  # seconds; longer than the driver is given itself
_PATIENCE = 2.0  # seconds for a fresh look; then the last one must do


def gpus_routes(desk: Desk) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.get("/v1/gpus", responses={200: {"model": Gpus}, **errors(503)})
    async def gpus() -> Response:
        """Every GPU of this machine, and who holds what of it."""
        reading = await desk.driver.look(_PATIENCE)
        return Answer({"gpus": gpu_objects(desk, reading), "pool": desk.pool()})

    @routes.post("/v1/gpus/act", responses={200: {"model": objects.ChangedGpus}, **errors(404, 409, 413, 503)})
    async def act(body: Annotated[models.GpuAct, Body()]) -> Response:
        """Drain or undrain GPUs, add them to the pool or remove them. What runs there goes on."""
        gpus = list(dict.fromkeys(body["gpus"]))
        cards = list(desk.engine.cards.pool.cards)
        why = body.get("why", "")
        if why and body["action"] != "drain":
            raise BadInput(f"`{body['action']}` needs no reason", remedy="leave out `why`")
        if body["action"] == "drain":
            changed = desk.queue.pool.drain(gpus, why)
        elif body["action"] == "undrain":
            changed = desk.queue.pool.undrain(gpus)
        else:
            changed = await _change_pool(desk, body["action"] == "add", gpus)
        desk.news.came()
        names = {card.gpu.key: card.gpu.number for card in [*cards, *desk.engine.cards.pool.cards]}
        return Answer({"changed": [names[key] for key in changed]})

    return routes


async def _change_pool(desk: Desk, is_more: bool, gpus: list[str]) -> list[str]:
    """The keys of the cards that came or went."""
    before = {card.gpu.key for card in desk.engine.cards.pool.cards}
    text = desk.queue.pool.with_more(gpus) if is_more else desk.queue.pool.without(gpus)
    # Through the watcher: a fault that is read here must not be lost for the queue.
    pool = await aside(lambda: desk.queue.pool.resolve(text, desk.driver.watcher), _DRIVER_PATIENCE, "pool")
    desk.queue.pool.set(text, pool)
    return sorted(before ^ {card.gpu.key for card in pool.cards})


def gpu_objects(desk: Desk, reading: Reading | None) -> list[dict[str, Any]]:
    """The cards as the API shows them. Without a fresh reading the last one tells what they are."""
    watcher = desk.driver.watcher
    is_silent = watcher is not None and reading is None
    known = watcher.latest if watcher else None
    cards = {card.gpu.key: card for card in desk.engine.cards.pool.cards}
    uses = {
        use.key: use
        for use in survey(
            known,
            desk.leases.holders(),
            desk.leases.waiting(),
            user=desk.user,
            rules=desk.engine.cards.manners.busy,
        )
    }
    for key, card in cards.items():
        uses.setdefault(key, unseen(key, card.gpu.number, is_asked=known is not None))
    marks = {mark.subject.removeprefix("gpu "): mark for mark in desk.store.listing.marks()}
    why_silent = watcher.failure.message if watcher and watcher.failure else "the driver does not answer"
    return [
        _object(
            use,
            cards.get(use.key),
            _standing(desk, use, marks.get(use.key), why_silent if is_silent else ""),
        )
        for use in sorted(uses.values(), key=lambda use: use.place)
    ]


def _object(use: GpuUse, card: Card | None, stands: Standing) -> dict[str, Any]:
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
        "holders": [_holder(holder) for holder in use.holders],
        "processes": [_process(one, is_foreign=one in use.foreign) for one in (seen.processes if seen else ())],
    }


def _standing(desk: Desk, use: GpuUse, mark: Mark | None, silent: str) -> Standing:
    if mark is not None and mark.kind == "quarantined":
        return standing(use, mark.kind, mark.why, desk.health.prospect(use.key))
    if mark is not None and mark.kind == "drained":
        return standing(use, mark.kind, mark.why)
    stands = standing(use, silent=silent)
    return Standing("held") if stands.state == "partly held" else stands


def _process(process: GpuProcess, *, is_foreign: bool) -> dict[str, Any]:
    return {
        "user": process.user,
        "pid": process.pid,
        "memory_bytes": process.memory,
        "kind": process.kind,
        "name": process.name,
        "is_foreign": is_foreign,
    }


def _holder(holder: Holder) -> dict[str, Any]:
    return {
        "user": holder.user,
        "job": holder.job,
        "pid": pid_of(holder) or None,
        "share": str(holder.share),
        "since_at": moment(holder.since) if holder.since else None,
    }
