"""Routes about the machines of other systems that jobs are handed to."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from dibs.backends.nodes import node_object
from dibs.backends.protocol import Node
from dibs.daemon.app_state import Desk
from dibs.daemon.http.errors import Answer, StrictRoute, errors
from dibs.daemon.schemas.nodes import Nodes
from dibs.errors import BackendMissing, DibsError

_PATIENCE = 20.0  # seconds; longer than the other system is given itself
_AT_ONCE = 2.0  # seconds


def nodes_routes(desk: Desk) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.get("/v1/nodes", responses={200: {"model": Nodes}, **errors(404, 503)})
    async def nodes(on: Annotated[str, Query(max_length=255)] = "") -> Response:
        """The nodes of every backend that is set up or used, and which of our jobs run there.

        Of one that does not answer `trouble` tells why; where only that one was asked for, it is an error.
        """
        if not on:
            return Answer(
                {"backends": list(await asyncio.gather(*(_backend(desk, name) for name in desk.away.names)))}
            )
        if not desk.away.knows(on):
            raise BackendMissing(f"cannot show the nodes of {on[:60]!r}: dibs knows no backend of that name")
        return Answer({"backends": [_object(desk, on, await desk.away.asking.nodes(on, _PATIENCE))]})

    return routes


async def known_nodes(desk: Desk) -> dict[str, tuple[Node, ...]]:
    """Of each backend that answers at once; whoever counts does not wait."""
    found: dict[str, tuple[Node, ...]] = {}
    for name in desk.away.names:
        try:
            found[name] = await desk.away.asking.nodes(name, _AT_ONCE)
        except DibsError:
            continue  # what nobody tells is not counted
    return found


async def _backend(desk: Desk, name: str) -> dict[str, Any]:
    try:
        return _object(desk, name, await desk.away.asking.nodes(name, _PATIENCE))
    except DibsError as error:
        return {"name": name, "trouble": error.message, "remedy": error.remedy, "nodes": []}


def _object(desk: Desk, name: str, found: tuple[Node, ...]) -> dict[str, Any]:
    jobs: dict[str, list[dict[str, Any]]] = {}
    for row in desk.store.listing.away(name):
        jobs.setdefault(row.node, []).append({"id": row.job, "name": row.name, "gpus": row.node_gpus})
    nodes = [{**node_object(node), "jobs": jobs.get(node.name, [])} for node in found]
    return {"name": name, "trouble": desk.away.trouble(name), "remedy": "", "nodes": nodes}
