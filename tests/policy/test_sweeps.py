"""How a sweep goes on."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.model.gpus import Card, Gpu
from dibs.model.jobs import Cause, Command, Job, JobId, Outcome, Request, State, Wishes
from dibs.model.sweeps import Sweep, SweepId, SweepState, Trial, TrialState, trial_key, trial_of
from dibs.model.usage import Lesson
from dibs.policy.sweeps import (
    FIRST_TRIALS,
    SweepVerdict,
    fail_alike,
    front,
    is_over,
    judged,
    places,
    planned,
    room,
    score,
)

REQUEST = Request(command=Command.line("train"))
GIB = 1024**3


def a_trial(**more):
    made = {"sweep": SweepId(3), "number": 1, "point": {}, "command": "train", "fingerprint": ""}
    return Trial(**{**made, **more})


def a_sweep(**more):
    return Sweep(
        **{"id": SweepId(3), "key": "", "name": "", "spec": {}, "request": REQUEST, "environment": "", **more}
    )


def a_job(state):
    return Job(id=JobId(7), request=REQUEST, state=state)


# -- how many --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "samples", "trials"), [(12, None, 12), (12, 5, 5), (3, 5, 3), (None, 5, 5), (None, None, None)]
)
def test_a_sweep_has_as_many_trials_as_there_are_points_and_as_were_asked_for(size, samples, trials):
    assert planned(size, samples) == trials


@given(st.integers(0, 50), st.integers(0, 60), st.integers(0, 60), st.none() | st.integers(0, 60))
def test_never_are_more_open_than_may_be_nor_more_made_than_asked_for(parallel, is_open, made, most):
    found = room(parallel, is_open, made, most)

    assert found >= 0
    assert found == 0 or is_open + found <= parallel
    assert found == 0 or most is None or made + found <= most


def cards(*slots, memory=None):
    return [
        Card(gpu=Gpu(key=f"GPU-{index}", index=index, name="H200", memory_total=memory), slots=count)
        for index, count in enumerate(slots)
    ]


@pytest.mark.parametrize(
    ("pool", "wishes", "count"),
    [
        (cards(1, 1, 1, 1), Wishes(), 4),
        (cards(2, 1), Wishes(), 3),
        (cards(1, 1, 1), Wishes(num_gpus=2), 1),
        (cards(1, 1), Wishes(share=Fraction(1, 4)), 8),
        (cards(1, 1, memory=80 * GIB), Wishes(vram=20 * GIB), 8),
        (cards(1, 1), Wishes(only=("1",)), 1),
        (cards(), Wishes(), 1),
        (cards(1, 1), Wishes(num_gpus=0), 16),
        (cards(1, 1), Wishes(num_gpus=0, cpus=4), 4),
        (cards(1, 1), Wishes(num_gpus=0, cpus=64), 1),
    ],
)
def test_as_many_trials_are_open_as_there_are_places_for_such_jobs(pool, wishes, count):
    assert places(pool, wishes, {}, cpus=16) == count


def test_with_vram_auto_there_are_more_places_once_it_is_known_how_little_is_needed():
    pool, wishes = cards(1, 1, memory=80 * GIB), Wishes(shape="train.py")
    lesson = Lesson(peak_vram=8 * GIB, peak_mem=1, cpus=1.0, runs=2, needs_card=False)

    assert places(pool, wishes, {}, cpus=16) == 2
    assert places(pool, wishes, {("train.py", "H200"): lesson}, cpus=16) > 8


# -- which is best ---------------------------------------------------------------------------------------


def test_less_of_a_score_is_better_whatever_the_goal():
    assert score((2.0, 9.0), ["min", "max"]) == 2.0
    assert score((2.0,), ["max"]) == -2.0
    assert score(None, ["min"]) is score((), ["min"]) is score((1.0,), []) is None


@given(
    st.lists(st.tuples(*[st.integers(0, 6).map(float)] * 3), max_size=30),
    st.lists(st.sampled_from(["min", "max"]), min_size=3, max_size=3),
)
def test_a_front_has_exactly_those_that_none_is_better_than(found, goals):
    signs = [1 if goal == "min" else -1 for goal in goals]

    def beats(one, other):
        one, other = ([sign * value for sign, value in zip(signs, values, strict=True)] for values in (one, other))
        return all(a <= b for a, b in zip(one, other, strict=True)) and one != other

    chosen = front(list(enumerate(found)), goals)

    best = {values for values in found if not any(beats(other, values) for other in found)}
    assert {found[number] for number in chosen} == best
    assert len(chosen) == len(best)  # of equal ones the first
    assert all(found.index(found[number]) == number for number in chosen)


# -- what became of a trial ------------------------------------------------------------------------------


def test_the_results_of_a_job_that_succeeded_are_to_be_read_also_if_its_end_was_asked_for():
    assert judged(a_trial(), a_job(State.SUCCEEDED), Outcome(exit_code=0)) is None
    assert judged(a_trial(pruned_by="at step 5"), a_job(State.SUCCEEDED), Outcome(exit_code=0)) is None


@pytest.mark.parametrize(
    ("state", "outcome", "pruned_by", "verdict"),
    [
        (
            State.FAILED,
            Outcome(exit_code=3, cause=Cause.EXIT_CODE, message="it fell"),
            "",
            SweepVerdict(TrialState.FAILED, "job 7 failed with exit code 3: it fell", "exit code 3"),
        ),
        (
            State.FAILED,
            Outcome(signal=11, cause=Cause.SIGNAL),
            "at step 5",
            SweepVerdict(TrialState.FAILED, "job 7 failed with signal 11", "signal 11"),
        ),
        (
            State.TIMED_OUT,
            Outcome(cause=Cause.TIME_LIMIT),
            "",
            SweepVerdict(TrialState.FAILED, "job 7 failed with time limit", "time limit"),
        ),
        (
            State.CANCELLED,
            Outcome(cause=Cause.STOPPED),
            "pruned at step 5",
            SweepVerdict(TrialState.PRUNED, "pruned at step 5"),
        ),
        (
            State.CANCELLED,
            Outcome(cause=Cause.STOPPED, message="cancelled before it started"),
            "",
            SweepVerdict(TrialState.FAILED, "job 7 was cancelled: cancelled before it started"),
        ),
        (State.LOST, Outcome(cause=Cause.LOST), "", SweepVerdict(TrialState.FAILED, "job 7 was lost")),
    ],
)
def test_a_job_that_did_not_succeed_tells_what_became_of_its_trial(state, outcome, pruned_by, verdict):
    assert judged(a_trial(pruned_by=pruned_by), a_job(state), outcome) == verdict


def failed(cause="exit code 1", state=TrialState.FAILED):
    return a_trial(state=state, cause=cause, why="job 7 failed with exit code 1")


def test_first_trials_that_fail_in_the_same_way_are_reason_to_hold_a_sweep():
    why = fail_alike([failed()] * FIRST_TRIALS)

    assert why == "its first 3 trials failed alike; the last one: job 7 failed with exit code 1"
    assert fail_alike([failed()] * FIRST_TRIALS, is_anew=True).startswith(
        "its first 3 trials since it was let go on failed alike"
    )


@pytest.mark.parametrize(
    "first",
    [
        [],
        [failed()] * (FIRST_TRIALS - 1),
        [failed(), failed(), failed("exit code 2")],
        [failed(), failed(state=TrialState.COMPLETE), failed()],
        [failed(), failed(state=TrialState.PRUNED), failed()],
        [failed("")] * FIRST_TRIALS,  # cancelled by a user, or lost
    ],
)
def test_others_are_not(first):
    assert fail_alike(first) == ""


# -- when it is over -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "over"),
    [
        ({}, True),
        ({"made": 4}, False),
        ({"made": 4, "is_exhausted": True}, True),
        ({"most": None}, False),
        ({"open_trials": 1}, False),
        ({"due": 1}, False),
    ],
)
def test_a_sweep_is_over_when_nothing_is_open_and_nothing_is_left_to_try(changes, over):
    facts = {"open_trials": 0, "due": 0, "made": 5, "most": 5, "is_exhausted": False, **changes}

    assert is_over(a_sweep(), **facts) is over
    assert not is_over(a_sweep(state=SweepState.HELD), **facts)
    assert not is_over(a_sweep(state=SweepState.STOPPED), **facts)


# -- names -----------------------------------------------------------------------------------------------


def test_the_key_of_a_trials_job_tells_which_trial_it_is():
    assert trial_of(trial_key(SweepId(3), 17)) == (3, 17)
    for other in ("", "sweep 3", "sweep 3 trial x", "a sweep 3 trial 4", "sweep 03 trial 4", "sweep 3 trial 4\n"):
        assert trial_of(other) is None


def test_jobs_are_called_after_their_sweep_or_after_its_number():
    assert (a_sweep(name="lr").label, a_sweep().label) == ("lr", "sweep-3")
