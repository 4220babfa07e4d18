"""Stop rules: what fails one after another is stopped before it has eaten the queue."""

import random

import pytest

from dibs.model.jobs import Cause, Outcome
from dibs.policy.outcomes import Breakers, EndedAttempt, Limits, judge_end, without_gpu

LIMITS = Limits(quick_failures=5, quick_seconds=10, gpu_failures=3)
OK = Outcome(exit_code=0, seconds=60)
BAD = Outcome(exit_code=1, cause=Cause.EXIT_CODE, seconds=0.2)
SLOW = Outcome(exit_code=1, cause=Cause.EXIT_CODE, seconds=11)


class Rules:
    """Feeds ends to the rules and remembers what they said."""

    def __init__(self, limits=LIMITS):
        self.state = Breakers()
        self.limits = limits
        self.held = []
        self.quarantined = {}
        self.resting = {}
        self.ends = 0

    def end(self, outcome, *gpus, group="project vision", running=()):
        self.ends += 1
        over = EndedAttempt(attempt=(self.ends, 1), group=group, gpus=tuple(gpus), outcome=outcome)
        self.state, found = judge_end(self.state, over, self.limits, running)
        self.held += [found.hold] if found.hold else []
        self.quarantined |= found.quarantine
        self.resting |= found.rest
        for gpu in found.trust:
            del self.resting[gpu]
        return found


def test_a_group_whose_jobs_fail_one_after_another_is_held_with_a_sentence():
    rules = Rules()

    for _ in range(5):
        rules.end(BAD, "g0")

    assert rules.held == [
        "5 jobs of project vision failed one after another within 10s each, the last with exit code 1; "
        "`dibs release --project vision` lets the others go on, "
        "`dibs retry --failed --project vision` repeats them"
    ]


def test_a_batch_has_a_sentence_too():
    rules = Rules()

    for _ in range(5):
        rules.end(Outcome(signal=11, cause=Cause.SIGNAL, seconds=1), "g0", group="batch 12")

    assert "5 jobs of the list that begins with job 12 failed" in rules.held[0]
    assert "the last with signal 11; `dibs release` with their numbers lets the others go on" in rules.held[0]


@pytest.mark.parametrize("saves", [OK, SLOW, Outcome(cause=Cause.TIME_LIMIT, signal=15, seconds=2)])
def test_a_success_and_a_job_that_took_its_time_begin_a_new_count(saves):
    rules = Rules()

    for outcome in [BAD] * 4 + [saves] + [BAD] * 4:
        rules.end(outcome, "g0")

    assert rules.held == []


@pytest.mark.parametrize("cause", [Cause.STOPPED, Cause.LOST, Cause.DEPENDENCY, Cause.REFUSED])
def test_what_others_did_to_a_job_counts_neither_way(cause):
    rules = Rules()

    for _ in range(20):
        rules.end(Outcome(cause=cause, seconds=0), "g0")
    assert rules.held == []

    for outcome in [BAD] * 4 + [Outcome(cause=cause, seconds=0), BAD]:
        rules.end(outcome, "g0")
    assert len(rules.held) == 1


def test_what_could_not_be_started_failed_quickly():
    rules = Rules()

    for _ in range(5):
        rules.end(Outcome(exit_code=127, cause=Cause.START_ERROR), "g0")

    assert "the last with start error" in rules.held[0]


@pytest.mark.parametrize("cause", [Cause.IMPORT_ERROR, Cause.SYNTAX_ERROR, Cause.DISK_FULL, Cause.PORT_IN_USE])
def test_what_is_the_jobs_own_fault_holds_its_group_and_never_a_card(cause):
    rules = Rules()
    own = Outcome(exit_code=1, cause=cause, message="its last words", seconds=0.2)

    for _ in range(5):
        rules.end(own, "g0", running=[("g1", "project vision")])
        rules.end(Outcome(exit_code=0, seconds=60), "g1", group="project other")

    assert "the last with " + cause + " (its last words)" in rules.held[0]
    assert rules.quarantined == {} and rules.resting == {}


@pytest.mark.parametrize("cause", [Cause.IMPORT_ERROR, Cause.SYNTAX_ERROR])
def test_a_module_that_is_missing_counts_however_long_it_took_to_find_out(cause):
    rules = Rules()

    for _ in range(5):
        rules.end(Outcome(exit_code=1, cause=cause, seconds=25), "g0")

    assert len(rules.held) == 1


def test_what_a_user_killed_after_a_while_counts_neither_way():
    rules = Rules()
    killed = Outcome(signal=9, cause=Cause.KILLED, seconds=60)

    for outcome in [BAD] * 4 + [killed] * 3 + [BAD]:
        rules.end(outcome, "g0")

    assert len(rules.held) == 1


def test_what_is_killed_at_once_again_and_again_holds_its_group_and_no_card():
    rules = Rules()

    for _ in range(5):
        rules.end(Outcome(signal=9, cause=Cause.KILLED, seconds=1), "g0")
        rules.end(OK, "g1", group="project other")

    assert len(rules.held) == 1
    assert rules.quarantined == {}


def test_a_card_that_was_found_good_is_counted_anew():
    rules = Rules()
    for outcome, gpu in [(BAD, "g0"), (OK, "g1"), (BAD, "g0")]:
        rules.end(outcome, gpu)

    rules.state = without_gpu(rules.state, "g0")
    rules.end(BAD, "g0")
    rules.end(OK, "g1")
    before = dict(rules.quarantined)
    for _ in range(2):
        rules.end(BAD, "g0")

    assert before == {}
    assert rules.quarantined.keys() == {"g0"}


def test_groups_are_counted_apart():
    rules = Rules()

    for _ in range(4):
        rules.end(BAD, "g0", group="project a")
        rules.end(BAD, "g0", group="project b")

    assert rules.held == []


def test_jobs_without_a_project_are_not_held_together():
    rules = Rules()

    for _ in range(50):
        rules.end(BAD, "g0", group="")

    assert rules.held == []


def test_after_a_hold_the_count_begins_again():
    rules = Rules()

    for _ in range(9):
        rules.end(BAD, "g0")
    assert len(rules.held) == 1

    rules.end(BAD, "g0")
    assert len(rules.held) == 2


def test_zero_switches_a_rule_off():
    rules = Rules(Limits(quick_failures=0, gpu_failures=0))

    for _ in range(50):
        rules.end(BAD, "g0")
        rules.end(OK, "g1")
        rules.end(BAD, "g0", group="project b")

    assert rules.held == []
    assert rules.quarantined == {}


def test_a_gpu_on_which_jobs_fail_while_they_succeed_elsewhere_is_quarantined():
    rules = Rules()

    rules.end(BAD, "g0")
    rules.end(OK, "g1")
    rules.end(BAD, "g0")
    assert rules.quarantined == {}
    rules.end(BAD, "g0")

    assert rules.quarantined == {
        "g0": "3 jobs failed there one after another within 10s each, while others succeeded elsewhere"
    }


def test_a_success_elsewhere_that_comes_later_tells_too():
    rules = Rules()

    for _ in range(4):
        rules.end(BAD, "g0")
    assert rules.quarantined == {}
    rules.end(OK, "g1")

    assert rules.quarantined.keys() == {"g0"}
    assert rules.held == []


def test_a_success_elsewhere_before_the_first_failure_does_not_tell():
    rules = Rules()

    rules.end(OK, "g1")
    for _ in range(4):
        rules.end(BAD, "g0")

    assert rules.quarantined == {}


def test_a_quarantine_names_the_attempts_that_failed_in_a_row_there_and_no_others():
    rules = Rules()

    for outcome, gpu in [(BAD, "g1"), (OK, "g1"), (BAD, "g1"), (SLOW, "g0"), (BAD, "g1"), (BAD, "g1")]:
        found = rules.end(outcome, gpu)
        assert not found.failures
    found = rules.end(OK, "g0")

    assert found.quarantine.keys() == {"g1"}
    assert found.failures == {"g1": ((3, 1), (5, 1), (6, 1))}


def test_of_a_streak_without_end_only_the_last_attempts_are_remembered():
    rules = Rules(Limits(quick_failures=0, gpu_failures=3))

    for _ in range(500):
        rules.end(BAD, "g1")
    found = rules.end(OK, "g0")

    assert found.quarantine["g1"].startswith("500 jobs failed there")
    assert found.failures["g1"] == tuple((number, 1) for number in range(437, 501))


def test_a_success_on_the_gpu_itself_clears_it():
    rules = Rules()

    for outcome in [BAD, BAD, OK, BAD, BAD]:
        rules.end(outcome, "g0")
        rules.end(OK, "g1")

    assert rules.quarantined == {}


def test_where_all_gpus_fail_alike_the_group_is_held_and_the_gpus_stay():
    rules = Rules()

    for number in range(40):
        gpu = f"g{number % 4}"
        running = [(f"g{other}", "project vision") for other in range(4) if f"g{other}" != gpu]
        rules.end(BAD, gpu, running=running)

    assert rules.held
    assert rules.quarantined == {}
    assert rules.resting == {}


def test_what_one_project_does_wrong_is_not_the_gpus_fault_because_another_does_it_right():
    rules = Rules()

    for _ in range(4):
        rules.end(BAD, "g0", group="project broken", running=[("g1", "project fine")])
        rules.end(OK, "g1", group="project fine")

    assert rules.quarantined == {}
    assert rules.resting == {}


def test_what_fails_for_two_projects_is_the_gpus_fault_if_another_succeeds_elsewhere():
    rules = Rules()

    for group in ("project a", "project b", "project a"):
        rules.end(BAD, "g0", group=group)
    rules.end(OK, "g1", group="project c")

    assert rules.quarantined.keys() == {"g0"}


def test_a_card_that_says_itself_that_it_is_broken_needs_no_quick_failures():
    rules = Rules()
    broken = Outcome(exit_code=1, cause=Cause.GPU_FAULT, seconds=3600)

    for _ in range(3):
        rules.end(broken, "g0")
        rules.end(OK, "g1")

    assert rules.quarantined.keys() == {"g0"}
    assert rules.held == []


def test_a_gpu_under_suspicion_rests_until_others_have_told():
    rules = Rules()
    elsewhere = [("g1", "project vision")]

    for _ in range(3):
        rules.end(BAD, "g0", running=elsewhere)
    assert "the next end on another GPU will show" in rules.resting["g0"]
    assert rules.quarantined == {}

    rules.end(OK, "g1")
    assert rules.quarantined.keys() == {"g0"}


def test_a_gpu_under_suspicion_is_trusted_again_when_they_fail_elsewhere_too():
    rules = Rules()
    for _ in range(3):
        rules.end(BAD, "g0", running=[("g1", "project vision")])

    rules.end(BAD, "g1")

    assert rules.resting == {}
    assert rules.quarantined == {}


@pytest.mark.parametrize("outcome", [SLOW, Outcome(cause=Cause.STOPPED, signal=15, seconds=5)])
def test_a_gpu_does_not_rest_for_ever_where_no_project_is_left_to_compare(outcome):
    rules = Rules()
    for _ in range(3):
        rules.end(BAD, "g0", running=[("g1", "project vision"), ("g2", "project vision")])

    rules.end(outcome, "g1", running=[("g2", "project vision")])
    assert rules.resting.keys() == {"g0"}
    rules.end(outcome, "g2", running=[])

    assert rules.resting == {}


def test_two_broken_gpus_of_four_are_both_found():
    rules = Rules()

    for _ in range(4):
        for gpu, outcome in [("g0", BAD), ("g1", BAD), ("g2", OK), ("g3", OK)]:
            if gpu not in rules.quarantined:
                rules.end(outcome, gpu)

    assert rules.quarantined.keys() == {"g0", "g1"}


def test_one_lucky_job_does_not_condemn_three_gpus_of_four():
    rules = Rules()

    for _ in range(3):
        for gpu in ("g0", "g1", "g2"):
            rules.end(BAD, gpu)
    rules.end(OK, "g3")

    assert rules.quarantined == {}


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.6])
def test_a_project_in_which_many_jobs_fail_costs_no_gpu(rate):
    dice = random.Random(7)
    rules = Rules(Limits(quick_failures=0))

    for number in range(4000):
        rules.end(BAD if number > 40 and dice.random() < rate else OK, f"g{dice.randrange(4)}")

    assert rules.quarantined == {}


def test_a_gpu_that_breaks_in_the_middle_of_a_flaky_project_is_found_all_the_same():
    dice = random.Random(7)
    rules = Rules(Limits(quick_failures=0))

    for number in range(400):
        gpu = f"g{number % 4}"
        is_bad = dice.random() < 0.1 or (gpu == "g2" and number > 200)
        if gpu not in rules.quarantined:
            rules.end(BAD if is_bad else OK, gpu)

    assert rules.quarantined.keys() == {"g2"}


@pytest.mark.parametrize("speed", [1, 20, 1000])
def test_a_gpu_that_fails_every_job_at_once_costs_three_jobs(speed):
    """Row 45 of faults.md: four GPUs, one of which fails `speed` jobs while a good one works on one."""
    rules = Rules()
    running = dict.fromkeys(["g1", "g2", "g3"], "project vision")
    lost, done = 0, 0

    for tick in range(5000):
        if "g0" not in rules.resting and "g0" not in rules.quarantined and not rules.held:
            lost += 1
            rules.end(BAD, "g0", running=running.items())
        if tick % speed == speed - 1 and not rules.held:
            gpu = f"g{1 + done % 3}"
            done += 1
            rules.end(OK, gpu, running=[one for one in running.items() if one[0] != gpu])

    assert lost == 3
    assert rules.held == []
    assert rules.quarantined.keys() == {"g0"}


def test_what_the_rules_remember_does_not_grow():
    rules = Rules()

    for number in range(3000):
        rules.end(BAD if number % 3 else OK, f"g{number % 8}", group=f"project {number}")
        rules.end(OK, f"g{number % 8}", group="project always")

    assert len(rules.state.groups) <= 256
    assert "project always" in rules.state.groups
    assert len(rules.state.streaks) <= 8
    assert sum(map(sum, rules.state.groups["project always"].on.values())) <= 64


def test_a_state_is_never_changed_in_place():
    before = Breakers()

    judge_end(before, EndedAttempt(attempt=(1, 1), group="project a", gpus=("g0",), outcome=BAD), LIMITS)

    assert before == Breakers()


def test_attempts_that_are_tried_again_count_for_the_card_and_not_for_the_group():
    state = Breakers()
    found = None
    for number in (1, 2, 3):
        over = EndedAttempt(attempt=(1, number), group="project vision", gpus=("g1",), outcome=BAD, is_last=False)
        state, found = judge_end(state, over, LIMITS)
        assert not found.hold
    for _ in range(3):
        over = EndedAttempt(attempt=(2, 1), group="project vision", gpus=("g0",), outcome=OK)
        state, found = judge_end(state, over, LIMITS)
        if found.quarantine:
            break

    assert found.quarantine.keys() == {"g1"}
    assert state.groups["project vision"].in_a_row == 0


def test_a_job_that_is_tried_again_and_again_holds_no_group():
    state = Breakers()
    for number in range(1, 21):
        over = EndedAttempt(attempt=(1, number), group="project vision", gpus=("g0",), outcome=BAD, is_last=False)
        state, found = judge_end(state, over, LIMITS)

        assert not found.hold
