"""A port for the processes of a job to meet, and for no other job."""

import random
from collections.abc import Container

from dibs.backends.local import is_free_port
from dibs.engine.turn.state import Key

# Below the ports that the kernel gives to whoever connects to somewhere, so that none of those is in the way
# between our look and the job's own start; and without 29500, which PyTorch takes where nobody says anything.
_PORTS = range(20_000, 29_000)


class Ports:
    """Remembers which port was given to which attempt: it may start to listen much later."""

    def __init__(self) -> None:
        self._given: dict[Key, int] = {}

    def give(self, attempt: Key, running: Container[Key]) -> int | None:
        """A port that nobody listens on and that no running attempt was given; None where there is none."""
        self._given = {key: port for key, port in self._given.items() if key in running and key != attempt}
        taken = set(self._given.values())
        # By chance: another engine, which knows nothing of ours, may look in the same moment.
        for port in random.sample(_PORTS, len(_PORTS)):
            if port not in taken and is_free_port(port):
                self._given[attempt] = port
                return port
        return None
