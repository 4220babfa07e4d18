"""What cards were and used over time, in buckets of fixed length: arithmetic without a clock."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from dibs.dataclass import dataclass

MINUTES, HOURS = 300, 3600  # seconds of a bucket: for the last day, and for the last weeks
KEPT: Mapping[int, int] = {MINUTES: 25 * 12, HOURS: 9 * 7 * 24}  # buckets of a card; the next replaces the oldest
HOLDS_FOR = 40.0  # seconds that a reading holds; an idle daemon reads the cards every half minute
NO_LOAD = 1.0  # percent of load that still counts as none
UNUSED_AFTER = 60.0  # seconds without load after which a card that jobs hold is held without use


@dataclass(frozen=True, kw_only=True, slots=True)
class CardParts:
    """Who had a card. What is left of it was idle."""

    job: float = 0.0  # the part that jobs of this queue held, 0 to 1
    others: Mapping[str, float] = field(default_factory=dict)  # the parts of others, by user
    is_lost: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CardMoment:
    """A card at one moment. What the vendor cannot tell is None."""

    parts: CardParts
    load: float | None = None  # percent
    memory: float | None = None  # bytes
    power: float | None = None  # watts


@dataclass(slots=True)
class Level:
    """The mean and the maximum of a quantity."""

    mean: float | None = None
    most: float | None = None

    def add(self, value: float | None, seconds: float, before: float) -> None:
        """`before`: the seconds that the mean is of."""
        if value is None:
            return
        self.mean = value if self.mean is None else self.mean + (value - self.mean) * seconds / (before + seconds)
        self.most = value if self.most is None else max(value, self.most)


@dataclass(slots=True)
class UseSeconds:
    """Seconds of cards by what they were. An eighth of a card for eight seconds is one of them."""

    job: float = 0.0
    unused: float = 0.0  # held by jobs, without load for a while
    others: float = 0.0
    idle: float = 0.0
    lost: float = 0.0

    @property
    def answered(self) -> float:
        """The time in which the card was watched and was there."""
        return self.job + self.unused + self.others + self.idle

    @property
    def known(self) -> float:
        return self.answered + self.lost

    def add(self, parts: CardParts, seconds: float, *, is_unused: bool) -> None:
        if parts.is_lost:
            self.lost += seconds
            return
        job = min(1.0, parts.job)
        others = min(1.0 - job, sum(parts.others.values()))
        if is_unused:
            self.unused += job * seconds
        else:
            self.job += job * seconds
        self.others += others * seconds
        self.idle += (1.0 - job - others) * seconds

    def add_part(self, other: "UseSeconds", part: float = 1.0) -> None:
        """Add so much of another sum."""
        self.job += part * other.job
        self.unused += part * other.unused
        self.others += part * other.others
        self.idle += part * other.idle
        self.lost += part * other.lost


@dataclass(slots=True)
class HistoryBucket:
    """What one card was and used in a stretch of time of fixed length."""

    step: int  # its length in seconds
    at: int  # its begin, a multiple of the length
    use: UseSeconds = field(default_factory=UseSeconds)
    load: Level = field(default_factory=Level)
    memory: Level = field(default_factory=Level)
    power: Level = field(default_factory=Level)

    @property
    def joules(self) -> float:
        return (self.power.mean or 0.0) * self.use.answered

    def add(self, moment: CardMoment, seconds: float, *, is_unused: bool) -> None:
        before = self.use.answered
        self.use.add(moment.parts, seconds, is_unused=is_unused)
        if not moment.parts.is_lost:
            self.load.add(moment.load, seconds, before)
            self.memory.add(moment.memory, seconds, before)
            self.power.add(moment.power, seconds, before)

    def part_within(self, since: float, until: float) -> float:
        """How much of it lies between two moments: 0 to 1."""
        return max(0.0, min(until, self.at + self.step) - max(since, self.at)) / self.step


class CardBuckets:
    """Collects the moments of one card into buckets of each length.

    `unwritten` are those that have changed since `written`. A moment holds until the next one, at most HOLDS_FOR
    seconds. Where the clock was set back, a bucket of that time is begun again.
    """

    def __init__(self, begun: Iterable[HistoryBucket] = ()) -> None:
        """`begun`: buckets of this moment that an earlier run wrote; they are continued."""
        self.unwritten: dict[tuple[int, int], HistoryBucket] = {}
        self._open = {bucket.step: bucket for bucket in begun}
        self._last: tuple[float, CardMoment] | None = None
        self._no_load_since: float | None = None

    def add(self, at: float, moment: CardMoment) -> float:
        """Note what the card is now; return the seconds that are counted for the moment before."""
        last, self._last = self._last, (at, moment)
        seconds = 0.0
        if last is not None and last[0] <= at:
            seconds = min(at - last[0], HOLDS_FOR)
            self._count(last[0], last[0] + seconds, last[1])
        if moment.load is None or moment.load > NO_LOAD or not moment.parts.job or (last and at < last[0]):
            self._no_load_since = None
        elif self._no_load_since is None:
            self._no_load_since = at
        return seconds

    def written(self) -> None:
        self.unwritten = {}

    def _count(self, begin: float, end: float, moment: CardMoment) -> None:
        is_unused = self._no_load_since is not None and end - self._no_load_since > UNUSED_AFTER
        for step, kept in KEPT.items():
            for at, seconds in pieces(begin, end, step):
                bucket = self._open.get(step)
                if bucket is None or bucket.at != at:
                    bucket = self._open[step] = HistoryBucket(step, at)
                    if len(self.unwritten) >= 2 * kept:  # the store does not take any for long
                        self.unwritten.pop(next(iter(self.unwritten)))
                self.unwritten[step, at] = bucket
                bucket.add(moment, seconds, is_unused=is_unused)


def pieces(begin: float, end: float, step: int) -> Iterator[tuple[int, float]]:
    """The buckets that a stretch of time lies in, and its seconds in each."""
    at = int(begin // step) * step
    while begin < end:
        until = min(end, at + step)
        yield at, until - begin
        begin, at = until, at + step
