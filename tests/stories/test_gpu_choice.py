"""Which GPU a job gets."""

import json
import subprocess
from pathlib import Path

import pytest

from stories.outside import DIBS, World, wait_until

READINGS = Path(__file__).parents[1] / "data/readings/four_cards.json"


def test_an_id_given_twice_is_two_slots(world: World) -> None:
    jobs = world.ledger.rounds(6, at_once=3)

    ended = world.dibs("run", "--gpus", "0,0,1", input="\n".join(jobs))

    assert ended.status == 0, ended
    assert world.ledger.overlaps(slots=2) == []
    assert world.ledger.most_at_once() == 3
    assert sum(line[0] == "start" and line[2] == "1" for line in world.ledger.lines) < 4


def test_groups_are_given_whole(world: World) -> None:
    jobs = world.ledger.rounds(4, at_once=2)

    ended = world.dibs("run", "--gpus", "0+1,2+3", input="\n".join(jobs))

    assert ended.status == 0, ended
    assert set(world.ledger.gpus().values()) == {"0,1", "2,3"}
    assert world.ledger.overlaps() == []


def test_a_job_may_want_two_gpus_and_gets_a_port_to_meet(world: World) -> None:
    jobs = [world.ledger.job(number, 0.05) for number in range(3)]

    ended = world.dibs("run", "--gpus", "0,1,2", "-n", "2", input="\n".join([*jobs, "echo port=$MASTER_PORT"]))

    assert ended.status == 0, ended
    assert all(len(gpus.split(",")) == 2 for gpus in world.ledger.gpus().values())
    assert world.ledger.overlaps() == []
    assert ended.stdout.startswith("[4] port=") and int(ended.stdout.split("=")[1]) > 1023


def test_a_job_knows_its_gpus_in_every_usual_way(world: World) -> None:
    ended = world.dibs(
        "run", "--gpus", "1,4", "-n", "2", "--raw", input="echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $GPU"
    )

    assert ended.stdout == "1,4 PCI_BUS_ID cuda1,cuda4\n"


def test_a_preferred_gpu_is_taken_first(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0,1,2,3", "--prefer", "3", input=world.ledger.job("x"))

    assert (ended.status, world.ledger.gpus()) == (0, {"x": "3"})


def test_only_waits_for_exactly_that_gpu(world: World) -> None:
    jobs = [world.ledger.job(number, 0.05) for number in range(3)]

    ended = world.dibs("run", "--gpus", "0,1,2", "--only", "2", input="\n".join(jobs))

    assert ended.status == 0
    assert set(world.ledger.gpus().values()) == {"2"}
    assert world.ledger.overlaps() == []


def test_without_waiting_a_taken_gpu_is_75_and_the_sentence_says_who_has_it(world: World) -> None:
    other = world.start("run", "--gpus", "0", "--", "sleep", "60")
    wait_until(world.holders)

    ended = world.dibs("run", "--gpus", "0", "--no-wait", input=world.ledger.job("x"))

    assert ended.status == 75
    assert f"job 1 of root (pid {other.pid})" in ended.stderr
    assert world.ledger.lines == []


def test_without_waiting_a_free_gpu_is_used_for_the_whole_list(world: World) -> None:
    jobs = [world.ledger.job(number) for number in range(4)]

    ended = world.dibs("run", "--gpus", "0", "--no-wait", input="\n".join(jobs))

    assert ended.status == 0, ended
    assert len(world.ledger.ended()) == 4


def test_an_inherited_choice_of_gpus_is_respected(world: World) -> None:
    jobs = world.ledger.rounds(4, at_once=2)

    environ = {"CUDA_VISIBLE_DEVICES": "2,1", "DIBS_PROBE": f"fake:{READINGS}"}
    ended = world.dibs("run", input="\n".join(jobs), env=environ)

    assert ended.status == 0, ended
    assert set(world.ledger.gpus().values()) == {"1", "2"}


def test_without_any_gpu_there_is_a_sentence_with_the_fix(world: World) -> None:
    ended = world.dibs("run", input="true")

    assert ended.status == 2
    assert "--gpus" in ended.stderr
    assert len(ended.said) == 2


def test_a_run_inside_a_job_uses_that_jobs_gpus(world: World) -> None:
    world.write("inner.txt", world.ledger.rounds(4, at_once=2))

    ended = world.dibs("run", "--gpus", "4,6,7", "-n", "2", "--only", "6,7", "--", DIBS, "run", "-f", "inner.txt")

    assert ended.status == 0, ended
    assert set(world.ledger.gpus().values()) == {"6", "7"}
    assert world.ledger.overlaps() == []


def test_a_run_inside_a_job_cannot_have_other_gpus(world: World) -> None:
    ended = world.dibs("run", "--gpus", "4", "--", DIBS, "run", "--gpus", "5", "--", "true")

    assert ended.status == 2
    assert "this runs inside a job of dibs" in ended.stderr


def test_gpus_can_be_added_and_drained_in_the_gpu_file_while_it_runs(world: World) -> None:
    world.write("gpus", "0\n")
    running = world.start("run", "--gpus-file", "gpus", stdin=subprocess.PIPE)
    running.say(world.ledger.held("a") + "\n" + world.ledger.job("b", 0.1) + "\n")
    wait_until(lambda: world.ledger.gpus().get("a") == "0", show=lambda: running.stderr)

    world.write("gpus", "1\n")  # 0 is drained, 1 is new
    wait_until(lambda: "b" in world.ledger.ended(), show=lambda: running.stderr)
    assert world.ledger.running() == ["a"]  # what runs on the drained one is not touched
    world.write("go", "")
    running.say("".join(world.ledger.job(name) + "\n" for name in "cd"))
    ended = running.wait()

    assert ended.status == 0, ended
    assert world.ledger.gpus() == {"a": "0", "b": "1", "c": "1", "d": "1"}


def test_a_job_that_comes_while_all_gpus_are_drained_waits(world: World) -> None:
    world.write("gpus", "0\n")
    running = world.start("run", "--gpus-file", "gpus", "--json", stdin=subprocess.PIPE)
    running.say(world.ledger.job("first") + "\n")
    wait_until(lambda: world.ledger.ended() == ["first"], show=lambda: running.stderr)

    world.write("gpus", "# none for now\n")
    names = []
    while "no GPU may be used now" not in running.stdout:  # until it has read the file again
        names.append(f"job{len(names)}")
        running.say(world.ledger.job(names[-1]) + "\n")
        wait_until(
            lambda: names[-1] in world.ledger.ended() or "no GPU may be used now" in running.stdout,
            show=lambda: running.stdout,
        )
    world.write("gpus", "3")
    ended = running.wait()

    assert ended.status == 0, ended
    assert world.ledger.gpus()[names[-1]] == "3"


def test_a_run_may_begin_without_any_gpu_in_its_file(world: World) -> None:
    world.write("gpus", "")
    running = world.start("run", "--gpus-file", "gpus", "-n", "2", "--json", "--", "true")
    wait_until(lambda: "no GPU may be used now" in running.stdout, show=lambda: running.stderr)

    world.write("gpus", "1,2")

    assert running.wait().status == 0


def test_no_wait_is_patient_while_the_cards_are_looked_at(world: World) -> None:
    """After each job the card is asked before it is given away again: that is no waiting."""
    jobs = [world.ledger.job(number) for number in range(3)]
    environ = {"DIBS_PROBE": f"fake:{READINGS}"}

    ended = world.dibs("run", "--gpus", "1", "--no-wait", input="\n".join(jobs), env=environ)

    assert ended.status == 0, ended
    assert len(world.ledger.ended()) == 3


def test_a_busy_card_is_left_alone_until_it_is_free(world: World) -> None:
    """A process that never asked dibs is on card 0; the others are not allowed."""
    stranger = subprocess.Popen(["sleep", "100"])
    cards = json.loads(READINGS.read_text())
    cards["gpus"][0]["processes"] = [{"pid": stranger.pid, "user": "ann", "memory": 1 << 30, "kind": "compute"}]
    probe = world.folder.parent / "cards.json"
    probe.write_text(json.dumps(cards))
    environ = {"DIBS_PROBE": f"fake:{probe}"}

    refused = world.dibs("run", "--gpus", "0", "--no-wait", input=world.ledger.job("now"), env=environ)
    running = world.start("run", "--gpus", "0", "--", "bash", "-c", world.ledger.job("later"), env=environ)
    wait_until(lambda: "is busy (ann" in running.stderr, show=lambda: running.stderr)
    stranger.kill()
    stranger.wait()
    ended = running.wait()

    assert refused.status == 75
    assert f"GPU 0 is busy (ann, pid {stranger.pid}, 1G)" in refused.stderr
    assert ended.status == 0
    assert world.ledger.ended() == ["later"]


def test_nothing_starts_on_a_card_that_was_not_looked_at_yet(world: World) -> None:
    stranger = subprocess.Popen(["sleep", "100"])
    cards = json.loads(READINGS.read_text())
    cards["gpus"][0]["processes"] = [{"pid": stranger.pid, "user": "ann", "memory": 1 << 30, "kind": "compute"}]
    cards["hang_seconds"] = 0.5
    probe = world.folder.parent / "cards.json"
    probe.write_text(json.dumps(cards))

    ended = world.dibs(
        "run", "--gpus", "0,1", "--no-wait", input=world.ledger.job("x"), env={"DIBS_PROBE": f"fake:{probe}"}
    )

    stranger.kill()
    stranger.wait()
    assert ended.status == 0, ended
    assert world.ledger.gpus() == {"x": "1"}


@pytest.mark.parametrize("vram, status", [("100G", 0), ("200G", 2)])
def test_memory_is_asked_of_the_cards(world: World, vram: str, status: int) -> None:
    environ = {"DIBS_PROBE": f"fake:{READINGS}"}

    ended = world.dibs("run", "--gpus", "1,2", "--vram", vram, input=world.ledger.job("x"), env=environ)

    assert ended.status == status, ended
    assert len(world.ledger.ended()) == (status == 0)
