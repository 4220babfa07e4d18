"""A trace in virtual time: who starts when, and what is true of every history."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.policy.schedule import fair_order, impossible, schedule
from dibs.policy.snapshot import CardView, Hold, Snapshot
from dibs.simulate.machine import Rules, SimulatedMachine
from dibs.simulate.simulator import History, simulate
from dibs.simulate.trace import make
from examples import examples
from simulate.traces import comes, machines, traces

RULES = st.builds(Rules, backfill=st.booleans(), turns=st.booleans(), packing=st.booleans())


def starts(history: History) -> dict[int, float]:
    return {run.arrival.job.id: run.started_at for run in history.runs}


# -- histories ---------------------------------------------------------------------------------------------


def test_jobs_wait_for_the_first_card_that_is_free():
    trace = [comes(1, 0, 100), comes(2, 10, 50), comes(3, 20, 10), comes(4, 20, 10)]

    history = simulate(trace, SimulatedMachine(num_gpus=2))

    assert starts(history) == {1: 0, 2: 10, 3: 60, 4: 70}
    assert [run.waited for run in history.runs] == [0, 40, 50, 0]


def test_a_short_job_passes_a_wide_one_only_where_it_is_sure_to_be_over_in_time():
    trace = [
        comes(1, 0, 100, limit=100),
        comes(2, 1, 50, gpus=2, limit=50),
        comes(3, 2, 90, limit=90),
        comes(4, 3, 99, limit=99),
    ]

    with_backfill = simulate(trace, SimulatedMachine(num_gpus=2))
    without = simulate(trace, SimulatedMachine(num_gpus=2), Rules(backfill=False))

    assert starts(with_backfill) == {1: 0, 2: 100, 3: 2, 4: 150}
    assert starts(without) == {1: 0, 2: 100, 3: 150, 4: 150}


def test_projects_take_turns_and_without_them_the_first_come_is_served_first():
    trace = [comes(number, 0, 10, project="a" if number <= 3 else "b") for number in range(1, 7)]

    assert starts(simulate(trace, SimulatedMachine(num_gpus=1))) == {1: 0, 4: 10, 2: 20, 5: 30, 3: 40, 6: 50}
    assert starts(simulate(trace, SimulatedMachine(num_gpus=1), Rules(turns=False))) == {
        number: 10.0 * (number - 1) for number in range(1, 7)
    }


def test_two_halves_share_a_card_unless_each_job_is_to_be_alone():
    trace = [comes(1, share="1/2"), comes(2, share="1/2"), comes(3, vram=10), comes(4, vram=10)]
    machine = SimulatedMachine(num_gpus=2, gpu_memory=24 << 30)

    assert set(starts(simulate(trace, machine)).values()) == {0}
    assert sorted(starts(simulate(trace, machine, Rules(packing=False))).values()) == [0, 0, 100, 100]


def test_memory_is_booked_beside_shares():
    trace = [comes(1, share="1/2", vram=15), comes(2, share="1/2", vram=15)]

    assert starts(simulate(trace, SimulatedMachine(num_gpus=1, gpu_memory=24 << 30))) == {1: 0, 2: 100}


def test_slots_are_for_those_who_ask_for_no_share():
    trace, machine = [comes(1), comes(2)], SimulatedMachine(num_gpus=1, slots=2)

    assert starts(simulate(trace, machine)) == {1: 0, 2: 0}
    assert starts(simulate(trace, machine, Rules(packing=False))) == {1: 0, 2: 100}


def test_more_start_at_once_than_there_are_slots_where_they_are_small():
    trace = [comes(number, share="1/3") for number in range(1, 5)]

    assert starts(simulate(trace, SimulatedMachine(num_gpus=1))) == {1: 0, 2: 0, 3: 0, 4: 100}


def test_a_job_ends_at_its_time_limit_and_one_within_its_grace_when_it_says():
    trace = [comes(1, seconds=500, limit=100, grace=10), comes(2, seconds=105, limit=100, grace=10)]

    history = simulate(trace, SimulatedMachine(num_gpus=2))

    assert [(run.ended_at, run.arrival.is_cut) for run in history.runs] == [(100, True), (105, False)]


def test_a_job_waits_from_the_moment_at_which_it_could_have_started():
    trace = [comes(1, 0, 100), comes(2, 0, 10, after=(1,)), comes(3, 0, 10, begin=300)]

    history = simulate(trace, SimulatedMachine(num_gpus=4))

    assert starts(history) == {1: 0, 2: 100, 3: 300}
    assert [run.waited for run in history.runs] == [0, 0, 0]


def test_of_an_array_no_more_run_than_it_wants():
    history = simulate(
        [comes(number, seconds=100 * number, most=2) for number in range(1, 6)], SimulatedMachine(num_gpus=8)
    )

    assert starts(history) == {1: 0, 2: 0, 3: 100, 4: 200, 5: 400}


def test_what_could_never_run_is_told_with_its_reason_and_whoever_follows_it():
    trace = [comes(1, gpus=9), comes(2, after=(1,)), comes(3, cpus=9), comes(4)]

    history = simulate(trace, SimulatedMachine(num_gpus=2, cpus=4))

    assert starts(history) == {4: 0}
    assert {one.arrival.job.id: one.why for one in history.never} == {
        1: "it wants 9 GPUs, but only 2 may be used (GPU 0, 1)",
        2: "it follows a job that never ran",
        3: "it wants 9 CPUs, but this machine has 4",
    }


# -- properties --------------------------------------------------------------------------------------------


@given(traces(), machines(), RULES)
def test_every_job_runs_once_or_is_told_why_not(trace, machine, rules):
    history = simulate(trace, machine, rules)

    told = [one.arrival for one in history.runs] + [one.arrival for one in history.never]
    assert sorted(one.job.id for one in told) == [one.job.id for one in trace]
    possible = {
        one.job.id
        for one in trace
        if not impossible(rules.job(one.job).request.wishes, rules.machine(machine).pool, machine.cpus)
    }
    never = {one.arrival.job.id for one in history.never}
    assert all(one.job.id in possible for one in trace if one.job.id not in never)
    for one in history.never:
        assert one.arrival.job.id not in possible or one.why == "it follows a job that never ran"


@given(traces(), machines(), RULES)
def test_nobody_starts_before_it_came_or_before_what_it_follows_has_ended(trace, machine, rules):
    history = simulate(trace, machine, rules)

    ends = {run.arrival.job.id: run.ended_at for run in history.runs}
    for run in history.runs:
        request = run.arrival.job.request
        assert run.started_at >= run.ready_at >= run.arrival.queued_at
        assert run.started_at >= (request.begin or 0)
        assert all(ends[one.job] <= run.ready_at for one in request.after)
        assert run.ended_at - run.started_at <= run.arrival.seconds


@given(traces(), machines(), RULES)
def test_no_card_is_ever_booked_twice(trace, machine, rules):
    runs = simulate(trace, machine, rules).runs

    for moment in {run.started_at for run in runs}:
        now = [run for run in runs if run.started_at <= moment < run.ended_at]
        for card in range(machine.num_gpus):
            claims = [claim for run in now for claim in run.claims if claim.index == card]
            assert sum((claim.share for claim in claims), Fraction(0)) <= 1
            if machine.gpu_memory is not None:
                assert sum(claim.vram for claim in claims) <= machine.gpu_memory
        if machine.cpus is not None:
            assert sum(run.arrival.job.request.wishes.cpus or 0 for run in now) <= machine.cpus
        assert all(len({claim.gpu for claim in run.claims}) == len(run.claims) for run in now)


@given(traces(), machines(), RULES)
def test_the_same_trace_gives_the_same_history(trace, machine, rules):
    assert simulate(trace, machine, rules) == simulate(trace, machine, rules)


@given(st.data(), st.integers(1, 4))
def test_those_who_pass_never_delay_the_job_that_waits_first(data, gpus):
    """Where limits are just what a job takes, everything promised comes true."""
    trace = []
    for number in range(1, data.draw(st.integers(2, 15)) + 1):
        seconds = data.draw(st.sampled_from([10.0, 30.0, 50.0, 100.0]))
        at = data.draw(st.sampled_from([0.0, 5.0, 20.0])) + (trace[-1].queued_at if trace else 0.0)
        trace.append(comes(number, at, seconds, data.draw(st.integers(1, gpus)), limit=seconds))
    machine = SimulatedMachine(num_gpus=gpus)
    head = next(
        (one.job.id for one in trace if starts(simulate(trace, machine))[one.job.id] > one.queued_at), None
    )
    if head is None:
        return

    alone = starts(simulate(trace[:head], machine))
    among = starts(simulate(trace, machine))

    assert among[head] == alone[head]


@given(traces(most=12), machines())
@settings(max_examples=examples(60))
def test_a_plan_that_is_not_made_would_have_started_nobody(trace, machine):
    """The simulator looks at the head of the line, and only where a card is open: a plain one finds the same."""
    plain_trace = [_plain(one) for one in trace]

    assert starts(simulate(plain_trace, machine)) == _played_plainly(plain_trace, machine)


def _plain(arrival):
    """Without projects: whose turn it is between them, the policy's own tests tell."""
    request = replace(arrival.job.request, project="", after=(), begin=None, array=None)
    return replace(arrival, job=replace(arrival.job, request=request))


def _played_plainly(trace, machine):
    found, running, now = {}, [], 0.0
    line = [one for one in trace if not impossible(one.job.request.wishes, machine.pool, machine.cpus)]
    while line:
        running = [run for run in running if run[0] > now]
        views = []
        for card in machine.pool.cards:
            holds = [hold for _, _, holds in running for key, hold in holds if key == card.gpu.key]
            taken = sum((hold.share for hold in holds), Fraction(0))
            vram = sum(hold.vram for hold in holds)
            views.append(CardView(card=card, taken=taken, vram_taken=vram, ends=tuple(holds)))
        booked = [one.job.request.wishes for _, one, _ in running]
        snapshot = Snapshot(
            cards=tuple(views),
            waiting=fair_order([one.job for one in line if one.queued_at <= now], {}),
            room_without_gpu=machine.room_without_gpu - sum(wishes.num_gpus == 0 for wishes in booked),
            now=now,
            cpus_free=None if machine.cpus is None else machine.cpus - sum(one.cpus or 0 for one in booked),
        )
        placements = schedule(snapshot).placements
        for placement in placements:
            arrival = next(one for one in line if one.job.id == placement.job.id)
            request = placement.job.request
            limit = None if request.time_limit is None else now + request.time_limit + request.grace
            holds = [(claim.gpu, Hold(claim.share, claim.vram, limit)) for claim in placement.claims]
            running.append((now + arrival.runs, arrival, holds))
            found[arrival.job.id] = now
            line.remove(arrival)
        if any(run[0] <= now for run in running):
            continue  # a job of no length: its card is free again
        moments = [run[0] for run in running] + [one.queued_at for one in line if one.queued_at > now]
        now = min(moments, default=now)
    return found


# -- what the docs say -------------------------------------------------------------------------------------


def test_two_projects_get_the_same_while_both_wait():
    trace = make("rivals", jobs=2000, gpus=8, seed=3)

    runs = simulate(trace, SimulatedMachine(num_gpus=8)).runs

    both = min(
        max(run.started_at for run in runs if run.arrival.job.request.project == name)
        for name in ("early", "late")
    )
    got = {
        name: sum(
            min(run.ended_at, both) - run.started_at
            for run in runs
            if run.arrival.job.request.project == name and run.started_at < both
        )
        for name in ("early", "late")
    }
    assert 0.95 < got["early"] / got["late"] < 1.05


@pytest.mark.parametrize("seed", [1, 2])
def test_packing_halves_the_time_of_half_card_jobs(seed):
    trace = make("halves", jobs=400, gpus=8, seed=seed)

    packed, alone = (
        max(run.ended_at for run in simulate(trace, SimulatedMachine(num_gpus=8), Rules(packing=packing)).runs)
        for packing in (True, False)
    )

    assert 0.48 < packed / alone < 0.53


def test_backfill_lets_narrow_jobs_wait_less_and_wide_ones_no_longer():
    trace = make("wide", jobs=500, gpus=8, seed=1)
    waited = {}

    for backfill in (True, False):
        runs = simulate(trace, SimulatedMachine(num_gpus=8), Rules(backfill=backfill)).runs
        for gpus in (1, 8):
            mine = [run.waited for run in runs if run.arrival.job.request.wishes.num_gpus == gpus]
            waited[backfill, gpus] = sum(mine) / len(mine)

    assert waited[True, 1] < waited[False, 1] / 2
    assert waited[True, 8] <= waited[False, 8]
