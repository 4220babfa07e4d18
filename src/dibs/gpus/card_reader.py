"""Reads the GPUs one by one, with a deadline: one that does not answer does not hold up the others."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from dibs.model.gpus import CardState, Gpu, GpuReading

_DEADLINE = 1.5  # seconds; twice this must be less than the watcher's
_LOST_AFTER = 30.0  # seconds without an answer

Answer = TypeVar("Answer")


class CardLost(Exception):
    """The driver reports that this card is gone until it is reset."""


class CardSilent(Exception):
    """The card answers, but without values that it reported before: its answers cannot be used now."""


class CardReader:
    """Reads each card. For one that does not answer it returns the last values.

    Such a card is `stale`; after half a minute, or at once where the driver says so, it is `lost`. When it
    answers again it is `ok`.
    """

    def __init__(
        self,
        *,
        deadline: float = _DEADLINE,
        lost_after: float = _LOST_AFTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deadline = deadline
        self._lost_after = lost_after
        self._clock = clock
        self._queries: CardQueries[GpuReading] = CardQueries()
        self._last: dict[str, GpuReading] = {}
        self._silent_since: dict[str, float] = {}

    def read(self, questions: Sequence[tuple[Gpu, Callable[[], GpuReading]]]) -> tuple[GpuReading, ...]:
        """One pass, in the order of the questions. A question may raise CardLost or CardSilent."""
        answers = self._queries.ask({gpu.key: question for gpu, question in questions}, self._deadline)
        return tuple(self._seen(gpu, answers.get(gpu.key)) for gpu, _ in questions)

    def _seen(self, gpu: Gpu, answer: GpuReading | Exception | None) -> GpuReading:
        if isinstance(answer, GpuReading):
            self._last[gpu.key] = answer
            self._silent_since.pop(gpu.key, None)
            return answer
        if isinstance(answer, Exception) and not isinstance(answer, CardLost | CardSilent):
            raise answer
        now = self._clock()
        is_lost = (
            isinstance(answer, CardLost) or now - self._silent_since.setdefault(gpu.key, now) >= self._lost_after
        )
        last = self._last.get(gpu.key) or GpuReading(gpu=gpu)
        return replace(last, gpu=gpu, energy=None, state=CardState.LOST if is_lost else CardState.STALE)


class CardQueries(Generic[Answer]):
    """Asks each card a question. A card that still blocks in an earlier question is not asked again.

    One thread asks all of them in turn, which is cheap. Only when it blocks at one card are the cards after it
    asked in threads of their own.
    """

    def __init__(self) -> None:
        self._under_way: set[str] = set()  # asked, not answered yet
        self._one_at_a_time = threading.Lock()  # otherwise a card would look blocked to a second caller

    def ask(self, questions: Mapping[str, Callable[[], Answer]], seconds: float) -> dict[str, Answer | Exception]:
        """The answers by card, without those that gave none. Takes at most twice these seconds."""
        answers: dict[str, Answer | Exception] = {}
        with self._one_at_a_time:
            idle = {key: question for key, question in questions.items() if key not in self._under_way}
            if not self._all_answer([idle], answers, seconds):
                behind = [{key: idle[key]} for key in idle if key not in answers and key not in self._under_way]
                self._all_answer(behind, answers, seconds)
            return dict(answers)  # a late answer is still added to the other one

    def _all_answer(
        self,
        batches: Sequence[Mapping[str, Callable[[], Answer]]],
        answers: dict[str, Answer | Exception],
        seconds: float,
    ) -> bool:
        """Ask each batch in a thread; whether all of them ended in time."""
        is_over = threading.Event()

        def ask_batch(batch: Mapping[str, Callable[[], Answer]]) -> None:
            for key, question in batch.items():
                if is_over.is_set():
                    return
                self._under_way.add(key)
                try:
                    answers[key] = question()
                except Exception as error:  # returned to the caller
                    answers[key] = error
                finally:
                    self._under_way.discard(key)

        threads = [
            threading.Thread(target=ask_batch, args=(batch,), name="dibs-gpu-card", daemon=True)
            for batch in batches
            if batch
        ]
        for thread in threads:
            thread.start()
        ends_at = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, ends_at - time.monotonic()))
        is_over.set()
        return not any(thread.is_alive() for thread in threads)
