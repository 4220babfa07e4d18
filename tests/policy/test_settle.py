"""What became of an attempt: the launch protocol of design.md, line by line."""

from itertools import product

import pytest

from dibs.model.jobs import Cause, State
from dibs.policy.settle import LOST, Verdict, outcome_of, settle

FACTS = ("is_locked", "has_record", "has_started", "lease_is_held", "same_boot")
EVERY = list(product([False, True], repeat=5))


def expected(*, is_locked, has_record, has_started, lease_is_held, same_boot):
    """The table as the design has it: the first line that fits decides.

    But for one line: a held lease goes before a record, because a shim writes the record before it has ended what
    its command left behind on the GPU.
    """
    lines = [
        (is_locked, Verdict.RUNNING),
        (lease_is_held, Verdict.KEPT),
        (has_record, Verdict.OVER),
        (not same_boot, Verdict.LOST),
        (has_started, Verdict.LOST),
        (True, Verdict.NEVER_RAN),
    ]
    return next(verdict for fits, verdict in lines if fits)


@pytest.mark.parametrize("values", EVERY)
def test_every_combination_of_facts_has_the_verdict_of_the_design(values):
    facts = dict(zip(FACTS, values, strict=True))

    verdict = settle(**facts)

    assert verdict is expected(**facts)


@pytest.mark.parametrize("values", EVERY)
def test_only_what_cannot_have_run_is_said_to_have_never_run(values):
    facts = dict(zip(FACTS, values, strict=True))

    verdict = settle(**facts)

    nothing = not any(facts[name] for name in FACTS[:4]) and facts["same_boot"]
    assert (verdict is Verdict.NEVER_RAN) == nothing


@pytest.mark.parametrize("code", range(256))
def test_an_exit_code_is_kept_as_it_is(code):
    record = {"state": "ended", "code": code, "signal": None, "seconds": 1.5}

    outcome = outcome_of(record)

    assert (outcome.exit_code, outcome.signal, outcome.seconds) == (code, None, 1.5)
    assert outcome.cause is (None if code == 0 else Cause.EXIT_CODE)
    assert outcome.state is (State.SUCCEEDED if code == 0 else State.FAILED)


@pytest.mark.parametrize("number", range(1, 65))
def test_a_signal_is_kept_as_it_is(number):
    record = {"state": "ended", "code": None, "signal": number}

    outcome = outcome_of(record)

    assert (outcome.exit_code, outcome.signal, outcome.cause) == (None, number, Cause.SIGNAL)
    assert outcome.state is State.FAILED


@pytest.mark.parametrize("how", [{"code": 0}, {"code": 3}, {"signal": 15}])
@pytest.mark.parametrize(
    ("by", "cause", "state"),
    [("time", Cause.TIME_LIMIT, State.TIMED_OUT), ("stop", Cause.STOPPED, State.CANCELLED)],
)
def test_who_ended_it_counts_more_than_how_it_ended(how, by, cause, state):
    record = {"state": "ended", "by": by, **how}

    outcome = outcome_of(record)

    assert (outcome.cause, outcome.state) == (cause, state)
    assert (outcome.exit_code, outcome.signal) == (how.get("code"), how.get("signal"))


@pytest.mark.parametrize(("how", "cause"), [({"code": 3}, Cause.EXIT_CODE), ({"signal": 10}, Cause.SIGNAL)])
def test_what_failed_over_the_checkpoint_signal_has_saved_nothing(how, cause):
    outcome = outcome_of({"state": "ended", "by": "checkpoint", "checkpointed": True, **how})

    assert (outcome.cause, outcome.checkpointed) == (cause, False)


@pytest.mark.parametrize(("code", "shown"), [(None, 127), (126, 126)])
def test_what_could_not_be_started_has_an_exit_code_and_says_why(code, shown):
    record = {"state": "ended", "by": "start", "code": code, "message": "no such file"}

    outcome = outcome_of(record)

    assert (outcome.exit_code, outcome.cause, outcome.message) == (shown, Cause.START_ERROR, "no such file")
    assert outcome.state is State.FAILED


@pytest.mark.parametrize(
    ("by", "how"),
    [("checkpoint", {"code": 0}), ("time", {"code": 0}), ("time", {"code": 3}), ("time", {"signal": 9})],
)
def test_what_was_told_to_save_its_work_ran_out_of_time_and_says_so(how, by):
    record = {"state": "ended", "by": by, "checkpointed": True, **how}

    outcome = outcome_of(record)

    assert (outcome.cause, outcome.message, outcome.checkpointed) == (Cause.TIME_LIMIT, "checkpointed", True)
    assert (outcome.exit_code, outcome.signal) == (how.get("code"), how.get("signal"))


@pytest.mark.parametrize("by", ["", "time", "stop", "start"])
def test_a_record_of_the_version_before_is_not_checkpointed(by):
    assert outcome_of({"state": "ended", "by": by, "code": 1}).checkpointed is False


@pytest.mark.parametrize(
    "cause",
    [
        *(Cause.GPU_OOM, Cause.GPU_FAULT, Cause.HOST_OOM, Cause.KILLED),
        *(Cause.IMPORT_ERROR, Cause.SYNTAX_ERROR, Cause.PORT_IN_USE, Cause.DISK_FULL),
    ],
)
@pytest.mark.parametrize("how", [{"code": 1}, {"signal": 9}])
def test_a_cause_that_was_seen_is_told_with_the_exit_code_or_signal(how, cause):
    record = {"state": "ended", "by": "", "cause": str(cause), "message": "its last words", **how}

    outcome = outcome_of(record)

    assert (outcome.cause, outcome.message, outcome.state) == (cause, "its last words", State.FAILED)
    assert (outcome.exit_code, outcome.signal) == (how.get("code"), how.get("signal"))


@pytest.mark.parametrize("cause", ["lost", "a cause of a later version", None])
def test_a_cause_that_no_shim_may_claim_is_an_exit_code(cause):
    assert outcome_of({"state": "ended", "code": 2, "cause": cause}).cause is Cause.EXIT_CODE


def test_what_nobody_saw_end_is_lost_and_claims_nothing():
    assert (LOST.exit_code, LOST.signal, LOST.seconds) == (None, None, None)
    assert LOST.state is State.LOST
