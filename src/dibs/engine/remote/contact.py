"""What we know of the attempts that one backend has, and what we have to tell it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dibs.backends.protocol import AttemptRef, Backend, Observed, Submission, Wanted
from dibs.engine.launch.place import Place
from dibs.engine.remote.keys import key_of
from dibs.engine.remote.round import Errand, Findings
from dibs.engine.remote.strays import Strays
from dibs.engine.turn.state import Key, OpenAttempt
from dibs.errors import BackendSilent
from dibs.model.jobs import Request, State

_LONGEST_GATHERING = 1.0  # seconds for which a round waits for more to say
_SELDOM = 5  # so many times the usual pause between two rounds while nothing is open


@dataclass(frozen=True, kw_only=True, slots=True)
class Elsewhere:
    """Another system, and how we use it."""

    title: str  # as it stands in sentences: `Slurm`
    backend: Backend
    place: Place  # what its machines see of our files
    most: int  # attempts that it has at once
    every: float  # seconds between two rounds
    earlier: tuple[Place, ...] = ()  # what its machines saw under earlier settings; attempts of then are there
    root_setting: str = ""  # the setting that says where `place` is
    is_wanted: bool = False  # somebody has set it up, so people want to see it


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteStanding:
    """How another system that has attempts of ours answers."""

    name: str
    attempts: int
    trouble: str  # empty: it does
    remedy: str
    silent_since: float | None  # seconds since the epoch


@dataclass(slots=True)
class Contact:
    """One backend's page in our books. Nothing here must survive: a new engine finds it out again."""

    elsewhere: Elsewhere
    mark: str  # of this queue, so that two queues of one user do not share names over there
    refs: dict[Key, AttemptRef] = field(default_factory=dict)
    unsubmitted: set[Key] = field(default_factory=set)
    stopping: dict[Key, bool] = field(default_factory=dict)  # whose end was asked for; True: at once
    asked_at: dict[Key, float] = field(default_factory=dict)  # when it was; seconds since the epoch
    seen: dict[Key, Observed] = field(default_factory=dict)
    put_off: dict[Key, str] = field(default_factory=dict)  # why it was not taken yet
    trouble: str = ""  # a sentence, while nobody answers
    remedy: str = ""  # what helps against it
    silent_since: float | None = None  # seconds since the epoch
    strays: Strays = field(default_factory=Strays)
    findings: list[Findings] = field(default_factory=list)  # for the next turn
    is_asking: bool = False
    was_used: bool = False
    next_round: float | None = None  # seconds since the epoch; None: there is nothing to ask

    def is_due(self, now: float) -> bool:
        """Whether it is time for a round. A moment that is further away than any pause is of another clock.

        What the last one found is recorded first: otherwise this one would ask about attempts that are over, or
        hand them over again.
        """
        if self.next_round is None or self.is_asking or self.findings:
            return False
        return not 0.0 < self.next_round - now <= self.pause + _LONGEST_GATHERING

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to ask."""
        return bool(self.refs or self.strays.due) or self.strays.looks_out

    @property
    def pause(self) -> float:
        """Seconds between two rounds."""
        return self.elsewhere.every * (1 if self.refs or self.strays.due else _SELDOM)

    def take(self, one: OpenAttempt) -> None:
        """An attempt that is to run there, or does so already."""
        key = one.attempt.key
        self.was_used = True
        self.refs[key] = AttemptRef(key_of(self.mark, one.job), one.attempt.number, one.attempt.folder)
        if one.job.state is not State.RUNNING:
            self.unsubmitted.add(key)

    def drop(self, key: Key) -> None:
        self.strays.look_out()
        self.refs.pop(key, None)
        self.unsubmitted.discard(key)
        for book in (self.stopping, self.asked_at, self.seen, self.put_off):
            book.pop(key, None)

    def errand(
        self,
        open_ones: Mapping[Key, OpenAttempt],
        streams: Callable[[OpenAttempt], tuple[str, str]],
        avoided: Callable[[OpenAttempt], tuple[str, ...]],
        environments: Callable[[str], str],
    ) -> Errand:
        """What there is to do now."""
        place = self.elsewhere.place
        # Whose end was asked for is not handed over any more, unless it may have been already: that is found out.
        fresh = [open_ones[key] for key in self.refs if key in self.unsubmitted and key not in self.stopping]
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
        return Errand(
            stop=[self.refs[key] for key, insists in self.stopping.items() if not insists],
            kill=[self.refs[key] for key, insists in self.stopping.items() if insists],
            # One that was queued again meanwhile under the same name is wanted.
            remove=[stray for stray in self.strays.due if stray not in ours],
            submit=submissions,
            # Nothing is known over there of what was never accepted.
            observe=[ref for key, ref in self.refs.items() if key not in self.unsubmitted or key in self.stopping],
            environments={path: environments(key) for key, path in paths.items() if path != environments(key)},
            mark=self.mark,
            root_setting=self.elsewhere.root_setting,
        )

    def end(self, key: Key, now: float, *, insists: bool = False) -> None:
        """Somebody wants its end."""
        self.stopping[key] = self.stopping.get(key, False) or insists
        self.asked_at.setdefault(key, now)

    def heard(self, findings: Findings, now: float) -> None:
        """Who was accepted is not given again; who was refused, is put off or stands elsewhere by now waits for
        the next turn, which records it."""
        keys = {ref: key for key, ref in self.refs.items()}
        trouble = findings.trouble if self.refs else None  # it is in nobody's way
        self.trouble, self.remedy = ("", "") if trouble is None else (trouble.message, trouble.remedy)
        if not self.refs:
            self.strays.looked(is_silent=isinstance(findings.trouble, BackendSilent))
        if not self.trouble or self.silent_since is None:
            self.silent_since = now if self.trouble else None
        for ref in findings.submitted.accepted:
            if ref in keys:
                self.unsubmitted.discard(keys[ref])
                self.put_off.pop(keys[ref], None)
        refusals = {ref: error.message for ref, error in findings.submitted.refused.items()}
        for ref, why in {**findings.submitted.put_off, **refusals}.items():
            if ref in keys:
                self.put_off[keys[ref]] = why
        self.findings.append(findings)

    @property
    def whole_trouble(self) -> str:
        """Why nobody answers, and what helps; empty where somebody does."""
        return f"{self.trouble}; {self.remedy}" if self.remedy else self.trouble

    @property
    def must_hurry(self) -> bool:
        """Whether some were not reached, and nobody said why."""
        return not self.trouble and bool(self.unsubmitted - self.put_off.keys() - self.stopping.keys())


def wanted_by(request: Request, avoid: tuple[str, ...] = (), *, is_retry: bool = False) -> Wanted:
    return Wanted(
        wishes=request.wishes,
        time_limit=request.time_limit,
        priority=request.priority,
        # A retry is a job by itself over there.
        most=None if request.array is None or is_retry else request.array.most,
        avoid=avoid,
        options=request.on_options,
    )
