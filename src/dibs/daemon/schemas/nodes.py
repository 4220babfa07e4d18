"""What the API tells of the machines of other systems."""

from typing import Literal

from typing_extensions import TypedDict  # pydantic reads the one in typing from Python 3.12 only

NodeState = Literal["free", "used", "full", "out"]


class NodeGpusObject(TypedDict):
    type: str  # empty: nobody tells
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
    state: NodeState  # out: no job of ours can start there
    says: str  # what the other system calls it: `partly in use`, `drained`
    why: str  # it is out
    gpus: list[NodeGpusObject]
    shards: int  # parts into which its cards are divided; 0: they are not
    cpus: int
    cpus_used: int
    memory_bytes: int
    memory_used_bytes: int
    partitions: list[str]
    jobs: list[NodeJob]


class BackendObject(TypedDict):
    """Another system that jobs are handed to."""

    name: str
    trouble: str  # why it cannot be asked; empty: it answers
    remedy: str
    nodes: list[NodeObject]


class Nodes(TypedDict):
    backends: list[BackendObject]
