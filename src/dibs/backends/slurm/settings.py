"""How this user uses Slurm."""

import sys
from pathlib import Path

from dibs.dataclass import dataclass

_SOURCE = str(Path(__file__).resolve().parents[3])


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmSettings:
    """What a person may set about Slurm, and where things are."""

    root: str  # attempts have their folders below it; every node sees it, unless there is `ssh`
    python: str = sys.executable  # an interpreter that every node has under this path
    source: str = _SOURCE  # where every node finds the package dibs
    options: tuple[tuple[str, str], ...] = ()  # for every job, unless it says otherwise: partition, account, ...
    patience: float = 60.0  # seconds until a job that is gone without a record counts as lost
    ssh: tuple[str, ...] = ()  # where no file system is shared: words that reach a node, named last or as `{node}`
    node_root: str = ""  # then: the folder for attempts on each node
    # What ssh is given for a node, where that is not its name; empty: it is this machine.
    destinations: tuple[tuple[str, str], ...] = ()
    # A file of this machine that remembers the mark in `root`; empty: it is remembered as long as this process.
    memory: str = ""
