"""When attempts are looked at, and when not. The processes are real, shims and clock are not."""

import os
import resource
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from dibs.engine.watch import metering, sampling
from dibs.engine.watch.sampling import Sampler
from dibs.model.events import Trouble
from dibs.model.gpus import Gpu, GpuProcess, GpuReading, Reading
from dibs.supervise.folder import encode_record
from dibs.supervise.process_usage import ProcessUsage
from engine.world import World, a_request
from stories.outside import wait_until
from supervise.test_process_usage import Shims

G = 1024**3


class Looks:
    """Does what is to be done aside at once, or when it is told to."""

    def __init__(self) -> None:
        self.count = 0
        self.held: list | None = None

    def __call__(self, work, done) -> bool:
        self.count += 1
        if self.held is None:
            done(work())
        else:
            self.held.append((work, done))
        return True

    def go_on(self) -> None:
        held, self.held = self.held, None
        for work, done in held or ():
            done(work())


@pytest.fixture
def shims() -> Iterator[Shims]:
    one = Shims()
    yield one
    one.end()


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest.fixture
def world(make_world) -> World:
    return make_world(1, 1)


@pytest.fixture
def sampler(world: World, looks: Looks) -> Sampler:
    return Sampler(world.engine, looks, ticks=lambda: world.now)


def give_shim(world: World, shim: int, job: int = 1, attempt: int = 1) -> str:
    """Write into the attempt's folder what its shim would; return the folder."""
    folder = world.engine.state.open[(job, attempt)].attempt.folder
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/record", "wb") as file:
        file.write(encode_record({"shim": shim, "state": "running"}))
    return folder


def child_of(shim: int) -> int:
    return int(wait_until(lambda: next(iter(ProcessUsage().look([shim]).trees[shim].pids), 0)))


def read(world: World, *pids: int, memory: int = 9 * G, **more) -> Reading:
    """The first card with these processes."""
    processes = tuple(GpuProcess(pid=pid, user="me", memory=memory) for pid in pids)
    more = {"load": 50, "power": 360.0, "memory_used": memory, **more}
    card = GpuReading(gpu=Gpu(key="GPU-0", index=0, memory_total=140 * G), processes=processes, **more)
    return Reading(at=datetime.fromtimestamp(world.now, UTC), gpus=(card,))


def look(world: World, sampler: Sampler, *pids: int, seconds: float = 1.0, **more) -> None:
    world.now += seconds
    sampler.saw(read(world, *pids, **more))


def test_nothing_is_looked_at_while_nothing_runs(world, sampler, looks):
    for _ in range(5):
        look(world, sampler)

    assert looks.count == 0


def test_an_attempt_is_measured_as_long_as_it_runs(world, sampler, shims):
    world.submit(a_request())
    shim = shims("exec sleep 1000")
    give_shim(world, shim)
    pid = child_of(shim)
    assert world.engine.meters.usage_of((1, 1)) is None

    for _ in range(10):
        look(world, sampler, pid)

    usage = world.engine.meters.usage_of((1, 1))
    assert usage is not None and usage.is_steady
    assert (usage.peak_vram, usage.mean_load, usage.seconds) == (9 * G, 50.0, 10.0)
    assert usage.energy == pytest.approx(1.0, abs=0.01), "360 watts for ten seconds"


def _hang(answers: threading.Event) -> None:
    assert threading.current_thread() is not threading.main_thread(), "all that is measured waits for this folder"
    answers.wait(60)


def test_a_folder_that_does_not_answer_ends_the_measuring_of_no_other_job(world, sampler, shims, monkeypatch):
    jobs = world.submit(a_request("hangs"), a_request("goes on"))
    hanging, answers = world.engine.state.open[(1, 1)].attempt.folder, threading.Event()
    for job in jobs:
        give_shim(world, shims("exec sleep 1000"), job.id)
    pid = child_of(sampling.shim_of(world.engine.state.open[(2, 1)].attempt.folder))

    def hang(function):
        return lambda folder, *more: _hang(answers) if folder == hanging else function(folder, *more)

    for module, name in ((sampling, "shim_of"), (metering, "write_series")):
        monkeypatch.setattr(module, name, hang(getattr(module, name)))

    for _ in range(15):
        look(world, sampler, pid)

    answers.set()
    assert world.engine.meters.usage_of((1, 1)) is None
    assert world.engine.meters.usage_of((2, 1)).seconds == 15.0
    assert os.path.exists(world.engine.state.open[(2, 1)].attempt.folder + "/usage.json")


def test_a_folder_that_answers_no_more_is_measured_without_its_file(world, sampler, shims, monkeypatch):
    world.submit(a_request("one"))
    give_shim(world, shim := shims("exec sleep 1000"))
    answers = threading.Event()
    monkeypatch.setattr(metering, "write_series", lambda *_: _hang(answers))

    for _ in range(15):
        look(world, sampler, child_of(shim))

    answers.set()
    assert world.engine.meters.usage_of((1, 1)).seconds == 15.0


def test_what_was_measured_is_recorded_with_the_end(world, sampler, shims):
    (job,) = world.submit(a_request())
    folder = give_shim(world, shim := shims("exec sleep 1000"))
    for _ in range(3):
        look(world, sampler, child_of(shim))
    world.end(job)

    assert world.store.listing.row(job.id).usage.peak_vram == 9 * G
    assert os.path.exists(f"{folder}/usage.json")
    assert world.engine.meters.usage_of((1, 1)) is None


def test_a_store_that_is_full_at_the_end_loses_no_measurement(world, sampler, shims):
    (job,) = world.submit(a_request())
    give_shim(world, shim := shims("exec sleep 1000"))
    for _ in range(3):
        look(world, sampler, child_of(shim))
    world.store.is_full = True
    world.end(job)
    assert world.store.job(job.id).state == "running"

    world.store.is_full = False
    world.advance(10)

    assert world.store.listing.row(job.id).usage.peak_vram == 9 * G


def test_one_look_makes_no_file(world, sampler, shims):
    (job,) = world.submit(a_request())
    folder = give_shim(world, shim := shims("exec sleep 1000"))
    look(world, sampler, child_of(shim))

    world.end(job)

    assert not os.path.exists(f"{folder}/usage.json")
    assert world.store.listing.row(job.id).usage.peak_vram == 9 * G


def test_the_file_is_written_now_and_then_while_it_runs(world, sampler, shims):
    world.submit(a_request())
    folder = give_shim(world, shim := shims("exec sleep 1000"))
    pid = child_of(shim)
    for _ in range(5):
        look(world, sampler, pid)
    assert not os.path.exists(f"{folder}/usage.json")

    for _ in range(10):
        look(world, sampler, pid)

    assert os.path.exists(f"{folder}/usage.json")


def test_readings_that_come_in_quick_succession_are_one_look(world, sampler, looks, shims):
    """The cards are read whenever a job ends, and of short jobs many end in a second."""
    world.submit(a_request())
    give_shim(world, shims("exec sleep 1000"))

    for _ in range(100):
        look(world, sampler, seconds=0.01)

    assert looks.count == 2


def test_a_look_that_takes_long_is_waited_for(world, sampler, looks, shims):
    world.submit(a_request())
    give_shim(world, shim := shims("exec sleep 1000"))
    looks.held = []
    for _ in range(5):
        look(world, sampler, child_of(shim))
    assert looks.count == 1

    looks.go_on()
    look(world, sampler, child_of(shim))

    assert looks.count == 2
    assert world.engine.meters.usage_of((1, 1)).peak_vram == 9 * G


def test_an_attempt_that_ended_during_the_look_is_forgotten(world, sampler, looks, shims):
    (job,) = world.submit(a_request())
    give_shim(world, shim := shims("exec sleep 1000"))
    looks.held = []
    look(world, sampler, child_of(shim))
    world.end(job)

    looks.go_on()

    assert world.engine.meters.usage_of((1, 1)) is None


def test_what_began_after_the_cards_were_read_is_not_in_that_reading(world, sampler, looks, shims):
    reading = read(world)
    world.now += 1
    world.submit(a_request())
    give_shim(world, shims("exec sleep 1000"))

    sampler.saw(reading)

    assert looks.count == 0


def test_an_attempt_without_a_shim_yet_is_looked_at_later(world, sampler, shims):
    world.submit(a_request())
    look(world, sampler)
    assert world.engine.meters.usage_of((1, 1)) is None
    give_shim(world, shim := shims("exec sleep 1000"))

    look(world, sampler, child_of(shim))

    assert world.engine.meters.usage_of((1, 1)).peak_vram == 9 * G


def test_where_the_driver_names_no_process_the_card_is_compared_with_before(world, sampler, shims):
    look(world, sampler, memory=G)
    world.submit(a_request())
    give_shim(world, shim := shims("exec sleep 1000"))
    child_of(shim)

    look(world, sampler, memory=10 * G)

    assert world.engine.meters.usage_of((1, 1)).peak_vram == 9 * G


def test_a_sample_without_a_free_descriptor_is_skipped(world, sampler, shims):
    world.submit(a_request())
    give_shim(world, shim := shims("exec sleep 1000"))
    pid = child_of(shim)
    look(world, sampler, pid, memory=G)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))  # those that are open stay so
    look(world, sampler, pid, memory=2 * G)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert world.engine.meters.usage_of((1, 1)).peak_vram == G

    look(world, sampler, pid, memory=3 * G)

    assert world.engine.meters.usage_of((1, 1)).peak_vram == 3 * G


def test_a_job_that_went_astray_is_announced_even_if_the_store_fails(world, sampler, shims):
    world.submit(a_request(gpus=0))
    give_shim(world, shim := shims("exec sleep 1000"))
    world.store.is_full = True

    look(world, sampler, child_of(shim))
    world.store.is_full = False
    world.settle_down()

    assert ("trouble", "job 1 uses GPU 0, which it was not given: it has none") in world.told(Trouble)


def test_another_engine_goes_on_with_the_file(world, sampler, looks, shims):
    (job,) = world.submit(a_request())
    give_shim(world, shim := shims("exec sleep 1000"))
    for _ in range(3):
        look(world, sampler, child_of(shim))
    world.engine.meters.close_all()
    world.crash()
    world.resume()
    second = Sampler(world.engine, looks, ticks=lambda: world.now)

    for _ in range(3):
        look(world, second, child_of(shim), memory=G)

    usage = world.engine.meters.usage_of((job.id, 1))
    assert (usage.peak_vram, usage.seconds) == (9 * G, 5.0)
    assert len(world.engine.meters.series_of((job.id, 1)).points) == 6
