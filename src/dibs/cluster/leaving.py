"""`remove`: take one host out of the cluster. The others go on, and so do the jobs on them."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from dibs.cluster import slurm
from dibs.cluster.known import Cluster, ClusterNode, remember
from dibs.cluster.raising import Tell, configure_and_start
from dibs.cluster.ssh import Hands, Unreached, each
from dibs.errors import BadInput, Conflict, DibsError

Fetched = Callable[[str], list[int]]  # by a node's name: our own jobs that are not done with it

_LOOK_EVERY = 1.0  # seconds
_AT_WORK = "--states=running,suspended,completing,configuring"
_MOST_NAMED = 5


def remove_host(
    environ: Mapping[str, str],
    cluster: Cluster,
    host: str,
    *,
    waits: bool,
    force: bool,
    fetched: Fetched,
    tell: Tell,
) -> tuple[Cluster, list[str]]:
    """The cluster without it, and folders there that could not be removed.

    Until the others run without it, it is remembered: whatever goes wrong before, the same call can be repeated.
    """
    node = _leaver(cluster, host)
    hands = Hands(cluster.ssh)
    is_there = _is_there(hands, cluster, node, force)
    if "slurmctld" not in slurm.running(hands, cluster, cluster.head.destination):
        raise Conflict(
            f"cannot remove {host}: the controller does not run, so nobody can tell what runs there",
            remedy="`dibs cluster up` starts it",
        )
    if is_there and not waits:
        _until_idle(hands, cluster, node, waits, fetched, tell)  # once before anything is changed
    with _closed(hands, cluster, node, is_lost=not is_there):
        if is_there:
            _until_idle(hands, cluster, node, waits, fetched, tell)
            # This machine asks Slurm for the others, and needs munge for it.
            names = ["slurmd", "munged"] if node.destination else ["slurmd"]
            ended = slurm.stop(hands, cluster, names, node.destination, jobs=True)
            what = ", ".join(ended)
            tell(f"{host}: {f'ended {what}' if what else 'nothing ran'}")
        rest = replace(cluster, nodes=tuple(one for one in cluster.nodes if one != node))
        answers, _ = each(
            [destination for destination, _ in rest.members], lambda one: slurm.running(hands, rest, one)
        )
        for other in rest.nodes:
            if other.destination not in answers:
                tell(f"{other.host} is left as it is: it does not answer")
        configure_and_start(hands, rest, list(answers), cluster, tell)
        remember(environ, rest)
    return rest, _remove_folders(hands, rest, node) if is_there else []


def _leaver(cluster: Cluster, host: str) -> ClusterNode:
    node = next((node for node in cluster.nodes if node.host == host), None)
    if node is None:
        hosts = ", ".join(node.host for node in cluster.nodes)
        raise BadInput(f"{host} does not belong to the cluster", remedy=f"its hosts are {hosts}")
    if node.name == cluster.controller:
        raise Conflict(
            f"cannot remove {host}: the controller runs there, and the others need it",
            remedy="`dibs cluster down --purge`, and then up without it",
        )
    return node


def _is_there(hands: Hands, cluster: Cluster, node: ClusterNode, force: bool) -> bool:
    try:
        slurm.running(hands, cluster, node.destination)
    except Unreached as error:
        if not force:
            raise Conflict(
                f"cannot remove {node.host}: it {error.problem.message}",
                remedy="--force removes it all the same, and leaves what is there",
            ) from error
        return False
    return True


@contextmanager
def _closed(hands: Hands, cluster: Cluster, node: ClusterNode, *, is_lost: bool) -> Iterator[None]:
    """Let Slurm start nothing more there; where it stays in the cluster after all, it is as before."""
    seen = slurm.node_states(hands, cluster).get(node.name)
    was_open = seen is not None and "drain" not in seen.state
    if seen is not None:
        # One that is down has lost its jobs: they are tried again elsewhere, where that was asked for.
        _update(hands, cluster, node, "State=DOWN" if is_lost else "State=DRAIN", "Reason=dibs cluster remove")
    try:
        yield
    except BaseException:  # also Ctrl-C, while somebody waits for its jobs
        if was_open and not is_lost:
            _update(hands, cluster, node, "State=UNDRAIN")
        raise


def _update(hands: Hands, cluster: Cluster, node: ClusterNode, *words: str) -> None:
    done = slurm.ask(hands, cluster, "scontrol", "update", f"NodeName={node.name}", *words)
    if done["status"] != 0:
        raise DibsError(f"cannot tell Slurm that {node.host} leaves: {done['error'] or done['said'].strip()}")


def _until_idle(
    hands: Hands, cluster: Cluster, node: ClusterNode, waits: bool, fetched: Fetched, tell: Tell
) -> None:
    """Nothing runs there, and what ran there has been fetched; or Conflict."""
    told = ""
    while what := _busy(hands, cluster, node, fetched):
        if not waits:
            raise Conflict(
                f"cannot remove {node.host}: {what}",
                remedy=f"`dibs cluster remove {node.host} --drain` waits for it",
            )
        if what != told:
            tell(f"waiting: {what}")
        told = what
        time.sleep(_LOOK_EVERY)


def _busy(hands: Hands, cluster: Cluster, node: ClusterNode, fetched: Fetched) -> str:
    words = ("-h", f"--nodelist={node.name}", _AT_WORK, "-o", "%i (%j)")
    done = slurm.ask(hands, cluster, "squeue", *words)
    if done["status"] != 0:
        raise DibsError(f"cannot ask Slurm what runs on {node.host}: {done['error']}")
    if jobs := done["said"].splitlines():
        return f"it runs Slurm's {_listed('job', jobs)}"
    if left := fetched(node.name):
        return f"the queue has not heard of the end of its {_listed('job', [str(number) for number in left])}"
    return ""


def _listed(what: str, names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{what if len(names) == 1 else f'{what}s'} {', '.join(names[:_MOST_NAMED])}{more}"


def _remove_folders(hands: Hands, rest: Cluster, node: ClusterNode) -> list[str]:
    """What is left of them. Those that the others need, or this machine, stay."""
    if not node.destination:
        return []
    folders = [rest.local] if rest.is_shared else [rest.local, rest.base]
    left: list[str] = hands.call(node.destination, "files.remove", {"folders": folders})["left"]
    return left
