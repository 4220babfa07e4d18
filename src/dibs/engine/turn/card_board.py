"""What is known of the cards at one moment, as a value; and what may start on them beside our own attempts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from dibs.engine.turn.state import Key, OpenAttempt, claims_on
from dibs.model.claims import Claim
from dibs.model.gpus import Links
from dibs.model.pool import Card, Pool
from dibs.policy.order import EMPTIEST_FIRST, Order
from dibs.policy.snapshot import WHOLE, CardView, Hold


@dataclass(frozen=True, slots=True)
class SeenProcess:
    """A process on a card that does not belong to another dibs job with a claim of its own."""

    shown: str  # `ann, pid 4711, 3G`
    folder: str | None  # of the attempt of this engine that it was started in; None: a foreign process


@dataclass(frozen=True, slots=True)
class TakenByOthers:
    """Other programs hold a part of a card, or have waited for it longer than we have."""

    holders: tuple[str, ...]  # in words
    why: str  # for a card that no program holds and that is not for us now


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What a reading and the leases told of one card."""

    is_seen: bool = False
    fault: str = ""  # why nothing may start there, whatever is free: it does not answer, it is gone
    is_unsettled: bool = False  # an attempt left it, and the card has not been asked since
    processes: tuple[SeenProcess, ...] = ()
    memory_free: int | None = None  # bytes, as the card itself says
    temperature: int | None = None
    others: TakenByOthers | None = None


NOT_SEEN = CardFacts()


@dataclass(frozen=True, slots=True, kw_only=True)
class CardBoard:
    """The cards of the pool, with everything but our own attempts."""

    pool: Pool
    cards: Mapping[str, CardFacts] = field(default_factory=dict)  # by key
    order: Order = EMPTIEST_FIRST
    min_free: int = 0  # so many whole cards are left to other users
    links: Links = field(default_factory=dict)  # how well cards are connected
    respects_processes: bool = True
    awaited: tuple[str, ...] = ()  # cards that others hold or wait for, and those wanted together with them
    news: int = 0  # counts what was heard about the cards from others than our own attempts

    def views(
        self,
        open_attempts: Mapping[Key, OpenAttempt],
        left: Collection[str] = (),
        marks: Mapping[str, str] | None = None,
        peaks: Mapping[Key, int] | None = None,
    ) -> tuple[CardView, ...]:
        """The cards as the policy looks at them, with these attempts on them.

        `left` are cards that an attempt has just left, `marks` say why nothing is started on a card, and `peaks`
        are bytes that attempts were seen to hold.
        """
        held = claims_on(open_attempts)
        folders = {one.attempt.folder for one in open_attempts.values()}
        return tuple(
            self._view(card, held.get(card.gpu.key, []), folders, card.gpu.key in left, marks or {}, peaks or {})
            for card in self.pool.cards
        )

    def are_unsettled(self, left: Collection[str]) -> bool:
        """Whether a card that was left wants to be asked before it is given away again."""
        return self.respects_processes and any(
            facts.is_unsettled or (facts.is_seen and key in left) for key, facts in self.cards.items()
        )

    def _view(
        self,
        card: Card,
        ours: list[tuple[OpenAttempt, Claim]],
        folders: set[str],
        was_left: bool,
        marks: Mapping[str, str],
        peaks: Mapping[Key, int],
    ) -> CardView:
        key = card.gpu.key
        facts = self.cards.get(key, NOT_SEEN)
        taken, vram = Fraction(0), 0
        for one, claim in ours:
            taken += claim.share
            if claim.vram:  # it may not use yet what it booked, or may use more
                vram += max(claim.vram, peaks.get(one.attempt.key, 0))
        holders = [f"job {one.job.label}" for one, _ in ours]
        ends = [Hold(claim.share, claim.vram, _ends_at(one)) for one, claim in ours]
        blocked = marks.get(key) or self._blocked(facts, ours, folders, was_left)
        if facts.others is not None:
            taken = WHOLE
            ends = [Hold(taken, 0, None)]  # when others let go is not known
            holders += facts.others.holders
            if not holders:
                blocked = blocked or facts.others.why
        return CardView(
            card=card,
            taken=taken,
            vram_taken=vram,
            vram_free=facts.memory_free if ours else None,  # alone, a job may have what it booked
            blocked=blocked,
            holders=tuple(holders),
            ends=tuple(ends),
            shapes=tuple(shape for one, _ in ours if (shape := one.job.request.wishes.shape)),
            first=self.order.first(card.gpu),
            then=self.order.then(card.gpu, facts.temperature),
        )

    def _blocked(
        self, facts: CardFacts, ours: list[tuple[OpenAttempt, Claim]], folders: set[str], was_left: bool
    ) -> str:
        if facts.fault or not self.respects_processes or not facts.is_seen:
            return facts.fault
        if facts.is_unsettled or was_left:
            return "is being looked at"
        here = {one.attempt.folder for one, _ in ours}
        foreign = [process for process in facts.processes if process.folder is None or process.folder not in here]
        if not foreign:
            return ""
        return f"is busy ({'; '.join(_shown(process, folders) for process in foreign[:3])})"


def _shown(process: SeenProcess, folders: set[str]) -> str:
    """`ann, pid 4711, 3G`, and the job where it is one of ours."""
    if process.folder is None:
        return process.shown
    job = process.folder.rpartition("/")[2].partition(".")[0]  # an attempt's folder is called 17.1
    return f"{process.shown}, {'of' if process.folder in folders else 'left by'} job {job}"


def _ends_at(one: OpenAttempt) -> float | None:
    """When it will have ended for sure."""
    limit = one.job.request.time_limit
    return None if limit is None else one.attempt.opened_at + limit + one.job.request.grace
