"""Suspending real programs on a real card: the same losses, how long it takes, what is refused before any harm."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpu.world import World, seconds_until
from report import Report, Table, Target, number

_TRAINING = str(Path(__file__).parent / "train_steps.py")
_STEPS = 1200
_TIMES = 10
_SIZES = (2, 20, 62)  # GiB
_SOON = 20.0  # seconds until an urgent job begins beside 20 GiB
_SEED = 21
_HOLD = """
import sys, time, torch
held = torch.ones(int(float(sys.argv[1]) * 2**28), device="cuda")
torch.cuda.synchronize()
print("there", flush=True)
while True:
    held[:1000].mul_(1.0); torch.cuda.synchronize(); time.sleep(0.01)
"""
_SHARES = """
import time, torch, torch.multiprocessing as mp
def child(queue):
    x = queue.get(); print("child has it", flush=True)
    while True: x[:10].mul_(1.0); torch.cuda.synchronize(); time.sleep(0.05)
if __name__ == "__main__":
    mp.set_start_method("spawn"); queue = mp.Queue()
    mp.Process(target=child, args=(queue,), daemon=True).start()
    x = torch.ones(2**20, device="cuda"); queue.put(x); print("there", flush=True)
    while True: x[:10].mul_(1.0); torch.cuda.synchronize(); time.sleep(0.05)
"""
_MANAGED = """
import time, cupy
a = cupy.ndarray((2**20,), dtype="f4", memptr=cupy.cuda.malloc_managed(2**22)); a.fill(1)
print("there", flush=True)
while True: a *= 1; cupy.cuda.runtime.deviceSynchronize(); time.sleep(0.05)
"""


def measure(scratch: Path) -> Report:
    world = World(scratch / "suspend")
    try:
        world.add("-n", "0", "--", "true")  # starts the daemon
        found = {
            "losses": _losses(world),
            "sizes": [_size(world, size) for size in _SIZES],
            "urgent": _urgent(world),
            "refused": {"cuda-ipc": _refused(world, _SHARES), "managed": _refused(world, _MANAGED)},
            "full_card": _full_card(world),
            "kills": [_kill(world, who, seconds) for who, seconds in _KILLS],
        }
    finally:
        world.stop()
    return _report(found)


def _losses(world: World) -> dict[str, Any]:
    """One run undisturbed, one suspended at random steps."""
    words = ["-t", "1h", "--", sys.executable, _TRAINING, str(_STEPS), "1"]
    alone, moved = world.folder / "alone.txt", world.folder / "moved.txt"
    world.dibs("wait", "-q", world.add(*words, str(alone)))
    job = world.add(*words, str(moved))
    chance = random.Random(_SEED)
    points = sorted(chance.sample(range(50, _STEPS - 50), _TIMES))
    reached, moves = [], []
    for point in points:
        seconds_until(lambda point=point: _steps(moved) >= point, f"step {point}", 120)
        begun = time.perf_counter()
        world.dibs("suspend", job)
        suspended = time.perf_counter()
        before = _steps(moved)
        time.sleep(0.3)
        assert _steps(moved) == before, "a suspended job took a step"
        reached.append(before)
        resumed_from = time.perf_counter()
        world.dibs("resume", job)
        moves.append((suspended - begun, time.perf_counter() - resumed_from))
    world.dibs("wait", "-q", job)
    same = alone.read_text() == moved.read_text()
    return {"at_steps": reached, "is_same": same, "suspend_resume_seconds": moves, "last": _last(moved)}


def _size(world: World, size: int) -> dict[str, Any]:
    job = _hold(world, size)
    time.sleep(2)  # its memory is seen
    begun = time.perf_counter()
    world.dibs("suspend", job)
    suspended = time.perf_counter() - begun
    left = world.gpu()["memory_used_bytes"]
    begun = time.perf_counter()
    world.dibs("resume", job)
    seconds_until(lambda: world.info(job)["state"] == "running", "it goes on", 120)
    resumed = time.perf_counter() - begun
    world.dibs("kill", job)
    world.dibs("wait", "-q", job, may_fail=True)
    return {"gib": size, "suspend_seconds": suspended, "resume_seconds": resumed, "left_bytes": left}


def _urgent(world: World) -> dict[str, Any]:
    job = _hold(world, 20, "--preemptible")
    time.sleep(2)
    told = world.dibs("why", job)
    begun = time.perf_counter()
    urgent = world.add("--urgent", "--", sys.executable, "-c", "import time; print('begun'); time.sleep(3)")
    waits = world.dibs("why", urgent)
    seconds_until(lambda: world.info(urgent)["state"] != "queued", "the urgent job begins", 120)
    begins = time.perf_counter() - begun
    why = world.dibs("why", job)
    world.dibs("wait", "-q", urgent)
    begun = time.perf_counter()
    seconds_until(lambda: world.info(job)["state"] == "running", "the other one goes on by itself", 120)
    back = time.perf_counter() - begun
    world.dibs("kill", job)
    world.dibs("wait", "-q", job, may_fail=True)
    return {"begins_seconds": begins, "back_seconds": back, "said": [told, waits, why]}


def _refused(world: World, program: str) -> dict[str, Any]:
    """A program that the driver would lose, or cannot suspend: it runs on, or stands still with its memory."""
    path = world.folder / "refused.py"
    path.write_text(program)
    job = world.add("-t", "1h", "--", sys.executable, "-u", str(path))
    seconds_until(lambda: "there" in world.log(job), "it has the card", 120)
    time.sleep(4)
    said = world.dibs("suspend", job, may_fail=True)
    info = world.info(job)
    suspension = info["suspension"]
    world.dibs("resume", job, may_fail=True)
    time.sleep(2)
    state = world.info(job)["state"]
    world.dibs("kill", job)
    world.dibs("wait", "-q", job, may_fail=True)
    return {"said": said, "suspension": suspension, "goes_on": state == "running"}


def _full_card(world: World) -> dict[str, Any]:
    """While it is suspended another program takes the memory: it waits, and is not lost."""
    job = _hold(world, 40)
    time.sleep(2)
    world.dibs("suspend", job)
    words = [sys.executable, "-u", "-c", _HOLD, "110"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout is not None and stranger.stdout.readline()
        time.sleep(2)
        said = world.dibs("resume", job)
        state = world.info(job)["state"]
        stranger.kill()
    seconds_until(lambda: world.info(job)["state"] == "running", "it goes on once there is room", 120)
    world.dibs("kill", job)
    world.dibs("wait", "-q", job, may_fail=True)
    return {"said": said, "waited": state == "suspended"}


# Who is killed with -9, and how many seconds after the suspension of 20 GiB has begun.
_KILLS = (("daemon", 0.05), ("daemon", 3.0), ("helper", 1.0), ("helper", 5.0), ("shim", 3.0))


def _kill(world: World, who: str, after: float) -> dict[str, Any]:
    job = _hold(world, 20)
    time.sleep(2)
    pid = world.info(job)["attempts_list"][-1]["pid"]
    daemon = _daemon(world)
    world.dibs("suspend", "--no-wait", job)
    time.sleep(after)
    victims = {"daemon": [daemon], "shim": [_parent(pid)], "helper": _children(daemon, "suspender")}[who]
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    if who == "daemon":
        world.dibs("ls")  # the next one starts
    seconds_until(lambda: world.info(job)["state"] == "suspended", f"it is suspended after the kill of {who}", 120)
    world.dibs("resume", job)
    seconds_until(lambda: world.info(job)["state"] == "running", "it goes on", 120)
    attempts = len(world.info(job)["attempts_list"])
    world.dibs("kill", job)
    world.dibs("kill", job)
    world.dibs("wait", "-q", job, may_fail=True)
    seconds_until(lambda: world.gpu()["memory_used_bytes"] < 2**28, "the card is empty", 60)
    return {"who": who, "after_seconds": after, "killed": len(victims), "attempts": attempts}


def _hold(world: World, gib: float, *words: str) -> str:
    job = world.add("-t", "1h", *words, "--", sys.executable, "-u", "-c", _HOLD, str(gib))
    seconds_until(lambda: "there" in world.log(job), f"a program holds {gib} GiB", 120)
    return job


def _steps(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def _last(path: Path) -> float:
    return float.fromhex(path.read_text().split()[-1])


def _daemon(world: World) -> int:
    return int((Path(world.environment["DIBS_STATE"]) / "queue" / "lock").read_text().split()[0])


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _children(pid: int, word: str) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(one) for one in children if word in Path(f"/proc/{one}/cmdline").read_text()]


def _report(found: dict[str, Any]) -> Report:
    losses, sizes, urgent = found["losses"], found["sizes"], found["urgent"]
    refused = found["refused"]
    rows = [[f"{one['gib']} GiB", number(one["suspend_seconds"]), number(one["resume_seconds"])] for one in sizes]
    kills = [[f"{one['who']}, after {one['after_seconds']:g} s", str(one["attempts"])] for one in found["kills"]]
    return Report(
        title="Suspending a program",
        how=(
            f"A training is suspended at {_TIMES} random steps (seed {_SEED}); programs that hold memory are"
            " moved; an urgent job finds the card taken by a preemptible one; and dibs is killed in the middle."
        ),
        tables=[
            Table(title="Seconds, with the command", columns=["held", "suspend", "resume"], rows=rows),
            Table(title="kill -9 while 20 GiB are moved", columns=["killed", "attempts of the job"], rows=kills),
        ],
        targets=[
            Target(
                text="the losses are those of an undisturbed run, to the last bit",
                measured=f"{_STEPS} of {_STEPS}" if losses["is_same"] else "different",
                is_met=losses["is_same"],
            ),
            Target(
                text=f"an urgent job beside 20 GiB begins within {_SOON:g} s, and the other goes on by itself",
                measured=f"{number(urgent['begins_seconds'])} s",
                is_met=urgent["begins_seconds"] <= _SOON,
            ),
            Target(
                text="what shares memory by CUDA IPC is not given to the driver, and goes on",
                measured=refused["cuda-ipc"]["said"].strip(),
                is_met=refused["cuda-ipc"]["goes_on"] and refused["cuda-ipc"]["suspension"]["rung"] != "cuda",
            ),
            Target(
                text="what has managed memory goes on",
                measured=refused["managed"]["said"].strip(),
                is_met=refused["managed"]["goes_on"] and refused["managed"]["suspension"]["rung"] != "cuda",
            ),
            Target(
                text="a card without room is waited for, and nothing is lost",
                measured=found["full_card"]["said"].strip(),
                is_met=found["full_card"]["waited"],
            ),
            Target(
                text="after a kill -9 of anything it is suspended, and goes on as one attempt",
                measured=f"{len(found['kills'])} of {len(_KILLS)}",
                is_met=all(one["attempts"] == 1 and one["killed"] for one in found["kills"]),
            ),
        ],
        data=found,
    )
