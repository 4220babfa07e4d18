"""How an engine shares its GPUs with other programs."""

from dibs.dataclass import dataclass
from dibs.gpus.processes import DEFAULT_BUSY_RULES, BusyRules
from dibs.policy.snapshot import EMPTIEST_FIRST, Order, parse_order
from dibs.settings import Settings


@dataclass(frozen=True, slots=True)
class SharingRules:
    """Which foreign processes count, which GPU is used first, how many stay free, how often GPUs are read."""

    busy: BusyRules = DEFAULT_BUSY_RULES
    order: Order = EMPTIEST_FIRST
    min_free: int = 0
    reading_seconds: float = 1.0  # between two readings of the GPUs while jobs wait or run


DEFAULT_SHARING_RULES = SharingRules()


def sharing_rules(settings: Settings) -> SharingRules:
    return SharingRules(
        BusyRules(settings.respect_graphics, settings.ignore_memory),
        parse_order(settings.gpu_order),
        settings.min_free,
        settings.reading_seconds,
    )
