"""A crash test counts only once it was shown to fail: each planted bug is found by the check of all histories.

A plant breaks one rule of the launch protocol; its history is one in which that matters. Without the plant the
same history passes.
"""

import os
from dataclasses import dataclass, replace
from typing import Any

import pytest

import dibs.engine.engine as engine_module
import dibs.engine.launch.settlement as settlement_module
import dibs.engine.turn.decide as turn_module
from dibs.engine.engine import Engine
from dibs.engine.launch.launcher import AttemptLauncher
from dibs.engine.launch.lease_keeper import LeaseKeeper
from dibs.engine.launch.settlement import Settlement
from dibs.model.jobs import State
from dibs.model.records import AttemptOpened
from dibs.policy.outcomes import Verdict
from dibs.store.store import Store
from dibs.supervise.folder import AttemptFacts
from engine import world as world_module
from engine.invariants import check_at_the_end, check_now
from engine.world import Died, Run, a_request


def record_after_start(patch):
    """The command is started before its intent is durable."""
    recorded, launch = Engine._recorded, engine_module.AttemptLauncher.launch

    def launch_and_record(self, turn, now):
        for one in turn.begun:
            launch(self.launcher, one)
        return recorded(self, turn, now)

    patch.setattr(Engine, "_recorded", launch_and_record)
    patch.setattr(engine_module.AttemptLauncher, "launch", lambda self, one: [])


def requeue_of_a_lost_job(patch):
    """A lost job is started again though its owner never said that it may."""
    patch.setattr(turn_module, "retry_after", lambda job, outcome: 0.0 if outcome.cause == "lost" else None)


def forget_the_running(patch):
    """An engine that comes back knows nothing of what runs."""
    patch.setattr(Store, "open_attempts", lambda self: [])


def requeue_the_running(patch):
    """An engine that comes back believes that what ran is gone."""

    def hold_all(self):
        self._db.execute("update jobs set state = 'held' where state in ('queued', 'running')")

    patch.setattr(Store, "open_attempts", lambda self: [])
    patch.setattr(Store, "hold_leftovers", hold_all)


def records_before_locks(patch):
    """What has no exit record is settled without a look at its lock."""
    settle = settlement_module.settle
    patch.setattr(settlement_module, "settle", lambda **facts: settle(**{**facts, "is_locked": False}))


def never_ran_after_a_reboot(patch):
    """The boot id is not compared."""
    settle = settlement_module.settle
    patch.setattr(
        settlement_module, "settle", lambda **facts: settle(**{**facts, "same_boot": True, "has_started": False})
    )


def release_with_the_shim(patch):
    """A GPU is free when the shim is gone, whatever of its job still computes; and no lease says otherwise."""
    settle = settlement_module.settle
    patch.setattr(settlement_module, "settle", lambda **facts: settle(**{**facts, "is_alive": False}))
    patch.setattr(LeaseKeeper, "prepare", lambda self, begun, left: None)


def a_lost_end(patch):
    """The exit record is not read: what ended is called lost."""
    settle = settlement_module.settle

    def no_record(**facts):
        verdict = settle(**facts)
        return Verdict.LOST if verdict is Verdict.OVER else verdict

    patch.setattr(settlement_module, "settle", no_record)
    patch.setattr(turn_module, "retry_after", lambda job, outcome: 0.0)


def a_leaked_lease(patch):
    """Our copy of a lease is not closed when its job ends."""
    confirm = LeaseKeeper.confirm

    def confirm_and_leak(self, begun, left):
        for one in left:
            for fd in self.descriptors(one.attempt):
                os.dup(fd)
        return confirm(self, begun, left)

    patch.setattr(LeaseKeeper, "confirm", confirm_and_leak)


def a_failed_turn_is_forgotten(patch):
    """What was found out is forgotten before the store has it."""
    decided = Engine._decided

    def decide_and_forget(self, now, may_start):
        turn, findings = decided(self, now, may_start)
        self._settlement.recorded(findings)
        return turn, findings

    patch.setattr(Engine, "_decided", decide_and_forget)


def a_refused_turn_stays(patch):
    """The engine goes on with the state of a turn that the store has refused."""
    recorded = Engine._recorded

    def stay_and_record(self, turn, now):
        self._state = turn.state
        self._settlement.recorded(self._settlement.findings)
        return recorded(self, turn, now)

    patch.setattr(Engine, "_recorded", stay_and_record)


def recorded_before_its_turn(patch):
    """The next job is recorded as running while all cards are taken."""
    turn = turn_module._Decision.turn

    def record_one_more(self):
        for job in self._next.waiting.first(lambda _: 1, self._now)[:1] if self._begun else ():
            folder = self._facts.folder("", job.id, 1)
            attempt = replace(self._begun[-1].attempt, job=job.id, number=1, folder=folder)
            self._records.append(AttemptOpened(job, attempt))
        return turn(self)

    patch.setattr(turn_module._Decision, "turn", record_one_more)


def prepare_after_the_intent(patch):
    """The folder is made after the intent is recorded, as it was once."""
    prepare, launch = AttemptLauncher.prepare, AttemptLauncher.launch

    def prepare_and_launch(self, one):
        prepare(self, [one], {})
        return launch(self, one)

    patch.setattr(AttemptLauncher, "prepare", lambda self, begun, running: "")
    patch.setattr(AttemptLauncher, "launch", prepare_and_launch)


def no_record_is_never_ran(patch):
    """A record that is gone is taken for a blank one."""
    seen = world_module.observed

    def forgive(facts, ref):
        return replace(seen(facts, ref), never_started=bool(facts.damage))

    patch.setattr(world_module, "observed", forgive)


def any_record_counts(patch):
    """It is not checked which attempt a record is of."""
    patch.setattr(AttemptFacts, "is_of", lambda self, job, attempt, opened_at: True)


def what_lived_is_forgotten(patch):
    """A process that was seen without its shim is no sign that the attempt ran."""
    patch.setattr(Settlement, "_lived", property(lambda self: set(), lambda self, value: None), raising=False)


def crash_at_intent(world):
    world.dies_at = "after-intent"
    try:
        world.submit(a_request("one"))
    except Died:
        world.acknowledged[1] = a_request("one")
    world.crash()
    world.resume(with_list=True)
    if world.states()[1] is State.HELD:  # until its list names it again
        world.submit(a_request("one"))


def lose_the_folder(world):
    world.submit(a_request("one"))
    world.lose_folder(1)
    world.kill_shim(1)


def come_back_to_a_blank_record(world):
    """A file system loses the mark of the start, while the command holds its GPU."""
    world.submit(a_request("one"))
    (folder,) = world.machine.runs
    world.machine.blank[folder] = world.machine.runs[folder].identity
    world.kill_shim(1, command_too=False)
    world.end(1)
    world.advance(1)


def find_an_old_record(world):
    """A store that was put back gives a number again; the folder of the job that had it is still there."""
    folder = world.place.attempt_folder(1, 1)
    old = Run(1, {"job": 1, "attempt": 1, "opened_at": 5.0}, (), epoch=0, shim=1, has_shim=False, is_alive=False)
    old.record = {"state": "ended", "code": 0, "signal": None, "by": "", "seconds": 1.0}
    world.machine.runs[folder] = old
    world.machine.may_repeat = world.is_doubted = True
    world.submit(a_request("one"))


def crash_at_launch(world):
    world.dies_at = "after-launch"
    try:
        world.submit(a_request("one"))
    except Died:
        world.acknowledged[1] = a_request("one")
    world.crash()
    world.resume()


def lose_a_job(world):
    world.submit(a_request("one"))
    world.kill_shim(1)


def crash_while_it_runs(world):
    world.submit(a_request("one"), a_request("two"))
    world.crash()
    world.resume()


def power_cut(world):
    world.submit(a_request("one"))
    world.reboot(with_list=True)


def kill_the_shim_alone(world):
    world.submit(a_request("one"), a_request("two"))
    world.kill_shim(1, command_too=False)


def run_to_the_end(world):
    world.submit(a_request("one"), a_request("two"))


def full_disk_at_the_end_of_a_job(world):
    world.submit(a_request("one"), a_request("two"))
    world.store.is_full = True
    world.end(1)
    world.store.is_full = False


@dataclass(frozen=True)
class Case:
    plant: Any
    history: Any
    found: str

    def __str__(self):
        return f"{self.plant.__name__} {self.history.__name__}".replace("_", " ")


CASES = [
    Case(recorded_before_its_turn, run_to_the_end, "job 2 is shown running, but waits"),
    Case(record_after_start, crash_at_launch, "is started twice"),
    Case(prepare_after_the_intent, crash_at_intent, "job 1 is lost, but never ran"),
    Case(no_record_is_never_ran, lose_the_folder, "is started twice"),
    Case(any_record_counts, find_an_old_record, "job 1 has an exit code, but never ran"),
    Case(what_lived_is_forgotten, come_back_to_a_blank_record, "is started twice"),
    Case(requeue_of_a_lost_job, lose_a_job, "job 1 was started 2 times, but may be 1 times"),
    Case(forget_the_running, crash_while_it_runs, "job 1 is running for ever"),
    Case(requeue_the_running, crash_while_it_runs, "job 1 was started again after it had succeeded"),
    Case(records_before_locks, crash_while_it_runs, "job 1 was started again after it had succeeded"),
    Case(never_ran_after_a_reboot, power_cut, "job 1 is held for ever"),
    Case(release_with_the_shim, kill_the_shim_alone, "given twice"),
    Case(a_lost_end, run_to_the_end, "never comes to its end"),
    Case(a_leaked_lease, run_to_the_end, "leases are left"),
    Case(a_failed_turn_is_forgotten, full_disk_at_the_end_of_a_job, "never comes to its end"),
    Case(a_refused_turn_stays, full_disk_at_the_end_of_a_job, "never comes to its end"),
]


def live_through(world, history):
    """A history, everything to its end, and the check that all histories share."""
    history(world)
    check_now(world)
    world.run_out()
    check_at_the_end(world)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_without_the_planted_bug_the_history_ends_well(make_world, case):
    world = make_world()

    live_through(world, case.history)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_planted_bug_is_found(make_world, monkeypatch, case):
    world = make_world()
    case.plant(monkeypatch)

    with pytest.raises(AssertionError, match=case.found):
        live_through(world, case.history)
