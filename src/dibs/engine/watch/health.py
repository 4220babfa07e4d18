"""The health of the cards: broken ones are quarantined and blamed for failures; tests bring them back."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field

from dibs.dataclass import dataclass
from dibs.engine.engine import Engine
from dibs.engine.local_time import clock_time
from dibs.engine.queue.pool import clear_mark, set_mark
from dibs.engine.turn.state import Key, OpenAttempt
from dibs.engine.watch.cards import Cards
from dibs.errors import StoreUnusable
from dibs.model.events import Trouble
from dibs.model.gpus import Reading
from dibs.model.jobs import Attempt, Outcome
from dibs.model.records import CardTested, Mark
from dibs.policy.gpu_faults import (
    CARD_IS_BLAMED,
    PROGRAM_IS_BLAMED,
    CardTests,
    after_test,
    as_gpu_fault,
    broken_cards,
    lost_cards,
    may_be_gpu_fault,
    next_test,
    program_faults,
    reason_for,
    with_detail,
)

_PATIENCE = 2.0  # seconds to wait for a reading after a failure
_QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class CardTestResult:
    """The result of a card's test."""

    has_passed: bool | None  # None: no test is available
    sentence: str = ""


@dataclass(slots=True)
class CardMemory:
    """Recent observations. Losing them does no harm: the marks themselves are in the store."""

    reading: Reading | None = None
    broken: dict[str, tuple[float, str]] = field(default_factory=dict)  # by a card's key: when, and why
    wrong: dict[str, tuple[float, str]] = field(default_factory=dict)  # faults that programs caused there
    unmarked: dict[str, str] = field(default_factory=dict)  # quarantines that a full disk refused
    asked: dict[Key, float] = field(default_factory=dict)  # failures that wait for a new reading
    tried: dict[str, CardTests] = field(default_factory=dict)
    untestable: dict[str, float] = field(default_factory=dict)  # since when its quarantine lasts


class FailureJudge:
    """Decides before a failure is recorded whether its card caused it.

    A program may end before its card's fault has been read, so the card is read first, as at each job's end.
    """

    def __init__(self, cards: Cards) -> None:
        self._cards = cards
        self.memory = CardMemory()

    def __call__(
        self, attempt: Attempt, outcome: Outcome, open_attempts: Mapping[Key, OpenAttempt], now: float
    ) -> Outcome | None:
        """The outcome, blamed on the card where its reading says so; None while a reading is awaited."""
        if not attempt.claims or not may_be_gpu_fault(outcome):
            return outcome
        memory = self.memory
        cards, since = [claim.gpu for claim in attempt.claims], attempt.opened_at
        if found := reason_for(memory.broken, cards, since=since, now=now, seconds=CARD_IS_BLAMED):
            memory.asked.pop(attempt.key, None)
            return as_gpu_fault(outcome, self._cards.pool.number(found[0]), found[1])
        if memory.reading is not None:
            asked_at = memory.asked.setdefault(attempt.key, now)
            if memory.reading.at.timestamp() < asked_at and abs(now - asked_at) < _PATIENCE:
                self._cards.look_at(cards)
                return None
            del memory.asked[attempt.key]
        found = reason_for(memory.wrong, cards, since=since, now=now, seconds=PROGRAM_IS_BLAMED)
        if found is None:
            return outcome
        others = (one.attempt for one in open_attempts.values() if one.attempt.key != attempt.key)
        is_shared = any(claim.gpu == found[0] for other in others for claim in other.claims)
        return with_detail(outcome, found[1], is_shared=is_shared)


class Health:
    """Takes broken cards out, and has them tested.

    `first`: seconds between a quarantine and the first test of the card; None where cards are not tested.
    `is_watched`: the cards are read. Then none is tested before the first reading: it may be lost.
    """

    def __init__(
        self, engine: Engine, judge: FailureJudge, first: float | None = None, *, is_watched: bool = False
    ) -> None:
        self._engine = engine
        self._first = first
        self._is_watched = is_watched
        self._memory = judge.memory
        engine.readings.subscribe(self.saw)

    # -- readings --------------------------------------------------------------------------------------

    def saw(self, reading: Reading) -> None:
        """Quarantine broken cards at once, and settle the failures that waited for a reading."""
        memory, now = self._memory, self._engine.clock()
        broken = broken_cards(memory.reading, reading)
        memory.reading = reading
        memory.broken |= {key: (now, why) for key, why in broken.items()}
        memory.wrong |= {key: (now, why) for key, why in program_faults(reading).items()}
        if broken or memory.unmarked:
            self._take_out(memory.unmarked | broken)
        for key, asked_at in memory.asked.items():
            if reading.at.timestamp() >= asked_at:
                self._engine.settle_soon(key)

    def _take_out(self, broken: dict[str, str]) -> None:
        marks = self._marks()
        self._memory.unmarked = {}
        for key, why in broken.items():
            if (card := self._engine.cards.pool.card(key)) is None or not _is_news(marks.get(key), why):
                continue
            try:
                with self._engine.change() as change:
                    set_mark(change, Mark(f"gpu {key}", _QUARANTINED, why, change.now))
            except StoreUnusable:
                self._memory.unmarked[key] = why  # with the next reading
            else:
                self._tell(f"GPU {card.gpu.number} is quarantined: {why}")

    # -- tests -----------------------------------------------------------------------------------------

    def tests(self) -> dict[str, float]:
        """When each card that is quarantined is tested next. A lost card is not tested: it cannot answer."""
        memory = self._memory
        if self._first is None or (self._is_watched and memory.reading is None):
            return {}
        lost = self._lost()
        return {
            key: next_test(mark.since, memory.tried.get(key, CardTests()), self._first)
            for key, mark in self._marks().items()
            if mark.kind == _QUARANTINED
            and self._engine.cards.pool.card(key) is not None
            and key not in lost
            and memory.untestable.get(key) != mark.since
        }

    def tested(self, key: str, result: CardTestResult) -> None:
        """A card that passes is used again, and its failures are forgotten."""
        mark, card = self._marks().get(key), self._engine.cards.pool.card(key)
        if mark is None or mark.kind != _QUARANTINED or card is None:
            return  # the mark was changed meanwhile
        if result.has_passed is None:
            self._memory.untestable[key] = mark.since
            self._tell(f"GPU {card.gpu.number} stays quarantined: {result.sentence}")
            return
        tried = after_test(mark.since, self._memory.tried.get(key, CardTests()), self._engine.clock())
        self._memory.tried[key] = tried
        with suppress(StoreUnusable), self._engine.change() as change:  # then it is tested again later
            change.record(CardTested(key, result.has_passed, result.sentence))
            if result.has_passed:
                clear_mark(change, f"gpu {key}")
        if result.has_passed:
            self._tell(f"GPU {card.gpu.number} has passed its test and is used again")
        else:
            self._tell(f"GPU {card.gpu.number} has failed its test: {result.sentence}{self._when(key)}")

    def prospect(self, key: str) -> str:
        """How a quarantined card comes back: `it is tested at about 14:30; … uses it at once`."""
        command = f"`dibs gpus undrain {self._engine.cards.pool.number(key)}`"
        if key in self._lost():
            return f"reset the card or restart the machine; then {command} uses it again"
        when = self._when(key).removeprefix("; ")
        return f"{when}; {command} uses it at once" if when else f"{command} uses it again"

    def _when(self, key: str) -> str:
        at = self.tests().get(key)
        if at is None:
            return ""
        again = " again" if self._memory.tried.get(key, CardTests()).count else ""
        return f"; it is tested{again} at about {clock_time(at, self._engine.clock())}"

    # -- helpers ---------------------------------------------------------------------------------------

    def _lost(self) -> set[str]:
        """The cards of the pool that do not answer any more, or that the driver does not show."""
        reading = self._memory.reading
        if reading is None:
            return set()
        shown = {seen.gpu.key for seen in reading.gpus}
        return lost_cards(reading) | {card.gpu.key for card in self._engine.cards.pool.cards} - shown

    def _marks(self) -> dict[str, Mark]:
        """By a card's key."""
        try:
            marks = self._engine.store.listing.marks()
        except StoreUnusable:
            return {}
        return {mark.subject.removeprefix("gpu "): mark for mark in marks if mark.subject.startswith("gpu ")}

    def _tell(self, sentence: str) -> None:
        self._engine.announce_soon(Trouble(sentence))


def _is_news(mark: Mark | None, why: str) -> bool:
    """Whether a card is to be quarantined for this. A drain by a user stays; an Xid explains the most."""
    if mark is None:
        return True
    return mark.kind == _QUARANTINED and why.startswith("Xid ") and not mark.why.startswith("Xid ")
