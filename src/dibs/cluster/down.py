"""`down` and `remove`: end the cluster's processes on every host or on one, and remove its folders."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dibs.cluster import slurm
from dibs.cluster.saved import Cluster, ClusterNode, forget, remember
from dibs.cluster.ssh import HostCaller, HostUnreachable, each, up_command
from dibs.cluster.up import Tell, configure_and_start
from dibs.errors import BadInput, Conflict, DibsError

ForgetRoot = Callable[[str, bool], None]  # a folder that was removed, and whether it never comes back

_JOBS_END_WITHIN = 30.0  # seconds; Slurm itself insists after 15
_MOST_NAMED = 20


def end_cluster(
    environ: Mapping[str, str],
    cluster: Cluster,
    *,
    purge: bool,
    force: bool,
    open_jobs: Sequence[int],
    forget_root: ForgetRoot,
    tell: Callable[[str], None],
) -> tuple[dict[str, list[str]], list[DibsError]]:
    """What was ended on each host, and what could not be.

    With `purge` the cluster is forgotten, but only where nothing is left of it, or with `force`. `open_jobs` are
    the queue's own that it has: how they end stands in its folders, so these stay while there are any.
    """
    if purge and open_jobs and not force:
        raise _still_open(open_jobs)
    caller = HostCaller(cluster.ssh)
    names = {node.destination: node.host for node in cluster.nodes}
    with contextlib.suppress(DibsError):
        _end_jobs(caller, cluster, tell)
    # The controller last, but before the hosts' munged: a node that ends tells it so.
    ended, errors = each(
        [node.destination for node in cluster.nodes],
        lambda host: slurm.stop(caller, cluster, ["slurmd"], host, jobs=True),
    )
    reached = [host for host, _ in cluster.members if host in ended or host not in names]
    more, more_errors = each(
        reached, lambda host: slurm.stop(caller, cluster, ["slurmctld", "munged"], host, jobs=False)
    )
    found = {names.get(host, "this machine"): [*ended.get(host, []), *stopped] for host, stopped in more.items()}
    for host, stopped in found.items():
        what = ", ".join(stopped)
        tell(f"{host}: {f'ended {what}' if what else 'nothing ran'}")
    errors += more_errors
    if purge:
        folders = {"folders": [cluster.local, cluster.base]}
        removed, not_removed = each(list(more), lambda host: caller.call(host, "files.remove", folders))
        errors += not_removed
        errors += [
            DibsError(f"cannot remove {folder} on {names.get(host, 'this machine')}", remedy="remove it by hand")
            for host, answer in removed.items()
            for folder in answer["left"]
        ]
        is_gone = not errors or force
        forget_root(cluster.base, is_gone)
        if is_gone:
            forget(environ)
            tell("removed its folders, and forgot it")
            if open_jobs:
                tell(f"open on it: {_named(open_jobs)}; where the queue has not heard of an end, the job is lost")
        else:
            tell("it is not forgotten, because something is left of it; --force forgets it")
    return found, errors


def _still_open(jobs: Sequence[int]) -> Conflict:
    is_one = len(jobs) == 1
    these = f" {' '.join(map(str, jobs))}" if len(jobs) <= _MOST_NAMED else ""
    return Conflict(
        f"cannot remove the folders of the cluster: {len(jobs)} {'job' if is_one else 'jobs'} of the queue "
        f"{'is' if is_one else 'are'} open on it: {_named(jobs)}",
        remedy=f"`dibs kill{these}` ends {'it' if is_one else 'them'} first; `dibs cluster down` leaves the "
        f"folders; with --force {'it is' if is_one else 'they are'} lost",
    )


def _named(jobs: Sequence[int]) -> str:
    more = f" and {len(jobs) - _MOST_NAMED} more" if len(jobs) > _MOST_NAMED else ""
    return f"{', '.join(map(str, jobs[:_MOST_NAMED]))}{more}"


def _end_jobs(caller: HostCaller, cluster: Cluster, tell: Callable[[str], None]) -> None:
    """Jobs first, while the controller can end them."""
    if "slurmctld" not in slurm.running(caller, cluster, cluster.head.destination):
        return
    if not slurm.ask(caller, cluster, "squeue", "-h", "-o", "%i")["said"].split():
        return
    tell("ending its jobs")
    slurm.ask(caller, cluster, "scancel", f"--user={cluster.uid}")
    until = time.monotonic() + _JOBS_END_WITHIN
    while time.monotonic() < until and slurm.ask(caller, cluster, "squeue", "-h", "-o", "%i")["said"].split():
        time.sleep(0.3)


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
    caller = HostCaller(cluster.ssh)
    is_there = _is_there(caller, cluster, node, force)
    if "slurmctld" not in slurm.running(caller, cluster, cluster.head.destination):
        raise Conflict(
            f"cannot remove {host}: the controller does not run, so it is not known what runs there",
            remedy="`dibs cluster up` starts it",
        )
    if is_there and not waits:
        _until_idle(caller, cluster, node, waits, fetched, tell)  # once before anything is changed
    with _closed(caller, cluster, node, is_lost=not is_there):
        if is_there:
            _until_idle(caller, cluster, node, waits, fetched, tell)
            # This machine asks Slurm for the others, and needs munge for it.
            names = ["slurmd", "munged"] if node.destination else ["slurmd"]
            ended = slurm.stop(caller, cluster, names, node.destination, jobs=True)
            what = ", ".join(ended)
            tell(f"{host}: {f'ended {what}' if what else 'nothing ran'}")
        rest = replace(cluster, nodes=tuple(one for one in cluster.nodes if one != node))
        answers, _ = each(
            [destination for destination, _ in rest.members], lambda one: slurm.running(caller, rest, one)
        )
        for other in rest.nodes:
            if other.destination not in answers:
                tell(f"{other.host} is left as it is: it does not answer")
        configure_and_start(caller, rest, list(answers), cluster, tell)
        remember(environ, rest)
    return rest, _remove_folders(caller, rest, node) if is_there else []


def _leaver(cluster: Cluster, host: str) -> ClusterNode:
    node = next((node for node in cluster.nodes if node.host == host), None)
    if node is None:
        hosts = ", ".join(node.host for node in cluster.nodes)
        raise BadInput(f"{host} does not belong to the cluster", remedy=f"its hosts are {hosts}")
    if node.name == cluster.controller:
        others = [one.host for one in cluster.nodes if one != node]
        raise Conflict(
            f"cannot remove {host}: the controller runs there, and the others need it",
            remedy=f"`dibs cluster down --purge`, and then `{up_command(others or ['HOST'], cluster.ssh)}`",
        )
    return node


def _is_there(caller: HostCaller, cluster: Cluster, node: ClusterNode, force: bool) -> bool:
    try:
        slurm.running(caller, cluster, node.destination)
    except HostUnreachable as error:
        if not force:
            raise Conflict(
                f"cannot remove {node.host}: it {error.problem.message}",
                remedy="--force removes it all the same, and leaves what is there",
            ) from error
        return False
    return True


@contextmanager
def _closed(caller: HostCaller, cluster: Cluster, node: ClusterNode, *, is_lost: bool) -> Iterator[None]:
    """Let Slurm start nothing more there; where it stays in the cluster after all, it is as before."""
    seen = slurm.node_states(caller, cluster).get(node.name)
    was_open = seen is not None and "drain" not in seen.state
    if seen is not None:
        # One that is down has lost its jobs: they are tried again elsewhere, where that was asked for.
        _update(caller, cluster, node, "State=DOWN" if is_lost else "State=DRAIN", "Reason=dibs cluster remove")
    try:
        yield
    except BaseException:  # also Ctrl-C while its jobs are waited for
        if was_open and not is_lost:
            _update(caller, cluster, node, "State=UNDRAIN")
        raise


def _update(caller: HostCaller, cluster: Cluster, node: ClusterNode, *words: str) -> None:
    done = slurm.ask(caller, cluster, "scontrol", "update", f"NodeName={node.name}", *words)
    if done["status"] != 0:
        raise DibsError(f"cannot tell Slurm that {node.host} leaves: {done['error'] or done['said'].strip()}")


def _until_idle(
    caller: HostCaller, cluster: Cluster, node: ClusterNode, waits: bool, fetched: Fetched, tell: Tell
) -> None:
    """Nothing runs there, and what ran there has been fetched; or Conflict."""
    told = ""
    while what := _busy(caller, cluster, node, fetched):
        if not waits:
            raise Conflict(
                f"cannot remove {node.host}: {what}",
                remedy=f"`dibs cluster remove {node.host} --drain` waits for it",
            )
        if what != told:
            tell(f"waiting: {what}")
        told = what
        time.sleep(_LOOK_EVERY)


def _busy(caller: HostCaller, cluster: Cluster, node: ClusterNode, fetched: Fetched) -> str:
    words = ("-h", f"--nodelist={node.name}", _AT_WORK, "-o", "%i (%j)")
    done = slurm.ask(caller, cluster, "squeue", *words)
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


def _remove_folders(caller: HostCaller, rest: Cluster, node: ClusterNode) -> list[str]:
    """What is left of them. Those that the others need, or this machine, stay."""
    if not node.destination:
        return []
    folders = [rest.local] if rest.is_shared else [rest.local, rest.base]
    left: list[str] = caller.call(node.destination, "files.remove", {"folders": folders})["left"]
    return left
