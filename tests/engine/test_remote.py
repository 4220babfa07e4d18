"""Jobs that another system runs, as the engine sees them: the store is real, the other system is a small one."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dibs.backends.protocol import AttemptRef, Observed, Phase
from dibs.backends.slurm.files import write_record
from dibs.engine.remote.round import RoundPlan, run_round
from dibs.errors import BackendSilent, BadInput
from dibs.model.jobs import ArrayTask, Cause, JobId, State
from dibs.store.journal import NAME
from dibs.supervise.folder import encode_record, prepare_unlocked
from engine.queue_world import a_wish
from engine.remote_world import Cluster, RemoteWorld
from engine.world import Died


@pytest.fixture
def world(remote_world: RemoteWorld) -> RemoteWorld:
    return remote_world


def add(world: RemoteWorld, count: int = 1, *, before_round: bool = False, **more) -> list[JobId]:
    jobs = world.add(*(a_wish(f"train {number}", on="slurm", **more) for number in range(count)))
    if before_round:
        until_round(world)
    else:
        world.advance(1)
    return [job.id for job in jobs]


def until_round(world: RemoteWorld) -> None:
    """Let time pass until a round has begun on the other thread, and leave it there."""
    while not world.beside:
        assert world.engine.wake_at is not None
        world.now = max(world.now, world.engine.wake_at)
        world.turn()


def test_what_is_handed_over_is_submitted_until_it_runs_there(world: RemoteWorld):
    (job,) = add(world)
    assert world.state(job) == "submitted"
    assert world.sentence(job) == "waits at Slurm: others come first"
    assert world.queue.why(job).starts_at == 1_000_500.0

    world.cluster.start(world.cluster.pending()[0])
    world.advance(4)

    assert world.state(job) == "running"
    (row,) = world.store.listing.attempts(job)
    assert (row.attempt.backend, row.attempt.node, row.attempt.node_gpus) == ("slurm", "n1", "0")

    world.cluster.end(world.cluster.running()[0], code=3)
    world.advance(4)

    assert world.state(job) == "failed"
    assert world.store.listing.row(job).outcome.exit_code == 3
    assert world.kinds()[-3:] == ["job.submitted", "job.started", "job.ended"]
    assert world.engine.is_idle


def test_one_that_ended_between_two_looks_has_started_too(world: RemoteWorld):
    (job,) = add(world)
    there = world.cluster.pending()[0]
    world.cluster.start(there)
    world.cluster.end(there, code=0)
    world.advance(4)

    assert world.state(job) == "succeeded"
    assert world.kinds()[-2:] == ["job.started", "job.ended"]
    assert world.store.listing.row(job).node == "n1"


def test_no_card_of_this_machine_is_taken_for_it(world: RemoteWorld):
    add(world, 5)
    (here,) = world.add(a_wish("here"))

    assert world.running() == [here.id]
    assert len(world.leases.holders()) == 1


def test_only_so_many_are_handed_over_at_once(world: RemoteWorld):
    world.most = 2
    world.crash()
    world.resume()

    jobs = add(world, 5)

    assert [world.state(job) for job in jobs] == ["submitted", "submitted", "queued", "queued", "queued"]
    assert "as many jobs as it is given at once" in world.sentence(jobs[2])
    world.run_out()
    assert {world.state(job) for job in jobs} == {"succeeded"}


def test_while_the_controller_does_not_answer_nothing_changes(world: RemoteWorld):
    (job,) = add(world)
    world.cluster.start(world.cluster.pending()[0])
    world.advance(4)
    world.cluster.is_silent = True
    (late,) = add(world)
    world.advance(30)

    assert (world.state(job), world.state(late)) == ("running", "queued"), (
        "it can still be edited, held and killed"
    )
    assert world.sentence(late) == "waits: cannot reach the controller: no answer; `scontrol ping` shows more"
    assert world.sentence(job) == "cannot reach the controller: no answer", "what is said of it may be old"
    troubles = [said for kind, said in world.told() if kind == "trouble"]
    assert troubles == ["cannot reach the controller: no answer"], "once, and not with every round"

    world.cluster.is_silent = False
    world.advance(4)
    assert world.queue.why(job).reason is None
    world.run_out()
    assert {world.state(number) for number in (job, late)} == {"succeeded"}
    assert world.cluster.starts() == {job: 1, late: 1}


def test_a_job_that_nothing_else_waits_with_is_handed_over_when_the_controller_answers(world: RemoteWorld):
    world.cluster.is_silent = True
    (job,) = add(world)
    world.advance(60)
    meanwhile = world.state(job), world.sentence(job)

    world.cluster.is_silent = False
    world.advance(10)

    assert meanwhile == ("queued", "waits: cannot reach the controller: no answer; `scontrol ping` shows more")
    assert world.state(job) == "submitted"
    world.run_out()
    assert (world.state(job), world.cluster.starts()) == ("succeeded", {job: 1})


def test_what_is_refused_over_there_ends_with_the_sentence(world: RemoteWorld):
    world.cluster.refuses = "there is no partition nope"
    (job,) = add(world, retries=3)

    row = world.store.listing.row(job)
    assert (row.job.state, row.outcome.cause) == (State.FAILED, Cause.REFUSED)
    assert row.outcome.message == "there is no partition nope; try"
    assert row.job.attempts == 1


def test_what_is_put_off_says_so_and_is_given_again(world: RemoteWorld):
    world.cluster.is_full = True
    (job,) = add(world)
    world.advance(4)
    assert world.sentence(job) == "waits: the cluster is full"
    submits = world.cluster.submits
    world.advance(4)
    assert submits < world.cluster.submits < submits + 4, "with each round, not all the time"

    world.cluster.is_full = False
    world.run_out()
    assert world.state(job) == "succeeded"


def test_a_lost_node_ends_the_job_with_the_reason(world: RemoteWorld):
    (job,) = add(world)
    world.cluster.start(world.cluster.pending()[0])
    world.advance(4)
    world.cluster.lose(world.cluster.running()[0])
    world.advance(4)

    row = world.store.listing.row(job)
    assert (row.job.state, row.outcome.message) == (State.LOST, "Slurm says NODE_FAIL")


def test_a_retry_goes_to_another_node_at_once(world: RemoteWorld):
    (job,) = add(world, retries=1)
    world.cluster.start(world.cluster.pending()[0])
    world.advance(4)
    world.cluster.lose(world.cluster.running()[0])
    world.advance(4)

    assert world.state(job) == "submitted"
    assert world.cluster.avoided == [(), ("n1",)]
    world.run_out()
    assert world.state(job) == "succeeded"
    assert [row.attempt.number for row in world.store.listing.attempts(job)] == [1, 2]


def test_an_ordinary_failure_is_tried_again_after_a_pause_and_anywhere(world: RemoteWorld):
    (job,) = add(world, retries=1)
    world.cluster.start(world.cluster.pending()[0])
    world.cluster.end(world.cluster.running()[0], code=1)
    world.advance(2.5)
    assert world.state(job) == "queued"
    world.advance(3)
    assert world.state(job) == "submitted"
    assert world.cluster.avoided == [(), ()]


def test_one_that_was_forgotten_before_it_started_is_handed_over_again(world: RemoteWorld):
    (job,) = add(world)
    world.cluster.jobs.clear()
    world.advance(10)

    assert world.state(job) == "submitted"
    assert world.store.job(job).attempts == 1, "the same attempt"
    world.run_out()
    assert world.state(job) == "succeeded"
    assert world.cluster.starts() == {job: 1}


def test_what_is_forgotten_again_and_again_is_given_up(world: RemoteWorld):
    (job,) = add(world)
    for _ in range(60):
        world.cluster.jobs.clear()
        world.advance(30)

    row = world.store.listing.row(job)
    assert row.outcome.cause is Cause.START_ERROR
    assert "slurm took it 20 times and forgot it" in row.outcome.message


def test_a_controller_that_is_silent_at_each_hand_over_fails_no_job(
    world: RemoteWorld, monkeypatch: pytest.MonkeyPatch
):
    def no_answer(_: object) -> None:
        raise BackendSilent("cannot reach Slurm's controller")

    with monkeypatch.context() as silent:
        silent.setattr(world.cluster, "submit", no_answer)
        (job,) = add(world)
        for _ in range(21):
            world.advance(30)
        assert world.state(job) == "queued"
    world.advance(60)
    world.run_out()

    assert world.state(job) == "succeeded"
    assert world.cluster.starts() == {job: 1}


@pytest.mark.parametrize("has_started", [False, True])
def test_a_kill_reaches_it_over_there(world: RemoteWorld, has_started: bool):
    (job,) = add(world, retries=3)
    if has_started:
        world.cluster.start(world.cluster.pending()[0])
        world.advance(4)
    world.do("kill", job)
    world.advance(4)

    assert world.state(job) == "cancelled"
    assert not world.cluster.running() and not world.cluster.pending()
    assert world.cluster.starts()[job] == has_started


def test_who_is_killed_over_there_after_we_asked_for_it_was_stopped_and_not_failed(world: RemoteWorld):
    (job,) = add(world, retries=3)
    there = world.cluster.pending()[0]
    world.cluster.start(there)
    world.advance(4)
    world.cluster.is_silent = True
    world.do("kill", job)
    world.advance(1)
    world.cluster.end(there, signal=15, by="outside")
    there.cause = Cause.KILLED
    world.cluster.is_silent = False
    world.run_out()

    assert (world.state(job), world.cluster.starts()[job]) == ("cancelled", 1)


def test_a_kill_before_it_was_submitted_needs_no_controller(world: RemoteWorld):
    world.cluster.is_silent = True
    (job,) = add(world)
    world.do("kill", job)
    world.cluster.is_silent = False
    world.advance(10)

    assert world.state(job) == "cancelled"
    world.advance(60)
    assert world.cluster.starts() == {}


def test_a_kill_is_repeated_until_the_controller_answers(world: RemoteWorld):
    (job,) = add(world)
    world.cluster.start(world.cluster.pending()[0])
    world.advance(4)
    world.cluster.is_silent = True
    world.do("kill", job)
    world.advance(10)
    assert world.state(job) == "running"
    world.crash()
    world.resume()
    world.cluster.is_silent = False
    world.advance(10)

    assert world.state(job) == "cancelled"


def test_a_kill_without_an_answer_says_since_when_why_and_what_to_try(world: RemoteWorld):
    (running,) = add(world)
    world.cluster.start(world.cluster.pending()[0])
    (waiting,) = add(world)
    world.advance(4)
    world.cluster.is_silent = True
    for job in (running, waiting):
        world.do("kill", job)
    world.advance(120)

    why = "cannot reach the controller: no answer; `scontrol ping` shows more"
    assert world.sentence(waiting) == f"is being taken back from Slurm, as was asked for 2m00s ago: {why}"
    assert world.sentence(running) == f"its end was asked for 2m00s ago: {why}"
    [standing] = world.engine.remote.standings()
    assert (standing.name, standing.attempts, standing.trouble) == ("slurm", 2, why.partition(";")[0])
    assert 118 <= world.now - standing.silent_since <= 120

    world.cluster.is_silent = False
    world.run_out()
    assert {world.state(job) for job in (running, waiting)} == {"cancelled"}
    assert world.engine.remote.standings() == []


def test_a_hold_and_a_release_reach_it_over_there_once(world: RemoteWorld):
    (job, other) = add(world, 2)
    held = world.do("hold", job)
    again = world.do("hold", job)
    world.advance(10)

    assert (held.jobs, again.jobs) == ([job], [])
    assert again.unchanged == [(job, "it is held already")]
    assert [one.job for one in world.cluster.pending()] == [other]
    assert world.state(job) == "submitted"
    assert world.sentence(job) == "is held at Slurm: held by its owner; `dibs release` lets it go"
    assert world.queue.why(job).unknown == "it is held"
    assert world.cluster.holds == 1

    assert world.do("release", job).jobs == [job]
    world.advance(10)

    assert world.sentence(job) == "waits at Slurm: others come first"
    assert world.do("release", job).unchanged == [(job, "it is not held; it is submitted")]
    world.run_out()
    assert {world.state(one) for one in (job, other)} == {"succeeded"}
    assert world.cluster.holds == 2


def test_a_hold_and_a_release_are_done_when_the_controller_answers(
    world: RemoteWorld, rebuilt: Callable[[RemoteWorld], None]
):
    """Also by another engine, and by one whose store was made again."""
    (job,) = add(world)
    world.cluster.is_silent = True
    world.do("hold", job)
    world.advance(10)
    assert world.sentence(job).startswith("is held when Slurm answers: cannot reach the controller")
    world.crash()
    world.resume()
    world.cluster.is_silent = False
    world.advance(4)
    world.advance(4)  # it is known how it stands there
    assert not world.cluster.pending()
    assert world.sentence(job).startswith("is held at Slurm")

    world.cluster.is_silent = True
    world.do("release", job)
    world.advance(10)
    assert world.sentence(job).startswith("is released when Slurm answers: cannot reach the controller")
    rebuilt(world)
    world.cluster.is_silent = False
    world.advance(4)
    world.advance(4)  # it is known how it stands there
    assert [one.job for one in world.cluster.pending()] == [job]
    world.run_out()
    assert (world.state(job), world.store.job(job).why_held) == ("succeeded", "")


def test_what_is_held_before_it_was_handed_over_is_held_here(world: RemoteWorld):
    (job,) = add(world)
    world.cluster.is_full = True
    (late,) = add(world)
    assert world.state(late) == "submitted"
    world.do("hold", late)
    world.cluster.is_full = False
    world.advance(10)

    assert world.state(late) == "held"
    assert [one.job for one in world.cluster.pending()] == [job]
    world.do("release", late)
    world.run_out()
    assert world.cluster.starts() == {job: 1, late: 1}


def test_one_that_starts_before_the_hold_reaches_it_runs_and_is_held_no_more(world: RemoteWorld):
    (job,) = add(world, retries=1)
    world.do("hold", job)
    world.cluster.start(world.cluster.jobs[("q1-1", 1)])
    world.advance(10)
    assert (world.state(job), world.store.job(job).why_held) == ("running", "")
    world.cluster.end(world.cluster.running()[0], code=1)
    world.run_out()

    assert (world.state(job), world.cluster.starts()) == ("succeeded", {job: 2})


def test_what_was_held_by_hand_over_there_is_released_by_dibs_only_when_it_is_told(world: RemoteWorld):
    (job,) = add(world)
    world.cluster.pending()[0].is_held = True
    world.advance(10)
    assert world.cluster.holds == 0

    assert world.do("release", job).jobs == [job]
    world.advance(10)

    assert [one.job for one in world.cluster.pending()] == [job]


def test_a_signal_is_not_sent_there(world: RemoteWorld):
    (job,) = add(world)
    world.cluster.start(world.cluster.pending()[0])
    world.advance(4)

    changed = world.do("kill", job, signal=10)

    assert changed.unchanged == [(job, "it runs on Slurm; leave out the signal to end it")]


@pytest.mark.parametrize("point", ["after-intent", "before-submit", "after-submit"])
def test_a_crash_while_it_is_handed_over_makes_no_second_one(world: RemoteWorld, point: str):
    world.dies_at = point
    with pytest.raises(Died):
        add(world, 3)
    world.crash()
    world.resume()
    world.advance(4)

    jobs = [JobId(1), JobId(2), JobId(3)]
    assert {world.state(job) for job in jobs} == {"submitted"}
    world.run_out()
    assert world.cluster.starts() == dict.fromkeys(jobs, 1)


def test_a_full_disk_forgets_nothing_of_what_ended_there(world: RemoteWorld):
    (job,) = add(world)
    world.cluster.start(world.cluster.pending()[0])
    world.advance(4)
    world.store.is_full = True
    world.cluster.end(world.cluster.running()[0], code=0)
    world.advance(20)
    world.store.is_full = False
    assert world.state(job) == "running"
    world.advance(20)

    assert world.state(job) == "succeeded"


def test_a_full_disk_does_not_make_the_rounds_come_faster(world: RemoteWorld):
    add(world)
    world.cluster.start(world.cluster.pending()[0])
    world.advance(4)
    world.store.is_full = True
    world.cluster.end(world.cluster.running()[0], code=0)
    before = world.cluster.looks
    world.advance(30)

    assert world.cluster.looks - before <= 11


def test_what_was_refused_is_not_handed_over_in_the_turn_that_records_it(world: RemoteWorld):
    world.cluster.refuses = "there is no partition nope"
    (job,) = add(world, before_round=True)
    world.beside.pop(0)()
    world.cluster.refuses = ""
    world.now += 10  # the loop was busy with something else, and the next round is due
    world.settle_down()
    world.advance(10)

    assert world.state(job) == "failed"
    assert not world.cluster.pending(), "the controller no longer knows it"


def test_what_was_forgotten_once_counts_once(world: RemoteWorld):
    (job,) = add(world)
    world.cluster.jobs.clear()
    until_round(world)
    world.beside.pop(0)()
    world.now += 10
    world.settle_down()

    assert world.engine.state.false_starts[job][0] == 1
    world.run_out()
    assert world.state(job) == "succeeded"


def test_a_bug_over_there_is_told_once_and_the_next_rounds_go_on(world: RemoteWorld):
    (job,) = add(world)
    world.cluster.bug = "a new version says something else"
    with pytest.raises(ValueError, match="a new version"):
        world.advance(4)
    before = world.cluster.looks
    world.advance(30)  # a daemon in which bugs fall again and again ends

    assert world.cluster.looks > before
    assert "a new version" in world.sentence(job)
    world.cluster.bug = ""
    world.run_out()
    assert world.state(job) == "succeeded"


def test_an_environment_that_cannot_be_copied_delays_no_other_job(world: RemoteWorld, tmp_path: Path):
    world.shared = str(tmp_path / "shared")
    world.crash()
    world.resume()
    (runs,) = add(world)
    world.cluster.start(world.cluster.pending()[0])
    world.advance(4)
    environments = tmp_path / "shared" / "environments"
    for file in environments.iterdir():
        file.unlink()
    environments.rmdir()
    environments.write_text("in the way")
    (late,) = add(world)
    world.cluster.end(world.cluster.running()[0], code=0)
    world.advance(10)

    assert world.state(runs) == "succeeded"
    assert world.sentence(late).startswith("waits: cannot bring its environment: ")
    environments.unlink()
    world.run_out()
    assert world.state(late) == "succeeded"


def test_who_cannot_be_looked_for_is_not_taken_for_one_that_was_never_handed_over(tmp_path: Path):
    (tmp_path / "file").touch()  # a file system that is away says other things than "there is none"
    hidden, missing = (AttemptRef("q1-1", 1, f"{tmp_path}/{folder}") for folder in ("file/1.1", "1.1"))

    class Quiet(Cluster):
        def _observe(self, there):
            return Observed(phase=Phase.QUEUED, reason="its record is awaited")

    found = run_round(Quiet(), RoundPlan(stop=[hidden, missing], observe=[hidden, missing])).observed

    assert (found[hidden].phase, found[missing].phase) == (Phase.QUEUED, Phase.LOST)


@pytest.mark.parametrize("is_away", [False, True])
def test_a_full_disk_is_no_reason_to_leave_what_is_to_end_over_there(world: RemoteWorld, is_away: bool):
    (here,) = world.add(a_wish("here"))
    if is_away:
        add(world)
    world.store.is_full = True
    world.end(here)
    world.settle_down()

    assert world.engine.is_stuck is not is_away
    world.store.is_full = False


def test_a_number_of_cards_that_slurm_would_not_be_told_is_refused(world: RemoteWorld):
    told = (("gpus-per-task", "1"), ("ntasks", "4"))
    (said, free) = world.add(
        a_wish("train", on="slurm", on_options=told, hold=True), a_wish("train", on="slurm", hold=True)
    )

    with pytest.raises(BadInput, match=f"the GPUs of job {said.id}: Slurm is told --gpus-per-task=1 as it is"):
        world.queue.edit(said.id, a_wish("train", on="slurm", on_options=told, gpus=3))
    world.queue.edit(said.id, a_wish("train 2", on="slurm", on_options=told))
    world.queue.edit(said.id, a_wish("train 3", on="slurm", on_options=told[1:], gpus=3))
    world.queue.edit(free.id, a_wish("train", on="slurm", gpus=3))

    assert [world.store.job(job.id).request.wishes.num_gpus for job in (said, free)] == [3, 3]


def test_an_array_is_known_by_its_own_number_and_its_tasks(world: RemoteWorld):
    jobs = world.add(*(a_wish("train", on="slurm", array=ArrayTask(JobId(0), task, 2)) for task in range(4)))
    world.advance(1)

    first = jobs[0].id
    assert {one.ref.key for one in world.cluster.pending()} == {f"q1-{first}_{task}" for task in range(4)}


def test_jobs_of_one_call_for_different_systems_wait_for_themselves(world: RemoteWorld):
    world.queue.pause()
    there, here = world.add(a_wish("one", on="slurm"), a_wish("two"))

    assert [one.jobs for one in world.queue.why_alike([there.id, here.id]).values()] == [[there.id], [here.id]]


def test_why_of_thousands_is_answered_within_a_second(world: RemoteWorld):
    """Those that were handed over and those that wait here have an answer each."""
    jobs = world.add(
        *(a_wish("train", on="slurm", array=ArrayTask(JobId(0), task, None)) for task in range(5_000))
    )
    world.advance(1)
    begin = time.process_time()

    answers = list(world.queue.why_alike([job.id for job in jobs]).values())

    assert time.process_time() - begin < 1
    assert [one.state for one in answers] == ["submitted", "queued"]
    assert sum(len(one.jobs) for one in answers) == 5_000


def test_an_unknown_backend_is_refused(world: RemoteWorld):
    with pytest.raises(BadInput, match="dibs knows no backend 'ray' here"):
        world.add(a_wish("train", on="ray"))


def test_an_image_that_the_nodes_cannot_run_any_more_is_not_tried_again(world: RemoteWorld):
    (job, other) = world.add(*(a_wish("train", on="slurm", image=image) for image in ("torch", "")))
    world.advance(1)
    for number in (job.id, other.id):
        world.do("kill", number)
    world.run_out()
    world.why_no_image = "they do not share our folders"
    world.crash()
    world.resume()

    changed = world.do("retry", job.id, other.id)

    assert changed.jobs == [other.id]
    assert changed.unchanged == [(job.id, "it could never start: they do not share our folders")]
    with pytest.raises(BadInput, match="a job like this could never start: they do not share our folders"):
        world.add(a_wish("train", on="slurm", image="torch"))


def test_a_store_made_again_still_knows_what_runs_there(
    world: RemoteWorld, rebuilt: Callable[[RemoteWorld], None]
):
    (job, other) = add(world, 2)
    world.cluster.start(world.cluster.pending()[0])
    world.advance(4)
    rebuilt(world)

    assert (world.state(job), world.state(other)) == ("running", "submitted")
    assert world.store.listing.row(job).node == "n1"
    world.run_out()
    assert world.cluster.starts() == {job: 1, other: 1}


def test_a_journal_that_lost_the_start_does_not_take_what_runs_there_for_lost(
    world: RemoteWorld, rebuilt: Callable[[RemoteWorld], None]
):
    (job,) = add(world, retries=1)
    world.cluster.start(world.cluster.pending()[0])
    world.advance(4)
    (there,) = world.cluster.running()
    prepare_unlocked(there.ref.folder, {"job": job, "attempt": 1})
    write_record(there.ref.folder, encode_record({"v": 1, "state": "running", "node": "n1"}))
    journal = Path(world.root) / NAME
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(line for line in lines if '"k":"start"' not in line and '"k":"run"' not in line))
    rebuilt(world)

    assert world.state(job) == "running"
    (row,) = world.store.listing.attempts(job)
    assert row.attempt.backend == "slurm"
    world.run_out()
    assert world.cluster.starts() == {job: 1}


@pytest.fixture
def rebuilt() -> Callable[[RemoteWorld], None]:
    from dibs.store.rebuild import rebuild
    from dibs.supervise.folder import facts, read_spec

    def make(world: RemoteWorld) -> None:
        world.crash()
        rebuild(world.root, look=facts, spec_of=read_spec, now=world.now)
        world.resume()
        world.advance(4)

    return make


def test_who_asks_does_not_wait_for_ever(world: RemoteWorld):
    world.advance(1)
    away = world.engine.remote

    async def ask() -> list[str]:
        wishes = [a_wish("train", on="slurm"), a_wish("train", on="slurm", gpus=2)]
        return await away.queries.check(wishes, seconds=0.05)

    (note,) = asyncio.run(ask())  # the other thread hangs in a file system
    assert note == "Slurm has not answered yet; it waits here until there is an answer"


def test_those_who_ask_for_the_nodes_share_one_look(world: RemoteWorld):
    away = world.engine.remote

    async def ask() -> list[object]:
        waiting = [asyncio.ensure_future(away.queries.nodes("slurm", seconds)) for seconds in (0.01, 60.0)]
        (silent,) = await asyncio.gather(waiting[0], return_exceptions=True)
        (look,) = world.beside
        look()
        return [silent, await waiting[1], await away.queries.nodes("slurm", 60.0)]

    silent, found, again = asyncio.run(ask())
    assert isinstance(silent, BackendSilent)
    assert [node.name for node in found] == ["n1"] and again == found


def test_a_backend_that_this_daemon_does_not_know_is_asked_nothing(world: RemoteWorld):
    assert asyncio.run(world.engine.remote.queries.check([a_wish("train", on="ray")])) == []


@pytest.mark.parametrize("jump", [-500_000.0, -3600.0, 3600.0])
def test_what_runs_there_is_looked_after_though_the_clock_was_set(world: RemoteWorld, jump: float):
    """The case of faults.md, row 39."""
    (job,) = [one.id for one in world.add(a_wish("train", on="slurm"))]
    world.advance(1)
    world.cluster.start(world.cluster.pending()[0])
    world.advance(4)

    world.clock_is_off = jump
    world.turn()  # the timer that was set before counts seconds
    world.cluster.end(world.cluster.running()[0], code=3)
    world.advance(10)

    assert world.state(job) == "failed"
    assert world.cluster.starts() == {job: 1}
