"""The order of waiting jobs, and which of them starts where. Pure: the same snapshot gives the same plan."""

import bisect
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dibs.model.gpus import Gpu, Pool
from dibs.model.jobs import ArrayTask, Job, JobId, Reason, Request, Wishes
from dibs.model.units import show_size
from dibs.policy.fitting import (
    could_hold,
    is_allowed,
    is_named,
    is_of_type,
    no_such_type,
    show_cpus,
    show_gpus,
    show_numbers,
    too_few,
    usable_together,
)
from dibs.policy.placement import Placer, exceeds_min_free
from dibs.policy.snapshot import NextTurn, Placement, Plan, Snapshot, SuspendedJob

if TYPE_CHECKING:
    from dibs.policy.preemption import MakingRoom, Preemptor
    from dibs.policy.slices import Turns  # few take turns

MOST_GPUS = 200  # of one job: their locks are handed over in one message, and the kernel takes 253 descriptors


def schedule(snapshot: Snapshot) -> Plan:
    """Place waiting jobs in order. A job that cannot start reserves the cards it waits for.

    Without that reservation a stream of small jobs would pass a wide one for ever. A later job may use reserved
    cards only if it does not delay the earlier one: it is certain to end in time, or it leaves enough free.

    A suspended job goes before waiting jobs of its priority, and reserves its cards likewise. For an urgent job
    that finds no room, preemptible jobs are suspended; what they leave is kept for it. Where projects take turns,
    those are that have had their slice, for the next one (slices.py).
    """
    table = Placer(snapshot)
    plan = Plan()
    preemptor, turns, waiting = None, None, snapshot.waiting
    if snapshot.preemptible or snapshot.turns:
        from dibs.policy.preemption import Preemptor  # few queues suspend jobs

        preemptor = Preemptor(snapshot, table)
    if preemptor is not None and snapshot.turns is not None:
        from dibs.policy import slices

        turns = slices.Turns(snapshot, snapshot.turns, table, preemptor)
        waiting = slices.in_order(snapshot, snapshot.turns)
    suspended = _Suspended(snapshot, table, plan, turns)
    arrays = _Arrays(snapshot)
    away = dict(snapshot.room_away)
    stuck: dict[Hashable, tuple[float, Reason]] = {}
    for job in waiting:
        request = job.request
        suspended.resume_before(job)
        if snapshot.paused and (reason := _is_paused(request.project, snapshot.paused)):
            plan.reasons[job.id] = reason
            continue
        if request.on:
            # The other system decides where it fits, and how many tasks of an array run at once.
            if away.get(request.on, 0) > 0:
                away[request.on] -= 1
                plan.placements.append(Placement(job, ()))
            else:
                full = f"{request.on.capitalize()} has as many jobs as it is given at once"
                plan.reasons[job.id] = Reason("backend", f"waits: {snapshot.why_away.get(request.on, full)}")
            continue
        if request.array is not None and arrays.are_full(request.array):
            plan.reasons[job.id] = _array_is_full(request.array)
            continue
        wishes = request.wishes
        length = longest(job)
        kind = wishes if turns is None else (wishes, request.precedence, turns.party_of(request))
        twin = stuck.get(kind)
        if twin is not None and length >= twin[0]:  # the same wishes and at least as long: it does not fit either
            plan.reasons[job.id] = twin[1]
            continue
        why_not_yet = _why_not_yet(table, job, length, turns)
        claims = None if why_not_yet else table.place(wishes, length)
        if claims is not None:
            plan.placements.append(Placement(job, claims))
            if turns is not None:
                turns.begin(job, claims)
            if request.array is not None:
                arrays.add(request.array)
        elif preemptor and not why_not_yet and (making_room := _make_room(preemptor, turns, job, length)):
            _suspend_for(making_room, plan)
            if request.array is not None:
                arrays.add(request.array)
        elif twin is not None:  # shorter, but it does not fit either: the reservation is for both
            stuck[kind] = (length, twin[1])
            plan.reasons[job.id] = twin[1]
        else:
            turn = NextTurn() if turns is None else turns.tell(job, length)
            yields_to = request.precedence if turns is not None and turn.reason is None else math.inf
            reason = table.wait(wishes, length, yields_to)
            reason = why_not_yet or reason
            stuck[kind] = (length, reason)
            plan.reasons[job.id] = _sooner(reason, turn, plan, job)
    suspended.resume_rest()
    if preemptor is not None:
        for job in snapshot.waiting:
            if job.request.urgent and (waits := plan.reasons.get(job.id)):
                plan.reasons[job.id] = preemptor.and_why_not(job, waits)
    if turns is not None and plan.reasons:
        plan.next_turn = turns.next_end(begins=bool(plan.placements or plan.resumptions))
    return plan


def _why_not_yet(table: Placer, job: Job, length: float, turns: "Turns | None") -> Reason | None:
    """Why a job must not start though there is room for it; None where it may, if there is room."""
    if turns is None:
        return None
    table.let_pass(job.request.precedence)
    if not turns.are_going_on:
        return None
    tried = table.copy().place(job.request.wishes, length)
    return None if tried is None else turns.why_not_start(job, tried)


def _make_room(preemptor: "Preemptor", turns: "Turns | None", job: Job, length: float) -> "MakingRoom | None":
    """Who is suspended so that a job can start, which finds no room."""
    if job.request.urgent and (making_room := preemptor.make_room(job, length)):
        return making_room
    return None if turns is None else turns.take(job, length)


def _suspend_for(making_room: "MakingRoom", plan: Plan) -> None:
    plan.suspensions += making_room.suspensions
    plan.promises.append(making_room.promised)
    plan.reasons[making_room.promised.job.id] = making_room.reason


def _sooner(reason: Reason, turn: NextTurn, plan: Plan, job: Job) -> Reason:
    """Why a job waits: until cards are free by themselves, or until its turn comes."""
    if turn.why_not:
        return replace(reason, sentence=f"{reason.sentence}; {turn.why_not}")
    if turn.reason is None or (reason.until is not None and reason.until <= (turn.reason.until or 0.0)):
        return reason
    plan.promises.append(Placement(job, turn.claims))
    return turn.reason


class _Suspended:
    """The suspended jobs while a plan is made: they go before the waiting ones of their precedence.

    Where turns are taken, those that were suspended first go first, and some waiting jobs before them.
    """

    def __init__(self, snapshot: Snapshot, table: Placer, plan: Plan, turns: "Turns | None") -> None:
        def order(one: SuspendedJob) -> tuple[float, ...]:
            first = (-one.job.request.precedence, one.since) if turns is not None else ()
            return (*first, *_order(one.job))

        self._left = sorted(snapshot.suspended, key=order)
        self._snapshot = snapshot
        self._table = table
        self._plan = plan
        self._turns = turns

    def resume_before(self, job: Job) -> None:
        """Let those go on, or reserve their cards for them, that go before a waiting job."""
        if not self._left:
            return
        precedence, turns = job.request.precedence, self._turns
        later = []
        for one in self._left:
            own = one.job.request.precedence
            if own < precedence or (own == precedence and turns is not None and turns.goes_before(job, one)):
                later.append(one)
            else:
                self._resume(one)
        self._left = later

    def resume_rest(self) -> None:
        for one in self._left:
            self._resume(one)

    def _resume(self, one: SuspendedJob) -> None:
        table, plan, turns, paused = self._table, self._plan, self._turns, self._snapshot.paused
        request, length = one.job.request, longest(one.job)
        table.let_pass(request.precedence if turns is not None else -math.inf)
        if paused and (reason := _is_paused(request.project, paused)):
            plan.reasons[one.job.id] = reason
        elif table.resume(one, length):
            plan.resumptions.append(one)
            if turns is not None:
                turns.begin(one.job, one.claims)
        elif turns is not None and (making_room := turns.take_back(one, length)):
            _suspend_for(making_room, plan)
        else:
            turn = NextTurn() if turns is None else turns.tell_back(one, length)
            yields_to = request.precedence if turns is not None and turn.reason is None else math.inf
            reason = table.wait_to_resume(one, length, yields_to)
            plan.reasons[one.job.id] = _sooner(reason, turn, plan, one.job)


def waits_for_turn(ahead: int, reason: Reason) -> Reason:
    """Why a job waits that has so many others before it; `reason` is why the first of its kind waits."""
    jobs = "1 job goes" if ahead == 1 else f"{ahead:,} jobs go"
    return Reason("turn", f"waits for its turn: {jobs} first; the first {reason.sentence}", reason.until)


def kind_of(request: Request) -> Hashable:
    """The same for all jobs that a plan treats alike; cheaper than the class in the store."""
    array = request.array.array if request.array is not None and request.array.most is not None else None
    return (request.wishes, request.project, request.time_limit, array, request.on, request.urgent)


def longest(job: Job) -> float:
    """Seconds within which the job is certain to end once started: its time limit and its grace."""
    limit = job.request.time_limit
    return math.inf if limit is None else limit + job.request.grace


def exceeds_machine(wishes: Wishes, cpus: int | None, mem: int | None) -> str:
    """Why the CPUs and the memory of the machine could never satisfy the wishes; empty when they could."""
    if cpus is not None and (wishes.cpus or 0) > cpus:
        return f"it wants {show_cpus(wishes.cpus or 0)}, but this machine has {cpus}"
    if mem is not None and (wishes.mem or 0) > mem:
        return f"it wants {show_size(wishes.mem)} of memory, but this machine has {show_size(mem)}"
    return ""


def impossible(
    wishes: Wishes, pool: Pool, cpus: int | None = None, mem: int | None = None, keep_free: int = 0
) -> str:
    """Why this pool could never satisfy the wishes, even when idle; empty when it could.

    `cpus` and `mem` are what the machine has; None where they are not counted. `keep_free` cards stay free for
    others.
    """
    if problem := exceeds_machine(wishes, cpus, mem):
        return problem
    for gpu_id in wishes.only:
        if not any(is_named(card.gpu, (gpu_id,)) for card in pool.cards):
            shown_pool = show_numbers([card.gpu for card in pool.cards])
            return f"it wants GPU {gpu_id} only, which is not among {shown_pool}"
    if wishes.num_gpus > MOST_GPUS:
        return f"it wants {wishes.num_gpus} GPUs, but one job can hold {MOST_GPUS} at the most"
    if wishes.num_gpus and wishes.gpu_type and not any(is_of_type(card.gpu, wishes) for card in pool.cards):
        return f"it wants {show_gpus(wishes)}, but {no_such_type([card.gpu for card in pool.cards])}"
    if pool.groups and wishes.num_gpus:
        return _no_group(wishes, pool) or exceeds_min_free(wishes.num_gpus, pool, keep_free)
    gpus = usable_together((card.gpu for card in pool.cards), wishes)
    if wishes.num_gpus > len(gpus):
        return too_few(wishes, gpus, [card.gpu for card in pool.cards])
    roomy = [gpu for gpu in gpus if could_hold(gpu, wishes)]
    if len(roomy) < wishes.num_gpus:
        return _no_memory(wishes, len(roomy), gpus)
    return exceeds_min_free(wishes.num_gpus, pool, keep_free)


# The key of each wish in the API, and the wish that every pool can satisfy in its place.
_MODEST: Mapping[str, Mapping[str, Any]] = {
    "cpus": {"cpus": None},
    "mem_bytes": {"mem": None},
    "only": {"only": ()},
    "gpu_type": {"gpu_type": ""},
    "vram_bytes": {"vram": None},
    "num_gpus": {"num_gpus": 1},
}


def wish_in_the_way(
    wishes: Wishes, pool: Pool, cpus: int | None = None, mem: int | None = None, keep_free: int = 0
) -> str:
    """The key of the one wish that makes a job impossible; empty where it is not one alone."""
    for key, modest in _MODEST.items():
        other = replace(wishes, **modest)
        if other != wishes and not impossible(other, pool, cpus, mem, keep_free):
            return key
    return ""


class _Arrays:
    """How many tasks of each array run, while a plan is made."""

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
    """Why nothing of this project starts now; None where it is not paused."""
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


def fair_order(waiting: Sequence[Job], served: Mapping[str, float]) -> list[Job]:
    """The jobs in the order in which they should start: the urgent ones first, by priority, then fair
    turns between projects, then age.

    `served` is how many GPUs each project has had so far. The project that was served least goes first; of two
    that were served alike, one that has had nothing yet, then the one whose job was added first. Only differences
    count: a new project starts level with the others.
    """
    jobs = sorted(waiting, key=_order)
    projects = {job.request.project for job in jobs}
    if len(projects) < 2:
        return jobs
    floor = min((served[project] for project in projects if project in served), default=0.0)
    tally = {project: served.get(project, floor) for project in projects}
    found: list[Job] = []
    for _, alike in groupby(jobs, key=lambda job: job.request.precedence):
        found += _turn_by_turn(list(alike), tally, served)
    return found


def weight(job: Job) -> float:
    """What one turn of this job counts: the GPUs it gets, and 1 for a job without a GPU."""
    wishes = job.request.wishes
    return max(1, wishes.num_gpus) * (1.0 if wishes.share is None else float(wishes.share))


def served_after(served: Mapping[str, float], job: Job) -> dict[str, float]:
    """`served` once this job has started."""
    project = job.request.project
    had = served[project] if project in served else min(served.values(), default=0.0)
    return {**served, project: had + weight(job)}


def with_project(served: Mapping[str, float], project: str, active: Collection[str]) -> dict[str, float]:
    """`served` once a project has become active: it is level with the least served of the active ones.

    It cannot save up turns while it is idle, and does not lose by coming late. `active` are the projects with
    waiting or running jobs. Without any, it is level with the most served one.
    """
    others = [served[one] for one in active if one in served and one != project]
    floor = min(others) if others else max(served.values(), default=0.0)
    return {**served, project: max(floor, served.get(project, floor))}


def without_idle(served: Mapping[str, float], active: Collection[str]) -> dict[str, float]:
    """`served` without the idle projects that `with_project` would set to the same value, to keep it small."""
    known = [served[one] for one in active if one in served]
    if not known:
        last = max(served.values(), default=0.0)
        return {project: had for project, had in served.items() if had == last}
    floor = min(known)
    return {project: had for project, had in served.items() if project in active or had > floor}


def _turn_by_turn(jobs: Sequence[Job], tally: dict[str, float], known: Collection[str]) -> list[Job]:
    """Jobs of one priority and in order of age, with turns between the projects. The tally goes on counting."""
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
