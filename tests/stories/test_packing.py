"""`--vram auto` from outside: a real daemon and real processes, whose memory on the card a file makes up."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from stories.outside import World, wait_until

GIB = 1024**3
# Signs in, then works until it is told to go; beside others it runs out of memory where it is told to.
TRAIN = """\
touch "running.$DIBS_JOB_ID"
trap 'rm -f "running.$DIBS_JOB_ID"' EXIT
until [ -e go ]; do
  if [ -e tight ] && [ "$(ls running.* | wc -l)" -gt 1 ] && [ "$DIBS_JOB_ID" != 1 ]; then
    echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB." >&2
    exit 1
  fi
  sleep 0.05
done
"""


class Card:
    """One H200 on which every job of the queue holds as much as the test says."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.path = Path(world.environ["DIBS_STATE"]).parent / "cards.json"
        self.show({})

    def show(self, memory: dict[int, int]) -> None:
        """Bytes, by pid."""
        card = {
            "index": 0,
            "uuid": "GPU-3f2a",
            "name": "NVIDIA H200",
            "memory_total": 141 * GIB,
            "memory_used": sum(memory.values()),
            "load": 80 if memory else 0,
            "processes": [{"pid": pid, "user": "ann", "memory": size} for pid, size in memory.items()],
        }
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps([card]))
        os.replace(new, self.path)

    def fill(self, gib: int) -> list[int]:
        """Let each job that runs hold so much; which ones run."""
        client = self._world.client()
        running = [job["id"] for job in client.jobs(state="running")]
        pids = [client.job(number)["attempts_list"][-1]["pid"] for number in running]
        self.show({pid: gib * GIB for pid in pids if pid})
        return sorted(running)


@pytest.fixture
def card(world: World) -> Card:
    made = Card(world)
    world.environ["DIBS_PROBE"] = f"fake:{made.path}"
    world.run_daemon(pool="all")
    world.write("train.sh", TRAIN)
    return made


def add(world: World, count: int, vram: str) -> None:
    lines = "".join(f"bash train.sh --lr 0.{number} --bs {number}\n" for number in range(count))
    ended = world.dibs("add", "--vram", vram, input=lines)
    assert ended.status == 0, ended


def info(world: World, job: int) -> dict[str, Any]:
    return world.client().job(job)


def is_measured(world: World, job: int) -> bool:
    usage = info(world, job)["usage"]
    return usage is not None and usage["peak_vram_bytes"] == 9 * GIB and usage["seconds"] >= 2


def test_eight_share_a_card_once_the_first_has_shown_what_they_need(world: World, card: Card) -> None:
    add(world, 8, "auto")
    wait_until(lambda: card.fill(0) == [1])  # as long as it holds nothing, it has shown nothing
    shows = "GPU 0 is held by job 1, which shows how much memory jobs like this need"
    wait_until(lambda: shows in world.dibs("why", "8").stdout, show=lambda: world.dibs("why", "8"))

    wait_until(lambda: len(card.fill(9)) == 8, show=lambda: card.fill(9), seconds=60)

    first = info(world, 1)
    assert (first["vram"], first["vram_bytes"]) == ("auto", None)
    assert first["shape"].endswith("/train.sh --bs --lr")
    assert 9 * GIB < first["attempts_list"][0]["vram_bytes"] < 14 * GIB
    wait_until(lambda: card.fill(9) and all(is_measured(world, job) for job in range(1, 9)), seconds=60)
    (world.folder / "go").touch()
    assert {job["state"] for job in world.wait_for(*range(1, 9))} == {"succeeded"}
    (lesson,) = json.loads(world.dibs("lessons", "--json").stdout)
    assert (lesson["peak_vram_bytes"], lesson["gpu"], lesson["runs"]) == (9 * GIB, "NVIDIA H200", 8)
    said = world.dibs("add", "--dry-run", "--vram", "auto", "--", "bash train.sh --lr 1 --bs 2").stdout
    assert "jobs of this shape needed 9G on NVIDIA H200 in 8 runs; 10.2G is booked for the next" in said
    told = world.dibs("info", "8").stdout
    assert "9G on NVIDIA H200 in 8 runs" in told
    assert re.search(r"booked +1[0-9.]+G on each", told)


def test_lessons_are_listed_and_forgotten(world: World, card: Card) -> None:
    assert "nothing was learned yet" in world.dibs("lessons").stderr
    said = world.dibs("add", "--dry-run", "--vram", "auto:12G", "--", "bash train.sh --lr 1 --bs 2").stdout
    assert "until one shows how much memory it needs, each books 12G" in said
    add(world, 1, "auto")
    wait_until(lambda: card.fill(9) and is_measured(world, 1), seconds=60)
    (world.folder / "go").touch()
    world.wait_for(1)

    table = world.dibs("lessons").stdout.splitlines()
    (lesson,) = json.loads(world.dibs("lessons", "--json").stdout)

    assert table[0].split() == ["peak", "booked", "CPUs", "memory", "runs", "GPU", "shape"]
    assert table[1].split()[:2] == ["9G", "10.2G"]
    assert world.dibs("lessons", "--forget", lesson["shape"]).stderr == "forgot 1 lesson\n"
    again = world.dibs("lessons", "--forget", lesson["shape"])
    assert (again.status, "nothing is known of" in again.stderr) == (2, True)
    assert json.loads(world.dibs("lessons", "--forget", "all", "--json").stdout) == {"removed": 0}


def test_who_runs_out_of_memory_in_company_is_tried_again_alone(world: World, card: Card) -> None:
    (world.folder / "tight").touch()
    add(world, 2, "auto:12G")

    wait_until(lambda: len(info(world, 2)["attempts_list"]) == 1 and info(world, 2)["state"] == "queued")

    second = info(world, 2)
    assert second["attempts_list"][0]["cause"] == "gpu-oom"
    assert second["attempts_list"][0]["message"].endswith("and is tried again with the card to itself")
    # The card is looked at after such an end, and held again by what still runs there once that is done.
    wait_until(
        lambda: "a GPU to itself: GPU 0 is held by job 1" in info(world, 2)["reason"]["sentence"],
        show=lambda: info(world, 2)["reason"],
    )
    (lesson,) = json.loads(world.dibs("lessons", "--json").stdout)
    assert lesson["needs_card"]
    assert "each to itself" in world.dibs("info", "2").stdout
    world.dibs("kill", "1")
    wait_until(lambda: card.fill(30) == [2])
    assert info(world, 2)["attempts_list"][1]["share"] == "1"
    (world.folder / "go").touch()
    (second,) = world.wait_for(2)
    assert (second["state"], second["attempts"]) == ("succeeded", 2)


def test_a_list_in_the_foreground_learns_too(world: World, card: Card) -> None:
    world.write("jobs.txt", [f"[vram=auto] sleep 0.{number}" for number in range(3)])

    ended = world.dibs("run", "-f", "jobs.txt", "--gpus", "0")

    assert ended.status == 0, ended


@pytest.mark.parametrize("size", ["auto:", "auto:x", "autos", "auto:0"])
def test_what_cannot_be_meant_is_refused(world: World, size: str) -> None:
    ended = world.dibs("add", "--vram", size, "--", "true", env={"DIBS_NO_START": "1"})

    assert ended.status == 2
    assert "as vram" in ended.stderr
