"""Each bad input gets one sentence and exit 2, or is one failed job; and no GPU is lost."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stories.outside import NOBODY, Finished, World, needs_root, wait_until

READINGS = Path(__file__).parents[1] / "data/readings/four_cards.json"


@pytest.fixture(autouse=True)
def no_gpu_is_lost(world: World) -> Iterator[None]:
    """Whatever happened before, the next one starts at once."""
    yield
    ended = world.dibs("run", "--gpus", "0,1,2,3", "-n", "4", "--no-wait", "--", "true")
    assert ended.status == 0, ended


def is_one_sentence(ended: Finished, *words: str) -> bool:
    """An error, below it the remedy, and nothing else."""
    lines = ended.said
    assert "Traceback" not in ended.stderr
    assert all(word in ended.stderr for word in words), ended.stderr
    return ended.stdout == "" and len(lines) == 2 and lines[0].startswith("dibs: error: ") and lines[1][:2] == "  "


def test_unknown_and_negative_gpus(world: World) -> None:
    named = {"99": "99", "-1": "-1", "0,-1": "-1", "": "no GPU", "a b": "a b", "0,,1": "''", "GPU-3f": "GPU-3f"}

    for gpus, word in named.items():
        ended = world.dibs("run", "--gpus", gpus, input="true", env={"DIBS_PROBE": f"fake:{READINGS}"})

        assert (gpus, ended.status) == (gpus, 2)
        assert is_one_sentence(ended, word)


REFUSED = [  # the words behind `dibs run`, and what is said
    *(
        (("--gpus", "0", "-n", count, "-f", "jobs.txt"), "-n")
        for count in ("-1", "1.5", "nan", "x", "1e300", "9" * 300)
    ),
    (
        ("--gpus", "0,1", "-n", "3", "-f", "jobs.txt"),
        "a job like this could never start: it wants 3 GPUs, but only 2 may be used",
    ),
    *(
        (("--gpus", "0", "-f", name), "cannot read the job file")
        for name in ("missing.txt", "missing.py", ".", "")
    ),
    (("--gpus", "0", "-f", "bad.py"), "bad.py line 1: SyntaxError"),
    (("--gpus", "0", "-p", "lr", "1", "--", "echo", "{lr}", "{nope}"), "nope"),
    (("--gpus", "0", "-p", "lr", "--", "echo", "{lr}"), "lr"),
    # What stands in the wrong place is not guessed but shown.
    (("nosuchprogram", "train.py"), "dibs run -- nosuchprogram train.py"),
    (("--gpus", "0", "python", "train.py", "-n", "2"), "dibs run --gpus 0 -- python train.py -n 2"),
    (("-p", "lr", "0.1", "python", "train.py", "--lr", "{lr}"), "a command and its options stand behind --"),
    (("--gpus", "0", "jobs.txt"), "dibs run -f jobs.txt"),
    (("--gpus", "0", "1", "2"), "write --gpus 0,1,2"),
    (("--gpus", "0,", "1", "python", "train.py"), "write --gpus 0,1"),
    (("-f",), "`dibs run --help`"),
    # What cannot be meant.
    (("--gpus", "0", "--gpus-file", "x", "--", "true"), ""),
    (("--gpus-file", "missing", "--", "true"), ""),
    (("--gpus", "0", "--"), ""),
    (("--gpus", "0", "-", "--", "true"), ""),
    (("--gpus", "0", "--resume", "../x"), ""),
    (("--gpus", "0", "--output-dir", "nothing", "--resume"), ""),
    (("--gpus", "0", "-t", "soon", "--", "true"), ""),
    (("--gpus", "0", "--share", "2", "--", "true"), ""),
    (("--gpus", "0", "--vram", "-1G", "--", "true"), ""),
    (("--gpus", "0", "--only", "7", "--", "true"), ""),
    (("--gpus", "0", "--prefer", "7", "--", "true"), ""),
    (("-n", "0", "--prefer", "0", "--", "true"), ""),
    (("--gpus", "0", "-C", "missing", "--", "true"), ""),
    (("--gpus", "0", "--retries", "-1", "--", "true"), ""),
    (("--gpus", "0", "--no-such-option", "--", "true"), ""),
    (("--gpus", "0", "--", ""), ""),
]


def test_what_cannot_be_meant_is_one_sentence(world: World) -> None:
    world.write("jobs.txt", ["true"])
    world.write("bad.py", "def yielder(:\n")

    for arguments, words in REFUSED:
        ended = world.dibs("run", *arguments)

        assert (arguments, ended.status) == (arguments, 2), ended
        assert is_one_sentence(ended, words), (arguments, ended)


def test_a_run_that_is_not_named_right_is_looked_for_where_runs_are(world: World) -> None:
    for arguments in (("--resume", "no-such-run"), ("--resume",)):
        ended = world.dibs("run", "--gpus", "0", *arguments)

        assert (arguments, ended.status) == (arguments, 2)
        assert is_one_sentence(
            ended, "printed when the run began", f"folders in {world.folder.parent}/state", "/runs\n"
        )


def test_a_file_that_is_no_text(world: World) -> None:
    for start in (b"\x7fELF", b"PK\x03\x04", b"\x80\x04\x95", b"\x1f\x8b\x08", b"\xff\xfee\0"):
        (world.folder / "jobs").write_bytes(start + b"\necho never\n")

        ended = world.dibs("run", "--gpus", "0", "-f", "jobs")

        assert (start, ended.status) == (start, 2)
        assert is_one_sentence(ended, "'jobs': it is not a text file")


_PLACE = "job 2 cannot run: stdin:2: "
BAD_LINES = {  # the second line of a list, and what is said
    "[num_gpus=3] true": "job 2 cannot run: it wants 3 GPUs, but only 2 may be used",
    "echo a\0b": "stdin:2: the command contains a NUL byte",
    f"echo {'x' * 131_072}": "Linux takes at most 131071 in one piece",
    f"echo {'x' * 3_000_000}": "",
    '{"command": "true", "num_gpus": true}': _PLACE,
    '{"command": "true", "num_gpus": NaN}': _PLACE,
    '{"command": "true", "num_gpus": 1e300}': _PLACE,
    '{"command": "true", "command": "false"}': _PLACE,
    '{"command": 7}': _PLACE,
    '{"nope": 1}': _PLACE,
    "[num_gpus=-1] true": _PLACE,
    "[what=1] true": _PLACE,
    "[num_gpus=1 true": _PLACE,
    "<<<\nnever closed": _PLACE,
}


def test_a_bad_line_is_one_failed_job_with_its_place(world: World) -> None:
    for count, (line, words) in enumerate(BAD_LINES.items(), 1):
        ended = world.dibs("run", "--gpus", "0,1", input=f"{world.ledger.job('good')}\n{line}")

        assert (line, ended.status) == (line, 1)
        assert world.ledger.ended() == ["good"] * count
        assert words in ended.stderr and "Traceback" not in ended.stderr, ended
        assert len(ended.stderr) < 5000


def test_the_longest_command_still_runs(world: World) -> None:
    command = ": " + "x" * (131_071 - 2)

    ended = world.dibs("run", "--gpus", "0", input=command)

    assert ended.status == 0, ended.stderr[-300:]


def test_an_output_folder_that_is_a_file(world: World) -> None:
    world.write("out", "mine")

    ended = world.dibs("run", "--gpus", "0", "--output-dir", "out", input="true")

    assert ended.status == 2
    assert is_one_sentence(ended, "is a file, not a folder")
    assert world.read("out") == "mine"


@needs_root
def test_a_read_only_output_folder(world: World) -> None:
    out = world.folder / "out"
    out.mkdir()
    os.chmod(world.folder.parent, 0o755)
    state = world.folder.parent / "state of nobody"
    leases = world.folder.parent / "leases of nobody"
    for place in (state, leases):
        place.mkdir()
        os.chown(place, NOBODY, NOBODY)
    reachable = Path("/")
    for part in world.folder.parts[1:]:
        reachable = reachable / part
        os.chmod(reachable, os.stat(reachable).st_mode | 0o055)

    ended = world.dibs(
        "run",
        "--gpus",
        "0",
        "--output-dir",
        "out",
        input="true",
        env={"DIBS_STATE": str(state), "DIBS_LEASES": str(leases)},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )

    assert ended.status == 2
    assert is_one_sentence(ended, "cannot write to the output folder out: Permission denied")


@needs_root
@pytest.mark.parametrize("free", [0, 8, 64, 128])
def test_a_full_output_folder(world: World, free: int) -> None:
    """With next to nothing left (KiB) it is refused; where it could begin, it goes on once there is room."""
    disk = world.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    try:
        (disk / "ballast").write_bytes(bytes(1024 * (1024 - free)))
        world.write("jobs.txt", ["true", "true"])
        running = world.start("run", "--gpus", "0", "--output-dir", "disk/out", "-f", "jobs.txt")
        wait_until(lambda: running.process.poll() is not None or "disk is full" in running.stderr)
        (disk / "ballast").unlink()
        ended = running.wait()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)

    assert ended.status in ((2,) if free < 64 else (0, 2)), ended
    assert "Traceback" not in ended.stderr
    assert ended.status != 2 or is_one_sentence(ended)
