"""Sharing a machine: what is left to others, what counts as busy, ports, and CPUs near the cards."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stories.outside import World, wait_until


@pytest.fixture
def strangers() -> Iterator[Callable[..., int]]:
    """Starts processes without a lease, and ends them after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(**env: str) -> int:
        started.append(subprocess.Popen(["sleep", "1000"], env=env or None))
        return started[-1].pid

    yield start
    for process in started:
        process.kill()
        process.wait()


def cards(world: World, gpus: int = 2, **more: Any) -> dict[str, str]:
    """The environment of a machine with such cards; `more` is of the first."""
    listed = [{"index": index, "uuid": f"GPU-{index}", "memory_total": 80 << 30} for index in range(gpus)]
    listed[0] |= more
    path = world.folder.parent / "cards.json"
    path.with_suffix(".new").write_text(json.dumps(listed))
    path.with_suffix(".new").rename(path)
    return {"DIBS_PROBE": f"fake:{path}"}


# -- GPUs that are left to others ----------------------------------------------------------------------


def test_so_many_gpus_are_left_to_others(world: World) -> None:
    jobs = world.ledger.rounds(6, at_once=2)

    ended = world.dibs("run", "--gpus", "0,1,2", "--min-free", "1", "--json", input="\n".join(jobs))

    assert ended.status == 0, ended
    assert world.ledger.most_at_once() == 2
    assert "waits: 1 GPU is left to others (min_free)" in ended.stdout


def test_a_run_that_waits_because_cards_are_left_to_others_says_so(world: World) -> None:
    other = world.start("run", "--gpus", "1", "--", "sleep", "1000")
    wait_until(world.holders)

    waiting = world.start("run", "--gpus", "0,1", "--only", "0", "--min-free", "1", "--", "true")
    wait_until(lambda: "1 GPU is left to others (min_free)" in waiting.stderr, show=lambda: waiting.stderr)

    other.signal(signal.SIGTERM)
    assert waiting.wait().status == 0


def test_what_another_run_holds_is_not_what_is_left_to_it(world: World) -> None:
    other = world.start("run", "--gpus", "2", "--", "sleep", "1000")
    wait_until(world.holders)
    words = ["--gpus", "0,1,2", "--only", "0,1", "--min-free", "1", "--json"]
    running = world.start("run", *words, stdin=subprocess.PIPE)

    running.say(world.ledger.job("a", 1000) + "\n" + world.ledger.job("b", 1000) + "\n")
    wait_until(lambda: "1 GPU is left to others (min_free)" in running.stdout, show=lambda: running.stdout)

    wait_until(lambda: world.ledger.running() == ["a"], show=lambda: world.ledger.lines)
    other.signal(signal.SIGTERM)
    wait_until(lambda: len(world.ledger.running()) == 2, show=lambda: world.ledger.lines)
    running.signal(signal.SIGTERM)


def test_a_wish_that_leaves_too_few_is_refused(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0,1", "--min-free", "1", "-n", "2", "--", "true")

    assert ended.status == 2
    assert "it wants 2 GPUs, but 1 of 2 is left to others (min_free)" in ended.stderr


def test_the_queue_leaves_as_many_as_the_settings_say(world: World) -> None:
    world.run_daemon(pool="0,1", env={"DIBS_MIN_FREE": "1"})
    world.add("--", "sleep", "1000")
    second = world.add("--", "true")

    refused = world.dibs("add", "-n", "2", "--", "true")
    wait_until(
        lambda: "1 GPU is left to others (min_free)" in world.dibs("why", str(second)).stdout,
        show=lambda: world.dibs("why", str(second)),
    )

    assert refused.status == 2
    assert "1 of 2 is left to others (min_free)" in refused.stderr


# -- what is busy --------------------------------------------------------------------------------------


def test_a_small_process_can_be_overlooked(world: World, strangers: Callable[..., int]) -> None:
    small = {"pid": strangers(), "user": "ann", "memory": 150 << 20}
    environ = cards(world, gpus=1, processes=[small])

    respected = world.dibs("run", "--no-wait", "--", "true", env=environ)
    overlooked = world.dibs("run", "--no-wait", "--", "true", env=environ | {"DIBS_IGNORE_MEMORY": "200M"})
    shown = world.dibs("gpus", "--json", env=environ | {"DIBS_IGNORE_MEMORY": "200M"})

    assert respected.status == 75
    assert f"GPU 0 is busy (ann, pid {small['pid']}, 150M)" in respected.stderr
    assert overlooked.status == 0, overlooked
    assert json.loads(shown.stdout)[0]["state"] == "free"


def test_who_only_draws_can_be_respected(world: World, strangers: Callable[..., int]) -> None:
    screen = {"pid": strangers(), "user": "root", "memory": 1 << 30, "kind": "graphics"}
    environ = cards(world, gpus=1, processes=[screen])

    as_ever = world.dibs("run", "--no-wait", "--", "true", env=environ)
    respected = world.dibs("run", "--no-wait", "--", "true", env=environ | {"DIBS_RESPECT_GRAPHICS": "yes"})

    assert as_ever.status == 0, as_ever
    assert respected.status == 75
    assert "GPU 0 is busy (root" in respected.stderr


def test_a_process_that_outlives_its_job_keeps_the_gpu_until_it_is_gone(
    world: World, strangers: Callable[..., int]
) -> None:
    """It has the job's variables, as whatever escaped from the job would have."""
    environ = cards(world, gpus=1)
    world.run_daemon(pool="0", env=environ)
    world.environ |= environ
    env_file = world.folder.parent / "env"
    first = world.add("--", "bash", "-c", f"env -0 > env.new; mv env.new {str(env_file)!r}; sleep 1000")
    wait_until(env_file.exists)
    variables = dict(pair.split("=", 1) for pair in os.fsdecode(env_file.read_bytes()).split("\0") if "=" in pair)
    escaped = strangers(**variables)
    cards(world, gpus=1, processes=[{"pid": escaped, "user": "ann", "memory": 1 << 30}])
    second = world.add("--", "true")

    world.dibs("kill", str(first))
    world.wait_for(first)
    left = f"GPU 0 is busy (ann, pid {escaped}, 1G, left by job {first})"
    wait_until(lambda: left in world.dibs("why", str(second)).stdout, show=lambda: world.dibs("why", str(second)))
    (shown,) = json.loads(world.dibs("gpus", "--json").stdout)
    os.kill(escaped, signal.SIGKILL)
    (ended,) = world.wait_for(second)

    assert (shown["state"], shown["foreign"][0]["pid"]) == ("busy", escaped)
    assert ended["state"] == "succeeded"


def test_what_a_job_of_another_run_left_keeps_the_gpu_too(world: World, strangers: Callable[..., int]) -> None:
    environ = cards(world, gpus=1)
    env_file = world.folder.parent / "env"
    line = f"env -0 > {str(env_file)!r}"
    assert world.dibs("run", "--", "bash", "-c", line, env=environ).status == 0
    variables = dict(pair.split("=", 1) for pair in os.fsdecode(env_file.read_bytes()).split("\0") if "=" in pair)
    escaped = strangers(**variables)
    environ = cards(world, gpus=1, processes=[{"pid": escaped, "user": "ann", "memory": 1 << 30}])

    ended = world.dibs("run", "--no-wait", "--", "true", env=environ)

    assert ended.status == 75
    assert f"GPU 0 is busy (ann, pid {escaped}, 1G)" in ended.stderr


def test_the_order_of_the_gpus_can_be_set(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0,1,2", input=world.ledger.job("x"), env={"DIBS_GPU_ORDER": "last"})

    assert ended.status == 0, ended
    assert world.ledger.gpus() == {"x": "2"}


# -- several GPUs --------------------------------------------------------------------------------------


def test_a_job_for_two_gpus_gets_two_that_are_linked(world: World) -> None:
    path = world.folder.parent / "cards.json"
    listed = [{"index": index, "uuid": f"GPU-{index}"} for index in range(4)]
    links = [[f"GPU-{one}", f"GPU-{other}", 50 if {one, other} in ({0, 2}, {1, 3}) else 10]
             for one in range(4) for other in range(one)]  # fmt: skip
    path.write_text(json.dumps({"gpus": listed, "links": links}))

    jobs = world.ledger.rounds(2, at_once=2)
    ended = world.dibs("run", "-n", "2", input="\n".join(jobs), env={"DIBS_PROBE": f"fake:{path}"})

    assert ended.status == 0, ended
    assert world.ledger.gpus() == {"0": "0,2", "1": "1,3"}


def test_jobs_started_at_once_meet_at_different_ports(world: World) -> None:
    line = "echo $MASTER_ADDR $MASTER_PORT; sleep 0.3"

    ended = world.dibs("run", "--gpus", "0,1,2,3,4,5,6,7", "-n", "2", "--raw", input=f"{line}\n" * 4)

    found = [text.split() for text in ended.stdout.splitlines()]
    assert {address for address, _ in found} == {"127.0.0.1"}
    assert len({port for _, port in found}) == 4


def test_an_address_that_was_set_stays(world: World) -> None:
    environ = {"MASTER_ADDR": "10.1.2.3"}

    ended = world.dibs("run", "--gpus", "0,1", "-n", "2", "--raw", input="echo $MASTER_ADDR", env=environ)
    alone = world.dibs("run", "--gpus", "0", "--raw", input="echo ${MASTER_ADDR-unset} ${MASTER_PORT-unset}")

    assert ended.stdout == "10.1.2.3\n"
    assert alone.stdout == "unset unset\n"


# -- CPUs near the cards -------------------------------------------------------------------------------


def near(world: World) -> tuple[dict[str, str], str]:
    """A machine whose only card is near one CPU, and that CPU."""
    cpu = min(os.sched_getaffinity(0))
    return cards(world, gpus=1, cpus=[cpu]), str(cpu)


AFFINITY = "grep Cpus_allowed_list /proc/self/status | cut -f2"


@pytest.mark.parametrize("words, line", [(["--bind"], AFFINITY), ([], f"[bind=yes] {AFFINITY}")])
def test_a_bound_job_runs_on_the_cpus_near_its_card(world: World, words: list[str], line: str) -> None:
    environ, cpu = near(world)

    bound = world.dibs("run", "--raw", *words, input=line, env=environ)
    free = world.dibs("run", "--raw", input="nproc", env=environ)

    assert bound.stdout == f"{cpu}\n"
    assert free.stdout == f"{len(os.sched_getaffinity(0))}\n"


def test_the_queue_binds_too_and_shows_it(world: World) -> None:
    environ, cpu = near(world)
    world.run_daemon(pool="0", env=environ)

    job = world.add("--bind", "--", "bash", "-c", AFFINITY)
    (ended,) = world.wait_for(job)
    shown = world.dibs("info", str(job)).stdout

    assert ended["bind"] is True
    assert Path(ended["stdout"]).read_text() == f"{cpu}\n"
    assert "to the CPUs near its GPUs" in shown


def test_where_nobody_knows_the_cpus_it_is_said_once_and_nothing_is_bound(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", "--bind", "--raw", input="nproc\nnproc\n")

    assert ended.status == 0
    assert ended.stdout == f"{len(os.sched_getaffinity(0))}\n" * 2
    assert ended.stderr.count("is not bound: it is not known which CPUs are near its GPUs") == 1
