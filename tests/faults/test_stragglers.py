"""A supervisor that dies after it has written how the command ended, and before what it left behind is gone."""

import os
import signal

from dibs.supervise import folder
from stories.outside import World, wait_until


def test_a_gpu_with_a_straggler_on_it_is_not_given_to_the_next_job(world: World) -> None:
    straggler = world.folder / "straggler"
    world.write(
        "list.txt",
        [
            f"[time=4s] (trap '' TERM; echo $BASHPID > {straggler.name}; sleep 60 & wait; wait; wait) & sleep 60",
            "echo next >> next.txt",
        ],
    )
    running = world.start("run", "--gpus", "0", "--grace", "30s", "-f", "list.txt")
    (attempt,) = wait_until(lambda: list(world.state.glob("runs/*/attempts/0/1.1")), show=lambda: running.stderr)
    record = wait_until(
        lambda: found if (found := folder.record_of(str(attempt))) and found["state"] == "ended" else None,
        show=lambda: folder.record_of(str(attempt)),
    )

    os.kill(record["shim"], signal.SIGKILL)
    wait_until(lambda: "its GPU is kept until its processes end" in running.stderr, show=lambda: running.stderr)
    early = (world.folder / "next.txt").exists()
    for pid in world.processes():
        if pid != running.pid:
            os.kill(pid, signal.SIGKILL)
    ended = running.wait()

    assert not early
    assert (world.folder / "next.txt").read_text() == "next\n"
    assert "job 1 ran out of time" in ended.stderr
