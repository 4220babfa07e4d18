"""The crash tests of suspensions and the contract of the driver (tests/), with the real driver.

`DRIVER=fake` tries this without a card.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_PATIENCE = 15.0  # seconds; a gigabyte is moved in two
_IS_REAL = os.environ.get("DRIVER", "real") == "real"

Found = dict[str, Any]


def crashes(scratch: Path) -> Iterator[Found]:
    """kill -9 of the helper, the daemon and the shim at each named point; each case has a queue of its own."""
    sys.path.insert(0, str(_ROOT / "tests"))
    from cuda.machine import FakeMachine, RealMachine
    from faults.suspension_campaign import SuspensionCampaign
    from stories.outside import make_world
    from stories.test_making_room import MovingWorld

    found: Found = {"cases": []}
    for place, (name, live_through) in enumerate(_cases()):
        folder = scratch / str(place)
        folder.mkdir(parents=True)
        world = make_world(folder)
        machine = RealMachine() if _IS_REAL else FakeMachine(folder / "driver")
        begun = time.perf_counter()
        try:
            campaign = SuspensionCampaign(MovingWorld(world, machine), patience=_PATIENCE)
            complaints = live_through(campaign)
        except Exception as error:
            complaints = [f"{type(error).__name__}: {error}"]
        finally:
            world.clean_up()
        seconds = time.perf_counter() - begun
        found["cases"].append({"case": name, "seconds": seconds, "complaints": complaints})
        yield found


def _cases() -> Iterator[tuple[str, Callable[[Any], list[str]]]]:
    from faults.suspension_campaign import POINTS_OF_DAEMONS, POINTS_OF_SHIMS, SuspensionCampaign

    yield "nobody", SuspensionCampaign.live_without_crash
    yield "each helper, after one step", SuspensionCampaign.hurt_helpers
    daemons = [
        (f"the daemon, {points[0]} and {points[1]}", partial(_daemon_at, points)) for points in POINTS_OF_DAEMONS
    ]
    yield from daemons[1:3]  # in between, the driver is asked
    for point in POINTS_OF_SHIMS:
        yield f"the shim, {point}", partial(_shim_at, point)
    yield "helpers and daemons, before the first step and before the answer", _at_the_edges
    yield from (daemons[0], *daemons[3:])


def _daemon_at(points: tuple[str, str], campaign: Any) -> list[str]:
    return list(campaign.kill_daemon_at(*points))


def _shim_at(point: str, campaign: Any) -> list[str]:
    return list(campaign.kill_shim_at(point))


def _at_the_edges(campaign: Any) -> list[str]:
    return list(campaign.kill_helpers_at_the_edges())


def contract(scratch: Path) -> Iterator[Found]:
    """What the fake driver promises is what the real one does."""
    words = [sys.executable, "-m", "pytest", "--noconftest", "-vv", "-p", "no:cacheprovider", "--tb=short"]
    suite = "tests/contracts/test_cuda_checkpoint.py"
    environment = {**os.environ, "DRIVER": "real" if _IS_REAL else "fake", "PYTHONUNBUFFERED": "1"}
    begun = time.perf_counter()
    process = subprocess.Popen(
        [*words, f"--basetemp={scratch}", suite],
        cwd=_ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    said: list[str] = []
    found: Found = {"passed": 0, "failed": 0, "is_over": False, "said": said}
    try:
        for line in process.stdout:
            if not line.startswith(("platform ", "rootdir: ")):  # paths of the machine
                said.append(line.rstrip())
            results = Counter(one.split()[1] for one in said if "::" in one and len(one.split()) > 1)
            found |= {"passed": results["PASSED"], "failed": results["FAILED"] + results["ERROR"]}
            yield found
        process.wait()
        yield found | {"is_over": True, "seconds": time.perf_counter() - begun}
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
