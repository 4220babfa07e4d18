"""Reading card after card, so that one that does not answer holds up nobody."""

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
    """The driver itself says that this card is gone until somebody resets it; the others are not."""


class CardSilent(Exception):
    """The card answers, but not what it could tell before: nothing of it can be believed now."""


class CardReader:
    """Reads each card, and tells of one that does not answer what was last seen of it.

    Such a card is `stale`; after half a minute, or at once where the driver says so, it is `lost`. As soon as
    it answers again it is as it was.
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
        self._askers: Askers[GpuReading] = Askers()
        self._last: dict[str, GpuReading] = {}
        self._silent_since: dict[str, float] = {}

    def read(self, questions: Sequence[tuple[Gpu, Callable[[], GpuReading]]]) -> tuple[GpuReading, ...]:
        """One pass, in the order of the questions. A question may raise CardLost or CardSilent."""
        answers = self._askers.ask({gpu.key: question for gpu, question in questions}, self._deadline)
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


class Askers(Generic[Answer]):
    """Puts a question to each card. Who is blocked in an old question is not asked a new one.

    One thread asks all of them in turn, which is cheap. Only where it comes to a halt at one are the cards
    behind that one asked on threads of their own.
    """

    def __init__(self) -> None:
        self._under_way: set[str] = set()  # asked, and not back yet
        self._one_at_a_time = threading.Lock()  # or a card would look blocked to who asks beside us

    def ask(self, questions: Mapping[str, Callable[[], Answer]], seconds: float) -> dict[str, Answer | Exception]:
        """What came back, by card; who is missing gave no answer. Takes twice these seconds at the most."""
        answers: dict[str, Answer | Exception] = {}
        with self._one_at_a_time:
            idle = {key: question for key, question in questions.items() if key not in self._under_way}
            if not self._all_answer([idle], answers, seconds):
                behind = [{key: idle[key]} for key in idle if key not in answers and key not in self._under_way]
                self._all_answer(behind, answers, seconds)
            return dict(answers)  # a late answer still comes into the other one

    def _all_answer(
        self,
        batches: Sequence[Mapping[str, Callable[[], Answer]]],
        answers: dict[str, Answer | Exception],
        seconds: float,
    ) -> bool:
        """Ask each batch on a thread; whether all of them came to their end in time."""
        is_over = threading.Event()

        def put_them(batch: Mapping[str, Callable[[], Answer]]) -> None:
            for key, question in batch.items():
                if is_over.is_set():
                    return
                self._under_way.add(key)
                try:
                    answers[key] = question()
                except Exception as error:  # told to who asked
                    answers[key] = error
                finally:
                    self._under_way.discard(key)

        threads = [
            threading.Thread(target=put_them, args=(batch,), name="dibs-gpu-card", daemon=True)
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
