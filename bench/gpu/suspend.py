"""Suspending real programs on a real card, in parts that can be run one by one (`on_gpu.py --part`).

Each part yields what it has found so far, under its own name: whoever runs it writes that down at once.
"""

import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpu import suspend_crashes
from gpu.world import World, seconds_until
from report import Report, Table, Target, number

_HERE = Path(__file__).parent
_TRAINING = str(_HERE / "train_steps.py")
_PROGRAM = str(_HERE.parents[1] / "tests" / "cuda" / "real_program.py")
_STEPS = 600
_TIMES = 10
_SEED = 21
_SOON = 20.0  # seconds until an urgent job begins beside 20 GiB
_SLICED = 45  # GiB of each of two jobs that take turns
_TOO_MUCH = 100  # GiB of each of two jobs that cannot
_HOLD = """
import sys, time, torch
held = torch.ones(int(float(sys.argv[1]) * 2**28), device="cuda")
torch.cuda.synchronize()
print("there", flush=True)
while True:
    held[:1000].mul_(1.0); torch.cuda.synchronize(); time.sleep(0.01)
"""
# Holds so many GiB, and is over when it has run for so many seconds.
_TURN = """
import sys, time, torch
held, steps, ran = torch.ones(int(float(sys.argv[1]) * 2**28), device="cuda"), 0, 0.0
x = torch.zeros(1, device="cuda")
while ran < float(sys.argv[2]):
    begun = time.monotonic(); x += 1; steps += 1; torch.cuda.synchronize(); time.sleep(0.01)
    ran += min(0.1, time.monotonic() - begun)
assert x.item() == steps and float(held.sum(dtype=torch.float64)) == held.numel(), "something was lost"
"""
_SHARES = """
import time, torch, torch.multiprocessing as mp
def child(queue):
    x = queue.get(); print("there", flush=True)
    while True: x[:10].mul_(1.0); torch.cuda.synchronize(); time.sleep(0.05)
if __name__ == "__main__":
    mp.set_start_method("spawn"); queue = mp.Queue()
    mp.Process(target=child, args=(queue,), daemon=True).start()
    x = torch.ones(2**20, device="cuda"); queue.put(x)
    while True: x[:10].mul_(1.0); torch.cuda.synchronize(); time.sleep(0.05)
"""

Found = dict[str, Any]


def losses(scratch: Path) -> Iterator[Found]:
    """One run undisturbed, one suspended at random steps, at the same time in the halves of the card."""
    with World(scratch) as world:
        alone, moved = world.folder / "alone.txt", world.folder / "moved.txt"
        words = ["--share", "1/2", "-t", "1h", "--", sys.executable, _TRAINING, str(_STEPS), "1"]
        undisturbed, job = world.add(*words, str(alone)), world.add(*words, str(moved))
        chance = random.Random(_SEED)
        found: Found = {"at_steps": [], "suspend_resume_seconds": [], "steps": _STEPS, "is_same": None}
        for point in sorted(chance.sample(range(20, _STEPS - 20), _TIMES)):
            seconds_until(lambda point=point: _steps(moved) >= point, f"step {point}", 120)
            suspended = _seconds(lambda: world.dibs("suspend", job))
            before = _steps(moved)
            time.sleep(0.3)
            assert _steps(moved) == before, "a suspended job took a step"
            found["at_steps"].append(before)
            found["suspend_resume_seconds"].append((suspended, _seconds(lambda: world.dibs("resume", job))))
            yield found
        world.dibs("wait", "-q", job, undisturbed)
        both = alone.read_text().splitlines(), moved.read_text().splitlines()
        found |= {"is_same": both[0] == both[1] and len(both[0]) == _STEPS, "last": both[1][-1]}
        yield found


def urgent(scratch: Path) -> Iterator[Found]:
    """An urgent job beside 20 GiB, and how long it takes to move 2, 20 and 62."""
    with World(scratch) as world:
        held = {20: _hold(world, 20, "--preemptible", "--share", "1/4")}
        time.sleep(2)  # its memory is seen
        begun = time.perf_counter()
        words = ["--", sys.executable, "-c", "import time; print('begun'); time.sleep(3)"]
        job = world.add("--urgent", *words)
        said = [world.dibs("why", job)]
        seconds_until(lambda: world.info(job)["state"] not in ("queued", "starting"), "the urgent job begins", 90)
        found: Found = {"begins_seconds": time.perf_counter() - begun, "said": said, "sizes": []}
        said.append(world.dibs("why", held[20]))
        yield found
        world.dibs("wait", "-q", job)
        found["back_seconds"] = seconds_until(
            lambda: world.info(held[20])["state"] == "running", "the other one goes on by itself", 60
        )
        yield found
        waiting = {size: _begin_to_hold(world, size, "--share", "1/4") for size in (2, 62)}
        for size in (20, 2, 62):
            if size in waiting:
                held[size] = _wait_until_held(world, waiting[size], size)
            time.sleep(1)
            found["sizes"].append(_size(world, held[size], size))
            yield found


def _size(world: World, job: str, size: int) -> Found:
    suspended = _seconds(lambda: world.dibs("suspend", job))
    begun = time.perf_counter()
    world.dibs("resume", job)
    seconds_until(lambda: world.info(job)["state"] == "running", "it goes on", 60)
    resumed = time.perf_counter() - begun
    return {
        "gib": size,
        "suspend_seconds": suspended,
        "resume_seconds": resumed,
        "suspension": world.info(job)["suspension"],
    }


def refused(scratch: Path) -> Iterator[Found]:
    """What the driver would lose, or cannot suspend, is refused before any harm."""
    found: Found = {}
    with World(scratch) as world:
        ledger = world.folder / "full"
        job = world.add("-t", "1h", "--", sys.executable, _PROGRAM, str(ledger), "--bytes", str(2 * 2**30))
        seconds_until(lambda: _steps(ledger) > 0, "it holds 2 GiB", 30)
        time.sleep(1)
        world.dibs("suspend", job)
        with world.stranger(_PROGRAM, "--bytes", str(-(2**30))):  # all but so many of those that are free
            time.sleep(2)
            said = world.said("resume", job)
            state, before = world.info(job)["state"], _steps(ledger)
        seconds_until(lambda: world.info(job)["state"] == "running", "it goes on once there is room", 60)
        seconds_until(lambda: _steps(ledger) > before, "it takes steps", 10)
        found["full_card"] = {"said": said, "waited": state == "suspended", "goes_on": True}
        yield found
        world.end(job)
        ledger = world.folder / "managed"
        words = [sys.executable, _PROGRAM, str(ledger), "--managed", "--bytes", str(2**26)]
        found["managed"] = _refusal(world, words, lambda job: _steps(ledger) > 0)
        yield found
        path = world.folder / "shares.py"
        path.write_text(_SHARES)
        words = [sys.executable, "-u", str(path)]
        found["cuda_ipc"] = _refusal(world, words, lambda job: "there" in world.log(job))
        yield found


def _refusal(world: World, words: list[str], is_there: Callable[[str], bool]) -> Found:
    """It runs on, or stands still with its memory on its card, and goes on."""
    job = world.add("-t", "1h", "--", *words)
    seconds_until(lambda: is_there(job), "it has the card", 60)
    time.sleep(2)
    before = world.gpu()["memory_used_bytes"]
    said = world.said("suspend", job)
    stays = world.gpu()["memory_used_bytes"] >= before
    suspension = world.info(job)["suspension"]
    world.dibs("resume", job, may_fail=True)
    time.sleep(2)
    goes_on = world.info(job)["state"] == "running"
    world.end(job)
    return {"said": said, "suspension": suspension, "stays": stays, "goes_on": goes_on}


def slices(scratch: Path) -> Iterator[Found]:
    """Two jobs that want the whole card take turns; the first has work for more than one turn."""
    # A turn lasts at least ten times as long as the moving of the memory: too long for a card that is lent.
    with World(scratch, plant="from dibs.policy import slices; slices._AT_LEAST = 1", DIBS_SLICE="40s") as world:
        begun = time.perf_counter()
        jobs = [
            world.add("-P", project, "-t", "1h", "--", sys.executable, "-u", "-c", _TURN, str(_SLICED), seconds)
            for project, seconds in (("a", "45"), ("b", "8"))
        ]
        found: Found = {"gib": _SLICED, "said": [], "moments": {}}

        def note(what: str) -> Found:
            found["moments"][what] = time.perf_counter() - begun
            return found

        seconds_until(
            lambda: world.gpu()["memory_used_bytes"] >= _SLICED * 2**30, "the first holds its memory", 60
        )
        time.sleep(2)
        found["said"].append(world.dibs("why", jobs[1]))
        yield note("the first holds its memory")
        seconds_until(lambda: world.info(jobs[0])["state"] == "suspended", "it is suspended", 120)
        found["said"].append(world.dibs("why", jobs[0]))
        yield note("the first is suspended")
        for job, name in ((jobs[1], "second"), (jobs[0], "first")):
            world.dibs("wait", "-q", job, may_fail=True)
            found[name] = world.info(job)["state"]
            yield note(f"the {name} is over")


def too_large(scratch: Path) -> Iterator[Found]:
    """Two jobs of which the machine's memory cannot take one do not take turns, and it is said why."""
    with World(scratch, DIBS_SLICE="40s") as world:
        first = _hold(world, _TOO_MUCH, "-P", "a")
        second = world.add("-P", "b", "--", sys.executable, "-c", _HOLD, str(_TOO_MUCH))
        time.sleep(3)
        found: Found = {
            "gib": _TOO_MUCH,
            "why": world.dibs("why", second),
            "suspend": world.said("suspend", first),
        }
        found["states"] = [world.info(job)["state"] for job in (first, second)]
        yield found


def _hold(world: World, gib: float, *words: str) -> str:
    return _wait_until_held(world, _begin_to_hold(world, gib, *words), gib)


def _begin_to_hold(world: World, gib: float, *words: str) -> str:
    return world.add("-t", "1h", *words, "--", sys.executable, "-u", "-c", _HOLD, str(gib))


def _wait_until_held(world: World, job: str, gib: float) -> str:
    seconds_until(lambda: "there" in world.log(job), f"a program holds {gib} GiB", 90)
    return job


def _seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def _steps(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


# In the order of their worth, with the seconds that each may take.
PARTS: Mapping[str, tuple[Callable[[Path], Iterator[Found]], int]] = {
    "urgent": (urgent, 135),
    "crashes": (suspend_crashes.crashes, 90),
    "contract": (suspend_crashes.contract, 60),
    "losses": (losses, 135),
    "refused": (refused, 100),
    "slices": (slices, 138),
    "too_large": (too_large, 60),
}


def report(found: Mapping[str, Any]) -> Report:
    """Out of what the parts have found; one that was not run, or not to its end, says so."""
    urgent, losses, refused = (found.get(name, {}) for name in ("urgent", "losses", "refused"))
    crashes, contract = found.get("crashes", {}).get("cases", []), found.get("contract", {})
    sliced, large = found.get("slices", {}), found.get("too_large", {})
    rows = [
        [f"{one['gib']} GiB", number(one["suspend_seconds"]), number(one["resume_seconds"])]
        for one in sorted(urgent.get("sizes", []), key=lambda one: int(one["gib"]))
    ]
    kills = [[one["case"], number(one["seconds"]), "; ".join(one["complaints"]) or "nothing"] for one in crashes]
    begins = urgent.get("begins_seconds")
    is_same = losses.get("is_same")
    return Report(
        title="Suspending a program",
        how=(
            f"A training is suspended at {_TIMES} random steps (seed {_SEED}) beside one that is not; an urgent"
            " job finds the card taken by a preemptible one; programs that hold memory are moved; and dibs is"
            " killed at each named point of a suspension and a resumption."
        ),
        tables=[
            Table(title="Seconds, with the command", columns=["held", "suspend", "resume"], rows=rows),
            Table(title="kill -9", columns=["who and where", "s", "what was wrong afterwards"], rows=kills),
        ],
        targets=[
            Target(
                text="the losses are those of an undisturbed run, to the last bit",
                measured="-" if is_same is None else f"{_STEPS} of {_STEPS}" if is_same else "different",
                is_met=is_same,
            ),
            Target(
                text=f"an urgent job beside 20 GiB begins within {_SOON:g} s, and the other goes on by itself",
                measured="-" if begins is None else f"{number(begins)} s",
                is_met=None if begins is None else begins <= _SOON and "back_seconds" in urgent,
            ),
            _refusal_target(refused, "cuda_ipc", "what shares memory by CUDA IPC is not moved, and goes on"),
            _refusal_target(refused, "managed", "what has managed memory is not moved, and goes on"),
            Target(
                text="a card without room is waited for, and nothing is lost",
                measured=refused.get("full_card", {}).get("said", "-"),
                is_met=refused["full_card"]["waited"] if "full_card" in refused else None,
            ),
            Target(
                text="after a kill -9 nothing is lost, locked or left, and it goes on as one attempt",
                measured=f"{sum(not one['complaints'] for one in crashes)} of {len(crashes)}",
                is_met=not any(one["complaints"] for one in crashes) if crashes else None,
            ),
            Target(
                text=f"two jobs with {_SLICED} GiB take turns on the card, and both end well",
                measured=" ".join(sliced.get("said", ["-"])).strip(),
                is_met=sliced["first"] == sliced["second"] == "succeeded" if "first" in sliced else None,
            ),
            Target(
                text=f"two with {_TOO_MUCH} GiB, which the machine's memory cannot take, do not, and why says so",
                measured=large.get("why", "-").strip(),
                is_met=large["states"] == ["running", "queued"] if large else None,
            ),
            Target(
                text="the driver keeps the contract of the fake one",
                measured=f"{contract.get('passed', 0)} passed, {contract.get('failed', 0)} failed",
                is_met=not contract["failed"] if contract.get("is_over") else None,
            ),
        ],
        data=dict(found),
    )


def _refusal_target(refused: Mapping[str, Any], name: str, text: str) -> Target:
    found = refused.get(name)
    if found is None:
        return Target(text=text, measured="-", is_met=None)
    return Target(text=text, measured=found["said"], is_met=found["stays"] and found["goes_on"])
