"""`--vram auto` in a plan."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dibs.model.usage import Lesson
from dibs.policy.fitting import with_margin
from dibs.policy.forecast import Line, forecast
from dibs.policy.schedule import impossible, schedule
from policy.builders import GIB, a_job, a_machine, placed

SHAPE = "/net/train.py --lr"
H200 = {"memory": 141, "names": ["H200"] * 8}
KNOWN = {(SHAPE, "H200"): Lesson(peak_vram=9 * GIB, runs=1)}


def an_auto_job(**more):
    return a_job(shape=SHAPE, **more)


def claims(plan):
    return [claim for placement in plan.placements for claim in placement.claims]


def test_the_first_of_a_shape_has_the_card_to_itself_on_each_free_card():
    jobs = [an_auto_job() for _ in range(4)]

    plan = schedule(a_machine(2, **H200).with_waiting(*jobs))

    assert placed(plan) == {jobs[0].id: [0], jobs[1].id: [1]}
    assert {(claim.share, claim.vram) for claim in claims(plan)} == {(Fraction(1), 0)}


def test_what_is_known_is_booked_with_a_margin_and_seven_start_at_once():
    jobs = [an_auto_job() for _ in range(7)]

    plan = schedule(a_machine(1, **H200).with_waiting(*jobs, lessons=KNOWN))

    assert placed(plan) == {job.id: [0] for job in jobs}
    assert {claim.vram for claim in claims(plan)} == {with_margin(9 * GIB)}
    assert {claim.share for claim in claims(plan)} == {Fraction(73, 1000)}


def test_no_more_start_than_fit():
    jobs = [an_auto_job() for _ in range(20)]

    plan = schedule(a_machine(1, **H200).with_waiting(*jobs, lessons=KNOWN))

    assert len(plan.placements) == 13


def test_a_declared_size_counts_until_more_is_known():
    job = an_auto_job(vram=12)

    before = schedule(a_machine(1, **H200).with_waiting(job))
    after = schedule(a_machine(1, **H200).with_waiting(job, lessons=KNOWN))

    assert [claim.vram for claim in claims(before)] == [12 * GIB]
    assert [claim.vram for claim in claims(after)] == [with_margin(9 * GIB)]


def test_who_ran_out_of_memory_beside_others_has_the_card_to_itself():
    lessons = {(SHAPE, "H200"): Lesson(peak_vram=9 * GIB, runs=1, needs_card=True)}

    plan = schedule(a_machine(1, **H200).with_waiting(an_auto_job(), an_auto_job(), lessons=lessons))

    assert [claim.share for claim in claims(plan)] == [1]


def test_what_is_known_of_another_model_does_not_count():
    machine = a_machine(1, memory=80, names=["A100"])

    plan = schedule(machine.with_waiting(an_auto_job(), lessons=KNOWN))

    assert [claim.share for claim in claims(plan)] == [1]


def test_a_card_that_was_only_declared_has_its_slots():
    jobs = [an_auto_job() for _ in range(3)]

    plan = schedule(a_machine(1, slots=2).with_waiting(*jobs))

    assert [claim.share for claim in claims(plan)] == [Fraction(1, 2)] * 2


def test_it_is_never_refused_for_its_memory():
    machine = a_machine(1, memory=8, names=["old"])
    lessons = {(SHAPE, "old"): Lesson(peak_vram=30 * GIB, runs=1)}

    assert impossible(an_auto_job(vram=40).request.wishes, machine.pool) == ""
    plan = schedule(machine.with_waiting(an_auto_job(vram=40), lessons=lessons))
    assert [claim.share for claim in claims(plan)] == [1]


def test_what_the_card_itself_says_counts():
    machine = a_machine(1, **H200, taken={0: "1/10"}, memory_booked={0: 10}, memory_free={0: 9})

    plan = schedule(machine.with_waiting(an_auto_job(), lessons=KNOWN))

    assert not plan.placements
    (reason,) = plan.reasons.values()
    assert reason.sentence == "waits for a GPU: GPU 0 has 9G of memory left"


def test_it_says_that_the_first_one_shows_what_is_needed():
    machine = a_machine(1, **H200, busy=[0], holders={0: ("job 3",)})
    view = replace(machine.views[0], shapes=(SHAPE,))
    job = an_auto_job()

    reason = schedule(replace(machine, views=(view,)).with_waiting(job)).reasons[job.id]

    assert reason.sentence == (
        "waits for a GPU: GPU 0 is held by job 3, which shows how much memory jobs like this need"
    )


def test_it_says_once_that_several_show_what_is_needed():
    machine = a_machine(3, **H200, busy=[0, 1, 2], holders={0: ("job 3",), 1: ("job 4",), 2: ("job 5",)})
    views = tuple(replace(view, shapes=(SHAPE,) if view.card.gpu.index else ()) for view in machine.views)
    job = an_auto_job()

    reason = schedule(replace(machine, views=views).with_waiting(job)).reasons[job.id]

    assert reason.sentence == (
        "waits for a GPU: GPU 0 is held by job 3; GPU 1 is held by job 4; GPU 2 is held by job 5, "
        "which show how much memory jobs like this need"
    )


def test_it_says_that_it_wants_the_card_to_itself_and_not_why_as_its_owner_may_have_said_so():
    job = an_auto_job(share="1")

    reason = schedule(a_machine(1, **H200, busy=[0]).with_waiting(job, lessons=KNOWN)).reasons[job.id]

    assert reason.sentence.startswith("waits for a GPU to itself: GPU 0")


def test_packing_does_not_drown_the_machine():
    lessons = {(SHAPE, "H200"): Lesson(peak_vram=9 * GIB, cpus=3.0, peak_mem=10 * GIB, runs=1)}
    jobs = [an_auto_job() for _ in range(8)]
    machine = a_machine(1, **H200)

    few_cpus = schedule(machine.with_waiting(*jobs, lessons=lessons, cpus_free=8))
    little_memory = schedule(machine.with_waiting(*jobs, lessons=lessons, mem_free=45 * GIB))

    assert len(few_cpus.placements) == 2
    assert few_cpus.reasons[jobs[-1].id].sentence == (
        "waits for a GPU: GPU 0 has room, but the machine has too little beside it (2 of 3 CPUs)"
    )
    assert len(little_memory.placements) == 4


def test_what_would_run_alone_is_not_kept_waiting_by_what_was_learned():
    lessons = {(SHAPE, "H200"): Lesson(peak_vram=9 * GIB, cpus=64.0, peak_mem=999 * GIB, runs=1)}
    jobs = [an_auto_job() for _ in range(4)]

    plan = schedule(a_machine(2, **H200).with_waiting(*jobs, lessons=lessons, cpus_free=8, mem_free=GIB))

    assert placed(plan) == {jobs[0].id: [0], jobs[1].id: [1]}


def test_a_waiting_auto_job_keeps_only_what_it_needs():
    machine = a_machine(1, **H200, taken={0: "19/20"}, until={0: 100.0})
    first, short, long = an_auto_job(), a_job(share="1/20", time_limit=50), a_job(share="1/20", time_limit=500)

    plan = schedule(machine.with_waiting(first, long, short, lessons=KNOWN))

    assert plan.reasons[first.id].until == 100.0
    assert placed(plan) == {short.id: [0]}


def test_the_forecast_packs_too():
    machine = a_machine(1, **H200)
    jobs = [an_auto_job() for _ in range(30)]

    line = Line(snapshot=machine.with_waiting(*jobs, lessons=KNOWN), durations=lambda job: 60.0)
    found = forecast(line, [job.id for job in jobs])

    assert [one.starts_at for one in found.values()] == [0.0] * 13 + [60.0] * 13 + [120.0] * 4


SHAPES = ["a", "b"]


@given(
    st.lists(
        st.tuples(st.sampled_from([24, 80, 141]), st.integers(0, 24), st.integers(0, 24)), min_size=1, max_size=3
    ),
    st.dictionaries(
        st.sampled_from(SHAPES),
        st.builds(
            Lesson,
            peak_vram=st.integers(0, 90 * GIB),
            cpus=st.floats(0, 8),
            needs_card=st.booleans(),
            runs=st.just(1),
        ),
    ),
    st.lists(st.tuples(st.sampled_from(["", *SHAPES]), st.sampled_from([None, 4, 30])), max_size=20),
    st.sampled_from([None, 4, 64]),
)
def test_what_is_booked_never_exceeds_a_card_and_the_first_of_a_shape_is_alone(cards, known, wanted, cpus):
    machine = a_machine(
        len(cards),
        memory=[total for total, _, _ in cards],
        names=["card"] * len(cards),
        memory_booked={i: booked for i, (_, booked, _) in enumerate(cards)},
        memory_free={i: total - used for i, (total, _, used) in enumerate(cards) if used},
        taken={i: str(Fraction(booked, total)) for i, (total, booked, _) in enumerate(cards)},
    )
    lessons = {(shape, "card"): lesson for shape, lesson in known.items()}
    jobs = [a_job(shape=shape, vram=vram) for shape, vram in wanted]

    plan = schedule(machine.with_waiting(*jobs, lessons=lessons, cpus_free=cpus))

    after = machine.after(plan)
    for before, view in zip(machine.views, after.views, strict=True):
        total = before.card.gpu.memory_total
        assert view.taken <= 1
        assert view.vram_taken <= total
        if before.vram_free is not None:
            assert view.vram_taken - before.vram_taken <= before.vram_free
    on_card = {}
    for placement in plan.placements:
        for claim in placement.claims:
            on_card.setdefault(claim.gpu, []).append(placement.job)
    for key, there in on_card.items():
        was_empty = next(view.taken == 0 for view in machine.views if view.card.gpu.key == key)
        for job in there:
            wishes = job.request.wishes
            lesson = lessons.get((wishes.shape, "card"), Lesson())
            is_new = bool(wishes.shape) and not lesson.peak_vram and wishes.vram is None
            if is_new or (wishes.shape and lesson.needs_card):
                assert there == [job]
                assert was_empty
    assert {job.id for job in jobs} == placed(plan).keys() | plan.reasons.keys()
