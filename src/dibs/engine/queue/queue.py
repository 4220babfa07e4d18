"""The verbs of the queue: add, kill, hold, release, retry, edit, pause, clean.

Those of its cards are in `pool.py`, those of suspensions in `suspensions.py`.

Each call is one change: durable when it returns, and where it raises nothing has changed.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dibs.dataclass import dataclass
from dibs.engine.engine import Engine
from dibs.engine.launch.launcher import Place
from dibs.engine.queue.changed import Changed, why_not
from dibs.engine.queue.explain import Alike, Explain, JobProspect, SharedReason, WaitExplanation
from dibs.engine.queue.gpu_time import keep_gpu_time
from dibs.engine.queue.pool import PoolActions, clear_mark, set_mark
from dibs.engine.queue.requests import check_cards, check_checkpoint, check_order, check_project
from dibs.engine.queue.suspensions import SuspensionActions
from dibs.engine.turn.state import Change
from dibs.errors import BadInput, Conflict, NoSuchJob
from dibs.model.gpus import Pool
from dibs.model.jobs import (
    BEING_RELEASED,
    OVER,
    After,
    Attempt,
    Cause,
    Dependency,
    Job,
    JobId,
    Outcome,
    Request,
    State,
    retry_name,
    retry_names,
)
from dibs.model.records import (
    HoldThere,
    JobCancelled,
    JobEdited,
    JobReleased,
    JobRetried,
    JobsAdded,
    JobsHeld,
    JobsRemoved,
    JobsStopping,
    ListCompleted,
    ListDropped,
    Mark,
    PartEntered,
    PartStaged,
    StagedList,
    StagedPart,
)
from dibs.model.sweeps import trial_of
from dibs.policy.fitting import by_uuid
from dibs.policy.shapes import with_shapes
from dibs.store import journal_lines
from dibs.store.codec import decode_request, encode_requests
from dibs.store.queue import with_arrays

if TYPE_CHECKING:
    from dibs.gpus.probe import Probe

_CALLS_ARE_KEPT = 7 * 86400.0  # seconds; a client that lost an answer repeats the call much sooner
_MOST_AT_ONCE = 1_000  # jobs that are removed in one turn
_HIGHEST_PRIORITY = 999_999
_BY_OWNER = "held by its owner"


@dataclass(frozen=True, slots=True)
class PartPlace:
    """Where the jobs of a request stand in a list that arrives in several requests."""

    offset: int  # jobs before them
    jobs: int  # of the whole list


@dataclass(frozen=True, kw_only=True)
class AddCall:
    """One call of `add`, or a part of one. Repeated with the same key, it returns the same numbers."""

    key: str
    requests: Sequence[Request]
    environment: Mapping[str, str]
    code: Mapping[str, Any] | None = None
    part: PartPlace | None = None  # None: these are all jobs of the call


@dataclass(frozen=True, slots=True)
class Added:
    first: JobId
    last: JobId
    is_new: bool
    missing: int = 0  # jobs of the list that have not arrived; before that none of it is added


@dataclass(frozen=True, kw_only=True, slots=True)
class Cleaned:
    """Jobs that were forgotten, and those of their attempts that other systems ran."""

    jobs: list[Job]
    away: list[Attempt]


@dataclass(frozen=True, slots=True)
class UnusedData:
    """What no job needs any more: the keys of environments, and copies of code."""

    environments: list[str]
    snapshots: list[str]


class Queue:
    """The verbs that change a queue. Questions are answered by `store.listing`."""

    def __init__(
        self,
        engine: Engine,
        place: Place,
        explain: Explain,
        resolve: "Callable[[str, Probe | None], Pool]",
    ) -> None:
        self.pool = PoolActions(engine, resolve)
        self.suspensions = SuspensionActions(engine)
        self._engine = engine
        self._explain = explain
        self._tables = engine.store.queue
        self._lists = engine.store.lists
        self._listing = engine.store.listing
        self._place = place

    # -- adding ----------------------------------------------------------------------------------------

    def add(self, submission: AddCall) -> Added:
        if earlier := self._tables.numbers_of(submission.key):
            return Added(*earlier, is_new=False)
        requests = submission.requests
        if any(request.wishes.shape for request in requests):
            requests = with_shapes(requests, submission.code)
        if not requests:
            raise BadInput("there is no job to add", remedy="name a command")
        if known := self._known_once(requests, is_part=submission.part is not None):
            with self._engine.change() as change:  # a repeated call gets the same answer, also after a clean
                self._tables.remember_call(submission.key, known, known, change.now)
            return Added(known, known, is_new=False)
        whole = None if submission.part is None else self._list_of(submission.key, submission.part)
        self._check_arrays(requests)
        self.check_possible(requests, range(0) if whole is None else range(whole.first, whole.last + 1))
        requests = by_uuid(requests, self._engine.cards.pool)
        snapshot = (submission.code or {}).get("snapshot")
        if isinstance(snapshot, str) and not os.path.isdir(snapshot):
            raise Conflict(f"the copy of the code in {snapshot} is gone", remedy="add the job again")
        if whole is not None and submission.part is not None:
            return self._stage(submission, requests, submission.part, whole)
        with self._engine.change() as change:
            environment, code = self._keep_surroundings(submission)
            jobs = self._enter(requests, environment, code, submission.key, change)
            self._tables.remember_call(submission.key, jobs[0].id, jobs[-1].id, change.now)
        return Added(jobs[0].id, jobs[-1].id, is_new=True)

    def _list_of(self, key: str, place: PartPlace) -> StagedList:
        """The list that this part belongs to, as it was before. It begins with its first part."""
        if (known := self._lists.with_key(key)) is not None:
            return known
        if place.offset:
            raise Conflict(
                "the list is not known any more: its last part arrived too long ago, and none of it was added",
                remedy="add it again from its beginning",
            )
        first = self._tables.next_number()
        return StagedList(first, JobId(first + place.jobs - 1), key)

    def _stage(
        self, submission: AddCall, requests: Sequence[Request], place: PartPlace, whole: StagedList
    ) -> Added:
        """Keep a part of a list. With the last one the list is acknowledged, and `enter_part` makes jobs of it."""
        arrived = place.offset + len(requests)
        if arrived <= whole.arrived:  # its answer was lost
            return Added(whole.first, whole.last, is_new=True, missing=whole.missing)
        is_next = place.offset == whole.arrived and place.jobs == whole.last - whole.first + 1
        if not is_next or arrived > place.jobs:
            raise BadInput(
                "the parts of a list do not fit together",
                remedy="send them one after another, each with its offset and the number of all jobs",
            )
        begin = JobId(whole.first + place.offset)
        for number, request in enumerate(requests, begin):
            check_order(JobId(number), request)
        texts = encode_requests(list(with_arrays(requests, begin)))
        missing = place.jobs - arrived
        with self._engine.change() as change:
            change.record(PartStaged(StagedPart(whole, begin, texts)))
            if not missing:
                environment, code = self._keep_surroundings(submission)
                change.record(ListCompleted(replace(whole, environment=environment, code=code)))
        return Added(whole.first, whole.last, is_new=True, missing=missing)

    def enter_part(self) -> bool:
        """Make jobs of one part of an acknowledged list; False where there is none."""
        part = self._lists.next_part()
        if part is None:
            return False
        whole = part.list
        with self._engine.change() as change:
            requests = [decode_request(text) for text in part.requests]
            jobs = self._tables.number(
                requests, whole.environment, whole.code, first=part.first, batch=whole.first
            )
            change.record(PartEntered(part, jobs))
            for job in jobs:
                change.wait(job)
        return True

    def drop_unfinished(self, before: float) -> int:
        """Forget lists of which no part has arrived since a moment, though some are missing; how many."""
        unfinished = self._lists.unfinished(before)
        if unfinished:
            with self._engine.change() as change:
                for one in unfinished:
                    change.record(ListDropped(one))
        return len(unfinished)

    def _keep_surroundings(self, submission: AddCall) -> tuple[str, str]:
        """Remember the environment and the code of new jobs, inside a change of the engine; their keys."""
        environment = self._engine.store.keep_environment(submission.environment)
        # The file first: a job that is acknowledged must find its environment.
        self._place.keep_environment(environment, submission.environment)
        return environment, self.keep_code(submission.code)

    def is_known(self, key: str, requests: Sequence[Request]) -> bool:
        """Whether `add` has nothing to do: this call was answered before, or its job is there."""
        if self._tables.numbers_of(key) is not None:
            return True
        return any(request.once and self._tables.job_once(request.once) for request in requests)

    def keep_code(self, code: Mapping[str, Any] | None) -> str:
        """Remember what is known about the code of jobs, inside a change of the engine; its key."""
        key, is_new = self._tables.keep_code(code)
        if code and is_new:
            self._engine.recorder.note(journal_lines.coded(key, code))
        return key

    def enter(self, requests: Sequence[Request], environment: str, code: str, change: Change) -> list[Job]:
        """New jobs, inside a change of the engine that records more than them. They were checked before."""
        requests = with_shapes(requests, self._listing.code(code) if code else None)
        return self._enter(by_uuid(requests, self._engine.cards.pool), environment, code, "", change)

    def _enter(
        self, requests: Sequence[Request], environment: str, code: str, key: str, change: Change
    ) -> list[Job]:
        jobs = self._tables.number(requests, environment, code)
        change.record(JobsAdded(jobs, encode_requests([job.request for job in jobs]), key))
        for job in jobs:
            change.wait(job)
        return jobs

    def check_possible(self, requests: Iterable[Request], of_list: range = range(0)) -> None:
        """Raise BadInput for what can never run. Jobs of the same list may be followed before they are added."""
        seen: set[object] = set()
        names = retry_names()
        for request in requests:
            if (kind := (request.wishes, request.on, bool(request.image))) not in seen:
                seen.add(kind)
                if problem := self._engine.why_never(request):
                    remedy = self._engine.remedy_for(request)
                    field = self._engine.wish_to_change(request)
                    raise BadInput(f"a job like this could never start: {problem}", remedy=remedy, field=field)
            if request.after and request.after not in seen:
                seen.add(request.after)
                self._check_follows([needed for needed in request.after if needed.job not in of_list])
            if request.checkpoint is not None:
                check_checkpoint(request.checkpoint, request.time_limit)
            if request.project and request.project not in seen:
                seen.add(request.project)
                check_project(request.project)
            for cause in request.retry_on:
                if retry_name(cause) not in names:
                    remedy = f"causes are {', '.join(names)}"
                    raise BadInput(f"cannot retry on {cause!r}", remedy=remedy, field="retry_on")

    def _check_follows(self, after: Sequence[Dependency]) -> None:
        for needed in after:
            if not self._listing.states([needed.job]):
                raise NoSuchJob(needed.job)
        if hindrance := self._hindrance(after):
            raise BadInput(
                f"a job like this could never start: {hindrance}",
                remedy="`dibs retry` that one first, or use --after-any",
                field="after",
            )

    def _known_once(self, requests: Sequence[Request], *, is_part: bool) -> JobId | None:
        if not any(request.once for request in requests):
            return None
        if len(requests) > 1 or is_part:
            raise BadInput("--once is for one job", remedy="add the jobs one by one, each with a key of its own")
        return self._tables.job_once(requests[0].once)

    def _hindrance(self, after: Sequence[Dependency]) -> str:
        """Which of the jobs that come first has ended otherwise than it should, where one has."""
        for needed in after:
            state = self._listing.states([needed.job]).get(needed.job)
            if state is None and needed.kind is not After.ANY:
                return f"job {needed.job}, which it follows, was cleaned away"
            if state is not None and state.is_over and not needed.kind.is_met_by(state):
                wanted = "succeed" if needed.kind is After.OK else "fail"
                return f"job {needed.job} should {wanted} first, but it {state.phrase}"
        return ""

    def check(self, requests: Sequence[Request]) -> list[JobProspect]:
        """A dry run of `add`: where and when these would start. Raises for what can never run."""
        requests = with_shapes(requests)
        self.check_possible(requests)
        return self._explain.check(requests)

    def why(self, job: JobId) -> WaitExplanation:
        return self._explain.why(job)

    def why_alike(self, jobs: Sequence[JobId], known: Alike | None = None) -> Alike:
        """Why many jobs wait, each answer once."""
        return self._explain.why_alike(jobs, known)

    def reasons(self, most: int) -> list[SharedReason]:
        """Why jobs wait or stand still, each reason once; of those in each such state the first so many."""
        return self._explain.reasons(most)

    def starting_order(self) -> Sequence[JobId]:
        """The first some hundred queued jobs in the order in which they will start."""
        return self._explain.starting_order()

    # -- changing --------------------------------------------------------------------------------------

    def kill(self, jobs: Sequence[JobId], signal: int | None = None, why: str = "") -> Changed:
        """Cancel what waits, stop what runs: TERM, the job's grace, KILL. Or send what runs a signal.

        `why` is what the jobs say of their end afterwards.
        """
        self._tables.find_all(jobs)
        changed = Changed()
        running: list[tuple[JobId, int]] = []
        insists = False
        with self._engine.change() as change:
            for number in jobs:
                job = self._tables.job(number)  # as it is now: one that was killed before may have changed it
                if job.state.is_over:
                    if job.id not in changed.jobs:
                        changed.unchanged.append((job.id, f"it is over ({job.state})"))
                    continue
                if job.state.has_begun or (job.state is State.SUBMITTED and signal is None):
                    if signal is not None and job.request.on:
                        problem = f"it runs on {job.request.on.capitalize()}; leave out the signal to end it"
                        changed.unchanged.append((job.id, problem))
                        continue
                    running.append((job.id, job.attempts))
                    insists |= job.is_stopping
                    if why:
                        change.next.why_stopped[job.id] = why
                elif signal is not None:
                    changed.unchanged.append((job.id, "it has not started; leave out the signal to cancel it"))
                    continue
                else:
                    outcome = Outcome(cause=Cause.STOPPED, message=why or "cancelled before it started")
                    change.record(JobCancelled(job.id, outcome))
                    change.leave(job)
                    changed.cancelled.append(job.id)
                changed.jobs.append(job.id)
            if running and signal is None:
                stopping = [number for number, _ in running]
                change.record(JobsStopping(stopping))
                change.next.stopping.update(stopping)
        # A second `kill` does not wait for the grace.
        command = "kill" if insists else "stop"
        self._engine.send(running, command if signal is None else f"signal {signal}")
        return changed

    def hold(self, jobs: Sequence[JobId], why: str = _BY_OWNER) -> Changed:
        """Keep jobs from starting. What another system has waits there, held as soon as it answers."""
        changed = Changed()
        found = self._tables.find_all(jobs)
        there: list[Job] = []
        with self._engine.change() as change:
            for job in found:
                if job.state is State.SUBMITTED and not (job.is_held_there or job.is_stopping):
                    there.append(job)
                    continue
                if job.state is not State.QUEUED:
                    problem = why_not(job, "only a queued job can be held")
                    changed.unchanged.append((job.id, "it is held already" if job.is_held_there else problem))
                    continue
                change.leave(job)
                changed.jobs.append(job.id)
            if changed.jobs:
                change.record(JobsHeld(changed.jobs, why))
            for job in there:
                _tell_there(job, why, change)
        return self._with_told(changed, there)

    def release(self, jobs: Sequence[JobId]) -> Changed:
        """Let held jobs start; those that another system holds as soon as it answers."""
        changed = Changed()
        found = self._tables.find_all(jobs)
        there: list[Job] = []
        with self._engine.change() as change:
            for job in found:
                if job.is_held_there or self._is_held_by_hand(job):
                    there.append(job)
                    continue
                if job.state is not State.HELD:
                    changed.unchanged.append((job.id, why_not(job, "it is not held")))
                    continue
                if job.request.continues_another and not os.path.isdir(self._place.checkpoint_folder(job.id)):
                    changed.unchanged.append((job.id, "it has no copy of the checkpoint that it continues yet"))
                    continue
                change.record(JobReleased(job.id))
                change.wait(self._tables.job(job.id))
                changed.jobs.append(job.id)
            for job in there:
                _tell_there(job, BEING_RELEASED, change)
        return self._with_told(changed, there)

    def _is_held_by_hand(self, job: Job) -> bool:
        """Whether its system holds it though dibs did not ask for that."""
        remote = self._engine.remote
        return job.state is State.SUBMITTED and not job.why_held and remote is not None and remote.is_held(job)

    def _with_told(self, changed: Changed, there: Sequence[Job]) -> Changed:
        """The same, with jobs of other systems, which are told soon."""
        changed.jobs += [job.id for job in there]
        for on in {job.request.on for job in there}:
            assert self._engine.remote is not None, "only a queue hands its jobs to other systems"
            self._engine.remote.hurry(on)
        return changed

    def retry(self, jobs: Sequence[JobId]) -> Changed:
        """Queue ended jobs again, and with them what was cancelled because of them."""
        changed = Changed()
        todo = sorted(self._tables.find_all(jobs), key=lambda job: job.id)  # what others follow comes first
        with self._engine.change() as change:
            seen = {job.id for job in todo}
            while todo:
                job = self._tables.job(todo.pop(0).id)
                if not job.state.is_over:
                    changed.unchanged.append((job.id, f"it is not over ({job.state})"))
                    continue
                if problem := self._engine.why_never(job.request):
                    changed.unchanged.append((job.id, f"it could never start: {problem}"))
                    continue
                if hindrance := self._hindrance(job.request.after):
                    changed.unchanged.append((job.id, hindrance))
                    continue
                change.record(JobRetried(job.id))
                change.wait(self._tables.job(job.id))
                changed.jobs.append(job.id)
                followers = [number for number in self._tables.stopped_by(job.id) if number not in seen]
                seen.update(followers)
                todo += self._tables.find(followers)
        return changed

    def set_priority(self, jobs: Sequence[JobId], priority: int) -> Changed:
        """Another priority for jobs that wait. Their places among those of the same priority stay."""
        changed = Changed()
        found = self._tables.find_all(jobs)
        with self._engine.change() as change:
            for job in found:
                if job.state not in (State.QUEUED, State.HELD):
                    changed.unchanged.append((job.id, why_not(job, "only what has not started can be changed")))
                    continue
                change.record(JobEdited(replace(job, request=replace(job.request, priority=priority))))
                change.leave(job)
                change.wait(self._tables.job(job.id))
                changed.jobs.append(job.id)
        return changed

    def edit(
        self,
        job: JobId,
        request: Request | None = None,
        *,
        top: bool = False,
        before: JobId | None = None,
        behind: JobId | None = None,
        hold: bool | None = None,
    ) -> Job:
        """Change what a job asks for, or its place, before it starts; beside another one, its priority too.

        `hold` holds it, or releases it, with that.
        """
        (old,) = self._tables.find_all([job])
        new = self._edited(old, request)
        if top:
            highest = min(self._tables.highest_priority(urgent=new.request.urgent) + 1, _HIGHEST_PRIORITY)
            new = replace(new, request=replace(new.request, priority=highest))
        if before is not None:
            other = self._neighbour(new, before, "before")
            new = _beside(new, other, self._tables.rank_before(other))
        if behind is not None:
            other = self._neighbour(new, behind, "behind")
            new = _beside(new, other, self._tables.rank_behind(other))
        with self._engine.change() as change:
            change.record(JobEdited(new))
            if new.request.after != old.request.after:
                self._tables.block_again(job, new.request)
            change.leave(old)
            if hold is True and old.state is State.QUEUED:
                change.record(JobsHeld([job], _BY_OWNER))
            elif hold is False and old.state is State.HELD:
                change.record(JobReleased(job))
            change.wait(self._tables.job(job))
        return new

    def _edited(self, old: Job, request: Request | None) -> Job:
        """The job as it would be; raises where that cannot be."""
        if old.state is State.SUBMITTED:
            raise Conflict(
                f"cannot change job {old.id}: {old.request.on.capitalize()} has it already",
                remedy=f"`dibs kill {old.id}` takes it back, and `dibs retry {old.id}` queues it again",
            )
        if old.state not in (State.QUEUED, State.HELD):
            raise Conflict(
                f"cannot change job {old.id}: it {old.state.phrase}",
                remedy="only what has not started can be changed; `dibs retry` starts an ended job again",
            )
        new = old
        if request is not None:
            (request,) = with_shapes([request], self._listing.code(old.code) if old.code else None)
            check_order(old.id, request)
            check_cards(old, request)
            if request.once != old.request.once:
                self._check_key(old, request.once)
            follows = request.after if request.after != old.request.after else ()
            self.check_possible([replace(request, after=follows)])
            (request,) = by_uuid([request], self._engine.cards.pool)
            new = replace(old, request=request, not_before=request.begin)
        return new

    def _check_arrays(self, requests: Sequence[Request]) -> None:
        """Raise BadInput for tasks that join an array which there never was, or that it has already.

        Another system knows a task by its array and number only: two would be taken for one.
        """
        begin = self._tables.next_number()
        joining: dict[JobId, set[int]] = {}
        for task in (request.array for request in requests):
            if task is None or not task.array:
                continue
            tasks = joining.setdefault(task.array, set())
            if task.task in tasks or self._tables.task_of(task.array, task.task) is not None:
                raise BadInput(
                    f"array {task.array} has a task {task.task} already", remedy="give each task another number"
                )
            tasks.add(task.task)
        for array in joining:
            heads = self._tables.find([array])  # none where it was cleaned away
            if array >= begin or any(
                head.request.array is None or head.request.array.array != array for head in heads
            ):
                raise BadInput(
                    f"there is no array {array}", remedy="the first task of an array gives it its number"
                )

    def _check_key(self, job: Job, once: str) -> None:
        """Raise BadInput where a job cannot have this key for `--once`."""
        if trial_of(job.request.once) is not None:
            raise BadInput(f"job {job.id} is a trial, and has the key of its sweep", remedy="leave out --once")
        if once and (other := self._tables.job_once(once)):
            raise BadInput(f"job {other} has the key {once!r} already", remedy="choose another for --once")

    def _neighbour(self, job: Job, number: JobId, side: str) -> Job:
        """The job that this one is to stand beside."""
        (other,) = self._tables.find_all([number])
        if other.state is not State.QUEUED or other.id == job.id:
            raise Conflict(f"cannot go {side} job {number}", remedy="it does not wait in the queue")
        if other.request.urgent != job.request.urgent:
            raise Conflict(
                f"cannot go {side} job {number}: urgent jobs go before all others",
                remedy=f"`dibs edit {job.id} {'--no-urgent' if job.request.urgent else '--urgent'}` changes that",
            )
        return other

    def clean(self, before: float, states: Sequence[State] = OVER, project: str | None = None) -> Cleaned:
        """Forget jobs that ended before a moment, at most a thousand in one call; return them."""
        away: list[Attempt] = []
        with self._engine.change() as change:
            numbers = self._tables.old_jobs(before, states, project, _MOST_AT_ONCE)
            jobs = self._tables.find(numbers)
            if jobs:
                for job in jobs:
                    if job.request.on or job.attempts > 1:  # an edit may have brought it back to this machine
                        rows = self._listing.attempts(job.id)
                        away += [row.attempt for row in rows if row.attempt.backend]
                keep_gpu_time(self._engine.store, numbers, change.now)
                change.record(JobsRemoved(numbers))
        return Cleaned(jobs=jobs, away=away)

    def tidy_up(self) -> UnusedData:
        """Forget what no job needs any more."""
        with self._engine.change() as change:
            self._tables.forget_calls(change.now - _CALLS_ARE_KEPT)
            return UnusedData(*self._tables.forget_unused())

    def forget_lessons(self, shape: str | None = None) -> int:
        """Forget what was learned of one shape, or of all; how many lessons that were."""
        with self._engine.change():
            return self._engine.store.lessons.forget(shape)

    # -- pausing ---------------------------------------------------------------------------------------

    def pause(self, project: str = "", why: str = "") -> bool:
        """Start nothing more, of one project or at all; what runs goes on. False where that was so already."""
        subject = f"project {project}" if project else "queue"
        if any(mark.subject == subject for mark in self._listing.marks()):
            return False
        with self._engine.change() as change:
            set_mark(change, Mark(subject, "paused", why, change.now))
        return True

    def unpause(self, project: str = "") -> bool:
        with self._engine.change() as change:
            return clear_mark(change, f"project {project}" if project else "queue")


def _beside(job: Job, other: Job, rank: float) -> Job:
    """The job at this place of the other's priority."""
    return replace(job, rank=rank, request=replace(job.request, priority=other.request.priority))


def _tell_there(job: Job, why: str, change: Change) -> None:
    """Have the system that has this job hold it, or let it go: each round with it sees to that."""
    change.record(HoldThere(job.id, why))
    key = (job.id, job.attempts)
    one = change.next.remote[key]
    change.next.remote[key] = replace(one, job=replace(one.job, why_held=why))
