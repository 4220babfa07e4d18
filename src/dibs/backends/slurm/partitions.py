"""What `scontrol show partition` says: whether each starts jobs, how long they may run, and the default."""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, as far as a job must know it."""

    name: str
    is_default: bool
    longest: float | None  # seconds that a job may run; None: no limit
    is_up: bool = True  # it starts jobs


def parse(output: bytes) -> tuple[Partition, ...]:
    """One line for each, as `scontrol -o` writes it."""
    found = []
    for line in output.decode("utf-8", "replace").splitlines():
        cells = dict(word.partition("=")[::2] for word in line.split())
        if "PartitionName" in cells:
            longest = _seconds(cells.get("MaxTime", ""))
            is_up = cells.get("State", "UP") == "UP"
            found.append(Partition(cells["PartitionName"], cells.get("Default") == "YES", longest, is_up))
    return tuple(found)


def chosen(partitions: Sequence[Partition], named: str) -> tuple[Partition, ...]:
    """Those that a job with this option may run in: several may be named, and without any it is the default."""
    names = set(filter(None, named.split(",")))
    return tuple(one for one in partitions if one.name in names or (not names and one.is_default))


def _seconds(text: str) -> float | None:
    """`2-00:10:00`, `01:30:00`, `10:00`; `UNLIMITED` is none."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
