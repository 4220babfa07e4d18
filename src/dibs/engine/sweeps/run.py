"""The work on one sweep: look at what ended, give up what is not worth it, begin what there is room for.

All that must survive is in the store, and each step is recorded before the next one. So whatever is killed when,
whoever comes after looks at the rows and goes on.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace

from dibs.engine.sweeps.advice import Advice
from dibs.engine.sweeps.begin import Begin
from dibs.engine.sweeps.parts import Parts
from dibs.engine.sweeps.prune import prune
from dibs.engine.sweeps.settle import settle
from dibs.engine.sweeps.work import Work
from dibs.errors import DibsError, StoreUnusable
from dibs.model.sweeps import SweepId, SweepState, TrialState
from dibs.policy.sweeping import MOST_LEFT_OUT, is_over

_LOOK_AT_REPORTS = 1.0  # seconds between two looks at what running trials report, where some may be pruned
_AFTER_TROUBLE = 2.0  # seconds until a full disk is tried again
_QUIET = 300.0  # seconds without news; then the adviser, which takes memory, may go until it is needed


class SweepRun:
    """One sweep from now until there is nothing to do for it. `go` is its only task; others wake it."""

    def __init__(self, parts: Parts, sweep: SweepId) -> None:
        self.work = Work(parts, sweep)
        self._parts = parts
        self._news = asyncio.Event()
        self._advice = Advice(self.work)
        self._begin = Begin(self.work, self._advice, self._news)

    def wake(self) -> None:
        self._news.set()

    @property
    def is_woken(self) -> bool:
        return self._news.is_set()

    async def go(self) -> None:
        """Come back when nothing of it runs and nothing is to be begun."""
        try:
            while await self._turn():
                await self._wait()
        finally:
            await self._advice.let_go()

    async def _turn(self) -> bool:
        """Do what can be done now; False where that was all for good."""
        self._news.clear()
        work = self.work
        try:
            work.load()
            await settle(work, self._advice)
            await prune(work, self._advice)
            await self._begin.fill()
            self._finish()
            return bool(work.jobs) or work.table.sweep(work.id).state is SweepState.RUNNING
        except StoreUnusable as error:
            self._wait_for_store(error)
            return True
        except DibsError as error:
            await self._advice.let_go()
            return self._hold(error)

    def _hold(self, error: DibsError) -> bool:
        try:
            self.work.hold(f"{error.message}; {error.remedy}" if error.remedy else error.message)
        except StoreUnusable as trouble:
            self._wait_for_store(trouble)
            return True
        return bool(self.work.jobs)

    def _wait_for_store(self, error: StoreUnusable) -> None:
        self._parts.log(f"sweep {self.work.id} waits: {error.message}")
        asyncio.get_running_loop().call_later(_AFTER_TROUBLE, self.wake)

    async def _wait(self) -> None:
        """Until something happens. A sweep whose trials run for days costs nothing meanwhile."""
        if self._looks_at_reports():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AT_REPORTS):
                    await self._news.wait()
            return
        if self._advice.is_open:
            with suppress(TimeoutError):
                async with asyncio.timeout(_QUIET):
                    await self._news.wait()
                return
            await self._advice.let_go()
        await self._news.wait()

    def _looks_at_reports(self) -> bool:
        work = self.work
        if not work.is_loaded or not work.search.spec.pruner:
            return False
        is_running = work.table.sweep(work.id).state is SweepState.RUNNING
        return is_running and any(key[0] in work.jobs for key in self._parts.engine.state.everywhere)

    def _finish(self) -> None:
        work = self.work
        sweep = work.load()
        counts = work.table.counts(work.id)
        if not is_over(
            sweep,
            open_trials=counts.get(TrialState.OPEN, 0),
            due=len(work.table.due(work.id, 1)),
            made=sum(counts.values()),
            most=work.search.size,
            is_exhausted=self._begin.is_exhausted(sweep),
        ):
            return
        if self._begin.left_out >= MOST_LEFT_OUT:
            why = f"its conditions left out {self._begin.left_out:,} points in a row; there may be none that fits"
            self._begin.left_out = 0  # whoever lets it go on wants more to be looked at
            work.hold(f"{why}; `dibs sweep release {work.id}` looks further")
            return
        with self._parts.engine.change() as change:
            work.parts.book.changed(
                replace(sweep, state=SweepState.FINISHED, why="", ended_at=change.now), change.now
            )
