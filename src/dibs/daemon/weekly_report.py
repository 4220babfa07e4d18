"""GPU time and energy by week, project and user, and what the cards of the pool were meanwhile."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import date, datetime
from itertools import pairwise
from typing import Any

from dibs.daemon.attempt_search import AttemptSearch
from dibs.daemon.schemas.responses import moment
from dibs.engine.queue.gpu_time import attempt_times, borders_of, week_at
from dibs.engine.watch.card_history import CardHistory
from dibs.model.card_history import HOURS, KEPT, UseSeconds
from dibs.model.usage import Usage
from dibs.model.weeks import GpuTime, Week, WeeklySum, parse_week
from dibs.store.listing import Span
from dibs.store.store import Store

MOST_WEEKS = 53
_MOST_LOOKED_AT = 1_000_000  # jobs that ended after these weeks or wait again
_WATT_HOUR = 3600.0  # joules


class WeeklyReport:
    """Reports about this queue and its machine. `running`: what is measured so far of an attempt that runs."""

    def __init__(
        self, store: Store, history: CardHistory, user: str, running: Callable[[Span], Usage | None]
    ) -> None:
        self._store = store
        self._history = history
        self._user = user
        self._running = running

    async def make(self, week: str, weeks: int, now: float) -> dict[str, Any]:
        """About one week, or about so many up to this one, the newest first."""
        last = parse_week(week, date.fromtimestamp(now)) if week else week_at(now)
        first = last if week else last.later(1 - weeks)
        borders = borders_of(first, last)
        search = AttemptSearch(self._store.listing.spans, borders[0], min(now, borders[-1]), _MOST_LOOKED_AT)
        found = WeeklySum(borders)
        async for spans in search.all():
            found.add(attempt_times(spans, now, self._running))
        cards = await self._cards(borders, now)
        reports = [
            self._week(first.later(number), found.weeks[number], cards[number], borders[number : number + 2], now)
            for number in range(len(found.weeks))
        ]
        return {"time_zone": _zone(now), "weeks": reports[::-1], "is_partial": search.is_partial}

    async def _cards(self, borders: Sequence[float], now: float) -> list["_CardTime"]:
        """What the cards were in each week."""
        times = [_CardTime() for _ in borders[1:]]
        if borders[-1] < now - HOURS * KEPT[HOURS]:
            return times
        for key in self._history.keys:
            for time, (since, until) in zip(times, pairwise(borders), strict=True):
                buckets = self._history.buckets(key, HOURS, since - HOURS, until)
                for bucket in buckets.values():
                    part = bucket.part_within(since, until)  # the first and the last may lie in it half
                    time.use.add_part(bucket.use, part)
                    time.joules += bucket.joules * part
                time.cards += bool(buckets)
                await asyncio.sleep(0)
        return times

    def _week(
        self, week: Week, projects: dict[str, GpuTime], cards: "_CardTime", borders: Sequence[float], now: float
    ) -> dict[str, Any]:
        since, until = borders[0], min(borders[1], now)
        for name, cleaned in self._store.history.cleaned(str(week)).items():
            projects.setdefault(name, GpuTime()).add(cleaned)
        return {
            "week": str(week),
            "since_at": moment(since),
            "until_at": moment(until),
            "is_over": borders[1] <= now,
            "projects": [
                _project(name, time)
                for name, time in sorted(projects.items(), key=lambda one: (-_whole(one[1]), one[0]))
            ],
            "users": self._users(projects, *borders),
            "machine": cards.shown(until - since),
        }

    def _users(self, projects: dict[str, GpuTime], since: float, until: float) -> list[dict[str, Any]]:
        queue = GpuTime()
        for time in projects.values():
            queue.add(time)
        outside: dict[str, list[float]] = {}
        for one in self._history.outside(since, until):
            part = (min(until, one.at + HOURS) - max(since, one.at)) / HOURS  # weeks may begin at half past
            seconds, joules = outside.setdefault(one.user, [0.0, 0.0])
            outside[one.user] = [seconds + part * one.seconds, joules + part * one.joules]
        names = {self._user: None, **outside} if queue.attempts else outside
        found = []
        for name in names:
            time = queue if name == self._user else GpuTime()
            seconds, joules = outside.get(name, (0.0, 0.0))
            found.append(
                {
                    "user": name,
                    "gpu_hours": _hours(time.seconds),
                    "remote_gpu_hours": _hours(time.remote_seconds),
                    "outside_gpu_hours": _hours(seconds),
                    "energy_watt_hours": round(time.watt_hours + joules / _WATT_HOUR, 1),
                }
            )
        return sorted(found, key=lambda one: (-one["gpu_hours"] - one["outside_gpu_hours"], one["user"]))


class _CardTime:
    """What cards were in a week."""

    def __init__(self) -> None:
        self.cards = 0
        self.use = UseSeconds()
        self.joules = 0.0

    def shown(self, seconds: float) -> dict[str, Any]:
        unknown = max(0.0, self.cards * seconds - self.use.known)
        return {
            "gpus": self.cards,
            **{f"{one.name}_gpu_hours": _hours(getattr(self.use, one.name)) for one in fields(UseSeconds)},
            "unknown_gpu_hours": _hours(unknown),
            "energy_watt_hours": round(self.joules / _WATT_HOUR, 1),
        }


def _project(name: str, time: GpuTime) -> dict[str, Any]:
    return {
        "project": name,
        "gpu_hours": _hours(time.seconds),
        "remote_gpu_hours": _hours(time.remote_seconds),
        "energy_watt_hours": round(time.watt_hours, 1),
        "mean_load_percent": None if time.mean_load is None else round(time.mean_load, 1),
        "attempts": time.attempts,
    }


def _whole(time: GpuTime) -> float:
    return time.seconds + time.remote_seconds


def _hours(seconds: float) -> float:
    return round(seconds / 3600, 3)


def _zone(now: float) -> str:
    """`UTC`, or `UTC+01:00`."""
    offset = datetime.fromtimestamp(now).astimezone().isoformat()[-6:]
    return "UTC" if offset == "+00:00" else f"UTC{offset}"
