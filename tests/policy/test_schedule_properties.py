"""What is true of every plan, whatever the machine and the queue."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.model.jobs import ArrayTask
from dibs.policy.fitting import is_allowed
from dibs.policy.schedule import impossible, schedule
from dibs.policy.snapshot import Snapshot
from examples import examples
from policy.builders import GIB, Machine, a_job, a_machine, placed

SHARES = ["1", "1/2", "1/3", "1/4", "3/4"]


@st.composite
def machines(draw, healthy=False):
    gpus = draw(st.integers(0, 4))
    each = list(range(gpus))
    memory = draw(st.lists(st.sampled_from([None, 8, 24, 80]), min_size=gpus, max_size=gpus))
    slots = {i: draw(st.integers(1, 3)) for i in each}
    groups = ()
    if gpus and draw(st.booleans()):
        cut = draw(st.integers(1, gpus))
        groups = [tuple(part) for part in (each[:cut], each[cut:]) if part]
        slots = dict.fromkeys(each, draw(st.integers(1, 2)))
    if healthy:
        return a_machine(gpus, memory=memory, slots=slots, groups=groups)
    return a_machine(
        gpus,
        memory=memory,
        slots=slots,
        groups=groups,
        taken={i: draw(st.sampled_from(["0", "0", *SHARES])) for i in each},
        memory_booked={i: draw(st.integers(0, memory[i])) for i in each if memory[i]},
        memory_free={i: draw(st.integers(0, memory[i])) for i in each if memory[i] and draw(st.booleans())},
        blocked={i: draw(st.sampled_from(["", "", "is busy"])) for i in each},
        until={i: draw(st.sampled_from([10.0, 60.0, 100.0])) for i in each if draw(st.booleans())},
    )


@st.composite
def jobs(draw):
    ids = st.lists(st.sampled_from(["0", "1", "2", "3", "9", "index-1"]), max_size=3).map(tuple)
    return a_job(
        draw(st.integers(0, 4)),
        share=draw(st.sampled_from([None, None, *SHARES])),
        vram=draw(st.sampled_from([None, None, 1, 8, 20, 60])),
        only=draw(st.one_of(st.just(()), ids)),
        prefer=draw(st.one_of(st.just(()), ids)),
        time_limit=draw(st.sampled_from([None, None, 5, 40, 90])),
        grace=draw(st.sampled_from([0, 10])),
        cpus=draw(st.sampled_from([None, None, 1, 4])),
        mem=draw(st.sampled_from([None, None, 1, 8])),
        gpu_type=draw(st.sampled_from(["", "", "", "h200"])),
        project=draw(st.sampled_from(["", "a", "b"])),
        array=draw(
            st.one_of(st.none(), st.builds(ArrayTask, st.just(7), st.just(1), st.sampled_from([None, 1, 2])))
        ),
    )


@st.composite
def moments(draw) -> tuple[Machine, Snapshot]:
    machine = draw(machines())
    waiting = draw(st.lists(jobs(), max_size=8))
    # Twins take another way through the policy than strangers: give some jobs the wishes of others.
    waiting += [a_job_like(draw(st.sampled_from(waiting))) for _ in range(draw(st.integers(0, 4))) if waiting]
    return machine, machine.with_waiting(
        *waiting,
        room_without_gpu=draw(st.integers(-1, 3)),
        now=draw(st.sampled_from([0.0, 50.0])),
        cpus_free=draw(st.sampled_from([None, -1, 4, 6])),
        mem_free=draw(st.sampled_from([None, -1, 9 * GIB])),
        array_running=draw(st.dictionaries(st.just(7), st.integers(0, 2))),
        paused=draw(st.dictionaries(st.sampled_from(["b", "c"]), st.just("by alice"))),
    )


def a_job_like(job):
    """The same wishes; the limit, the array and the project may differ."""
    other = a_job(time_limit=[None, 5, 40, 90][job.id % 4], project=["a", "b"][job.id % 2])
    return replace(other, request=replace(other.request, wishes=job.request.wishes))


@given(moments())
def test_no_share_is_ever_claimed_twice(moment):
    machine, snapshot = moment

    plan = schedule(snapshot)

    claimed = {view.card.gpu.key for view in machine.after(plan).views if view.free < 0}
    assert claimed == set()
    for one in plan.placements:
        assert all(0 < claim.share <= 1 for claim in one.claims)


@given(moments())
def test_memory_is_never_promised_twice(moment):
    machine, snapshot = moment

    plan = schedule(snapshot)

    for view in machine.after(plan).views:
        before = next(one for one in machine.views if one.card == view.card)
        promised = view.vram_taken - before.vram_taken
        if promised and view.card.gpu.memory_total is not None:
            assert view.vram_taken <= view.card.gpu.memory_total
            assert view.vram_free is None or promised <= view.vram_free


@given(moments())
def test_cpus_and_memory_of_the_machine_are_never_promised_twice(moment):
    _, snapshot = moment

    plan = schedule(snapshot)

    wishes = [one.job.request.wishes for one in plan.placements]
    cpus, mem = sum(one.cpus or 0 for one in wishes), sum(one.mem or 0 for one in wishes)
    assert not cpus or snapshot.cpus_free is None or cpus <= snapshot.cpus_free
    assert not mem or snapshot.mem_free is None or mem <= snapshot.mem_free


@given(moments())
def test_nothing_paused_starts_and_no_array_has_too_many(moment):
    _, snapshot = moment

    plan = schedule(snapshot)

    requests = [one.job.request for one in plan.placements]
    assert not any(request.project in snapshot.paused for request in requests)
    tasks = [request.array for request in requests if request.array is not None]
    running = snapshot.array_running.get(7, 0)
    for number, task in enumerate(tasks):
        assert task.most is None or running + number < task.most


@given(moments())
def test_every_waiting_job_is_placed_or_has_one_reason(moment):
    _, snapshot = moment

    plan = schedule(snapshot)

    numbers = [job.id for job in snapshot.waiting]
    assert sorted([*placed(plan), *plan.reasons]) == sorted(numbers)
    assert all(reason.sentence.startswith("waits ") for reason in plan.reasons.values())


@given(moments())
def test_a_job_gets_as_many_different_gpus_as_it_wants_or_a_whole_group(moment):
    _, snapshot = moment

    plan = schedule(snapshot)

    for one in plan.placements:
        keys = tuple(claim.gpu for claim in one.claims)
        wanted = one.job.request.wishes.num_gpus
        assert len(set(keys)) == len(keys)
        assert keys in snapshot.groups if snapshot.groups and wanted else len(keys) == wanted
        assert wanted in (0, 1, len(keys)) or not snapshot.groups


@given(moments())
def test_nothing_is_placed_where_it_may_not_be(moment):
    _, snapshot = moment
    views = {view.card.gpu.key: view for view in snapshot.cards}

    plan = schedule(snapshot)

    for one in plan.placements:
        for claim in one.claims:
            assert views[claim.gpu].blocked == ""
            assert is_allowed(views[claim.gpu].card.gpu, one.job.request.wishes)


@given(moments())
def test_the_same_moment_gives_the_same_plan(moment):
    _, snapshot = moment

    plans = [schedule(snapshot) for _ in range(2)]

    assert plans[0] == plans[1]


@given(machines(healthy=True), jobs())
def test_what_is_not_impossible_starts_on_an_empty_machine(machine, job):
    why = impossible(job.request.wishes, machine.pool, cpus=3, mem=4 * GIB)

    plan = schedule(machine.with_waiting(job, room_without_gpu=1, cpus_free=3, mem_free=4 * GIB))

    assert why or job.id in placed(plan), plan.reasons


@given(machines(healthy=True), jobs(), st.data())
@settings(max_examples=examples(60))
def test_a_stream_of_small_jobs_never_passes_a_possible_one_for_ever(machine, job, data):
    if impossible(job.request.wishes, machine.pool) or not job.request.wishes.num_gpus:
        return
    running = list(schedule(machine.with_waiting(*[a_job(share="1/4") for _ in range(20)])).placements)

    for _ in range(len(running) + 1):
        now = _with(machine, running)
        plan = schedule(now.with_waiting(job, *[a_job(share="1/4") for _ in range(8)]))
        if job.id in placed(plan):
            return
        running += plan.placements
        running.remove(running[0])  # the oldest ends

    raise AssertionError(f"{job} never starts on {machine}")


def _with(machine, running):
    plan = type("Running", (), {"placements": running})
    return machine.after(plan)


@given(st.lists(jobs(), min_size=1, max_size=6), machines())
def test_a_job_at_the_head_is_never_worse_off_for_those_behind_it(waiting, machine):
    head = waiting[0]

    alone = schedule(machine.with_waiting(head, room_without_gpu=1))
    among = schedule(machine.with_waiting(*waiting, room_without_gpu=1))

    assert placed(alone).get(head.id) == placed(among).get(head.id)
    assert alone.reasons.get(head.id) == among.reasons.get(head.id)
    assert all(one.share > Fraction(0) for placement in among.placements for one in placement.claims)
