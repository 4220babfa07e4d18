"""File systems that do not answer, with folders of attempts of other systems. Nothing waits for them."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs.backends.protocol import AttemptRef, Submission
from dibs.daemon import attempts, cleaning
from dibs.daemon.attempts import AttemptRecords
from dibs.daemon.cleaning import Cleaner
from dibs.daemon.logs import output
from dibs.daemon.logs.output import was_removed
from dibs.daemon.routes.logs import line_routes, log_routes
from dibs.engine.launch.browse import BrowsableFolders
from dibs.engine.remote.round import RoundPlan, run_round
from dibs.engine.remote.state import wanted_by
from dibs.model.jobs import OVER, Attempt, Job, JobId
from dibs.supervise.folder import encode_record
from engine.queue_world import a_wish
from engine.remote_world import Cluster, RemoteWorld
from engine.world import a_pool


def an_attempt(folder: Path, number: int = 1, job: int = 1, backend: str = "slurm") -> Attempt:
    folder.mkdir(parents=True, exist_ok=True)
    return Attempt(
        job=JobId(job),
        number=number,
        claims=(),
        boot_id="",
        opened_at=0.0,
        folder=str(folder),
        backend=backend,
    )


class SilentDisk:
    """Opening a file below a folder waits until its disk answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.below = "/nowhere"
        self.answers = threading.Event()
        real_open = os.open

        def silent_open(path: Any, *arguments: Any, **more: Any) -> int:
            if str(path).startswith(f"{self.below}/"):
                assert self.answers.wait(60)
            return real_open(path, *arguments, **more)

        monkeypatch.setattr(os, "open", silent_open)


def readers() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "dibs-record-reader"]


def test_records_that_hang_are_left_out_and_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attempts, "_READ_WITHIN", 0.2)
    disk = SilentDisk(monkeypatch)
    here, hangs, well = (an_attempt(tmp_path / str(n), n, backend="slurm" if n > 1 else "") for n in (1, 2, 3))
    for one, cpu in ((here, 2.5), (hangs, 4.5), (well, 2.5)):
        identity = {"job": 1, "attempt": one.number}
        Path(one.folder, "record").write_bytes(encode_record({**identity, "v": 1, "state": "ended", "cpu": cpu}))
    disk.below = hangs.folder

    async def ask() -> tuple[list[Any], int, Any]:
        reader = AttemptRecords()
        together = await asyncio.gather(*(reader.of([here, hangs, well]) for _ in range(5)))
        again = await reader.of([here, hangs, well])
        hanging = len(readers())
        disk.answers.set()
        for thread in readers():
            await asyncio.to_thread(thread.join, 60)
        return [*together, again], hanging, await reader.of([here, hangs, well])

    found, hanging, at_last = asyncio.run(ask())

    for one in found:
        assert (one[1]["cpu"], one[3]["cpu"]) == (2.5, 2.5)
        assert 2 not in one
    assert hanging == 1
    assert at_last[2]["cpu"] == 4.5


def test_however_many_jobs_hang_only_some_threads_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attempts, "_READ_WITHIN", 0.05)
    monkeypatch.setattr(attempts, "_MOST_HANGING", 3)
    disk = SilentDisk(monkeypatch)
    disk.below = str(tmp_path)
    all_of_them = [an_attempt(tmp_path / str(job), job=job) for job in range(1, 7)]

    async def ask() -> list[Any]:
        reader = AttemptRecords()
        return [await reader.of([one]) for one in all_of_them]

    found = asyncio.run(ask())

    assert found == [{}] * 6
    hanging = readers()
    assert len(hanging) == 3
    disk.answers.set()
    for thread in hanging:
        thread.join(60)


# -- in a queue --------------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RemoteWorld]:
    for name in ("queue", "leases"):
        (tmp_path / name).mkdir()
    one = RemoteWorld(
        root=str(tmp_path / "queue"),
        leases_folder=str(tmp_path / "leases"),
        pool=a_pool(1),
        shared=str(tmp_path / "one" / "q1"),
    )
    yield one
    one.close()


def cleaner_of(world: RemoteWorld, keep_logs: int | None = None) -> Cleaner:
    return Cleaner(
        engine=world.engine,
        queue=world.queue,
        results=BrowsableFolders(""),
        wake=lambda: None,
        keep_logs=keep_logs,
    )


def run_one(world: RemoteWorld, **wish: Any) -> tuple[JobId, Path]:
    """A job over there from its start to its end, and its folder."""
    (job,) = world.add(a_wish("a", on="slurm", **wish))
    world.run_out()
    folder = Path(world.store.listing.attempts(job.id)[-1].attempt.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stdout").write_bytes(os.urandom(100_000))
    return job.id, folder


def clean(world: RemoteWorld) -> int:
    removed = asyncio.run(cleaner_of(world).forget_jobs(world.now + 1, OVER, None)).jobs
    world.settle_down()
    return removed


def go_to(world: RemoteWorld, shared: Path) -> None:
    world.shared = str(shared)
    world.crash()
    world.resume()


def test_what_is_recorded_is_removed_though_its_root_is_in_no_setting(world: RemoteWorld, tmp_path: Path):
    _, old = run_one(world)
    neighbour = tmp_path / "one" / "q2" / "attempts" / "0" / "1.1"
    neighbour.mkdir(parents=True)
    go_to(world, tmp_path / "two" / "q1")
    _, new = run_one(world)
    assert (old.parents[2], new.parents[2]) == (tmp_path / "one/q1", tmp_path / "two/q1")

    assert clean(world) == 2

    assert not old.exists() and not new.exists()
    assert neighbour.exists()


def test_one_that_came_back_to_this_machine_leaves_nothing_there_either(world: RemoteWorld):
    job, folder = run_one(world)
    world.queue.pause()
    world.do("retry", job)
    world.queue.edit(job, a_wish("a"))
    world.queue.unpause()
    world.settle_down()
    world.run_out()
    assert [one.attempt.backend for one in world.store.listing.attempts(job)] == ["slurm", ""]

    clean(world)

    assert not folder.exists()


class Dead:
    """A file system that stops answering: a call that asks how full it is waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self._root, self._ask, self.is_back = str(root), os.statvfs, threading.Event()
        monkeypatch.setattr(os, "statvfs", self._statvfs)
        monkeypatch.setattr(cleaning, "_ANSWER_WITHIN", 0.2)

    def _statvfs(self, path: str) -> Any:
        if path.startswith(self._root):
            self.is_back.wait(60)
        return self._ask(path)


def test_a_root_that_does_not_answer_is_left_alone_by_cleaning(
    world: RemoteWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _, old = run_one(world)
    go_to(world, tmp_path / "two" / "q1")
    _, new = run_one(world)
    dead = Dead(monkeypatch, tmp_path / "one")

    removed = clean(world)
    dead.is_back.set()

    assert removed == 2
    assert old.exists() and not new.exists()


def test_a_root_that_does_not_answer_is_left_alone_by_pruning(
    world: RemoteWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _, away = run_one(world)
    (job,) = world.add(a_wish("b"))
    folder = Path(world.engine.place.attempt_folder(job.id, 1))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stdout").write_bytes(os.urandom(100_000))
    world.end(job.id)
    dead = Dead(monkeypatch, tmp_path / "one")
    cleaner = cleaner_of(world, keep_logs=50_000)

    first = asyncio.run(cleaner.remove_old_output())
    dead.is_back.set()
    second = asyncio.run(cleaner.remove_old_output())

    assert (first, second) == (1, 1)
    assert not (folder / "stdout").exists() and not (away / "stdout").exists()
    assert was_removed(str(folder)) and was_removed(str(away))


def _ask_log(routes: Any, path: str) -> Callable[..., Any]:
    return next(one.endpoint for one in routes.routes if one.path == path)


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/jobs/{number}/log", {}),
        ("/v1/jobs/{number}/log/raw", {}),
        ("/v1/jobs/{number}/log/lines", {}),
        ("/v1/jobs/{number}/log/search", {"q": "x", "first": 0, "limit": 1}),
    ],
)
def test_whether_output_was_removed_is_looked_up_beside_the_loop(
    world: RemoteWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, asked: dict[str, Any]
):
    """The file of `-o` answers, the attempt's folder does not."""
    (tmp_path / "out.txt").touch()
    job, _ = run_one(world, output=str(tmp_path / "out.txt"))
    looked: list[threading.Thread] = []
    monkeypatch.setattr(output, "was_removed", lambda folder: looked.append(threading.current_thread()))
    make = line_routes if "lines" in path or "search" in path else log_routes
    routes = make(world.store.listing, BrowsableFolders(""))

    asyncio.run(_ask_log(routes, path)(number=job, **asked))

    assert looked and threading.main_thread() not in looked


def test_the_folder_of_an_output_file_is_made_when_it_is_handed_over_and_not_on_the_loop(tmp_path: Path):
    where = tmp_path / "far" / "away"
    job = Job(id=JobId(1), request=a_wish("a", on="slurm", output=str(where / "out.txt")))
    attempt = an_attempt(tmp_path / "1.1")
    BrowsableFolders(str(tmp_path / "results")).begin(job, attempt)
    on_the_loop = where.exists()

    spec = {"stdout": str(where / "out.txt"), "stderr": str(where / "out.txt"), "environment": ""}
    wanted = Submission(ref=AttemptRef("q1-1", 1, attempt.folder), spec=spec, wanted=wanted_by(job.request))
    found = run_round(Cluster(), RoundPlan(submit=[wanted]))

    assert not on_the_loop
    assert where.is_dir() and found.submitted.accepted == {wanted.ref}
