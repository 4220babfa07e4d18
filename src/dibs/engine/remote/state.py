"""What is known of one other system: its attempts, what it is to be told, and what it brought back."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from dibs.backends.protocol import AttemptRef, Backend, Identity, Observed, Resources, Submission
from dibs.dataclass import dataclass
from dibs.engine.launch.launcher import Place
from dibs.engine.remote.round import RoundPlan, RoundResult
from dibs.engine.turn.state import Key, OpenAttempt
from dibs.errors import BackendSilent, NoSuchJob
from dibs.model.jobs import BEING_RELEASED, Attempt, Job, Request, State
from dibs.store.listing import Listing

_LONGEST_GATHERING = 1.0  # seconds for which a round waits for more to say
_SELDOM = 5  # the usual pause between two rounds times this, while nothing is open
_FIRST_PAUSE, _LONGEST_PAUSE = 60.0, 3600.0  # seconds until the same stray is removed again
_LOOKS = 40  # after the last end; a controller saves within seconds, so later it has nothing old to bring back
_SILENT_LOOKS = 6000  # without an answer, until none is expected any more: about a day
_SHOWN = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteSystem:
    """Another system, and how it is used."""

    title: str  # as in sentences: `Slurm`
    backend: Backend
    place: Place  # where its machines see our files
    most: int  # attempts that it has at the same time
    every: float  # seconds between two rounds
    earlier: tuple[Place, ...] = ()  # under earlier settings; attempts from then are still there
    root_setting: str = ""  # the setting that says where `place` is
    is_wanted: bool = False  # it is set up, so that users want to see it
    why_no_image: str = ""  # why its machines can run no command in a container; empty: they can


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteStanding:
    """How another system that has attempts of ours answers."""

    name: str
    attempts: int
    trouble: str  # empty: it answers
    remedy: str
    silent_since: float | None  # seconds since the epoch


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteFolders:
    """Where attempts on other systems have their folders. Other queues may have theirs beside them."""

    here: Place  # the queue's own; attempts on other systems may be there as well
    now: tuple[Place, ...]  # for new attempts, if not here
    earlier: tuple[Place, ...]  # of earlier settings
    mark: str  # a folder of this name belongs to this queue, at any place

    @property
    def elsewhere(self) -> tuple[Place, ...]:
        """All but the queue's own."""
        return (*self.now, *self.earlier)

    def of(self, attempt: Attempt) -> list[Place]:
        """The places, other than here, in which an attempt may have left something.

        These are the recorded one, and the present ones: all folders may have been moved. A recorded place counts
        only if it belongs to this queue.
        """
        found = {place.root: place for place in self.now}
        recorded = self.here.home_of(attempt)
        if recorded is not None and self._has(recorded):
            found[recorded.root] = recorded
        found.pop(self.here.root, None)
        return list(found.values())

    def _has(self, place: Place) -> bool:
        is_known = place.root in {one.root for one in self.elsewhere}
        return is_known or os.path.basename(place.root) == self.mark


@dataclass(slots=True)
class Strays:
    """Attempts that another system brought back though they are over here.

    A controller that crashed goes on with what it had saved, and so with jobs that were cancelled since. The fence
    keeps their commands from running, but until they start they are in its queue and count against limits. Nothing
    here must survive: a new engine looks again.
    """

    due: list[Identity] = field(default_factory=list)  # to be removed with the next round
    _tried: dict[Identity, tuple[float, float]] = field(default_factory=dict)  # when, and the pause after it
    _looks: int = 0
    _silent_looks: int = 0

    @property
    def is_searching(self) -> bool:
        """Whether to go on asking though nothing is open there."""
        return self._looks > 0 and self._silent_looks > 0

    def search_again(self) -> None:
        """Something has ended there, or may have done so under an earlier engine."""
        self._looks, self._silent_looks = _LOOKS, _SILENT_LOOKS

    def looked(self, *, is_silent: bool) -> None:
        """A look while nothing is open. A silent system may come back with old jobs: the count begins again."""
        if is_silent:
            self._looks, self._silent_looks = _LOOKS, self._silent_looks - 1
        else:
            self._looks -= 1

    def stop_looking(self) -> None:
        self._looks = 0

    def consider(
        self, seen: Iterable[Identity], is_over: Callable[[Identity], bool], now: float
    ) -> list[Identity]:
        """Choose those to remove now. One that is still there then is tried again after growing pauses."""
        there = set(seen)
        self._tried = {one: (at, pause) for one, (at, pause) in self._tried.items() if one in there}
        chosen = []
        for one in sorted(there):
            at, pause = self._tried.get(one, (now, 0.0))
            if 0 <= now - at < pause:
                continue
            if is_over(one):
                chosen.append(one)
                self._tried[one] = (now, min(max(_FIRST_PAUSE, 2 * pause), _LONGEST_PAUSE))
            else:
                self._tried[one] = (now, _FIRST_PAUSE)
        self.due = [*self.due, *chosen]
        return chosen


def is_stray_over(listing: Listing, backend: str, mark: str, stray: Identity) -> bool:
    """Whether the store knows for certain that this attempt is over.

    An attempt is recorded before it is submitted, so one that is not known here belongs to a job that was cleaned
    away, or the store is an older copy: it is left to the fence.
    """
    key, number = stray
    text = key.removeprefix(f"{mark}-")
    if not re.fullmatch(r"[0-9]{1,18}(_[0-9]{1,18})?", text):
        return False
    try:
        jobs = listing.find(text)
    except NoSuchJob:
        return False
    if len(jobs) != 1:  # tasks of the same number, from an earlier version: which one it was is not known
        return False
    job = jobs[0]
    row = listing.row(job)
    if key_of(mark, row.job) != key:
        return False
    for one in listing.attempts(job):
        if one.attempt.number == number:
            return one.attempt.backend == backend and one.ended_at is not None
    # Forgotten over there before it started, and then cancelled here: without an attempt, and without a fence.
    return row.job.state.is_over and row.job.request.on == backend and number == row.job.attempts + 1


def strays_sentence(title: str, mark: str, strays: list[Identity]) -> str:
    names = [f"{key.removeprefix(f'{mark}-')}.{number}" for key, number in strays]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{title} brought back what is over; it is taken out of its queue: {', '.join(names[:_SHOWN])}{more}"


@dataclass(slots=True)
class RemoteState:
    """What is known of one system's attempts. Nothing here must survive: a new engine finds it out again."""

    system: RemoteSystem
    mark: str  # of this queue, so that two queues of one user do not share names over there
    refs: dict[Key, AttemptRef] = field(default_factory=dict)
    unsubmitted: set[Key] = field(default_factory=set)
    untouched: set[Key] = field(default_factory=set)  # of these: no round has tried to hand them over
    handing: set[Key] = field(default_factory=set)  # untouched before the round that is under way
    kept: set[Key] = field(
        default_factory=set
    )  # of the unsubmitted: held at the last round, not to be handed over
    stopping: dict[Key, bool] = field(default_factory=dict)  # to be ended; True: at once
    asked_at: dict[Key, float] = field(default_factory=dict)  # when that was asked for; seconds since the epoch
    seen: dict[Key, Observed] = field(default_factory=dict)
    put_off: dict[Key, str] = field(default_factory=dict)  # why it was not accepted yet
    trouble: str = ""  # a sentence, while the system does not answer
    remedy: str = ""
    silent_since: float | None = None  # seconds since the epoch
    is_silent: bool = False  # at the last round: nothing more is begun there until it answers
    is_awaited: bool = False  # it is silent, and jobs of the queue wait for its answer
    strays: Strays = field(default_factory=Strays)
    results: list[RoundResult] = field(default_factory=list)  # for the next turn
    is_asking: bool = False
    was_used: bool = False
    next_round: float | None = None  # seconds since the epoch; None: there is nothing to ask

    def is_due(self, now: float) -> bool:
        """Whether it is time for a round. A moment that is further away than any pause comes from another clock.

        The results of the last round are recorded first: otherwise this one would ask about attempts that are
        over, or submit them again.
        """
        if self.next_round is None or self.is_asking or self.results:
            return False
        return not 0.0 < self.next_round - now <= self.pause + _LONGEST_GATHERING

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to ask."""
        return bool(self.refs or self.strays.due) or self.strays.is_searching or self.is_awaited

    @property
    def pause(self) -> float:
        """Seconds between two rounds."""
        return self.system.every * (1 if self.refs or self.strays.due or self.is_awaited else _SELDOM)

    def take(self, one: OpenAttempt) -> None:
        """An attempt that is to run there, or does so already."""
        key = one.attempt.key
        self.was_used = True
        self.refs[key] = AttemptRef(key_of(self.mark, one.job), one.attempt.number, one.attempt.folder)
        if one.job.state is not State.RUNNING:
            self.unsubmitted.add(key)

    def drop(self, key: Key) -> None:
        self.strays.search_again()
        self.refs.pop(key, None)
        self.unsubmitted.discard(key)
        self.untouched.discard(key)
        self.kept.discard(key)
        for by_key in (self.stopping, self.asked_at, self.seen, self.put_off):
            by_key.pop(key, None)

    def plan_round(
        self,
        open_ones: Mapping[Key, OpenAttempt],
        streams: Callable[[OpenAttempt], tuple[str, str]],
        avoided: Callable[[OpenAttempt], tuple[str, ...]],
        environments: Callable[[str], str],
    ) -> RoundPlan:
        """What there is to do now."""
        place = self.system.place
        jobs = {key: open_ones[key].job for key in self.refs if key in open_ones and key not in self.stopping}
        held = {key for key, job in jobs.items() if job.is_held_there}
        self.kept = held & self.unsubmitted
        # One that is to end or is held is not handed over any more, unless it may have been already: a look tells.
        left = self.stopping.keys() | self.kept
        fresh = [open_ones[key] for key in self.refs if key in self.unsubmitted and key not in left]
        self.handing = {one.attempt.key for one in fresh} & self.untouched
        self.untouched -= self.handing
        submissions = [
            Submission(
                ref=self.refs[one.attempt.key],
                spec=place.spec(one.job, one.attempt, *streams(one)),
                wanted=wanted_by(one.job.request, avoided(one), is_retry=one.attempt.number > 1),
            )
            for one in fresh
        ]
        ours = {(ref.key, ref.attempt) for ref in self.refs.values()}
        paths = {one.job.environment: place.environment_path(one.job.environment) for one in fresh}
        return RoundPlan(
            stop=[self.refs[key] for key, insists in self.stopping.items() if not insists],
            kill=[self.refs[key] for key, insists in self.stopping.items() if insists],
            hold=[self.refs[key] for key in held if self._waits_there(key, is_held=False)],
            release=[
                self.refs[key]
                for key, job in jobs.items()
                if job.why_held == BEING_RELEASED and self._waits_there(key, is_held=True)
            ],
            keep=[self.refs[key] for key in self.kept],
            # One that was queued again meanwhile under the same name is wanted.
            remove=[stray for stray in self.strays.due if stray not in ours],
            submit=submissions,
            # Nothing is known over there of what was never accepted.
            observe=[ref for key, ref in self.refs.items() if key not in self.unsubmitted or key in left],
            environments={path: environments(key) for key, path in paths.items() if path != environments(key)},
            mark=self.mark,
            root_setting=self.system.root_setting,
        )

    def _waits_there(self, key: Key, *, is_held: bool) -> bool:
        """Whether it was seen there, held or not."""
        return (seen := self.seen.get(key)) is not None and seen.is_held is is_held

    def end(self, key: Key, now: float, *, insists: bool = False) -> None:
        """The attempt is to end."""
        self.stopping[key] = self.stopping.get(key, False) or insists
        self.asked_at.setdefault(key, now)

    def take_in(self, result: RoundResult, now: float) -> None:
        """Remember what a round found. The next turn records it."""
        keys = {ref: key for key, ref in self.refs.items()}
        self.is_silent = isinstance(result.trouble, BackendSilent)
        if not result.has_submitted:
            result.never_ran = frozenset(self.handing & self.refs.keys())
        trouble = result.trouble if self.refs or self.is_awaited else None  # otherwise no job waits for it
        self.trouble, self.remedy = ("", "") if trouble is None else (trouble.message, trouble.remedy)
        if not self.refs:
            self.strays.looked(is_silent=self.is_silent)
        if not self.trouble or self.silent_since is None:
            self.silent_since = now if self.trouble else None
        for ref in result.submitted.accepted:
            if ref in keys:
                self.unsubmitted.discard(keys[ref])
                self.put_off.pop(keys[ref], None)
        refusals = {ref: error.message for ref, error in result.submitted.refused.items()}
        for ref, why in {**result.submitted.put_off, **refusals}.items():
            if ref in keys:
                self.put_off[keys[ref]] = why
        self.results.append(result)

    @property
    def whole_trouble(self) -> str:
        """Why the system does not answer, and what helps; empty where it does."""
        return f"{self.trouble}; {self.remedy}" if self.remedy else self.trouble

    @property
    def must_hurry(self) -> bool:
        """Whether some attempts were neither accepted nor put off, though the system answers."""
        left = self.unsubmitted - self.put_off.keys() - self.stopping.keys() - self.kept
        return not self.trouble and bool(left)


def key_of(mark: str, job: Job) -> str:
    """What other systems call a job: the queue's mark and the job's number, or the array's with the element."""
    return f"{mark}-{job.reference}"


def wanted_by(request: Request, avoid: tuple[str, ...] = (), *, is_retry: bool = False) -> Resources:
    return Resources(
        wishes=request.wishes,
        time_limit=request.time_limit,
        priority=request.priority,
        # A retry is a job by itself over there.
        most=None if request.array is None or is_retry else request.array.most,
        avoid=avoid,
        options=request.on_options,
        container_paths=_container_paths(request) if request.image and not request.container_engine else (),
    )


def _container_paths(request: Request) -> tuple[str, ...]:
    from dibs.model.mounts import parse_mount  # few jobs need it

    named = [path for mount in map(parse_mount, request.mounts) for path in (mount.source, mount.target)]
    return tuple(filter(None, (request.workdir, *named)))
