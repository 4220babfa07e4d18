"""Following output files that are written faster than they can be shown."""

from pathlib import Path

from dibs.foreground.follow import Follower
from dibs.model.jobs import Command, Job, JobId, Request

JOB = Job(id=JobId(1), request=Request(command=Command.line("yes")))


def test_a_flood_does_not_keep_the_loop_from_its_work(tmp_path: Path) -> None:
    """Whatever is shown, the job has written as much again: one look must come to an end all the same."""
    log = tmp_path / "stdout"
    log.write_bytes(b"y\n" * 500_000)
    shown = 0

    def show(job: Job, is_error: bool, data: bytes) -> None:
        nonlocal shown
        shown += len(data)
        assert shown < 100_000_000, "one look goes on for ever"
        with log.open("ab") as file:
            file.write(data)

    follower = Follower(show, whole_lines=True)
    follower.begin(JOB, str(log), str(tmp_path / "stderr"))

    follower.look()

    assert shown > 0


def test_the_rest_of_a_flood_is_shown_after_the_end(tmp_path: Path) -> None:
    log = tmp_path / "stdout"
    log.write_bytes(b"y" * 70_000 + b"\n" + b"line\n" * 5_000_000)
    shown: list[bytes] = []
    follower = Follower(lambda job, is_error, data: shown.append(data), whole_lines=True)
    follower.begin(JOB, str(log), str(tmp_path / "stderr"))

    follower.end(JOB)
    looks = 0
    while not follower.is_idle:
        follower.look()
        looks += 1

    assert looks > 0
    assert b"".join(shown).count(b"line\n") == 5_000_000


def test_lines_are_whole_and_the_last_one_needs_no_end(tmp_path: Path) -> None:
    log = tmp_path / "stdout"
    log.write_bytes(b"one\ntw")
    shown: list[bytes] = []
    follower = Follower(lambda job, is_error, data: shown.append(data), whole_lines=True)
    follower.begin(JOB, str(log), str(tmp_path / "stderr"))

    follower.look()
    with log.open("ab") as file:
        file.write(b"o\nthree")
    follower.look()
    follower.end(JOB)

    assert shown == [b"one\n", b"two\n", b"three\n"]
