"""Routes about the nodes of other systems that jobs are sent to, and the JSON that they return."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

from dibs.backends.nodes import node_object
from dibs.backends.protocol import Node
from dibs.daemon.http.errors import JsonResponse, StrictRoute, errors
from dibs.engine.remote.systems import RemoteSystems
from dibs.errors import BackendMissing, DibsError
from dibs.store.listing import Listing

_ASK_WITHIN = 20.0  # seconds; longer than the deadline of the other system itself
_ASK_BRIEFLY = 2.0  # seconds

NodeState = Literal["free", "used", "full", "out"]


class NodeGpusObject(TypedDict):
    type: str  # empty: not known
    total: int
    used: int


class NodeJob(TypedDict):
    """A job of this queue that runs on a node."""

    id: int
    name: str
    gpus: str  # as that machine counts them: `0,1`; empty: not known, or none


class NodeObject(TypedDict):
    """A machine of another system."""

    name: str
    state: NodeState  # out: no job of this queue can start there
    says: str  # the other system's word for it: `partly in use`, `drained`
    why: str  # it is out
    gpus: list[NodeGpusObject]
    shards: int  # parts into which its GPUs are divided; 0: they are not
    cpus: int
    cpus_used: int
    memory_bytes: int
    memory_used_bytes: int
    partitions: list[str]
    jobs: list[NodeJob]


class BackendObject(TypedDict):
    """Another system that jobs are sent to."""

    name: str
    trouble: str  # why it does not answer; empty: it answers
    remedy: str
    nodes: list[NodeObject]


class Nodes(TypedDict):
    backends: list[BackendObject]


def node_routes(remote: RemoteSystems, listing: Listing) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.get("/v1/nodes", responses={200: {"model": Nodes}, **errors(404, 503)})
    async def nodes(on: Annotated[str, Query(max_length=255)] = "") -> Response:
        """The nodes of every backend that is set up or used, and the jobs of this queue that run there.

        For a backend that does not answer, `trouble` says why; if only that one was requested, it is an error.
        """
        if not on:
            found = await asyncio.gather(*(_backend(remote, listing, name) for name in remote.names))
            return JsonResponse({"backends": list(found)})
        if not remote.knows(on):
            raise BackendMissing(f"cannot show the nodes of {on[:60]!r}: dibs knows no backend of that name")
        return JsonResponse(
            {"backends": [_object(remote, listing, on, await remote.queries.nodes(on, _ASK_WITHIN))]}
        )

    return routes


async def known_nodes(remote: RemoteSystems) -> dict[str, tuple[Node, ...]]:
    """The nodes of each backend that answers at once."""
    found: dict[str, tuple[Node, ...]] = {}
    for name in remote.names:
        try:
            found[name] = await remote.queries.nodes(name, _ASK_BRIEFLY)
        except DibsError:
            continue  # it is left out
    return found


async def _backend(remote: RemoteSystems, listing: Listing, name: str) -> dict[str, Any]:
    try:
        return _object(remote, listing, name, await remote.queries.nodes(name, _ASK_WITHIN))
    except DibsError as error:
        return {"name": name, "trouble": error.message, "remedy": error.remedy, "nodes": []}


def _object(remote: RemoteSystems, listing: Listing, name: str, found: tuple[Node, ...]) -> dict[str, Any]:
    jobs: dict[str, list[dict[str, Any]]] = {}
    for row in listing.away(name):
        jobs.setdefault(row.node, []).append({"id": row.job, "name": row.name, "gpus": row.node_gpus})
    nodes = [{**node_object(node), "jobs": jobs.get(node.name, [])} for node in found]
    return {"name": name, "trouble": remote.trouble(name), "remedy": "", "nodes": nodes}
