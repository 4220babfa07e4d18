"""Time slices: projects, and sweeps of one project, take turns on cards by suspending each other's jobs. Pure.

Who would wait for a card is given it as soon as another party has had it for a slice, if that party has more of
the cards. The job that is suspended for it goes on in its own turn, by the same rule.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

from dibs.dataclass import dataclass
from dibs.model.gpus import Claim
from dibs.model.jobs import Job, Reason, Request
from dibs.model.suspensions import too_much_to_move
from dibs.model.sweeps import trial_of
from dibs.model.units import show_duration, show_size
from dibs.policy.placement import Placer
from dibs.policy.preemption import MakingRoom, Preemptor, expected_seconds, time_to_move
from dibs.policy.snapshot import (
    MoveSpeed,
    NextTurn,
    Party,
    PreemptibleJob,
    Snapshot,
    SuspendedJob,
    TurnTaking,
)

_AT_LEAST = 10  # times as long as it takes to move the memory: at most a tenth of the time is lost

_Fits = Callable[[Placer], tuple[Claim, ...] | None]  # what a job gets of these cards; None: no room


def party_of(request: Request) -> Party:
    """On whose behalf a job takes turns: its project and its sweep (0: none)."""
    trial = trial_of(request.once)
    return request.project, 0 if trial is None else int(trial[0])


def slice_seconds(setting: float, held: int, speed: MoveSpeed) -> float:
    """How long a turn of a job lasts that holds so many bytes of its cards."""
    moving = expected_seconds(held, speed) + expected_seconds(held, speed, resumes=True)
    return max(setting, _AT_LEAST * moving)


def in_order(snapshot: Snapshot, turns: TurnTaking) -> Sequence[Job]:
    """The waiting jobs; among those of one priority, those first whose project, then whose sweep has less now.

    Those come last whose own party has just given a card to another one: it is not their turn.
    """
    gave = {party_of(one.job.request) for one in snapshot.preemptible if one.is_leaving}
    gave |= {party_of(one.job.request) for one in snapshot.suspended if _is_resting(one, snapshot)}

    def rank(job: Job) -> tuple[int, bool, Fraction, Fraction]:
        party = party_of(job.request)
        held = turns.held.get(party, Fraction(0))
        return -job.request.precedence, party in gave, _of_project(turns.held, party[0]), held

    return sorted(snapshot.waiting, key=rank)  # stable


@dataclass(slots=True)
class _Turn:
    """Until when a job has its cards. Once that was told in this plan: `party` is who is next, and until when."""

    one: PreemptibleJob
    party: Party
    ends_at: float


class Turns:
    """The turns of one plan: who gives a card to whom now, and who will."""

    def __init__(self, snapshot: Snapshot, turns: TurnTaking, table: Placer, preemptor: Preemptor) -> None:
        self._snapshot = snapshot
        self._rules = turns
        self._table = table
        self._preemptor = preemptor
        self._speed = snapshot.move_speed
        self._now = snapshot.now
        self._held = dict(turns.held)
        self._told = dict(turns.held)  # as it will be after the turns that were told
        self._undisturbed = Placer(snapshot)  # to tell who is next: nothing of this plan is in it
        self._turns = [
            _Turn(one, party_of(one.job.request), self._now if one.is_leaving else self._ends_at(one))
            for one in snapshot.preemptible
            if one.claims and not one.job.request.urgent and (one.is_leaving or self._takes_turns(one))
        ]
        self._next_end = math.inf  # when the first turn comes that was told

    @staticmethod
    def party_of(request: Request) -> Party:
        return party_of(request)

    def goes_before(self, waiting: Job, one: SuspendedJob) -> bool:
        """Whether a waiting job is tried before a suspended one of its priority."""
        mine, its = party_of(waiting.request), party_of(one.job.request)
        if mine == its:
            return False
        if _is_resting(one, self._snapshot):
            return True
        had = self._rules.began.get(mine, -math.inf)
        return had < one.since and _has(self._held, mine, its) <= _has(self._held, its, mine)

    @property
    def are_going_on(self) -> bool:
        """Whether a job stands still, or is about to, for the turn of another."""
        return bool(self._snapshot.suspended) or any(turn.one.is_leaving for turn in self._turns)

    def why_not_start(self, job: Job, claims: Sequence[Claim]) -> Reason | None:
        """Why it must not start on these cards: it could not give them back to those that were suspended there.

        To one of a lower priority, or of a paused project, it gives nothing back.
        """
        cards, least = _cards(claims), job.request.precedence
        away = [one for one in self._snapshot.suspended if cards & _cards(one.claims)]
        away = [one for one in away if one.job.request.precedence >= least]
        away = [one for one in away if one.job.request.project not in self._snapshot.paused]
        leaving = [turn.one for turn in self._turns if turn.one.is_leaving and cards & _cards(turn.one.claims)]
        leaving = [one for one in leaving if one.job.request.precedence >= least]
        if not away and not leaving:
            return None
        size = sum(claim.vram for claim in claims) or max(
            [one.held for one in away] + [one.held for one in leaving]
        )
        if not too_much_to_move(size, self._preemptor.memory):
            return None
        jobs = " and ".join([f"job {one.job.label}" for one in away] + [f"job {one.job.label}" for one in leaving])
        why = f"{self._has_memory}, too little to take turns with {jobs}"
        return Reason("no-gpu", f"waits for GPU {', '.join(claim.number for claim in claims)}: {why}")

    def begin(self, job: Job, claims: Sequence[Claim]) -> None:
        """It starts or goes on with these cards, which are free."""
        for held in (self._held, self._told):
            self._pass_on((), job, claims, held)

    def take(self, job: Job, length: float) -> MakingRoom | None:
        """Suspend for a waiting job those whose turn is over; None where there are none, or that does not help."""
        if not job.request.wishes.num_gpus:
            return None
        return self._take(job, lambda table: table.place(job.request.wishes, length), None)

    def take_back(self, one: SuspendedJob, length: float) -> MakingRoom | None:
        """The same for a suspended job, which goes on then."""
        if not one.claims or one.not_yet:
            return None
        return self._take(one.job, lambda table: one.claims if table.resume(one, length) else None, one)

    def tell(self, job: Job, length: float) -> NextTurn:
        """When the turn of a waiting job comes, beside those that were told before."""
        if not job.request.wishes.num_gpus:
            return NextTurn()
        return self._tell(job, lambda table: table.place(job.request.wishes, length), None)

    def tell_back(self, one: SuspendedJob, length: float) -> NextTurn:
        """The same for a suspended job."""
        if not one.claims:
            return NextTurn()
        return self._tell(one.job, lambda table: one.claims if table.resume(one, length) else None, one)

    def next_end(self, *, begins: bool) -> float | None:
        """When the next turn comes, at the earliest; `begins`: one begins now."""
        at = min(self._next_end, self._now + self._rules.slice) if begins else self._next_end
        return None if at == math.inf else at

    def _take(self, job: Job, fits: _Fits, suspended: SuspendedJob | None) -> MakingRoom | None:
        def after(some: Iterable[_Turn]) -> tuple[Claim, ...] | None:
            return fits(self._table.after([turn.one for turn in some], passes=job.request.precedence))

        chosen: Sequence[_Turn] = ()
        claims = after(())  # those that are being suspended already may leave enough
        if claims is not None and suspended is None and self.why_not_start(job, claims):
            return None
        if claims is None:
            turns = self._followed_by(job, self._held)
            over = [turn for turn in turns if self._is_over(turn) and not turn.one.why_not]
            chosen, claims = _first_to_end(over, after)
            if claims is None or self._too_much(chosen, claims, suspended):
                return None
        made = self._preemptor.suspend([turn.one for turn in chosen], job, claims, is_new=suspended is None)
        self._pass_on(chosen, job, claims, self._held)
        left = [turn for turn in self._turns if {claim.gpu for claim in turn.one.claims} & _cards(claims)]
        self._pass_on(left, job, claims, self._told)
        for turn in left:
            turn.party = party_of(job.request)
            moving = expected_seconds(turn.one.held, self._speed)
            turn.ends_at = self._now + moving + self._slice(0 if suspended is None else suspended.held)
        return made

    def _tell(self, job: Job, fits: _Fits, suspended: SuspendedJob | None) -> NextTurn:
        def after(some: Iterable[_Turn]) -> tuple[Claim, ...] | None:
            return fits(self._undisturbed.after([turn.one for turn in some]))

        if after(()) is not None:  # others were faster, in this plan
            return NextTurn()
        turns = self._followed_by(job, self._told)
        chosen, claims = _first_to_end([turn for turn in turns if not turn.one.why_not], after)
        if claims is None:
            chosen, claims = _first_to_end(turns, after)
            stay = [turn.one for turn in chosen if turn.one.why_not]
            return NextTurn(why_not="; ".join(_cannot(f"job {one.job.label}: {one.why_not}") for one in stay))
        if self._too_much(chosen, claims, suspended):
            return NextTurn(why_not=self._why_not(chosen, suspended))
        at = max(turn.ends_at for turn in chosen)
        if at <= self._now:
            return NextTurn()
        last = max(chosen, key=lambda turn: turn.ends_at).one
        cards = ", ".join(claim.number for claim in claims)
        who = " and ".join(turn.one.job.label for turn in chosen)
        sentence = (
            f"waits for job{'s' if len(chosen) > 1 else ''} {who}: "
            f"its turn on GPU {cards} comes in about {_show_wait(at - self._now)}{self._stretched(last)}"
        )
        self._next_end = min(self._next_end, at)
        self._pass_on(chosen, job, claims, self._told)
        for turn in chosen:
            turn.party = party_of(job.request)
            turn.ends_at = at + self._slice(0 if suspended is None else suspended.held)
        return NextTurn(Reason("slice", sentence, at), claims)

    def _takes_turns(self, one: PreemptibleJob) -> bool:
        """Whether it may be suspended for another's turn: it must be able to come back in its own."""
        return one.takes_turns and one.job.request.project not in self._snapshot.paused

    def _followed_by(self, job: Job, held: Mapping[Party, Fraction]) -> list[_Turn]:
        """The turns after which this job may have the cards."""
        mine = party_of(job.request)
        return [
            turn
            for turn in self._turns
            if turn.party != mine
            and job.request.precedence >= turn.one.job.request.precedence
            and _has(held, mine, turn.party) < _has(held, turn.party, mine)
        ]

    def _is_over(self, turn: _Turn) -> bool:
        return turn.ends_at <= self._now and not self._preemptor.leaves(turn.one)

    def _ends_at(self, one: PreemptibleJob) -> float:
        return one.turn_began + self._slice(one.held)

    def _slice(self, held: int) -> float:
        return slice_seconds(self._rules.slice, held, self._speed)

    def _pass_on(
        self, chosen: Iterable[_Turn], job: Job, claims: Iterable[Claim], held: dict[Party, Fraction]
    ) -> None:
        """The party of this job will have these cards, in place of others."""
        for turn in chosen:
            if turn.one.is_leaving and turn.party == party_of(turn.one.job.request):
                continue  # it does not count as having them any more
            share = sum((claim.share for claim in turn.one.claims), Fraction(0))
            held[turn.party] = max(Fraction(0), held.get(turn.party, Fraction(0)) - share)
        mine = party_of(job.request)
        held[mine] = held.get(mine, Fraction(0)) + sum((claim.share for claim in claims), Fraction(0))

    def _too_much(self, chosen: Iterable[_Turn], claims: Iterable[Claim], suspended: SuspendedJob | None) -> bool:
        """Whether the machine's memory cannot take what is moved, now and when the next turn begins."""
        size = sum(turn.one.held for turn in chosen if not turn.one.is_leaving)
        if suspended is None:  # what it will hold is not known, unless it has booked it
            size += sum(claim.vram for claim in claims) or sum(turn.one.held for turn in chosen)
        return bool(too_much_to_move(size, self._preemptor.memory))

    def _why_not(self, chosen: Sequence[_Turn], suspended: SuspendedJob | None) -> str:
        most = max((turn.one for turn in chosen), key=lambda one: one.held)
        both = ", and must take what both hold" if suspended is None else ""
        holds = f"job {most.job.label} holds {show_size(most.held)} on its GPU"
        return _cannot(f"{holds}, and {self._has_memory}{both}")

    @property
    def _has_memory(self) -> str:
        return f"the machine has {show_size(self._preemptor.memory)} of memory available"

    def _stretched(self, one: PreemptibleJob) -> str:
        """The note that a slice of this job is longer than it was set."""
        length = self._slice(one.held)
        if length <= self._rules.slice:
            return ""
        moving = time_to_move(one.held, self._speed)
        return f" (its slice is {show_duration(length)}, since suspending it takes {moving})"


def _is_resting(one: SuspendedJob, snapshot: Snapshot) -> bool:
    """Whether the others have had less than a slice since this job was suspended: it is their turn."""
    assert snapshot.turns is not None, "no turns are taken"
    return snapshot.now < one.since + slice_seconds(snapshot.turns.slice, one.held, snapshot.move_speed)


def _first_to_end(
    turns: Iterable[_Turn], after: Callable[[Sequence[_Turn]], tuple[Claim, ...] | None]
) -> tuple[list[_Turn], tuple[Claim, ...] | None]:
    """Those whose turn ends first and that together leave enough; none of them can be left out."""
    chosen: list[_Turn] = []
    claims = None
    for turn in sorted(turns, key=lambda turn: (turn.ends_at, turn.one.key)):
        chosen.append(turn)
        if (claims := after(chosen)) is not None:
            break
    if claims is None:
        return [], None
    for turn in chosen[:-1]:
        others = [other for other in chosen if other is not turn]
        if (less := after(others)) is not None:
            chosen, claims = others, less
    return chosen, claims


def _cannot(why: str) -> str:
    return f"they cannot take turns: {why}"


def _cards(claims: Iterable[Claim]) -> set[str]:
    return {claim.gpu for claim in claims}


def _has(held: Mapping[Party, Fraction], party: Party, other: Party) -> Fraction:
    """How much a party has of the cards, seen from another one: as a project, or as a sweep of its project."""
    return held.get(party, Fraction(0)) if party[0] == other[0] else _of_project(held, party[0])


def _of_project(held: Mapping[Party, Fraction], project: str) -> Fraction:
    return sum((share for (name, _), share in held.items() if name == project), Fraction(0))


def _show_wait(seconds: float) -> str:
    """`40s`, `12 min`, `3 h`: no finer than it is known, so that a sentence does not change every second."""
    if seconds < 60:
        return f"{max(1, math.ceil(seconds / 10)) * 10}s"
    if seconds < 7200:
        return f"{math.ceil(seconds / 60)} min"
    return f"{seconds / 3600:.0f} h"
