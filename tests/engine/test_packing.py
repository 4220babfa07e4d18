"""`--vram auto` in an engine: learned from what runs, joined while it runs, tried alone where it was too tight."""

from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest

from dibs.engine.turn.state import Key
from dibs.engine.watch.metering import Meters
from dibs.model.gpus import Card, Gpu, GpuReading, Pool, Reading
from dibs.model.jobs import JobId, Wishes
from dibs.model.usage import Lesson, Usage
from dibs.policy.fitting import with_margin
from dibs.store.rebuild import rebuild
from engine.queue_world import QueueWorld, a_wish
from engine.test_suspensions import SuspendingWorld
from engine.world import NOON

GIB = 1024**3
H200 = "NVIDIA H200"
SHAPE = "/train.py --lr"


def a_pool(gpus: int = 1) -> Pool:
    return Pool(
        cards=tuple(
            Card(gpu=Gpu(key=f"GPU-{index}", index=index, name=H200, memory_total=141 * GIB))
            for index in range(gpus)
        )
    )


class Told(Meters):
    """What a test says was measured."""

    def __init__(self, usages: dict[JobId, Usage]) -> None:
        super().__init__()
        self._usages = usages

    def usage_of(self, key: Key) -> Usage | None:
        return self._usages.get(key[0])


class PackedWorld(QueueWorld):
    """A queue on H200s. `uses(job, 9)` is what would be measured of a job's processes."""

    def parts(self) -> dict[str, Any]:
        self.usages: dict[JobId, Usage] = getattr(self, "usages", {})
        return super().parts() | {"meters": Told(self.usages)}

    def add_auto(self, count: int, text: str = "python train.py --lr {}", **more):
        vram = more.pop("vram", None)
        wishes = Wishes(shape="auto", vram=vram)
        return self.add(*(replace(a_wish(text.format(i), **more), wishes=wishes) for i in range(count)))

    def uses(self, job: int, gib: float, *, is_steady: bool = True, was_alone: bool = True, **more) -> None:
        self.usages[JobId(job)] = Usage(
            seconds=30.0, peak_vram=int(gib * GIB), is_steady=is_steady, was_alone=was_alone, **more
        )
        self.look()

    def look(self) -> None:
        """The cards were read."""
        self.engine.ask_for_turn()
        self.settle_down()

    def turn(self) -> None:
        """What an engine books for a command may become less: the machine believes it."""
        super().turn()
        for one in self.engine.state.open.values():
            for run in self.machine.alive(one.job.id):
                run.claims = one.attempt.claims

    def booked(self, job: int) -> tuple[Fraction, int]:
        (claim,) = self.store.listing.attempts(JobId(job))[-1].attempt.claims
        return claim.share, claim.vram

    def lesson(self) -> Lesson | None:
        return self.store.lessons.of(SHAPE).get((SHAPE, H200))


@pytest.fixture
def world(tmp_path):
    yield from _world(PackedWorld, tmp_path)


def _world(kind, tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "leases").mkdir()
    world = kind(root=str(tmp_path / "state"), leases_folder=str(tmp_path / "leases"), pool=a_pool())
    yield world
    world.close()


def test_the_first_runs_alone_until_it_is_steady_and_then_all_others_join_it(world):
    world.add_auto(8)
    assert world.running() == [1]
    assert world.booked(1) == (1, 0)
    assert "GPU 0 is held by job 1, which shows how much memory jobs like this need" in world.sentence(8)

    world.uses(1, 9, is_steady=False)
    assert world.running() == [1]

    world.uses(1, 9)
    assert world.running() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {world.booked(job)[1] for job in range(1, 9)} == {with_margin(9 * GIB * 5 // 4)}


def test_what_was_learned_counts_for_the_next_ones_from_the_start(world):
    world.add_auto(1)
    world.uses(1, 9)
    world.end(JobId(1), code=0)
    assert world.lesson() == Lesson(peak_vram=9 * GIB, runs=1)

    world.add_auto(12)

    assert world.running() == list(range(2, 14))
    assert world.booked(2) == (Fraction(73, 1000), with_margin(9 * GIB))


def test_others_see_that_a_card_has_room(world):
    world.add_auto(1)
    (before,) = world.leases.holders()

    world.uses(1, 9)

    (after,) = world.leases.holders()
    assert (before.share, before.job) == (1, "1")
    assert after.share < Fraction(1, 10)
    assert replace(after, share=before.share, vram=before.vram) == before


def test_a_crash_between_what_is_recorded_and_what_others_see_is_mended(world):
    world.add_auto(3)
    world.engine._show_lowered = lambda: None  # the engine dies before it
    world.uses(1, 9)
    assert world.leases.holders()[0].share == 1
    assert world.booked(1)[0] < 1

    world.crash()
    world.resume()

    assert world.running() == [1, 2, 3]
    assert sum(holder.share for holder in world.leases.holders()) < 1


def test_a_turn_that_fails_changes_no_booking(world):
    world.add_auto(3)
    world.store.is_full = True
    world.uses(1, 9)
    assert world.running() == [1]
    assert world.engine.state.open[(JobId(1), 1)].attempt.claims[0].share == 1
    assert world.leases.holders()[0].share == 1

    world.store.is_full = False
    world.advance(5)
    world.look()

    assert world.running() == [1, 2, 3]


def test_a_declared_size_lets_them_start_together_at_once(world):
    world.add_auto(8, vram=12 * GIB)

    assert world.running() == list(range(1, 9))
    assert world.booked(8)[1] == 12 * GIB


def test_who_uses_more_than_was_booked_counts_as_what_it_uses(world):
    world.add_auto(1, vram=10 * GIB)
    world.uses(1, 110, is_steady=False)

    world.add(replace(a_wish("python other.py"), wishes=Wishes(vram=40 * GIB)))

    assert world.running() == [1]
    assert "31G of memory left" in world.sentence(2)


def test_memory_that_no_job_booked_counts_beside_claims(world):
    world.add(replace(a_wish("python other.py"), wishes=Wishes(share=Fraction(1, 4))))
    card = world.pool.cards[0].gpu
    seen = GpuReading(gpu=card, memory_used=130 * GIB)
    world.engine.cards.saw(Reading(at=None, gpus=(seen,)))  # type: ignore[arg-type]

    world.add_auto(1, vram=12 * GIB)

    assert world.running() == [1]


def test_a_job_that_runs_out_of_memory_beside_others_is_tried_once_with_the_card_to_itself(world):
    world.add_auto(2, vram=12 * GIB)
    world.uses(2, 11, was_alone=False)

    run_out_of_memory(world, 2)

    job = world.store.job(JobId(2))
    assert (job.state, job.tries, job.request.wishes.share) == ("queued", 0, 1)
    assert "a GPU to itself: GPU 0 is held by job 1" in world.sentence(2)
    assert world.lesson().needs_card
    (attempt,) = world.store.listing.attempts(JobId(2))
    assert attempt.outcome.message.endswith("a part of the card, and is tried again with the card to itself")

    world.end(JobId(1), code=0)
    assert world.running() == [2]
    assert world.booked(2) == (1, 0)

    run_out_of_memory(world, 2)
    assert world.state(2) == "failed"


def test_being_tried_alone_survives_a_crash_and_a_rebuild(world, tmp_path):
    world.add_auto(2, vram=12 * GIB)
    run_out_of_memory(world, 2)

    world.crash()
    (tmp_path / "state" / "store.db").unlink()
    for more in ("-wal", "-shm"):
        (tmp_path / "state" / f"store.db{more}").unlink(missing_ok=True)
    rebuild(str(tmp_path / "state"), look=world.machine.facts, spec_of=lambda folder: None, now=NOON)
    world.resume()

    job = world.store.job(JobId(2))
    assert (job.state, job.tries, job.request.wishes.share) == ("queued", 0, 1)


def test_a_larger_peak_alone_is_the_new_lesson_and_the_others_are_packed_again(world):
    world.add_auto(1)
    world.uses(1, 9)
    world.end(JobId(1), code=0)
    world.add_auto(2)
    world.uses(3, 9, was_alone=False)
    run_out_of_memory(world, 3)
    world.end(JobId(2), code=0)
    assert world.running() == [3]

    world.uses(3, 40)
    assert world.booked(3) == (1, 0)  # alone it is, whatever it needs
    world.end(JobId(3), code=0)

    assert world.lesson().peak_vram == 40 * GIB
    world.add_auto(4)
    assert len(world.running()) == 3


def test_a_job_without_vram_auto_is_not_tried_alone(world):
    wishes = Wishes(vram=12 * GIB)
    world.add(*(replace(a_wish(f"python {name}.py"), wishes=wishes) for name in "ab"))

    run_out_of_memory(world, 2)

    assert world.state(2) == "failed"


def test_a_stopped_job_is_not_tried_alone(world):
    world.add_auto(2, vram=12 * GIB)
    world.do("kill", 2)

    run_out_of_memory(world, 2)

    assert world.state(2) == "failed"


def test_lessons_can_be_forgotten(world):
    world.add_auto(1)
    world.uses(1, 9)
    world.end(JobId(1), code=0)

    assert world.queue.forget_lessons(SHAPE) == 1

    world.add_auto(2)
    assert world.running() == [2]


def test_an_edited_command_has_another_shape(world):
    world.add_auto(2)
    job = world.store.job(JobId(2))

    world.queue.edit(job.id, replace(job.request, command=a_wish("python other.py --x 1").command))

    assert world.store.job(job.id).request.wishes.shape == "/other.py --x"


def test_a_dry_run_knows_the_shape(world):
    (prospect,) = world.queue.check([replace(a_wish("python train.py --lr 1"), wishes=Wishes(shape="auto"))])

    assert prospect.shape == SHAPE


def run_out_of_memory(world: PackedWorld, job: int) -> None:
    (run,) = world.machine.alive(JobId(job))
    world.machine.end(run, code=1)
    assert run.record is not None
    run.record["cause"] = "gpu-oom"
    run.record["message"] = "CUDA out of memory"
    world.settle_down()


def test_a_dry_run_knows_what_was_learned(world):
    world.add_auto(1)
    world.uses(1, 9)
    world.end(JobId(1), code=0)
    world.add(a_wish("other", share="1/2"))

    (prospect,) = world.queue.check([replace(a_wish("python train.py --lr 5"), wishes=Wishes(shape="auto"))])

    assert (prospect.reason, prospect.gpus) == (None, (0,))


def test_who_needs_no_more_alone_than_was_booked_beside_others_stays_alone(world):
    """Also where the booking was only an early guess, and no run has ended that would tell more."""
    world.engine.cards.pool = a_pool(2)
    world.add_auto(3)
    world.uses(1, 8)
    run_out_of_memory(world, 3)
    world.end(JobId(2), code=1)
    assert world.running() == [1, 3]

    world.uses(3, 8)
    world.end(JobId(3), code=0)

    assert world.lesson().needs_card


def test_who_needs_more_alone_than_was_booked_beside_others_teaches_that(world):
    world.engine.cards.pool = a_pool(2)
    world.add_auto(3)
    world.uses(1, 8)
    run_out_of_memory(world, 3)
    world.end(JobId(2), code=1)

    world.uses(3, 20)
    world.end(JobId(3), code=0)

    assert world.lesson() == Lesson(peak_vram=20 * GIB, runs=1)


# -- the safety net ------------------------------------------------------------------------------------


class NettedWorld(PackedWorld, SuspendingWorld):
    """The driver can suspend jobs. `holds({1: 20})` is what each has of the card, in GiB; `look` reads it."""

    def parts(self) -> dict[str, Any]:
        self.memory: dict[int, float] = getattr(self, "memory", {})
        self.grows = 0.0
        return super().parts()

    def open(self) -> None:
        super().open()
        meters = self.engine.meters
        meters.held_by = lambda key: {"GPU-0": self.bytes_of(key[0])} if key[0] in self.memory else {}  # type: ignore[method-assign]
        meters.growth_of = lambda key: self.grows * GIB  # type: ignore[method-assign]

    def bytes_of(self, job: int) -> int:
        return int(self.memory.get(job, 0) * GIB)

    def holds(self, memory: dict[int, float], *, steady: tuple[int, ...] = (), grows: float = 0.0) -> None:
        """`grows`: each by so many GiB in a second."""
        self.memory, self.grows = memory, grows
        for job, gib in memory.items():
            peak = max(int(gib * GIB), (self.usages.get(JobId(job), Usage()).peak_vram or 0))
            self.usages[JobId(job)] = Usage(seconds=30.0, peak_vram=peak, is_steady=job in steady)
        self.look()

    def look(self) -> None:
        still = {one.job.id for one in self.engine.state.open.values() if one.is_suspended}
        used = sum(self.bytes_of(job) for job in self.memory if job not in still)
        self.cards.saw(
            Reading(at=datetime.now(UTC), gpus=(GpuReading(gpu=self.pool.cards[0].gpu, memory_used=used),))
        )
        super().look()


@pytest.fixture
def netted(tmp_path, monkeypatch):
    monkeypatch.setattr("dibs.engine.engine.memory_available", lambda: 100 * GIB)
    yield from _world(NettedWorld, tmp_path)


def test_the_others_join_as_soon_as_the_first_has_begun_to_use_the_card(netted):
    netted.add_auto(10)
    netted.look()
    assert netted.running() == [1]

    netted.holds({1: 0.5})

    assert netted.running() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {netted.booked(job) for job in range(1, 9)} == {
        (Fraction(1, 8), 141 * GIB // 8 // (64 * 2**20) * 64 * 2**20)
    }
    netted.holds(dict.fromkeys(range(1, 9), 9.0), steady=(1,))
    assert netted.running() == list(range(1, 11))  # it is known now that more fit


def begin(netted: NettedWorld, jobs: int) -> None:
    """They all run."""
    netted.add_auto(jobs)
    netted.look()
    netted.holds({1: 0.5})
    assert netted.running() == list(range(1, jobs + 1))


def test_the_youngest_leaves_before_the_card_is_full_and_goes_on_when_the_others_have_shown_what_they_need(netted):
    begin(netted, 4)
    netted.holds(dict.fromkeys(range(1, 5), 28.0))
    assert netted.moving == {}
    netted.holds(dict.fromkeys(range(1, 5), 29.0), grows=0.5)
    assert netted.moving == {4: "suspend"}, "25 GiB are free, and it takes 19 s to move 29"
    assert netted.sentence(4).startswith("it is being suspended for want of memory on GPU 0, ")
    netted.look()
    assert netted.moving == {4: "suspend"}, "what it holds will be free"

    netted.answer(4, "suspended", held={"GPU-0": 29 * GIB})
    netted.holds(dict.fromkeys(range(1, 5), 29.0), steady=(1, 2))
    assert (netted.state(4), netted.moving) == ("suspended", {})
    assert netted.sentence(4).endswith(": others there still show how much memory they need")
    netted.holds({1: 35, 2: 35, 3: 35, 4: 29}, steady=(1, 2, 3))
    assert netted.moving == {}
    assert "waits to resume on GPU 0: has 36G of free memory, and 48.6G is needed" in netted.sentence(4)
    netted.memory.pop(1)
    netted.end(JobId(1), code=0)
    netted.look()
    assert netted.moving == {4: "resume"}
    netted.answer(4, "running")
    netted.holds({2: 35, 3: 35, 4: 29}, steady=(2, 3))
    assert (netted.running(), netted.moving) == ([2, 3, 4], {})


def test_nothing_starts_in_the_room_of_one_that_has_left(netted):
    begin(netted, 4)
    netted.holds(dict.fromkeys(range(1, 5), 29.0), grows=0.5)
    netted.answer(4, "suspended", held={"GPU-0": 29 * GIB})
    netted.look()

    netted.add_auto(1)
    netted.look()

    assert netted.state(5) == "queued"


def test_one_that_is_ending_is_left_to_its_last_seconds(netted):
    begin(netted, 4)
    netted.do("kill", 4)

    netted.holds(dict.fromkeys(range(1, 5), 29.0), grows=0.5)

    assert netted.moving == {3: "suspend"}


def test_nobody_is_suspended_for_want_of_memory_while_all_jobs_are_being_ended(netted):
    begin(netted, 4)
    netted.engine.drain()

    netted.holds(dict.fromkeys(range(1, 5), 29.0), grows=0.5)

    assert netted.moving == {}


def test_one_that_says_no_is_not_suspended_for_want_of_memory_and_begins_alone(netted):
    netted.add_auto(2, preemptible=False)
    netted.look()

    netted.holds({1: 0.5})

    assert netted.running() == [1]
    netted.holds({1: 0.5}, steady=(1,))
    assert netted.running() == [1, 2]
    netted.holds({1: 70, 2: 70}, grows=0.5)
    assert netted.moving == {}


def test_the_last_one_on_a_card_is_left_there(netted):
    begin(netted, 1)

    netted.holds({1: 70})
    netted.holds({1: 139})

    assert netted.moving == {}


def test_nobody_is_suspended_on_a_card_whose_jobs_are_known(netted):
    with netted.store.turn():
        netted.store.lessons.put(SHAPE, H200, Lesson(peak_vram=40 * GIB, runs=1), 0.0)
    netted.add_auto(3)
    netted.look()

    netted.holds({1: 44, 2: 44, 3: 44})

    assert (netted.running(), netted.moving) == ([1, 2, 3], {})


def test_one_that_needs_more_than_any_before_leaves_in_time(netted):
    with netted.store.turn():
        netted.store.lessons.put(SHAPE, H200, Lesson(peak_vram=20 * GIB, runs=1), 0.0)
    netted.add_auto(3)
    netted.look()

    netted.holds({1: 20, 2: 60, 3: 20})
    netted.holds({1: 20, 2: 93, 3: 20})

    assert netted.moving == {2: "suspend"}, "it is the only one of unknown size"


def test_where_the_driver_cannot_suspend_the_first_is_alone_until_it_is_steady(netted):
    netted.crash()
    netted.driver = "driver 550 is too old: 570 or newer"
    netted.resume()
    netted.add_auto(3)
    netted.look()

    netted.holds({1: 9})
    assert netted.running() == [1]
    netted.holds({1: 9}, steady=(1,))

    assert netted.running() == [1, 2, 3]


def test_a_program_that_could_not_leave_is_remembered_and_the_next_first_one_is_alone_until_it_is_steady(netted):
    begin(netted, 3)
    netted.holds(dict.fromkeys(range(1, 4), 45.0))
    assert netted.moving == {3: "suspend"}
    netted.answer(3, "running", code="managed-memory", why="it uses managed memory")
    assert netted.moving == {}, "nor can the other two"
    for job in (1, 2, 3):
        netted.memory.pop(job)
        run_out_of_memory(netted, job) if job == 3 else netted.end(JobId(job), code=1)
    assert netted.lesson().obstacle == "managed-memory"


def test_a_card_is_watched_closely_as_long_as_it_may_run_short(netted):
    assert not netted.engine.guards_cards
    begin(netted, 3)
    assert netted.engine.guards_cards

    netted.holds(dict.fromkeys(range(1, 4), 9.0), steady=(1, 2, 3))
    assert not netted.engine.guards_cards
    netted.holds(dict.fromkeys(range(1, 4), 38.0), steady=(1, 2, 3))

    assert netted.engine.guards_cards


def test_a_job_of_which_nothing_is_known_joins_others_of_unknown_size_and_has_a_free_card_to_itself(netted):
    begin(netted, 2)

    (other,) = netted.add_auto(1, text="python other.py")
    assert netted.running() == [1, 2, other.id]
    assert netted.booked(other.id) == netted.booked(1)
    netted.holds({1: 45, 2: 45, 3: 45})
    assert netted.moving == {3: "suspend"}
    for job in (1, 2):
        netted.memory.pop(job)
        netted.end(JobId(job), code=1)
    netted.answer(3, "running", code="no-memory", why="too little")
    netted.memory.pop(3)
    netted.end(JobId(3), code=1)

    (first, _) = netted.add_auto(2, text="python third.py")
    netted.look()
    assert netted.running() == [first.id]
    assert netted.booked(first.id) == (1, 0)


def test_the_room_that_one_needs_that_has_left_is_kept_for_it(netted):
    begin(netted, 3)
    netted.holds({1: 20, 2: 20, 3: 93})
    assert netted.moving == {3: "suspend"}
    netted.answer(3, "suspended", held={"GPU-0": 93 * GIB})

    netted.holds({1: 20, 2: 20, 3: 93}, steady=(1, 2))
    netted.add(replace(a_wish("python other.py"), wishes=Wishes(vram=12 * GIB)))
    netted.look()

    assert "waits to resume on GPU 0: has 101G of free memory, and 116G is needed" in netted.sentence(3)
    assert netted.state(4) == "queued"


def test_where_the_driver_does_not_tell_whose_memory_is_whose_what_is_booked_counts(netted):
    begin(netted, 3)
    netted.engine.meters.held_by = lambda key: {}
    netted.holds({1: 40, 2: 40, 3: 40})
    assert netted.moving == {}

    netted.holds({1: 45, 2: 45, 3: 45})

    assert netted.moving == {3: "suspend"}
    netted.look()
    assert netted.moving == {3: "suspend"}, "what it has booked will be free"
