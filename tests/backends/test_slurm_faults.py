"""A controller and nodes that are killed: nothing is lost unseen, and nothing runs twice."""

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from backends.private_slurm import PrivateSlurm
from backends.sites import Site, slurm_backend
from dibs.backends.protocol import AttemptRef, Phase, Resources, Submission
from dibs.errors import BackendSilent
from dibs.model.jobs import Cause, Wishes
from dibs.supervise import folder
from stories.outside import World, wait_until

CARDS = Resources(wishes=Wishes(num_gpus=2))
HOLD = "echo $SLURMD_NODENAME >> here; until test -e go; do sleep 0.05; done; echo end >> ends; exit 5"


@pytest.fixture
def site(world: World, slurm: PrivateSlurm) -> Iterator[Site]:
    root = Path(world.folder) / "run"
    one = Site(root, slurm_backend(slurm, root))
    yield one
    (one.workdir / "go").touch()
    slurm.clear()


def _settle(site: Site, slurm: PrivateSlurm, many: Sequence[Submission]) -> dict[AttemptRef, int | str]:
    """What an engine does: submit again whatever never started, until all ended or are lost.

    Returns their exit codes, or why they are lost.
    """
    codes: dict[AttemptRef, int | str] = {}

    def turn() -> bool:
        slurm.resume()
        left = [one for one in many if one.ref not in codes]
        seen = site.backend.observe([one.ref for one in left])
        for ref, found in seen.items():
            if found.phase is Phase.ENDED:
                assert found.record is not None
                codes[ref] = found.record["code"]
            elif found.phase is Phase.LOST and not found.never_started:
                codes[ref] = f"{found.reason}; {folder.record_of(ref.folder)}"
        site.backend.submit([one for one in left if seen[one.ref].never_started])
        return len(codes) == len(many)

    def show() -> object:
        left = site.backend.observe([one.ref for one in many if one.ref not in codes])
        return [(ref.key, seen) for ref, seen in left.items()], site.backend.nodes()

    wait_until(turn, show=show, seconds=90)
    return codes


@pytest.mark.parametrize("pause", [0.0, 2.0])
def test_a_controller_that_is_killed_after_a_submit_loses_no_job_and_runs_none_twice(
    site: Site, slurm: PrivateSlurm, pause: float
) -> None:
    holders = [site.submission(HOLD, wanted=CARDS) for _ in range(3)]
    # Six have nobody to wait for, four wait for cards: they are in the controller's memory only.
    quick = [site.submission(f"echo {number} >> ran; exit {number}") for number in range(6)]
    late = [site.submission(f"echo {number} >> ran; exit {number}", wanted=CARDS) for number in range(6, 10)]

    site.backend.submit([*holders, *quick, *late])
    time.sleep(pause)
    slurm.kill_controller()
    with pytest.raises(BackendSilent):
        site.backend.observe([quick[0].ref])
    slurm.start_controller()
    site.backend = slurm_backend(slurm, site.root)
    (site.workdir / "go").touch()
    codes = _settle(site, slurm, [*holders, *quick, *late])

    # Whoever ran when the controller forgot it was ended by its node, and nobody says otherwise.
    found = [codes[one.ref] for one in [*quick, *late]]
    ran = sorted(int(number) for number in site.wait_for("ran").split())
    assert len(ran) == len(set(ran)), "one ran twice"
    assert {number for number in range(10) if found[number] == number} <= set(ran)
    assert [code for number, code in enumerate(found) if code != number and isinstance(code, int)] == []
    assert found[6:] == [6, 7, 8, 9], "what had not started was lost"
    assert all(codes[one.ref] == 5 or isinstance(codes[one.ref], str) for one in holders)


def test_a_controller_that_is_killed_and_comes_back_does_not_disturb_who_runs(
    site: Site, slurm: PrivateSlurm
) -> None:
    ref = site.start(HOLD)
    site.wait_for("here")
    slurm.wait_until_saved()

    slurm.kill_controller()
    slurm.start_controller()
    site.backend = slurm_backend(slurm, site.root)
    before = site.look(ref).phase
    (site.workdir / "go").touch()
    record = site.record(ref)

    assert before is Phase.RUNNING
    assert record["code"] == 5
    assert (site.wait_for("here").count("\n"), site.wait_for("ends")) == (1, "end\n")


def test_what_ends_while_the_controller_is_away_is_known_when_it_is_back(site: Site, slurm: PrivateSlurm) -> None:
    ref = site.start(HOLD)
    site.wait_for("here")
    slurm.wait_until_saved()
    slurm.kill_controller()

    (site.workdir / "go").touch()
    site.wait_for("ends")
    slurm.start_controller()
    site.backend = slurm_backend(slurm, site.root)
    record = site.record(ref)

    assert record["code"] == 5
    assert site.wait_for("ends") == "end\n"


def test_a_queued_job_that_is_cancelled_while_the_controller_is_away_never_runs(
    site: Site, slurm: PrivateSlurm
) -> None:
    fillers = [site.submission(HOLD, wanted=CARDS) for _ in range(3)]
    site.backend.submit(fillers)
    for one in fillers:
        site.wait(one.ref, Phase.RUNNING)
    ref = site.start("echo ran > ran", wanted=CARDS)
    slurm.wait_until_saved()
    slurm.kill_controller()

    with pytest.raises(BackendSilent):
        site.backend.cancel([ref])
    slurm.start_controller()
    site.backend = slurm_backend(slurm, site.root)
    (site.workdir / "go").touch()
    record = site.record(ref)  # Slurm still has it and starts it; the fence ends that

    assert (record["by"], record["message"]) == ("stop", "cancelled before it started")
    assert not (site.workdir / "ran").exists()


def test_a_node_that_dies_loses_its_jobs_with_a_reason_and_comes_back(site: Site, slurm: PrivateSlurm) -> None:
    site.backend = slurm_backend(slurm, site.root, patience=1.0)
    there = Resources(wishes=Wishes(num_gpus=1), options=(("nodelist", "n2"),))
    elsewhere = Resources(wishes=Wishes(num_gpus=1), avoid=("n2",))
    doomed, spared = site.start(HOLD, wanted=there), site.start(HOLD, wanted=elsewhere)
    wait_until(lambda: len(site.wait_for("here").split()) == 2)

    slurm.kill_node("n2")
    seen = site.wait(doomed, Phase.LOST)
    dead = next(node for node in site.backend.nodes() if node.name == "n2")
    (site.workdir / "go").touch()
    second = site.start("echo $SLURMD_NODENAME; exit 0", key=doomed.key, attempt=2, wanted=elsewhere)
    record = site.record(second)
    slurm.start_node("n2")
    wait_until(lambda: all(node.is_usable for node in site.backend.nodes()), show=site.backend.nodes, seconds=60)
    back = site.start("echo $SLURMD_NODENAME", wanted=there)
    site.record(back)

    assert (seen.cause, seen.reason, seen.never_started) == (Cause.LOST, "its node failed (n2)", False)
    assert not dead.is_usable and dead.reason
    assert record["code"] == 0 and site.log(second) != "n2\n"
    assert site.log(back) == "n2\n"
    assert site.record(spared)["code"] == 5
    assert site.wait_for("ends") == "end\n"


@pytest.mark.parametrize("how", ["requeue", "requeuehold"])
def test_one_that_slurm_takes_back_though_it_ran_is_over_and_leaves_nothing_in_slurms_queue(
    site: Site, slurm: PrivateSlurm, how: str
) -> None:
    ref = site.start("echo ran >> ran; sleep 1000")
    site.wait_for("ran")
    (number,) = slurm.ask("squeue", "-h", "-o", "%i", f"--name=dibs-{ref.key}.1").split()

    slurm.ask("scontrol", "update", f"jobid={number}", "requeue=1")
    slurm.ask("scontrol", how, number)
    seen = site.wait(ref, Phase.ENDED)
    wait_until(lambda: not slurm.ask("squeue", "-h", "-o", "%i", f"--jobs={number}").strip())

    assert seen.record is not None and seen.record["signal"] == signal.SIGTERM
    assert (seen.cause, "took it back while it ran" in seen.reason) == (Cause.LOST, True)
    assert site.wait_for("ran") == "ran\n"
    assert site.look(ref).record == seen.record


def test_one_whose_slurm_step_is_killed_ends_with_everything_below_it(site: Site, slurm: PrivateSlurm) -> None:
    ref = site.start("echo $PPID $$ > pids; sleep 1000")
    shim, command = map(int, site.wait_for("pids").split())
    step = int(Path(f"/proc/{shim}/stat").read_bytes().rpartition(b")")[2].split()[1])

    os.kill(step, signal.SIGKILL)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (shim, command)), seconds=60)
    slurm.ask("scontrol", "reconfigure")  # its nodes tell what they run now, and not in half a minute
    seen = site.wait(ref, Phase.ENDED, seconds=90)

    assert (seen.cause, "its node failed" in seen.reason) == (Cause.LOST, True), "Slurm calls it so"


def test_who_runs_in_a_folder_of_an_earlier_setting_is_still_found(site: Site, slurm: PrivateSlurm) -> None:
    memory = str(site.root.with_name("memory"))
    site.backend = slurm_backend(slurm, site.root, memory=memory)
    ref = site.start(HOLD)
    site.wait_for("here")

    site.backend = slurm_backend(slurm, site.root.with_name("another"), memory=memory)
    before = site.look(ref).phase
    second = site.submission("true", key=ref.key, attempt=2)
    site.root.rename(site.root.with_name("hidden"))
    with pytest.raises(BackendSilent, match="is not the folder that it was"):
        site.look(ref)
    put_off = site.backend.submit([second]).put_off
    site.root.with_name("hidden").rename(site.root)
    (site.workdir / "go").touch()

    assert before is Phase.RUNNING
    assert ["is not the folder that it was" in why for why in put_off.values()] == [True]
    assert site.record(ref)["code"] == 5


def test_a_suspended_job_can_be_cancelled(site: Site, slurm: PrivateSlurm) -> None:
    ref = site.start("echo $$ > pid; exec sleep 1000")
    command = int(site.wait_for("pid"))
    (number,) = slurm.ask("squeue", "-h", "-o", "%i", f"--name=dibs-{ref.key}.1").split()
    slurm.ask("scontrol", "suspend", number)
    wait_until(lambda: "SUSPENDED" in slurm.ask("squeue", "-h", "-o", "%T", f"--jobs={number}"))

    site.backend.cancel([ref])
    wait_until(lambda: not Path(f"/proc/{command}").exists(), seconds=60)
    wait_until(lambda: site.look(ref).phase in (Phase.ENDED, Phase.LOST), show=lambda: site.look(ref), seconds=60)

    assert site.look(ref).cause is Cause.KILLED
    assert not slurm.ask("squeue", "-h", "-o", "%i", f"--jobs={number}").strip()


def _state_of_command(ref: AttemptRef) -> str:
    """As the kernel tells it: `S` sleeps, `T` is stopped; empty before its pid is known."""
    record = folder.record_of(ref.folder) or {}
    if "pid" not in record:
        return ""
    return Path(f"/proc/{record['pid']}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_suspended_job_runs_and_says_so(site: Site, slurm: PrivateSlurm) -> None:
    ref = site.start(HOLD)
    site.wait_for("here")
    wait_until(lambda: _state_of_command(ref))
    (number,) = slurm.ask("squeue", "-h", "-o", "%i", f"--name=dibs-{ref.key}.1").split()

    slurm.ask("scontrol", "suspend", number)
    wait_until(lambda: "SUSPENDED" in slurm.ask("squeue", "-h", "-o", "%T", f"--jobs={number}"))
    seen = site.look(ref)
    # Slurm says so before its node has done it, and a node that hears of both at once may stop it last.
    wait_until(lambda: _state_of_command(ref) == "T", show=lambda: _state_of_command(ref))
    slurm.ask("scontrol", "resume", number)
    (site.workdir / "go").touch()
    after = site.record(ref)

    assert (seen.phase, "suspended in Slurm" in seen.reason) == (Phase.RUNNING, True)
    assert after["code"] == 5


def test_a_copy_that_slurm_brings_back_does_not_run(site: Site, slurm: PrivateSlurm) -> None:
    one = site.submission("echo ran >> ran; exit 3")
    site.backend.submit([one])
    site.record(one.ref)
    source = Path(__file__).parents[2] / "src"
    start = f"import sys; sys.path.append({str(source)!r}); from dibs.supervise.batch_job import main"
    words = [sys.executable, "-I", "-S", "-c", f"{start}; sys.exit(main(sys.argv[1]))", one.ref.folder]

    slurm.ask(
        "sbatch", "--wait", "-o", "/dev/null", f"--job-name=dibs-{one.ref.key}.1", "--wrap", shlex.join(words)
    )
    seen = site.look(one.ref)

    assert seen.phase is Phase.ENDED and seen.record is not None and seen.record["code"] == 3
    assert site.wait_for("ran") == "ran\n"
