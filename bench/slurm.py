"""What a job on Slurm costs through dibs, beside plain `sbatch`: a private Slurm, both in the same run."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dibs_daemon import Daemon
from peers import Say, Scratch, ToolFailed
from report import Report, Table, Target, number

if TYPE_CHECKING:
    from backends.private_slurm import PrivateSlurm

PLAIN, PLAIN_ARRAY = "sbatch, one call a job", "sbatch --array, one call"
SINGLES, ARRAY = "dibs, a job each", "dibs, one array"
# Ours, theirs, how much longer it may take for a whole round.
PROMISES = [(SINGLES, PLAIN, 2.0), (ARRAY, PLAIN_ARRAY, 2.0)]
PENDING = 1000
MOST_OBSERVE_SECONDS = 0.5
LOOK_EVERY = 0.2  # seconds, beside plain `sbatch`
MOST_SECONDS = 300.0
_SCRIPT = b"#!/bin/sh\nexec true\n"


@dataclass(frozen=True, slots=True)
class Took:
    """One round: until everything was handed over, and until all of it was known to be over."""

    submit: float  # seconds
    whole: float


# A way to run so many jobs of `true`, and to know how they ended.
Way = Callable[["PrivateSlurm", Path, int], Took]


def is_possible() -> bool:
    """Whether there is a Slurm to be measured."""
    _find_tests()
    from backends.private_slurm import missing_programs

    return not missing_programs()


def measure(scratch: Scratch, *, jobs: int, rounds: int, say: Say) -> Report:
    ways: dict[str, Way] = {PLAIN: _plain, SINGLES: _dibs, PLAIN_ARRAY: _plain_array, ARRAY: _dibs_array}
    took: dict[str, list[Took]] = {name: [] for name in ways}
    with _private_slurm() as slurm:
        for turn in range(rounds + 1):
            for name, way in ways.items():
                found = way(slurm, scratch.folder(), jobs if turn else 5)  # round 0 is not counted
                if turn:
                    took[name].append(found)
                    say(f"round {turn} of {rounds}: {name} {number(1e3 * found.whole / jobs)} ms a job")
        looks = _looks(slurm, scratch.folder())
    ratios = {ours: _ratio(took[ours], took[theirs]) for ours, theirs, _ in PROMISES}
    observe = statistics.median(looks["observe"])
    return Report(
        title="Slurm",
        how=f"{jobs:,} jobs of `true` on a private Slurm of three nodes on this machine, {rounds} rounds, from the"
        " first submit until all are known to be over. dibs asks Slurm every 3 s, as ever; beside plain `sbatch`"
        f" there is a look every {LOOK_EVERY:g} s. dibs has the exit code and the output of every job on disk by"
        " then, and a supervisor that outlives it; plain `sbatch` has neither.",
        tables=[
            Table(
                title="",
                columns=["way", "taken ms/job", "whole ms/job", "x plain"],
                rows=[_row(name, took, jobs) for name in ways],
            ),
            Table(
                title=f"One look at {PENDING:,} jobs that wait",
                columns=["call", "ms"],
                rows=[[name, number(1e3 * statistics.median(seconds))] for name, seconds in looks.items()],
            ),
        ],
        targets=[
            *(
                Target(
                    text=f"{ours}: at most {most:g} times `{theirs}`",
                    measured=f"{number(ratios[ours])} x",
                    is_met=ratios[ours] <= most,
                )
                for ours, theirs, most in PROMISES
            ),
            Target(
                text=f"a look at {PENDING:,} jobs in at most {MOST_OBSERVE_SECONDS:g} s",
                measured=f"{number(observe)} s",
                is_met=observe <= MOST_OBSERVE_SECONDS,
            ),
        ],
        notes=[
            "A ratio is the median over the rounds of both times in the same round.",
            "Controller and nodes share this machine with the jobs. dibs adds an interpreter to each.",
        ],
        data={
            "jobs": jobs,
            "rounds": rounds,
            "submit_seconds": {name: [one.submit for one in found] for name, found in took.items()},
            "whole_seconds": {name: [one.whole for one in found] for name, found in took.items()},
            "pending": PENDING,
            "look_seconds": looks,
        },
    )


def _plain(slurm: "PrivateSlurm", folder: Path, jobs: int) -> Took:
    begin = time.perf_counter()
    for _ in range(jobs):
        _sbatch(slurm)
    return _until_gone(slurm, begin, time.perf_counter())


def _plain_array(slurm: "PrivateSlurm", folder: Path, jobs: int) -> Took:
    begin = time.perf_counter()
    _sbatch(slurm, f"--array=0-{jobs - 1}")
    return _until_gone(slurm, begin, time.perf_counter())


def _dibs(slurm: "PrivateSlurm", folder: Path, jobs: int) -> Took:
    lines = folder / "jobs.txt"
    lines.write_text("true\n" * jobs)
    return _through_the_queue(slurm, folder, jobs, "-f", str(lines))


def _dibs_array(slurm: "PrivateSlurm", folder: Path, jobs: int) -> Took:
    return _through_the_queue(slurm, folder, jobs, "--array", f"0-{jobs - 1}", "--", "true")


def _through_the_queue(slurm: "PrivateSlurm", folder: Path, jobs: int, *words: str) -> Took:
    """What a user types and gets, with the default settings."""
    daemon = Daemon(folder)
    daemon.environment |= slurm.environment | {"HOME": daemon.environment["HOME"]}
    daemon.start()
    try:
        begin = time.perf_counter()
        daemon.dibs("add", "-q", "--on", "slurm", "-n", "0", *words)
        submitted = time.perf_counter()
        daemon.wait_for(jobs, limit_seconds=MOST_SECONDS)
        return Took(submitted - begin, time.perf_counter() - begin)
    finally:
        daemon.stop()


def _looks(slurm: "PrivateSlurm", folder: Path) -> dict[str, list[float]]:
    """Seconds of one look at many that wait, ours and Slurm's own."""
    slurm.ask("scontrol", "update", "partitionname=gpu", "state=down")
    try:
        place = _backend(slurm, folder)
        wanted = [_submission(folder, f"bench{folder.name}-0_{one}") for one in range(PENDING)]
        refs = [one.ref for one in wanted]
        place.submit(wanted)
        found: dict[str, list[float]] = {"squeue -r": [], "observe": []}
        for _ in range(7):
            for name, act in (
                ("squeue -r", lambda: slurm.ask("squeue", "-h", "-r")),
                ("observe", lambda: place.observe(refs)),
            ):
                begin = time.perf_counter()
                act()
                found[name].append(time.perf_counter() - begin)
        return found
    finally:
        slurm.clear()
        slurm.ask("scontrol", "update", "partitionname=gpu", "state=up")


def _backend(slurm: "PrivateSlurm", folder: Path) -> Any:
    from dibs.backends.slurm.backend import SlurmBackend, SlurmSettings
    from dibs.backends.slurm.controller import Commands

    (folder / "environment.json").write_text(json.dumps({"PATH": os.environ["PATH"]}))
    return SlurmBackend(SlurmSettings(root=str(folder)), Commands(slurm.environment))


def _submission(folder: Path, key: str) -> Any:
    from dibs.backends.protocol import AttemptRef, Resources, Submission
    from dibs.model.jobs import Wishes

    ref = AttemptRef(key, 1, f"{folder}/attempts/0/{key}.1")
    spec = {
        "v": 1,
        "job": key,
        "attempt": 1,
        "words": ["true"],
        "workdir": "/",
        "umask": 0o022,
        "environment": f"{folder}/environment.json",
        "env": {},
        "stdout": f"{ref.folder}/stdout",
        "stderr": f"{ref.folder}/stderr",
        "time_limit": None,
        "grace": 10.0,
    }
    return Submission(ref=ref, spec=spec, wanted=Resources(wishes=Wishes(num_gpus=0)))


def _sbatch(slurm: "PrivateSlurm", *more: str) -> None:
    words = ["sbatch", "--parsable", "--output=/dev/null", "--chdir=/", "--ntasks=1", *more]
    done = subprocess.run(words, input=_SCRIPT, env=slurm.environment, capture_output=True, check=False)
    if done.returncode:
        raise ToolFailed(f"sbatch: {done.stderr.decode(errors='replace').strip()}")


def _until_gone(slurm: "PrivateSlurm", begin: float, submitted: float) -> Took:
    while slurm.ask("squeue", "-h", "-t", "pending,running,completing", "-o", "%i").strip():
        _wait(begin)
    return Took(submitted - begin, time.perf_counter() - begin)


def _wait(begin: float) -> None:
    if time.perf_counter() - begin > MOST_SECONDS:
        raise ToolFailed(f"Slurm has not run the jobs within {MOST_SECONDS:g} seconds")
    time.sleep(LOOK_EVERY)


@contextmanager
def _private_slurm() -> "Iterator[PrivateSlurm]":
    _find_tests()
    from backends.private_slurm import PrivateSlurm

    # Not in the scratch folder: the path of a socket may not be long.
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # munged wants its socket to be reachable for all users
        slurm = PrivateSlurm(Path(folder) / "private")
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.stop()


def _find_tests() -> None:
    tests = str(Path(__file__).parent.parent / "tests")
    if tests not in sys.path:
        sys.path.insert(0, tests)


def _ratio(ours: list[Took], theirs: list[Took]) -> float:
    return statistics.median(one.whole / other.whole for one, other in zip(ours, theirs, strict=True))


def _row(name: str, took: dict[str, list[Took]], jobs: int) -> list[str]:
    plain = {ours: theirs for ours, theirs, _ in PROMISES}.get(name)
    return [
        name,
        number(1e3 * statistics.median(one.submit for one in took[name]) / jobs),
        number(1e3 * statistics.median(one.whole for one in took[name]) / jobs),
        "" if plain is None else number(_ratio(took[name], took[plain])),
    ]
