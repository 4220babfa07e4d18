"""Traces as JSON lines: what is written is read, and what cannot be meant is refused by its line."""

import json

import pytest
from hypothesis import given

from dibs.errors import BadInput
from dibs.simulate.machine import SimulatedMachine
from dibs.simulate.simulator import simulate
from dibs.simulate.trace import KINDS, line_of, make, read_trace
from simulate.traces import traces


def read(*bodies: object):
    return read_trace([json.dumps(body).encode() for body in bodies])


@pytest.mark.parametrize("kind", KINDS)
def test_a_made_trace_comes_back_from_its_file(kind):
    made = make(kind, jobs=60, gpus=8, seed=4)

    assert read_trace(line_of(one).encode() for one in made).arrivals == made


@given(traces())
def test_any_trace_comes_back(trace):
    again = read_trace(line_of(one).encode() for one in trace).arrivals

    assert again == trace


def test_jobs_are_numbered_by_age_and_the_first_comes_at_0():
    trace = read(
        {"id": 17, "queued_at": 1000.5, "seconds": 5, "after": [{"job": 3}, {"job": 99}]},
        {"id": 3, "queued_at": 1000, "seconds": 7, "begin_at": 1010},
    )

    early, late = trace.arrivals
    assert (early.job.id, early.queued_at, early.seconds, early.job.request.begin) == (1, 0, 7, 10)
    assert (late.job.id, late.queued_at) == (2, 0.5)
    assert [one.job for one in late.job.request.after] == [1]  # 99 is not in the trace: it was over


def test_what_was_recorded_is_a_trace_without_those_that_did_not_run():
    asked = {"command": "x", "share": "1/3", "only": [], "a word of tomorrow": 1}
    past = {"queued_at": "2026-11-15T09:00:00.000Z", "started_at": "2026-11-15T09:00:30.000Z", "seconds": 4.5}
    over = {"id": 1, "state": "failed", **asked, **past}

    trace = read(over, {"id": 2, "state": "queued"}, {**over, "id": 3, "state": "cancelled", "seconds": None})

    assert trace.left_out == 2
    assert [(one.seconds, one.really_waited, str(one.job.request.wishes.share)) for one in trace.arrivals] == [
        (4.5, 30, "1/3")
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "it is no JSON object"),
        ("[1]", "it is no JSON object"),
        ("[" * 100_000, "it is no JSON object"),
        ('{"seconds": 1}', "it has no queued_at"),
        ('{"queued_at": 0}', "it has no seconds"),
        ('{"queued_at": 0, "seconds": true}', "seconds cannot be True"),
        ('{"queued_at": 0, "seconds": -1}', "seconds cannot be -1"),
        ('{"queued_at": 0, "seconds": NaN}', "seconds cannot be nan"),
        ('{"queued_at": "noon", "seconds": 1}', "queued_at cannot be 'noon'"),
        ('{"queued_at": 0, "seconds": 1, "num_gpus": 1.5}', "num_gpus cannot be 1.5"),
        ('{"queued_at": 0, "seconds": 1, "num_gpu": 1}', "there is no word 'num_gpu' in a trace"),
        ('{"queued_at": 0, "seconds": 1, "time_limit_seconds": 0}', "time_limit_seconds cannot be 0"),
        ('{"queued_at": 0, "seconds": 1, "share": "2"}', "cannot read '2' as a share of a GPU"),
        ('{"queued_at": 0, "seconds": 1, "only": "0"}', "only cannot be '0'"),
        ('{"queued_at": 0, "seconds": 1, "after": [{"job": "a"}]}', "job cannot be 'a'"),
        ('{"queued_at": 0, "seconds": 1, "array": 3}', "array cannot be 3"),
    ],
)
def test_a_line_that_cannot_be_meant_is_named_with_what_is_wrong(line, message):
    with pytest.raises(BadInput) as error:
        read_trace([b'{"queued_at": 0, "seconds": 1}', b"\n", line.encode()])

    assert error.value.message == f"cannot read line 3 of the trace: {message}"
    assert error.value.remedy


def test_two_jobs_cannot_have_the_same_number():
    with pytest.raises(BadInput, match="two lines have the id 3"):
        read({"id": 3, "queued_at": 0, "seconds": 1}, {"id": 3, "queued_at": 5, "seconds": 1})


def test_a_trace_without_a_job_is_refused():
    with pytest.raises(BadInput, match="empty"):
        read_trace([b"\n"])


def test_a_seed_makes_the_same_jobs_and_another_one_others():
    first, again, other = (make("day", jobs=50, gpus=8, seed=seed) for seed in (1, 1, 2))

    assert first == again != other


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gpus", [1, 64])
def test_every_made_job_fits_its_machine(kind, gpus):
    trace = make(kind, jobs=200, gpus=gpus, seed=1)

    assert len(trace) == 200
    assert max(one.job.request.wishes.num_gpus for one in trace) <= gpus
    assert [one.queued_at for one in trace] == sorted(one.queued_at for one in trace)
    assert not any(one.is_cut for one in trace)


def test_cards_that_the_queue_recorded_by_uuid_are_numbered():
    trace = read(
        {"queued_at": 0, "seconds": 1, "only": ["GPU-77b1"]},
        {"queued_at": 1, "seconds": 1, "only": ["GPU-3f2a"], "prefer": ["GPU-77b1"]},
    )

    history = simulate(trace.arrivals, SimulatedMachine(num_gpus=2))

    assert not history.never
    assert [claim.index for run in history.runs for claim in run.claims] == [0, 1]
