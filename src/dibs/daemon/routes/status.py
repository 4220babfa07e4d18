"""Routes that tell how the daemon and its projects are."""

import os

from fastapi import APIRouter, Response

from dibs import __version__
from dibs.daemon.app_state import Desk
from dibs.daemon.http.errors import Answer, StrictRoute, errors
from dibs.daemon.schemas import responses as objects
from dibs.daemon.schemas.serializers import counts_object, moment

API = 1
_PROJECT = "project "


def status_routes(desk: Desk) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)
    listing = desk.store.listing

    @routes.get("/v1/status", responses={200: {"model": objects.Status}, **errors(503)})
    async def status() -> Response:
        """Who is there, and how much there is to do."""
        marks = {mark.subject: mark for mark in listing.marks() if mark.kind == "paused"}
        watcher = desk.driver.watcher
        return Answer(
            {
                "version": __version__,
                "api": API,
                "pid": os.getpid(),
                "started_at": moment(desk.started_at),
                "user": desk.user,
                "state_folder": desk.state_folder,
                "paused": "queue" in marks,
                "paused_projects": sorted(
                    subject.removeprefix(_PROJECT) for subject in marks if subject.startswith(_PROJECT)
                ),
                "counts": counts_object(listing.counts()),
                "gpus": desk.engine.cards.pool.shown,
                "driver": watcher.latest.driver if watcher and watcher.latest else "",
                "default_backend": desk.default_backend,
                "backends": [
                    {
                        "name": one.name,
                        "attempts": one.attempts,
                        "trouble": one.trouble,
                        "remedy": one.remedy,
                        "silent_since_at": moment(one.silent_since),
                    }
                    for one in desk.away.standings()
                ],
                "warm": [{"modules": list(modules), "pid": pid} for modules, pid in desk.engine.warm_processes],
            }
        )

    @routes.get("/v1/projects", responses={200: {"model": objects.Projects}, **errors(503)})
    async def projects() -> Response:
        """Every project that has jobs or is paused."""
        found = {
            mark.subject.removeprefix(_PROJECT): mark for mark in listing.marks() if _is_project(mark.subject)
        }
        counts = listing.projects()
        return Answer(
            {
                "projects": [
                    {
                        "name": name,
                        "paused": name in found,
                        "why": found[name].why if name in found else "",
                        "counts": counts_object(counts.get(name, {})),
                    }
                    for name in sorted({*counts, *found})
                ]
            }
        )

    return routes


def _is_project(subject: str) -> bool:
    return subject.startswith(_PROJECT)
