"""GPUs leased for a process of one's own: never two on one card, whoever else asks, and freed however it ends."""

import json
import os
import signal
import subprocess
import sys
import threading
import types

import pytest

import dibs
from dibs.api import gpu as gpu_module
from dibs.api import gpu_leasing
from dibs.leases.leases import Leases
from leases.claims import some_leases, took
from stories.outside import DIBS, Running, World, wait_until

# Signs in and out in a file while it has its GPU, as the jobs of other tests do.
SIGNS = """
import dibs, os, sys, time
def sign(word):
    with open(os.environ["LEDGER"], "a") as file:
        file.write(f"{word} {sys.argv[1]} {os.environ['DIBS_GPUS']} {os.getpid()}\\n")
for _ in range(int(sys.argv[2])):
    with dibs.gpu(int(sys.argv[3]), gpus="0,1"):
        sign("start")
        time.sleep(float(sys.argv[4]))
        sign("end")
"""


def script(world: World, name: str, *, times: int = 1, gpus: int = 1, seconds: float = 0.02) -> Running:
    return world.start(program=[sys.executable, "-c", SIGNS, name, str(times), str(gpus), str(seconds)])


def waiting(world: World) -> list[str]:
    """The names of those who have left a wish."""
    return [one.job for one in Leases(str(world.leases), uid=os.geteuid(), user="test").waiting()]


@pytest.fixture
def no_cuda_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_module, "_cards_of_cuda", ())


def test_the_environment_names_the_gpus_inside_of_the_block_only(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    before = dict(os.environ)

    with dibs.gpu(2, gpus="0,1,2", only="1,2", name="mine") as leased:
        ids, inside = leased.ids, dict(os.environ)
        (first, second) = here.holders()

    assert ids == (1, 2)
    assert (inside["CUDA_VISIBLE_DEVICES"], inside["CUDA_DEVICE_ORDER"]) == ("1,2", "PCI_BUS_ID")
    assert (first.pid, first.job, second.gpu) == (os.getpid(), "mine", "index-2")
    assert dict(os.environ) == before
    assert leased.ids == ()
    assert here.holders() == []


def test_two_processes_never_have_the_same_gpu(here: World) -> None:
    scripts = [script(here, f"p{number}", times=6) for number in range(5)]
    scripts.append(script(here, "wide", times=3, gpus=2))

    ended = [one.wait(120) for one in scripts]

    assert [one.status for one in ended] == [0] * 6, ended
    assert here.ledger.overlaps() == []
    assert len(here.ledger.ended()) == 33


def test_whoever_came_first_is_first(here: World) -> None:
    with dibs.gpu(2, gpus="0,1"):
        first = script(here, "first", gpus=2)
        wait_until(lambda: len(waiting(here)) == 2)
        second = script(here, "second", gpus=1, seconds=0.2)
        wait_until(lambda: len(waiting(here)) >= 3)

    assert [first.wait().status, second.wait().status] == [0, 0]
    assert here.ledger.started() == ["first", "second"]
    assert here.ledger.overlaps() == []


def test_one_that_does_not_want_to_wait_is_told_who_has_it(here: World) -> None:
    holder = script(here, "holder", gpus=2, seconds=60)
    wait_until(lambda: here.ledger.started() == ["holder"])

    with pytest.raises(dibs.NoGpuNow, match=f"pid {holder.pid}"):
        dibs.gpu(gpus="0,1", wait=False).take()
    with pytest.raises(dibs.NoGpuNow):
        dibs.gpu(gpus="0,1", wait=0.3).take()

    assert waiting(here) == []
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_a_killed_process_holds_nothing(here: World) -> None:
    holder = script(here, "holder", gpus=2, seconds=60)
    wait_until(lambda: here.ledger.started() == ["holder"])

    holder.kill()

    with dibs.gpu(2, gpus="0,1", wait=20) as leased:
        assert leased.ids == (0, 1)


def test_a_folder_that_somebody_names_in_the_block_is_left_alone(here: World) -> None:
    other = here.folder / "precious"
    other.mkdir()

    with dibs.gpu(gpus="0"):
        os.environ["DIBS_LEASES"] = str(other)

    assert other.is_dir()
    assert os.environ["DIBS_LEASES"] == str(here.leases)


def test_it_can_be_taken_and_released_by_hand(here: World) -> None:
    leased = dibs.gpu(gpus="0").take()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    leased.release()
    leased.release()

    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    assert here.holders() == []


def test_a_process_has_one_lease_at_a_time(here: World) -> None:
    with dibs.gpu(gpus="0,1"), pytest.raises(dibs.BadInput, match="has leased GPU 0 already"):
        dibs.gpu(gpus="0,1").take()


def test_one_that_does_not_want_to_wait_does_not_wait_for_another_thread(here: World) -> None:
    elsewhere = script(here, "elsewhere", seconds=600)
    wait_until(here.holders)
    patient = threading.Thread(target=lambda: dibs.gpu(gpus="0").take().release(), daemon=True)
    patient.start()
    wait_until(lambda: waiting(here))
    told: list[str] = []

    def ask() -> None:
        with pytest.raises(dibs.BadInput) as refused:
            dibs.gpu(gpus="0", wait=False).take()
        told.append(refused.value.message)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(20)

    assert told == ["this process waits for GPUs already"]
    elsewhere.kill()
    patient.join(20)
    assert not patient.is_alive()
    with dibs.gpu(gpus="0", wait=20) as leased:  # whoever waited has left nothing behind
        assert leased.ids == (0,)


def test_after_a_wait_in_vain_it_can_be_tried_again(here: World) -> None:
    elsewhere = script(here, "elsewhere", seconds=600)
    wait_until(here.holders)
    lease = dibs.gpu(gpus="0", wait=False)
    with pytest.raises(dibs.NoGpuNow):
        lease.take()

    elsewhere.kill()
    wait_until(lambda: not here.holders())
    with lease:
        assert lease.ids == (0,)


def test_parts_of_a_card_are_shared(here: World) -> None:
    code = "import dibs\nwith dibs.gpu(gpus='0', share=0.5, wait=20) as g: print(*g.ids)"

    with dibs.gpu(gpus="0", share=0.5):
        # As another process that was not started in here.
        beside = here.start(program=[sys.executable, "-c", code]).wait()

    assert (beside.status, beside.stdout) == (0, "0\n"), beside


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"num_gpus": 0}, "cannot lease 0 GPUs"),
        ({"num_gpus": 3, "gpus": "0,1"}, "it wants 3 GPUs"),
        ({"gpus": "zero"}, "as a GPU"),
        ({"vram": "much"}, "as vram"),
        ({"wait": "long"}, "as wait"),
        ({"wait": None}, "as wait"),
        ({"wait": float("nan")}, "as wait"),
    ],
)
def test_what_can_never_be_had_is_refused(here: World, wishes: dict[str, object], words: str) -> None:
    with pytest.raises(dibs.BadInput, match=words):
        dibs.gpu(**wishes).take()  # type: ignore[arg-type]


def test_a_machine_without_a_gpu_says_so(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIBS_POOL")
    with pytest.raises(dibs.NoGpu, match="there is no driver"):
        dibs.gpu().take()


# -- beside the queue and inside of jobs ------------------------------------------------------------------


def test_the_queue_and_a_lease_keep_off_each_others_gpus(here: World) -> None:
    with dibs.gpu(gpus="0,1") as leased:
        # The daemon that this starts is everybody's: it must see our lease, and not the leases within it.
        both = dibs.submit("sleep 60", num_gpus=2)
        one = dibs.submit("echo $CUDA_VISIBLE_DEVICES; sleep 60", num_gpus=1, priority=1)
        wait_until(lambda: one.state == "running", show=one.why)
        assert one.gpus == tuple({0, 1} - set(leased.ids))
        assert both.state == "queued"

    one.cancel()
    wait_until(lambda: both.state == "running", show=both.why)
    with pytest.raises(dibs.NoGpuNow, match="waits for"):
        dibs.gpu(gpus="0,1", wait=False).take()


def test_the_setting_names_the_gpus_also_of_a_lease_and_of_a_run(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIBS_POOL", "1")
    show = 'echo "$CUDA_VISIBLE_DEVICES"'

    with dibs.gpu(wait=False) as leased:
        ids = leased.ids
    ran = here.dibs("run", "--raw", "--", show, env={"DIBS_POOL": "1"})
    inside = here.dibs(
        "run", "--gpus", "2", "--raw", "--", DIBS, "run", "--raw", "--", show, env={"DIBS_POOL": "1"}
    )

    assert ids == (1,)
    assert (ran.stdout, inside.stdout) == ("1\n", "2\n"), (ran, inside)


def test_inside_of_a_job_the_gpus_are_the_jobs_own(here: World) -> None:
    code = "import dibs, os\nwith dibs.gpu(wait=20) as g: print(*g.ids, os.environ['CUDA_VISIBLE_DEVICES'])"

    ended = here.dibs("run", "--gpus", "1", "--raw", "--", sys.executable, "-c", code)

    assert (ended.status, ended.stdout) == (0, "1 1\n"), ended


def test_commands_started_in_the_block_may_lease_what_it_has(here: World) -> None:
    with dibs.gpu(gpus="0,1", only="1"):
        ended = subprocess.run(
            [DIBS, "run", "--raw", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"],
            capture_output=True,
            text=True,
            timeout=30,
        )

    assert (ended.returncode, ended.stdout) == (0, "1\n"), ended
    assert os.listdir(here.state / "lent") == []


def test_a_fork_keeps_the_gpu_until_it_has_ended_too(here: World) -> None:
    go_on = os.pipe()
    with dibs.gpu(gpus="0") as leased:
        pid = os.fork()
        if not pid:
            os.read(go_on[0], 1)
            leased.release()  # its own copy
            os._exit(len(leased.ids))
    is_held = len(here.holders())

    os.write(go_on[1], b"x")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert (is_held, status, here.holders()) == (1, 0, [])


def test_leaving_the_block_in_a_fork_leaves_everything_to_the_parent(here: World) -> None:
    with dibs.gpu(gpus="0") as leased:
        inner = os.environ["DIBS_LEASES"]
        os.mkdir(inner, 0o700)  # as whoever leases in here does
        pid = os.fork()
        if not pid:
            leased.release()
            os._exit(0 if os.environ["CUDA_VISIBLE_DEVICES"] == "0" else 1)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        assert (status, len(here.holders()), os.path.isdir(inner)) == (0, 1, True)
    assert not os.path.exists(inner)


def test_dibs_gpus_shows_the_whole_machine_in_a_block_and_in_a_job(here: World) -> None:
    look = [DIBS, "gpus", "--json"]

    def states(shown: str) -> dict[int, list[str]]:
        return {gpu["index"]: [one["job"] for one in gpu["holders"]] for gpu in json.loads(shown)}

    with dibs.gpu(gpus="0", name="block"):
        in_block = states(subprocess.run(look, capture_output=True, text=True, check=True).stdout)
        job = dibs.submit(look, num_gpus=1)
        assert job.result(60) == 0
    in_job = states(job.log(stream="stdout"))

    assert in_block == {0: ["block"]}
    assert in_job == {0: ["block"], 1: [str(job.id)]}


def test_a_lease_obeys_the_setting_gpus_also_when_it_is_changed(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DIBS_POOL")  # which goes before the setting
    here.dibs("config", "set", "gpus", "1")
    with dibs.gpu() as leased:
        assert leased.ids == (1,)
    with pytest.raises(dibs.BadInput, match="it wants 2 GPUs"):
        dibs.gpu(2).take()
    here.dibs("config", "set", "gpus", "0")
    with dibs.gpu() as leased:
        assert leased.ids == (0,)


def test_a_lease_file_deleted_in_the_block_is_made_again_and_an_overlap_is_logged(
    here: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gpu_leasing, "_CHECK_EVERY", 0.01)
    path = f"{here.leases}/dibs-claim-index-0-{os.geteuid()}-0"
    with dibs.gpu(gpus="0", name="mine"):
        os.unlink(path)
        wait_until(here.holders)
        os.unlink(path)
        other = took(some_leases(str(here.leases)), job="other")
        wait_until(lambda: "is overbooked: it is held by job " in caplog.text, show=lambda: caplog.text)
        other.close()

    assert f"the lease file {path} was deleted; it was made again" in caplog.text
    assert here.holders() == []


def test_no_thread_of_the_lease_lives_during_a_fork(here: World) -> None:
    with dibs.gpu(gpus="0"):
        pid = os.fork()
        if not pid:
            os._exit(threading.active_count())
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        names = [thread.name for thread in threading.enumerate()]

    assert (status, "dibs-leases" in names) == (1, True)
    assert "dibs-leases" not in [thread.name for thread in threading.enumerate()]


# -- what the cards say -----------------------------------------------------------------------------------


def cards(world: World, monkeypatch: pytest.MonkeyPatch, *processes: list[dict[str, object]]) -> None:
    listed = [
        {"index": index, "uuid": f"GPU-{index}", "memory_total": 80 << 30, "processes": found}
        for index, found in enumerate(processes)
    ]
    path = world.folder.parent / "cards.json"
    path.write_text(json.dumps(listed))
    monkeypatch.setenv("DIBS_PROBE", f"fake:{path}")
    world.environ["DIBS_PROBE"] = f"fake:{path}"


def test_a_card_on_which_a_stranger_computes_is_not_free(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = subprocess.Popen(["sleep", "1000"], env={})
    try:
        busy = {"pid": stranger.pid, "user": "ann", "memory": 1 << 30, "kind": "compute", "name": "python"}
        cards(here, monkeypatch, [busy], [])
        with dibs.gpu() as leased:
            assert leased.ids == (1,)
        cards(here, monkeypatch, [busy], [busy])
        with pytest.raises(dibs.NoGpuNow, match="ann"):
            dibs.gpu(wait=False).take()
    finally:
        stranger.kill()
        stranger.wait()
    with dibs.gpu(2, wait=20) as leased:
        assert leased.ids == (0, 1)


def test_a_process_that_holds_a_part_is_no_stranger_on_that_card(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import dibs, time\nwith dibs.gpu(share=0.5, only='0'): print('has it', flush=True); time.sleep(60)"
    cards(here, monkeypatch, [], [])
    holder = here.start(program=[sys.executable, "-c", code])
    wait_until(lambda: holder.stdout == "has it\n", show=lambda: holder.stderr)
    computes = {"pid": holder.pid, "user": "ann", "memory": 1 << 30, "kind": "compute", "name": "python"}

    cards(here, monkeypatch, [computes], [])
    with dibs.gpu(share=0.5, only=0, wait=20) as leased:
        assert leased.ids == (0,)
    cards(here, monkeypatch, [computes], [computes])  # of this card it holds nothing
    with pytest.raises(dibs.NoGpuNow, match="GPU 1"):
        dibs.gpu(share=0.5, only=1, wait=False).take()


def test_a_driver_that_does_not_answer_gives_no_gpu(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = here.folder.parent / "cards.json"
    path.write_text(json.dumps({"fail": "on fire", "gpus": []}))
    monkeypatch.setenv("DIBS_PROBE", f"fake:{path}")

    with pytest.raises(dibs.DibsError, match="on fire"):
        dibs.gpu(wait=False).take()


# -- CUDA that has started --------------------------------------------------------------------------------


def torch_that(started: bool) -> types.ModuleType:
    """As much of torch as is asked."""
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(is_initialized=lambda: started)  # type: ignore[attr-defined]
    return torch


def test_a_process_that_uses_a_gpu_already_is_refused(
    here: World, monkeypatch: pytest.MonkeyPatch, no_cuda_yet: None
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_that(True))

    with pytest.raises(dibs.DibsError, match="CUDA has started in it"):
        dibs.gpu(gpus="0,1").take()

    assert here.holders() == []


def test_a_cell_that_is_run_again_gets_the_gpu_that_cuda_knows(
    here: World, monkeypatch: pytest.MonkeyPatch, no_cuda_yet: None
) -> None:
    with dibs.gpu(gpus="0,1", prefer="1") as leased:
        monkeypatch.setitem(sys.modules, "torch", torch_that(True))  # the first use of a GPU in here
        first = leased.ids

    with dibs.gpu(gpus="0,1", prefer="0") as leased:
        again = leased.ids

    assert first == again == (1,)
    with pytest.raises(dibs.DibsError, match="ignores GPUs leased later"):
        dibs.gpu(2, gpus="0,1").take()


def test_torch_that_is_only_imported_does_no_harm(
    here: World, monkeypatch: pytest.MonkeyPatch, no_cuda_yet: None
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_that(False))

    with dibs.gpu(gpus="0") as leased:
        assert leased.ids == (0,)


def test_a_waiter_that_is_interrupted_leaves_no_wish(here: World) -> None:
    code = "import dibs\ntry:\n    dibs.gpu(2, gpus='0,1').take()\nexcept KeyboardInterrupt:\n    print('left')"
    with dibs.gpu(gpus="0,1", name="we"):
        # Not as somebody inside of our block: as a stranger.
        waiter = here.start(program=[sys.executable, "-c", code])
        wait_until(lambda: waiting(here))
        waiter.signal(signal.SIGINT)
        ended = waiter.wait()

        assert (ended.status, ended.stdout) == (0, "left\n")
        assert waiting(here) == []


def test_it_works_where_there_is_no_file_to_run(here: World) -> None:
    code = "import dibs\nwith dibs.gpu(gpus='0') as g: print(*g.ids)\n"

    piped = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, timeout=30)

    assert (piped.returncode, piped.stdout) == (0, "0\n"), piped
