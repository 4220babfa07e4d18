"""Chooses the set of GPUs with the fastest links between them."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations

from dibs.dataclass import dataclass
from dibs.model.gpus import Links

_MOST_SETS = 2_000  # up to so many are all compared; otherwise sets are grown card by card
_MOST_STEPS = 50_000  # of growing


@dataclass(frozen=True, slots=True)
class Candidate:
    """A card that the job fits on. All else being equal, the first in a list is taken."""

    key: str
    rank: tuple[int, ...] = ()  # smaller: taken first, however well it is connected
    used: Fraction = Fraction(0)  # share in use: of equally connected sets the emptiest is taken
    then: float = 0.0  # smaller: taken first of those that are as empty


_Worth = tuple[int, int, Fraction, float, int]


def best_set(candidates: Sequence[Candidate], count: int, links: Links) -> list[Candidate]:
    """So many of the candidates, of which there are enough.

    The first by rank are taken. Of those with the same rank, the set is taken whose weakest link is the strongest,
    then the one with the largest sum of links, then the emptiest, and then the one that is the least connected to
    the remaining cards, so that pairs stay together. A large choice is not searched completely.
    """
    ordered = sorted(candidates, key=lambda one: one.rank)
    if count <= 0 or len(ordered) <= count:
        return ordered[:count]
    edge = ordered[count - 1].rank
    # Indices in `ordered`: those taken in any case, and those of which some are taken.
    sure = [number for number, one in enumerate(ordered) if one.rank < edge]
    open_ = [number for number, one in enumerate(ordered) if one.rank == edge]
    wanted = count - len(sure)
    choice = _Choice(ordered, links)
    if math.comb(len(open_), wanted) <= _MOST_SETS:
        sets: Iterable[Sequence[int]] = (sure + list(more) for more in combinations(open_, wanted))
    else:
        sets = choice.grown(sure, open_, count)
    best: Sequence[int] = max(sets, key=choice.worth)  # the first of equals, and they come in order
    return [ordered[number] for number in sorted(best)]


class _Choice:
    """The candidates by their numbers, and the links between them."""

    def __init__(self, candidates: Sequence[Candidate], links: Links) -> None:
        self._cards = candidates
        self._links = [[_link(one.key, other.key, links) for other in candidates] for one in candidates]
        self._sums = [sum(row) for row in self._links]

    def worth(self, chosen: Sequence[int]) -> _Worth:
        """More is better."""
        pairs = [self._links[one][other] for one, other in combinations(chosen, 2)]
        inside = sum(pairs)
        outside = sum(self._sums[one] for one in chosen) - 2 * inside
        return (
            min(pairs, default=0),
            inside,
            -sum((self._cards[one].used for one in chosen), Fraction(0)),
            -sum(self._cards[one].then for one in chosen),
            -outside,
        )

    def grown(self, sure: Sequence[int], open_: Sequence[int], count: int) -> Iterable[Sequence[int]]:
        """A good set grown from each of the first cards, within _MOST_STEPS."""
        tries = max(1, _MOST_STEPS // (count * len(open_)))
        for first in open_[:tries]:
            chosen = [*sure, first]
            # Of each card that is left: its weakest link to the chosen, and the sum of all.
            left = {
                number: (
                    min(self._links[number][one] for one in chosen),
                    sum(self._links[number][one] for one in chosen),
                )
                for number in open_
                if number != first
            }
            while len(chosen) < count:
                best = max(left, key=lambda number: (left[number], -self._cards[number].used, -number))
                del left[best]
                chosen.append(best)
                row = self._links[best]
                left = {
                    number: (min(weakest, row[number]), total + row[number])
                    for number, (weakest, total) in left.items()
                }
            yield chosen


def _link(one: str, other: str, links: Links) -> int:
    """How well two cards are connected; 0 if unknown, and for a card with itself."""
    return links.get((one, other) if one < other else (other, one), 0)
