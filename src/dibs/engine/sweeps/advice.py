"""A sweep's adviser: opened when it is needed, told what the store knows, let go when it is quiet."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dibs.engine.sweeps.work import Work
from dibs.model.sweeps import Point, Trial, TrialState

if TYPE_CHECKING:
    from dibs.sweeps.adviser import Adviser, Asked, EndedTrial

_AT_ONCE = 200  # trials that are read before others have their turn


class Advice:
    """What is asked of Optuna's process, and told to it. What it is not told now it learns when it is opened."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._adviser: Adviser | None = None
        self._asked: list[Asked] = []  # asked for, and not recorded yet

    @property
    def is_open(self) -> bool:
        return self._adviser is not None

    async def ask(self, count: int) -> "list[Asked]":
        """Points to try. They are given again until they were `taken`."""
        adviser = await self._open()
        if len(self._asked) < count:
            self._asked += await adviser.ask(count - len(self._asked))
        self._work.parts.reach("sweep-asked")
        return self._asked[:count]

    def taken(self, numbers: Collection[int | None]) -> None:
        """The store has them."""
        self._asked = [one for one in self._asked if one.number not in numbers]

    async def enroll(self) -> None:
        """Tell of points that it was not asked for, so that it can tell which of them to give up."""
        work = self._work
        for trial in work.table.open(work.id):
            if trial.study is None and trial.job is not None:
                number = await (await self._open()).begin(dict(trial.point))
                work.parts.reach("sweep-enrolled")
                if (latest := work.table.trial(work.id, trial.number)) is not None:
                    work.record([replace(latest, study=number)])

    async def is_hopeless(self, trial: Trial, step: int, value: float) -> bool:
        """Whether a trial that has come so far is not worth going on with."""
        assert trial.study is not None
        return await (await self._open()).report(trial.study, step, value)

    async def tell(self, trials: Sequence[Trial]) -> None:
        """How trials came out."""
        for trial in trials:
            if trial.study is not None and self._adviser is not None:
                await self._adviser.tell(_told(trial))

    async def let_go(self) -> None:
        """End the process until it is needed again."""
        adviser, self._adviser = self._adviser, None
        self._asked = []  # they come back when it is opened
        if adviser is not None:
            await adviser.close()

    async def _open(self) -> "Adviser":
        if self._adviser is None:
            from dibs.sweeps.adviser import Adviser

            work = self._work
            known: dict[int, Point] = {}
            ended: list[EndedTrial] = []
            for place, trial in enumerate(work.table.all_of(work.id)):
                if trial.study is not None:
                    known[trial.study] = dict(trial.point)
                    if trial.state is not TrialState.OPEN:
                        ended.append(_told(trial))
                if place % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            adviser = Adviser(Path(work.parts.folder(work.id)), work.search.spec, f"sweep-{work.id}")
            self._asked = await adviser.start(known, ended)  # type: ignore[arg-type]
            self._adviser = adviser
        return self._adviser


def _told(trial: Trial) -> "EndedTrial":
    from dibs.sweeps.adviser import EndedTrial

    assert trial.study is not None
    if trial.state.has_values:
        return EndedTrial(trial.study, "complete", trial.values)
    return EndedTrial(trial.study, "pruned" if trial.state is TrialState.PRUNED else "failed")
