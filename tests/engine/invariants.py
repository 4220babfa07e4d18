"""What holds after every fault: the list of faults.md, as one check over a world."""

import sqlite3
from collections import Counter

from dibs.model.jobs import Cause, State
from engine.world import World

NEVER_STARTED = "cancelled before it started"


def check_now(world: World) -> None:
    """At every moment."""
    for number, request in world.acknowledged.items():  # I1
        job = world.store.job(number)
        assert job.request.command == request.command, f"job {number} is another one now"
    world.machine.check_overlap()  # I3
    _check_what_is_shown_as_running(world)
    for number, request in world.acknowledged.items():  # I2
        runs = [run for run in world.machine.ledger if run.job == number]
        for run in runs[:-1]:
            ended_well = run.record is not None and run.record["code"] == 0 and not run.record["by"]
            assert not ended_well, f"job {number} was started again after it had succeeded"
        for epoch, starts in Counter(run.epoch for run in runs).items():
            lost = sum(run.epoch == epoch and run.record is None for run in runs)
            most = 1 + request.retries + (lost if request.restartable else 0)
            most *= 1 + world.retried[number]
            assert starts <= most, f"job {number} was started {starts} times, but may be {most} times"
        living = [run for run in runs if run.is_alive and (run.claims or run.has_shim)]
        assert len(living) <= 1, f"job {number} runs twice at once"


def _check_what_is_shown_as_running(world: World) -> None:
    """A job shown as running was started, unless the disk has just refused to say otherwise."""
    if world.store.is_full or world.turn_is_due or world.engine.has_trouble:
        return
    for job, attempt in world.store.open_attempts():
        assert attempt.backend or attempt.folder in world.machine.runs, f"job {job.id} is shown running, but waits"


def check_at_the_end(world: World) -> None:
    """When everything has come to its end."""
    check_now(world)
    endless = [job.id for job, _ in world.store.open_attempts()]
    assert endless == [], f"attempts of jobs {endless} have no end"
    assert world.engine.running == world.engine.waiting == 0
    left = [*world.leases.holders(), *world.leases.waiting()]
    assert left == [], f"leases are left: {left}"  # I4
    for row in world.store.rows(State, -1):  # I5
        number, outcome = row.job.id, row.outcome
        runs = [run for run in world.machine.ledger if run.job == number]
        assert row.job.state.is_over and outcome is not None, f"job {number} is {row.job.state} for ever"
        if outcome.cause in (Cause.LOST, Cause.REFUSED, Cause.DEPENDENCY) or outcome.message == NEVER_STARTED:
            assert outcome.exit_code is None and outcome.signal is None and outcome.message
            assert runs or world.is_doubted or outcome.cause is not Cause.LOST, (
                f"job {number} is lost, but never ran"
            )
            continue
        assert (outcome.exit_code is None) != (outcome.signal is None), f"job {number}: {outcome}"
        if outcome.cause is not Cause.START_ERROR:
            assert runs, f"job {number} has an exit code, but never ran"
            last = runs[-1]
            assert last.record is not None, f"job {number} has an exit code, but no record of its end"
            assert (last.record["code"], last.record["signal"]) == (outcome.exit_code, outcome.signal)
    check_file(world)


def check_file(world: World) -> None:
    """I7. The store must be closed by its engine first: its lock keeps other readers out."""
    world.store.close()
    with sqlite3.connect(world.store.path) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
    db.close()
