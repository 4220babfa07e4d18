"""Which card is taken first when several would do (`gpu_order`)."""

from dataclasses import dataclass

from dibs.errors import BadInput
from dibs.model.gpus import Gpu
from dibs.model.pool import is_gpu_id

EMPTIEST, COOLEST, LAST = "emptiest", "coolest", "last"


@dataclass(frozen=True, slots=True)
class Order:
    """The emptiest card first; among those that are as empty the coolest, or that with the highest number.

    Or named cards first, in this order, as long as a job fits there.
    """

    word: str = EMPTIEST
    ids: tuple[str, ...] = ()

    def first(self, gpu: Gpu) -> int:
        """Smaller: taken before others, however empty they are."""
        return next((place for place, one in enumerate(self.ids) if gpu.is_called(one)), len(self.ids))

    def then(self, gpu: Gpu, temperature: int | None) -> float:
        """Smaller: taken before others that are as empty."""
        if self.word == COOLEST:
            return float("inf") if temperature is None else temperature
        return -gpu.index if self.word == LAST else 0.0


EMPTIEST_FIRST = Order()


def parse_order(text: str) -> Order:
    """`emptiest`, `coolest`, `last`, or GPUs like `3,2`."""
    if text in (EMPTIEST, COOLEST, LAST):
        return Order(text)
    ids = tuple(part.strip() for part in text.split(","))
    if not all(map(is_gpu_id, ids)) or len(set(ids)) < len(ids):
        raise BadInput(
            f"cannot read {text[:60]!r} as an order of GPUs",
            remedy=f"it is {EMPTIEST}, {COOLEST}, {LAST}, or GPUs like 3,2",
        )
    return Order(ids=ids)
