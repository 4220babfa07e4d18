"""Jobs that were added by jobs, which may wait for them while they hold what these need: then nothing goes on."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from dibs.engine.turn.state import OpenAttempt
from dibs.model.jobs import Job, Reason
from dibs.policy.fitting import host_needs
from dibs.policy.schedule import schedule
from dibs.policy.snapshot import CardView, Snapshot


def parent_of(environment: Mapping[str, str], running: Iterable[OpenAttempt]) -> OpenAttempt | None:
    """The running job in which a job was added, by the environment of that moment."""
    folder = environment.get("DIBS_METRICS", "").rpartition("/")[0]  # a number alone may be one of another queue
    return next((one for one in running if folder and one.attempt.folder == folder), None)


def in_the_way(
    job: Job, snapshot: Snapshot, parents: Iterable[OpenAttempt], running: Iterable[OpenAttempt]
) -> list[OpenAttempt]:
    """Those parents that hold what this job needs, if it cannot start even when all other jobs are over."""
    parents = sorted(parents, key=lambda one: one.job.id)
    left = _with_only(parents, snapshot, running)
    if not parents or schedule(replace(left, waiting=[job])).placements:
        return []
    if not job.request.wishes.num_gpus:
        return parents
    return [one for one in parents if one.attempt.claims]


def reason_of(job: Job, parent: OpenAttempt, holders: list[OpenAttempt], reason: Reason) -> Reason:
    """Why it waits, with what helps."""
    numbers = " and ".join(f"job {one.job.id}" for one in holders)
    waits = "its holder, " if len(holders) == 1 else "its holders, "
    added = "added it and may wait for it" if holders == [parent] else "wait for jobs like it, as they added them"
    remedy = "Executor(nested='inside') runs the calls on the GPUs of their parent"
    if job.request.wishes.num_gpus:
        remedy = f"a job that only waits needs no GPU (num_gpus=0), and {remedy}"
    return Reason(
        "nested", f"{reason.sentence}; {waits}{numbers}, {added}: then nothing goes on; {remedy}", reason.until
    )


def _with_only(parents: list[OpenAttempt], snapshot: Snapshot, running: Iterable[OpenAttempt]) -> Snapshot:
    """The machine when all jobs but the parents are over, and no other program is there."""
    keys = {(one.job.id, one.attempt.number) for one in parents}
    others = [one for one in running if (one.job.id, one.attempt.number) not in keys and not one.job.request.on]
    cpus, mem = 0, 0
    for one in others:
        more_cpus, more_mem = host_needs(one.job.request.wishes, snapshot.lessons)
        cpus, mem = cpus + more_cpus, mem + more_mem
    return replace(
        snapshot,
        cards=tuple(_card_with_only(parents, view) for view in snapshot.cards),
        room_without_gpu=snapshot.room_without_gpu + sum(not one.attempt.claims for one in others),
        cpus_free=None if snapshot.cpus_free is None else snapshot.cpus_free + cpus,
        mem_free=None if snapshot.mem_free is None else snapshot.mem_free + mem,
        array_running={},
        in_use=frozenset(),
        paused={},
    )


def _card_with_only(parents: list[OpenAttempt], view: CardView) -> CardView:
    claims = [claim for one in parents for claim in one.attempt.claims if claim.gpu == view.card.gpu.key]
    return CardView(
        card=view.card,
        taken=sum((claim.share for claim in claims), Fraction(0)),
        vram_taken=sum(claim.vram for claim in claims),
    )
