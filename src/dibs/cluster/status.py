"""`status`: how every host of the cluster stands, and what is wrong in words."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from dibs.cluster import slurm
from dibs.cluster.install import other_source
from dibs.cluster.saved import Cluster
from dibs.cluster.slurm import NodeState
from dibs.cluster.ssh import HostCaller, HostUnreachable, each
from dibs.dataclass import dataclass
from dibs.errors import DibsError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStanding:
    """One host."""

    host: str
    node: str  # empty for this machine, where it is none
    state: str  # as the controller sees it; `?` where that is not known
    gpus: int = 0
    gpus_used: int | None = None
    slurm: str = ""
    daemons: Mapping[str, int] = field(default_factory=dict)  # with their pids
    problems: tuple[str, ...] = ()


def standings(cluster: Cluster) -> list[ClusterStanding]:
    """Ask every host, and the controller about its nodes."""
    caller = HostCaller(cluster.ssh)
    request = {"base": cluster.base, "local": cluster.local}
    hosts = [host for host, _ in cluster.members]

    def ask(host: str) -> dict[str, Any]:
        answer = caller.call(host, "daemons.state", request)
        version = slurm.ask(caller, cluster, "sinfo", "-V", host=host)["said"].split()
        return {**answer, "slurm": version[-1] if version else ""}

    answers, errors = each(hosts, ask)
    away = {error.problem.host: error.problem.message for error in errors if isinstance(error, HostUnreachable)}
    # Without a controller the question would take long, and have no answer.
    head = answers.get(cluster.head.destination)
    states = slurm.node_states(caller, cluster) if head is None or "slurmctld" in head["running"] else {}
    found = []
    for node in cluster.nodes:
        shown = node.destination or "this machine"
        wanted = ("munged", "slurmd", *(("slurmctld",) if node.name == cluster.controller else ()))
        found.append(
            judge_host(
                ClusterStanding(host=node.host, node=node.name, state="?", gpus=len(node.cards)),
                answers.get(node.destination),
                wanted,
                states.get(node.name),
                away.get(shown, ""),
            )
        )
    if "" not in {node.destination for node in cluster.nodes}:
        here = ClusterStanding(host="this machine", node="", state="")
        found.append(judge_host(here, answers.get(""), ("munged",), None, ""))
    return found


def running_jobs(cluster: Cluster) -> list[str]:
    """The names of the jobs that have begun there, of all users; none where the controller does not answer."""
    begun = "--states=running,suspended,configuring"
    try:
        answer = slurm.ask(HostCaller(cluster.ssh), cluster, "squeue", "-h", "-r", begun, "-o", "%j")
    except DibsError:
        return []
    return [name for name in answer["said"].splitlines() if name.strip()] if not answer["status"] else []


def judge_host(
    blank: ClusterStanding,
    answer: Mapping[str, Any] | None,
    wanted: tuple[str, ...],
    state: NodeState | None,
    away: str,
) -> ClusterStanding:
    """What is wrong with one host, from what it says and what the controller says about it."""
    if answer is None:
        problems = [f"it {away or 'cannot be asked'}"]
        running: Mapping[str, int] = {}
    else:
        running = answer["running"]
        idle = [name for name in wanted if name not in running]
        said = {name: f" ({why})" for name, why in answer["why"].items() if why}
        problems = [f"{name} does not run{said.get(name, '')}: `dibs cluster up` starts it" for name in idle]
        if other := other_source(answer["source"]):
            problems.append(other)
    if blank.node and state is not None and not state.is_well:
        why = f": {state.reason}" if state.reason else ""
        problems.append(f"the controller calls it {state.state}{why}")
    if blank.node and state is None and not problems:
        problems.append("the controller does not answer, or does not know it")
    return ClusterStanding(
        host=blank.host,
        node=blank.node,
        state=state.state if state else blank.state,
        gpus=state.gpus if state else blank.gpus,
        gpus_used=state.gpus_used if state else None,
        slurm=answer["slurm"] if answer else "",
        daemons=dict(running),
        problems=tuple(problems),
    )
