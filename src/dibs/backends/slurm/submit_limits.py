"""How many jobs Slurm takes at once, learned from its refusals: it does not say so before.

An array that is refused as a whole is submitted in smaller parts, until one element is refused: then the limit is
as many as there are. The elements that are not handed over wait here.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from dibs.backends.protocol import Identity
from dibs.backends.slurm.sbatch import SlurmBatch, split_key
from dibs.backends.slurm.squeue import SqueueRow
from dibs.backends.slurm.states import named_limit, why_limited

_LEARNED_FOR = 60.0  # seconds; then it is tried again, as an administrator may have changed the limit
_WHOSE = ("--account=", "--qos=", "--partition=")  # jobs that differ in these may have other limits


class _Limit(NamedTuple):
    most: int
    sentence: str
    until: float


class SubmitLimits:
    """The room that is left for each batch of one call of `submit`, and what is known from earlier ones."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._limits: dict[tuple[str, ...], _Limit] = {}
        self._live = 0  # jobs of this user, also those that are not ours
        self._of_arrays: Counter[str] = Counter()
        self._tries: dict[tuple[str, ...], int] = {}  # no more elements at once: more were refused just now

    def begin(self, live: int, there: Mapping[Identity, SqueueRow]) -> None:
        """What Slurm has now: so many jobs of this user, these of them ours."""
        self._live = live
        self._of_arrays = _count(key for (key, _), row in there.items() if row.is_live)
        self._tries = {}
        now = self._clock()
        self._limits = {whose: limit for whose, limit in self._limits.items() if now < limit.until}

    def room(self, batch: SlurmBatch) -> tuple[int, str]:
        """How many of these may be submitted now, and why the others may not."""
        whose = _whose(batch)
        room, why = self._tries.get(whose, len(batch.members)), ""
        if (limit := self._limits.get(whose)) is not None and limit.most - self._live < room:
            room, why = limit.most - self._live, limit.sentence
        # Each part has its own count over there: together they must not run more than the array may.
        if batch.most is not None and (there := self._of_arrays[batch.mark.base]) and batch.most - there < room:
            room, why = (
                batch.most - there,
                f"{there} elements of its array are there, which may run {batch.most} at once",
            )
        return max(0, room), why

    def accepted(self, batch: SlurmBatch) -> None:
        self._live += len(batch.members)
        self._of_arrays += _count(ref.key for ref in batch.refs)

    def refused(self, batch: SlurmBatch, text: str) -> bool:
        """Learn from it. Whether this is about how many they are."""
        word = named_limit(text)
        if "SubmitJob" not in word:
            return False
        if len(batch.members) > 1:
            self._tries[_whose(batch)] = len(batch.members) // 2
            return True
        sentence = f"Slurm takes {self._live} of your jobs at once: {why_limited(word)}"
        self._limits[_whose(batch)] = _Limit(self._live, sentence, self._clock() + _LEARNED_FOR)
        return True


def _whose(batch: SlurmBatch) -> tuple[str, ...]:
    return tuple(flag for flag in batch.flags if flag.startswith(_WHOSE))


def _count(keys: Iterable[str]) -> Counter[str]:
    """How many elements of each array are among these."""
    return Counter(base for base, task in map(split_key, keys) if task is not None)
