"""`dibs cluster`: a private Slurm of several servers, over ssh, without root."""

import os
from typing import Any

import click

from dibs.backends.slurm.root_mark import forget_below, memory_in
from dibs.cli.options import count
from dibs.cli.output import confirm, one_line, say, show, show_json, table, table_width
from dibs.client.client import connect
from dibs.client.starting import lock_is_held
from dibs.cluster.down import end_cluster, remove_host
from dibs.cluster.saved import Cluster, cluster_lock, remembered
from dibs.cluster.ssh import ssh_words, up_command
from dibs.cluster.status import ClusterStanding, running_jobs, standings
from dibs.cluster.up import ClusterOptions, ClusterRefused, raise_cluster
from dibs.errors import BadInput, Conflict, DibsError
from dibs.paths import queue_folder
from dibs.settings import load_settings

_EPILOG = """\b
Examples:
  dibs cluster up gpu1 gpu2 gpu3    check the servers, and make a Slurm of them
  dibs cluster status               how each of them stands
  dibs cluster add gpu4             one more; running jobs do not notice
  dibs cluster remove gpu2          one less; refused while a job runs there
  dibs add --on slurm -- nvidia-smi
  dibs cluster down                 end it, and the jobs in it
"""
_UP_EPILOG = """\b
Examples:
  dibs cluster up gpu1 gpu2 gpu3
  dibs cluster up localhost ann@10.0.0.7 --port 17000
  dibs cluster up gpu1 gpu2 --ssh "ssh -p 2222 -i ~/.ssh/lab"
  dibs cluster up                   once more, with the same hosts: starts what does not run
"""
_ADD_EPILOG = """\b
Examples:
  dibs cluster add gpu4
"""
_REMOVE_EPILOG = """\b
Examples:
  dibs cluster remove gpu2
  dibs cluster remove gpu2 --drain  start nothing more there, wait for what runs, then remove it
  dibs cluster remove gpu2 --force  where it is gone for good
"""
_DOWN_EPILOG = """\b
Examples:
  dibs cluster down                 `dibs cluster up` starts it again
  dibs cluster down --purge         and leave nothing behind
  dibs cluster down --purge --force   where a host is gone for good
"""
_STATUS_EPILOG = """\b
Examples:
  dibs cluster status
  dibs cluster status --json
"""

_JSON = click.option("--json", "as_json", is_flag=True, help="Print a JSON object, also for problems.")


@click.group(epilog=_EPILOG, invoke_without_command=True)
@click.pass_context
def cluster(context: click.Context, /) -> None:
    """Make a private Slurm of several servers, over ssh. No root is needed."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cluster.command(epilog=_UP_EPILOG)
@click.argument("hosts", nargs=-1, metavar="HOST...")
@click.option(
    "--controller", default="", metavar="HOST", help="Which of them decides (this machine, or the first)."
)
@click.option(
    "--port", type=count(1024, 65_534), metavar="N", help="Ports N and N+1 (16817, or the next free ones)."
)
@click.option("--ssh", "ssh", metavar="COMMAND", help="How to reach them: 'ssh -p 2222 -i key'.")
@click.option("--folder", default="", metavar="DIR", help="For programs and results (~/.local/share/dibs).")
@click.option("--local-folder", default="", metavar="DIR", help="On each host's own disk (/var/tmp/dibs-UID).")
@click.option("--unpack", is_flag=True, help="Unpack Debian's packages, even where Slurm is installed.")
@click.option(
    "--packages", default="", metavar="DIR", help="Take the packages from this folder instead of fetching."
)
@_JSON
def up(
    hosts: tuple[str, ...],
    controller: str,
    port: int | None,
    ssh: str | None,
    folder: str,
    local_folder: str,
    unpack: bool,
    packages: str,
    as_json: bool,
) -> int:
    """Check the hosts, make a Slurm of them and start it; again, to start what does not run."""
    options = {
        "--controller": controller,
        "--port": port,
        "--folder": folder,
        "--local-folder": local_folder,
        "--unpack": unpack,
    }
    with cluster_lock(os.environ):
        previous = remembered(os.environ)
        if previous is not None:
            _same_as(previous, hosts, [name for name, value in options.items() if value])
            hosts = ()
        elif not hosts:
            typed = up_command(["HOST", "HOST"], ssh_words(ssh) if ssh else ("ssh",))
            raise BadInput("there is no cluster yet", remedy=f"name its hosts: {typed}")
        wish = ClusterOptions(
            hosts=hosts,
            controller=controller,
            port=port,
            folder=os.path.abspath(os.path.expanduser(folder)) if folder else "",
            local_folder=os.path.abspath(local_folder) if local_folder else "",
            ssh=ssh_words(ssh) if ssh is not None else previous.ssh if previous else ("ssh",),
            unpack=unpack,
            packages=packages,
        )
        return _raise(wish, previous, as_json)


@cluster.command(epilog=_ADD_EPILOG)
@click.argument("host")
@_JSON
def add(host: str, as_json: bool) -> int:
    """Join one more host, after the same checks. Running jobs go on."""
    with cluster_lock(os.environ):
        previous = _there_is()
        if host in [node.host for node in previous.nodes]:
            raise BadInput(f"{host} belongs to the cluster already", remedy="dibs cluster status")
        return _raise(ClusterOptions(hosts=(host,), ssh=previous.ssh), previous, as_json)


@cluster.command(epilog=_REMOVE_EPILOG)
@click.argument("host")
@click.option("--drain", "waits", is_flag=True, help="Wait until the jobs there have ended; no new ones start.")
@click.option("--force", is_flag=True, help="Remove it, though it cannot be reached; its jobs are lost.")
@_JSON
def remove(host: str, waits: bool, force: bool, as_json: bool) -> int:
    """Take a host out, and remove what is there of the cluster. Jobs on the others go on."""
    with cluster_lock(os.environ):
        rest, left = remove_host(
            os.environ,
            _there_is(),
            host,
            waits=waits,
            force=force,
            fetched=_not_fetched,
            tell=(lambda text: None) if as_json else say,
        )
    if as_json:
        show_json({**_as_json(rest), "left": left})
    for folder in left:
        say(f"cannot remove {folder} on {host}\n  remove it by hand")
    if not as_json and not left:
        number = len(rest.nodes)
        say(f"removed {host}: the cluster has {number} {'node' if number == 1 else 'nodes'} now")
    return 1 if left else 0


def _not_fetched(node: str) -> list[int]:
    """Jobs of the queue that run on a node as far as it knows: what they wrote may still be there alone."""
    if not lock_is_held(queue_folder(os.environ)):
        return []
    running = connect(os.environ, start=False).jobs(state="running")
    return [job["id"] for job in running if job["on"] == "slurm" and job["node"] == node]


@cluster.command(epilog=_DOWN_EPILOG)
@click.option("--purge", is_flag=True, help="Remove its folders on every host, and forget it.")
@click.option(
    "--force", is_flag=True, help="With --purge: though a host cannot be reached, or jobs are open there."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask, though jobs run there.")
@_JSON
def down(purge: bool, force: bool, yes: bool, as_json: bool) -> int:
    """End the jobs and every process of the cluster on every host."""
    if force and not purge:
        raise BadInput("--force is for --purge", remedy="dibs cluster down --purge --force")
    known = _there_is()
    # Where jobs of the queue are open, a purge is refused, and there is nothing to ask.
    if not (yes or force) and (running := running_jobs(known)) and not (purge and _open_on(known, force)):
        jobs = "1 job that runs" if len(running) == 1 else f"{len(running)} jobs that run"
        if not confirm(f"End {jobs} there ({', '.join(running[:5])})?", what=f"end {jobs} there"):
            return 1

    with cluster_lock(os.environ):
        known = _there_is()
        ended, errors = end_cluster(
            os.environ,
            known,
            purge=purge,
            force=force,
            open_jobs=_open_on(known, force) if purge else [],
            forget_root=lambda base, is_gone: forget_below(
                memory_in(queue_folder(os.environ)), base, is_gone=is_gone
            ),
            tell=(lambda text: None) if as_json else say,
        )
    if as_json:
        show_json({"ended": ended, "errors": [_error(error) for error in errors]})
    for error in errors:
        say(f"{error.message}\n  {error.remedy}" if error.remedy else error.message)
    return 1 if errors else 0


def _open_on(known: Cluster, force: bool) -> list[int]:
    """Jobs that the queue has handed to this cluster and has not heard the end of. A daemon is started to tell.

    Where another Slurm is named in the settings, only those whose folders lie in this one's.
    """
    if not os.path.exists(f"{queue_folder(os.environ)}/store.db"):
        return []
    try:
        client = connect(os.environ)
        away = [job["id"] for job in client.jobs(state=["submitted", "running"]) if job["on"] == "slurm"]
        if load_settings(os.environ).backends_slurm_conf or os.environ.get("SLURM_CONF"):
            folders = {job: client.job(job)["attempts_list"][-1]["folder"] for job in away}
            away = [job for job in away if folders[job].startswith(f"{known.base}/")]
    except DibsError:
        if not force:
            raise
        return []
    return sorted(away)


@cluster.command(epilog=_STATUS_EPILOG)
@_JSON
def status(as_json: bool) -> int:
    """Print a line for each host: its state, its GPUs, what runs there. Ends with 1 where there is a problem."""
    known = _there_is()
    found = standings(known)
    if as_json:
        show_json({**_as_json(known), "hosts": [_standing(one) for one in found]})
    else:
        headings = ("host", "node", "state", "GPUs", "Slurm", "runs")
        for line in table(headings, [_row(one) for one in found], width=table_width(), shrink=5):
            show(line)
        for one in found:
            for problem in one.problems:
                say(f"{one.host}: {problem}")
    return 1 if any(one.problems for one in found) else 0


def _raise(wish: Any, previous: Cluster | None, as_json: bool) -> int:
    try:
        made = raise_cluster(os.environ, wish, previous, (lambda text: None) if as_json else say)
    except ClusterRefused as error:
        if as_json:
            problems = [
                {"host": one.host, "code": one.code, "message": one.message, "remedy": one.remedy}
                for one in error.problems
            ]
            show_json({"problems": problems})
        else:
            for one in error.problems:
                say(f"{one.host}: {one_line(one.message, 600)}\n  {one.remedy}")
        raise
    if as_json:
        show_json(_as_json(made.cluster))
        return 0
    cards = sum(len(node.cards) for node in made.nodes)
    number, every = len(made.nodes), len(made.cluster.nodes)
    nodes = f"{number} {'node' if number == 1 else 'nodes'}" if number == every else f"{number} of {every} nodes"
    say(f"the cluster is up: {nodes} with {cards} {'GPU' if cards == 1 else 'GPUs'}")
    # A daemon looks for a cluster when it starts.
    is_there = lock_is_held(queue_folder(os.environ))
    trial = "-- nvidia-smi" if cards else "-n 0 -- hostname"
    say(f"next: {'dibs daemon restart; ' if is_there else ''}dibs add --on slurm {trial}")
    return 0


def _there_is() -> Cluster:
    found = remembered(os.environ)
    if found is None:
        raise Conflict("there is no cluster", remedy="dibs cluster up HOST HOST makes one")
    return found


def _same_as(previous: Cluster, hosts: tuple[str, ...], options: list[str]) -> None:
    """A cluster that there is can be started again as it is, and in no other way."""
    there = [node.host for node in previous.nodes]
    new = [host for host in hosts if host not in there]
    if new:
        raise Conflict(
            f"there is a cluster already, of {', '.join(there)}",
            remedy=f"`dibs cluster add {new[0]}` joins one more, `dibs cluster down --purge` makes room",
        )
    if options:
        raise Conflict(
            f"{options[0]} cannot be changed for a cluster that there is",
            remedy=f"`dibs cluster down --purge`, and then `{up_command(there, previous.ssh)}` with it",
        )


def _row(one: ClusterStanding) -> tuple[str, ...]:
    used = "?" if one.gpus_used is None else str(one.gpus_used)
    return (
        one.host,
        one.node or "-",
        one.state or "-",
        f"{used}/{one.gpus}" if one.node else "-",
        one.slurm or "?",
        ", ".join(one.daemons) or "nothing",
    )


def _standing(one: ClusterStanding) -> dict[str, Any]:
    return {
        "host": one.host,
        "node": one.node or None,
        "state": one.state or None,
        "gpus": one.gpus,
        "gpus_used": one.gpus_used,
        "slurm": one.slurm or None,
        "daemons": dict(one.daemons),
        "problems": list(one.problems),
    }


def _as_json(known: Cluster) -> dict[str, Any]:
    return {
        "name": known.name,
        "conf": known.conf,
        "bin": f"{known.base}/bin",
        "controller": known.head.host,
        "ports": list(known.ports),
        "slurm": known.version,
        "unpacked": known.is_unpacked,
        "shared": known.is_shared,
        "nodes": [
            {
                "node": node.name,
                "host": node.host,
                "address": node.address,
                "cpus": node.cpus,
                "memory_mib": node.memory_mib,
                "gpus": [card.kind for card in node.cards],
            }
            for node in known.nodes
        ],
    }


def _error(error: DibsError) -> dict[str, str]:
    return {"code": error.code, "message": error.message, "remedy": error.remedy}
