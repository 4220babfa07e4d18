"""Who waits in the simulated queue, and the head of it that the policy is shown."""

import bisect
from collections.abc import Collection, Hashable

from dibs.model.jobs import Job, Request, Wishes

_Kind = tuple[Wishes, str, float | None, Hashable]
_Place = tuple[tuple[int, float], Job]  # with its order, which would be worked out again and again


class Line:
    """The waiting jobs by kind. As in the engine, jobs of one kind have the same chances: a few of each suffice."""

    def __init__(self) -> None:
        self._kinds: dict[_Kind, list[_Place]] = {}

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def add(self, job: Job) -> None:
        bisect.insort(self._kinds.setdefault(_kind(job.request), []), (job.order, job), key=_order)

    def remove(self, job: Job) -> None:
        kind = _kind(job.request)
        places = self._kinds[kind]
        del places[bisect.bisect_left(places, job.order, key=_order)]
        if not places:
            del self._kinds[kind]

    def first(self, each: int) -> list[Job]:
        """The first jobs of each kind, together in order."""
        found: list[_Place] = []
        for places in self._kinds.values():
            found += places[:each]
        if len(self._kinds) > 1:
            found.sort(key=_order)
        return [job for _, job in found]

    def all(self) -> list[Job]:
        return [job for places in self._kinds.values() for _, job in places]

    @property
    def projects(self) -> set[str]:
        return {project for _, project, _, _ in self._kinds}

    @property
    def wishes(self) -> set[Wishes]:
        return {wishes for wishes, _, _, _ in self._kinds}

    def has_each_kind_of(self, seen: Collection[Job], waiting: Collection[int]) -> bool:
        """Whether of each kind among those seen one waits still. Where none does, more of that kind may fit."""
        left = {_kind(job.request) for job in seen if job.id in waiting}
        return all(_kind(job.request) in left for job in seen)


def _order(place: _Place) -> tuple[int, float]:
    return place[0]


def _kind(request: Request) -> _Kind:
    array = request.array.array if request.array is not None and request.array.most is not None else None
    return (request.wishes, request.project, request.time_limit, array)
