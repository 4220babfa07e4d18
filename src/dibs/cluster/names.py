"""What hosts are called: by the user, by ssh, and by Slurm."""

import re
from collections.abc import Iterable, Sequence

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
