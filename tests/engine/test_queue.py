"""The queue's verbs, as histories: add, kill, hold, release, retry, edit, pause, drain, clean."""

from dataclasses import replace

import pytest

from dibs.engine.queue.queue import AddCall
from dibs.engine.watch.sharing_rules import SharingRules
from dibs.errors import BadInput, Conflict, NoSuchJob, StoreUnusable
from dibs.model.gpus import Machine
from dibs.model.jobs import ArrayTask, JobId, State, Wishes
from dibs.model.sweeps import SweepId, trial_key
from dibs.policy.outcomes import Limits
from dibs.store.listing import Filter
from dibs.store.replay import catch_up
from engine.queue_world import QueueWorld, a_wish
from engine.world import a_pool


@pytest.fixture
def make_queue(tmp_path):
    worlds = []

    def make(*slots, **more):
        root, leases = tmp_path / "queue 'é\n€", tmp_path / "leases"
        root.mkdir()
        leases.mkdir()
        worlds.append(QueueWorld(root=str(root), leases_folder=str(leases), pool=a_pool(*(slots or (1,))), **more))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


# -- add -----------------------------------------------------------------------------------------------


def test_what_is_added_starts_in_order_and_ends(make_queue):
    world = make_queue(1)

    world.add(a_wish("a"), a_wish("b"))
    assert world.running() == [1]
    world.end(1)

    assert [world.state(1), world.state(2)] == ["succeeded", "running"]
    assert world.kinds() == ["job.queued", "job.started", "job.ended", "job.started"]


def test_older_jobs_that_share_a_card_go_before_a_younger_one_of_another_kind(make_queue):
    world = make_queue(1)
    half = a_wish("half", share="1/2")

    world.add(half, half, a_wish("short", share="1/2", time_limit=60.0))

    assert [world.state(job) for job in (1, 2, 3)] == ["running", "running", "queued"]


def test_jobs_of_a_list_follow_earlier_ones_of_it_in_any_part(make_queue):
    world = make_queue(4)

    world.send("list", a_wish("a"), offset=0, jobs=5)
    follow = [a_wish("b", after={1: "ok"}), a_wish("c", after={2: "any"}), a_wish("d", after={2: "fail"})]
    world.send("list", *follow, offset=1, jobs=5)
    world.send("list", a_wish("e", after={1: "any", 3: "ok"}), offset=4, jobs=5)
    world.enter_all()
    running = [world.running()]
    for number in (1, 2, 3):
        world.end(number)
        running.append(world.running())

    assert running == [[1], [2], [3], [5]]
    assert world.state(4) == "cancelled"


@pytest.mark.parametrize("needed", [2, 3, 9])
def test_a_job_of_a_list_follows_neither_itself_nor_a_later_one(make_queue, needed):
    world = make_queue(1)
    world.send("list", a_wish("a"), offset=0, jobs=3)

    with pytest.raises((BadInput, NoSuchJob)):
        world.send("list", a_wish("b", after={needed: "any"}), a_wish("c"), offset=1, jobs=3)
    world.send("list", a_wish("b"), a_wish("c"), offset=1, jobs=3)
    world.enter_all()

    assert [world.state(job) for job in (1, 2, 3)] == ["running", "queued", "queued"]


def test_a_list_in_parts_is_added_as_a_whole_with_numbers_in_a_row(make_queue):
    world = make_queue(1)

    first = world.send("list", a_wish("a", name="many"), a_wish("b", name="many"), offset=0, jobs=3)
    world.enter_all()
    (other,) = world.add(a_wish("other", hold=True))
    assert (first.first, first.last, first.missing, other.id) == (1, 3, 1, 4)
    assert [row.job.id for row in world.store.listing.page(Filter(), "oldest", None, 9).rows] == [4]
    last = world.send("list", a_wish("c", name="many"), offset=2, jobs=3)
    world.enter_all()

    assert (last.first, last.last, last.missing) == (1, 3, 0)
    assert world.store.listing.find("many") == [1, 2, 3]
    assert world.running() == [1]
    assert world.store.lists.is_empty


def test_a_part_or_a_whole_list_that_is_sent_again_changes_nothing(make_queue):
    world = make_queue(1)
    for _ in range(2):
        world.send("list", a_wish("a"), offset=0, jobs=2)
    world.send("list", a_wish("b"), offset=1, jobs=2)

    again = world.send("list", a_wish("b"), offset=1, jobs=2)
    world.enter_all()

    assert (again.first, again.last, again.is_new, again.missing) == (1, 2, False, 0)
    assert world.store.queue.next_number() == 3


@pytest.mark.parametrize(("offset", "jobs"), [(1, 4), (2, 3), (1, 2)])
def test_parts_that_do_not_fit_together_are_refused(make_queue, offset, jobs):
    world = make_queue(1)
    world.send("list", a_wish("a"), offset=0, jobs=3)

    with pytest.raises(BadInput, match="do not fit together"):
        world.send("list", a_wish("b"), a_wish("c"), offset=offset, jobs=jobs)

    assert world.store.lists.with_key("list").arrived == 1


def test_a_list_whose_rest_does_not_come_never_was(make_queue):
    world = make_queue(1)
    world.send("list", a_wish("a"), offset=0, jobs=2)
    world.now += 601.0

    assert world.queue.drop_unfinished(world.now - 600.0) == 1

    with pytest.raises(Conflict, match="not known any more"):
        world.send("list", a_wish("b"), offset=1, jobs=2)
    (job,) = world.add(a_wish("c"))
    assert job.id == 3


def test_a_crash_leaves_all_of_a_list_or_none(make_queue):
    world = make_queue(1)
    world.send("half", a_wish("a"), offset=0, jobs=2)
    world.send("whole", a_wish("b"), offset=0, jobs=3)
    world.send("whole", a_wish("c"), offset=1, jobs=3)
    world.send("whole", a_wish("d"), offset=2, jobs=3)
    assert world.queue.enter_part()  # of its three

    world.crash()
    world.open()
    catch_up(world.store, world.journal)
    world.engine.resume()

    assert [row.job.id for row in world.store.listing.page(Filter(), "oldest", None, 9).rows] == [3, 4, 5]
    assert world.store.listing.row(JobId(5)).job.batch == 3
    assert not world.queue.enter_part()
    assert world.send("half", a_wish("a"), offset=1, jobs=2).missing == 0  # its client goes on


@pytest.mark.parametrize(
    ("exit_code", "is_cleaned", "state"), [(0, False, "queued"), (1, False, "cancelled"), (0, True, "queued")]
)
def test_what_a_list_waits_for_may_end_before_its_parts_are_jobs(make_queue, exit_code, is_cleaned, state):
    world = make_queue(1)
    (needed,) = world.add(a_wish("needed"))
    for number in range(2):
        world.send("list", a_wish("f", after={needed.id: "ok"}), offset=number, jobs=2)
    world.end(needed.id, code=exit_code)
    if is_cleaned:
        world.now += 1
        world.queue.clean(world.now)
    world.queue.pause()

    world.enter_all()

    assert [world.state(2), world.state(3)] == [state, state]
    assert world.engine.waiting == (2 if state == "queued" else 0)


def test_an_array_is_one_array_in_a_list_too(make_queue):
    world = make_queue(1)
    world.send("list", a_wish("a", hold=True), offset=0, jobs=3)
    tasks = [a_wish("t", array=ArrayTask(JobId(0), task, None)) for task in (1, 2)]
    world.send("list", *tasks, offset=1, jobs=3)
    world.enter_all()

    assert world.store.listing.find("2_") == [2, 3]


def test_the_same_call_again_gets_the_same_numbers_and_adds_nothing(make_queue):
    world = make_queue(1)
    world.add(a_wish("a"), a_wish("b"), key="one call")

    again = world.queue.add(AddCall(key="one call", requests=[a_wish("a"), a_wish("b")], environment={}))

    assert (again.first, again.last, again.is_new) == (1, 2, False)
    assert world.store.queue.next_number() == 3


def test_a_job_with_a_key_of_its_own_is_added_once(make_queue):
    world = make_queue(1)
    world.add(a_wish("a", once="nightly"))

    again = world.queue.add(AddCall(key="later", requests=[a_wish("b", once="nightly")], environment={}))

    assert (again.first, again.is_new) == (1, False)


def test_what_can_never_run_is_refused_and_nothing_is_stored(make_queue):
    world = make_queue(1)

    with pytest.raises(BadInput, match="could never start: it wants 2 GPUs"):
        world.add(a_wish("a"), a_wish("b", gpus=2))

    assert world.store.queue.next_number() == 1
    assert world.kinds() == []


@pytest.mark.parametrize(
    ("wishes", "min_free", "remedy"),
    [
        ({"cpus": 1000}, 0, "--cpus and --mem ask for less"),
        ({"mem": 100 * 1024**4}, 0, "--cpus and --mem ask for less"),
        ({"num_gpus": 4}, 1, "`dibs gpus` shows the GPUs there are"),
        ({"num_gpus": 3}, 1, "`dibs config set min_free` changes how many GPUs are left to others"),
    ],
)
def test_the_remedy_is_for_what_is_in_the_way(make_queue, wishes, min_free, remedy):
    world = make_queue(1, 1, 1)
    world.engine.limits = replace(world.engine.limits, machine=Machine(cpus=8, memory=2**34))
    world.cards.rules = SharingRules(min_free=min_free)

    with pytest.raises(BadInput, match="could never start") as refusal:
        world.add(replace(a_wish("a"), wishes=Wishes(**wishes)))

    assert refusal.value.remedy == remedy


def test_a_full_disk_adds_nothing_and_says_so(make_queue):
    world = make_queue(1)
    world.store.is_full = True
    size = world.journal.size

    with pytest.raises(StoreUnusable):
        world.add(a_wish("a"))
    world.store.is_full = False
    (job,) = world.add(a_wish("b"))

    assert job.id == 1
    assert job.request.command.shown == "b"
    assert world.running() == [1]
    assert world.journal.size > size


def test_an_array_has_the_number_of_its_first_job(make_queue):
    world = make_queue(2)

    world.add(*[a_wish("a", array=ArrayTask(JobId(0), task, 1)) for task in (1, 2, 3)])

    assert world.running() == [1]
    assert [world.store.job(JobId(n)).request.array.array for n in (1, 2, 3)] == [1, 1, 1]
    assert world.store.listing.find("1_3") == [3]
    assert "array" in world.sentence(2)


# -- dependencies --------------------------------------------------------------------------------------


def test_a_job_waits_for_the_success_of_another(make_queue):
    world = make_queue(1, 1)
    world.add(a_wish("first"))
    world.add(a_wish("second", after={1: "ok"}))

    assert world.running() == [1]
    assert world.sentence(2) == "waits for job 1 to succeed (it is running)"
    world.end(1)

    assert world.running() == [2]


def test_a_chain_is_cancelled_when_its_beginning_fails_and_comes_back_with_a_retry(make_queue):
    world = make_queue(1)
    world.add(a_wish("first"))
    world.add(a_wish("second", after={1: "ok"}))
    world.add(
        a_wish("third", after={2: "ok"}), a_wish("mourner", after={1: "fail"}), a_wish("any", after={1: "any"})
    )

    world.end(1, code=1)
    world.end(4)
    world.end(5)

    assert [world.state(n) for n in (1, 2, 3, 4, 5)] == [
        "failed",
        "cancelled",
        "cancelled",
        "succeeded",
        "succeeded",
    ]
    assert world.store.listing.row(JobId(2)).outcome.message == "job 1 failed"

    changed = world.do("retry", 1)
    for number in (1, 2, 3):
        world.end(number)

    assert changed.jobs == [1, 2, 3]
    assert [world.state(n) for n in (1, 2, 3)] == ["succeeded"] * 3


def test_a_dependency_that_can_never_be_met_is_refused(make_queue):
    world = make_queue(1)
    world.add(a_wish("first"))
    world.end(1, code=1)

    with pytest.raises(BadInput, match="job 1 should succeed first, but it has failed"):
        world.add(a_wish("second", after={1: "ok"}))
    with pytest.raises(NoSuchJob):
        world.add(a_wish("second", after={99: "ok"}))


def test_a_follower_is_not_tried_again_before_what_it_follows(make_queue):
    world = make_queue(1)
    world.add(a_wish("first"))
    world.add(a_wish("second", after={1: "ok"}))
    world.end(1, code=1)

    alone = world.do("retry", 2)
    together = world.do("retry", 2, 1)

    assert alone.unchanged == [(2, "job 1 should succeed first, but it has failed")]
    assert together.jobs == [1, 2]
    assert world.sentence(2) == "waits for job 1 to succeed (it is running)"


def test_a_chain_of_thousands_needs_no_recursion(make_queue):
    world = make_queue(1)
    world.add(a_wish("first"))
    for number in range(2, 3001):
        world.queue.add(
            AddCall(
                key=f"link {number}",
                requests=[a_wish("next", after={number - 1: "ok"})],
                environment={"HOME": "/"},
            )
        )

    world.end(1, code=1)

    assert world.store.counts() == {State.FAILED: 1, State.CANCELLED: 2999}


# -- kill, hold, release, retry ------------------------------------------------------------------------


def test_kill_cancels_what_waits_and_stops_what_runs(make_queue):
    world = make_queue(1)
    world.add(a_wish("a"), a_wish("b"))

    changed = world.do("kill", 1, 2)
    assert world.backend.told == [(1, "stop")]
    world.end(1, signal=15, by="stop")

    assert (changed.jobs, changed.cancelled) == ([1, 2], [2])
    assert [world.state(1), world.state(2)] == ["cancelled", "cancelled"]
    assert world.do("kill", 1).unchanged == [(1, "it is over (cancelled)")]


def test_a_signal_goes_only_to_what_runs(make_queue):
    world = make_queue(1)
    world.add(a_wish("a"), a_wish("b"))

    changed = world.do("kill", 1, 2, signal=10)

    assert world.backend.told == [(1, "signal 10")]
    assert [job for job, _ in changed.unchanged] == [2]
    assert world.state(2) == "queued"


def test_a_held_job_lets_others_pass_until_it_is_released(make_queue):
    world = make_queue(1)
    world.add(a_wish("a"), a_wish("b"), a_wish("c"))

    world.do("hold", 2)
    world.end(1)

    assert world.running() == [3]
    assert "is held" in world.sentence(2)
    world.do("release", 2)
    world.end(3)
    assert world.running() == [2]


def test_a_job_that_is_not_there_changes_nothing(make_queue):
    world = make_queue(1)
    world.add(a_wish("a"), a_wish("b"))

    with pytest.raises(NoSuchJob):
        world.do("kill", 2, 99)

    assert world.state(2) == "queued"


def test_a_full_disk_takes_a_change_back(make_queue):
    world = make_queue(1)
    world.add(a_wish("a"), a_wish("b"))
    world.store.is_full = True

    with pytest.raises(StoreUnusable):
        world.do("kill", 2)
    world.store.is_full = False
    world.end(1)

    assert world.running() == [2]


# -- edit and order ------------------------------------------------------------------------------------


def test_a_job_moves_to_the_top_and_before_another(make_queue):
    world = make_queue(1)
    world.add(*[a_wish(f"job {n}") for n in range(1, 6)])

    world.queue.edit(JobId(5), before=JobId(3))
    world.queue.edit(JobId(4), top=True)
    order = []
    for _ in range(5):
        (running,) = world.running()
        order.append(running)
        world.end(running)

    assert order == [1, 4, 2, 5, 3]


def test_an_urgent_job_starts_before_all_others_and_top_stays_below_it(make_queue):
    world = make_queue(1)
    world.add(*[a_wish(f"job {n}", priority=5 * n, urgent=n == 2) for n in range(1, 5)])

    world.add(a_wish("more urgent", priority=50, urgent=True))

    edited = world.queue.edit(JobId(3), top=True)
    order = []
    for _ in range(5):
        (running,) = world.running()
        order.append(running)
        world.end(running)

    assert edited.request.priority == 21
    assert order == [2, 5, 3, 4, 1]


def test_a_job_that_is_not_urgent_cannot_go_before_an_urgent_one(make_queue):
    world = make_queue(1)
    world.add(a_wish("runs"))
    world.add(a_wish("urgent", urgent=True), a_wish("plain"))

    with pytest.raises(Conflict, match="urgent jobs go before all others"):
        world.queue.edit(JobId(3), before=JobId(2))


def test_a_job_moves_behind_another_and_takes_its_priority(make_queue):
    world = make_queue(1)
    world.add(*[a_wish(f"job {n}", priority={1: 2, 3: 1}.get(n, 0)) for n in range(1, 6)])

    world.queue.edit(JobId(2), behind=JobId(4))
    world.queue.edit(JobId(5), behind=JobId(3))
    with pytest.raises(Conflict, match="cannot go behind job 1"):
        world.queue.edit(JobId(2), behind=JobId(1))
    order = []
    for _ in range(5):
        (running,) = world.running()
        order.append(running)
        world.end(running)

    assert order == [1, 3, 5, 4, 2]


def test_a_job_is_changed_before_it_starts_and_not_after(make_queue):
    world = make_queue(1)
    world.add(a_wish("a"), a_wish("b"))

    world.queue.edit(JobId(2), a_wish("another", priority=3))
    with pytest.raises(Conflict, match="it is running"):
        world.queue.edit(JobId(1), a_wish("late"))

    with pytest.raises(Conflict, match="cannot change job 1: it has succeeded"):
        world.end(1)
        world.queue.edit(JobId(1), a_wish("late"))

    assert world.store.job(JobId(2)).request.command.shown == "another"
    assert world.store.job(JobId(1)).request.command.shown == "a"


def test_what_a_job_follows_can_be_changed_and_taken_back(make_queue):
    world = make_queue(2)
    world.add(a_wish("a"), a_wish("b", begin=world.now + 60), a_wish("c", begin=world.now + 60))

    world.queue.edit(JobId(2), a_wish("b", after={1: "ok"}))
    world.queue.edit(JobId(3), a_wish("c", after={1: "fail", 2: "any"}))
    world.settle_down()
    waits = world.running()
    world.queue.edit(JobId(3), a_wish("c"))
    world.settle_down()

    assert waits == [1]
    assert sorted(world.running()) == [1, 3]
    world.end(1)
    assert sorted(world.running()) == [2, 3]


# -- begin, pause, drain -------------------------------------------------------------------------------


def test_a_job_begins_at_its_time(make_queue):
    world = make_queue(1)
    world.add(a_wish("a", begin=world.now + 60))

    assert world.running() == []
    assert world.sentence(1) == "waits for its time"
    world.advance(61)

    assert world.running() == [1]


def test_a_paused_queue_starts_nothing_and_goes_on(make_queue):
    world = make_queue(1)
    world.queue.pause(why="lunch")
    world.add(a_wish("a"))

    assert world.running() == []
    assert world.sentence(1) == "waits: the queue is paused (lunch)"
    world.crash()
    world.resume()
    assert world.running() == []
    world.queue.unpause()
    world.settle_down()

    assert world.running() == [1]


def test_jobs_that_wait_for_the_same_have_one_reason_together(make_queue):
    world = make_queue(1, 1)
    world.add(a_wish("runs"), a_wish("runs too"))  # 1, 2
    world.add(a_wish("a"), a_wish("b"), a_wish("c"), a_wish("wide", gpus=2))  # 3 to 6
    world.add(a_wish("d", after={1: "ok"}), a_wish("e", after={1: "ok"}))  # 7, 8
    world.add(a_wish("f", hold=True), a_wish("g", hold=True))  # 9, 10

    shared = [(one.reason.code, one.jobs) for one in world.queue.reasons(100)]

    assert shared == [("no-gpu", [3, 4, 5]), ("no-gpu", [6]), ("dependency", [7, 8]), ("held", [10, 9])]
    assert world.queue.reasons(100)[0].reason.sentence == world.sentence(3)
    assert [one.jobs for one in world.queue.reasons(1)] == [[3], [10]]
    world.queue.pause()
    assert [(one.reason.code, one.jobs) for one in world.queue.reasons(100)][:2] == [
        ("paused", [3, 4, 5, 6]),
        ("dependency", [7, 8]),
    ]


def test_a_paused_project_is_passed_by_others(make_queue):
    world = make_queue(1)
    world.queue.pause("mine")
    world.add(a_wish("a", project="mine"), a_wish("b", project="yours"))

    assert world.running() == [2]
    assert "paused" in world.sentence(1)
    world.queue.unpause("mine")
    world.end(2)

    assert world.running() == [1]


def test_a_drained_gpu_finishes_what_it_runs_and_gets_nothing_new(make_queue):
    world = make_queue(1, 1)
    world.add(a_wish("a"), a_wish("b"), a_wish("c"))

    world.queue.pool.drain(["0"])
    world.end(1)
    assert world.running() == [2]
    assert "GPU 0 is drained" in world.sentence(3)
    world.queue.pool.undrain(["0"])
    world.settle_down()

    assert world.running() == [2, 3]


def test_projects_take_turns(make_queue):
    world = make_queue(1)
    world.add(*[a_wish(f"a{n}", project="a") for n in range(50)])
    world.add(*[a_wish(f"b{n}", project="b") for n in range(2)])

    order = []
    for _ in range(6):
        (running,) = world.running()
        order.append(world.store.job(running).request.project)
        world.end(running)

    assert order.count("b") == 2


# -- stop rules ----------------------------------------------------------------------------------------


def test_a_project_that_fails_again_and_again_is_held_with_the_reason(make_queue):
    world = make_queue(1, limits=Limits(quick_failures=3))
    world.add(*[a_wish(f"a{n}", project="bad") for n in range(6)])
    world.add(a_wish("good", project="good"))

    for _ in range(10):
        for running in world.running():
            world.end(running, code=0 if world.store.job(running).request.project == "good" else 1)

    states = [world.state(n) for n in range(1, 8)]
    assert states == ["failed"] * 3 + ["held"] * 3 + ["succeeded"]
    assert "bad" in world.sentence(5)


# -- crashes and cleaning ------------------------------------------------------------------------------


def test_everything_is_there_after_a_crash(make_queue):
    world = make_queue(1)
    world.add(a_wish("a"), a_wish("b"), a_wish("c", hold=True), a_wish("d", begin=world.now + 60))
    world.add(a_wish("e", after={1: "ok"}))

    world.crash()
    world.machine.end(world.machine.alive()[0], code=7)
    world.resume()

    assert [world.state(n) for n in range(1, 6)] == ["failed", "running", "held", "queued", "cancelled"]
    assert world.machine.starts(JobId(1)) == 1


def test_cleaning_forgets_what_is_over_and_never_a_number(make_queue):
    world = make_queue(1)
    world.add(a_wish("a"), a_wish("b"))
    world.end(1)
    world.now += 100

    cleaned = world.queue.clean(world.now)
    (job,) = world.add(a_wish("c"))

    assert [job.id for job in cleaned.jobs] == [1]
    assert job.id == 3
    with pytest.raises(NoSuchJob):
        world.store.listing.row(JobId(1))
    assert world.state(2) == "running"


# -- what a review found -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["any", "fail", "ok"])
def test_followers_that_are_killed_together_with_what_they_follow_never_run(make_queue, kind):
    world = make_queue(1)
    world.queue.pause()
    world.add(a_wish("a"))
    world.add(a_wish("b", after={1: kind}))

    world.do("kill", 1, 2)
    world.queue.unpause()
    world.settle_down()

    assert world.running() == []
    assert [world.state(1), world.state(2)] == ["cancelled", "cancelled"]
    assert [row.job for row in world.store.events.since(0) if row.kind == "job.ended"] == [1, 2]


def test_a_kill_counts_though_the_job_had_just_failed_and_has_retries_left(make_queue):
    world = make_queue(1)
    world.add(a_wish("a", retries=3))
    world.machine.end(world._run_of(JobId(1)), code=1)  # the engine has not had its turn

    world.do("kill", 1)
    world.advance(100)

    assert world.state(1) == "failed"
    assert world.machine.starts(JobId(1)) == 1


def test_a_kill_survives_a_crash(make_queue):
    world = make_queue(1)
    world.add(a_wish("a"))
    world.backend.cancel = lambda refs, insist: frozenset()  # its shim is not there to hear it yet

    world.do("kill", 1)
    world.crash()
    world.resume()

    assert world.backend.told == [(1, "stop")]


def test_a_killed_job_whose_start_failed_is_not_started_again(make_queue):
    world = make_queue(1)
    world.machine.false_starts = 1
    world.queue.add(AddCall(key="k", requests=[a_wish("a")], environment={}))
    world.turn()
    world.backend.cancel = lambda refs, insist: frozenset()

    world.do("kill", 1)
    world.advance(10)

    assert world.state(1) == "cancelled"
    assert world.running() == []


def test_a_follower_of_what_was_cleaned_away_says_so(make_queue):
    world = make_queue(1)
    world.add(a_wish("a"))
    world.add(a_wish("b", after={1: "ok"}))
    world.end(1)
    world.end(2, code=1)
    world.queue.clean(world.now + 1, (State.SUCCEEDED,))

    changed = world.do("retry", 2)

    assert changed.unchanged == [(2, "job 1, which it follows, was cleaned away")]


def test_a_job_is_held_and_released_together_with_a_change_of_it(make_queue):
    world = make_queue(1)
    world.add(a_wish("a"), a_wish("b"))

    world.queue.edit(JobId(2), a_wish("c"), hold=True)
    world.queue.edit(JobId(2), hold=True)  # it is held already
    world.end(1)
    held = world.store.job(JobId(2))
    world.queue.edit(JobId(2), a_wish("d"), hold=False)
    world.settle_down()

    assert (held.state, held.why_held, held.request.command.shown) == (State.HELD, "held by its owner", "c")
    assert (world.state(2), world.store.job(JobId(2)).request.command.shown) == ("running", "d")


def test_the_key_of_a_job_is_changed_to_one_that_no_other_has(make_queue):
    world = make_queue(1)
    world.queue.pause()
    world.add(a_wish("a", once="nightly"))
    world.add(a_wish("b"))
    world.add(a_wish("c", once=trial_key(SweepId(1), 4)))

    world.queue.edit(JobId(2), a_wish("b", once="weekly"))
    with pytest.raises(BadInput, match="job 1 has the key 'nightly' already"):
        world.queue.edit(JobId(2), a_wish("b", once="nightly"))
    with pytest.raises(BadInput, match="job 3 is a trial"):
        world.queue.edit(JobId(3), a_wish("c"))
    world.queue.edit(JobId(1), a_wish("a"))

    assert world.store.queue.job_once("weekly") == 2
    assert world.store.queue.job_once("nightly") is None


def test_the_limit_of_an_array_is_changed_for_the_tasks_that_wait(make_queue):
    world = make_queue(4)
    world.add(*(a_wish("a", array=ArrayTask(JobId(0), task, 1)) for task in range(1, 5)))
    before = world.running()

    for number in (2, 3, 4):
        world.queue.edit(JobId(number), a_wish("a", array=ArrayTask(JobId(1), number, 3)))
    world.settle_down()

    assert (before, world.running()) == ([1], [1, 2, 3])


def test_a_name_may_be_no_utf8_but_a_project_is_text(make_queue):
    world = make_queue(1)

    world.add(a_wish("a", name="\udcfe"), key="\udcff")
    with pytest.raises(BadInput, match="is no UTF-8 text"):
        world.add(a_wish("a", project="é\udcff"))

    assert world.store.job(JobId(1)).request.name == "\udcfe"
    assert world.store.queue.next_number() == 2


def test_a_call_that_found_its_job_is_answered_the_same_after_a_clean(make_queue):
    world = make_queue(1)
    world.add(a_wish("a", once="nightly"))
    again = AddCall(key="again", requests=[a_wish("a", once="nightly")], environment={})
    first = world.queue.add(again)
    world.end(1)
    world.queue.clean(world.now + 1)

    second = world.queue.add(again)

    assert (first.first, second.first, second.is_new) == (1, 1, False)


def test_a_thousand_jobs_for_tonight_stay_in_the_store_and_all_begin(make_queue, monkeypatch):
    monkeypatch.setattr("dibs.engine.turn.state.KEPT", 10)
    world = make_queue(1)
    world.add(*[a_wish(f"job {n}", begin=world.now + 60 + n % 7) for n in range(100)])
    world.do("kill", 1, 8, 15)

    assert len(world.engine.state.waiting._delayed) <= 20
    world.advance(61)
    world.crash()
    world.resume()
    for _ in range(97):
        world.advance(10)
        (running,) = world.running()
        world.end(running)

    assert world.store.counts() == {State.CANCELLED: 3, State.SUCCEEDED: 97}


def test_a_gpu_that_is_in_the_pool_is_not_added_twice(make_queue):
    world = make_queue(1, 2)

    assert world.queue.pool.with_more(["0", "1"]) == "0,1,1"
    assert world.queue.pool.with_more(["5"]) == "0,1,1,5"


def test_a_wrong_number_changes_no_job(make_queue):
    world = make_queue(1)
    world.add(a_wish("a"))
    waiting = world.engine.state.waiting

    with pytest.raises(NoSuchJob):
        world.do("kill", 99)

    assert world.engine.state.waiting is waiting


# -- what will happen ----------------------------------------------------------------------------------


def test_the_order_of_starting_takes_turns_between_projects_and_knows_what_cannot_start(make_queue):
    world = make_queue(1)
    first = world.add(a_wish("runs"), *(a_wish(f"a{n}", project="a") for n in range(3)))
    world.add(a_wish("b", project="b"), a_wish("follows", project="c", after={first[3].id: "ok"}))
    world.add(a_wish("p", project="p"), a_wish("top", priority=3))
    world.queue.pause("p")

    order = world.queue.starting_order()
    rows = world.store.listing.page(Filter(), "turn", first=order).rows

    assert order == [8, 2, 5, 3, 4, 6, 7]
    assert [row.job.id for row in rows] == order
    started = []
    while running := world.running():
        world.end(*running)
        started += world.running()
    assert started == order[:-1]


def test_a_reason_names_jobs_by_their_numbers_and_names(make_queue):
    world = make_queue(1)

    world.add(a_wish("a", name="train"), a_wish("b", name="train"))

    assert world.queue.why(JobId(2)).reason.sentence == "waits for a GPU: GPU 0 is held by job 1 (train)"


def test_where_nothing_can_be_started_why_says_what_is_wrong(make_queue):
    world = make_queue(1)
    world.machine.refuses = "Input/output error"

    world.add(a_wish("a"))

    sentence = "is about to start, but nothing starts at the moment: cannot start job 1: input/output error"
    assert world.sentence(1) == sentence
    assert [one.reason.sentence for one in world.queue.reasons(10)] == [sentence]
    world.machine.refuses = ""
    world.advance(2)
    assert world.running() == [1]


def test_jobs_of_one_call_that_follow_different_jobs_wait_for_different_ones(make_queue):
    world = make_queue(1)
    first, second = world.add(a_wish("a"), a_wish("b"))
    third, fourth = world.add(a_wish("c", after={first.id: "ok"}), a_wish("d", after={second.id: "ok"}))

    told = [(one.jobs, one.answer.reason) for one in world.queue.why_alike([third.id, fourth.id]).values()]

    assert told == [([number], world.queue.why(number).reason) for number in (third.id, fourth.id)]
    assert told[0][1] != told[1][1]


def test_a_job_that_needs_what_its_waiting_parent_holds_says_so(make_queue):
    world = make_queue(1, 1)
    outer, other = world.add(a_wish("outer", name="outer"), a_wish("other", name="other"))

    def inner(parent, *wishes, **more):
        folder = world.engine.state.open[parent.id, 1].attempt.folder
        environment = {"HOME": "/", "DIBS_METRICS": f"{folder}/metrics"}
        world.calls += 1
        world.queue.add(AddCall(key=f"call {world.calls}", requests=wishes, environment=environment, **more))
        world.settle_down()

    inner(outer, a_wish("inner"), a_wish("for two", gpus=2))
    fits_later, never_fits = world.sentence(3), world.sentence(4)
    inner(other, a_wish("inner of the other"))
    both = world.sentence(3)
    world.end(other)

    assert "its holder" not in fits_later  # the other job ends sometime
    assert "its holder, job 1, added it and may wait for it: then nothing goes on" in never_fits
    assert "num_gpus=0" in never_fits and "nested='inside'" in never_fits
    assert "its holders, job 1 and job 2, wait for jobs like it" in both
    assert world.queue.why(JobId(4)).reason.code == "nested"


def test_every_waiting_job_has_an_estimated_start_or_the_reason_why_there_is_none(make_queue):
    world = make_queue(1)
    timed = [a_wish("timed", time_limit=90.0, grace=10.0)] * 4
    world.add(*timed, a_wish("later", time_limit=90.0, begin=world.now + 1000.0))
    world.add(a_wish("follows", after={4: "ok"}), a_wish("last"), a_wish("never"), a_wish("held", hold=True))

    told = {job: world.queue.why(JobId(job)) for job in range(2, 10)}

    begin = world.now
    assert [told[job].starts_at - begin for job in (2, 3, 4, 6)] == [100, 190, 280, 370]
    assert told[5].starts_at is None
    assert told[5].unknown == "job 6, which goes first, has no time limit"
    assert told[8].unknown == "job 6, which goes first, has no time limit"
    assert told[9].unknown == "it is held"


def test_why_counts_every_job_that_goes_first_whatever_its_wishes(make_queue):
    def on(gpu: int) -> Wishes:
        return Wishes(only=(str(gpu),))

    world = make_queue(1, 1)
    world.add(a_wish("holds GPU 0", time_limit=60.0), a_wish("holds GPU 1", time_limit=70.0))
    world.add(a_wish("short", wishes=on(0), time_limit=60.0), a_wish("on the other", wishes=on(1)))
    world.add(*[a_wish("needs no GPU", wishes=Wishes(num_gpus=0))] * 2)
    world.add(a_wish("long", wishes=on(0), time_limit=3600.0), a_wish("anywhere"))

    told = {job: world.queue.why(JobId(job)).reason.sentence for job in (3, 4, 7, 8)}

    first = "the first waits for a GPU"
    assert told[3] == "waits for a GPU: GPU 0 is held by job 1"
    assert told[4] == "waits for a GPU: GPU 1 is held by job 2"
    assert told[7].startswith(f"waits for its turn: 1 job goes first; {first}")
    assert told[8].startswith(f"waits for its turn: 3 jobs go first; {first}")


def test_a_dry_run_tells_the_same_as_why_does_later(make_queue):
    world = make_queue(1)
    world.add(*[a_wish("timed", time_limit=90.0, grace=10.0)] * 3)
    wishes = [a_wish("next", time_limit=50.0), a_wish("follows", after={3: "ok"}), a_wish("held", hold=True)]

    prospects = world.queue.check(wishes)
    world.add(*wishes)

    told = [world.queue.why(JobId(job)) for job in (4, 5, 6)]
    assert [one.starts_at for one in prospects] == [one.starts_at for one in told]
    assert [one.unknown for one in prospects] == [one.unknown for one in told] == ["", "", "it is held"]
