"""What was seen on a host."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One host, as `there/look.py` and `there/ground.py` saw it."""

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


def look_from(host: str, answer: Mapping[str, Any], *, asked_at: float, answered_at: float) -> Look:
    """Out of a host's answer; its clock is compared with the middle of the time that asking took."""
    seen, ground = dict(answer["look"]), answer["ground"]
    clock = seen.pop("clock")
    seen["python_version"] = tuple(seen["python_version"])
    seen["cards"] = tuple((card["name"], card["device"]) for card in seen["cards"])
    return Look(
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
