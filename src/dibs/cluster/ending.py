"""`down`: end every process of the cluster on every host, and perhaps remove its folders."""

import contextlib
import time
from collections.abc import Callable, Mapping

from dibs.cluster import slurm
from dibs.cluster.known import Cluster, forget
from dibs.cluster.ssh import Hands, each
from dibs.errors import DibsError

_JOBS_END_WITHIN = 30.0  # seconds; Slurm itself insists after 15


def end_cluster(
    environ: Mapping[str, str], cluster: Cluster, *, purge: bool, force: bool, tell: Callable[[str], None]
) -> tuple[dict[str, list[str]], list[DibsError]]:
    """What was ended on each host, and what could not be.

    With `purge` the cluster is forgotten, but only where nothing is left of it, or with `force`.
    """
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
        if not errors or force:
            forget(environ)
            tell("removed its folders, and forgot it")
        else:
            tell("it is not forgotten, because something is left of it; --force forgets it")
    return found, errors


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
