"""How an engine behaves towards others who use the same cards."""

from dataclasses import dataclass

from dibs.gpus.foreign import AS_EVER, BusyRules
from dibs.policy.order import EMPTIEST_FIRST, Order, parse_order
from dibs.settings import Settings


@dataclass(frozen=True, slots=True)
class Manners:
    """Whose processes are respected, which card is taken first, how many are left, how often one looks."""

    busy: BusyRules = AS_EVER
    order: Order = EMPTIEST_FIRST
    min_free: int = 0
    reading_seconds: float = 1.0  # between two looks at the cards while jobs wait or run


POLITE = Manners()  # as it is where nobody has set anything


def manners_of(settings: Settings) -> Manners:
    return Manners(
        BusyRules(settings.respect_graphics, settings.ignore_memory),
        parse_order(settings.gpu_order),
        settings.min_free,
        settings.reading_seconds,
    )
