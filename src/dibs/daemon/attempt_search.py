"""Attempts by the time in which they ran, found through their jobs without holding up other requests."""

import asyncio
from collections.abc import AsyncIterator

from dibs.model.jobs import OVER, State
from dibs.store.listing import EndedSpan, Span, Spans

AT_ONCE = 500  # jobs looked at before other tasks run
_MOST_LOOKED_AT = 100_000  # jobs that may have run in the period; only their rows say whether they did


class AttemptSearch:
    """The attempts of a period."""

    def __init__(self, spans: Spans, since: float, until: float, most: int | None = None) -> None:
        """`most`: how many jobs are looked at that ended after the period, or wait to be tried again."""
        self.is_partial = False  # there were more to look at
        self._spans = spans
        self._since = since
        self._until = until
        self._left_to_look_at = _MOST_LOOKED_AT if most is None else most

    async def all(self) -> AsyncIterator[list[Span]]:
        """Every attempt once, in no order."""
        running = self._spans.running(self._since, self._until)
        known = {(span.job, span.attempt) for span in running}  # some of them may end meanwhile
        yield running
        async for some in self._not_running():
            yield [span for span in some if (span.job, span.attempt) not in known]
        for state in OVER:
            async for some, _ in self.ended_in_time(state, self._since):
                yield [span for span in some if (span.job, span.attempt) not in known]

    async def not_over_in_time(self) -> AsyncIterator[list[Span]]:
        """Attempts of jobs that run, that ended after the period, or that wait to be tried again."""
        yield self._spans.running(self._since, self._until)
        async for some in self._not_running():
            yield some

    async def ended_in_time(self, state: State, since: float) -> AsyncIterator[tuple[list[Span], float]]:
        """Attempts of jobs that ended in the period, and when the last of these jobs ended."""
        place = EndedSpan(self._until, 2**62)
        while jobs := self._spans.ended_before(state, place, since, AT_ONCE):
            place = jobs[-1]
            yield self._of([one.job for one in jobs]), place.at
            await asyncio.sleep(0)

    async def _not_running(self) -> AsyncIterator[list[Span]]:
        async for some in self._later():
            yield some
        async for some in self._waiting_again():
            yield some

    async def _later(self) -> AsyncIterator[list[Span]]:
        """Attempts of jobs that ended after the period: a long one may have begun before."""
        for state in OVER:
            place = EndedSpan(self._until, 2**62)
            while jobs := self._spans.ended_after(state, place, self._look_at()):
                yield self._of([one.job for one in jobs])
                place = jobs[-1]
                await asyncio.sleep(0)

    async def _waiting_again(self) -> AsyncIterator[list[Span]]:
        """Attempts of jobs that wait to be tried again."""
        for state in (State.QUEUED, State.HELD, State.SUBMITTED):
            above = 0
            while jobs := self._spans.waiting(state, above, self._look_at()):
                yield self._of(jobs)
                above = jobs[-1]
                await asyncio.sleep(0)

    def _look_at(self) -> int:
        """How many more jobs may be looked at. If none, the result is marked as partial."""
        portion = min(AT_ONCE, self._left_to_look_at)
        self._left_to_look_at -= portion
        self.is_partial = self.is_partial or not portion
        return portion

    def _of(self, jobs: list[int]) -> list[Span]:
        return self._spans.of(jobs, self._since, self._until)
