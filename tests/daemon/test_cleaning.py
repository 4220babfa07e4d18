"""What is cleaned away is gone, and nothing else is: not the next attempt's folder, nor what a client names."""

import asyncio
import os
from pathlib import Path

import pytest

from dibs.daemon.cleaning import Cleaner
from dibs.engine.launch.browse import BrowsableFolders
from dibs.inputs.snapshot import mark_unused, take_snapshot
from dibs.model.jobs import OVER, JobId
from engine.queue_world import QueueWorld, a_wish
from engine.remote_world import RemoteWorld
from engine.world import a_pool


@pytest.fixture
def world(tmp_path):
    for name in ("queue", "leases"):
        (tmp_path / name).mkdir()
    one = QueueWorld(root=str(tmp_path / "queue"), leases_folder=str(tmp_path / "leases"), pool=a_pool(1))
    yield one
    one.close()


def a_cleaner(world):
    return Cleaner(
        engine=world.engine,
        queue=world.queue,
        results=BrowsableFolders(""),
        wake=lambda: None,
        keep_logs=None,
    )


@pytest.fixture
def cleaner(world):
    return a_cleaner(world)


def test_an_environment_that_is_needed_again_is_there(world, cleaner):
    world.add(a_wish("a"))
    world.end(1)
    world.queue.clean(world.now + 1)
    world.add(a_wish("b"))

    cleaner.forget_unused()

    key = world.store.job(JobId(2)).environment
    assert os.path.exists(world.engine.place.environment_path(key))


@pytest.mark.parametrize(
    "claimed", ["{root}/code/..", "{root}/code", "/etc", "{root}/code/../environments", 5, None]
)
def test_only_a_copy_of_ours_is_thrown_away(world, cleaner, claimed):
    snapshot = f"{world.root}/code/{'a' * 32}"
    os.makedirs(snapshot)
    path = claimed.format(root=world.root) if isinstance(claimed, str) else claimed
    world.add(a_wish("a"), code={"snapshot": path})
    world.end(1)
    world.add(a_wish("b"), code={"snapshot": snapshot})
    world.end(2)
    world.queue.clean(world.now + 1)

    cleaner.forget_unused()
    cleaner.empty_trash()

    assert not os.path.exists(snapshot)
    assert os.path.exists(f"{world.root}/store.db")
    assert os.path.exists(f"{world.root}/code")


def test_what_a_job_wrote_in_its_copy_of_the_code_is_kept_and_told(world, cleaner, caplog):
    project = Path(world.root, "project")
    project.mkdir()
    (project / "train.py").write_text("print(1)")
    copies = [take_snapshot(str(project), f"{world.root}/code", {}).copy for _ in range(2)]
    for number, copy in enumerate(copies, start=1):
        world.add(a_wish("a"), code={"snapshot": copy})
        world.end(number)
    Path(copies[0], "result.txt").write_text("hours of work")

    with caplog.at_level("INFO"):
        forgotten = asyncio.run(cleaner.forget_jobs(world.now + 1, OVER, None))

    assert (forgotten.jobs, forgotten.kept) == (2, [copies[0]])
    assert os.listdir(f"{world.root}/code") == [os.path.basename(copies[0])]
    assert os.listdir(copies[0]) == ["result.txt"]
    assert copies[0] in caplog.text


def test_a_daemon_goes_on_where_an_earlier_one_was_killed(world, cleaner):
    copy = f"{world.root}/code/{'a' * 32}"
    os.makedirs(copy)
    mark_unused(copy)

    cleaner.empty_trash()

    assert os.listdir(f"{world.root}/code") == []


def test_under_the_name_of_an_attempt_nothing_is_left_at_once(world, cleaner):
    (job,) = world.add(a_wish("a"))
    folder = world.engine.place.attempt_folder(job.id, 1)
    os.makedirs(folder)
    world.end(1)

    cleaner.move_to_trash(world.queue.clean(world.now + 1).jobs)
    assert not os.path.exists(folder)
    assert len(os.listdir(f"{world.root}/trash")) == 1
    cleaner.empty_trash()

    assert not os.path.exists(f"{world.root}/trash")


def test_what_other_systems_saw_of_our_files_goes_too(tmp_path):
    for name in ("queue", "leases"):
        (tmp_path / name).mkdir()
    shared = tmp_path / "shared"
    world = RemoteWorld(
        root=str(tmp_path / "queue"), leases_folder=str(tmp_path / "leases"), pool=a_pool(1), shared=str(shared)
    )
    (job,) = world.add(a_wish("a", on="slurm"))
    world.advance(1)
    folder = shared / "attempts" / "0" / f"{job.id}.1"
    folder.mkdir(parents=True)
    assert list((shared / "environments").iterdir())
    world.run_out()

    assert asyncio.run(a_cleaner(world).forget_jobs(world.now + 1, OVER, None)).jobs == 1
    world.settle_down()
    for work in world.beside:
        work()

    assert not folder.exists()
    assert not list((shared / "environments").iterdir())
    world.close()
