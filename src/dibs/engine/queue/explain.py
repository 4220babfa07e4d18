"""Why a job waits, and when it may start: the policy's own answer, for any job of the queue."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dibs.engine.engine import Engine
from dibs.model.jobs import After, Job, JobId, Reason, Request, State
from dibs.policy.forecast import forecast
from dibs.policy.schedule import fair_order, schedule, waits_for_turn

_MOST_SIMULATED = 500


@dataclass(frozen=True, slots=True)
class WaitExplanation:
    """Why it waits and when it may start; of a job that runs elsewhere, what keeps it. Otherwise both empty."""

    reason: Reason | None = None
    starts_at: float | None = None


@dataclass(frozen=True, slots=True)
class JobProspect:
    """Where and when a job would start, and why not at once. No GPUs: not known."""

    gpus: tuple[int, ...]
    starts_at: float | None
    reason: Reason | None
    shape: str = ""  # with `--vram auto`


class Explain:
    """Asks the policy what it would do. Starts nothing."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._listing = engine.store.listing
        self._clock = clock

    def why(self, number: JobId) -> WaitExplanation:
        job = self._listing.row(number).job
        if job.state is State.HELD:
            why = job.why_held or "held"
            return WaitExplanation(Reason("held", f"is held: {why}; `dibs release {number}` lets it go"))
        if job.state is State.SUBMITTED and self._engine.remote is not None:
            return WaitExplanation(*self._engine.remote.waiting(job))
        if job.state is State.RUNNING and job.request.on and self._engine.remote is not None:
            return WaitExplanation(self._engine.remote.remark(job))
        if job.state is not State.QUEUED:
            return WaitExplanation()
        if job.blockers:
            return WaitExplanation(self._for_others(job))
        if "" in (paused := self._engine.state.paused):
            why = paused[""]
            return WaitExplanation(Reason("paused", f"waits: the queue is paused{f' ({why})' if why else ''}"))
        now = self._clock()
        if job.not_before is not None and job.not_before > now:
            what = "to be tried again" if job.attempts else "for its time"
            return WaitExplanation(Reason("begin", f"waits {what}", until=job.not_before), job.not_before)
        return self._in_line(job, now)

    def check(self, requests: Sequence[Request]) -> list[JobProspect]:
        """What would become of jobs if they were added now; of the first some hundred."""
        now = self._clock()
        following = JobId(self._engine.store.queue.next_number())
        jobs = [
            Job(id=JobId(number), request=replace(request, after=()), not_before=request.begin)
            for number, request in enumerate(requests[:_MOST_SIMULATED], following)
        ]
        apart = {job.id: self._waits_apart(request, now) for job, request in zip(jobs, requests, strict=False)}
        ready = [job for job in jobs if apart[job.id] is None]
        snapshot = self._engine.snapshot(now, ready)
        line = replace(snapshot, waiting=fair_order([*snapshot.waiting, *ready], self._engine.state.served))
        prospects = forecast(line, [job.id for job in ready], self._usual_seconds())
        reasons = schedule(line).reasons
        found = [
            apart[job.id] or JobProspect(prospects[job.id].gpus, prospects[job.id].starts_at, reasons.get(job.id))
            for job in jobs
        ]
        return [replace(one, shape=job.request.wishes.shape) for one, job in zip(found, jobs, strict=True)]

    def _waits_apart(self, request: Request, now: float) -> JobProspect | None:
        """What a job waits for before it stands in line at all; None where it does so at once."""
        if request.hold:
            return JobProspect((), None, Reason("held", "waits until it is released"))
        for needed in request.after:
            state = self._listing.states([needed.job]).get(needed.job)
            if state is not None and not state.is_over:
                sentence = f"waits for job {needed.job} {_WANTED[needed.kind]} (it is {state})"
                return JobProspect((), None, Reason("dependency", sentence))
        if request.begin is not None and request.begin > now:
            return JobProspect((), request.begin, Reason("begin", "waits for its time", until=request.begin))
        if request.on:
            return JobProspect(
                (), None, Reason("backend", f"is handed to {request.on}, which decides when it starts")
            )
        return None

    def _in_line(self, job: Job, now: float) -> WaitExplanation:
        snapshot = self._engine.snapshot(now, [job])
        if all(other.id != job.id for other in snapshot.waiting):
            waiting = fair_order([*snapshot.waiting, job], self._engine.state.served)
            snapshot = replace(snapshot, waiting=waiting)
        reason = schedule(snapshot).reasons.get(job.id)
        starts_at = forecast(snapshot, [job.id], self._usual_seconds())[job.id].starts_at
        if reason is None:
            return WaitExplanation(Reason("starting", "is about to start"), starts_at)
        ahead = self._listing.ahead_of(job.id, now)
        return WaitExplanation(waits_for_turn(ahead, reason) if ahead else reason, starts_at)

    def _for_others(self, job: Job) -> Reason:
        needed = self._listing.blockers(job.id)
        parts = [
            f"job {number} {_WANTED[After(kind)]}{f' (it is {state})' if state else ''}"
            for number, kind, state in needed[:3]
        ]
        more = f" and {len(needed) - 3} more" if len(needed) > 3 else ""
        return Reason("dependency", f"waits for {', '.join(parts)}{more}")

    def _usual_seconds(self) -> Callable[[Job], float | None]:
        """Tells how long a job runs at the most, or how long the last one of its name did."""
        known: dict[tuple[str, str], float | None] = {}

        def usual(job: Job) -> float | None:
            key = (job.request.project, job.request.name)
            if key not in known:
                known[key] = self._listing.seconds_of(*key)
            return job.request.time_limit if known[key] is None else known[key]

        return usual


_WANTED = {After.OK: "to succeed", After.ANY: "to end", After.FAIL: "to fail"}
