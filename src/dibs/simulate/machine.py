"""A simulated machine, the rules of the policy that are on, and the jobs that arrive."""

import math
from dataclasses import replace

from dibs.dataclass import dataclass
from dibs.model.gpus import Card, Gpu, Pool, declared_key
from dibs.model.jobs import Job


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedMachine:
    """A machine with identical GPUs. None: not counted."""

    num_gpus: int
    gpu_memory: int | None = None  # bytes of each
    gpu_type: str = ""
    slots: int = 1  # jobs without a share on each card
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
        """How many jobs without a GPU run at once: as in the queue, one per CPU."""
        return 10**9 if self.cpus is None else self.cpus


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The rules that are on. The policy is always the same: without a rule it gets less information."""

    backfill: bool = True  # off: it gets no time limits, so no job is known to end in time
    turns: bool = True  # off: it gets no projects, so it orders by priority and age
    packing: bool = True  # off: it gets no shares, memory or slots, so every job has whole cards

    @property
    def missing(self) -> list[str]:
        return [name for name in ("backfill", "turns", "packing") if not getattr(self, name)]

    def machine(self, machine: SimulatedMachine) -> SimulatedMachine:
        return machine if self.packing else replace(machine, slots=1)

    def job(self, job: Job) -> Job:
        """The job as the policy gets it."""
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
    """A job, when it arrives, and how long it runs once it has started."""

    job: Job
    queued_at: float  # seconds since the trace began
    seconds: float
    really_waited: float | None = None  # seconds, where it was recorded

    @property
    def runs(self) -> float:
        """Seconds until it ends, at its time limit at the latest."""
        request = self.job.request
        limit = math.inf if request.time_limit is None else request.time_limit
        return self.seconds if self.seconds <= limit + request.grace else limit

    @property
    def is_cut(self) -> bool:
        return self.runs < self.seconds
