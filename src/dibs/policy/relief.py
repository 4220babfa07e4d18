"""The safety net of packing: which job is suspended before a card runs out of memory, and when it goes on. Pure.

Jobs whose need is not known yet start together where the driver can suspend one of them in time.
"""

from collections.abc import Iterable, Sequence

from dibs.dataclass import dataclass
from dibs.model.jobs import AttemptKey
from dibs.policy.snapshot import MoveRate

_SPARE = 16  # a part of so many of a card stays free: what the others take while one of them is moved away
_UNTIL_LOCKED = 0.5  # seconds from a reading of the card until a job on it stands still
_GROW = "others there still show how much memory they need"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tenant:
    """An attempt on a card, as its memory was last seen."""

    key: AttemptKey
    since: float  # when it began; seconds since the epoch
    held: int = 0  # bytes on this card
    grows: float = 0.0  # bytes in a second, in the last one
    may_leave: bool = False  # its need is unknown, and it can be suspended
    is_leaving: bool = False  # it is being suspended: what it holds becomes free
    comes_back: bool = False  # it is being resumed: what it held is taken


def spare(total: int) -> int:
    """Bytes of a card that stay free while jobs of unknown size share it."""
    return total // _SPARE


def whom_to_suspend(total: int, free: int, tenants: Sequence[Tenant], speed: MoveRate) -> AttemptKey | None:
    """The youngest of those whose need is unknown, where the card is about to run short; never the last one.

    It is about to where the others, growing as they do, would leave less than is to be spared by the time that the
    youngest has been moved away.
    """
    staying = [one for one in tenants if not one.is_leaving]
    able = [one for one in staying if one.may_leave and one.held and not one.comes_back]
    youngest = max(able, key=lambda one: (one.since, one.key), default=None)
    if youngest is None or len(staying) < 2:
        return None
    coming = sum(one.held for one in tenants if one.is_leaving)
    going = sum(one.held for one in tenants if one.comes_back)
    grows = sum(one.grows for one in staying if one is not youngest)
    taken = _UNTIL_LOCKED * youngest.grows + (_UNTIL_LOCKED + speed.seconds(youngest.held)) * grows
    return youngest.key if free + coming - going - taken < spare(total) else None


def why_not_back(others: Iterable[bool]) -> str:
    """Why a job of unknown size is not resumed yet; `others` are those on its card: whether each is steady."""
    return "" if all(others) else _GROW


def room_beside(total: int, others: int) -> int:
    """Bytes that must stay free beside a job of unknown size that is resumed; with less it would leave again."""
    return 2 * spare(total) if others else 0
