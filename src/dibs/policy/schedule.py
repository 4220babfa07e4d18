"""Which job starts where. Pure: the same snapshot always gives the same plan."""

import math
from collections.abc import Hashable, Mapping, Sequence

from dibs.model.gpus import Gpu
from dibs.model.jobs import ArrayTask, Job, JobId, Request, Wishes
from dibs.model.pool import Pool
from dibs.model.reasons import Reason
from dibs.model.units import show_size
from dibs.policy.company import company, too_few
from dibs.policy.fitting import (
    booking,
    could_hold,
    cpus_in_words,
    gpus_in_words,
    is_allowed,
    is_named,
    is_of_type,
    no_such_type,
    numbers_in_words,
)
from dibs.policy.snapshot import Placement, Plan, Snapshot
from dibs.policy.spare import never_left
from dibs.policy.table import Table

__all__ = ["MOST_GPUS", "booking", "impossible", "is_allowed", "kind_of", "longest", "schedule"]

MOST_GPUS = 200  # of one job: their locks are handed over in one message, and the kernel takes 253 descriptors


def schedule(snapshot: Snapshot) -> Plan:
    """Place waiting jobs in order. A job that cannot start keeps later ones off the cards it waits for.

    Without that reservation a stream of small jobs would pass a wide one for ever. A later job may use what is
    kept only where the earlier one is not delayed: it is sure to end in time, or leaves enough beside it.
    """
    table = Table(snapshot)
    plan = Plan()
    arrays = _Arrays(snapshot)
    away = dict(snapshot.room_away)
    stuck: dict[Wishes, tuple[float, Reason]] = {}
    for job in snapshot.waiting:
        request = job.request
        if snapshot.paused and (reason := _is_paused(request.project, snapshot.paused)):
            plan.reasons[job.id] = reason
            continue
        if request.on:
            # Where it fits, and how many of an array run at once, the other system decides.
            if away.get(request.on, 0) > 0:
                away[request.on] -= 1
                plan.placements.append(Placement(job, ()))
            else:
                plan.reasons[job.id] = Reason(
                    "backend", f"waits: {request.on.capitalize()} has as many jobs as it is given at once"
                )
            continue
        if request.array is not None and arrays.are_full(request.array):
            plan.reasons[job.id] = _array_is_full(request.array)
            continue
        wishes = request.wishes
        length = longest(job)
        twin = stuck.get(wishes)
        if twin is not None and length >= twin[0]:  # what does not fit for one does not fit for a twin as long
            plan.reasons[job.id] = twin[1]
            continue
        claims = table.place(wishes, length)
        if claims is not None:
            plan.placements.append(Placement(job, claims))
            if request.array is not None:
                arrays.add(request.array)
        elif twin is not None:  # a shorter twin: its elder keeps the cards for both
            stuck[wishes] = (length, twin[1])
            plan.reasons[job.id] = twin[1]
        else:
            plan.reasons[job.id] = reason = table.wait(wishes, length)
            stuck[wishes] = (length, reason)
    return plan


def waits_for_turn(ahead: int, reason: Reason) -> Reason:
    """Why a job waits that stands behind so many others; `reason` is what the first of its kind waits for."""
    jobs = "1 job goes" if ahead == 1 else f"{ahead:,} jobs go"
    return Reason("turn", f"waits for its turn: {jobs} first; the first {reason.sentence}", reason.until)


def kind_of(request: Request) -> Hashable:
    """The same for all jobs that have the same chances in a plan; cheaper than the class in the store."""
    array = request.array.array if request.array is not None and request.array.most is not None else None
    return (request.wishes, request.project, request.time_limit, array, request.on)


def longest(job: Job) -> float:
    """Seconds after which the job is sure to have ended once it was started: its time limit and its grace."""
    limit = job.request.time_limit
    return math.inf if limit is None else limit + job.request.grace


def impossible(
    wishes: Wishes, pool: Pool, cpus: int | None = None, mem: int | None = None, keep_free: int = 0
) -> str:
    """Why no free moment of this pool could ever satisfy the wishes; empty when one could.

    `cpus` and `mem` are what the machine has; None where they are not counted. `keep_free` cards are left to
    others.
    """
    if cpus is not None and (wishes.cpus or 0) > cpus:
        return f"it wants {cpus_in_words(wishes.cpus or 0)}, but this machine has {cpus}"
    if mem is not None and (wishes.mem or 0) > mem:
        return f"it wants {show_size(wishes.mem)} of memory, but this machine has {show_size(mem)}"
    for gpu_id in wishes.only:
        if not any(is_named(card.gpu, (gpu_id,)) for card in pool.cards):
            pool_in_words = numbers_in_words([card.gpu for card in pool.cards])
            return f"it wants GPU {gpu_id} only, which is not among {pool_in_words}"
    if wishes.num_gpus > MOST_GPUS:
        return f"it wants {wishes.num_gpus} GPUs, but one job can hold {MOST_GPUS} at the most"
    if wishes.num_gpus and wishes.gpu_type and not any(is_of_type(card.gpu, wishes) for card in pool.cards):
        return f"it wants {gpus_in_words(wishes)}, but {no_such_type([card.gpu for card in pool.cards])}"
    if pool.groups and wishes.num_gpus:
        return _no_group(wishes, pool) or never_left(wishes.num_gpus, pool, keep_free)
    gpus = company((card.gpu for card in pool.cards), wishes)
    if wishes.num_gpus > len(gpus):
        return too_few(wishes, gpus, [card.gpu for card in pool.cards])
    roomy = [gpu for gpu in gpus if could_hold(gpu, wishes)]
    if len(roomy) < wishes.num_gpus:
        return _no_memory(wishes, len(roomy), gpus)
    return never_left(wishes.num_gpus, pool, keep_free)


class _Arrays:
    """How many tasks of each array run, while a plan is being made."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._running = snapshot.array_running
        self._placed: dict[JobId, int] = {}

    def are_full(self, task: ArrayTask) -> bool:
        if task.most is None:
            return False
        return self._running.get(task.array, 0) + self._placed.get(task.array, 0) >= task.most

    def add(self, task: ArrayTask) -> None:
        self._placed[task.array] = self._placed.get(task.array, 0) + 1


def _is_paused(project: str, paused: Mapping[str, str]) -> Reason | None:
    """Why nothing of this project starts now; None where nobody stopped it."""
    for name in ("", project):
        if name in paused:
            subject = f"its project {name}" if name else "the queue"
            why = paused[name]
            return Reason("paused", f"waits for {subject}: it is paused" + (f" ({why})" if why else ""))
    return None


def _array_is_full(task: ArrayTask) -> Reason:
    runs = "one of its tasks runs" if task.most == 1 else f"{task.most} of its tasks run"
    return Reason("array", f"waits for its array: {runs} at once")


def _no_group(wishes: Wishes, pool: Pool) -> str:
    """Why no group could ever satisfy the wishes; empty when one could."""
    sizes = {len(group) for group in pool.groups}
    if wishes.num_gpus > 1 and wishes.num_gpus not in sizes:
        return f"it wants {wishes.num_gpus} GPUs, but the groups have {' or '.join(map(str, sorted(sizes)))}"
    gpus = {card.gpu.key: card.gpu for card in pool.cards if is_allowed(card.gpu, wishes)}
    groups = [
        [gpus[key] for key in group]
        for group in pool.groups
        if wishes.num_gpus in (1, len(group)) and all(key in gpus for key in group)
    ]
    if not groups:
        return f"it wants GPU {' or '.join(wishes.only)} only, but no group lies within that"
    if not any(all(could_hold(gpu, wishes) for gpu in group) for group in groups):
        return _no_memory(wishes, 0, [gpu for group in groups for gpu in group if not could_hold(gpu, wishes)])
    return ""


def _no_memory(wishes: Wishes, roomy: int, gpus: Sequence[Gpu]) -> str:
    size = show_size(wishes.vram)
    if roomy:
        return f"it wants {size} of GPU memory on {wishes.num_gpus} GPUs, but only {roomy} has that much"
    most = max((gpu.memory_total or 0 for gpu in gpus), default=0)
    return f"it wants {size} of GPU memory, but the largest card has {show_size(most)}"
