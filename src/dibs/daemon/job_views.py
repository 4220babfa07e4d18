"""Long lists of jobs, sorted or searched: their numbers are collected in small portions and cached for a while."""

import asyncio
import heapq
import math
import time
from array import array
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import islice
from typing import Any

from dibs.dataclass import dataclass
from dibs.model.jobs import JobId, State
from dibs.store.listing import PARAMETER, Filter, Scanned
from dibs.store.store import Store

MOST_SORTED = 200_000  # jobs; in the order of their numbers there may be any number of them
_MOST_KEPT = 4  # views
_KEPT_FOR = 60.0  # seconds after its last use
_MOST_AT_ONCE = 8_192  # numbers looked at before other tasks run
_FEWEST_AT_ONCE = 256
_MERGED_AT_ONCE = 2_000
_TOO_LONG, _SHORT = 0.006, 0.003  # seconds for that
_QUICK = 0.02  # seconds; a view that takes less is made again after every event
_STALE_AFTER = 10  # times as long as it took to make, so that a busy queue is not scanned all the time
_BY_NUMBER = ("newest", "oldest")
_BACKWARDS = ("ended", "seconds", "queued", "started", "changed", "attempts")  # the largest first
_TEXTS = ("name", "project", "tags")  # in any case
_PLACE = {str(state): place for place, state in enumerate(State)}
_NOTHING_LIVE: Mapping[int, Any] = {}


@dataclass(frozen=True, slots=True)
class JobView:
    """The numbers of all jobs that match, in order."""

    jobs: Sequence[int]
    total: int
    is_partial: bool = False  # there were too many to sort: the oldest are left out


@dataclass(slots=True)
class _Cached:
    view: JobView
    after: int  # the last event that it includes
    live: Mapping[int, Any]  # what it was told of jobs that run
    took: float  # seconds
    made_at: float
    used_at: float


class JobViews:
    """A cache of views. No step blocks the event loop for longer than some milliseconds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[Filter, str, bool], _Cached] = OrderedDict()
        self._at_work = asyncio.Lock()  # one at a time: two at once would take as long
        self._timer: asyncio.TimerHandle | None = None

    async def of(
        self,
        wanted: Filter,
        order: str,
        reverse: bool = False,
        *,
        live: Mapping[int, Any] = _NOTHING_LIVE,
        is_fresh: bool = False,
    ) -> JobView:
        """The jobs that match now. One that takes long to make may be a moment old, unless it must be fresh.

        `live`: what jobs that run are sorted by now, where the store does not know it.
        """
        key = (wanted, order, reverse)
        async with self._at_work:
            now = time.monotonic()
            kept = self._kept.get(key)
            if kept is None or not self._holds(kept, now, live, is_fresh):
                after = self._store.events.last_id
                view = await self._make(wanted, order, reverse, live)
                ready = time.monotonic()
                kept = self._kept[key] = _Cached(view, after, live, ready - now, ready, ready)
            kept.used_at = time.monotonic()
            self._kept.move_to_end(key)
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(_KEPT_FOR, self._forget)
        return kept.view

    async def states(self, wanted: Filter) -> list[tuple[JobId, State]]:
        """Where each job stands that matches now, the newest first."""
        return [(JobId(job), State(state)) async for some in self._scanned(wanted, "state") for job, state in some]

    async def ended_before(self, wanted: Filter, before: float) -> int:
        """How many of those that match ended before a moment."""
        scanned = self._scanned(wanted, "ended")
        return sum([sum(ended_at < before for _, ended_at in some) async for some in scanned])

    def _holds(self, kept: _Cached, now: float, live: Mapping[int, Any], is_fresh: bool) -> bool:
        if not is_fresh and kept.took > _QUICK and now - kept.made_at < kept.took * _STALE_AFTER:
            return True
        return self._store.events.last_id == kept.after and kept.live == live

    def _forget(self) -> None:
        old = time.monotonic() - _KEPT_FOR
        for key in [key for key, kept in self._kept.items() if kept.used_at <= old]:
            del self._kept[key]
        again = asyncio.get_running_loop().call_later(_KEPT_FOR, self._forget) if self._kept else None
        self._timer = again

    async def _make(self, wanted: Filter, order: str, reverse: bool, live: Mapping[int, Any]) -> JobView:
        if order in _BY_NUMBER:
            found = await self._numbers(wanted)
            is_upwards = (order == "oldest") != reverse
            return JobView(found[::-1] if is_upwards else found, len(found))
        return await self._sorted(wanted, order, (order in _BACKWARDS) != reverse, live)

    async def _numbers(self, wanted: Filter) -> Sequence[int]:
        """The newest first."""
        listing = self._store.listing
        first, last = listing.bounds()
        if wanted == Filter() and sum(listing.counts().values()) == last - first + 1:
            return range(last, first - 1, -1)  # no number is missing, so there is nothing to scan
        found = array("q")
        async for some in self._scanned(wanted, "newest"):
            found.extend([job for job, _ in some])
        return found

    async def _sorted(self, wanted: Filter, order: str, is_backwards: bool, live: Mapping[int, Any]) -> JobView:
        """Jobs without a key to sort by come last, in both directions."""
        runs: list[list[tuple[Any, int]]] = []
        rest: list[int] = []
        total = taken = 0
        async for some in self._scanned(wanted, order):
            total += len(some)
            if taken >= MOST_SORTED:
                continue  # they are only counted
            some = some[: MOST_SORTED - taken]
            taken += len(some)
            if live:
                some = [(job, live.get(job, key)) for job, key in some]
            rest += [job for job, key in some if key is None]
            runs.append(
                sorted(((_key(order, key), job) for job, key in some if key is not None), reverse=is_backwards)
            )
        # In portions: sorting a hundred thousand at once would block the loop.
        jobs, merged = array("q"), heapq.merge(*runs, reverse=is_backwards)
        while some_more := list(islice(merged, _MERGED_AT_ONCE)):
            jobs.extend([job for _, job in some_more])
            await asyncio.sleep(0)
        jobs.extend(rest)
        return JobView(jobs, total, is_partial=taken < total)

    async def _scanned(self, wanted: Filter, order: str) -> AsyncIterator[list[Scanned]]:
        """The jobs that match, the newest first, in portions that take a few milliseconds each."""
        listing = self._store.listing
        lowest, last = listing.bounds()
        if wanted.ranges:
            lowest = max(lowest, min(first for first, _ in wanted.ranges))
            last = min(last, max(end for _, end in wanted.ranges))
        at_once = _FEWEST_AT_ONCE
        while last >= lowest:
            first = max(lowest, last - at_once + 1)
            begin = time.perf_counter()
            some = listing.scan(wanted, order, first, last)
            took = time.perf_counter() - begin
            if took > _TOO_LONG:
                at_once = max(_FEWEST_AT_ONCE, at_once // 2)
            elif took < _SHORT:
                at_once = min(_MOST_AT_ONCE, at_once * 2)
            if some:
                yield some
                last = first - 1
            else:
                _, last = listing.bounds(below=first)  # skip a gap in the numbers
            await asyncio.sleep(0)


def _key(order: str, key: Any) -> Any:
    if order in _TEXTS:
        return key.casefold()
    if order.startswith(PARAMETER):
        return _number_or_text(key)
    return _PLACE.get(key, len(_PLACE)) if order == "state" else key


def _number_or_text(value: str) -> tuple[int, float, str]:
    """Parameters are texts: numbers are sorted as such, and before all others."""
    try:
        number = float(value)
    except ValueError:
        return (1, 0.0, value.casefold())
    return (1, 0.0, value) if math.isnan(number) else (0, number, "")
