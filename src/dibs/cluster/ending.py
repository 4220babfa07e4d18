"""`down`: end every process of the cluster on every host, and perhaps remove its folders."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence

from dibs.cluster import slurm
from dibs.cluster.known import Cluster, forget
from dibs.cluster.ssh import Hands, each
from dibs.errors import Conflict, DibsError

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
    hands = Hands(cluster.ssh)
    names = {node.destination: node.host for node in cluster.nodes}
    with contextlib.suppress(DibsError):
        _end_jobs(hands, cluster, tell)
    # The controller last, but before anybody's munged: a node that ends tells it so.
    ended, errors = each(
        [node.destination for node in cluster.nodes],
        lambda host: slurm.stop(hands, cluster, ["slurmd"], host, jobs=True),
    )
    reached = [host for host, _ in cluster.members if host in ended or host not in names]
    more, more_errors = each(
        reached, lambda host: slurm.stop(hands, cluster, ["slurmctld", "munged"], host, jobs=False)
    )
    found = {names.get(host, "this machine"): [*ended.get(host, []), *stopped] for host, stopped in more.items()}
    for host, stopped in found.items():
        what = ", ".join(stopped)
        tell(f"{host}: {f'ended {what}' if what else 'nothing ran'}")
    errors += more_errors
    if purge:
        folders = {"folders": [cluster.local, cluster.base]}
        removed, not_removed = each(list(more), lambda host: hands.call(host, "files.remove", folders))
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


def _end_jobs(hands: Hands, cluster: Cluster, tell: Callable[[str], None]) -> None:
    """Jobs first, while somebody is there to end them."""
    if "slurmctld" not in slurm.running(hands, cluster, cluster.head.destination):
        return
    if not slurm.ask(hands, cluster, "squeue", "-h", "-o", "%i")["said"].split():
        return
    tell("ending its jobs")
    slurm.ask(hands, cluster, "scancel", f"--user={cluster.uid}")
    until = time.monotonic() + _JOBS_END_WITHIN
    while time.monotonic() < until and slurm.ask(hands, cluster, "squeue", "-h", "-o", "%i")["said"].split():
        time.sleep(0.3)
