"""A supervisor is killed with kill -9, and its command goes on; or it cannot be found where it was."""

import os
import shutil
import signal
from typing import Any

from dibs.supervise import folder
from stories.outside import World, wait_until


def _shim_of(world: World, job: int) -> int:
    """Of a job that is seen running."""

    def shim() -> int | None:
        place = world.client().job(job).get("folder")
        record = folder.record_of(place) if place else None
        return record["shim"] if record is not None and "pid" in record else None

    return int(wait_until(shim, show=lambda: world.client().job(job)))


def _orphaned(world: World, job: int) -> dict[str, Any]:
    """The job as the API shows it, once the daemon has seen what is left of it."""
    return wait_until(lambda: (one := world.client().job(job)) and one["orphans"] and one)


def test_what_goes_on_is_named_and_the_time_limit_ends_it(world: World) -> None:
    world.run_daemon()
    job = world.add("-t", "8s", "--", "exec env -i PATH=$PATH sleep 61")
    os.kill(_shim_of(world, job), signal.SIGKILL)

    (pid,) = _orphaned(world, job)["orphans"]
    listed, why = world.dibs("ls").stdout, world.dibs("why", str(job)).stdout
    (ended,) = world.wait_for(job)

    told = f"its supervisor was killed, and {pid} (sleep) still runs; `dibs kill {job}` ends it"
    assert told in listed and told in why
    assert (ended["state"], ended["cause"], ended["orphans"]) == ("timed_out", "time limit", None)
    assert ended["message"] == "ended without its supervisor, which was killed"
    assert ended["seconds"] >= 8
    assert world.dibs("wait", str(job)).status == 124
    assert not world.holders()


def test_a_job_without_a_gpu_is_found_again_when_daemon_and_supervisor_were_killed_together(world: World) -> None:
    daemon = world.run_daemon()
    job = world.add("-n", "0", "--grace", "0.2s", "--", "trap '' TERM; sleep 62 & wait; wait; sleep 62")
    shim = _shim_of(world, job)
    daemon.kill()
    os.kill(shim, signal.SIGKILL)

    world.run_daemon()
    seen = _orphaned(world, job)
    world.dibs("kill", str(job))
    (ended,) = world.wait_for(job)

    assert (seen["state"], len(seen["orphans"])) == ("running", 2)
    assert (ended["state"], ended["attempts"]) == ("cancelled", 1)
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in seen["orphans"]))


def test_a_kill_reaches_a_supervisor_whose_control_files_were_deleted(world: World) -> None:
    world.run_daemon()
    job = world.add("--", "sleep 63")
    _shim_of(world, job)
    control = world.state / "queue" / "control"
    for fifo in control.iterdir():
        fifo.unlink()
    control.rmdir()

    world.dibs("kill", str(job))
    (ended,) = world.wait_for(job)
    (after,) = world.wait_for(world.add("--", "true"))

    assert (ended["state"], ended["signal"], after["state"]) == ("cancelled", signal.SIGTERM, "succeeded")


def test_a_supervisor_whose_attempt_lost_its_folder_is_adopted_and_reached(world: World) -> None:
    daemon = world.run_daemon()
    job = world.add("--", "sleep 64")
    _shim_of(world, job)
    shutil.rmtree(world.client().job(job)["folder"])
    daemon.kill()

    world.run_daemon()
    listed = world.client().job(job)
    world.dibs("kill", str(job))
    (ended,) = world.wait_for(job)

    assert (listed["state"], listed["orphans"]) == ("running", None)
    assert (ended["state"], ended["attempts"]) == ("lost", 1)  # its record was in the folder
