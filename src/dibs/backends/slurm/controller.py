"""What Slurm's controller is asked and told, as values instead of lines of text."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dibs.backends.protocol import Node, Wanted
from dibs.backends.slurm import partitions, sinfo, squeue
from dibs.backends.slurm.commands import Commands, SlurmRefused, last_line
from dibs.backends.slurm.partitions import Partition
from dibs.backends.slurm.squeue import Row
from dibs.errors import BackendSilent

_MOST_CANCELS = 200  # jobs in one call of scancel


@dataclass(frozen=True, slots=True)
class Config:
    """What the controller is set up for."""

    kill_wait: float  # seconds between TERM and KILL
    largest_array: int


class Controller:
    """Questions that it has no reason to refuse: whoever cannot answer them is silent."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._config: Config | None = None

    def version(self) -> str:
        """Empty where it does not tell."""
        return self._show_config().get("SLURM_VERSION", "")

    def config(self) -> Config:
        """Asked for once."""
        if self._config is None:
            found = self._show_config()
            self._config = Config(
                kill_wait=float(_first_number(found.get("KillWait", ""), 30)),
                largest_array=max(1, _first_number(found.get("MaxArraySize", ""), 1001)),
            )
        return self._config

    def began(self) -> float:
        """When it was started, in seconds since the epoch."""
        return float(_first_number(self._show_config().get("BOOT_TIME", ""), 0))

    def nodes(self) -> tuple[Node, ...]:
        """Every node that this user may see, with its cards."""
        return sinfo.parse(self._ask("sinfo", ["-a", "-N", "-h", "-O", sinfo.FORMAT]))

    def shards_per_gpu(self, many: Iterable[Wanted]) -> int:
        """The fewest parts of a card on any node that has them; 0 where nobody asks or there are none."""
        if not any(wanted.wishes.share or wanted.wishes.vram for wanted in many):
            return 0
        cards = [(node.shards, sum(gpus.total for gpus in node.gpus)) for node in self.nodes()]
        return min((shards // total for shards, total in cards if shards and total), default=0)

    def partitions(self, wanted: Wanted) -> tuple[Partition, ...]:
        """Those in which it may run."""
        found = partitions.parse(self._ask("scontrol", ["-a", "-o", "show", "partition"]))
        return partitions.chosen(found, dict(wanted.options).get("partition", ""))

    def queue(self) -> list[Row]:
        """All that this user has. `-a`: a partition may be hidden from those who do not use it."""
        asked = ["-h", "-a", "-r", "-t", "all", f"--user={os.getuid()}", "-O", squeue.FORMAT]
        return list(squeue.parse(self._ask("squeue", asked)))

    def scancel(self, how: list[str], addresses: list[str]) -> None:
        for start in range(0, len(addresses), _MOST_CANCELS):
            # A job that ended in between is no error of ours: who observes sees it.
            with contextlib.suppress(SlurmRefused):
                self._commands.ask("scancel", [*how, *addresses[start : start + _MOST_CANCELS]])

    def _show_config(self) -> dict[str, str]:
        lines = self._ask("scontrol", ["show", "config"]).decode("utf-8", "replace").splitlines()
        return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}

    def _ask(self, command: str, arguments: Sequence[str]) -> bytes:
        try:
            return self._commands.ask(command, arguments)
        except SlurmRefused as error:
            raise BackendSilent(
                f"cannot ask Slurm: {last_line(str(error))}", remedy="`scontrol ping` shows more"
            ) from None


def _first_number(text: str, default: int) -> int:
    word = text.split()[0] if text else ""
    return int(word) if word.isdecimal() else default
