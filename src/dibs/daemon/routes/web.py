"""Routes by which the owner opens and closes the door. They are on the UNIX socket only: see `web/guard.py`."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from dibs.daemon.app_state import Desk
from dibs.daemon.http.errors import Answer, StrictRoute, errors
from dibs.daemon.schemas import requests as models
from dibs.daemon.schemas import responses as objects
from dibs.daemon.schemas.serializers import moment
from dibs.daemon.web.listener import HOST, Place


def door_routes(desk: Desk) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.post("/v1/web", responses={200: {"model": objects.PageEntry}, **errors(409, 413, 503)})
    async def enter(body: Annotated[models.OpenPage, Body()]) -> Response:
        """Open the page to browsers, unless it is open already, and make a code that lets one of them in."""
        entry = await desk.door.enter(_wish(body), read_only=body.get("read_only", False))
        return Answer({"address": entry.address, "code": entry.code, "expires_at": moment(entry.expires_at)})

    @routes.post("/v1/web/close", responses={200: {"model": objects.ChangedFlag}, **errors(413, 503)})
    async def close(body: Annotated[models.Nothing, Body()]) -> Response:
        """Let no browser in any more, also after a restart of the daemon."""
        return Answer({"changed": desk.door.close()})

    @routes.post("/v1/web/renew", responses={200: {"model": objects.ChangedFlag}, **errors(413, 503)})
    async def renew(body: Annotated[models.Nothing, Body()]) -> Response:
        """Change the token: every browser has to come in anew."""
        desk.door.renew()
        return Answer({"changed": True})

    return routes


def _wish(body: models.OpenPage) -> Place | None:
    """Where the door is to be; None where nobody minds."""
    if body.keys() <= {"read_only"}:
        return None
    return Place(body.get("host", HOST), body.get("port"), body.get("certificate", ""), body.get("key", ""))
