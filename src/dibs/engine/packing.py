"""`--vram auto`: what jobs like those that wait were seen to need, and room for them beside those that run."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from dibs.engine.cards import Cards
from dibs.engine.hand import Hand, Key, Open
from dibs.engine.keeper import Keeper
from dibs.model.claims import Claim
from dibs.model.jobs import Attempt, Job, Outcome, Wishes
from dibs.model.usage import Lesson, Lessons, Usage
from dibs.policy.fitting import need
from dibs.policy.lessons import beside, had_card_alone, learn, learn_early
from dibs.policy.snapshot import WHOLE
from dibs.store.store import Store

_NOTHING: Lessons = {}
_CLOSELY_FOR = 120.0  # seconds; who has shown nothing by then may never do so


class Packing:
    """Learns from attempts, and lets others join those that need less than was booked for them."""

    def __init__(
        self, hand: Hand, store: Store, cards: Cards, keeper: Keeper, usage_of: Callable[[Key], Usage | None]
    ) -> None:
        self._hand = hand
        self._store = store
        self._cards = cards
        self._keeper = keeper
        self._usage_of = usage_of
        self._to_show: dict[Key, Attempt] = {}  # others do not see yet that these need less
        cards.peak_of = self._peak_of

    def lessons(self, waiting: Iterable[Job] = ()) -> Lessons:
        """What is known of the shapes that wait and run. What runs steadily counts before it has ended."""
        running = [one for one in self._hand.open.values() if one.job.request.wishes.shape]
        shapes = {job.request.wishes.shape for job in waiting if job.request.wishes.shape}
        shapes.update(one.job.request.wishes.shape for one in running)
        if not shapes:
            return _NOTHING
        found: dict[tuple[str, str], Lesson] = {}
        for shape in shapes:
            found.update(self._store.lessons.of(shape))
        for one in running:
            usage = self._usage_of(one.attempt.key)
            for name in self._names(one.attempt.claims):
                about = (one.job.request.wishes.shape, name)
                if lesson := learn_early(found.get(about), usage):
                    found[about] = lesson
        return found

    def wishes(self, lessons: Lessons) -> Iterable[Wishes]:
        """What runs books of the machine: what it asked for, or what its like were seen to use."""
        for one in self._hand.open.values():
            wishes = one.job.request.wishes
            if wishes.shape:
                cpus, mem = beside(wishes, lessons)
                wishes = replace(wishes, cpus=cpus, mem=mem)
            yield wishes

    def learn(self, one: Open, usage: Usage | None, outcome: Outcome, now: float) -> None:
        """An attempt has ended; in the turn that records it."""
        shape = one.job.request.wishes.shape
        if not shape:
            return
        usage = replace(usage or Usage(), was_alone=had_card_alone(one.attempt.claims))
        booked = max((claim.vram for claim in one.attempt.claims), default=0)
        for name in self._names(one.attempt.claims):
            before = self._store.lessons.of(shape).get((shape, name))
            after = learn(before, usage, outcome, booked)
            if after is not None and after != before:
                self._store.lessons.put(shape, name, after, now)

    def looks_closely(self, now: float) -> bool:
        """Whether others wait until somebody knows what a job needs that began not long ago."""
        return bool(self._hand.waiting.count) and any(
            _may_need_less(one) and now - one.attempt.opened_at < _CLOSELY_FOR for one in self._hand.open.values()
        )

    def lower(self) -> None:
        """Book less for those of which more is known now than at their start. Inside a turn of the store.

        Whoever may join them does so in the next turn: others must see first that there is room.
        """
        first = [one for one in self._hand.open.values() if _may_need_less(one)]
        if not first:
            return
        lessons = self.lessons()
        for one in first:
            wishes = one.job.request.wishes
            claims = tuple(self._lowered(claim, wishes, lessons) for claim in one.attempt.claims)
            if claims != one.attempt.claims:
                attempt = replace(one.attempt, claims=claims)
                self._store.change_claims(attempt)
                self._hand.open[attempt.key] = replace(one, attempt=attempt)
                self._cards.book(attempt, one.job)
                self._to_show[attempt.key] = attempt

    def show(self) -> None:
        """Let others see what has been recorded: there is room beside some of ours."""
        for key, attempt in list(self._to_show.items()):
            # Recorded is what counts: a turn that failed has put the old claims back.
            is_recorded = key in self._hand.open and self._hand.open[key].attempt == attempt
            if not is_recorded or self._keeper.lower(attempt):
                del self._to_show[key]
                self._hand.ask_for_turn()

    def come_back(self) -> None:
        """Another engine may have recorded that an attempt needs less, and died before others could see it."""
        for key, one in self._hand.open.items():
            if one.job.request.wishes.shape and one.attempt.claims:
                self._to_show[key] = one.attempt
        self.show()

    def _lowered(self, claim: Claim, wishes: Wishes, lessons: Lessons) -> Claim:
        card = self._cards.pool.card(claim.gpu)
        if card is None:
            return claim
        share, vram = need(card, wishes, lessons)
        return replace(claim, share=share, vram=vram) if share < claim.share else claim

    def _names(self, claims: Iterable[Claim]) -> set[str]:
        """The models of these cards, where they are known."""
        cards = [self._cards.pool.card(claim.gpu) for claim in claims]
        return {card.gpu.name for card in cards if card is not None and card.gpu.memory_total}

    def _peak_of(self, key: Key) -> int:
        usage = self._usage_of(key)
        return 0 if usage is None else usage.peak_vram or 0


def _may_need_less(one: Open) -> bool:
    """Whether it has the whole card only because nobody knew what it needs."""
    wishes = one.job.request.wishes
    return (
        bool(wishes.shape) and wishes.share is None and any(claim.share == WHOLE for claim in one.attempt.claims)
    )
