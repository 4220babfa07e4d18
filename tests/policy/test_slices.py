"""Projects and sweeps take turns on cards: who is suspended for whom, and when whose turn comes."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.model.gpus import Claim
from dibs.model.jobs import Job
from dibs.model.sweeps import SweepId, trial_key
from dibs.policy.schedule import schedule
from dibs.policy.slices import party_of, slice_seconds
from dibs.policy.snapshot import (
    MoveRate,
    MoveSpeed,
    Party,
    Plan,
    PreemptibleJob,
    Snapshot,
    SuspendedJob,
    TurnTaking,
)
from examples import examples
from policy.builders import GIB, a_job, a_machine, key
from policy.test_preemption import holding

SLICE = 1800.0  # seconds
QUICK = MoveSpeed(MoveRate(GIB, 0.0), MoveRate(GIB, 0.0))


def of_sweep(sweep: int, project: str = "", **more: Any) -> Job:
    job = a_job(project=project, **more)
    return replace(job, request=replace(job.request, once=trial_key(SweepId(sweep), 1)))


@dataclass
class Clock:
    """A machine on which time passes: every plan is carried out, suspensions and resumptions take their time."""

    gpus: int = 1
    memory: int | None = 1000  # GiB of the machine that can be filled while nobody is suspended
    slice: float = SLICE
    speed: MoveSpeed = QUICK
    card: int = 141  # GiB
    now: float = 0.0
    waiting: list[Job] = field(default_factory=list)
    running: list[PreemptibleJob] = field(default_factory=list)
    suspended: list[SuspendedJob] = field(default_factory=list)
    needs: dict[int, tuple[int, float]] = field(default_factory=dict)  # GiB it holds, seconds it computes
    did: dict[int, float] = field(default_factory=dict)  # seconds it has computed
    began: dict[Party, float] = field(default_factory=dict)
    log: list[tuple[float, str, int]] = field(default_factory=list)
    suspended_for: list[tuple[int, float]] = field(
        default_factory=list
    )  # who for another's turn, and after how long
    takes_turns: set[int] = field(default_factory=set)
    urgent: set[int] = field(default_factory=set)

    def add(self, job: Job, *, held: int = 10, seconds: float = 1e9) -> Job:
        self.waiting.append(job)
        self.needs[job.id] = (held, seconds)
        self.did[job.id] = 0.0
        if job.request.preemptible is not False:
            self.takes_turns.add(job.id)
        if job.request.urgent:
            self.urgent.add(job.id)
        return job

    def snapshot(self, *more: Job) -> Snapshot:
        held: dict[Party, Fraction] = {}
        for one in self.running:
            if not one.is_leaving:
                party = party_of(one.job.request)
                held[party] = held.get(party, Fraction(0)) + sum(
                    (claim.share for claim in one.claims), Fraction(0)
                )
        used = {key(card): 0 for card in range(self.gpus)}
        for one in self.running:
            for claim in one.claims:
                used[claim.gpu] += one.held // len(one.claims)
        machine = holding(a_machine(self.gpus, memory=self.card), *self.running)
        views = tuple(
            replace(view, memory_free=self.card * GIB - used[view.card.gpu.key]) for view in machine.views
        )
        filled = sum(one.held for one in (*self.suspended, *self.running) if not self._is_here(one))
        return replace(machine, views=views).with_waiting(
            *self.waiting,
            *more,
            now=self.now,
            preemptible=[one for one in self.running if one.job.id in self.takes_turns],
            suspended=self.suspended,
            memory_to_fill=None if self.memory is None else max(0, self.memory * GIB - filled),
            move_speed=self.speed,
            turns=TurnTaking(self.slice, held, dict(self.began)),
        )

    @staticmethod
    def _is_here(one: PreemptibleJob | SuspendedJob) -> bool:
        return isinstance(one, PreemptibleJob) and not one.is_leaving

    def plan(self) -> Plan:
        plan = schedule(self.snapshot())
        for placement in plan.placements:
            self._begin((placement.job.id, 1), placement.job, placement.claims)
            self.waiting.remove(placement.job)
        for goes_on in plan.resumptions:
            self.suspended.remove(goes_on)
            self._begin(goes_on.key, goes_on.job, goes_on.claims)
        for leaving in plan.suspensions:
            (one,) = [one for one in self.running if one.key == leaving.key]
            if leaving.for_job not in self.urgent:
                self.suspended_for.append((one.job.id, self.now - one.turn_began))
            self.running[self.running.index(one)] = replace(one, leaving_since=self.now)
            self.log.append((self.now, "leaves", one.job.id))
        return plan

    def _begin(self, run: tuple[Any, int], job: Job, claims: tuple[Claim, ...]) -> None:
        held, _ = self.needs[job.id]
        self.running.append(PreemptibleJob(run, job, claims, held * GIB, takes_turns=True, turn_began=self.now))
        self.began[party_of(job.request)] = self.now
        self.log.append((self.now, "runs", job.id))
        for card in {claim.gpu for claim in claims}:
            there = [one for one in self.running for claim in one.claims if claim.gpu == card]
            assert sum(next(c.share for c in one.claims if c.gpu == card) for one in there) <= 1, there

    def step(self, until: float) -> bool:
        """Carry a plan out, and pass on to what happens next; False: nothing does any more."""
        plan = self.plan()
        moments = [plan.next_turn or 1e12]
        for one in self.running:
            if one.leaving_since is not None:
                moments.append(one.leaving_since + self.speed.suspend.seconds(one.held))
            else:
                moments.append(self.now + self.needs[one.job.id][1] - self.did[one.job.id])
        if min(moments) >= 1e9:
            return False
        then = min(until, max(self.now, min(moments)))
        for one in list(self.running):
            if one.leaving_since is None:
                self.did[one.job.id] += then - self.now
                if self.did[one.job.id] >= self.needs[one.job.id][1] - 1e-6:
                    self.running.remove(one)
                    self.log.append((then, "ends", one.job.id))
            elif then >= one.leaving_since + self.speed.suspend.seconds(one.held) - 1e-6:
                self.running.remove(one)
                self.suspended.append(SuspendedJob(one.key, one.job, one.claims, one.held, since=then))
        self.now = then
        return True

    def run(self, until: float) -> None:
        for _ in range(2000):
            if self.now >= until or not self.step(until):
                return
        raise AssertionError(self.log[-20:])

    @property
    def starts(self) -> list[int]:
        """Who had a card, in order."""
        return [job for _, what, job in self.log if what == "runs"]


def sentence(plan: Plan, job: Job) -> str:
    return plan.reasons[job.id].sentence


def test_a_job_of_another_project_is_given_the_card_after_a_slice_and_gives_it_back_after_one():
    clock = Clock()
    a, b = clock.add(a_job(project="a")), clock.add(a_job(project="b"))

    clock.run(until=4 * SLICE)

    assert clock.starts[:4] == [a.id, b.id, a.id, b.id]
    assert [round(at) for at, what, _ in clock.log if what == "leaves"][:2] == [1800, 3610]


def test_it_is_said_when_the_turn_comes():
    clock = Clock()
    a, b = clock.add(a_job(project="a")), clock.add(a_job(project="b"))
    clock.plan()
    clock.now = 1080.0

    reason = clock.plan().reasons[b.id]

    assert (reason.code, reason.until) == ("slice", SLICE)
    assert reason.sentence == f"waits for job {a.id}: its turn on GPU 0 comes in about 12 min"


def test_nothing_is_suspended_where_nobody_takes_turns():
    clock = Clock()
    clock.add(a_job(project="a"))
    b = clock.add(a_job(project="b"))
    clock.plan()
    clock.now = 10 * SLICE

    plan = schedule(replace(clock.snapshot(), turns=None))

    assert plan.suspensions == []
    assert "is held by job" in sentence(plan, b)


def test_jobs_of_one_project_do_not_take_turns_but_its_sweeps_do():
    same, sweeps = Clock(), Clock()
    for _ in range(2):
        same.add(a_job(project="a"))
    x = [sweeps.add(of_sweep(1, "a")) for _ in range(2)]
    y = sweeps.add(of_sweep(2, "a"))

    same.run(until=10 * SLICE)
    sweeps.run(until=10 * SLICE)

    assert len(same.starts) == 1
    assert sweeps.starts[:4] == [x[0].id, y.id, x[0].id, y.id]


def test_three_projects_take_turns_one_after_the_other():
    clock = Clock()
    jobs = [clock.add(a_job(project=name)) for name in "abc"]

    clock.run(until=7 * SLICE)

    assert clock.starts[:6] == [job.id for job in jobs] * 2


def test_the_short_jobs_of_a_project_share_its_turn():
    clock = Clock(speed=MoveSpeed(MoveRate(1e15, 0.0), MoveRate(1e15, 0.0)))
    a = clock.add(a_job(project="a"))
    b = [clock.add(a_job(project="b"), seconds=SLICE / 3) for _ in range(6)]

    clock.run(until=3.2 * SLICE)

    assert clock.starts == [a.id, *(job.id for job in b[:3]), a.id, b[3].id]
    assert [did for job, did in clock.suspended_for if job == a.id] == [SLICE, SLICE]


def test_a_job_goes_on_at_once_when_the_card_is_free_before_its_turn():
    clock = Clock()
    a, b = clock.add(a_job(project="a")), clock.add(a_job(project="b"), seconds=60.0)

    clock.run(until=3 * SLICE)

    assert clock.starts == [a.id, b.id, a.id]


def test_a_job_that_must_not_be_suspended_or_is_urgent_or_of_a_higher_priority_keeps_its_card():
    for options in ({"preemptible": False}, {"urgent": True}, {"priority": 1}):
        clock = Clock()
        a, b = clock.add(a_job(project="a", **options)), clock.add(a_job(project="b"))

        clock.run(until=5 * SLICE)

        assert clock.starts == [a.id]
        assert "is held by job" in sentence(clock.plan(), b)


def test_a_job_of_a_higher_priority_takes_its_turn_and_keeps_the_card():
    clock = Clock()
    a, b = clock.add(a_job(project="a")), a_job(project="b", priority=1)
    clock.plan()
    clock.add(b)

    clock.run(until=5 * SLICE)

    assert clock.starts == [a.id, b.id]


def test_a_project_takes_no_more_than_its_part_of_the_cards():
    clock = Clock(gpus=4)
    for _ in range(4):
        clock.add(a_job(project="a"))
    clock.plan()
    b = [clock.add(a_job(project="b")) for _ in range(4)]

    clock.run(until=6 * SLICE)

    assert sorted(job for job in clock.starts if job in {one.id for one in b}) == [b[0].id, b[1].id]
    assert len(clock.suspended_for) == 2


def test_a_wide_job_has_several_suspended_when_the_last_has_had_its_slice():
    clock = Clock(gpus=2)
    a = clock.add(a_job(project="a"))
    clock.plan()
    clock.now = 600.0
    c = clock.add(a_job(project="c"))
    clock.plan()
    wide = clock.add(a_job(2, project="b"))

    assert sentence(clock.plan(), wide) == (
        f"waits for jobs {a.id} and {c.id}: its turn on GPU 0, 1 comes in about 30 min"
    )
    clock.run(until=600 + SLICE + 60)

    assert clock.starts == [a.id, c.id, wide.id]


def test_a_slice_is_longer_where_moving_the_memory_takes_long_and_that_is_said():
    clock = Clock(slice=60.0, speed=MoveSpeed())
    a, b = clock.add(a_job(project="a"), held=62), clock.add(a_job(project="b"))
    clock.plan()

    told = clock.plan().reasons[b.id]
    length = slice_seconds(60.0, 62 * GIB, MoveSpeed())

    assert 450 < length < 560
    assert told.until == length
    assert told.sentence == (
        f"waits for job {a.id}: its turn on GPU 0 comes in about 9 min"
        " (its slice is 8m41s, since suspending it takes about 40s for 62G)"
    )
    clock.run(until=2 * length)
    assert clock.suspended_for[0] == (a.id, pytest.approx(length))


def test_two_jobs_of_45_gb_share_a_card_and_both_finish():
    clock = Clock(memory=120)
    jobs = [clock.add(a_job(project=name), held=45, seconds=3 * SLICE) for name in "ab"]

    clock.run(until=20 * SLICE)

    assert [job for _, what, job in clock.log if what == "ends"] == [job.id for job in jobs]
    assert len(clock.starts) == 6


def test_two_jobs_of_100_gb_that_the_memory_cannot_take_do_not_take_turns_and_it_is_said():
    clock = Clock(memory=120)
    a, b = clock.add(a_job(project="a"), held=100), clock.add(a_job(project="b"), held=100)
    clock.plan()
    clock.now = 5 * SLICE

    plan = clock.plan()

    assert plan.suspensions == []
    assert sentence(plan, b) == (
        f"waits for a GPU: GPU 0 is held by job {a.id}; they cannot take turns: job {a.id} holds 100G on its GPU,"
        " and the machine has 120G of memory available, and must take what both hold"
    )


def test_a_third_job_for_which_there_is_no_memory_does_not_take_the_turn_of_another():
    clock = Clock(memory=120)
    a, b, c = (clock.add(a_job(project=name), held=45) for name in "abc")

    clock.run(until=6 * SLICE)

    assert clock.starts[:4] == [a.id, b.id, a.id, b.id]
    assert c.id not in clock.starts
    assert "they cannot take turns" in sentence(clock.plan(), c)


def test_a_job_that_is_asked_about_is_told_its_turn_behind_those_before_it():
    clock = Clock()
    a, b = clock.add(a_job(project="a")), clock.add(a_job(project="b"))
    clock.plan()
    clock.now = 1200.0
    asked = a_job(project="c")

    plan = schedule(clock.snapshot(asked))

    assert sentence(plan, b) == f"waits for job {a.id}: its turn on GPU 0 comes in about 10 min"
    assert sentence(plan, asked) == f"waits for job {a.id}: its turn on GPU 0 comes in about 40 min"


@settings(max_examples=examples(60), deadline=None)
@given(
    gpus=st.integers(1, 2),
    jobs=st.lists(
        st.tuples(
            st.sampled_from([1, 2]), st.integers(0, 60), st.floats(10.0, 5 * SLICE), st.floats(0.0, 4 * SLICE)
        ),
        min_size=2,
        max_size=5,
    ),
)
def test_everybody_gets_a_turn_and_never_less_than_a_slice(gpus, jobs):
    clock = Clock(gpus=gpus)
    added: dict[int, float] = {}
    for number, (wide, held, seconds, at) in enumerate(sorted(jobs, key=lambda one: one[3])):
        clock.run(until=at)
        clock.now = max(clock.now, at)
        job = clock.add(a_job(min(wide, gpus), project=f"p{number}"), held=held, seconds=seconds)
        added[job.id] = clock.now

    clock.run(until=1e8)

    assert not clock.waiting and not clock.suspended and not clock.running, clock.log
    for job, seconds in clock.suspended_for:
        assert seconds >= clock.slice - 1e-6, job
    assert _longest_waits(clock.log, added) < len(jobs) * 4 * SLICE + 600, clock.log


def _longest_waits(log: Iterable[tuple[float, str, int]], added: dict[int, float]) -> float:
    """The longest time that a job had no card."""
    since, longest = dict(added), 0.0
    for at, what, job in log:
        if what == "runs":
            longest = max(longest, at - since[job])
        since[job] = at
    return longest


KINDS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"project": st.sampled_from("abc")},
    optional={
        "gpus": st.just(2),
        "share": st.just("1/2"),
        "priority": st.just(1),
        "urgent": st.just(True),
        "preemptible": st.just(False),
    },
)


@settings(max_examples=examples(150), deadline=None)
@given(
    gpus=st.integers(1, 3),
    memory=st.sampled_from([None, 1000, 300, 150]),
    jobs=st.lists(
        st.tuples(
            KINDS, st.integers(0, 3), st.sampled_from([0, 10, 45, 70]), st.floats(1, 8000), st.floats(0, 4000)
        ),
        min_size=2,
        max_size=9,
    ),
)
def test_whatever_is_mixed_no_card_is_given_twice_everything_ends_and_nobody_has_less_than_a_slice(
    gpus, memory, jobs
):
    clock = Clock(gpus=gpus, memory=memory, slice=600.0, speed=MoveSpeed())
    for kind, sweep, held, seconds, pause in jobs:
        clock.run(until=clock.now + pause)
        cards = min(gpus, kind.get("gpus", 1))
        make = of_sweep if sweep else lambda _, project, **more: a_job(project=project, **more)
        clock.add(make(sweep, **{**kind, "gpus": cards}), held=held, seconds=seconds)

    clock.run(until=1e8)

    assert not clock.waiting and not clock.suspended and not clock.running, clock.log
    assert all(seconds >= clock.slice - 1e-6 for _, seconds in clock.suspended_for), clock.suspended_for


def test_a_job_of_a_higher_priority_for_which_there_is_no_memory_to_take_turns_has_the_card_nevertheless():
    clock = Clock(memory=80)
    low = clock.add(a_job(project="a"), held=70)
    clock.plan()
    clock.now = SLICE
    short = clock.add(a_job(project="b", vram=1), held=1, seconds=60.0)
    clock.run(until=SLICE + 100)
    high = clock.add(a_job(project="b", priority=1), held=70, seconds=60.0)

    clock.run(until=3 * SLICE)

    assert clock.starts == [low.id, short.id, high.id, low.id]


def test_a_card_does_not_stand_empty_for_a_suspended_job_of_a_paused_project():
    clock = Clock(memory=80)
    low = clock.add(a_job(project="a"), held=70)
    clock.plan()
    clock.now = SLICE
    short = clock.add(a_job(project="b", vram=1), held=1, seconds=120.0)
    clock.run(until=SLICE + 100)
    assert [one.job.id for one in clock.running] == [short.id]
    clock.running.clear()
    other = clock.add(a_job(project="b"), held=70)

    plan = schedule(replace(clock.snapshot(), paused={"a": ""}))

    assert [one.job.id for one in clock.suspended] == [low.id]
    assert [one.job.id for one in plan.placements] == [other.id]


def test_an_urgent_job_that_must_not_start_yet_says_why():
    clock = Clock(memory=10)
    stays = a_job(project="a", urgent=True)
    claims = (Claim(gpu=key(0), index=0, share=Fraction(1), vram=0),)
    clock.suspended.append(SuspendedJob((stays.id, 1), stays, claims, 70 * GIB, since=-1.0))
    urgent = clock.add(a_job(project="b", urgent=True))

    plan = schedule(clock.snapshot())

    assert sentence(plan, urgent) != "waits for "
    assert "too little to take turns" in sentence(plan, urgent)


def test_the_turn_of_a_second_job_is_told_also_while_a_card_is_being_freed_for_the_first():
    clock = Clock(gpus=3)
    for _ in range(3):
        clock.add(a_job(project="a"))
    clock.plan()
    clock.now = SLICE
    first = clock.add(a_job(project="b"))
    plan = clock.plan()
    assert len(plan.suspensions) == 1
    clock.running = [replace(one, turn_began=SLICE) for one in clock.running]
    second = clock.add(a_job(project="b"))

    plan = clock.plan()

    assert "to be suspended" in sentence(plan, first)
    assert "its turn on GPU" in sentence(plan, second)


def test_a_job_of_a_paused_project_keeps_its_card_since_it_could_not_come_back_in_its_turn():
    clock = Clock()
    clock.add(a_job(project="a"))
    clock.plan()
    clock.now = SLICE
    clock.add(a_job(project="b"))

    plan = schedule(replace(clock.snapshot(), paused={"a": ""}))

    assert plan.suspensions == []
