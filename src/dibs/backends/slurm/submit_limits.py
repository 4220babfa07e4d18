"""How many jobs Slurm takes at once, learned from its refusals: it does not say so before.

An array that is refused as a whole is submitted in smaller parts, until one element is refused: then the limit is
as many as there are. The elements that are not handed over wait here.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from dibs.backends.protocol import Identity
from dibs.backends.slurm.sbatch import SlurmBatch, split_key
from dibs.backends.slurm.squeue import SqueueRow
from dibs.backends.slurm.states import named_limit, why_limited

_LEARNED_FOR = 60.0  # seconds; then it is tried again, as an administrator may have changed the limit
_WHOSE = ("--account=", "--qos=", "--partition=")  # jobs that differ in these may have other limits


_Place = tuple[frozenset[str], ...]  # the accounts, QOS and partitions that a job has or names


class _Limit(NamedTuple):
    most: int
    place: _Place  # the limit is about the jobs of this account, QOS and partition
    sentence: str
    until: float


class SubmitLimits:
    """The room that is left for each batch of one call of `submit`, and what is known from earlier ones."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._limits: dict[tuple[str, ...], _Limit] = {}
        self._live: Counter[_Place] = Counter()  # jobs of this user, also those that are not ours
        self._of_arrays: Counter[str] = Counter()
        self._tries: dict[tuple[str, ...], int] = {}  # no more elements at once: more were refused just now

    def begin(self, queue: Iterable[SqueueRow], there: Mapping[Identity, SqueueRow]) -> None:
        """What Slurm has now: these jobs of this user, and those of them that are ours."""
        self._live = Counter(_place_of(row) for row in queue if row.is_live)
        self._of_arrays = _count(key for (key, _), row in there.items() if row.is_live)
        self._tries = {}
        now = self._clock()
        self._limits = {whose: limit for whose, limit in self._limits.items() if now < limit.until}

    def room(self, batch: SlurmBatch) -> tuple[int, str]:
        """How many of these may be submitted now, and why the others may not."""
        whose = _whose(batch)
        room, why = self._tries.get(whose, len(batch.members)), ""
        if (limit := self._limits.get(whose)) is not None and (
            left := limit.most - self._count(limit.place)
        ) < room:
            room, why = left, limit.sentence
        # Each part has its own count over there: together they must not run more than the array may.
        if batch.most is not None and (there := self._of_arrays[batch.mark.base]) and batch.most - there < room:
            room, why = (
                batch.most - there,
                f"{there} elements of its array are there, which may run {batch.most} at once",
            )
        return max(0, room), why

    def accepted(self, batch: SlurmBatch) -> None:
        self._live[_named_by(_whose(batch))] += len(batch.members)
        self._of_arrays += _count(ref.key for ref in batch.refs)

    def refused(self, batch: SlurmBatch, text: str) -> bool:
        """Learn from it. Whether this is about how many they are."""
        word = named_limit(text)
        if "SubmitJob" not in word:
            return False
        if len(batch.members) > 1:
            self._tries[_whose(batch)] = len(batch.members) // 2
            return True
        # An account's limit counts its jobs of all QOS, and a QOS may be that of the partition.
        about = ("--account=",) if word.startswith("Assoc") else ("--qos=", "--partition=")
        counted = [flag for name in about for flag in batch.flags if flag.startswith(name)][:1]
        place = _named_by(counted)
        most = self._count(place)
        those = f" with {' '.join(counted)}" if counted else ""
        sentence = f"Slurm takes {most} of your jobs{those} at once: {why_limited(word)}"
        self._limits[_whose(batch)] = _Limit(most, place, sentence, self._clock() + _LEARNED_FOR)
        return True

    def _count(self, place: _Place) -> int:
        """How many jobs have the account, QOS and partition that are named here."""
        pairs = ((zip(place, has, strict=True), number) for has, number in self._live.items())
        return sum(number for both, number in pairs if all(not named or named & has for named, has in both))


def _named_by(flags: Sequence[str]) -> _Place:
    """What these options name; nothing where Slurm's default is meant."""
    given = {name: flag.removeprefix(name) for name in _WHOSE for flag in flags if flag.startswith(name)}
    return tuple(_names(given.get(name, "")) for name in _WHOSE)


def _place_of(row: SqueueRow) -> _Place:
    return _names(row.account), _names(row.qos), _names(row.partition)


def _names(text: str) -> frozenset[str]:
    """Of a list; Slurm does not distinguish capitals in accounts and QOS."""
    return frozenset(filter(None, text.lower().split(",")))


def _whose(batch: SlurmBatch) -> tuple[str, ...]:
    return tuple(flag for flag in batch.flags if flag.startswith(_WHOSE))


def _count(keys: Iterable[str]) -> Counter[str]:
    """How many elements of each array are among these."""
    return Counter(base for base, task in map(split_key, keys) if task is not None)
