"""What the last plan found, for the moment in which it still holds.

While jobs of one kind fill the machine, a new plan after each of many short ones finds the same again: the next
job takes the place of the one that ended. So it does, for a moment, without a plan; anything else ends that.
No promise depends on it: a plan made instead gives the same starts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dibs.engine.turn.state import CachedPlan, NextState, OpenAttempt
from dibs.model.gpus import Claim
from dibs.model.jobs import Job
from dibs.policy.schedule import kind_of
from dibs.policy.snapshot import Plan, Snapshot

HOLDS = 0.1  # seconds; then it is told again why the next job waits


def forgotten(cached: CachedPlan) -> CachedPlan:
    """Make a plan before anything else starts."""
    return replace(cached, kind=None)


def followers(
    cached: CachedPlan,
    state: NextState,
    surroundings: tuple[object, ...],
    now: float,
    *,
    is_unsettled: bool,
) -> list[tuple[Job, tuple[Claim, ...]]]:
    """The jobs that take the places of those that left in this turn; none where a plan must be made."""
    left = state.left
    # A place given in other surroundings may be none any more: its card was drained, or has other slots.
    if not left or is_unsettled or any(one.is_suspended for one in left):  # those had left their places before
        return []
    if not _holds(cached, surroundings, now):
        return []
    if not cached.placed.issuperset(one.attempt.key for one in left) or not _are_alike(cached, _jobs(left)):
        return []
    first = state.waiting.first(lambda _: len(left) + 1, now)
    # A job must be left over: only then is the machine full again.
    if len(first) <= len(left) or not _are_alike(cached, first):
        return []
    return [(job, one.attempt.claims) for job, one in zip(first, left, strict=False)]


def advanced(cached: CachedPlan, left: Iterable[OpenAttempt], begun: Iterable[OpenAttempt]) -> CachedPlan:
    """The same plan after these have left, and others have taken their places."""
    placed = cached.placed.difference(one.attempt.key for one in left)
    return replace(cached, placed=placed.union(one.attempt.key for one in begun))


def made(
    before: CachedPlan,
    state: NextState,
    plan: Plan,
    snapshot: Snapshot,
    begun: Sequence[OpenAttempt],
    surroundings: tuple[object, ...],
) -> CachedPlan:
    """Remember a plan that filled the machine with jobs of one kind, of which more wait."""
    placed = before.placed if surroundings == before.surroundings else frozenset()
    placed = placed.intersection(state.open).union(one.attempt.key for one in begun)
    kinds = {kind_of(job.request) for job in snapshot.waiting}
    is_remote = any(job.request.on for job in snapshot.waiting)  # takes no place here
    is_like_that = len(kinds) == 1 and plan.reasons and not is_remote and not _looks_further(snapshot)
    kind = kinds.pop() if is_like_that else None
    return CachedPlan(kind, snapshot.now, surroundings, placed)


def _holds(cached: CachedPlan, surroundings: tuple[object, ...], now: float) -> bool:
    """Whether a plan made now would find the same as the last one."""
    return cached.kind is not None and cached.at <= now < cached.at + HOLDS and surroundings == cached.surroundings


def _jobs(attempts: Iterable[OpenAttempt]) -> list[Job]:
    return [one.job for one in attempts]


def _are_alike(cached: CachedPlan, jobs: Iterable[Job]) -> bool:
    return all(kind_of(job.request) == cached.kind for job in jobs)


def _looks_further(snapshot: Snapshot) -> bool:
    """Whether a plan asks what the books on our attempts do not tell, and may find otherwise at any moment.

    That is how much memory is left or needed, and, where cards are left to others, how many of them are in use.
    """
    return bool(
        snapshot.keep_free
        or snapshot.suspended  # they may go before the next job
        or any(one.is_leaving for one in snapshot.preemptible)  # what becomes free is kept for an urgent job
        or any(job.request.wishes.shape or job.request.wishes.vram for job in snapshot.waiting)
        or any(view.shapes for view in snapshot.cards)
    )
