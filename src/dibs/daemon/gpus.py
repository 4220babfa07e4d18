"""Routes about the cards."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from dibs.daemon import models, objects
from dibs.daemon.answers import Answer, StrictRoute, errors
from dibs.daemon.aside import aside
from dibs.daemon.desk import Desk
from dibs.daemon.shown import moment
from dibs.engine.survey import GpuUse, pid_of, survey
from dibs.leases.records import Holder
from dibs.model.gpus import Reading
from dibs.model.pool import Card
from dibs.store.queue import Mark

_DRIVER_PATIENCE = 15.0  # seconds; longer than the driver is given itself
_PATIENCE = 2.0  # seconds for a fresh look; then the last one must do


def gpus_routes(desk: Desk) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.get("/v1/gpus", responses={200: {"model": objects.Gpus}, **errors(503)})
    async def gpus() -> Response:
        """Every GPU of this machine, and who holds what of it."""
        reading = await desk.driver.look(_PATIENCE)
        return Answer({"gpus": gpu_objects(desk, reading), "pool": desk.pool()})

    @routes.post("/v1/gpus/act", responses={200: {"model": objects.ChangedGpus}, **errors(404, 409, 413, 503)})
    async def act(body: Annotated[models.GpuAct, Body()]) -> Response:
        """Drain or undrain GPUs, add them to the pool or remove them. What runs there goes on."""
        gpus = list(dict.fromkeys(body["gpus"]))
        cards = list(desk.engine.cards.pool.cards)
        if body["action"] == "drain":
            changed = desk.queue.drain(gpus)
        elif body["action"] == "undrain":
            changed = desk.queue.undrain(gpus)
        else:
            changed = await _change_pool(desk, body["action"] == "add", gpus)
        desk.news.came()
        names = {card.gpu.key: str(card.gpu.index) for card in [*cards, *desk.engine.cards.pool.cards]}
        return Answer({"changed": [names[key] for key in changed]})

    return routes


async def _change_pool(desk: Desk, is_more: bool, gpus: list[str]) -> list[str]:
    """The keys of the cards that came or went."""
    before = {card.gpu.key for card in desk.engine.cards.pool.cards}
    text = desk.queue.pool_with(gpus) if is_more else desk.queue.pool_without(gpus)
    pool = await aside(lambda: desk.queue.resolve(text), _DRIVER_PATIENCE, "pool")
    desk.queue.set_pool(text, pool)
    return sorted(before ^ {card.gpu.key for card in pool.cards})


def gpu_objects(desk: Desk, reading: Reading | None) -> list[dict[str, Any]]:
    """The cards as the API shows them. Without a fresh reading the last one tells what they are."""
    watcher = desk.driver.watcher
    is_silent = watcher is not None and reading is None
    known = reading or (watcher.latest if watcher else None)
    cards = {card.gpu.key: card for card in desk.engine.cards.pool.cards}
    uses = {use.key: use for use in survey(known, desk.leases.holders(), desk.leases.waiting(), user=desk.user)}
    for key, card in cards.items():
        uses.setdefault(key, GpuUse(key=key, index=card.gpu.index))
    marks = {mark.subject.removeprefix("gpu "): mark for mark in desk.store.listing.marks()}
    why_silent = watcher.failure.message if watcher and watcher.failure else "the driver does not answer"
    return [
        _object(use, cards.get(use.key), marks.get(use.key), why_silent if is_silent else "")
        for use in sorted(uses.values(), key=lambda use: (use.index is None, use.index or 0, use.key))
    ]


def _object(use: GpuUse, card: Card | None, mark: Mark | None, silent: str) -> dict[str, Any]:
    seen = use.seen
    gpu = seen.gpu if seen else card.gpu if card else None
    state, why = _state(use, mark, silent)
    return {
        "index": use.index,
        "key": use.key,
        "name": gpu.name if gpu else "",
        "memory_total_bytes": gpu.memory_total if gpu else None,
        "memory_used_bytes": seen.memory_used if seen else None,
        "load_percent": seen.load if seen else None,
        "temperature_celsius": seen.temperature if seen else None,
        "power_watts": seen.power if seen else None,
        "slots": card.slots if card else 0,  # 0: not in the pool
        "state": state,
        "why": why,
        "holders": [_holder(holder) for holder in use.holders],
        "processes": [
            {"user": one.user, "pid": one.pid, "memory_bytes": one.memory, "name": one.name}
            for one in (seen.processes if seen else ())
        ],
    }


def _state(use: GpuUse, mark: Mark | None, silent: str) -> tuple[str, str]:
    if mark is not None and mark.kind in ("drained", "quarantined"):
        return mark.kind, mark.why
    if silent:
        return "silent", silent
    if use.holders:
        return "held", ""
    if use.foreign:
        first = use.foreign[0]
        return "busy", f"{first.user or 'somebody'} computes there without a claim (pid {first.pid})"
    return "free", ""


def _holder(holder: Holder) -> dict[str, Any]:
    return {
        "user": holder.user,
        "job": holder.job,
        "pid": pid_of(holder) or None,
        "share": str(holder.share),
        "since_at": moment(holder.since) if holder.since else None,
    }
