"""Cards that break, and how they come back: real processes through the daemon, and a driver out of a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from dibs.client.events import follow_events
from stories.outside import World, wait_until

BROKEN = 'test "$CUDA_VISIBLE_DEVICES" != 1 || exit 1; '


class Machine:
    """Fake cards whose file is changed under a running daemon."""

    def __init__(self, world: World, cards: int = 2) -> None:
        self.path = world.folder.parent / "cards.json"
        self.keys = [f"GPU-{index:08d}" for index in range(cards)]
        self.content: dict[str, Any] = {
            "gpus": [{"index": index, "uuid": key, "ecc_uncorrected": 0} for index, key in enumerate(self.keys)],
            "faults": [],
        }
        self.write()
        world.environ |= {"DIBS_PROBE": f"fake:{self.path}", "DIBS_CANARY_AFTER": "1s", "DIBS_CANARY": "never"}

    def write(self) -> None:
        new = Path(f"{self.path}.new")
        new.write_text(json.dumps(self.content))
        new.rename(self.path)

    def becomes(self, content: str) -> str:
        """A command line that changes the file as a whole."""
        return f"echo '{content}' > '{self.path}.new'; mv '{self.path}.new' '{self.path}'"

    def fault(self, xid: int, index: int) -> None:
        self.content["faults"].append({"gpu": self.keys[index], "xid": xid, "id": len(self.content["faults"])})
        self.write()


@pytest.fixture
def machine(world: World) -> Machine:
    return Machine(world)


def _gpus(world: World) -> dict[int, dict[str, Any]]:
    return {gpu["index"]: gpu for gpu in world.client().gpus()["gpus"]}


def _wait_for_states(world: World, *states: str) -> None:
    """Of the cards by their numbers. A card whose job has just ended may still be held, or be looked at."""
    found = lambda: tuple(gpu["state"] for _, gpu in sorted(_gpus(world).items()))  # noqa: E731
    wait_until(lambda: found() == states, show=found)


def _wait_for_state(world: World, index: int, state: str) -> dict[str, Any]:
    wait_until(lambda: _gpus(world)[index]["state"] == state, show=lambda: _gpus(world)[index])
    return _gpus(world)[index]


def _counts(world: World) -> dict[str, int]:
    counts = lambda: world.client().status()["counts"]  # noqa: E731
    wait_until(lambda: not counts()["queued"] and not counts()["running"], show=counts, seconds=60)
    return {state: number for state, number in counts().items() if number}


def _stop(world: World) -> None:
    world.dibs("daemon", "stop")
    world.assert_nothing_is_left()


@pytest.mark.parametrize(("probe", "words"), [("fake", ("-P", "vision")), ("none", ())])
def test_one_of_two_cards_that_fails_everything_loses_at_most_three_of_forty_jobs(
    world: World, probe: str, words: tuple[str, ...]
) -> None:
    if probe == "fake":
        Machine(world)
    world.run_daemon(pool="0,1")
    world.write("jobs.txt", [f"{BROKEN}{world.ledger.job(number, 0.03)}" for number in range(40)])

    world.add(*words, "-f", "jobs.txt")
    counts = _counts(world)

    assert counts.keys() == {"succeeded", "failed"} and counts["failed"] <= 3
    _wait_for_states(world, "free", "quarantined")
    why = _gpus(world)[1]["why"]
    assert "jobs failed there one after another" in why
    # The command waits a moment for the daemon's marks, and a busy machine may need longer.
    shown = json.loads(wait_until(lambda: "quarantined" in (text := world.dibs("gpus", "--json").stdout) and text))
    assert {gpu["index"]: (gpu["mark"], gpu["why"]) for gpu in shown} == {0: (None, None), 1: ("quarantined", why)}
    assert set(world.ledger.gpus().values()) == {"0"}
    assert world.ledger.overlaps() == []
    failed = json.loads(world.dibs("ls", "--state", "failed", "--json").stdout)["jobs"]
    for job in failed:
        number = job["id"]
        excuse = f"GPU 1 was quarantined after this: {len(failed)} jobs failed there one after another"
        assert job["message"].startswith(excuse)
        assert job["message"].endswith(f"elsewhere; `dibs retry {number}` runs it again")
        assert excuse in world.dibs("info", str(number)).stdout
        assert excuse in world.dibs("why", str(number)).stdout
    world.dibs("retry", *[str(job["id"]) for job in failed])
    assert _counts(world) == {"succeeded": 40}
    _stop(world)


def test_a_card_that_fails_everything_is_taken_out_though_each_job_is_tried_again(
    world: World, machine: Machine
) -> None:
    world.run_daemon(pool="0,1")
    world.write("jobs.txt", [f"{BROKEN}{world.ledger.job(number, 0.03)}" for number in range(40)])

    world.add("--retries", "3", "-f", "jobs.txt")

    assert _counts(world) == {"succeeded": 40}
    _wait_for_states(world, "free", "quarantined")
    assert set(world.ledger.gpus().values()) == {"0"}
    _stop(world)


@pytest.mark.parametrize(
    ("line", "cause", "project"),
    [
        ("exit 1", "exit code", "broken"),
        ("python3 -c 'import nonesuch'", "import-error", ""),  # a list without a project is a group as well
        ("exec cat /nope > /dev/full", "", "broken"),
    ],
)
def test_what_fails_on_both_cards_holds_its_project_and_not_the_cards(
    world: World, machine: Machine, line: str, cause: str, project: str
) -> None:
    world.run_daemon(pool="0,1")
    world.write("jobs.txt", [f"echo >> ran; {line}"] * 30)

    world.add(*(("-P", project) if project else ()), "-f", "jobs.txt")
    counts = _counts(world)
    world.wait_for(world.add("-P", "other", "--", world.ledger.job("beside")))

    assert 5 <= counts["failed"] <= 6  # one may have been running when the fifth ended
    assert counts["held"] == 30 - counts["failed"]
    assert len(world.read("ran").splitlines()) == counts["failed"]
    assert "failed one after another" in world.dibs("ls", "--state", "held").stdout
    if project:
        assert {one["name"]: one for one in world.client().projects()}[project]["counts"]["held"] == counts["held"]
    _wait_for_states(world, "free", "free")
    assert not cause or world.client().job(1)["cause"] == cause
    _stop(world)


def test_a_quarantine_outlives_the_daemon_and_ends_with_undrain(world: World) -> None:
    daemon = world.run_daemon(pool="0,1,2")
    world.write("jobs.txt", [f"{BROKEN}sleep 0.03" for _ in range(12)])
    world.add("-f", "jobs.txt")
    _counts(world)

    daemon.kill()
    world.run_daemon(pool="0,1,2")
    after_crash = _gpus(world)[1]["state"]
    refused = world.add("--only", "1", "--", world.ledger.job("waits"))
    why = world.dibs("why", str(refused))
    given_back = world.dibs("gpus", "undrain", "1")
    world.wait_for(refused)

    assert after_crash == "quarantined"
    assert "1" in why.stdout and "quarantine" in why.stdout, why
    assert given_back.status == 0
    assert world.ledger.gpus() == {"waits": "1"}
    _wait_for_states(world, "free", "free", "free")
    _stop(world)


def test_what_was_held_goes_on_when_it_is_released(world: World) -> None:
    world.run_daemon()
    world.write("jobs.txt", [f"test -e mended || exit 1; {world.ledger.job(number)}" for number in range(10)])
    world.add("-P", "p", "-f", "jobs.txt")
    before = _counts(world)

    world.write("mended", "")
    released = world.dibs("release", "--project", "p")
    middle = _counts(world)
    retried = world.dibs("retry", "--failed", "--project", "p")
    after = _counts(world)

    assert before == {"failed": 5, "held": 5}
    assert (released.status, retried.status) == (0, 0), (released, retried)
    assert middle == {"failed": 5, "succeeded": 5}
    assert after == {"succeeded": 10}
    _stop(world)


def test_a_killed_job_is_not_blamed_on_its_card(world: World) -> None:
    world.run_daemon(pool="0,1")
    world.write("jobs.txt", ["exec sleep 60"] * 8 + [world.ledger.job("last")])
    world.add("-P", "p", "-f", "jobs.txt")

    for first in (1, 3, 5, 7):
        wait_until(lambda: world.client().status()["counts"]["running"] == 2)
        world.dibs("kill", str(first), str(first + 1))
    [last] = world.wait_for(9)

    assert last["state"] == "succeeded"
    _wait_for_states(world, "free", "free")
    _stop(world)


def test_the_rules_can_be_turned_off(world: World) -> None:
    world.run_daemon(pool="0,1", env={"DIBS_MAX_QUICK_FAILURES": "0", "DIBS_GPU_FAILURES": "0"})
    world.write("jobs.txt", [f"{BROKEN}sleep 0.05" for _ in range(12)] + ["exit 1"] * 12)

    world.add("-P", "p", "-f", "jobs.txt")
    counts = _counts(world)

    assert counts.keys() <= {"succeeded", "failed"}
    assert counts["failed"] > 12
    _wait_for_states(world, "free", "free")
    _stop(world)


def test_a_card_that_falls_off_the_bus_is_taken_out_and_its_job_goes_elsewhere(
    world: World, machine: Machine
) -> None:
    world.run_daemon(pool="0,1")
    ends = f'until test -e "{world.folder.parent}/end"; do sleep 0.02; done; '
    job = world.add(
        *["--prefer", "1", "--retries", "1", "--retry-on", "gpu-fault", "--"],
        f"{ends}{BROKEN}{world.ledger.job('again')}",
    )
    wait_until(lambda: world.client().job(job)["gpus"] == [1])

    machine.fault(79, 1)
    gpu = _wait_for_state(world, 1, "quarantined")
    (world.folder.parent / "end").touch()
    [over] = world.wait_for(job)
    first, second = over["attempts_list"]
    shown = world.dibs("gpus").stdout

    assert gpu["why"] == "Xid 79: it has fallen off the bus"
    assert gpu["remedy"] == "`dibs gpus undrain 1` uses it again"
    assert (first["gpus"], first["cause"]) == ([1], "gpu-fault")
    assert first["message"] == "GPU 1 failed: Xid 79: it has fallen off the bus"
    assert (second["gpus"], over["state"]) == ([0], "succeeded")
    assert "quarantined" in shown and "it has fallen off the bus" in shown
    _stop(world)


def test_a_fault_that_was_read_for_a_change_of_the_pool_still_takes_its_card_out(world: World) -> None:
    machine = Machine(world, cards=3)
    world.run_daemon(pool="0,1")
    _gpus(world)  # the first look is over, and without work the next one is far away

    machine.fault(79, 1)
    world.dibs("gpus", "add", "2")
    gpu = _wait_for_state(world, 1, "quarantined")

    assert gpu["why"] == "Xid 79: it has fallen off the bus"
    _wait_for_state(world, 2, "free")
    _stop(world)


def test_a_fault_that_is_read_after_the_job_has_ended_is_still_its_cause(world: World, machine: Machine) -> None:
    world.run_daemon(pool="0,1")
    content = json.dumps(machine.content | {"faults": [{"gpu": machine.keys[1], "xid": 95}]})

    # The fault is there when the job ends, and the card has not been read since.
    job = world.add("--only", "1", "--", f"{machine.becomes(content)}; exit 1")
    [over] = world.wait_for(job)

    assert (over["cause"], over["exit_code"]) == ("gpu-fault", 1)
    assert "Xid 95: its memory has an error that cannot be corrected" in over["message"]
    _wait_for_state(world, 1, "quarantined")
    _stop(world)


def test_what_a_program_did_wrong_is_told_with_its_failure_and_costs_no_card(
    world: World, machine: Machine
) -> None:
    world.run_daemon(pool="0,1")
    content = json.dumps(machine.content | {"faults": [{"gpu": machine.keys[1], "xid": 31}]})

    job = world.add("--only", "1", "--", f"{machine.becomes(content)}; exit 1")
    [over] = world.wait_for(job)
    why = world.dibs("why", str(job))

    assert (over["cause"], over["message"]) == (
        "exit code",
        "the driver reported Xid 31: an illegal memory access by the program",
    )
    assert "Xid 31" in why.stdout
    assert _gpus(world)[1]["state"] != "quarantined"
    _stop(world)


def test_a_card_comes_back_by_itself_when_it_passes_its_test(world: World, machine: Machine) -> None:
    world.environ["DIBS_CANARY"] = (
        'test -e "$LEDGER.well"; found=$?; echo "$CUDA_VISIBLE_DEVICES" >> "$LEDGER.tests"; exit $found'
    )
    daemon = world.run_daemon(pool="0,1")
    tests, well = Path(f"{world.ledger.path}.tests"), Path(f"{world.ledger.path}.well")

    machine.fault(79, 1)
    remedy = _wait_for_state(world, 1, "quarantined")["remedy"]
    waits = world.add("--only", "1", "--", world.ledger.job("waits"))
    wait_until(tests.exists)
    well.touch()
    world.wait_for(waits)
    events = [event for event in _events(world) if event["kind"].startswith("gpu.")]

    assert "it is tested at about" in remedy and "`dibs gpus undrain 1` uses it at once" in remedy
    assert set(tests.read_text().split()) == {"1"}
    assert world.ledger.gpus() == {"waits": "1"}
    assert "GPU 1 has failed its test: the test ended with 1; it is tested again at about" in daemon.stderr
    assert "GPU 1 has passed its test and is used again" in daemon.stderr
    assert [event["kind"] for event in events[-3:]] == ["gpu.tested", "gpu.tested", "gpu.cleared"]
    assert [event["passed"] for event in events if event["kind"] == "gpu.tested"][-1] is True
    _stop(world)


def test_while_a_card_is_tested_no_job_starts_there(world: World, machine: Machine) -> None:
    world.environ["DIBS_CANARY"] = 'touch "$LEDGER.begun"; until test -e "$LEDGER.go"; do sleep 0.02; done'
    world.run_daemon(pool="0,1")
    machine.fault(79, 1)
    wait_until(Path(f"{world.ledger.path}.begun").exists)

    world.dibs("gpus", "undrain", "1")
    job = world.add("--only", "1", "--", world.ledger.job("waits"))
    wait_until(lambda: "held by job test" in world.dibs("why", str(job)).stdout)
    held = [(holder.gpu, holder.job) for holder in world.holders()]
    started = world.ledger.started()
    Path(f"{world.ledger.path}.go").touch()
    world.wait_for(job)

    assert (held, started) == ([(machine.keys[1], "test")], [])
    assert world.ledger.gpus() == {"waits": "1"}
    _stop(world)


def test_where_there_is_nothing_to_test_with_a_card_stays_out_and_the_log_says_so(
    world: World, machine: Machine
) -> None:
    world.environ |= {"DIBS_CANARY": "auto", "LD_LIBRARY_PATH": "/nonexistent"}
    daemon = world.run_daemon(pool="0,1")

    machine.fault(48, 1)
    wait_until(lambda: "stays quarantined" in daemon.stderr, show=lambda: daemon.stderr)

    if "libcuda.so.1 cannot be loaded" not in daemon.stderr:
        pytest.skip("there is a driver here")
    assert _gpus(world)[1]["remedy"] == "`dibs gpus undrain 1` uses it again"
    _stop(world)


def test_a_card_that_passes_its_test_and_fails_its_jobs_is_taken_out_again(world: World, machine: Machine) -> None:
    world.environ["DIBS_CANARY"] = "true"
    daemon = world.run_daemon(pool="0,1")
    world.write("jobs.txt", [f"{BROKEN}sleep 0.05" for _ in range(60)])

    world.add("-f", "jobs.txt")
    wait_until(
        lambda: daemon.stderr.count("has passed its test") and _gpus(world)[1]["state"] == "quarantined",
        show=lambda: daemon.stderr,
    )
    counts = _counts(world)

    assert counts["failed"] <= 3 * (1 + daemon.stderr.count("has passed its test"))
    assert counts["failed"] + counts["succeeded"] == 60
    _stop(world)


def _events(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for event in follow_events(world.client(), 0):
        found.append(event)
        if event["kind"] == "job.ended":
            break
    return found
