"""What a job may do with its output, seen from outside (faults.md, rows 23, 24 and 62)."""

import sys
import textwrap
from pathlib import Path

import pytest

from stories.outside import World

LIMIT = 1 << 20
# `dibs run` sets no limit: here it does, as the daemon does for its jobs.
WITH_LIMIT = textwrap.dedent(
    f"""
    from dibs.engine.launch.launcher import Place
    honest = Place.spec
    Place.spec = lambda *given, **more: {{**honest(*given, **more), "log_limit": {LIMIT}}}
    from dibs.cli.main import main
    main()
    """
)


def _run(world: World, line: str) -> Path:
    """Run one line with a limit on its log, quietly; its stdout."""
    world.write("jobs.txt", [line])
    arguments = ("run", "-q", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "out")
    ended = world.dibs(*arguments, program=(sys.executable, "-c", WITH_LIMIT))
    assert ended.status == 0, ended
    world.assert_nothing_is_left()
    return world.folder / "out/job_1/stdout"


@pytest.mark.parametrize(
    ("line", "size", "head", "tail"),
    [
        ("seq 1 2000000", 14_888_896, b"1\n2\n", b"1999999\n2000000\n"),
        ("head -c 50000000 /dev/zero | tr '\\0' x; printf end", 50_000_003, b"xxxx", b"xxend"),
        ("printf start; head -c 50000000 /dev/zero; printf end", 50_000_008, b"start\0", b"\0end"),
        ("yes | head -c 100000000", 100_000_000, b"y\ny\n", b"y\ny\n"),
    ],
    ids=["lines", "no newline", "NULs", "as fast as it can"],
)
def test_the_disk_holds_no_more_of_a_flood_than_its_limit(
    world: World, line: str, size: int, head: bytes, tail: bytes
) -> None:
    log = _run(world, line)

    content = log.read_bytes()
    first, last = map(int, Path(f"{log}.cut").read_text().split())
    assert log.stat().st_blocks * 512 <= LIMIT
    assert len(content) == size
    assert content.startswith(head) and content.endswith(tail)
    assert not content[first:last].strip(b"\0")
    assert first >= LIMIT // 4 and len(content) - last >= LIMIT // 2


def test_who_follows_a_flood_sees_its_end_and_dibs_stays_alive(world: World) -> None:
    world.write("jobs.txt", ["seq 1 500000; echo the end"])

    ended = world.dibs("run", "--gpus", "0", "-f", "jobs.txt", program=(sys.executable, "-c", WITH_LIMIT))

    assert ended.status == 0
    assert "the end" in ended.stdout[-200:]
    assert "Traceback" not in ended.stderr


def test_a_job_that_reads_gets_an_end_at_once(world: World) -> None:
    world.write("jobs.txt", ["cat; echo read", "read line || echo none"])

    ended = world.dibs("run", "--gpus", "0,1", "-f", "jobs.txt", "--output-dir", "out")

    assert ended.status == 0
    assert (world.read("out/job_1/stdout"), world.read("out/job_2/stdout")) == ("read\n", "none\n")


def test_a_pipe_of_jobs_is_not_eaten_by_the_jobs(world: World) -> None:
    ended = world.dibs("run", "--gpus", "0", "-q", "-", input="cat >> eaten\necho second >> ran\n")

    assert ended.status == 0
    assert (world.read("eaten"), world.read("ran")) == ("", "second\n")


def test_nothing_of_the_submitters_environment_reaches_the_supervisor(world: World) -> None:
    world.write("rc", "export READ_BY_BASH=yes\n")
    hostile = {
        "PYTHONPATH": str(world.folder / "evil"),
        "PYTHONSTARTUP": "evil.py",
        "BASH_ENV": "./rc",
        "LD_PRELOAD": "/no/such/library.so",
        "LD_LIBRARY_PATH": "/no/such",
        "IFS": "x",
    }
    # Bash reads its file: the job has the environment that its owner has, the supervisor above it has not.
    look = "tr '\\0' '\\n' < /proc/$PPID/environ; tr '\\0' ' ' < /proc/$PPID/cmdline >&2"
    world.write("jobs.txt", [f"echo ${{READ_BY_BASH}} > bash; {look}"])

    ended = world.dibs("run", "--gpus", "0", "-f", "jobs.txt", "--output-dir", "out", env=hostile)

    assert ended.status == 0, ended
    names = {line.partition("=")[0] for line in world.read("out/job_1/stdout").splitlines()}
    assert names == {"PATH", "LANG"}
    assert "dibs.supervise.zygote" in world.read("out/job_1/stderr")
    assert world.read("bash") == "yes\n"
