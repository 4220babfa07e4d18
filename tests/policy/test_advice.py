"""Advice about failures and about what a job used."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.model.jobs import Cause, Wishes
from dibs.model.usage import Usage
from dibs.policy.advice import failure_advice, jobs_per_gpu, usage_advice

G = 1024**3
SMALL = Usage(
    seconds=600.0, peak_vram=int(9.1 * G), vram_total=141 * G, mean_load=31.0, peak_mem=4 * G, mean_cpus=1.0
)
PLAIN = Wishes()


@pytest.mark.parametrize(
    ("cause", "message", "sentence"),
    [
        (
            Cause.IMPORT_ERROR,
            "ModuleNotFoundError: No module named 'torch'",
            "No module named 'torch': is the environment active where dibs was called?",
        ),
        (
            Cause.DISK_FULL,
            "OSError: [Errno 28] No space left on device",
            "[Errno 28] No space left on device: `df -h` shows which disk is full, "
            "`df -i` where it has too many files",
        ),
        (Cause.EXIT_CODE, "", ""),
        (Cause.EXIT_CODE, "the driver reported Xid 31: x", "the driver reported Xid 31: x"),
        (Cause.KILLED, "SIGKILL ended it: ann or root did", "SIGKILL ended it: ann or root did"),
        (None, "", ""),
    ],
)
def test_a_failure_is_one_sentence(cause, message, sentence):
    assert failure_advice(cause, message) == sentence


@pytest.mark.parametrize("cause", [one for one in Cause if "-" in one])
def test_every_cause_that_is_read_from_a_log_has_advice(cause):
    assert failure_advice(cause, "Its last words.").startswith("Its last words: ")


def test_a_job_that_leaves_most_of_its_card_is_told_how_many_fit():
    assert usage_advice(SMALL, PLAIN, cpus=64, memory=512 * G) == [
        "peak 9.1G of 141G, load 31 %: 6 of these fit on this card; try `--vram auto`"
    ]


@pytest.mark.parametrize(
    ("change", "number"),
    [
        ({}, 6),
        ({"mean_load": 5.0}, 13),  # its memory is the limit
        ({"mean_load": 120.0}, 1),
        ({"mean_cpus": 30.0}, 2),  # the processors are
        ({"peak_mem": 100 * G}, 4),  # the machine's memory is
        ({"peak_vram": 100 * G}, 1),
        ({"peak_vram": None}, 0),
        ({"vram_total": None}, 0),
    ],
)
def test_memory_load_and_host_decide_how_many_fit(change, number):
    assert jobs_per_gpu(replace(SMALL, **change), cpus=64, memory=512 * G) == number


def test_a_card_that_waits_is_told_with_what_the_host_does():
    assert usage_advice(replace(SMALL, mean_load=3.0, mean_cpus=8.0, peak_vram=100 * G), PLAIN, cpus=8) == [
        "load 3 %: the GPU waits; look at data loading (host CPU 800 %)"
    ]
    (said,) = usage_advice(replace(SMALL, mean_load=3.0, mean_cpus=0.9, peak_vram=100 * G), PLAIN)
    assert said.startswith("load 3 %: the GPU waits; larger batches")


def test_a_job_that_never_used_its_card_needs_none():
    assert usage_advice(replace(SMALL, peak_vram=0, mean_load=0.0), PLAIN) == [
        "it never used its GPU: `-n 0` leaves it to others"
    ]


def test_what_cannot_be_known_is_not_said():
    assert usage_advice(Usage(seconds=600.0), PLAIN, cpus=8, memory=G) == []
    assert usage_advice(replace(SMALL, peak_vram=None), PLAIN) == []


def test_a_short_run_says_little():
    assert usage_advice(replace(SMALL, seconds=3.0), PLAIN) == []


def test_a_job_without_a_gpu_hears_nothing_about_gpus():
    assert usage_advice(replace(SMALL, peak_vram=None, mean_load=None), Wishes(num_gpus=0)) == []
    assert usage_advice(replace(SMALL, peak_vram=0, mean_load=None), Wishes(num_gpus=0)) == []


def test_who_shares_its_card_already_is_not_told_to():
    for wishes in (Wishes(shape="train.py"), Wishes(share=Fraction(1, 2)), Wishes(vram=10 * G)):
        assert usage_advice(SMALL, wishes) == []


def test_a_booking_that_is_far_off_is_named():
    assert usage_advice(SMALL, Wishes(vram=40 * G)) == [
        "it booked 40G and used 9.1G: `--vram 10G` leaves more to others"
    ]
    assert usage_advice(SMALL, Wishes(vram=8 * G)) == ["it used 9.1G and had booked 8G: `--vram 10G`"]


def test_host_memory_is_named_where_it_is_much_or_more_than_was_booked():
    hungry = replace(SMALL, peak_mem=40 * G, peak_vram=None)
    assert usage_advice(hungry, PLAIN, memory=128 * G) == [
        "host memory 40G of 128G: `--mem 44G` keeps others from filling the rest"
    ]
    assert usage_advice(hungry, PLAIN, memory=512 * G) == []
    assert usage_advice(hungry, Wishes(mem=16 * G), memory=512 * G) == [
        "host memory 40G is more than the 16G that it booked: `--mem 44G`"
    ]


def test_gpus_that_it_was_not_given_come_first_however_short_it_ran():
    (said,) = usage_advice(Usage(seconds=1.0, astray=("GPU-b",)), PLAIN, astray=["1"])

    assert said == "it used GPU 1, which it was not given: its own are in CUDA_VISIBLE_DEVICES"


@given(
    st.builds(
        Usage,
        seconds=st.floats(0, 1e6),
        peak_vram=st.none() | st.integers(0, 2**40),
        vram_total=st.none() | st.integers(0, 2**40),
        mean_load=st.none() | st.floats(0, 100),
        peak_mem=st.none() | st.integers(0, 2**45),
        mean_cpus=st.none() | st.floats(0, 1000),
    ),
    st.builds(Wishes, num_gpus=st.integers(0, 8), vram=st.none() | st.integers(1, 2**40)),
    st.none() | st.integers(1, 1000),
    st.none() | st.integers(1, 2**45),
)
def test_there_is_never_more_than_a_few_sentences(usage, wishes, cpus, memory):
    found = usage_advice(usage, wishes, cpus=cpus, memory=memory)

    assert len(found) <= 3
    assert all(sentence and "None" not in sentence for sentence in found)
