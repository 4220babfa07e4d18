"""Machines and jobs for the policy, in few words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dibs.model.gpus import Card, Claim, Gpu, Pool, declared_key
from dibs.model.jobs import ArrayTask, Command, Job, JobId, Request, Wishes
from dibs.policy.snapshot import CardView, Hold, Plan, Snapshot

GIB = 1024**3


@dataclass(frozen=True)
class Machine:
    """Cards as they stand now, and the groups in which they are given away."""

    views: tuple[CardView, ...]
    groups: tuple[tuple[str, ...], ...] = ()

    def with_waiting(self, *jobs: Job, **more: Any) -> Snapshot:
        return Snapshot(cards=self.views, groups=self.groups, waiting=jobs, **more)

    def after(self, plan: Plan) -> "Machine":
        """The same machine once everything in the plan runs."""
        claims = [claim for placement in plan.placements for claim in placement.claims]
        return replace(self, views=tuple(_taken_by(view, claims) for view in self.views))

    @property
    def pool(self) -> Pool:
        return Pool(cards=tuple(view.card for view in self.views), groups=self.groups)


def a_machine(
    gpus: int = 2,
    *,
    busy: Sequence[int] = (),
    taken: Mapping[int, str] | None = None,
    slots: Mapping[int, int] | int = 1,
    memory: Sequence[int | None] | int | None = None,
    memory_free: Mapping[int, int] | None = None,
    memory_booked: Mapping[int, int] | None = None,
    blocked: Mapping[int, str] | None = None,
    holders: Mapping[int, tuple[str, ...]] | None = None,
    groups: Sequence[tuple[int, ...]] = (),
    names: Sequence[str] = (),
    until: Mapping[int, float] | None = None,
) -> Machine:
    """Sizes are in GiB. A busy card is wholly taken by `job 99`; what is taken is free again at `until`."""
    views = []
    for index in range(gpus):
        total = memory[index] if isinstance(memory, Sequence) else memory
        gpu = Gpu(key=key(index), index=index, memory_total=None if total is None else total * GIB)
        if names:
            gpu = replace(gpu, name=names[index])
        free = (memory_free or {}).get(index)
        share = Fraction(1 if index in busy else (taken or {}).get(index, 0))
        booked = (memory_booked or {}).get(index, 0) * GIB
        views.append(
            CardView(
                card=Card(gpu=gpu, slots=slots if isinstance(slots, int) else slots.get(index, 1)),
                taken=share,
                vram_taken=booked,
                vram_free=None if free is None else free * GIB,
                blocked=(blocked or {}).get(index, ""),
                holders=(holders or {}).get(index, ("job 99",) if share else ()),
                ends=(Hold(share, booked, (until or {}).get(index)),) if share else (),
            )
        )
    return Machine(tuple(views), tuple(tuple(key(index) for index in group) for group in groups))


_numbers = iter(range(1, 10**9))


def a_job(
    gpus: int = 1,
    *,
    priority: int = 0,
    urgent: bool = False,
    preemptible: bool | None = None,
    share: str | None = None,
    vram: int | None = None,
    only: Sequence[str] = (),
    prefer: Sequence[str] = (),
    retries: int = 0,
    restartable: bool = False,
    tries: int = 0,
    time_limit: float | None = None,
    grace: float = 0.0,
    gpu_type: str = "",
    cpus: int | None = None,
    mem: int | None = None,
    project: str = "",
    array: ArrayTask | None = None,
    retry_on: Sequence[str] = (),
    begin: float | None = None,
    shape: str = "",
) -> Job:
    """A job with a number of its own; memory is in GiB."""
    return Job(
        id=JobId(next(_numbers)),
        tries=tries,
        request=Request(
            command=Command.line("true"),
            priority=priority,
            urgent=urgent,
            preemptible=preemptible,
            retries=retries,
            restartable=restartable,
            time_limit=time_limit,
            grace=grace,
            project=project,
            array=array,
            retry_on=tuple(retry_on),
            begin=begin,
            wishes=Wishes(
                num_gpus=gpus,
                share=None if share is None else Fraction(share),
                vram=None if vram is None else vram * GIB,
                only=tuple(only),
                prefer=tuple(prefer),
                gpu_type=gpu_type,
                cpus=cpus,
                mem=None if mem is None else mem * GIB,
                shape=shape,
            ),
        ),
    )


def key(index: int) -> str:
    return declared_key(index)


def placed(plan: Plan) -> dict[JobId, list[int]]:
    """Who starts, and on which GPUs."""
    return {one.job.id: [claim.index for claim in one.claims] for one in plan.placements}


def _taken_by(view: CardView, claims: Sequence[Claim]) -> CardView:
    ours = [claim for claim in claims if claim.gpu == view.card.gpu.key]
    return replace(
        view,
        taken=view.taken + sum((claim.share for claim in ours), Fraction()),
        vram_taken=view.vram_taken + sum(claim.vram for claim in ours),
    )
