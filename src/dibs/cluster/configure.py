"""What hosts are called, and the text of Slurm's configuration."""

import re
import shlex
from collections.abc import Iterable, Sequence
from itertools import groupby

from dibs.cluster.saved import Cluster, ClusterNode, NodeCard
from dibs.errors import BadInput

_HOST = re.compile(r"(?:[A-Za-z_][A-Za-z0-9._-]*@)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def check_hosts(hosts: Sequence[str]) -> None:
    """Refuse what is no host's name: it becomes a word of an ssh command."""
    for host in hosts:
        if not _HOST.fullmatch(host):
            more = "a port stands in ~/.ssh/config, or in --ssh 'ssh -p 2222'"
            raise BadInput(f"cannot use {host[:80]!r} as a host", remedy=f"write HOST or USER@HOST; {more}")
    twice = next((host for place, host in enumerate(hosts) if host in hosts[:place]), None)
    if twice:
        raise BadInput(f"{twice} is named twice", remedy="name each host once")


def host_of(destination: str) -> str:
    """`gpu1` of `ann@gpu1`."""
    return destination.rpartition("@")[2]


def node_name(destination: str, hostname: str, taken: Iterable[str]) -> str:
    """Slurm's name for a host: the first part of what the user typed, or of what it calls itself."""
    typed = host_of(destination)
    is_address = re.fullmatch(r"[0-9.]+", typed) is not None
    first = (hostname if is_address or not typed or typed == "localhost" else typed).split(".")[0]
    name = re.sub(r"[^A-Za-z0-9_-]", "-", first) or "node"
    others = set(taken)
    number = 2
    while name in others:
        name = f"{name.rsplit('-', 1)[0] if number > 2 else name}-{number}"
        number += 1
    return name


_MEMORY_FOR_ALL = 0.97  # what the system itself needs is left to it


def configuration(cluster: Cluster) -> dict[str, str]:
    """Each file under `etc` and its content."""
    return {
        "slurm.conf": slurm_conf(cluster),
        "gres.conf": gres_conf(cluster),
        "cgroup.conf": cgroup_conf(cluster.version),
        "plugstack.conf": "",
    }


def slurm_conf(cluster: Cluster) -> str:
    """Without accounting, cgroups or root: a user has none of them."""
    head, local = cluster.head, cluster.local
    controller_port, node_port = cluster.ports
    lines = [
        "# Written by `dibs cluster up`, which writes it again.",
        "ClusterName=dibs",
        f"SlurmctldHost={head.hostname}({head.address})",
        f"SlurmctldPort={controller_port}",
        f"SlurmdPort={node_port}",
        f"SlurmUser={cluster.uid}",
        f"SlurmdUser={cluster.uid}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={local}/munge.sock",
        "CredType=cred/munge",
        f"StateSaveLocation={local}/state",
        f"SlurmdSpoolDir={local}/spool",
        f"SlurmctldPidFile={local}/run/slurmctld.pid",
        f"SlurmdPidFile={local}/run/slurmd.pid",
        f"SlurmctldLogFile={local}/log/slurmctld.log",
        f"SlurmdLogFile={local}/log/slurmd.log",
        *([f"PluginDir={cluster.plugins}"] if cluster.plugins else []),
        f"PlugStackConfig={cluster.base}/etc/plugstack.conf",
        "MailProg=/bin/true",
        "MpiDefault=none",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU_Memory",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=bf_interval=2,sched_interval=5,sched_min_interval=0,batch_sched_delay=0",
        "PriorityType=priority/basic",
        "GresTypes=gpu",
        # A node that was away, or was started again, is used again automatically.
        "ReturnToService=2",
        "SlurmdTimeout=60",
        "SlurmctldTimeout=30",
        "MessageTimeout=20",
        "KillWait=15",
        "MinJobAge=600",
        "SlurmdParameters=config_overrides",
        f"DefMemPerCPU={min(node.memory_mib // node.cpus for node in cluster.nodes)}",
        *map(_node_line, cluster.nodes),
        f"PartitionName=gpu Nodes={','.join(node.name for node in cluster.nodes)} Default=YES"
        " MaxTime=INFINITE State=UP",
    ]
    return "\n".join(lines) + "\n"


def gres_conf(cluster: Cluster) -> str:
    """Every card with its device file. Slurm's own way of looking is often not built in."""
    lines = ["AutoDetect=off"]
    for node in cluster.nodes:
        for kind, cards in groupby(node.cards, key=lambda card: card.kind):
            files = ",".join(card.device for card in cards)
            lines.append(f"NodeName={node.name} Name=gpu Type={kind} File={files}")
    return "\n".join(lines) + "\n"


def cgroup_conf(version: str) -> str:
    """Read even though nothing uses it; left to itself Slurm dies where no cgroup is mounted."""
    numbers = [int(number) for number in re.findall(r"[0-9]+", version)[:2]]
    return f"CgroupPlugin={'disabled' if numbers >= [23, 11] else 'cgroup/v1'}\n"


def python_script(nodes: tuple[ClusterNode, ...]) -> str:
    """`dibs-python`: the interpreter of whichever host it is started on."""
    paths = dict.fromkeys(node.python for node in nodes)
    tries = [f'[ -x {shlex.quote(path)} ] && exec {shlex.quote(path)} "$@"' for path in paths]
    return "\n".join(
        ["#!/bin/sh", *tries, "echo 'dibs: there is no Python 3.11 or newer here' >&2", "exit 127", ""]
    )


def kind_of(name: str) -> str:
    """A short word for a card: `h200` for NVIDIA H200, `rtx4090` for NVIDIA GeForce RTX 4090."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    place = next((at for at, word in enumerate(words) if any(map(str.isdigit, word))), None)
    if place is None:
        return "".join(words[-1:]) or "gpu"
    before = words[place - 1] if place and words[place].isdigit() else ""
    after = "".join(word for word in words[place + 1 : place + 3] if word in ("ti", "super"))
    return f"{before}{words[place]}{after}"


def cards_of(seen: tuple[tuple[str, str], ...], local: str) -> tuple[NodeCard, ...]:
    """Cards as the configuration names them; one out of a file gets a device in our own folder."""
    return tuple(
        NodeCard(kind=kind_of(name), device=device or f"{local}/dev/nvidia{index}")
        for index, (name, device) in enumerate(seen)
    )


def memory_of(memory: int) -> int:
    """MiB that jobs may have."""
    return max(1, int(memory * _MEMORY_FOR_ALL) >> 20)


def _node_line(node: ClusterNode) -> str:
    gres = ",".join(
        f"gpu:{kind}:{len(list(cards))}" for kind, cards in groupby(sorted(card.kind for card in node.cards))
    )
    return (
        f"NodeName={node.name} NodeAddr={node.address} NodeHostname={node.hostname} CPUs={node.cpus}"
        f" RealMemory={node.memory_mib}{f' Gres={gres}' if gres else ''}"
    )
