"""A machine that does not exist, and which rules of the policy hold on it."""

import math
from dataclasses import dataclass, replace

from dibs.model.gpus import Gpu, declared_key
from dibs.model.jobs import Job
from dibs.model.pool import Card, Pool


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedMachine:
    """GPUs that are all alike. None: not counted."""

    num_gpus: int
    gpu_memory: int | None = None  # bytes of each
    gpu_type: str = ""
    slots: int = 1  # jobs on each card that ask for no share
    cpus: int | None = None
    mem: int | None = None  # bytes

    @property
    def pool(self) -> Pool:
        return Pool(
            cards=tuple(
                Card(
                    gpu=Gpu(
                        key=declared_key(index), index=index, name=self.gpu_type, memory_total=self.gpu_memory
                    ),
                    slots=self.slots,
                )
                for index in range(self.num_gpus)
            )
        )

    @property
    def room_without_gpu(self) -> int:
        """How many jobs for no GPU run at once: as in the queue, one on each processor."""
        return 10**9 if self.cpus is None else self.cpus


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """What of the policy holds. The policy itself is always the same: without a rule it is told less."""

    backfill: bool = True  # off: it knows of no time limit, so nobody is sure to be over in time
    turns: bool = True  # off: it knows of no project, so it goes by priority and age
    packing: bool = True  # off: it knows of no share, memory or slot, so every job has its cards to itself

    @property
    def missing(self) -> list[str]:
        return [name for name in ("backfill", "turns", "packing") if not getattr(self, name)]

    def machine(self, machine: SimulatedMachine) -> SimulatedMachine:
        return machine if self.packing else replace(machine, slots=1)

    def job(self, job: Job) -> Job:
        """The job as the policy is told of it."""
        request = job.request
        if not self.backfill:
            request = replace(request, time_limit=None)
        if not self.turns:
            request = replace(request, project="")
        if not self.packing:
            request = replace(request, wishes=replace(request.wishes, share=None, vram=None))
        return job if request is job.request else replace(job, request=request)


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrival:
    """A job, when it came, and how long it runs once it has started."""

    job: Job
    queued_at: float  # seconds since the trace began
    seconds: float
    really_waited: float | None = None  # seconds, where it was recorded

    @property
    def runs(self) -> float:
        """Seconds until it ends. Where its time limit comes first, it ends there."""
        request = self.job.request
        limit = math.inf if request.time_limit is None else request.time_limit
        return self.seconds if self.seconds <= limit + request.grace else limit

    @property
    def is_cut(self) -> bool:
        return self.runs < self.seconds
