"""What an engine has in hand between two turns, and who is told inside a turn what is being recorded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dibs.engine.waiting import WaitingLine
from dibs.model.events import Event, Trouble
from dibs.model.jobs import Attempt, AttemptKey, Job, JobId, Outcome
from dibs.policy.turns import served_after

Key = AttemptKey  # short: it is everywhere in the engine
_AFTER_TROUBLE = 2.0  # seconds until a full disk or a failed start is tried again


@dataclass(frozen=True, slots=True)
class Open:
    """An attempt that has not ended, as far as we know."""

    job: Job
    attempt: Attempt
    is_ours: bool = False  # begun by this engine, so nobody needs to be told that it runs


@dataclass(slots=True)
class Hand:
    """What is open, who waits, what there is to tell, and what is put off until when."""

    waiting: WaitingLine
    ask_for_turn: Callable[[], None]
    open: dict[Key, Open] = field(default_factory=dict)  # on this machine
    away: dict[Key, Open] = field(default_factory=dict)  # with other systems
    done: list[Key] = field(default_factory=list)  # let go by their shims, to be settled in the next turn
    unclear: set[Key] = field(default_factory=set)  # to be looked at again: kept GPUs, shims that just start
    events: list[Event] = field(default_factory=list)
    timers: dict[str, float] = field(default_factory=dict)
    false_starts: dict[JobId, tuple[int, float]] = field(default_factory=dict)  # how many, and since when
    last_good_start: float = 0.0  # when it last turned out that something had been started
    failures: int = 0
    stopping: set[JobId] = field(default_factory=set)  # their end was asked for: they are not tried again
    why_stopped: dict[JobId, str] = field(default_factory=dict)  # what such a job says of its end

    served: Mapping[str, float] = field(default_factory=dict)  # what each project was given, for taking turns

    @property
    def everywhere(self) -> dict[Key, Open]:
        """What is open, wherever it runs."""
        return {**self.open, **self.away} if self.away else self.open

    def enter(self, one: Open) -> None:
        """It runs on this machine now, and its project has been served."""
        self.open[one.attempt.key] = one
        self.served = served_after(self.served, one.job)

    def trouble(self, sentence: str, now: float) -> None:
        """Tell what is in the way, and start nothing for a moment."""
        self.timers["trouble"] = now + _AFTER_TROUBLE
        self.events.append(Trouble(sentence))

    def let_go(self, key: Key) -> None:
        """A shim has let an attempt go."""
        self.done.append(key)
        self.ask_for_turn()

    def look_again_at(self, key: Key, when: float) -> None:
        self.unclear.add(key)
        self.timers["unclear"] = min(when, self.timers.get("unclear", when))


class Observer(Protocol):
    """Hears of everything inside the turn that records it, and may record more in the same turn."""

    def started(self, job: Job, attempt: Attempt) -> None: ...

    def runs(self, job: Job, attempt: Attempt, *, is_new: bool) -> None:
        """Another system has started it; or, where it was told before, more is known of where."""

    def ended(self, job: Job, attempt: Attempt, outcome: Outcome, retry_at: float | None, now: float) -> None: ...

    def never_ran(self, job: Job, attempt: Attempt, retry_at: float | None) -> None: ...

    def astray(self, job: Job, attempt: Attempt, gpus: Sequence[str], sentence: str, now: float) -> None:
        """It uses cards, by number, that it was not given."""

    def before_commit(self) -> None:
        """Everything of this turn is known; what is written elsewhere must be written now."""

    def keep(self) -> Any:
        """What must come back if the turn fails."""

    def go_back(self, kept: Any) -> None:
        """The store would not have it."""

    def reload(self) -> None:
        """Read again what the store says: it may have been another turn's."""


class Nobody:
    """A run's list needs no journal, no dependencies and no events for readers who come back."""

    def started(self, job: Job, attempt: Attempt) -> None:
        pass

    def runs(self, job: Job, attempt: Attempt, *, is_new: bool) -> None:
        pass

    def ended(self, job: Job, attempt: Attempt, outcome: Outcome, retry_at: float | None, now: float) -> None:
        pass

    def never_ran(self, job: Job, attempt: Attempt, retry_at: float | None) -> None:
        pass

    def astray(self, job: Job, attempt: Attempt, gpus: Sequence[str], sentence: str, now: float) -> None:
        pass

    def before_commit(self) -> None:
        pass

    def keep(self) -> Any:
        return None

    def go_back(self, kept: Any) -> None:
        pass

    def reload(self) -> None:
        pass
