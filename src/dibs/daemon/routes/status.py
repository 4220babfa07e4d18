"""Routes that show the state of the daemon and its projects, and that open and close the page."""

import os
from typing import Annotated

from fastapi import APIRouter, Body, Request, Response
from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs import paths
from dibs.daemon.app_state import AppState
from dibs.daemon.http.errors import JsonResponse, StrictRoute, errors
from dibs.daemon.schemas import requests, responses
from dibs.daemon.schemas.requests import Moment
from dibs.daemon.schemas.responses import Counts, counts_object, moment
from dibs.daemon.web.listener import HOST, ListenAddress, WebListener
from dibs.version import __version__

API = 1
_PROJECT = "project "


class BackendStanding(TypedDict):
    """Another system that has jobs of this queue."""

    name: str
    attempts: int  # that it has
    trouble: str  # why it does not answer; empty: it answers
    remedy: str
    silent_since_at: Moment | None


class WarmProcess(TypedDict):
    """A process from which jobs with `warm` are forked."""

    modules: list[str]
    pid: int | None  # null: it is still importing them


class Status(TypedDict):
    version: str
    api: int
    pid: int
    started_at: Moment
    user: str
    state_folder: str
    paused: bool
    paused_projects: list[str]
    counts: Counts
    gpus: str
    driver: str
    default_backend: str  # where jobs run that name no backend: `local` or `slurm`
    backends: list[BackendStanding]
    warm: list[WarmProcess]
    trouble: str  # why nothing starts or is recorded at the moment, such as a full disk; empty: nothing is wrong


class ProjectObject(TypedDict):
    name: str
    paused: bool
    why: str
    counts: Counts


class Projects(TypedDict):
    projects: list[ProjectObject]


class PageEntry(TypedDict):
    address: str
    code: str
    expires_at: Moment


def status_routes(app: AppState) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)
    listing = app.store.listing

    @routes.get("/v1/status", responses={200: {"model": Status}, **errors(503)})
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
                "trouble": app.engine.trouble,
                "warm": [{"modules": list(modules), "pid": pid} for modules, pid in app.engine.warm_processes],
            }
        )

    @routes.get("/v1/projects", responses={200: {"model": Projects}, **errors(503)})
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


def web_routes(listener: WebListener) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.post("/v1/web", responses={200: {"model": PageEntry}, **errors(409, 413, 503)})
    async def open_page(request: Request, body: Annotated[requests.OpenPage, Body()]) -> Response:
        """Open the page to browsers, unless it is open already, and make a code to sign in with."""
        # The page is served by the app that this request has come to.
        code = await listener.sign_in_code(request.app, _address(body), read_only=body.get("read_only", False))
        return JsonResponse({"address": code.address, "code": code.code, "expires_at": moment(code.expires_at)})

    @routes.post("/v1/web/close", responses={200: {"model": responses.ChangedFlag}, **errors(413, 503)})
    async def close(body: Annotated[requests.Nothing, Body()]) -> Response:
        """Close the page to browsers, also after a restart of the daemon."""
        return JsonResponse({"changed": listener.close()})

    @routes.post("/v1/web/renew", responses={200: {"model": responses.ChangedFlag}, **errors(413, 503)})
    async def renew(body: Annotated[requests.Nothing, Body()]) -> Response:
        """Change the token: every browser has to sign in again."""
        listener.renew()
        return JsonResponse({"changed": True})

    return routes


def _address(body: requests.OpenPage) -> ListenAddress | None:
    """Where the page should be; None if the request does not say."""
    if body.keys() <= {"read_only"}:
        return None
    return ListenAddress(
        body.get("host", HOST), body.get("port"), body.get("certificate", ""), body.get("key", "")
    )
