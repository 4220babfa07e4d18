"""What is learned from an attempt, and what the next one books."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dibs.model.gpus import Claim
from dibs.model.jobs import Cause, Outcome, Wishes
from dibs.model.usage import Lesson, Usage
from dibs.policy.fitting import host_needs, learn, learn_early, retries_alone, show_lesson, with_margin

GIB = 1024**3
WELL = Outcome(exit_code=0)
FAILED = Outcome(exit_code=1, cause=Cause.EXIT_CODE)
OOM = Outcome(exit_code=1, cause=Cause.GPU_OOM)


def used(peak: float, seconds: float = 60.0, **more) -> Usage:
    return Usage(seconds=seconds, peak_vram=int(peak * GIB), **more)


def test_the_first_run_that_goes_well_is_the_first_lesson():
    lesson = learn(None, used(9, peak_mem=3 * GIB, mean_cpus=1.5), WELL)

    assert lesson == Lesson(peak_vram=9 * GIB, peak_mem=3 * GIB, cpus=1.5, runs=1)


def test_the_largest_peak_counts_and_the_mean_of_the_cpus():
    lesson = learn(Lesson(peak_vram=9 * GIB, peak_mem=5 * GIB, cpus=1.0, runs=1), used(7, mean_cpus=2.0), WELL)

    assert lesson == Lesson(peak_vram=9 * GIB, peak_mem=5 * GIB, cpus=1.5, runs=2)


def test_what_ended_within_seconds_or_never_used_the_card_teaches_nothing():
    assert learn(None, used(9, seconds=1.0), WELL) is None
    assert learn(None, Usage(seconds=60), WELL) is None
    assert learn(None, None, WELL) is None


def test_a_run_that_broke_off_begins_no_lesson_but_raises_one():
    known = Lesson(peak_vram=9 * GIB, runs=1)

    assert learn(None, used(2), FAILED) is None
    assert learn(known, used(12), FAILED).peak_vram == 12 * GIB
    assert learn(None, used(2, is_steady=True), FAILED).peak_vram == 2 * GIB


def test_who_ran_out_of_memory_beside_others_needs_the_card():
    known = Lesson(peak_vram=9 * GIB, runs=3)

    assert learn(known, used(9, was_alone=False), OOM) == Lesson(peak_vram=9 * GIB, runs=3, needs_card=True)
    assert learn(None, used(9, was_alone=False), OOM).needs_card


def test_who_ran_out_of_memory_alone_says_nothing_about_the_others():
    assert learn(Lesson(peak_vram=9 * GIB, runs=3), used(140), OOM) == Lesson(peak_vram=9 * GIB, runs=3)
    assert learn(None, used(140), OOM) is None


def test_a_larger_peak_alone_explains_why_it_ran_out_of_memory_and_packing_goes_on():
    burnt = Lesson(peak_vram=9 * GIB, runs=3, needs_card=True)

    assert learn(burnt, used(60), WELL) == Lesson(peak_vram=60 * GIB, runs=4)
    assert learn(burnt, used(9.2), WELL).needs_card
    assert learn(burnt, used(60, was_alone=False), WELL).needs_card


def test_a_steady_run_teaches_before_it_has_ended():
    assert learn_early(None, used(9)) is None
    early = learn_early(None, used(8, is_steady=True, mean_cpus=2.4))
    assert (early.peak_vram, early.cpus, early.runs) == (10 * GIB, 2.0, 0)  # a quarter more: it may grow yet
    assert learn_early(Lesson(peak_vram=9 * GIB, runs=2), used(11)).peak_vram == 11 * GIB
    assert learn_early(Lesson(needs_card=True), used(9, is_steady=True)) == Lesson(needs_card=True)


@given(st.integers(1, 200 * GIB))
def test_the_margin_is_above_the_peak_and_a_round_number(peak):
    booked = with_margin(peak)

    assert 10 * booked >= 11 * peak + 2560 * 1024**2
    assert booked % (64 * 1024**2) == 0


def test_the_machine_is_booked_as_jobs_like_it_used_it_unless_it_says_otherwise():
    lessons = {("a", "H200"): Lesson(cpus=2.3, peak_mem=4 * GIB), ("b", "H200"): Lesson(cpus=9)}

    assert host_needs(Wishes(shape="a"), lessons) == (3, 4 * GIB)
    assert host_needs(Wishes(shape="a", cpus=8, mem=GIB), lessons) == (8, GIB)
    assert host_needs(Wishes(shape="c"), lessons) == (0, 0)
    assert host_needs(Wishes(), lessons) == (0, 0)


def test_one_cpu_and_a_little_is_one_cpu():
    assert host_needs(Wishes(shape="a"), {("a", "H200"): Lesson(cpus=1.2)}) == (1, 0)


def test_only_a_packed_job_that_ran_out_of_memory_is_tried_alone():
    auto = Wishes(shape="a")
    part = [Claim(gpu="x", index=0, share=Fraction(1, 4), vram=GIB)]
    whole = [Claim(gpu="x", index=0, share=Fraction(1))]

    assert retries_alone(auto, part, OOM)
    assert not retries_alone(auto, whole, OOM)
    assert not retries_alone(auto, part, FAILED)
    assert not retries_alone(Wishes(vram=GIB), part, OOM)


def test_a_lesson_in_words():
    assert show_lesson(Lesson(peak_vram=9 * GIB, runs=3), "NVIDIA H200") == (
        "jobs of this shape needed 9G on NVIDIA H200 in 3 runs; 10.2G is booked for the next"
    )
