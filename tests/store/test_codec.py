"""Decode undoes encode, for bytes that are no UTF-8 too."""

import os
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dibs.model.claims import Claim
from dibs.model.jobs import Command, Request, Wishes
from dibs.store.codec import decode_claims, decode_request, encode_claims, encode_request, encode_wishes
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


@given(REQUESTS)
def test_a_request_comes_back_as_it_was(request):
    text = encode_request(request)

    assert decode_request(text) == request
    assert text.isascii()


@given(CLAIMS)
def test_claims_come_back_as_they_were(claims):
    assert decode_claims(encode_claims(claims)) == claims


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
