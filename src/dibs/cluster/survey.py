"""Looking at every host at once, and whether they reach each other. Nothing is changed by it."""

import contextlib
import os
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from dibs.cluster.checks import PORT_PAIRS, HostFacts, Problem, look_from
from dibs.cluster.configure import host_of
from dibs.cluster.saved import ClusterNode
from dibs.cluster.ssh import HostCaller, HostFailed, HostUnreachable, each
from dibs.dataclass import dataclass
from dibs.errors import DibsError


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSurvey:
    """What was seen. A host that turned out to be this machine has the look of this machine."""

    here: HostFacts
    hosts: Mapping[str, HostFacts]  # by what the user typed
    problems: tuple[Problem, ...]  # hosts that could not be asked

    @property
    def looks(self) -> list[HostFacts]:
        """Every machine once, unless it was named twice; this one first."""
        return [self.here, *(look for look in self.hosts.values() if not look.is_here)]

    @property
    def is_shared(self) -> bool:
        return all(look.sees_mark for look in self.hosts.values())


def survey(
    caller: HostCaller,
    hosts: Sequence[str],
    *,
    own: Collection[str],
    base: str,
    local: str,
    ports: tuple[int, int] | None,
) -> HostSurvey:
    """Look at these hosts and at this machine.

    `own` are names of this machine, and `ports` those that are wanted, where that is known already.
    """
    name = f".dibs-{os.urandom(8).hex()}"
    mark = caller.call("", "look.make_mark", {"base": base, "name": name})["mark"]
    request = {
        "base": base,
        "local": local,
        "mark": mark,
        "own_ports": ports or (),
        "ports": ports or [port for pair in PORT_PAIRS for port in pair],
    }

    def ask(host: str) -> HostFacts:
        asked_at = time.time()
        answer = caller.call(host, "look.survey", request)
        return look_from(host, answer, asked_at=asked_at, answered_at=time.time())

    is_here = {host for host in hosts if host in own or _means_here(host)}
    try:
        here = ask("")
        answers, errors = each([host for host in hosts if host not in is_here], ask)
    finally:
        if mark:
            with contextlib.suppress(DibsError):
                caller.call("", "look.remove_mark", {"mark": mark})
    for error in errors:
        if not isinstance(error, (HostUnreachable, HostFailed)):
            raise error  # there is no ssh: no host is to blame
    problems = [error.problem if isinstance(error, HostUnreachable) else _as_problem(error) for error in errors]
    found = {host: here if host in is_here else answers.get(host) for host in hosts}
    looks = {host: _here_if_here(look, here) for host, look in found.items() if look is not None}
    twice = [host for host, look in looks.items() if look.is_here][1:]
    problems += [_named_twice(host) for host in twice]
    return HostSurvey(here=here, hosts=looks, problems=tuple(problems))


def addresses(caller: HostCaller, looks: Sequence[HostFacts]) -> dict[str, str]:
    """Where each host is reached by the others: where we reach it."""
    found = {look.host: _resolved(caller.address_of(look.host)) for look in looks if not look.is_here}
    others = list(found.values())
    return {"": _own_address(others[0]) if others else "127.0.0.1", **found}


def who_cannot_reach(
    caller: HostCaller,
    nodes: Sequence[ClusterNode],
    controller: str,
    ports: tuple[int, int],
    running: Mapping[str, Sequence[str]],
) -> dict[str, dict[str, str]]:
    """Let all hosts call each other: `host -> other -> why not`.

    `running` names the daemons that listen already, by host.
    """
    controller_port, node_port = ports
    head = next(node for node in nodes if node.name == controller)
    hosts = [node.destination for node in nodes]
    members = hosts if "" in hosts else [*hosts, ""]
    talks = []
    try:
        for host in members:
            daemons = running.get(host, ())
            listen = [node_port] if host in hosts and "slurmd" not in daemons else []
            listen += [controller_port] if host == head.destination and "slurmctld" not in daemons else []
            call = [(node.host, node.address, node_port) for node in nodes if host in hosts]
            call += [(f"the controller, {head.host},", head.address, controller_port)]
            talks.append(caller.talk(host, "talk.meet", {"listen": listen, "call": call}))
        for talk in talks:
            talk.hear()
        for talk in talks:
            talk.say(b"go\n")
        answers = {talk.host: talk.hear() for talk in talks}
    finally:
        for talk in talks:
            talk.close()
    return {host or "this machine": answer["failed"] for host, answer in answers.items() if answer["failed"]}


def _means_here(host: str) -> bool:
    """Names that need no ssh to find out. Whatever else leads here is found by looking at it."""
    own = socket.gethostname()
    return host in ("localhost", own, own.split(".")[0])


def _here_if_here(look: HostFacts, here: HostFacts) -> HostFacts:
    is_same = look.machine_id == here.machine_id and look.uid == here.uid
    return replace(here, sees_mark=True) if is_same or look.is_here else look


def _named_twice(host: str) -> Problem:
    return Problem(host=host, code="twice", message="is this machine once more", remedy="name each host once")


def _as_problem(error: DibsError) -> Problem:
    host, _, why = error.message.partition(": ")
    return Problem(host=host, code="look", message=f"cannot be looked at: {why}", remedy=error.remedy)


def _resolved(name: str) -> str:
    """As a number where we know it: the others may not know the name. Slurm speaks IPv4 unless told otherwise."""
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return host_of(name)


def _own_address(other: str) -> str:
    """Our own address on the route to another host. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect((other, 9))
            return str(one.getsockname()[0])
        except OSError:
            return socket.gethostname()
