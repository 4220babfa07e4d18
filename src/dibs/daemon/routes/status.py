"""Routes that show the state of the daemon and its projects."""

import os

from fastapi import APIRouter, Response

from dibs import __version__, paths
from dibs.daemon.app_state import AppState
from dibs.daemon.http.errors import JsonResponse, StrictRoute, errors
from dibs.daemon.schemas import responses
from dibs.daemon.schemas.serializers import counts_object, moment

API = 1
_PROJECT = "project "


def status_routes(app: AppState) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)
    listing = app.store.listing

    @routes.get("/v1/status", responses={200: {"model": responses.Status}, **errors(503)})
    async def status() -> Response:
        """Which daemon this is, and how much work it has."""
        marks = {mark.subject: mark for mark in listing.marks() if mark.kind == "paused"}
        watcher = app.driver.watcher
        return JsonResponse(
            {
                "version": __version__,
                "api": API,
                "pid": os.getpid(),
                "started_at": moment(app.started_at),
                "user": app.user,
                "state_folder": paths.state_folder(app.environ),
                "paused": "queue" in marks,
                "paused_projects": sorted(
                    subject.removeprefix(_PROJECT) for subject in marks if subject.startswith(_PROJECT)
                ),
                "counts": counts_object(listing.counts()),
                "gpus": app.engine.cards.pool.shown,
                "driver": watcher.latest.driver if watcher and watcher.latest else "",
                "default_backend": app.settings.default_backend,
                "backends": [
                    {
                        "name": one.name,
                        "attempts": one.attempts,
                        "trouble": one.trouble,
                        "remedy": one.remedy,
                        "silent_since_at": moment(one.silent_since),
                    }
                    for one in app.remote.standings()
                ],
                "warm": [{"modules": list(modules), "pid": pid} for modules, pid in app.engine.warm_processes],
            }
        )

    @routes.get("/v1/projects", responses={200: {"model": responses.Projects}, **errors(503)})
    async def projects() -> Response:
        """Every project that has jobs or is paused."""
        found = {
            mark.subject.removeprefix(_PROJECT): mark for mark in listing.marks() if _is_project(mark.subject)
        }
        counts = listing.projects()
        return JsonResponse(
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
