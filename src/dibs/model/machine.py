"""What else than GPUs a job may ask of a machine."""

from collections.abc import Iterable
from dataclasses import dataclass

from dibs.model.jobs import Wishes


@dataclass(frozen=True, slots=True)
class Machine:
    """Its processors and its memory in bytes; None: not counted."""

    cpus: int | None = None
    memory: int | None = None

    def left(self, booked: Iterable[Wishes]) -> "Machine":
        """What is not booked. Only jobs that say what they need are counted."""
        wishes = list(booked)
        return Machine(
            None if self.cpus is None else self.cpus - sum(one.cpus or 0 for one in wishes),
            None if self.memory is None else self.memory - sum(one.mem or 0 for one in wishes),
        )


NOT_COUNTED = Machine()
