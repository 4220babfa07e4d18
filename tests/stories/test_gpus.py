"""`dibs gpus` and `dibs gpus release`, from the outside."""

import json
import os
import pty
import re
import signal
import subprocess
from typing import Any

from dibs.supervise.folder import read_record
from leases.claims import a_claim, some_leases, took
from leases.processes import STRANGER, needs_root
from leases.processes import start as start_as
from stories.outside import DIBS, Running, World, wait_until


def test_a_machine_without_anything_is_told_in_one_sentence(world: World) -> None:
    text = world.dibs("gpus")
    data = world.dibs("gpus", "--json")

    sentence = "dibs: no GPU to show: there is no driver here, and no running job has declared any\n"
    assert (text.status, text.stdout, text.stderr) == (0, "", sentence)
    assert (data.status, json.loads(data.stdout), data.stderr) == (0, [], sentence)


def test_declared_gpus_are_known_by_the_jobs_that_hold_them(world: World) -> None:
    running, pid = _hold(world, "0,0,1")

    text = world.dibs("gpus")
    (gpu,) = _as_data(world)

    heading, line = text.stdout.splitlines()
    assert heading.split() == ["GPU", "name", "memory", "load", "state", "held", "by", "waiting"]
    assert line.startswith("0    ?     ?       ?     partly held  1/2 ")
    assert f": job 1, pid {pid}, since " in line
    assert (gpu["index"], gpu["key"], gpu["state"], gpu["memory_total_bytes"]) == (
        0,
        "index-0",
        "partly held",
        None,
    )
    (holder,) = gpu["holders"]
    assert (holder["uid"], holder["job"], holder["pid"], holder["share"]) == (os.geteuid(), "1", pid, 0.5)
    running.kill()


def test_cards_are_shown_with_what_the_driver_says(world: World) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        world.environ["DIBS_PROBE"] = _cards(world, stranger.pid)

        text = world.dibs("gpus")
        free, busy = _as_data(world)
        stranger.kill()

    assert [re.split("  +", line) for line in text.stdout.splitlines()[1:]] == [
        ["0", "NVIDIA H200", "0B/140G", "0%", "free", "-", "-"],
        ["1", "NVIDIA H200", "9G/140G", "97%", "busy", f"no lease: eve, pid {stranger.pid}, 9G", "-"],
    ]
    assert (free["state"], free["memory_used_bytes"], free["load_percent"]) == ("free", 0, 0)
    assert busy["memory_total_bytes"] == 150109880320
    assert (busy["temperature_celsius"], busy["power_watts"]) == (61, 512.4)
    assert busy["foreign"] == [{"user": "eve", "pid": stranger.pid, "memory_bytes": 9 * 1024**3, "name": "python"}]


def test_a_jobs_own_process_is_not_foreign(world: World) -> None:
    world.environ["DIBS_PROBE"] = _cards(world, 0)
    _, pid = _hold(world, "1")
    world.environ["DIBS_PROBE"] = _cards(world, pid)

    _, gpu = _as_data(world)

    assert gpu["state"] == "held"
    assert gpu["foreign"] == []
    assert [holder["pid"] for holder in gpu["holders"]] == [pid]


def test_a_job_on_a_gpu_that_it_was_not_given_makes_that_one_busy(world: World) -> None:
    world.environ["DIBS_PROBE"] = _cards(world, 0)
    _, pid = _hold(world, "0")
    world.environ["DIBS_PROBE"] = _cards(world, pid)

    given, other = _as_data(world)

    assert (given["state"], given["foreign"]) == ("held", [])
    assert (other["state"], [process["pid"] for process in other["foreign"]]) == ("busy", [pid])


def test_those_who_wait_are_shown(world: World) -> None:
    _hold(world, "0")
    world.start("run", "--gpus", "0", "--", "true")

    gpu = wait_until(lambda: next((gpu for gpu in _as_data(world) if gpu["waiting"]), None))

    assert [wish["job"] for wish in gpu["waiting"]] == ["1"]


def test_a_driver_that_fails_hides_no_claim(world: World) -> None:
    _hold(world, "0")
    broken = world.folder.parent / "cards.json"
    broken.write_text('{"fail": "it is on fire"}')

    shown = world.dibs("gpus", env={"DIBS_PROBE": f"fake:{broken}"})

    assert shown.status == 1
    assert "job 1" in shown.stdout
    assert "cannot ask the fake driver: it is on fire" in shown.stderr


def test_a_job_is_released_and_the_gpu_is_free(world: World) -> None:
    running, pid = _hold(world, "0")

    ended = world.dibs("gpus", "release", "0", "--yes")

    assert (ended.status, ended.said) == (0, [f"ended your job 1 (pid {pid}) on GPU 0", "GPU 0 is free"])
    assert running.wait().status == 128 + signal.SIGTERM
    world.assert_nothing_is_left()


def test_both_holders_of_a_shared_gpu_are_ended(world: World) -> None:
    _hold(world, "0,0")
    _hold(world, "0,0")

    ended = world.dibs("gpus", "release", "0", "-y")

    assert ended.status == 0
    assert world.holders() == []


def test_the_next_job_of_the_list_is_not_ended_too(world: World) -> None:
    jobs = [world.ledger.job("first", 30), world.ledger.job("second", 30)]
    world.write("jobs", jobs)
    world.start("run", "--gpus", "0", "-f", "jobs")
    wait_until(world.ledger.started)

    ended = world.dibs("gpus", "release", "0", "--yes")
    wait_until(lambda: world.ledger.started() == ["first", "second"], show=world.ledger.started)

    assert ended.status == 0
    assert [holder.job for holder in world.holders()] == ["2"]


def test_a_free_gpu_is_said_to_be_free(world: World) -> None:
    ended = world.dibs("gpus", "release", "0", "3")

    assert (ended.status, ended.stderr) == (0, "GPU 0 is free\nGPU 3 is free\n")


def test_a_gpu_on_which_somebody_computes_is_not_said_to_be_free(world: World) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        world.environ["DIBS_PROBE"] = _cards(world, stranger.pid)
        ended = world.dibs("gpus", "release", "0", "1")
        stranger.kill()

    said = ["GPU 0 is free", f"GPU 1 is busy: used without a lease (eve, pid {stranger.pid}, 9G)"]
    assert (ended.status, ended.said) == (0, said)


def test_an_unknown_gpu_is_refused(world: World) -> None:
    world.environ["DIBS_PROBE"] = _cards(world, 0)

    ends = [world.dibs("gpus", "release", gpu, "--yes") for gpu in ("7", "x", "GPU-", "-1")]

    assert [ended.status for ended in ends] == [2, 2, 2, 2]
    assert ends[0].stderr == "dibs: error: cannot find GPU 7\n  `dibs gpus` shows them\n"
    assert "cannot tell which GPU 'GPU-' means" in ends[2].stderr


def test_without_a_terminal_nothing_is_ended_unasked(world: World) -> None:
    _hold(world, "0")

    ended = world.dibs("gpus", "release", "0")

    assert ended.status == 2
    assert ended.stderr.startswith("dibs: error: cannot ask whether to end a job: stdin is no terminal\n")
    assert len(world.holders()) == 1


def test_it_asks_on_a_terminal(world: World) -> None:
    _hold(world, "0")

    no = _answer(world, b"\n")
    held = len(world.holders())
    yes = _answer(world, b"y\n")

    assert no.status == 1
    assert no.stderr.endswith("nothing was ended\n")
    assert held == 1
    assert yes.status == 0
    assert "end this job? [y/N]: " in yes.stderr
    assert world.holders() == []


@needs_root
def test_another_users_job_is_left_alone(world: World) -> None:
    folder = world.leases
    folder.mkdir()
    folder.chmod(0o1777)
    for parent in folder.parents:
        if parent.stat().st_uid == os.geteuid() and parent.name:
            parent.chmod(parent.stat().st_mode | 0o011)

    def hold(parent: Any) -> None:
        took(some_leases(str(folder)), a_claim(), job="theirs")
        parent.say("held")
        parent.hear()

    stranger = start_as(hold, uid=STRANGER)
    assert stranger.hear() == "held"

    shown = _as_data(world)
    ended = world.dibs("gpus", "release", "0", "--yes")
    stranger.end()

    assert [(holder["user"], holder["pid"]) for holder in shown[0]["holders"]] == [("nobody", stranger.pid)]
    assert ended.status == 77
    assert f"cannot release GPU 0: it is held by nobody: job theirs, pid {stranger.pid}" in ended.stderr


def _hold(world: World, gpus: str) -> tuple[Running, int]:
    """A running job on the first of these GPUs, and its pid."""
    running = world.start("run", "--gpus", gpus, "--", "bash", "-c", "echo $$; exec sleep 60")
    pid = int(wait_until(lambda: running.stdout.strip(), show=lambda: running.stderr))
    # Its supervisor writes the pid down a moment after the start; before that the lease names the run itself.
    records = [str(path.parent) for path in world.state.rglob("record")]
    wait_until(lambda: any((read_record(one) or {}).get("pid") == pid for one in records), show=lambda: records)
    return running, pid


def _as_data(world: World) -> Any:
    return json.loads(world.dibs("gpus", "--json").stdout)


def _cards(world: World, pid: int) -> str:
    cards: list[dict[str, Any]] = [
        {"index": i, "uuid": f"GPU-{i}", "name": "NVIDIA H200", "memory_total": 150109880320, "memory_used": 0}
        for i in range(2)
    ]
    cards[0] |= {"load": 0}
    cards[1] |= {"load": 97, "memory_used": 9 * 1024**3, "temperature": 61, "power": 512.4}
    if pid:
        cards[1]["processes"] = [{"pid": pid, "user": "eve", "memory": 9 * 1024**3, "name": "python"}]
    path = world.folder.parent / "cards.json"
    path.write_text(json.dumps(cards))
    return f"fake:{path}"


def _answer(world: World, answer: bytes) -> Any:
    master, slave = pty.openpty()
    running = world.start("gpus", "release", "0", stdin=slave, program=(DIBS,))
    os.close(slave)
    wait_until(lambda: "[y/N]" in running.stderr, show=lambda: running.stderr)
    os.write(master, answer)
    ended = running.wait()
    os.close(master)
    return ended


# -- lease files that are deleted, locked and filled by others ----------------------------------------------


def _claim(world: World, slot: int = 0) -> str:
    return f"{world.leases}/dibs-claim-index-0-{os.geteuid()}-{slot}"


def test_a_lease_file_deleted_under_a_run_is_made_again_and_an_overlap_is_named(world: World) -> None:
    running, _ = _hold(world, "0")
    os.unlink(_claim(world))
    other = took(some_leases(str(world.leases)), job="other")
    os.rename(_claim(world), _claim(world, 1))  # the name of the first one is free: it is made under that again

    wait_until(lambda: "is overbooked" in running.stderr, show=lambda: running.stderr)
    shown = world.dibs("gpus")
    refused = world.dibs("run", "--gpus", "0", "--no-wait", "--", "true")

    assert f"the lease file {_claim(world)} of job 1 was deleted; it was made again" in running.stderr
    for text in (running.stderr, shown.stderr, refused.stderr):
        assert re.search(r"is overbooked: it is held by job (1|other) of \S+ \(pid \d+\) and job ", text), text
        assert "nothing more starts there until one of them has ended" in text
    assert (shown.status, refused.status) == (0, 75)
    other.close()
    assert world.dibs("gpus").stderr == ""
    running.kill()


def test_the_claim_of_another_user_with_any_text_fits_on_a_line(world: World) -> None:
    leases = some_leases(str(world.leases))
    world.leases.mkdir()
    lease = took(leases, a_claim(share="1/4"), a_claim("index-1", "1/4"))
    record = {"user": "u", "pid": 1, "job": "x" * 30_000, "since": 1e300, "share": "1/4", "vram": 0, "folder": ""}
    os.pwrite(lease.fds[0], json.dumps(record).encode(), 0)
    os.pwrite(lease.fds[1], json.dumps(record | {"since": 9e9}).encode(), 0)

    text, data = world.dibs("gpus"), world.dibs("gpus", "--json")

    assert (text.status, data.status) == (0, 0)
    assert len(text.stdout.splitlines()) == 3 and max(map(len, text.stdout.splitlines())) < 400
    assert [gpu["holders"][0]["share"] for gpu in json.loads(data.stdout)] == [1.0, 0.25]
    lease.close()
