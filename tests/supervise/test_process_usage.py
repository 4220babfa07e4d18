"""Who is below which shim, and what they use: with real processes."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dibs.supervise.process_usage import ProcessUsage, shim_of
from stories.outside import wait_until

# A subreaper that starts what it is told and reaps whatever ends: what a shim is to its attempt.
SHIM = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
subprocess.Popen(["bash", "-c", sys.argv[1]])
print("begun", flush=True)
try:
    while True:
        os.wait()
except ChildProcessError:
    sys.stdin.read()
"""
PYTHON = shlex.quote(sys.executable)
BURN = f"{PYTHON} -c 'import time\nwhile time.process_time() < 0.3: pass'"


class Shims:
    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []

    def __call__(self, command: str) -> int:
        shim = subprocess.Popen(
            [sys.executable, "-c", SHIM, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._started.append(shim)
        assert shim.stdout is not None and shim.stdout.readline() == "begun\n"
        return shim.pid

    def end(self) -> None:
        for shim in self._started:
            below = [pid for pid, owner in ProcessUsage().look([shim.pid]).owners.items() if owner == shim.pid]
            shim.kill()
            for pid in below:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shim.wait()


@pytest.fixture
def shims() -> Iterator[Shims]:
    one = Shims()
    yield one
    one.end()


def names(pids: frozenset[int]) -> list[str]:
    found = []
    for pid in pids:
        with open(f"/proc/{pid}/cmdline") as file:
            found.append(file.read().replace("\0", " ").strip())
    return sorted(found)


def below(census: ProcessUsage, shim: int) -> list[str]:
    try:
        return names(census.look([shim]).trees[shim].pids)
    except OSError:
        return []


def test_every_process_below_a_shim_is_found_also_one_that_left_its_session(shims):
    shim = shims("setsid sleep 1001 & (setsid -f sleep 1002); exec sleep 1003")
    census = ProcessUsage()

    wait_until(
        lambda: below(census, shim) == ["sleep 1001", "sleep 1002", "sleep 1003"], show=lambda: below(census, shim)
    )


def test_two_shims_and_strangers_are_told_apart(shims):
    one, other = shims("exec sleep 1001"), shims("exec sleep 1002")
    census = ProcessUsage()
    wait_until(lambda: below(census, one) == ["sleep 1001"])
    wait_until(lambda: below(census, other) == ["sleep 1002"])

    seen = census.look([one, other])

    assert names(seen.trees[one].pids) == ["sleep 1001"]
    assert names(seen.trees[other].pids) == ["sleep 1002"]
    assert seen.owners[os.getpid()] == 0


def test_the_children_of_a_shim_that_was_not_known_before_are_no_strangers(shims):
    known, new = shims("exec sleep 1001"), shims("exec sleep 1002")
    census = ProcessUsage()
    child = next(iter(census.look([new]).trees[new].pids))
    census = ProcessUsage()
    assert census.look([known]).owners[child] == 0

    seen = census.look([known, new])

    assert child in seen.trees[new].pids


def test_who_was_below_a_shim_that_was_killed_is_still_ours(shims):
    shim = shims("sleep 1001 & exec sleep 1002")
    census = ProcessUsage()
    wait_until(lambda: below(census, shim) == ["sleep 1001", "sleep 1002"])

    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{shim}/exe") or not os.access(f"/proc/{shim}/cwd", os.F_OK))

    assert below(census, shim) == ["sleep 1001", "sleep 1002"]


def test_the_work_of_children_that_ended_is_not_forgotten(shims):
    """A tree that starts one short process after the other has used what all of them used."""
    shim = shims(f"for i in 1 2 3; do {BURN}; done; exec sleep 1001")
    census = ProcessUsage()

    wait_until(lambda: below(census, shim) == ["sleep 1001"], show=lambda: below(census, shim))

    assert census.look([shim]).trees[shim].cpu >= 0.8


def test_what_an_orphan_used_is_with_the_shim_that_reaped_it(shims):
    shim = shims(f"({BURN} &); exec sleep 1001")
    census = ProcessUsage()

    wait_until(lambda: census.look([shim]).trees[shim].reaped >= 0.25)


def test_memory_is_counted_for_the_whole_tree(shims):
    hungry = f"{PYTHON} -c 'x = bytearray(64 << 20); import time; time.sleep(1000)'"
    shim = shims(f"{hungry} & {hungry}")
    census = ProcessUsage()

    wait_until(lambda: census.look([shim]).trees[shim].memory > 2 * 64 * 1024**2)


def test_a_shim_that_left_nothing_is_not_there(shims):
    assert 2**22 - 1 not in ProcessUsage().look([2**22 - 1]).trees


def test_a_folder_without_a_shim_has_none(tmp_path):
    assert shim_of(str(tmp_path)) is None


def test_a_process_that_is_below_another_daemon_counts_where_it_belongs(shims: Shims) -> None:
    shim = shims("true")
    elsewhere = subprocess.Popen(["sleep", "60"])
    try:
        usage = ProcessUsage()
        before = usage.look([shim])
        seen = usage.look([shim], {elsewhere.pid: shim})
    finally:
        elsewhere.kill()
        elsewhere.wait()

    assert before.owners[elsewhere.pid] == 0
    assert seen.owners[elsewhere.pid] == shim
    assert elsewhere.pid in seen.trees[shim].pids
    assert seen.trees[shim].memory > 0
