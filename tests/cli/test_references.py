"""How jobs are named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.fake_daemon import a_job
from dibs.cli.references import in_chunks, is_number


@given(st.lists(st.integers()), st.integers(1, 9))
def test_chunks_lose_nothing(ids, size):
    chunks = list(in_chunks(ids, size))

    assert [one for chunk in chunks for one in chunk] == ids
    assert all(0 < len(chunk) <= size for chunk in chunks)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "١٧", "1e3", "0x1", "9" * 16, " 1"])
def test_what_is_no_plain_number_is_asked_for(text):
    assert not is_number(text)


def test_plain_numbers_cost_no_question(daemon, typed):
    daemon.jobs = {1: a_job(1), 2: a_job(2)}

    typed("hold", "1", "2")

    assert [path for _, path, _, _ in daemon.calls] == ["/v1/jobs/act"]


def test_the_rest_is_one_question(daemon, typed):
    daemon.jobs = {number: a_job(number) for number in range(1, 5)}
    daemon.names = {"@~2": [2], "a,b": [3], "17_4": [4]}

    typed("hold", "@", "@~2", "a,b", "17_4", "1-2")

    assert daemon.queries("/v1/find") == [{"ref": ["@", "@~2", "a,b", "17_4", "1-2"]}]
    assert daemon.bodies()[0]["ids"] == [4, 2, 3, 1]


def test_hundreds_of_names_are_asked_in_several_questions(daemon, typed):
    daemon.jobs = {number: a_job(number) for number in range(1, 251)}
    daemon.names = {f"name-{number}": [number] for number in range(1, 251)}

    typed("hold", *daemon.names)

    assert len(daemon.queries("/v1/find")) == 3
    assert len(daemon.bodies()[0]["ids"]) == 250


@pytest.mark.parametrize("reference", ["no-such-name", "\udcff", "x" * 299, "%2e%2e", "../../x", "a b&c=d#e"])
def test_a_name_that_there_is_not_is_one_sentence(daemon, typed, reference):
    done = typed("why", reference)

    assert done.status == 1
    assert done.stderr.startswith("dibs: error: cannot find job ")


@pytest.mark.parametrize("reference", ["", "x" * 301, "a\0b"])
def test_what_can_be_no_name_is_refused(daemon, typed, reference):
    assert typed("why", reference).status == 2
    assert daemon.calls == []
