"""How an attempt ended, by the table of the launch protocol (design.md), and whether it is tried again."""

from itertools import product
from pathlib import Path

import pytest

from dibs.model.jobs import Cause, Outcome, State, retry_names
from dibs.policy.outcomes import LOST, Verdict, outcome_of, retry_after, settle
from policy.builders import a_job

FACTS = ("is_locked", "has_record", "has_started", "is_alive", "same_boot")
EVERY = list(product([False, True], repeat=5))
FAILED = Outcome(exit_code=1, cause=Cause.EXIT_CODE)


def expected(*, is_locked, has_record, has_started, is_alive, same_boot):
    """The table as the design has it: the first line that fits decides.

    But for one line: a held lease goes before a record, because a shim writes the record before it has ended what
    its command left behind on the GPU.
    """
    lines = [
        (is_locked, Verdict.RUNNING),
        (is_alive, Verdict.KEPT),
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
    record = {"state": "ended", "by": "checkpoint", "checkpointed": True, "message": "no handler", **how}

    outcome = outcome_of(record)

    assert (outcome.cause, outcome.checkpointed, outcome.message) == (cause, False, "no handler")


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


def test_an_end_that_was_not_observed_is_lost_and_claims_nothing():
    assert (LOST.exit_code, LOST.signal, LOST.seconds) == (None, None, None)
    assert LOST.state is State.LOST


def test_success_is_never_tried_again():
    job = a_job(retries=3, restartable=True, tries=1)

    assert retry_after(job, Outcome(exit_code=0)) is None


def test_without_retries_a_failure_is_final():
    job = a_job(tries=1)

    assert retry_after(job, FAILED) is None


def test_the_pause_doubles_up_to_a_minute():
    pauses = [retry_after(a_job(retries=10, tries=tries), FAILED) for tries in range(1, 11)]

    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_the_last_of_very_many_retries_is_as_good_as_the_first():
    job = a_job(retries=999_999, tries=5_000)

    assert retry_after(job, FAILED) == 60


def test_after_the_declared_number_of_retries_it_is_over():
    jobs = [a_job(retries=2, tries=tries) for tries in (1, 2, 3)]

    pauses = [retry_after(job, FAILED) for job in jobs]

    assert pauses == [1, 2, None]


@pytest.mark.parametrize("cause", [Cause.STOPPED, Cause.REFUSED, Cause.DEPENDENCY])
def test_what_was_ended_or_refused_on_purpose_is_not_tried_again(cause):
    job = a_job(retries=3, restartable=True, tries=1)

    assert retry_after(job, Outcome(cause=cause)) is None


@pytest.mark.parametrize("cause", [Cause.SIGNAL, Cause.TIME_LIMIT, Cause.START_ERROR, Cause.EXIT_CODE])
def test_every_other_failure_is(cause):
    job = a_job(retries=1, tries=1)

    assert retry_after(job, Outcome(cause=cause)) == 1


def test_a_lost_job_is_started_again_only_where_its_owner_said_so():
    jobs = [a_job(tries=1), a_job(tries=1, restartable=True), a_job(tries=1, retries=1), a_job(tries=2, retries=1)]

    pauses = [retry_after(job, LOST) for job in jobs]

    assert pauses == [None, 0, 1, None]


def test_a_job_that_is_lost_again_and_again_waits_longer_each_time_and_not_for_ever():
    pauses = [retry_after(a_job(restartable=True, tries=tries), LOST) for tries in range(1, 103)]

    assert pauses[:9] == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert pauses[98:] == [60, 60, None, None]


@pytest.mark.parametrize(
    ("retry_on", "cause", "again"),
    [
        (["exit-code"], Cause.EXIT_CODE, True),
        (["exit code"], Cause.EXIT_CODE, True),
        (["Exit-Code"], Cause.EXIT_CODE, True),
        (["time-limit", "gpu-oom"], Cause.GPU_OOM, True),
        (["time-limit", "gpu-oom"], Cause.TIME_LIMIT, True),
        (["gpu-oom"], Cause.EXIT_CODE, False),
        (["import-error", "killed"], Cause.IMPORT_ERROR, True),
        (["exit-code"], Cause.IMPORT_ERROR, False),
        (["killed"], Cause.KILLED, True),
        (["signal"], Cause.KILLED, True),
        (["killed"], Cause.SIGNAL, False),
        (["lost"], Cause.LOST, True),
        (["gpu-oom"], Cause.LOST, False),
    ],
)
def test_only_the_causes_that_were_named_are_tried_again(retry_on, cause, again):
    job = a_job(retries=1, tries=1, retry_on=retry_on)

    assert (retry_after(job, Outcome(cause=cause)) is not None) == again


def test_a_restartable_job_is_restarted_whatever_else_it_is_tried_for():
    job = a_job(restartable=True, tries=2, retry_on=["gpu-oom"])

    assert retry_after(job, LOST) == 1


def test_naming_a_cause_does_not_add_retries():
    job = a_job(retries=0, tries=1, retry_on=["lost", "exit-code"])

    assert retry_after(job, FAILED) is None
    assert retry_after(job, LOST) is None


@pytest.mark.parametrize("name", retry_names())
def test_every_name_that_may_be_given_has_a_cause_that_it_means(name):
    again = [cause for cause in Cause if retry_after(a_job(retries=1, retry_on=[name]), Outcome(cause=cause))]

    assert name == again[0].replace(" ", "-")
    assert again[1:] == ([Cause.KILLED] if name == "signal" else [])  # which is a signal, too


@pytest.mark.parametrize("name", retry_names())
def test_every_name_is_told_where_people_look(name):
    root = Path(__file__).parents[2]

    assert f"| `{name}` |" in (root / "docs" / "queue.md").read_text()
    assert (
        f" {name}"
        in (root / "tests" / "data" / "golden" / "dibs-add-help.txt").read_text().split("--retry-on:")[1]
    )
