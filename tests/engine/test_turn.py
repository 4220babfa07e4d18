"""A turn as a value: a state and facts in; records, starts and the next state out. Nothing else is needed."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from dibs.engine.turn.decide import Turn, decide
from dibs.engine.turn.facts import CardFacts, EndFound, NeverRan, PoolFacts, TakenByOthers, TurnFacts
from dibs.engine.turn.state import EngineState, NeedsMore, OpenAttempt, WaitingWindow
from dibs.model.events import Ended, Waits
from dibs.model.gpus import Claim, declared_key
from dibs.model.jobs import Attempt, Cause, Job, JobId, Outcome, State
from dibs.model.records import AttemptEnded, AttemptForgotten, AttemptOpened, GroupHeld, Mark, MarkSet, Record
from dibs.policy.fitting import most_at_once
from dibs.policy.outcomes import Limits
from dibs.store.codec import class_of
from engine.world import NOON, a_pool, a_request

FAILED = Outcome(exit_code=1, cause=Cause.EXIT_CODE, seconds=1.0)
SUCCEEDED = Outcome(exit_code=0, seconds=1.0)


def a_job(number: int, **wishes: Any) -> Job:
    return Job(id=JobId(number), request=a_request(f"job {number}", **wishes))


def running(job: Job, gpu: int = 0, share: str = "1") -> OpenAttempt:
    claim = Claim(gpu=declared_key(gpu), index=gpu, share=Fraction(share))
    attempt = Attempt(
        job=job.id, number=1, claims=(claim,), boot_id="boot", opened_at=NOON, folder=f"/attempts/{job.id}.1"
    )
    return OpenAttempt(replace(job, state=State.RUNNING, attempts=1, tries=1), attempt, is_ours=True)


def a_state(*, waiting: tuple[Job, ...] = (), open_: tuple[OpenAttempt, ...] = (), **more: Any) -> EngineState:
    window = WaitingWindow(class_of)
    for job in waiting:
        window.add(job)
    return EngineState(waiting=window, open={one.attempt.key: one for one in open_}, **more)


def facts(*slots: int, **more: Any) -> TurnFacts:
    pool = a_pool(*slots)
    board = more.pop("board", PoolFacts(pool=pool))
    return TurnFacts(
        board=board,
        most_at_once=lambda wishes: most_at_once(pool.cards, wishes),
        folder=lambda on, job, number: f"/attempts/{job}.{number}",
        boot_id="boot",
        most_failures=more.pop("most_failures", 10**9),
        **more,
    )


def kinds(turn: Turn) -> list[type[Record]]:
    return [type(record) for record in turn.records]


def started(turn: Turn) -> list[int]:
    return [one.job.id for one in turn.begun]


def test_what_fits_is_recorded_and_begun_and_the_rest_waits_with_a_reason():
    state = a_state(waiting=(a_job(1), a_job(2), a_job(3)))

    turn = decide(state, facts(1, 1), NOON)

    assert started(turn) == [1, 2]
    assert kinds(turn) == [AttemptOpened, AttemptOpened]
    assert [event.job.id for event in turn.events if isinstance(event, Waits)] == [3]
    assert turn.state.waiting.count == 1


def test_the_state_that_was_decided_from_stays_as_it_was():
    one = running(a_job(1))
    state = a_state(waiting=(a_job(2),), open_=(one,), failures=3)

    turn = decide(state, facts(1, findings=[EndFound(one.attempt.key, FAILED)]), NOON)

    assert started(turn) == [2] and turn.state.failures == 4
    assert list(state.open) == [one.attempt.key]
    assert (state.waiting.count, state.failures) == (1, 3)
    assert [job.id for job in state.waiting.first(lambda _: 9, NOON)] == [2]


def test_the_same_facts_give_the_same_turn():
    one = running(a_job(1))
    state = a_state(waiting=(a_job(2), a_job(3, share="1/2")), open_=(one,))
    known = facts(1, findings=[EndFound(one.attempt.key, SUCCEEDED)])

    first, second = decide(state, known, NOON), decide(state, known, NOON)

    assert (first.records, first.begun, first.events) == (second.records, second.begun, second.events)


def test_a_failure_with_tries_left_waits_again_and_counts_for_nothing():
    one = running(a_job(1, retries=1))
    state = a_state(open_=(one,))

    turn = decide(state, facts(1, findings=[EndFound(one.attempt.key, FAILED)]), NOON)

    (record,) = turn.records
    assert isinstance(record, AttemptEnded) and record.retry_at is not None
    assert (turn.state.failures, turn.state.waiting.count) == (0, 1)


def test_a_job_whose_end_was_asked_for_is_not_tried_again():
    one = running(a_job(1, retries=5))
    state = a_state(open_=(one,), stopping=frozenset({JobId(1)}), why_stopped={JobId(1): "pruned"})

    found = EndFound(one.attempt.key, Outcome(signal=15, cause=Cause.STOPPED))
    turn = decide(state, facts(1, findings=[found]), NOON)

    (ended,) = [event for event in turn.events if isinstance(event, Ended)]
    assert (ended.retry_at, ended.outcome.message) == (None, "pruned")
    assert turn.state.stopping == frozenset()


def test_what_never_ran_is_queued_again_and_a_kill_meanwhile_is_kept():
    one = running(a_job(1))
    never = facts(1, findings=[NeverRan(one.attempt.key)], may_start=False)

    again = decide(a_state(open_=(one,)), never, NOON)
    killed = decide(a_state(open_=(one,), stopping=frozenset({JobId(1)})), never, NOON)

    assert kinds(again) == [AttemptForgotten] and again.state.waiting.count == 1
    (record,) = killed.records
    assert isinstance(record, AttemptEnded) and record.retry_at is None
    assert record.outcome.state is State.CANCELLED
    assert killed.state.waiting.count == 0


def test_what_was_never_given_to_a_silent_system_is_no_false_start():
    one = running(a_job(1))
    state = a_state(open_=(one,), false_starts={JobId(1): (19, NOON)})

    turns = [
        decide(state, facts(1, findings=[NeverRan(one.attempt.key, was_tried=tried)], may_start=False), NOON)
        for tried in (False, True)
    ]

    assert [kinds(turn) for turn in turns] == [[AttemptForgotten], [AttemptEnded]]
    assert turns[0].state.false_starts == {JobId(1): (19, NOON)}


def test_after_so_many_failures_nothing_more_starts():
    one = running(a_job(1))
    state = a_state(waiting=(a_job(2),), open_=(one,))

    turn = decide(state, facts(1, most_failures=1, findings=[EndFound(one.attempt.key, FAILED)]), NOON)

    assert started(turn) == []


def test_nothing_starts_while_the_queue_is_paused():
    state = a_state(waiting=(a_job(1),), marks={"queue": Mark("queue", "paused", "", NOON)})

    assert started(decide(state, facts(1), NOON)) == []


def test_a_card_that_another_program_holds_is_waited_for_in_line():
    others = CardFacts(others=TakenByOthers(("job 9 of ann (pid 7)",), ""))
    board = PoolFacts(pool=a_pool(1), cards={declared_key(0): others}, awaited=(declared_key(0),))

    turn = decide(a_state(waiting=(a_job(1),)), facts(1, board=board), NOON)

    assert started(turn) == []
    assert turn.line is not None and turn.line.job is not None
    assert [claim.index for claim in turn.line.claims] == [0]
    (waits,) = turn.events
    assert isinstance(waits, Waits) and "job 9 of ann" in waits.reason.sentence


def test_a_job_that_has_its_lease_starts_though_the_card_is_called_taken():
    """Another program was faster with the rest of the card."""
    taken = CardFacts(others=TakenByOthers(("job 9 of ann (pid 7)",), ""))
    board = PoolFacts(pool=a_pool(2), cards={declared_key(0): taken})
    half = (Claim(gpu=declared_key(0), index=0, share=Fraction(1, 2)),)
    state = a_state(waiting=(a_job(1), a_job(2)))

    turn = decide(state, facts(2, board=board, leased={JobId(1): half}), NOON)

    assert started(turn) == [1]
    assert turn.begun[0].attempt.claims == half


def test_a_group_that_fails_again_and_again_is_held_in_the_same_turn():
    ones = [running(replace(a_job(number), batch=JobId(1)), gpu=number - 1) for number in (1, 2)]
    waiting = tuple(replace(a_job(number), batch=JobId(1)) for number in (3, 4))
    findings = [EndFound(one.attempt.key, FAILED) for one in ones]
    limits = Limits(quick_failures=2, gpu_failures=0)

    turn = decide(a_state(waiting=waiting, open_=tuple(ones)), facts(1, 1, findings=findings, limits=limits), NOON)

    assert kinds(turn) == [AttemptEnded, AttemptEnded, GroupHeld]
    assert started(turn) == []


def test_a_card_that_fails_while_another_does_not_is_quarantined_and_given_to_no_job():
    limits = Limits(quick_failures=0, gpu_failures=1)
    bad, good = running(a_job(1)), running(a_job(2), gpu=1)
    state = a_state(waiting=(a_job(3), a_job(4)), open_=(bad, good))
    findings = [EndFound(bad.attempt.key, FAILED), EndFound(good.attempt.key, SUCCEEDED)]

    turn = decide(state, facts(1, 1, findings=findings, limits=limits), NOON)

    assert MarkSet in kinds(turn)
    assert [one.attempt.claims[0].index for one in turn.begun] == [1]


def test_a_window_that_holds_too_little_asks_for_more_of_that_class():
    window = WaitingWindow.over(class_of, [class_of(a_request())], 500, NOON)
    window.load_delayed([])

    with pytest.raises(NeedsMore) as asked:
        decide(EngineState(waiting=window), facts(1), NOON)

    assert asked.value.name == class_of(a_request())
