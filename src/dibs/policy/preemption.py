"""Which preemptible jobs are suspended so that an urgent one can start, and how long that takes. Pure.

The least valuable ones are suspended, and never more than needed: those of the lowest priorities, of these as few
as possible, with the fewest bytes to move. A job that ends soon by itself is rather left alone, and one that can
only save its work and end, rather than one that loses nothing.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from dibs.dataclass import dataclass
from dibs.model.gpus import Claim
from dibs.model.jobs import Job, Reason
from dibs.model.suspensions import Rung, too_much_to_move
from dibs.model.units import show_duration, show_size
from dibs.policy.placement import Placer
from dibs.policy.snapshot import MoveRate, MoveSpeed, Placement, PreemptibleJob, Preemption, Snapshot

_MOST_TRIALS = 600  # sets of jobs that are tried for one urgent job; then the best one so far is taken
_MOST_NAMED = 3  # jobs in a sentence
_LARGE = 256 * 1024**2  # bytes; what moves less tells the cost of the start, what moves more the speed
_LONGEST_START = 60.0  # seconds
_SLOWEST = 256 * 1024**2  # bytes of a card's memory in a second

# What a set of jobs is worth: their priorities, the highest first; how many lose work; bytes; seconds until they
# end by themselves.
_Worth = tuple[tuple[int, ...], int, int, tuple[float, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class MakingRoom:
    """Why a job waits for others to be suspended, and those of them that must be told."""

    reason: Reason
    suspensions: list[Preemption]
    promised: Placement  # what it gets then


class Preemptor:
    """Makes room for the jobs of one plan: what is kept for one of them is not there for the next."""

    def __init__(self, snapshot: Snapshot, table: Placer) -> None:
        self._table = table
        self._speed = snapshot.move_speed
        self._leaving: list[PreemptibleJob] = []
        self._candidates: list[PreemptibleJob] = []
        self._spared: list[PreemptibleJob] = []  # preemptible, and yet they stay
        self._now = snapshot.now
        self._memory = snapshot.memory_to_fill
        for one in snapshot.preemptible:
            if one.is_leaving:
                self._leave(one)
            elif one.yields_to_urgent and one.claims and not one.job.request.urgent:
                (self._spared if one.why_not else self._candidates).append(one)

    @property
    def memory(self) -> int | None:
        """How many bytes of the machine's memory can still be filled; None: that is not known."""
        return self._memory

    def leaves(self, one: PreemptibleJob) -> bool:
        """Whether a job is being suspended, or is to be in this plan."""
        return one in self._leaving

    def make_room(self, job: Job, length: float) -> MakingRoom | None:
        """What is suspended for this urgent job, which cannot be placed now; None where no suspension helps.

        Nothing is, where those that are being suspended already leave enough: then it waits for these.
        """
        if not job.request.wishes.num_gpus:
            return None
        victims: Sequence[PreemptibleJob] = ()
        if self._claims_after((), job, length) is None:
            victims = self._least_valuable(job, length)
            if not victims or self._moves_too_much(victims):
                return None
        claims = self._claims_after(victims, job, length)
        assert claims is not None
        return self.suspend(victims, job, claims)

    def suspend(
        self, victims: Iterable[PreemptibleJob], job: Job, claims: tuple[Claim, ...], *, is_new: bool = True
    ) -> MakingRoom:
        """Suspend these, and keep the claims for this job. `is_new`: it has not begun, and has booked nothing."""
        victims = list(victims)
        for one in victims:
            if one in self._candidates:
                self._candidates.remove(one)
            self._leave(one)
            if self._memory is not None:
                self._memory = max(0, self._memory - one.held)
        self._table.promise(job.request.wishes if is_new else None, claims)
        cards = {claim.gpu for claim in claims}
        awaited = [one for one in self._leaving if cards & {claim.gpu for claim in one.claims}]
        suspensions = [Preemption(one.key, one.job, job.id) for one in victims]
        return MakingRoom(self._waits_for(awaited), suspensions, Placement(job, claims))

    def and_why_not(self, job: Job, reason: Reason) -> Reason:
        """The reason of an urgent job for which nothing is suspended, with the preemptible jobs that stay."""
        cards = self._table.allowed(job.request.wishes)
        stay = [one for one in self._spared if any(claim.gpu in cards for claim in one.claims)]
        if reason.code != "no-gpu" or not stay:
            return reason
        parts = [f"job {one.job.label} is preemptible, but {one.why_not}" for one in stay[:_MOST_NAMED]]
        more = [f"{len(stay) - _MOST_NAMED} more stay"] if len(stay) > _MOST_NAMED else []
        return replace(reason, sentence="; ".join([reason.sentence, *parts, *more]))

    def _leave(self, one: PreemptibleJob) -> None:
        self._leaving.append(one)
        self._table.leave(one)

    def _claims_after(
        self, victims: Iterable[PreemptibleJob], job: Job, length: float
    ) -> tuple[Claim, ...] | None:
        """The claims that the job gets once these have been suspended, beside those that leave already."""
        return self._table.after(victims).place(job.request.wishes, length)

    def _least_valuable(self, job: Job, length: float) -> Sequence[PreemptibleJob]:
        """The set of jobs of the least worth whose departure makes room; none where not even all of them do.

        A part of a set is always worth less than the set: so none of the set found can be left out.
        """
        if self._claims_after(self._candidates, job, length) is None:
            return ()
        found = self._without_most_valuable(job, length)
        tried = 0
        for size in range(1, len(found) + 1):
            for some in combinations(self._candidates, size):
                tried += 1
                if tried > _MOST_TRIALS:
                    return found
                is_better = self._worth(some) < self._worth(found) or self._moves_too_much(found)
                if not is_better or self._moves_too_much(some):
                    continue
                if self._claims_after(some, job, length) is not None:
                    found = list(some)
        return found

    def _moves_too_much(self, some: Iterable[PreemptibleJob]) -> bool:
        """Whether the machine's memory cannot take all of them: each of them alone fits."""
        return bool(too_much_to_move(sum(one.held for one in some), self._memory))

    def _without_most_valuable(self, job: Job, length: float) -> list[PreemptibleJob]:
        """A set that makes room, from which none can be left out: the most valuable jobs are spared first."""
        found = sorted(self._candidates, key=lambda one: self._worth([one]))
        for one in reversed(list(found)):
            others = [other for other in found if other is not one]
            if self._claims_after(others, job, length) is not None:
                found = others
        return found

    def _worth(self, some: Sequence[PreemptibleJob]) -> _Worth:
        return (
            tuple(sorted((one.job.request.priority for one in some), reverse=True)),
            sum(one.rung is Rung.CHECKPOINT for one in some),
            sum(one.held for one in some),
            tuple(sorted(-math.inf if one.ends_at is None else self._now - one.ends_at for one in some)),
            tuple(sorted(-one.job.id for one in some)),  # of equal ones those that were added last
        )

    def _waits_for(self, leaving: Sequence[PreemptibleJob]) -> Reason:
        moved = [one for one in leaving if one.rung is Rung.CUDA]
        saving = [one for one in leaving if one.rung is Rung.CHECKPOINT]
        parts, until = [], self._now
        if moved:
            size = sum(one.held for one in moved)
            parts.append(f"{_named(moved)} to be suspended, {time_to_move(size, self._speed)}")
            until = self._begun(moved) + expected_seconds(size, self._speed)
        if saving:
            seconds = max(one.job.request.checkpoint.seconds for one in saving if one.job.request.checkpoint)
            parts.append(f"{_named(saving)} to save a checkpoint and end, within {show_duration(seconds)}")
            until = max(until, self._begun(saving) + seconds)
        # None: it takes longer than others did.
        return Reason("suspending", f"waits for {', and for '.join(parts)}", until if until > self._now else None)

    def _begun(self, leaving: Iterable[PreemptibleJob]) -> float:
        return min((one.leaving_since for one in leaving if one.leaving_since is not None), default=self._now)


def _named(jobs: Sequence[PreemptibleJob]) -> str:
    names = [one.job.label for one in jobs]
    return f"job {names[0]}" if len(names) == 1 else f"jobs {', '.join(names[:-1])} and {names[-1]}"


def expected_seconds(size: int, speed: MoveSpeed, *, resumes: bool = False) -> float:
    """How long it will take to suspend a job that holds so many bytes, or to resume it."""
    return (speed.resume if resumes else speed.suspend).seconds(size)


def time_to_move(size: int, speed: MoveSpeed, *, resumes: bool = False) -> str:
    """The same for people: `about 13s for 20G`."""
    seconds = max(1, round(expected_seconds(size, speed, resumes=resumes)))
    time = f"{seconds}s" if seconds < 10 else show_duration(seconds)  # no tenths of what is estimated
    return f"about {time} for {show_size(size)}" if size else f"about {time}"


def longest_move(size: int) -> float:
    """Seconds after which it is not expected any more that so many bytes will have been moved."""
    return _LONGEST_START + size / _SLOWEST


def learned_speed(suspended: Iterable[tuple[int, float]], resumed: Iterable[tuple[int, float]]) -> MoveSpeed:
    """The speed by earlier suspensions and resumptions: of each the bytes and the seconds."""
    usual = MoveSpeed()
    return MoveSpeed(_learned_rate(usual.suspend, suspended), _learned_rate(usual.resume, resumed))


def _learned_rate(usual: MoveRate, moves: Iterable[tuple[int, float]]) -> MoveRate:
    """Medians: the first move after a start of the machine takes twice as long.

    What was interrupted, or while the clock was set, tells nothing.
    """
    moves = [(size, seconds) for size, seconds in moves if 0 < seconds <= longest_move(size)]
    small = [seconds for size, seconds in moves if size < _LARGE]
    start = _median(small) if small else usual.start
    large = [size / max(seconds - start, seconds / 10) for size, seconds in moves if size >= _LARGE]
    return MoveRate(_median(large) if large else usual.bytes_per_second, start)


def _median(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]
