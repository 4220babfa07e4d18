"""Routes that open and close the page. They work on the UNIX socket only: see `web/guard.py`."""

from typing import Annotated

from fastapi import APIRouter, Body, Request, Response

from dibs.daemon.http.errors import JsonResponse, StrictRoute, errors
from dibs.daemon.schemas import requests, responses
from dibs.daemon.schemas.serializers import moment
from dibs.daemon.web.listener import HOST, ListenAddress, WebListener


def web_routes(listener: WebListener) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.post("/v1/web", responses={200: {"model": responses.PageEntry}, **errors(409, 413, 503)})
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
