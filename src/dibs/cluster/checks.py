"""What was seen on hosts, and what keeps them from becoming a cluster. Nothing is changed."""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from dibs.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """One host, as `on_host/look.py` saw it."""

    host: str  # what ssh is given; empty for this machine
    hostname: str
    machine_id: str
    uid: int
    user: str
    home: str
    machine: str  # the architecture: x86_64
    system: str  # debian 12
    system_name: str
    python: str
    python_version: tuple[int, int]
    cpus: int
    memory: int  # bytes
    cards: tuple[tuple[str, str], ...] = ()  # name and device file
    programs: Mapping[str, str] = field(default_factory=dict)  # of Slurm, by name
    slurm: str = ""  # the version that is installed
    has_apt: bool = False
    has_dpkg: bool = False
    clock_ahead: float = 0.0  # seconds, compared with this machine
    clock_unsure: float = 0.0  # seconds that the question took, halved
    base_refused: str = ""  # why the folders cannot be had
    local_refused: str = ""
    taken: Mapping[int, str] = field(default_factory=dict)  # ports, and by whom as far as that is known
    running: Mapping[str, int] = field(default_factory=dict)  # daemons of this cluster
    sees_mark: bool = False

    @property
    def shown(self) -> str:
        return self.host or "this machine"

    @property
    def is_here(self) -> bool:
        return not self.host


def look_from(host: str, answer: Mapping[str, Any], *, asked_at: float, answered_at: float) -> HostFacts:
    """Out of a host's answer; its clock is compared with the middle of the time that asking took."""
    seen, ground = dict(answer["look"]), answer["ground"]
    clock = seen.pop("clock")
    seen["python_version"] = tuple(seen["python_version"])
    seen["cards"] = tuple((card["name"], card["device"]) for card in seen["cards"])
    return HostFacts(
        host=host,
        **seen,
        clock_ahead=clock - (asked_at + answered_at) / 2,
        clock_unsure=(answered_at - asked_at) / 2,
        base_refused=ground["base"],
        local_refused=ground["local"],
        taken={int(port): holder for port, holder in ground["taken"].items()},
        running=ground["running"],
        sees_mark=ground["sees_mark"],
    )


FIRST_PORT = 16817  # Slurm's own 6817, in a range where any user may listen and few programs do
PORT_PAIRS = tuple((port, port + 1) for port in range(FIRST_PORT, FIRST_PORT + 40, 2))
CLOCKS_APART = 30.0  # seconds; munge refuses what is five minutes old, and clocks that drift go on drifting
OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong on one host, and what to do about it."""

    host: str
    code: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChoice:
    """Which Slurm is used: the one that is installed, or unpacked packages."""

    is_installed: bool
    version: str = ""  # of the installed one


def judge(looks: Sequence[HostFacts], *, base: str, local: str, ports: tuple[int, int] | None) -> list[Problem]:
    """Everything that is wrong with these hosts; `ports` are those that the user chose. Ours is the first look."""
    here = looks[0]
    found = [problem for look in looks for problem in _alone(look, here)]
    found += _twins(looks)
    for look in looks:
        folders = (("--folder", base, look.base_refused), ("--local-folder", local, look.local_refused))
        for option, folder, why in folders:
            if why:
                found.append(
                    _problem(
                        look,
                        "folder",
                        f"cannot use {folder}: {why}",
                        f"{option} names one that every host can use",
                    )
                )
        for port in ports or ():
            if port in look.taken:
                found.append(_port_taken(look, port))
    if ports is None and choose_ports(looks) is None:
        found += [_port_taken(look, min(look.taken)) for look in looks if look.taken]
    return found


def choose_ports(looks: Iterable[HostFacts]) -> tuple[int, int] | None:
    """The first two that are free on every host."""
    taken = {port for look in looks for port in look.taken}
    return next((pair for pair in PORT_PAIRS if not taken & set(pair)), None)


def choose_slurm(
    looks: Sequence[HostFacts], controller: HostFacts, nodes: Collection[str], *, unpack: bool
) -> tuple[ClusterChoice | None, list[Problem]]:
    """The installed one where it is the same everywhere, otherwise packages where they would run everywhere."""
    lacking = {look.host: _lacks(look, look.host in nodes, look.host == controller.host) for look in looks}
    versions = {look.slurm for look in looks}
    if not unpack and not any(lacking.values()) and len(versions) == 1:
        return ClusterChoice(is_installed=True, version=versions.pop()), []
    found = [problem for look in looks for problem in _not_for_packages(look, controller, lacking[look.host])]
    return (None, found) if found else (ClusterChoice(is_installed=False), [])


def judge_calls(failed: Mapping[str, Mapping[str, str]]) -> list[Problem]:
    """Who could not reach whom, as `host -> other -> why`."""
    return [
        Problem(
            host=host,
            code="unreached-port",
            message=f"cannot reach {other} at {why}",
            remedy="open these ports between the hosts, choose others with --port, or name the hosts by addresses"
            " that all of them know",
        )
        for host, others in failed.items()
        for other, why in others.items()
    ]


def why_unreached(host: str, status: int, said: str, ssh: Sequence[str]) -> Problem:
    """What ssh's own words mean, and what helps; `ssh` is the command by which hosts are reached."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1][:200] if lines else f"ssh ended with {status} and said nothing"
    text, typed = said.lower(), shlex.join([*ssh, host])
    if "permission denied" in text or "too many authentication" in text:
        words = ("no-key", "you cannot log in there without a password", _let_in(host, ssh))
    elif "host key verification failed" in text:
        words = (
            "host-key",
            "its host key is not known here, or has changed",
            f"`{typed}` once, and look at it",
        )
    elif "could not resolve" in text:
        words = ("unknown-name", "there is no host of that name", "look at its spelling, or in ~/.ssh/config")
    elif "no-python3" in text:
        words = ("no-python", "there is no Python 3 there", "install python3.11 or newer there")
    elif status == 255:
        words = (
            "unreachable",
            f"cannot be reached: {last}",
            f"try `{typed}`; is it up, and is the name right?",
        )
    else:
        words = ("no-answer", f"does not answer as expected: {last}", f"try `{typed} python3 --version`")
    return Problem(host=host, code=words[0], message=words[1], remedy=words[2])


def _let_in(host: str, ssh: Sequence[str]) -> str:
    """What gives the user a key there. `ssh-copy-id` takes some of ssh's options."""
    options = list(ssh[1:])
    taken: list[str] = []
    while options and options[0][:2] in ("-i", "-p", "-F", "-o"):
        number = 1 if len(options[0]) > 2 else 2  # `-p2222`, or `-p 2222`
        taken, options = [*taken, *options[:number]], options[number:]
    if options or ssh[0].rpartition("/")[2] != "ssh":
        return "`ssh-add`, or put your public key into ~/.ssh/authorized_keys there"
    return f"`{shlex.join(['ssh-copy-id', *taken, host])}`, or `ssh-add`"


def _alone(look: HostFacts, here: HostFacts) -> Iterable[Problem]:
    """What is wrong with one host, compared with this machine."""
    if look.uid != here.uid:
        yield _problem(
            look,
            "uid",
            f"you are uid {look.uid} there and {here.uid} on this machine, and Slurm knows you by that number",
            "have the administrator give you the same uid everywhere, or leave the host out",
        )
    elif not look.user:
        yield _problem(look, "user", f"uid {look.uid} has no name there", "have an account made for you there")
    if abs(look.clock_ahead) - look.clock_unsure > CLOCKS_APART:
        apart = f"{abs(look.clock_ahead):.0f} seconds {'ahead of' if look.clock_ahead > 0 else 'behind'}"
        yield _problem(
            look,
            "clock",
            f"its clock is {apart} this machine's, and munge refuses messages from another time",
            "let chrony, ntpd or systemd-timesyncd keep it right",
        )
    if look.python_version < OLDEST_PYTHON:
        version = ".".join(map(str, look.python_version))
        yield _problem(
            look, "python", f"has Python {version}, and jobs need 3.11 or newer", "install python3.11 there"
        )


def _twins(looks: Sequence[HostFacts]) -> Iterable[Problem]:
    seen: dict[str, HostFacts] = {}
    for look in looks:
        first = seen.setdefault(look.machine_id, look)
        if first is not look:
            yield _problem(look, "twice", f"is the same machine as {first.shown}", "name each host once")


def _port_taken(look: HostFacts, port: int) -> Problem:
    holder = look.taken[port] or "another user's process"
    return _problem(look, "port", f"port {port} is taken by {holder}", "choose another with --port")


def _lacks(look: HostFacts, is_node: bool, is_controller: bool) -> list[str]:
    """Programs that an installed Slurm would have to bring. This machine may only ask."""
    needed = ["munged", *(["slurmd"] if is_node else []), *(["slurmctld"] if is_controller else [])]
    needed += ["sbatch", "squeue", "scancel", "scontrol", "sinfo"] if look.is_here or is_controller else []
    return [name for name in needed if not look.programs.get(name)]


def _not_for_packages(look: HostFacts, controller: HostFacts, lacking: Sequence[str]) -> Iterable[Problem]:
    """Why the packages that run on the controller would not run here."""
    if lacking:
        wants = f"has no {' and no '.join(lacking)}"
        remedy = "install slurmd and munge there"
    else:
        wants = f"has Slurm {look.slurm}, {controller.shown} {controller.slurm or 'none'}"
        remedy = "install the same version of Slurm on all"
    if not look.has_dpkg:
        yield _problem(look, "slurm", f"{wants}, and Debian's packages cannot be unpacked there", remedy)
    elif look.machine != controller.machine:
        yield _problem(
            look,
            "architecture",
            f"{wants}, and packages cannot be copied to it: it is {look.machine}, {controller.shown} is"
            f" {controller.machine}",
            remedy,
        )
    elif look.system != controller.system:
        yield _problem(
            look,
            "system",
            f"{wants}, and packages cannot be copied to it: it runs {look.system_name}, {controller.shown}"
            f" {controller.system_name}",
            remedy,
        )


def _problem(look: HostFacts, code: str, message: str, remedy: str) -> Problem:
    return Problem(host=look.shown, code=code, message=message, remedy=remedy)
