"""What is remembered of the cluster of this user: one JSON file in the state folder of this machine.

Read whenever the Slurm backend is built, so it imports little.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from dibs.dataclass import dataclass
from dibs.errors import DibsError, FolderInUse
from dibs.files import replace_file
from dibs.paths import make_private, state_folder

# Never a password, and no waiting for a host that is away; everything else is the user's own ssh.
SSH_OPTIONS = (
    *("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCard:
    """A card of a node: a short word for its kind, and its device file."""

    kind: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A host on which jobs run."""

    name: str  # Slurm's name for it
    host: str  # the user's name for it
    destination: str  # what ssh is given; empty where it is this machine
    hostname: str  # its own name for itself
    address: str  # at which the others reach it
    cpus: int
    memory_mib: int
    cards: tuple[NodeCard, ...] = ()
    python: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Everything that its configuration is made of."""

    name: str
    base: str  # programs, configuration and source: the same path on every host, shared or not
    local: str  # pids, sockets, logs and state: the same path, and each host's own disk
    uid: int
    nodes: tuple[ClusterNode, ...]
    controller: str  # the name of a node
    ports: tuple[int, int]  # of slurmctld and slurmd
    version: str  # of Slurm
    is_unpacked: bool = False  # from packages; otherwise the installed one is used
    plugins: str = ""  # where they were unpacked
    ssh: tuple[str, ...] = ("ssh",)
    is_shared: bool = False  # whether every host, and this machine, sees the same base

    @property
    def conf(self) -> str:
        return f"{self.base}/etc/slurm.conf"

    @property
    def head(self) -> ClusterNode:
        """The node with the controller."""
        return next(node for node in self.nodes if node.name == self.controller)

    @property
    def members(self) -> tuple[tuple[str, str], ...]:
        """Destination and name of every host with something of it; this machine is always one of them."""
        found = tuple((node.destination, node.name) for node in self.nodes)
        return found if any(not destination for destination, _ in found) else (*found, ("", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCluster:
    """What a backend needs to use it."""

    conf: str
    bin: str  # to be put in front of PATH
    python: str  # on the nodes
    source: str  # on the nodes: where the package lies
    is_shared: bool
    ssh: tuple[str, ...]  # words in front of a destination
    node_root: str  # for the folders of attempts, on the nodes
    destinations: tuple[tuple[str, str], ...]  # node and what ssh is given for it; empty: this machine


def known_cluster(environ: Mapping[str, str]) -> KnownCluster | None:
    """The cluster of `dibs cluster up`; None where there is none."""
    cluster = remembered(environ)
    if cluster is None:
        return None
    return KnownCluster(
        conf=cluster.conf,
        bin=f"{cluster.base}/bin",
        python=f"{cluster.base}/bin/dibs-python",
        source=f"{cluster.base}/src",
        is_shared=cluster.is_shared,
        ssh=(*cluster.ssh, *SSH_OPTIONS),
        node_root=f"{cluster.base}/attempts",
        destinations=tuple((node.name, node.destination) for node in cluster.nodes),
    )


def remembered(environ: Mapping[str, str]) -> Cluster | None:
    path = _path(environ)
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        nodes = tuple(
            ClusterNode(**{**node, "cards": tuple(NodeCard(**card) for card in node["cards"])})
            for node in content["nodes"]
        )
        first, second = content["ports"]
        return Cluster(**{**content, "nodes": nodes, "ports": (first, second), "ssh": tuple(content["ssh"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DibsError(
            f"cannot read what is known of the cluster in {path}: {error}",
            remedy="remove that file, and `dibs cluster up` with its hosts makes it anew",
        ) from error


def remember(environ: Mapping[str, str], cluster: Cluster) -> None:
    """Before anything is started: whatever happens then, `dibs cluster down` finds it."""
    path = _path(environ)
    make_private(os.path.dirname(path))
    replace_file(path, json.dumps(asdict(cluster), indent=2))


def forget(environ: Mapping[str, str]) -> None:
    os.unlink(_path(environ))


@contextlib.contextmanager
def cluster_lock(environ: Mapping[str, str]) -> Iterator[None]:
    """While one command changes the cluster, another must not."""
    folder = make_private(os.path.dirname(_path(environ)))
    handle = os.open(f"{folder}/lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(
                "cannot change the cluster: another `dibs cluster` does so at this moment",
                remedy="wait until it has ended",
            ) from None
        yield
    finally:
        os.close(handle)


def _path(environ: Mapping[str, str]) -> str:
    return f"{state_folder(environ)}/cluster/cluster.json"
