"""Histories of suspensions: jobs stand still and go on, whatever is killed in between."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from dibs.engine.engine import EngineLimits
from dibs.engine.turn.state import Key
from dibs.engine.watch.metering import Meters
from dibs.model.events import Trouble
from dibs.model.gpus import Card, Gpu, GpuReading, Machine, Pool, Reading, declared_key
from dibs.model.jobs import Checkpoint, JobId, State, Wishes
from dibs.model.suspensions import Obstacle
from dibs.model.usage import Lesson
from dibs.policy.snapshot import SuspendRules
from dibs.supervise.suspension import Answer, WhenAnswered
from engine.queue_world import QueueWorld, a_wish
from engine.world import Died, a_pool

GIB = 2**30


@dataclass
class HeldHelpers:
    """Helpers whose answers the test gives. They know what stands still, as the driver does."""

    asked: dict[Key, tuple[Mapping[str, Any], WhenAnswered]] = field(default_factory=dict)

    driver: str = ""  # why it can suspend nothing

    next_deadline: float | None = None

    def start(self, key: Key, question: Mapping[str, Any], done: WhenAnswered, deadline: float) -> None:
        if question["do"] == "look":
            done(Answer(state="looked", why=self.driver))
            return
        self.asked[key] = (question, done)

    def expire(self, now: float) -> None: ...

    def close(self) -> None:
        self.asked.clear()


@dataclass
class SuspendingWorld(QueueWorld):
    """A queue whose jobs can be suspended."""

    rules: SuspendRules = field(default_factory=SuspendRules)

    driver: str = ""

    def open(self) -> None:
        self.helpers = HeldHelpers(driver=self.driver)
        super().open()

    def parts(self) -> dict[str, Any]:
        machine = Machine(cpus=4, memory=100 * GIB)
        limits = EngineLimits(stop_rules=self.limits, machine=machine, suspend_rules=self.rules)
        return super().parts() | {"find_helpers": lambda: self.helpers, "limits": limits}

    def restart(self, rules: SuspendRules) -> None:
        """With other settings."""
        self.crash()
        self.rules = rules
        self.resume()

    def holds(self, **held: int) -> None:
        """Each job has so many GiB of its card."""
        found = {(int(name[1:]), 1): {declared_key(0): size * GIB} for name, size in held.items()}
        self.engine.meters.held_by = lambda key: found.get(key, {})  # type: ignore[method-assign]

    @property
    def moving(self) -> dict[int, str]:
        return {key[0]: question["do"] for key, (question, _) in self.helpers.asked.items()}

    def answer(self, job: int, state: str, **more: Any) -> None:
        key = next(key for key in self.helpers.asked if key[0] == job)
        stands = state == "suspended"
        run = self._run_of(JobId(job))
        if stands != run.stands_still:
            run.stands_still = stands
            self.machine.check_overlap()
        self.answer_of(key, state, **more)

    def answer_of(self, key: Key, state: str, **more: Any) -> None:
        """What the helper of this attempt says, whether it is true or not."""
        _, done = self.helpers.asked.pop(key)
        if state == "suspended" and "rung" not in more:
            more["rung"] = "cuda"
        done(Answer(state=state, **more))
        self.settle_down()

    def read(self, *, used: int = 0, **more: Any) -> None:
        """The cards are looked at: so many GiB of each are used."""
        seen = (
            GpuReading(gpu=replace(card.gpu, memory_total=141 * GIB), memory_used=used * GIB, **more)
            for card in self.cards.pool.cards
        )
        self.cards.saw(Reading(at=datetime.now(UTC), gpus=tuple(seen)))
        self.turn()
        self.settle_down()

    def phase(self, job: int) -> str:
        (row,) = [one for (number, _), ones in self.store.suspensions.of([job]).items() for one in ones[-1:]]
        return str(row.phase)


def at(world: SuspendingWorld) -> str:
    return time.strftime("%H:%M", time.localtime(world.now))


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr("dibs.engine.engine.memory_available", lambda: 100 * GIB)
    root, leases = tmp_path / "state 'é", tmp_path / "leases"
    root.mkdir()
    leases.mkdir()
    made = SuspendingWorld(str(root), str(leases))
    yield made
    made.close()


def test_a_suspended_job_gives_its_card_away_and_has_it_again_when_it_goes_on(world):
    first, second = world.add(a_wish(), a_wish())

    world.do("suspend", first.id)
    assert (world.state(first.id), world.moving) == ("running", {1: "suspend"})
    world.answer(first.id, "suspended")
    assert [world.state(1), world.state(2)] == ["suspended", "running"]
    assert world.sentence(1) == f"is suspended by you since {at(world)}; `dibs resume 1` lets it go on"
    world.do("resume", first.id)
    assert world.moving == {}
    world.end(second)
    assert world.moving == {1: "resume"}
    assert world.state(1) == "suspended"
    world.answer(first.id, "running")

    assert world.state(1) == "running"
    world.end(first)
    assert [world.state(1), world.state(2)] == ["succeeded", "succeeded"]


def test_a_job_that_the_driver_cannot_suspend_is_stopped_by_a_signal(world):
    (job,) = world.add(a_wish())

    world.do("suspend", job.id)
    world.answer(job.id, "running", code="managed-memory", why="it uses managed memory")
    question, _ = world.helpers.asked[(1, 1)]
    assert question["only_stop"]
    world.answer(job.id, "suspended", rung="stop")

    assert world.state(1) == "suspended"


@pytest.mark.parametrize("point", ["after-commit"])
def test_an_engine_that_dies_while_it_suspends_asks_again(world, point):
    first, _ = world.add(a_wish(), a_wish())

    world.dies_at = point
    with pytest.raises(Died):
        world.do("suspend", first.id)
    world.crash()
    world.resume()

    assert world.moving == {1: "suspend"}
    world.answer(1, "suspended")
    assert [world.state(1), world.state(2)] == ["suspended", "running"]


def test_a_suspended_job_survives_its_engine(world):
    first, second = world.add(a_wish(), a_wish())
    world.do("suspend", first.id)
    world.answer(first.id, "suspended")

    world.crash()
    world.resume()
    assert [world.state(1), world.state(2)] == ["suspended", "running"]
    world.end(second)
    assert world.moving == {}
    world.do("resume", first.id)
    world.answer(first.id, "running")

    assert world.state(1) == "running"


def test_a_suspended_job_that_is_killed_is_cancelled(world):
    first, _ = world.add(a_wish(), a_wish())
    world.do("suspend", first.id)
    world.answer(first.id, "suspended")

    world.do("kill", first.id)
    world.end(first, signal=15, by="stop")

    assert [world.state(1), world.state(2)] == ["cancelled", "running"]
    assert world.phase(1) == "over"


# -- how long it takes ---------------------------------------------------------------------------------


@pytest.fixture
def holding(world, monkeypatch):
    """Each running job holds 20 GiB of its card."""
    monkeypatch.setattr(Meters, "held_by", lambda meters, key: {"index-0": 20 * GIB})
    monkeypatch.setattr("dibs.engine.engine.memory_available", lambda: 200 * GIB)
    return world


def test_a_dry_run_of_an_urgent_job_says_what_would_be_suspended_where_and_for_how_long(holding):
    world = holding
    world.add(a_wish(preemptible=True))

    (prospect,) = world.queue.check([a_wish(urgent=True)])

    assert prospect.reason.sentence == "waits for job 1 to be suspended, about 13s for 20G"
    assert prospect.gpus == (0,)
    assert prospect.starts_at == pytest.approx(world.now + 13, abs=1)
    assert world.moving == {}


def test_why_says_how_long_a_suspension_takes_as_long_as_it_lasts(holding):
    world = holding
    world.add(a_wish(preemptible=True))
    world.add(a_wish(urgent=True))

    world.advance(5)
    waits = world.queue.why(JobId(2))

    assert waits.reason.sentence == "waits for job 1 to be suspended, about 13s for 20G"
    assert waits.starts_at == pytest.approx(world.now + 8, abs=1)
    assert world.sentence(1) == "it is being suspended for job 2, about 13s for 20G"
    world.advance(20)
    assert world.queue.why(JobId(2)).unknown == "that takes longer than it did before"


def test_why_says_how_a_suspension_stands_from_its_begin_to_its_end(holding):
    world = holding
    first, second = world.add(a_wish(), a_wish())
    begun = at(world)

    world.do("suspend", 1)
    assert world.sentence(1) == "it is being suspended by you, about 13s for 20G"
    world.answer(1, "suspended")
    where = f"is suspended by you since {begun}, with 20G in the machine's memory"
    world.now += 3600
    assert world.sentence(1) == f"{where}; `dibs resume 1` lets it go on"
    world.do("resume", 1)
    assert world.sentence(1) == f"{where}; waits to resume on GPU 0: held by job 2"
    world.end(second)
    world.read()
    assert world.sentence(1) == f"is being resumed, about 4s for 20G; it was suspended by you at {begun}"
    world.answer(1, "running")
    assert world.sentence(1) == ""

    world.do("suspend", 1)
    world.answer(1, "running", code="stopped", why="its CUDA process 4711 is stopped by a signal")
    assert world.sentence(1) == (
        f"it could not be suspended by you at {at(world)}: its CUDA process 4711 is stopped by a signal"
    )
    world.end(first)


def test_the_time_is_learned_from_earlier_suspensions_of_this_machine_also_by_the_next_engine(holding):
    world = holding
    world.add(a_wish(preemptible=True))
    for _ in range(3):
        world.do("suspend", 1)
        world.now += 40
        world.answer(1, "suspended")
        world.do("resume", 1)
        world.read()
        world.now += 20
        world.answer(1, "running")

    world.crash()
    world.resume()
    (prospect,) = world.queue.check([a_wish(urgent=True)])

    assert prospect.reason.sentence == "waits for job 1 to be suspended, about 40s for 20G"


def test_a_job_that_is_suspended_again_while_it_resumes_stands_still_again(world):
    first, second = world.add(a_wish(), a_wish())
    world.do("suspend", first.id)
    world.answer(first.id, "suspended")
    world.do("resume", first.id)
    world.end(second)
    assert world.moving == {1: "resume"}

    changed = world.do("suspend", first.id)
    world.answer(first.id, "running")

    assert changed.jobs == [1]
    assert world.moving == {1: "suspend"}
    world.answer(first.id, "suspended")
    assert world.state(1) == "suspended"
    assert world.sentence(1) == f"is suspended by you since {at(world)}; `dibs resume 1` lets it go on"
    assert world.engine.state.open[(1, 1)].suspension.number == 2


def test_a_job_that_found_no_room_at_the_last_moment_is_tried_again_a_while_later(world):
    (job,) = world.add(a_wish())
    world.do("suspend", job.id)
    world.answer(1, "suspended")
    world.do("resume", job.id)

    world.answer(1, "suspended", code="no-room", why="only 512M of 1G are free on GPU-a")

    assert (world.state(1), world.moving) == ("suspended", {})
    assert "waits to resume on GPU 0: only 512M of 1G are free on GPU-a" in world.sentence(1)
    (later,) = world.add(a_wish())
    assert world.state(later.id) == "queued"  # the card is kept for it
    world.advance(5)
    assert world.moving == {1: "resume"}


def test_a_suspended_job_that_is_ending_is_not_resumed(world):
    first, second = world.add(a_wish(), a_wish())
    world.do("suspend", first.id)
    world.answer(1, "suspended")
    world.do("resume", first.id)

    world.do("kill", first.id)
    world.end(second)

    assert (world.state(1), world.moving) == ("suspended", {})


def test_a_job_that_only_a_signal_has_stopped_keeps_its_card(world):
    first, _ = world.add(a_wish(), a_wish())

    world.do("suspend", first.id)
    world.answer(1, "running", code="no-driver", why="there is no CUDA driver here")
    key = next(iter(world.helpers.asked))
    world.helpers.asked.pop(key)[1](Answer(state="suspended", rung="stop"))
    world.settle_down()

    assert [world.state(1), world.state(2)] == ["suspended", "queued"]
    world.do("resume", first.id)
    assert world.moving == {1: "resume"}


def test_what_is_moved_is_booked_of_the_machines_memory_from_the_first_moment_on(world):
    (first,) = world.add(a_wish())
    world.holds(_1=60)
    wants = Wishes(num_gpus=0, mem=50 * GIB)

    world.do("suspend", first.id)
    (second,) = world.add(a_wish(wishes=wants))
    assert world.state(second.id) == "queued"
    world.answer(1, "suspended")
    assert world.state(second.id) == "queued"
    world.read()
    world.do("resume", first.id)
    assert (world.moving, world.state(second.id)) == ({1: "resume"}, "queued")
    world.answer(1, "running")

    assert world.state(second.id) == "running"


def test_what_stays_on_its_card_takes_no_memory_of_the_machine(world):
    (first,) = world.add(a_wish())
    world.holds(_1=60)

    world.do("suspend", first.id)
    world.answer(1, "running", code="managed-memory", why="it uses managed memory")
    world.answer(1, "suspended", rung="stop")
    (second,) = world.add(a_wish(wishes=Wishes(num_gpus=0, mem=50 * GIB)))

    assert [world.state(1), world.state(second.id)] == ["suspended", "running"]


def test_jobs_that_are_suspended_together_must_fit_into_the_memory_together(world):
    world.pool = a_pool(1, 1)
    world.cards.pool = world.pool
    first, second = world.add(a_wish(), a_wish())
    world.holds(_1=60, _2=60)

    changed = world.do("suspend", first.id, second.id)

    assert (changed.jobs, world.moving) == ([1], {1: "suspend"})
    assert changed.unchanged == [(2, "it holds 60G on its GPU, and the machine has 40G of memory available")]


def test_a_suspended_job_has_its_cpus_again_before_it_goes_on(world):
    (first,) = world.add(a_wish(wishes=Wishes(num_gpus=1, cpus=3)))
    world.do("suspend", first.id)
    world.answer(1, "suspended")
    (second,) = world.add(a_wish(wishes=Wishes(num_gpus=0, cpus=2)))

    world.do("resume", first.id)
    assert (world.state(second.id), world.moving) == ("running", {})
    assert "waits to resume on GPU 0: 3 CPUs: 2 free" in world.sentence(1)
    world.end(second)

    assert world.moving == {1: "resume"}


def test_what_was_measured_at_the_last_moment_is_what_must_be_free_again(world):
    (first,) = world.add(a_wish())
    world.holds(_1=2)
    world.do("suspend", first.id)

    world.answer(1, "suspended", held={declared_key(0): 60 * GIB})
    world.do("resume", first.id)
    world.read(used=100)
    assert (world.moving, world.phase(1)) == ({}, "suspended")
    assert "with 60G in the machine" in world.sentence(1)
    world.read()

    assert world.moving == {1: "resume"}
    question, _ = world.helpers.asked[(1, 1)]
    assert question["room"] == {declared_key(0): 63 * GIB + GIB // 2}


def test_a_job_that_the_driver_has_lost_is_ended_and_says_why(world):
    (job,) = world.add(a_wish())
    world.do("suspend", job.id)
    world.answer(1, "suspended")
    world.do("resume", job.id)

    for _ in range(2):
        world.answer(1, "lost", code="lost", why="the driver cannot reach its process 4711 any more")
        assert world.backend.told == []
        world.advance(5)
    world.answer(1, "lost", code="lost", why="the driver cannot reach its process 4711 any more")
    assert world.backend.told == [(1, "signal 9")]
    world.end(job, signal=9)

    assert world.state(1) == "failed"
    assert world.store.rows(State, -1)[0].outcome.message == (
        "could not be resumed: the driver cannot reach its process 4711 any more, so it was ended"
    )


def test_a_stopped_process_that_a_hung_helper_has_asked_is_not_forgotten(world):
    """The driver may do what the helper asked for as soon as the process goes on, and who would unlock it then?"""
    (job,) = world.add(a_wish())
    world.do("suspend", job.id)
    world.answer(1, "unclear", code="deadline", why="the driver did not answer in time")
    world.advance(5)

    world.answer(1, "running", code="stopped", why="its CUDA process 4711 is stopped by a signal")
    world.advance(5)

    assert world.moving == {1: "suspend"}
    world.crash()
    world.resume()
    world.answer(1, "running", code="stopped", why="its CUDA process 4711 is stopped by a signal")
    world.advance(5)
    assert world.moving == {1: "suspend"}
    world.answer(1, "suspended")
    assert world.state(1) == "suspended"


def test_a_helper_that_saw_no_process_of_a_job_that_lives_is_followed_by_another_one(world):
    """Its shim may have been killed while the helper looked for what is below it."""
    (job,) = world.add(a_wish())
    world.do("suspend", job.id)

    world.answer_of((1, 1), "ended")
    assert world.moving == {}
    world.advance(5)
    assert world.moving == {1: "suspend"}
    world.answer(1, "suspended")
    world.do("resume", job.id)
    world.answer_of((1, 1), "ended")
    world.end(job, signal=9)
    world.advance(5)

    assert (world.state(1), world.moving) == ("failed", {})


def test_what_is_tried_again_and_again_is_told_once(world):
    (job,) = world.add(a_wish())
    world.do("suspend", job.id)
    world.told()

    for why in ("it is just starting", "the driver did not answer in time", "the driver did not answer in time"):
        world.answer(1, "unclear", why=why)
        world.advance(5)

    assert world.told(Trouble) == [
        ("trouble", "job 1 cannot be suspended yet: it is just starting; it is tried again"),
        ("trouble", "job 1 cannot be suspended yet: the driver did not answer in time; it is tried again"),
    ]


# -- who may be suspended ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "setting", "project", "is_suspended"),
    [
        (None, False, "", False),
        (None, True, "", True),
        (False, True, "", False),
        (True, False, "", True),
        (None, ("vision",), "vision", True),
        (None, ("vision",), "audio", False),
        (None, ("vision",), "", False),
        (False, ("vision",), "vision", False),
    ],
)
def test_the_settings_say_whether_a_job_is_preemptible_that_does_not_say_so_itself(
    world, says, setting, project, is_suspended
):
    world.restart(SuspendRules(preemptible=setting))
    world.add(a_wish(preemptible=says, project=project))

    world.add(a_wish(urgent=True))

    assert world.moving == ({1: "suspend"} if is_suspended else {})


def test_a_job_that_runs_already_is_preemptible_as_soon_as_the_settings_say_so(world):
    world.add(a_wish())
    world.add(a_wish(urgent=True))
    assert world.moving == {}

    world.restart(SuspendRules(preemptible=True))

    assert world.moving == {1: "suspend"}


# -- what is remembered of programs that cannot be suspended --------------------------------------------

SHAPE = "train"


def refuses(world: SuspendingWorld, job: int, code: str = "managed-memory") -> None:
    world.answer(job, "running", code=code, why="the driver could not checkpoint its process 4711")


def test_a_program_that_cannot_be_suspended_is_not_chosen_again_for_an_urgent_job(world):
    (first,) = world.add(a_wish(preemptible=True))
    (urgent,) = world.add(a_wish(urgent=True))
    refuses(world, 1)
    assert world.sentence(urgent.id) == (
        "waits for a GPU: GPU 0 is held by job 1; "
        "job 1 is preemptible, but the driver could not checkpoint its process 4711"
    )
    world.end(first)
    world.end(urgent)

    world.add(a_wish(preemptible=True))
    (again,) = world.add(a_wish(urgent=True))

    assert world.moving == {}
    assert world.sentence(again.id) == (
        "waits for a GPU: GPU 0 is held by job 3; "
        "job 3 is preemptible, but jobs of its shape use managed memory, which cannot be moved"
    )
    assert world.store.lessons.of(SHAPE)[SHAPE, ""] == Lesson(obstacle=Obstacle.MANAGED_MEMORY)


def test_a_job_of_another_shape_is_chosen_instead_of_it(world):
    world.pool = a_pool(1, 1)
    world.cards.pool = world.pool
    first, _ = world.add(a_wish(preemptible=True), a_wish("other", preemptible=True, priority=1))
    world.add(a_wish(urgent=True))
    assert world.moving == {1: "suspend"}  # the one of the lower priority

    refuses(world, first.id)

    assert world.moving == {2: "suspend"}


def test_what_is_remembered_is_known_to_the_next_engine_until_it_is_forgotten(world):
    (first,) = world.add(a_wish(preemptible=True))
    (urgent,) = world.add(a_wish(urgent=True))
    refuses(world, 1)
    world.end(first)
    world.end(urgent)
    world.crash()
    world.resume()
    world.add(a_wish(preemptible=True))
    world.add(a_wish(urgent=True))
    assert world.moving == {}

    assert world.queue.forget_lessons(SHAPE) == 1
    world.settle_down()

    assert world.moving == {3: "suspend"}


def test_its_owner_may_try_again_and_what_could_be_done_is_remembered_no_more(world):
    (job,) = world.add(a_wish())
    world.do("suspend", job.id)
    refuses(world, 1)
    world.answer(1, "suspended", rung="stop")
    world.do("resume", job.id)
    world.answer(1, "running")
    assert world.store.lessons.all()[0].lesson.obstacle is Obstacle.MANAGED_MEMORY

    world.do("suspend", job.id)
    question, _ = world.helpers.asked[(1, 1)]
    assert not question["only_stop"]
    world.answer(1, "suspended")

    assert world.store.lessons.all() == []


def test_why_of_a_job_that_a_signal_has_stopped_says_why_the_driver_did_not(world):
    (job,) = world.add(a_wish())
    world.holds(_1=20)
    world.do("suspend", job.id)
    refuses(world, 1)

    world.answer(1, "suspended", rung="stop", held={declared_key(0): 20 * GIB})

    assert world.sentence(1) == (
        f"is suspended by you since {at(world)}, by a signal, and its 20G are still on its GPU: "
        "the driver could not checkpoint its process 4711; `dibs resume 1` lets it go on"
    )
    world.do("kill", 1)
    world.end(job, signal=15, by="stop")
    assert "job.not_suspended" not in world.kinds()


def test_several_processes_are_no_obstacle_where_their_owner_says_that_they_share_nothing(world):
    (first,) = world.add(a_wish(preemptible=True))
    (urgent,) = world.add(a_wish(urgent=True))
    refuses(world, 1, "several-processes")
    world.end(first)
    world.end(urgent)

    (careful,) = world.add(a_wish(preemptible=True, no_cuda_ipc=True))
    world.add(a_wish(urgent=True))

    assert world.moving == {careful.id: "suspend"}


@pytest.mark.parametrize("code", ["no-driver", "stopped", "failed", "no-memory"])
def test_what_says_nothing_about_the_program_is_not_remembered(world, code):
    world.add(a_wish(preemptible=True))
    world.add(a_wish(urgent=True))

    refuses(world, 1, code)

    assert world.store.lessons.all() == []


# -- the ladder ----------------------------------------------------------------------------------------

OLD = "driver 550 is too old: 570 or newer"
SAVES = {"time_limit": 3600.0, "checkpoint": Checkpoint(signal=10, seconds=60.0)}


def lacks_driver(world: SuspendingWorld) -> None:
    world.crash()
    world.driver = OLD
    world.resume()


def test_where_the_driver_can_suspend_nothing_no_job_is_chosen_and_the_dry_run_says_so(world):
    lacks_driver(world)
    world.add(a_wish(preemptible=True))

    (prospect,) = world.queue.check([a_wish(urgent=True)])
    (urgent,) = world.add(a_wish(urgent=True))

    assert world.moving == {}
    waits = f"waits for a GPU: GPU 0 is held by job 1; job 1 is preemptible, but {OLD}"
    assert (prospect.reason.sentence, world.sentence(urgent.id)) == (waits, waits)
    assert world.sentence(1) == ""


def test_a_driver_that_could_suspend_nothing_is_asked_again_a_while_later(world):
    lacks_driver(world)
    world.add(a_wish(preemptible=True))
    world.add(a_wish(urgent=True))

    world.helpers.driver = ""  # it was updated
    world.advance(599)
    world.read()
    assert world.moving == {}
    world.advance(2)
    world.read()

    assert world.moving == {1: "suspend"}


def test_a_job_on_a_card_of_amd_is_stopped_by_a_signal_and_keeps_its_card(world):
    world.pool = world.cards.pool = Pool(cards=(Card(gpu=Gpu(key="AMD-0000:03:00.0", index=0)),))
    (job, _) = world.add(a_wish(), a_wish())

    world.do("suspend", job.id)
    question, _ = world.helpers.asked[(1, 1)]
    assert question["only_stop"]
    world.answer(1, "suspended", rung="stop")

    assert [world.state(1), world.state(2)] == ["suspended", "queued"]
    assert world.sentence(1) == (
        f"is suspended by you since {at(world)}, by a signal, and what it has there stays on its GPU: "
        "its GPU is not one of NVIDIA's; `dibs resume 1` lets it go on"
    )


def test_a_preemptible_job_on_a_card_of_amd_is_not_chosen(world):
    world.pool = world.cards.pool = Pool(cards=(Card(gpu=Gpu(key="AMD-0000:03:00.0", index=0)),))
    world.add(a_wish(preemptible=True))
    (urgent,) = world.add(a_wish(urgent=True))

    assert world.moving == {}
    assert "job 1 is preemptible, but its GPU is not one of NVIDIA's" in world.sentence(urgent.id)


def test_a_job_without_a_gpu_is_stopped_by_a_signal_even_if_it_could_save_its_work(world):
    lacks_driver(world)
    (job,) = world.add(a_wish(wishes=Wishes(num_gpus=0, cpus=4, mem=60 * GIB), **SAVES))

    world.do("suspend", job.id)
    question, _ = world.helpers.asked[(1, 1)]
    assert question["only_stop"]
    world.answer(1, "suspended", rung="stop")

    assert world.sentence(1) == (
        f"is suspended by you since {at(world)}, by a signal; its memory stays as it is; "
        "`dibs resume 1` lets it go on"
    )
    assert world.backend.told == []
    small, large = world.add(
        a_wish(wishes=Wishes(num_gpus=0, cpus=4)), a_wish(wishes=Wishes(num_gpus=0, mem=60 * GIB))
    )
    assert (world.state(small.id), world.state(large.id)) == ("running", "queued")


def test_an_urgent_job_has_one_that_the_driver_cannot_suspend_save_its_work_and_end(world):
    lacks_driver(world)
    (saves,) = world.add(a_wish(preemptible=True, **SAVES))

    (prospect,) = world.queue.check([a_wish(urgent=True)])
    (urgent,) = world.add(a_wish(urgent=True))
    assert prospect.reason.sentence == "waits for job 1 to save a checkpoint and end, within 1m00s"
    assert world.moving == {1: "suspend"}
    world.answer(1, "running", code="no-driver", why=OLD)

    assert world.backend.told == [(1, "signal 10")]
    assert world.sentence(urgent.id) == "waits for job 1 to save a checkpoint and end, within 1m00s"
    assert world.sentence(1) == (
        f"saves a checkpoint and ends, to be suspended for job 2: {OLD}; it was sent its checkpoint signal instead"
    )
    (told,) = [row for row in world.store.events.since(0) if row.kind == "job.not_suspended"]
    assert told.body["rung"] == "checkpoint"
    world.end(saves, code=0, by="checkpoint", checkpointed=True)
    assert (world.state(1), world.state(2)) == ("queued", "running")
    world.end(urgent)
    assert world.state(1) == "running"


def test_no_second_job_is_chosen_while_the_first_saves_its_work(world):
    world.pool = world.cards.pool = a_pool(1, 1)
    lacks_driver(world)
    world.add(a_wish(preemptible=True, **SAVES), a_wish("other", preemptible=True, **SAVES))
    world.add(a_wish(urgent=True))
    assert world.moving == {2: "suspend"}

    world.answer(2, "running", code="no-driver", why=OLD)
    world.read()
    assert world.moving == {}
    world.advance(61)  # it has ignored the signal
    world.read()

    assert world.moving == {1: "suspend"}


def test_one_that_loses_no_work_is_suspended_rather_than_one_that_must_save_it(world):
    world.pool = world.cards.pool = a_pool(1, 1)
    world.add(a_wish(preemptible=True), a_wish("other", preemptible=True, **SAVES))
    world.holds(_1=60)
    with world.store.turn():
        world.store.lessons.put("other", "", Lesson(obstacle=Obstacle.CUDA_IPC), 0.0)

    world.add(a_wish(urgent=True))

    assert world.moving == {1: "suspend"}


def test_a_job_that_its_owner_suspends_and_that_can_only_save_its_work_is_held_afterwards(world):
    lacks_driver(world)
    (job,) = world.add(a_wish(**SAVES))

    world.do("suspend", job.id)
    world.answer(1, "running", code="no-driver", why=OLD)
    world.end(job, code=0, by="checkpoint", checkpointed=True)

    assert world.state(1) == "held"
    assert world.sentence(1) == "is held: suspended by you, by its checkpoint signal; `dibs release 1` lets it go"
    world.do("release", job.id)
    assert world.state(1) == "running"


def test_a_time_limit_is_known_to_end_later_by_the_time_for_which_the_job_stood_still(world):
    (job,) = world.add(a_wish(time_limit=600.0))
    world.advance(100)
    world.do("suspend", job.id)
    world.answer(1, "suspended")
    world.advance(5000)
    world.do("resume", job.id)
    world.answer(1, "running")

    (prospect,) = world.queue.check([a_wish()])

    assert prospect.starts_at == pytest.approx(world.now + 500, abs=15)


def test_it_is_not_known_when_a_job_ends_that_a_signal_has_stopped_on_its_card(world):
    lacks_driver(world)
    (job,) = world.add(a_wish(time_limit=600.0))
    world.do("suspend", job.id)
    world.answer(1, "running", code="no-driver", why=OLD)
    world.answer(1, "suspended", rung="stop", why=OLD)

    (prospect,) = world.queue.check([a_wish()])

    assert prospect.starts_at is None


def test_a_checkpoint_is_not_waited_for_longer_because_the_clock_was_set_back(world):
    lacks_driver(world)
    world.pool = world.cards.pool = a_pool(1, 1)
    world.add(a_wish(preemptible=True, **SAVES), a_wish("other", preemptible=True, **SAVES))
    world.add(a_wish(urgent=True))
    world.answer(2, "running", code="no-driver", why=OLD)

    world.clock_is_off -= 86400
    world.advance(61)  # it has ignored the signal
    world.read()

    assert world.moving == {1: "suspend"}
