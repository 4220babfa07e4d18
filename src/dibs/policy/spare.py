"""GPUs that are left to others: so many whole cards nobody of ours touches (`min_free`)."""

from collections.abc import Iterable, Sequence

from dibs.model.pool import Pool
from dibs.model.reasons import Reason
from dibs.policy.snapshot import CardView, Snapshot


class Spare:
    """How many untouched cards may still be taken, while a plan is being made.

    A card is untouched while nobody holds a part of it and nothing is in the way of using it. Cards on which a job
    of ours runs already may be filled up. Where nothing is to be left to others, everything is allowed.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.keeps = snapshot.keep_free
        self._untouched: set[str] = set()
        if self.keeps:
            self._untouched = {
                view.card.gpu.key
                for view in snapshot.cards
                if not view.taken and not view.blocked and view.card.gpu.key not in snapshot.in_use
            }

    @property
    def left(self) -> int:
        """So many untouched cards may be taken by the next job."""
        return max(0, len(self._untouched) - self.keeps)

    def allows(self, cards: Iterable[CardView]) -> bool:
        """Whether a job may have all of these cards."""
        untouched = sum(view.card.gpu.key in self._untouched for view in cards)
        return not untouched or untouched <= self.left

    def among(self, cards: Sequence[CardView], wanted: int) -> Sequence[CardView]:
        """The cards, best first, without those too many of which a job for so many might take."""
        if not self.keeps or wanted <= (left := self.left):
            return cards
        found = []
        for view in cards:
            if view.card.gpu.key in self._untouched:
                if left == 0:
                    continue
                left -= 1
            found.append(view)
        return found

    def take(self, keys: Iterable[str]) -> None:
        self._untouched.difference_update(keys)

    def keeps_back(self, key: str) -> bool:
        """Whether nobody may have this card because it is left to others."""
        return key in self._untouched and not self.left

    @property
    def reason(self) -> Reason:
        gpus = "1 GPU is" if self.keeps == 1 else f"{self.keeps} GPUs are"
        return Reason("min-free", f"waits: {gpus} left to others (min_free)")


def never_left(num_gpus: int, pool: Pool, keep_free: int) -> str:
    """Why a job for so many GPUs could never start beside those that are left to others; empty when it could."""
    if not keep_free or not num_gpus or not pool.cards:
        return ""
    needed = num_gpus
    if pool.groups:  # a job for one GPU takes a group of any size
        needed = min((len(group) for group in pool.groups if num_gpus in (1, len(group))), default=num_gpus)
    if needed + keep_free <= len(pool.cards):
        return ""
    wanted = "a GPU" if num_gpus == 1 else f"{num_gpus} GPUs"
    left = f"{keep_free} of {len(pool.cards)}" if keep_free < len(pool.cards) else "all"
    return f"it wants {wanted}, but {left} {'is' if left.startswith('1 ') else 'are'} left to others (min_free)"
