"""Daemons and commands of a cluster, asked for by name."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dibs.cluster.saved import Cluster
from dibs.cluster.ssh import HostCaller, HostFailed, all_of
from dibs.dataclass import dataclass
from dibs.errors import DibsError

UP_WITHIN = 60.0  # seconds
AT_WORK = ("idle", "mixed", "allocated", "completing")
_WIDTHS = (64, 24, 256, 256, 256)
_FIELDS = ("NodeList", "StateLong", "Gres", "GresUsed", "Reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node as the controller sees it."""

    state: str  # idle, mixed, down, ...; with Slurm's `*` where it does not answer
    gpus: int = 0
    gpus_used: int = 0
    reason: str = ""

    @property
    def is_well(self) -> bool:
        return self.state in AT_WORK


def start(caller: HostCaller, cluster: Cluster, name: str, hosts: Sequence[str]) -> int:
    """Start one kind of daemon on these hosts; how many did not run before."""
    nodes = dict(cluster.members)

    def ask(host: str) -> dict[str, Any]:
        request = {"base": cluster.base, "local": cluster.local, "name": name, "node": nodes[host]}
        try:
            return caller.call(host, "daemons.start", request, seconds=90.0)
        except HostFailed as error:
            raise DibsError(
                f"cannot start {name} on {error.message}",
                remedy=f"its log there: {cluster.local}/log/{name}.log; `dibs cluster down` ends what runs",
            ) from error

    return sum(not answer["was_there"] for answer in all_of(hosts, ask).values())


def stop(
    caller: HostCaller, cluster: Cluster, names: Sequence[str], host: str, *, jobs: bool, within: float = 10.0
) -> list[str]:
    """End daemons on a host; which of them had run."""
    request = {"base": cluster.base, "local": cluster.local, "names": names, "node": dict(cluster.members)[host]}
    more = {"jobs": jobs, "within_seconds": within}
    return list(caller.call(host, "daemons.stop", {**request, **more}, seconds=90.0)["ended"])


def running(caller: HostCaller, cluster: Cluster, host: str) -> Mapping[str, int]:
    """The daemons that run on a host, with their pids."""
    answer = caller.call(host, "daemons.state", {"base": cluster.base, "local": cluster.local})
    found: Mapping[str, int] = answer["running"]
    return found


def ask(
    caller: HostCaller, cluster: Cluster, *words: str, host: str = "", seconds: float = 10.0
) -> dict[str, Any]:
    """What one of Slurm's commands says, here or on a host."""
    return caller.call(host, "daemons.ask", {"base": cluster.base, "words": words, "seconds": seconds})


def wait_for_controller(caller: HostCaller, cluster: Cluster) -> None:
    """Until it answers. A node that calls too early waits for long before it calls again."""
    said: dict[str, Any] = {}

    def answers() -> bool:
        said.update(ask(caller, cluster, "scontrol", "ping"))
        return "is UP" in said["said"]

    if not _wait(answers):
        why = said["error"] or said["said"].strip() or "no answer"
        raise DibsError(
            f"the controller on {cluster.head.host} does not answer: {why.splitlines()[-1]}",
            remedy=f"its log there: {cluster.local}/log/slurmctld.log",
        )


def wait_for_nodes(caller: HostCaller, cluster: Cluster, names: Sequence[str]) -> None:
    """Until these take jobs."""
    seen: dict[str, NodeState] = {}

    def all_well() -> bool:
        seen.update(node_states(caller, cluster))
        return all(name in seen and seen[name].is_well for name in names)

    if not _wait(all_well):
        node = next(node for node in cluster.nodes if node.name in names and not _is_well(seen, node.name))
        state = seen.get(node.name)
        why = (
            f"{state.state}{f' ({state.reason})' if state.reason else ''}"
            if state
            else "not known to the controller"
        )
        raise DibsError(
            f"{node.host} takes no jobs: it is {why}",
            remedy=f"`dibs cluster status` shows more; its log there: {cluster.local}/log/slurmd.log",
        )


def node_states(caller: HostCaller, cluster: Cluster) -> dict[str, NodeState]:
    """Every node as the controller sees it; empty where it does not answer."""
    fields = ",".join(f"{name}:{width}" for name, width in zip(_FIELDS, _WIDTHS, strict=True))
    return parse_sinfo(ask(caller, cluster, "sinfo", "-h", "-N", "-O", fields)["said"])


def parse_sinfo(text: str) -> dict[str, NodeState]:
    """The lines of `sinfo`, whose columns have fixed widths and no separator."""
    found = {}
    for line in text.splitlines():
        cells = []
        for width in _WIDTHS:
            cells.append(line[:width].strip())
            line = line[width:]
        name, state, gres, used, reason = cells
        found[name] = NodeState(
            state=state,
            gpus=_count(gres),
            gpus_used=_count(used),
            reason="" if reason in ("none", "(null)") else reason,
        )
    return found


def _count(gres: str) -> int:
    return sum(map(int, re.findall(r"gpu(?::[^:,()]+)?:([0-9]+)", gres)))


def _is_well(seen: dict[str, NodeState], name: str) -> bool:
    return name in seen and seen[name].is_well


def _wait(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + UP_WITHIN
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True
