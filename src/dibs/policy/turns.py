"""Whose turn it is: by priority, then fair turns between projects, then age.

`served` says what each project has had so far, in GPUs given. Only differences count: a project that comes later
starts where the others stand.
"""

import bisect
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

from dibs.model.jobs import Job


def in_turn(waiting: Sequence[Job], served: Mapping[str, float]) -> list[Job]:
    """The jobs in the order in which they should start, as if each were given its GPUs at once.

    The project that was served least goes first; of two that were served alike, one that has had nothing yet, then
    the one whose job came first.
    """
    jobs = sorted(waiting, key=_order)
    projects = {job.request.project for job in jobs}
    if len(projects) < 2:
        return jobs
    floor = min((served[project] for project in projects if project in served), default=0.0)
    tally = {project: served.get(project, floor) for project in projects}
    found: list[Job] = []
    for _, alike in groupby(jobs, key=lambda job: job.request.priority):
        found += _turn_by_turn(list(alike), tally, served)
    return found


def weight(job: Job) -> float:
    """What one turn of this job counts: the GPUs it gets. A job for no GPU has had its turn too."""
    wishes = job.request.wishes
    return max(1, wishes.num_gpus) * (1.0 if wishes.share is None else float(wishes.share))


def served_after(served: Mapping[str, float], job: Job) -> dict[str, float]:
    """What each project has had once this job has started."""
    project = job.request.project
    had = served[project] if project in served else min(served.values(), default=0.0)
    return {**served, project: had + weight(job)}


def joined(served: Mapping[str, float], project: str, active: Collection[str]) -> dict[str, float]:
    """The same after a project has come, new or back: it stands with the last of the active ones.

    It may not save up turns while it is away, and it does not lose by coming late. `active` are the projects of
    which jobs wait or run. Where there are none, it stands where the last one left.
    """
    others = [served[one] for one in active if one in served and one != project]
    floor = min(others) if others else max(served.values(), default=0.0)
    return {**served, project: max(floor, served.get(project, floor))}


def trimmed(served: Mapping[str, float], active: Collection[str]) -> dict[str, float]:
    """The same without the idle projects that would join at the floor anyway: a book that does not grow."""
    known = [served[one] for one in active if one in served]
    if not known:
        last = max(served.values(), default=0.0)
        return {project: had for project, had in served.items() if had == last}
    floor = min(known)
    return {project: had for project, had in served.items() if project in active or had > floor}


def _turn_by_turn(jobs: Sequence[Job], tally: dict[str, float], known: Collection[str]) -> list[Job]:
    """Jobs of one priority, in order of age, so that each project gets its turns. The tally goes on counting."""
    lines: dict[str, list[Job]] = {}
    for job in reversed(jobs):
        lines.setdefault(job.request.project, []).append(job)
    first = sorted((tally[name], name in known, _order(line[-1]), name) for name, line in lines.items())
    found: list[Job] = []
    while first:
        had, _, _, project = first.pop(0)
        line = lines[project]
        job = line.pop()
        found.append(job)
        tally[project] = had + weight(job)
        if line:
            bisect.insort(first, (tally[project], True, _order(line[-1]), project))
    return found


def _order(job: Job) -> tuple[int, float, int]:
    return (*job.order, job.id)
