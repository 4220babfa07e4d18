"""Cards that somebody named where nobody can be asked."""

from collections.abc import Callable, Sequence
from datetime import datetime

from dibs.gpus.clock import utc_now
from dibs.model.gpus import Gpu, GpuReading, Reading, declared_key


class DeclaredProbe:
    """Believes the user: these cards are there, and nothing else is known of them."""

    def __init__(self, indices: Sequence[int], *, now: Callable[[], datetime] = utc_now) -> None:
        self._gpus = tuple(declared_gpu(index) for index in sorted(set(indices)))
        self._now = now

    def read(self, *, energy: bool = False) -> Reading:
        return Reading(at=self._now(), gpus=tuple(GpuReading(gpu=gpu) for gpu in self._gpus))


def declared_gpu(index: int) -> Gpu:
    """The card of that number, known by its number alone."""
    return Gpu(key=declared_key(index), index=index)
