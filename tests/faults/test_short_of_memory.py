"""There is no memory to be had, at a job's start or in the daemon (faults.md, rows 22 and 41)."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dibs.errors import DibsError
from faults.refusing import FORKS, needs_strace, refusing
from stories.outside import DIBS, Running, World, wait_until

A_MEBIBYTE = 1024**2


@contextmanager
def _no_more_than(more: int, *pids: int) -> Iterator[None]:
    """Each may have this many bytes of address space more than it has now; children inherit the limit."""
    before = {pid: resource.prlimit(pid, resource.RLIMIT_AS) for pid in pids}
    for pid, (_, hard) in before.items():
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        resource.prlimit(pid, resource.RLIMIT_AS, (pages * resource.getpagesize() + more, hard))
    try:
        yield
    finally:
        for pid, limits in before.items():
            resource.prlimit(pid, resource.RLIMIT_AS, limits)


def _supervisors(world: World, daemon: Running) -> list[int]:
    """The process that makes supervisors, and the one that it has made for the first job."""
    world.wait_for(world.add("--", "true"))
    (zygote,) = _children(daemon.pid)
    return [zygote, *_children(zygote)]


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# -- a job's start -----------------------------------------------------------------------------------------


def test_a_command_for_which_there_is_no_memory_fails_says_why_and_frees_its_gpu(world: World) -> None:
    daemon = world.run_daemon(program=(DIBS,))
    commands = {"true": "true", "bash": "echo never; exit 0"}  # with a shell, and so simple that it needs none

    with _no_more_than(0, *_supervisors(world, daemon)):
        failed = {word: world.add("--", command) for word, command in commands.items()}
        over = dict(zip(failed, world.wait_for(*failed.values()), strict=True))
        held = world.holders()

    for word, one in over.items():
        said = f"cannot start {word}: Cannot allocate memory"
        assert (one["state"], one["cause"], one["attempts"], one["message"]) == ("failed", "start error", 1, said)
        assert world.dibs("log", "--err", str(failed[word])).stdout == f"dibs: {said}\n"
    assert held == []
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def test_a_job_that_is_too_large_for_its_supervisor_fails_alone_and_in_one_sentence(world: World) -> None:
    daemon = world.run_daemon(program=(DIBS,))
    large = [word for number in range(12) for word in ("--env", f"LARGE_{number}={'x' * 100_000}")]

    with _no_more_than(A_MEBIBYTE // 2, *_supervisors(world, daemon)):
        job = world.add(*large, "--", world.ledger.job("large"))
        small = world.add("--", world.ledger.job("small"))
        failed, succeeded = world.wait_for(job, small)

    assert (failed["state"], failed["cause"]) == ("failed", "start error")
    assert failed["message"] == "its supervisor cannot run it: Cannot allocate memory"
    assert succeeded["state"] == "succeeded"
    assert world.ledger.started() == ["small"]
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


@needs_strace
def test_a_job_for_whose_supervisor_there_was_no_memory_is_started_a_moment_later(world: World) -> None:
    daemon = world.run_daemon(program=(DIBS,))

    with refusing(_children(daemon.pid)[0], f"{FORKS}:error=ENOMEM"):
        job = world.add("--", world.ledger.job("only"))
        answered = world.dibs("ls")
    [over] = world.wait_for(job)

    assert answered.status == 0
    assert (over["state"], over["attempts"]) == ("succeeded", 1)
    assert world.ledger.started() == ["only"]
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


# -- the daemon --------------------------------------------------------------------------------------------


def test_a_daemon_that_may_have_no_more_memory_refuses_what_is_large_and_goes_on(world: World) -> None:
    daemon = world.run_daemon(pool="0,1", program=(DIBS,))
    wait = "touch up; until test -e go; do sleep 0.02; done"
    held = world.add("-n", "2", "--", f"{wait}; {world.ledger.job('held')}")
    wait_until(lambda: (world.folder / "up").exists())
    world.write("small.txt", [world.ledger.job(f"small-{number}") for number in range(4)])

    with _no_more_than(0, daemon.pid):
        refused = [_refusal(lambda: _add_much(world, "much")) for _ in range(3)]
        answered = [world.dibs(*words) for words in (("info", "1"), ("gpus",), ("daemon", "status"), ("why", "1"))]
        first = world.add("-f", "small.txt")
        world.write("go", "")
        over = world.wait_for(held, *range(first, first + 4))
    taken = _add_much(world, "much")

    assert {(error.code, error.message) for error in refused} == {
        ("short-of-memory", "the daemon is short of memory")
    }
    assert [one.status for one in answered] == [0, 0, 0, 0], answered
    assert {one["state"] for one in over} == {"succeeded"}
    assert taken["is_new"]
    assert sorted(world.ledger.started()) == ["held", *(f"small-{number}" for number in range(4))]
    assert world.ledger.overlaps() == []
    assert "the daemon is short of memory" in daemon.stderr
    assert "Traceback" not in daemon.stderr
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


def test_a_list_for_which_there_is_no_memory_is_refused_and_smaller_ones_are_not(world: World) -> None:
    daemon = world.run_daemon(program=(DIBS,))
    for key in ("one", "two", "three"):  # each alone is no more than the daemon has used before
        _add_much(world, key)
    small = world.add("--hold", "--", "true")

    with _no_more_than(0, daemon.pid):
        refused = [_refusal(lambda: list(world.client().jobs())) for _ in range(3)]
        answered = world.dibs("ls", "--limit", "1")

    assert {error.code for error in refused} == {"short-of-memory"}
    assert f"{small} " in answered.stdout
    assert len(list(world.client().jobs())) == 3 * 70 + 1
    assert "Traceback" not in daemon.stderr


def _refusal(act: Callable[[], object]) -> DibsError:
    with pytest.raises(DibsError) as caught:
        act()
    return caught.value


def _add_much(world: World, key: str) -> dict[str, Any]:
    """One request of seven megabytes, as large as they may be; `dibs add` itself would send several."""
    jobs = [{"command": f"echo {number} {'x' * 100_000}"} for number in range(70)]
    return world.client().add(jobs, key=key, defaults={"workdir": "/", "hold": True})
