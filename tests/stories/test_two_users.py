"""Two people on one machine."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from leases.claims import a_claim, some_leases, took
from leases.processes import Process, start
from stories.outside import NOBODY, World, make_world, needs_root, wait_until

pytestmark = needs_root


@pytest.fixture
def common() -> Iterator[World]:
    """A world that all users may enter, with a lease folder as an admin would make it."""
    place = Path(tempfile.mkdtemp(prefix="dibs two users ", dir="/tmp"))
    place.chmod(0o755)
    world = make_world(place)
    world.folder.chmod(0o777)
    world.leases.mkdir()
    world.leases.chmod(0o1777)
    world.ledger.path.touch()
    world.ledger.path.chmod(0o666)
    (place / "state of nobody").mkdir()
    os.chown(place / "state of nobody", NOBODY, NOBODY)
    yield world
    world.clean_up()
    shutil.rmtree(place)


def _as_nobody(world: World) -> dict[str, object]:
    state = str(world.folder.parent / "state of nobody")
    return {"env": {"DIBS_STATE": state}, "user": NOBODY, "group": NOBODY, "extra_groups": []}


def test_two_users_on_the_same_gpus_never_overlap(common: World) -> None:
    mine = common.write("mine.txt", [common.ledger.job(f"mine{number}", 0.05) for number in range(12)])
    yours = common.write("yours.txt", [common.ledger.job(f"yours{number}", 0.05) for number in range(12)])

    first = common.start("run", "--gpus", "0,1", "-f", mine)
    second = common.start("run", "--gpus", "0,1", "-f", yours, **_as_nobody(common))
    ended = first.wait(), second.wait()

    assert [one.status for one in ended] == [0, 0], ended
    assert len(common.ledger.ended()) == 24
    assert common.ledger.overlaps() == []
    common.assert_nothing_is_left()


def test_who_comes_first_goes_first_whoever_it_is(common: World) -> None:
    holder = common.start("run", "--gpus", "0", "--", "bash", "-c", common.ledger.job("holder", 60))
    wait_until(common.holders)
    nobody = common.start(
        "run", "--gpus", "0", "--", "bash", "-c", common.ledger.job("nobody"), **_as_nobody(common)
    )
    wait_until(lambda: "waits" in nobody.stderr, show=lambda: nobody.stderr)
    root = common.start("run", "--gpus", "0", "--", "bash", "-c", common.ledger.job("root"))
    wait_until(lambda: "waits" in root.stderr, show=lambda: root.stderr)

    holder.signal(15)
    ended = [one.wait() for one in (holder, nobody, root)]

    assert [one.status for one in ended] == [143, 0, 0], ended
    assert common.ledger.ended() == ["nobody", "root"]


def test_the_sentence_names_the_other_user(common: World) -> None:
    nobody = common.start("run", "--gpus", "0", "--", "sleep", "60", **_as_nobody(common))
    wait_until(common.holders)

    ended = common.dibs("run", "--gpus", "0", "--no-wait", "--", "true")

    assert ended.status == 75
    assert "of nobody" in ended.stderr
    assert nobody.process.poll() is None


def test_a_killed_users_job_keeps_its_gpu_until_it_is_gone(common: World) -> None:
    nobody = common.start(
        "run", "--gpus", "0", "--", "bash", "-c", common.ledger.job("nobody", 1), **_as_nobody(common)
    )
    wait_until(lambda: common.ledger.started(), show=lambda: nobody.stderr)

    nobody.kill()
    ended = common.dibs("run", "--gpus", "0", "--", "bash", "-c", common.ledger.job("root"))

    assert ended.status == 0, ended
    assert common.ledger.ended() == ["nobody", "root"]
    assert common.ledger.overlaps() == []


def test_two_runs_of_one_user_started_together_never_overlap(common: World) -> None:
    names = [common.write(f"{n}.txt", [common.ledger.job(f"{n}.{k}", 0.03) for k in range(8)]) for n in range(3)]

    running = [common.start("run", "--gpus", "0,0,1", "-f", name) for name in names]
    ended = [one.wait() for one in running]

    assert [one.status for one in ended] == [0, 0, 0], ended
    assert len(common.ledger.ended()) == 24
    assert common.ledger.overlaps(slots=2) == []


def test_what_another_user_keeps_locked_is_named_with_a_way_out(common: World) -> None:
    took(some_leases(str(common.leases)), a_claim("index-0"), a_claim("index-1"), job="over long ago").close()
    names = ("dibs-claim-index-0-0-0", "dibs-guard-index-1")

    def lock(parent: Process) -> None:
        for name in names:
            fcntl.flock(os.open(common.leases / name, os.O_RDONLY), fcntl.LOCK_EX)
        parent.say("locked")
        parent.hear()

    hostile = start(lock, uid=NOBODY)
    assert hostile.hear() == "locked"

    shown = common.dibs("gpus")
    refused = common.dibs("run", "--gpus", "0,1", "--no-wait", "--", "true")

    claim = f"process {hostile.pid} of nobody, which keeps a lease file of root locked"
    guard = f"process {hostile.pid} of nobody keeps {common.leases}/dibs-guard-index-1 locked"
    way_out = "ask that user to end it, use another GPU, or set DIBS_LEASES to a folder of your own"
    for text in (shown.stderr, refused.stderr):
        assert claim in text and guard in text, text
    assert shown.stderr.count(way_out) == 2 and refused.stderr.count(way_out) == 1
    assert "over long ago" not in shown.stdout + shown.stderr + refused.stderr
    assert (shown.status, refused.status) == (0, 75)
    hostile.kill()
