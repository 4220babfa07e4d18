"""A machine and its queue over time, on a clock that is turned by hand."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dibs.model.gpus import Claim
from dibs.model.jobs import Job, JobId
from dibs.policy.schedule import schedule
from dibs.policy.snapshot import Hold, Plan, Snapshot
from policy.builders import Machine, placed


@dataclass(frozen=True)
class Arrival:
    """A job that comes at a moment, and runs for so many seconds once it was started."""

    job: Job
    runs: float
    at: float = 0.0


@dataclass(frozen=True)
class Run:
    """An attempt: what it holds, when it will have ended for sure, and when it does end."""

    claims: tuple[Claim, ...]
    ends_at: float
    limit_at: float | None


def play(
    machine: Machine, running: Sequence[Run], arrivals: Sequence[Arrival], *, keep_free: int = 0
) -> dict[JobId, float]:
    """When each job starts. Who stands first in `arrivals` goes first. Looks at every plan on the way."""
    runs = list(running)
    line = {arrival.job.id: arrival for arrival in arrivals}
    started: dict[JobId, float] = {}
    now = 0.0
    while line:
        runs = [run for run in runs if run.ends_at > now]
        waiting = [arrival.job for arrival in line.values() if arrival.at <= now]
        snapshot = at(machine, runs).with_waiting(*waiting, now=now, keep_free=keep_free)
        plan = schedule(snapshot)
        check(snapshot, plan)
        for placement in plan.placements:
            arrival = line.pop(placement.job.id)
            started[placement.job.id] = now
            sure = now + _longest(placement.job)
            runs.append(Run(placement.claims, min(sure, now + arrival.runs), None if sure == math.inf else sure))
        moments = [run.ends_at for run in runs] + [one.at for one in line.values() if one.at > now]
        if not moments:
            break
        now = min(moments)
    return started


def check(snapshot: Snapshot, plan: Plan) -> None:
    """What is true of every plan."""
    numbers = [job.id for job in snapshot.waiting]
    assert sorted([*placed(plan), *plan.reasons]) == sorted(numbers)
    for view in snapshot.cards:
        claims = [one for placement in plan.placements for one in placement.claims if one.gpu == view.card.gpu.key]
        assert view.taken + sum((claim.share for claim in claims), Fraction(0)) <= 1
        if view.card.gpu.memory_total is not None and any(claim.vram for claim in claims):
            assert view.vram_taken + sum(claim.vram for claim in claims) <= view.card.gpu.memory_total


def _longest(job: Job) -> float:
    """Not asked of the policy: a limit ends a job only after its grace."""
    limit = job.request.time_limit
    return math.inf if limit is None else limit + job.request.grace


def at(machine: Machine, runs: Sequence[Run]) -> Machine:
    """The machine while these run."""
    views = []
    for view in machine.views:
        holds = [
            Hold(claim.share, claim.vram, run.limit_at)
            for run in runs
            for claim in run.claims
            if claim.gpu == view.card.gpu.key
        ]
        views.append(
            replace(
                view,
                taken=sum((hold.share for hold in holds), Fraction(0)),
                vram_taken=sum(hold.vram for hold in holds),
                ends=tuple(holds),
            )
        )
    return replace(machine, views=tuple(views))
