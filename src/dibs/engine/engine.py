"""The engine: take an event, decide, record, act, announce.

`dibs run` and the seed tools' faces run it in their own process, the daemon in its own. It never waits:
whoever owns the loop calls `turn` when something happened, and `wake_at` tells when to call it without a cause.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from dibs.backends.local import LocalBackend
from dibs.engine.beginning import Beginning
from dibs.engine.cards import Cards
from dibs.engine.hand import Hand, Key, Nobody, Observer, Open
from dibs.engine.keeper import Keeper
from dibs.engine.launching import Launching
from dibs.engine.machine import Machine
from dibs.engine.outlook import Outlook
from dibs.engine.packing import Packing
from dibs.engine.place import Place
from dibs.engine.results import Results
from dibs.engine.settling import LOOK_AT_STARTING, Settling
from dibs.engine.telling import Telling
from dibs.engine.undoing import Undoing
from dibs.engine.waiting import WaitingLine
from dibs.errors import StoreUnusable
from dibs.leases.leases import Leases
from dibs.model.events import Event, Trouble
from dibs.model.gpus import Reading
from dibs.model.jobs import Attempt, Outcome
from dibs.model.usage import Usage
from dibs.store.store import Store

if TYPE_CHECKING:
    from dibs.engine.away.away import Away

_JUMP = 1.0  # seconds by which a clock moves that was set
_NOT_COUNTED = Machine()
_MAKE_ROOM = "free some space (`df -h`); nothing was changed"


class Engine:
    """Jobs in, events out."""

    def __init__(
        self,
        *,
        store: Store,
        backend: LocalBackend,
        leases: Leases,
        cards: Cards,
        results: Results,
        place: Place,
        announce: Callable[[Sequence[Event]], None],
        ask_for_turn: Callable[[], None],
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        reach: Callable[[str], None] = lambda point: None,
        most_without_gpu: int = os.cpu_count() or 1,
        machine: Machine = _NOT_COUNTED,
    ) -> None:
        self.store = store
        self.cards = cards
        self.is_draining = False
        self.most_failures = sys.maxsize  # after so many nothing more is started
        self.paused: Mapping[str, str] = {}  # why nothing of a project is started; under "" why nothing at all is
        self.hand = Hand(WaitingLine(store.waiting, store.delayed), ask_for_turn)
        self.tell_reading: list[Callable[[Reading], None]] = []  # who hears what the cards say, beside the books
        self.usage_of: Callable[[Key], Usage | None] = lambda key: None  # what is measured of an attempt
        self.close_series: Callable[[Attempt], bool] = lambda attempt: False  # it ended: whether a series is kept
        self._backend = backend
        self._keeper = Keeper(leases)
        self.place = place
        self.clock = clock
        self._ticks = ticks
        self._offset = clock() - ticks()  # a jump of it is a clock that was set
        self._reach = reach  # named points of the launch protocol, where tests let the engine die
        self._machine = machine
        self._words: dict[Key, str] = {}  # said to attempts, but not heard yet
        self._packing = Packing(self.hand, store, cards, self._keeper, lambda key: self.usage_of(key))
        self.outlook = Outlook(
            hand=self.hand,
            cards=cards,
            keeper=self._keeper,
            packing=self._packing,
            machine=machine,
            most_without_gpu=most_without_gpu,
            ticks=ticks,
        )
        self.launching = Launching(
            hand=self.hand,
            place=place,
            backend=backend,
            keeper=self._keeper,
            cards=cards,
            results=results,
            reach=reach,
        )
        self._telling = Telling(
            hand=self.hand,
            launching=self.launching,
            backend=backend,
            results=results,
            announce=announce,
            close_series=lambda attempt: self.close_series(attempt),
        )
        self._beginning = Beginning(
            hand=self.hand,
            store=store,
            cards=cards,
            keeper=self._keeper,
            place=place,
            outlook=self.outlook,
            reach=reach,
        )
        self._undoing = Undoing(
            hand=self.hand,
            store=store,
            cards=cards,
            keeper=self._keeper,
            forget_plan=self._beginning.forget_plan,
            clock=clock,
        )
        self._settling = Settling(
            hand=self.hand,
            store=store,
            backend=backend,
            keeper=self._keeper,
            cards=cards,
            results=results,
            boot_id=place.boot_id,
            may_retry=lambda: not self.is_draining,
            usage_of=lambda key: self.usage_of(key),
            packing=self._packing,
        )
        self.away: Away | None = None  # whoever knows other systems; a run's list knows none
        self.observe(Nobody())

    def observe(self, observer: Observer) -> None:
        """Let somebody hear of everything inside the turn that records it."""
        self._observer = observer
        self._settling.observer = self._beginning.observer = self._undoing.observer = observer

    def reach_out(self, make: "Callable[[Settling], Away]") -> None:
        """Let jobs run with other systems, too."""
        self.away = self.outlook.away = self._undoing.away = make(self._settling)
        self.away.observer = self._observer

    def consult(self, judge: Callable[[Attempt, Outcome, float], Outcome | None]) -> None:
        """Let somebody look at every end before it is recorded. None from them means: not yet."""
        self._settling.judge = judge

    # -- what others ask of it -------------------------------------------------------------------------

    @property
    def running(self) -> int:
        return len(self.hand.open) + len(self.hand.away)

    @property
    def waiting(self) -> int:
        return self.hand.waiting.count

    @property
    def machine(self) -> Machine:
        return self._machine

    @property
    def is_idle(self) -> bool:
        """Nothing runs, and nothing will without a new job."""
        hand = self.hand
        is_quiet = not hand.open and not hand.away and not hand.done
        return is_quiet and (self.is_draining or not self.waiting)

    @property
    def looks_closely(self) -> bool:
        """Whether somebody waits for what is about to be measured."""
        return self._packing.looks_closely(self.clock())

    @property
    def is_stuck(self) -> bool:
        """Whatever ran has ended, but the store cannot take it down now. Its records stand in the folders."""
        hand = self.hand
        all_ended = bool(hand.open) and not hand.away and hand.open.keys() <= set(hand.done)
        return "trouble" in hand.timers and all_ended

    @property
    def wake_at(self) -> float | None:
        """When `turn` should be called though nothing happened, in seconds since the epoch."""
        moments = [*self.hand.timers.values()]
        if self.hand.waiting.next_due is not None and self._may_start:
            # While a trouble lasts nothing starts: to be woken for it would be to spin.
            moments.append(max(self.hand.waiting.next_due, self.hand.timers.get("trouble", 0.0)))
        return min(moments, default=None)

    def warm_up(self) -> None:
        """Get ready to start jobs, so that the first one does not wait for it."""
        self._backend.warm_up()

    @property
    def warm_processes(self) -> list[tuple[tuple[str, ...], int | None]]:
        """The modules of each, and its pid once it has imported them."""
        return self._backend.warm_processes

    def come_back(self) -> None:
        """Take up a store that another engine left: settle its attempts and adopt what runs."""
        now = self.clock()
        with self.store.turn():
            for job, attempt in self.store.open_attempts():
                if attempt.backend:
                    self._come_back_to(Open(job, attempt))
                    continue
                self.hand.open[attempt.key] = Open(job, attempt)
                self.cards.book(attempt, job)
                if job.is_stopping:
                    self.hand.stopping.add(job.id)
            for key in list(self.hand.open):
                self._settling.settle(key, now)
            self._observer.before_commit()
        self.load_waiting()
        self._packing.come_back()
        if self.away is not None:
            self.away.look_out()
        self.tell([key for key in self.hand.everywhere if key[0] in self.hand.stopping], "stop")
        self.hand.ask_for_turn()

    def _come_back_to(self, one: Open) -> None:
        assert self.away is not None, "only a queue hands its jobs to others"
        if one.job.is_stopping:
            self.hand.stopping.add(one.job.id)
        self.away.come_back(one)

    def drain(self) -> None:
        """Start nothing more; what runs goes on."""
        self.is_draining = True
        self._keeper.stop_waiting()
        self.hand.timers.pop("others", None)
        self.hand.ask_for_turn()

    def tell_all(self, word: str) -> None:
        """Send `stop`, `kill` or `signal N` to everything that runs."""
        self.tell(self.hand.everywhere, word)

    def tell(self, attempts: Iterable[Key], word: str) -> None:
        """Send a word to some of what runs; whoever cannot hear it yet is told again."""
        told = list(attempts)
        self._words |= {key: word for key in told if key not in self.hand.away}
        self._tell(self.clock())
        if self.away is not None:
            self.away.tell(told, word)

    def tell_astray(self, one: Open, gpus: Sequence[str], sentence: str) -> None:
        """An attempt uses cards that it was not given: say so, to people and to whoever reads the events."""
        with suppress(StoreUnusable), self.change() as now:
            self._observer.astray(one.job, one.attempt, gpus, sentence, now)
        self.hand.events.append(Trouble(sentence))
        self.hand.ask_for_turn()

    def let_go_of(self, folders: Sequence[str]) -> None:
        """These folders of ended attempts are about to go: none of them is used again."""
        self._backend.let_go_of(folders)

    def close(self) -> None:
        """Leave. What runs goes on with its shim."""
        if self.away is not None:
            self.away.close()
        self._keeper.close()
        self._backend.close()

    def load_waiting(self) -> None:
        """Read again who waits: somebody changed it in the store."""
        self._undoing.load_waiting()

    # -- the loop --------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Settle what ended, start what can start. One transaction, then the acts, then the news."""
        now = self.clock()
        self._mind_the_clock(now)
        if self._undoing.must_reload:
            self._undoing.reload()
        self._ring(now)
        done, self.hand.done = list(dict.fromkeys(self.hand.done)), []
        before = self._undoing.keep()
        try:
            with self.store.turn():
                left = self._settle(done, now)
                if self.away is not None:
                    self.away.settle(now)
                begun = self._beginning.begin(left, self.paused, now, may_begin=self._may_begin)
                self._packing.lower()
                self._keeper.let_go_of_spares()
                self._observer.before_commit()
        except (StoreUnusable, OSError) as error:
            self._undoing.go_back_to(before, done, now, error)
        except Exception:  # a bug: what ended must not be forgotten over it
            self._undoing.go_back_to(before, done, now, None)
            raise
        else:
            if begun:
                self._reach("after-intent")
            self.launching.launch([one for one in begun if not one.attempt.backend], now)
            if self.away is not None:
                self.away.hand_over([one for one in begun if one.attempt.backend])
            self._packing.show()
        self._telling.tell()

    @contextmanager
    def change(self) -> Iterator[float]:
        """A turn for what people ask for: durable at its end, or it never happened. Gives the moment."""
        now = self.clock()
        self._beginning.forget_plan()
        before = self._undoing.keep()
        try:
            with self.store.turn():
                yield now
                self._observer.before_commit()
        except OSError as error:  # of the journal or an environment: as if the store itself were full
            self._undoing.go_back_to(before, [], now, None)
            where = os.path.dirname(self.store.path)
            raise StoreUnusable(f"cannot write to {where}: {error.strerror}", remedy=_MAKE_ROOM) from error
        except BaseException:
            self._undoing.go_back_to(before, [], now, None)
            raise
        self._reach("after-commit")
        self.hand.ask_for_turn()

    @property
    def _may_start(self) -> bool:
        return not self.is_draining and "" not in self.paused and self.hand.failures < self.most_failures

    @property
    def _may_begin(self) -> bool:
        return self._may_start and "trouble" not in self.hand.timers

    def _tell(self, now: float) -> None:
        """Say what must be said to attempts, and again to those whose shim is not there yet to hear it."""
        self._words = {
            key: word
            for key, word in self._words.items()
            if key in self.hand.open and not self._backend.tell(self.hand.open[key].attempt, word)
        }
        if self._words:
            self.hand.timers["words"] = now + LOOK_AT_STARTING
            self.hand.ask_for_turn()

    def _mind_the_clock(self, now: float) -> None:
        """Pauses last as long as they should, whatever people do to the clock."""
        offset = now - self._ticks()
        jump, self._offset = offset - self._offset, offset
        if abs(jump) < _JUMP:
            return
        self.hand.timers = {name: at + jump for name, at in self.hand.timers.items()}
        if jump < 0:
            with suppress(StoreUnusable), self.store.turn():
                self.store.shift_retries(now, jump)
            self._undoing.must_reload = True

    def _ring(self, now: float) -> None:
        """Do what was put off until now."""
        for name in [name for name, at in self.hand.timers.items() if at <= now]:
            del self.hand.timers[name]
            if name == "others":
                self.cards.look_again()
            elif name == "unclear":
                self.hand.done += self.hand.unclear
            elif name == "words":
                self._tell(now)
            elif name == "away" and self.away is not None:
                self.away.ring(now)

    def _settle(self, done: Sequence[Key], now: float) -> list[Open]:
        """Record what became of these attempts; return those that have left their places."""
        before = [self.hand.open[key] for key in done if key in self.hand.open]
        for one in before:
            self._settling.settle(one.attempt.key, now)
        return [one for one in before if one.attempt.key not in self.hand.open]
