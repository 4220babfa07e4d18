"""Decode undoes encode, for bytes that are no UTF-8 too."""

import os
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.model.gpus import Claim
from dibs.model.jobs import Command, Job, JobId, Request, Wishes
from dibs.model.usage import Usage
from dibs.store.codec import (
    JobRow,
    TrialRow,
    decode_claims,
    decode_request,
    decode_usage,
    encode_claims,
    encode_request,
    encode_usage,
    encode_wishes,
)
from store.builders import NOON

TEXT = st.one_of(st.text(), st.binary().map(os.fsdecode))
SHARES = st.fractions(min_value=Fraction(1, 10**9), max_value=1)
WISHES = st.builds(
    Wishes,
    num_gpus=st.integers(0, 10**6),
    share=st.none() | SHARES,
    vram=st.none() | st.integers(1, 2**50),
    only=st.lists(TEXT, max_size=3).map(tuple),
    prefer=st.lists(TEXT, max_size=3).map(tuple),
)
REQUESTS = st.builds(
    Request,
    command=st.builds(Command, st.lists(TEXT, max_size=4).map(tuple), TEXT),
    wishes=WISHES,
    name=TEXT,
    workdir=TEXT,
    env=st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
    priority=st.integers(-(2**31), 2**31),
    retries=st.integers(0, 10**6),
    restartable=st.booleans(),
    time_limit=st.none() | st.floats(0.001, 1e9),
    grace=st.floats(0, 1e6),
)
CLAIMS = st.lists(
    st.builds(Claim, gpu=TEXT, index=st.integers(0, 99), share=SHARES, vram=st.integers(0, 2**50)), max_size=4
).map(tuple)

USAGES = st.builds(
    Usage,
    seconds=st.floats(0, 1e9),
    peak_vram=st.none() | st.integers(0, 2**50),
    vram_total=st.none() | st.integers(0, 2**50),
    mean_load=st.none() | st.floats(0, 100),
    energy=st.none() | st.floats(0, 1e9),
    peak_mem=st.none() | st.integers(0, 2**50),
    mean_cpus=st.none() | st.floats(0, 1e6),
    is_steady=st.booleans(),
    was_alone=st.booleans(),
    astray=st.lists(TEXT, max_size=3).map(tuple),
)


@given(REQUESTS)
def test_a_request_comes_back_as_it_was(request):
    text = encode_request(request)

    assert decode_request(text) == request
    assert text.isascii()


@given(CLAIMS)
def test_claims_come_back_as_they_were(claims):
    assert decode_claims(encode_claims(claims)) == claims


@given(USAGES)
def test_what_was_measured_comes_back_as_it_was(usage):
    assert decode_usage(encode_usage(usage)) == usage


def test_what_another_version_measured_is_left_out():
    assert decode_usage('{"seconds":2,"tea":1}') == Usage(seconds=2)
    assert decode_usage(encode_usage(None)) is None


@given(WISHES, WISHES)
def test_the_same_wishes_and_only_they_have_the_same_text(one, other):
    assert (encode_wishes(one) == encode_wishes(other)) == (one == other)


@given(request=REQUESTS)
def test_a_request_survives_the_file(request, tmp_path_factory):
    from dibs.store.store import Store

    path = str(tmp_path_factory.getbasetemp() / "round.db")
    store = Store(path)
    with store.turn():
        job, _ = store.submit(request, store.keep_environment({"X": os.fsdecode(b"\xff")}), NOON)

    found = store.job(job.id)

    store.close()
    os.unlink(path)
    assert found == job
    assert found.request == request


def test_what_is_not_wished_for_is_not_written():
    assert encode_request(Request(command=Command.line("x"))) == '{"words":["bash","-c","x"],"shown":"x"}'


@pytest.mark.parametrize(
    "more", [{}, {"address": "0"}, {"part": 1}, {"address": "MIG-7", "part": 0}, {"address": "GPU-1"}]
)
def test_a_claim_keeps_how_its_card_is_called(more):
    claims = (Claim(gpu="GPU-a", index=3, share=Fraction(1, 3), vram=7, **more),)

    assert decode_claims(encode_claims(claims)) == claims


def test_a_claim_of_an_older_dibs_is_read():
    assert decode_claims('[["GPU-a", 0, "1", 0]]') == (Claim(gpu="GPU-a", index=0, share=Fraction(1)),)


def test_the_result_of_a_trial_is_what_its_sweep_took_of_it_and_not_the_last_number():
    job = Job(id=JobId(1), request=Request(command=Command.line("train")))
    trial = TrialRow({}, {"loss": 0.1}, {"acc": 0.8, "loss": 0.9})

    row = JobRow(
        job=job, outcome=None, gpus=(), folder="", queued_at=0.0, started_at=None, ended_at=None, trial=trial
    )

    assert list(row.metrics.items()) == [("loss", 0.1), ("acc", 0.8)]
