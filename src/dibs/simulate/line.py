"""Who waits in the simulated queue, and the head of it that the policy is shown."""

import bisect
from collections.abc import Callable, Collection, Hashable

from dibs.model.jobs import Job, JobId, Request, Wishes
from dibs.policy.schedule import kind_of


class _Kind:
    """The waiting jobs with the same chances, each with its order, which would be worked out again and again."""

    def __init__(self, request: Request) -> None:
        self.wishes = request.wishes
        self.project = request.project
        self.places: list[tuple[tuple[int, float], Job]] = []


class Line:
    """The waiting jobs by kind. As in the engine, a plan needs only the first few of each."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, _Kind] = {}
        self._kind_of: dict[JobId, _Kind] = {}

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def add(self, job: Job) -> None:
        name = kind_of(job.request)
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = _Kind(job.request)
        self._kind_of[job.id] = kind
        bisect.insort(kind.places, (job.order, job), key=_order)

    def remove(self, job: Job) -> None:
        kind = self._kind_of[job.id]
        del kind.places[bisect.bisect_left(kind.places, job.order, key=_order)]
        if not kind.places:
            del self._kinds[kind_of(job.request)]

    def first(self, each: Callable[[Wishes], int]) -> list[Job]:
        """The first jobs of each kind, together in order. `each` tells how many could start at the most."""
        found = [place for kind in self._kinds.values() for place in kind.places[: each(kind.wishes)]]
        if len(self._kinds) > 1:
            found.sort(key=_order)
        return [job for _, job in found]

    @property
    def jobs(self) -> list[Job]:
        return [job for kind in self._kinds.values() for _, job in kind.places]

    @property
    def projects(self) -> set[str]:
        return {kind.project for kind in self._kinds.values()}

    @property
    def wishes(self) -> set[Wishes]:
        return {kind.wishes for kind in self._kinds.values()}

    def each_kind_waits(self, seen: Collection[Job], waiting: Collection[JobId]) -> bool:
        """Whether of each kind among those seen one was left over. Where none was, more of that kind may fit."""
        left = {self._kind_of[number] for number in waiting}
        return all(self._kind_of[job.id] in left for job in seen)


def _order(place: tuple[tuple[int, float], Job]) -> tuple[int, float]:
    return place[0]
