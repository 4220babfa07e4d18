"""How much each parameter of a sweep matters, as far as its trials tell."""

import asyncio
from collections import deque
from typing import Any

from dibs.engine.sweeps.parts import Search
from dibs.errors import DibsError
from dibs.model.sweeps import Sweep, SweepId, TrialState
from dibs.store.sweeps import SweepTable

_MOST_WEIGHED = 2_000  # trials, the last ones: more take longer, and tell the same
_AT_ONCE = 200  # trials that are read before others have their turn

_Answer = tuple[list[tuple[str, float]], str]  # names and shares, the largest first; or why there are none


class Weights:
    """Computed by a process of its own, and kept until there are more trials."""

    def __init__(self, table: SweepTable) -> None:
        self._table = table
        self._kept: dict[SweepId, tuple[int, _Answer]] = {}
        self._at_work = asyncio.Lock()  # one at a time: two would not be ready sooner

    async def of(self, sweep: Sweep, search: Search) -> _Answer:
        from dibs.sweeps.adviser import importance_of

        if not search.metric_names:
            return [], "the sweep names no metric"
        async with self._at_work:
            count = sum(many for state, many in self._table.counts(sweep.id).items() if state.has_values)
            kept = self._kept.get(sweep.id)
            if kept is not None and kept[0] == count:
                return kept[1]
            trials: deque[tuple[Any, Any]] = deque(maxlen=_MOST_WEIGHED)
            for place, one in enumerate(self._table.all_of(sweep.id, (TrialState.COMPLETE, TrialState.REUSED))):
                trials.append((dict(one.point), one.values))
                if place % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            try:
                found = await importance_of(search.spec, list(trials))
            except DibsError as error:
                return [], error.message
            answer = list(found.shares), found.why
            self._kept[sweep.id] = (count, answer)
            return answer
