"""What is known about the cards: what other programs hold, and what readings show."""

from collections.abc import Callable, Iterable, Mapping

from dibs.dataclass import dataclass
from dibs.engine.turn.facts import BEING_READ, CardFacts, PoolFacts, SeenProcess, TakenByOthers
from dibs.engine.watch.sharing_rules import DEFAULT_SHARING_RULES, SharingRules
from dibs.gpus.processes import foreign_processes
from dibs.leases.files import in_words, overbooking
from dibs.leases.leases import Busy
from dibs.model.gpus import CardState, Claim, GpuReading, Links, Pool, Reading
from dibs.model.jobs import Wishes
from dibs.policy.fitting import most_at_once

_MOST_KINDS = 1000  # of wishes for which it is remembered how many fit
_UNTIL_THEN = "nothing more starts there until one of them has ended"
_NO_ANSWER = {CardState.STALE: "does not answer", CardState.LOST: "is lost: it does not answer any more"}


@dataclass(slots=True)
class _Page:
    """What was last learned about one card."""

    others: Busy | None = None  # the other holders at the last try
    overbooked: str = ""  # a sentence about holders that have more than one card together, one of them ours
    is_awaited: bool = False  # another program holds it, or a card that was wanted together with it
    seen: GpuReading | None = None
    is_unsettled: bool = False  # an attempt left it, and it has not been read since
    is_gone: bool = False  # the driver does not show it any more


class Cards:
    """Collects what is learned about the cards; `board` returns it as a value.

    `is_ours`: whether a process belongs to a dibs job. `folder_of`: the attempt's folder of a process that this
    engine started, None for all others. A process without a claim here outlived its job or is on the wrong card.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        is_ours: Callable[[int], bool],
        is_alive: Callable[[int], bool | None],
        folder_of: Callable[[int], str | None] = lambda pid: None,
        respect_processes: bool = True,
        rules: SharingRules = DEFAULT_SHARING_RULES,
    ) -> None:
        self.pool = pool
        self.rules = rules
        self.may_grow = False  # GPUs may be added to the pool later
        self._links: Links = {}
        self._news = 0
        self._is_ours = is_ours
        self._is_alive = is_alive
        self._folder_of = folder_of
        self._respect_processes = respect_processes
        self._pages: dict[str, _Page] = {}
        self._most: dict[Wishes, int] = {}  # how many jobs of each kind could start in `_most_in`
        self._most_in: Pool | None = None
        self._silent = ""  # why the cards cannot be read
        self._is_reading_due = False  # nothing may start before the next one
        self._board: PoolFacts | None = None  # the last one, while nothing has changed

    def board(self) -> PoolFacts:
        """What is known now."""
        board, rules = self._board, self.rules
        is_old = board is not None and (board.pool is not self.pool or board.order is not rules.order)
        if board is None or is_old or board.min_free != rules.min_free:
            for card in self.pool.cards:
                self._page(card.gpu.key)
            board = PoolFacts(
                pool=self.pool,
                cards={key: self._facts(page) for key, page in self._pages.items()},
                order=rules.order,
                min_free=rules.min_free,
                links=self._links,
                respects_processes=self._respect_processes,
                awaited=tuple(key for key, page in self._pages.items() if page.is_awaited),
                news=self._news,
            )
            # Whether a process still lives is checked for each plan.
            has_processes = any(facts.processes for facts in board.cards.values())
            self._board = None if has_processes else board
        return board

    def left(self, keys: Iterable[str]) -> None:
        """Attempts have left these cards: they are read before anything else starts there."""
        for key in keys:
            page = self._page(key)
            if page.seen is not None and not page.is_unsettled:
                page.is_unsettled = True
                self._board = None

    def taken_by_others(self, claims: Iterable[Claim], busy: Busy) -> None:
        """Another program was first: do not try its cards until `look_again`, and wait for all of these."""
        self._heard()
        is_known = bool(busy.holders or busy.waiting)
        for claim in claims:
            page = self._page(claim.gpu)
            page.is_awaited = True
            here = busy.on(claim.gpu)
            if here.holders or here.waiting or not is_known:
                page.others = here

    def overbook(self, found: Mapping[str, str]) -> list[str]:
        """Start nothing on these cards, which programs hold more than once; return sentences about new ones."""
        pages = {key: self._page(key) for key in found} | self._pages
        new = [key for key in found if not pages[key].overbooked]
        if new or any(page.overbooked and key not in found for key, page in pages.items()):
            self._heard()
        for key, page in pages.items():
            page.overbooked = found.get(key, "")
        return [self._overbooked(key, found[key]) for key in new]

    def overbooked(self, claims: Iterable[Claim]) -> list[str]:
        """Sentences about those of these cards that programs hold more than once."""
        pages = {claim.gpu: self._page(claim.gpu) for claim in claims}
        return [self._overbooked(key, page.overbooked) for key, page in pages.items() if page.overbooked]

    def look_again(self) -> None:
        """Forget what others held: the next try shows it."""
        self._heard()
        for page in self._pages.values():
            page.others = None
            page.is_awaited = False

    def saw(self, reading: Reading | None, failure: str = "") -> None:
        """Take a new reading. Without one nothing new may start on the cards."""
        self._heard()
        self._is_reading_due = False
        self._silent = failure if reading is None else ""
        if reading is None:
            return
        self._links = reading.links
        shown = {seen.gpu.key: seen for seen in reading.gpus}
        for key in shown.keys() | {card.gpu.key for card in self.pool.cards}:
            page = self._page(key)
            page.seen = shown.get(key)
            page.is_gone = page.seen is None
            page.is_unsettled = False

    def wait_for_reading(self) -> None:
        """Start nothing on any card before the next reading."""
        self._heard()
        self._is_reading_due = True

    def look_at(self, keys: Iterable[str]) -> None:
        """Read these cards again before anything starts there."""
        for key in keys:
            self._page(key).is_unsettled = True
        self._board = None

    @property
    def are_unsettled(self) -> bool:
        """Whether a card must be read before it is used again."""
        return self._respect_processes and any(page.is_unsettled for page in self._pages.values())

    def cpus_near(self, claims: Iterable[Claim]) -> tuple[int, ...]:
        """The CPUs near any of these cards; none where one card's CPUs are not known."""
        found: set[int] = set()
        for claim in claims:
            card = self.pool.card(claim.gpu)
            if card is None or not card.gpu.cpus:
                return ()
            found.update(card.gpu.cpus)
        return tuple(sorted(found))

    def most_at_once(self, wishes: Wishes) -> int:
        """How many jobs with these wishes could start at the most."""
        if self._most_in is not self.pool:
            self._most_in, self._most = self.pool, {}
        most = self._most.get(wishes)
        if most is None:
            if len(self._most) >= _MOST_KINDS:
                self._most.clear()
            most = self._most[wishes] = most_at_once(self.pool.cards, wishes)
        return most

    def _overbooked(self, key: str, sentence: str) -> str:
        return f"GPU {self.pool.number(key)} {sentence}; {_UNTIL_THEN}"

    def _heard(self) -> None:
        self._news += 1
        self._board = None

    def _facts(self, page: _Page) -> CardFacts:
        seen = page.seen
        return CardFacts(
            is_seen=seen is not None,
            fault=self._fault(page),
            is_unsettled=page.is_unsettled,
            processes=self._processes(seen) if seen is not None and self._respect_processes else (),
            memory_free=_memory_free(seen),
            temperature=None if seen is None else seen.temperature,
            others=None if page.others is None else _taken(page.others),
        )

    def _fault(self, page: _Page) -> str:
        if overbooked := page.overbooked or (overbooking(page.others.holders) if page.others else ""):
            return f"{overbooked}, and {_UNTIL_THEN}"
        if page.seen is not None and page.seen.state is not CardState.OK:
            return _NO_ANSWER[page.seen.state]
        if not self._respect_processes:
            return ""
        if self._is_reading_due:
            return BEING_READ
        if self._silent:
            return f"does not answer ({self._silent})"
        return "is not shown by the driver any more" if page.is_gone else ""

    def _processes(self, seen: GpuReading) -> tuple[SeenProcess, ...]:
        """The living processes on a card, without those of other dibs jobs, which have claims of their own."""
        folders: dict[int, str | None] = {}

        def is_of_another_job(pid: int) -> bool:
            folders[pid] = self._folder_of(pid)
            return folders[pid] is None and self._is_ours(pid)

        found = foreign_processes(seen, is_of_another_job, self._is_alive, self.rules.busy)
        return tuple(
            SeenProcess(
                process.shown,
                folders[process.pid],
                f"{process.pid} ({process.user})" if process.user and folders[process.pid] is None else "",
            )
            for process in found
        )

    def _page(self, key: str) -> _Page:
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = _Page()
        return page


def _taken(busy: Busy) -> TakenByOthers:
    if busy.guarded_by:
        why = f"cannot be leased ({busy.guarded_by})"
    else:
        why = f"is kept for {' and '.join(in_words(busy.waiting))}, which came first"
    return TakenByOthers(in_words(busy.holders), why, busy.remedy)


def _memory_free(seen: GpuReading | None) -> int | None:
    if seen is None or seen.memory_used is None or seen.gpu.memory_total is None:
        return None
    return seen.gpu.memory_total - seen.memory_used
