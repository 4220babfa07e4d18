"""`up` and `add`: look, judge, and only then change something."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from dibs.cluster import slurm
from dibs.cluster.checks import HostFacts, Problem, choose_ports, choose_slurm, judge, judge_calls
from dibs.cluster.configure import cards_of, check_hosts, configuration, memory_of, node_name
from dibs.cluster.install import check_packages, gather, install, unpack
from dibs.cluster.saved import Cluster, ClusterNode, remember
from dibs.cluster.ssh import HostCaller, all_of, up_command
from dibs.cluster.survey import HostSurvey, addresses, survey, who_cannot_reach
from dibs.dataclass import dataclass
from dibs.errors import BadInput, DibsError
from dibs.paths import local_folder

Tell = Callable[[str], None]


class ClusterRefused(DibsError):
    """These hosts cannot be a cluster as they are. Nothing has changed."""

    code = "cluster-refused"
    exit_status = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        number = len(problems)
        super().__init__(
            f"cannot make a cluster of these hosts: {number} {'thing is' if number == 1 else 'things are'} wrong",
            remedy="nothing was changed; mend what is named above, or leave those hosts out",
        )
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What the user typed."""

    hosts: tuple[str, ...]
    controller: str = ""
    port: int | None = None
    folder: str = ""
    local_folder: str = ""
    ssh: tuple[str, ...] = ("ssh",)
    unpack: bool = False
    packages: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedCluster:
    """The cluster, and those of its nodes that take jobs: one may be away."""

    cluster: Cluster
    nodes: tuple[ClusterNode, ...]


def raise_cluster(
    environ: Mapping[str, str], wish: ClusterOptions, previous: Cluster | None, tell: Tell
) -> StartedCluster:
    """Make a cluster of these hosts, or make the one there is run again, with hosts that are new to it."""
    check_hosts(wish.hosts)
    if wish.controller and wish.controller not in wish.hosts:
        raise BadInput(
            f"--controller {wish.controller} is none of the hosts", remedy="name it among the hosts too"
        )
    if wish.packages:
        check_packages(wish.packages)
    caller = HostCaller(wish.ssh)
    draft = previous or _draft(environ, wish)
    hosts = [*(node.host for node in draft.nodes), *wish.hosts]
    tell(f"looking at {_listed(hosts)}")
    wanted = (wish.port, wish.port + 1) if wish.port else None
    ports = previous.ports if previous else wanted
    own = {node.host for node in draft.nodes if not node.destination}
    seen = survey(caller, hosts, own=own, base=draft.base, local=draft.local, ports=ports)
    problems = _not_excused(seen, draft, tell)
    head = seen.hosts.get(_controller(seen, draft, wish))
    looks = seen.looks
    problems += judge(looks, base=draft.base, local=draft.local, ports=ports)
    choice = None
    if head is not None:
        nodes_at = {look.host for look in seen.hosts.values()}
        wants_packages = wish.unpack or bool(wish.packages) or draft.is_unpacked
        choice, more = choose_slurm(looks, head, nodes_at, unpack=wants_packages)
        problems += more
    if problems or head is None or choice is None:
        raise ClusterRefused(problems)
    if previous and choice.is_installed == previous.is_unpacked:
        raise DibsError(
            "cannot change the Slurm of a cluster that there is: not every host has the installed one",
            remedy=f"install it there, or `dibs cluster down --purge` and then `{up_command(hosts, wish.ssh)}`",
        )
    cluster = _with_nodes(draft, seen, addresses(caller, looks), head)
    cluster = replace(cluster, ports=ports or choose_ports(looks) or draft.ports, ssh=wish.ssh)
    for node in cluster.nodes:
        if node.host in seen.hosts:
            tell(f"{node.host}: {_size(node)}")
    _let_them_meet(caller, cluster, seen)
    tell(f"they reach each other at the ports {cluster.ports[0]} and {cluster.ports[1]}")
    cluster = _with_slurm(
        environ, caller, replace(cluster, is_unpacked=not choice.is_installed), looks, wish, tell
    )
    remember(environ, cluster)
    configure_and_start(caller, cluster, [look.host for look in looks], previous, tell)
    return StartedCluster(cluster=cluster, nodes=tuple(node for node in cluster.nodes if node.host in seen.hosts))


def _with_slurm(
    environ: Mapping[str, str],
    caller: HostCaller,
    cluster: Cluster,
    looks: Sequence[HostFacts],
    wish: ClusterOptions,
    tell: Tell,
) -> Cluster:
    """The Slurm that is installed, or packages on every host: from here on something is changed."""
    if cluster.is_unpacked:
        fetchers = [look.host for look in looks if look.has_apt]
        files = gather(caller, base=cluster.base, folder=wish.packages, fetchers=fetchers, tell=tell)
        remember(environ, cluster)
        members = [look.host for look in looks]
        plugins = unpack(caller, members, files, base=cluster.base, fetchers=fetchers, tell=tell)
        tell(f"unpacked Slurm's packages on {_listed([look.shown for look in looks])}")
        cluster = replace(cluster, plugins=plugins)
    said = slurm.ask(caller, cluster, "slurmctld", "-V", host=cluster.head.destination)
    if not said["said"].split():
        raise DibsError(f"slurmctld cannot be started on {cluster.head.host}: {said['error']}")
    return replace(cluster, version=said["said"].split()[-1])


def configure_and_start(
    caller: HostCaller, cluster: Cluster, members: Sequence[str], previous: Cluster | None, tell: Tell
) -> None:
    """Put everything in its place, and start what does not run."""
    key = _known_key(cluster)
    if key is None:
        key = os.urandom(128)
        if previous:  # with another key than the others they would not understand each other
            all_of(members, lambda host: slurm.stop(caller, cluster, ["munged"], host, jobs=False))
    nodes = [node for node in cluster.nodes if node.destination in members]
    hosts = [node.destination for node in nodes]
    all_of(members, lambda host: install(caller, host, cluster, key))
    tell(f"configured Slurm {cluster.version} in {cluster.base}")
    if previous and configuration(previous) != configuration(cluster):
        # Slurm learns of nodes that come or go only when it starts. Jobs do not notice: each has its own process.
        slurm.stop(caller, cluster, ["slurmctld"], cluster.head.destination, jobs=False, within=30.0)
        all_of(hosts, lambda host: slurm.stop(caller, cluster, ["slurmd"], host, jobs=False, within=30.0))
    if number := slurm.start(caller, cluster, "munged", members):
        tell(f"started munged on {number} {'host' if number == 1 else 'hosts'}")
    if slurm.start(caller, cluster, "slurmctld", [cluster.head.destination]):
        tell(f"started slurmctld on {cluster.head.host}, port {cluster.ports[0]}")
    slurm.wait_for_controller(caller, cluster)
    if number := slurm.start(caller, cluster, "slurmd", hosts):
        tell(f"started slurmd on {number} {'host' if number == 1 else 'hosts'}, port {cluster.ports[1]}")
    slurm.wait_for_nodes(caller, cluster, [node.name for node in nodes])


def _draft(environ: Mapping[str, str], wish: ClusterOptions) -> Cluster:
    """A cluster without nodes yet."""
    name = f"cluster-{os.urandom(3).hex()}"
    home = environ.get("XDG_DATA_HOME") or f"{environ.get('HOME') or os.path.expanduser('~')}/.local/share"
    folder = wish.folder or f"{home}/dibs"
    for option, path in (("--folder", folder), ("--local-folder", wish.local_folder or "/")):
        if not os.path.isabs(path) or any(not letter.isprintable() or letter in " '\"#,=%[]" for letter in path):
            raise BadInput(
                f"cannot use {path!r}: Slurm's configuration has no way to write it",
                remedy=f"{option} names a folder from / on, without blanks and quotes",
            )
    return Cluster(
        name=name,
        base=f"{folder.rstrip('/')}/{name}",
        local=f"{(wish.local_folder or local_folder()).rstrip('/')}/{name}",
        uid=os.geteuid(),
        nodes=(),
        controller="",
        ports=(0, 0),
        version="",
    )


def _not_excused(seen: HostSurvey, draft: Cluster, tell: Tell) -> list[Problem]:
    """A host that belongs to the cluster may be away, and the others go on; the controller may not."""
    known = {node.host for node in draft.nodes if node.name != draft.controller}
    for problem in seen.problems:
        if problem.host in known:
            tell(f"{problem.host} is left as it is: it {problem.message}")
    return [problem for problem in seen.problems if problem.host not in known]


def _controller(seen: HostSurvey, draft: Cluster, wish: ClusterOptions) -> str:
    """The name of its host: as it was, as the user wants it, this machine if it is one of them, or the first."""
    if draft.nodes:
        return draft.head.host
    own = [host for host, look in seen.hosts.items() if look.is_here]
    return wish.controller or (own or wish.hosts)[0]


def _with_nodes(draft: Cluster, seen: HostSurvey, at: Mapping[str, str], head: HostFacts) -> Cluster:
    """The nodes as they were seen now; those that are away as they were."""
    nodes = {node.host: node for node in draft.nodes}
    for host, look in seen.hosts.items():
        before = nodes.get(host)
        taken = [node.name for node in nodes.values()]
        nodes[host] = ClusterNode(
            name=before.name if before else node_name(host, look.hostname, taken),
            host=host,
            destination=look.host,
            hostname=look.hostname,
            address=at[look.host],
            cpus=look.cpus,
            memory_mib=memory_of(look.memory),
            cards=cards_of(look.cards, draft.local),
            python=look.python,
        )
    controller = next(node.name for node in nodes.values() if node.destination == head.host)
    return replace(draft, nodes=tuple(nodes.values()), controller=controller, is_shared=seen.is_shared)


def _let_them_meet(caller: HostCaller, cluster: Cluster, seen: HostSurvey) -> None:
    """Refuse hosts that cannot call each other."""
    nodes = [node for node in cluster.nodes if node.host in seen.hosts]
    running = {look.host: tuple(look.running) for look in seen.looks}
    failed = who_cannot_reach(caller, nodes, cluster.controller, cluster.ports, running)
    if failed:
        raise ClusterRefused(judge_calls(failed))


def _known_key(cluster: Cluster) -> bytes | None:
    """By which the hosts know each other: made once, and kept where no other user can read it."""
    try:
        with open(f"{cluster.local}/munge.key", "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _size(node: ClusterNode) -> str:
    """`64 CPUs, 503G, 8 h200`."""
    kinds = [f"{len(list(same))} {kind}" for kind, same in groupby(sorted(card.kind for card in node.cards))]
    return ", ".join([f"{node.cpus} CPUs", f"{node.memory_mib >> 10}G", *(kinds or ["no GPU"])])


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
