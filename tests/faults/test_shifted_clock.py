"""The wall clock is somewhere else, or jumps while jobs run (faults.md, row 39)."""

import glob
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from stories.outside import World, wait_until

# Not by way of the program `faketime`: what one that was killed leaves behind keeps the next of its number away.
LIBRARIES = glob.glob("/usr/lib/*/faketime/libfaketime.so.1") + glob.glob("/usr/lib*/faketime/libfaketime.so.1")
PRELOADED = {"LD_PRELOAD": LIBRARIES[0] if LIBRARIES else ""}

pytestmark = pytest.mark.skipif(not LIBRARIES, reason="only libfaketime shifts the clock of one program")

NEGATIVE = re.compile(r"(?:^|\s)-\d", re.MULTILINE)
LEFT = ("/dev/shm/faketime_*", "/dev/shm/sem.faketime_*")
UNTIL_GO = "until test -e go; do sleep 0.02; done"


@pytest.fixture(autouse=True)
def _no_litter() -> Iterator[None]:
    """A killed process leaves two files of the library behind, and those of a hundred processes add up."""
    before = {path for pattern in LEFT for path in glob.glob(pattern)}
    yield
    for path in {path for pattern in LEFT for path in glob.glob(pattern)} - before:
        Path(path).unlink(missing_ok=True)


# -- of a command ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", ["-10y", "+15y"])  # the last one is behind 2038
def test_a_command_whose_clock_is_wrong_answers_and_shows_no_negative_time(world: World, shift: str) -> None:
    world.run_daemon()
    first = world.add("--", "echo said")
    running = world.add("-t", "1h", "--", f"touch up; {UNTIL_GO}")
    later = world.add("--begin", "+2h", "--", "true")
    world.wait_for(first)
    wait_until(lambda: (world.folder / "up").exists())
    numbers = [str(number) for number in (first, running, later)]

    asked = [
        *(("ls",), ("ls", "--all", "--since", "1h"), ("gpus",), ("daemon", "status")),
        *((word, number) for word in ("info", "why") for number in numbers),
        *(("log", numbers[0]), ("wait", numbers[0]), ("add", "--dry-run", "--begin", "22:00", "--", "true")),
    ]
    started = {words: world.start(*words, env={**PRELOADED, "FAKETIME": shift}) for words in asked}
    answers = {words: one.wait() for words, one in started.items()}

    assert {words: one for words, one in answers.items() if one.status or "Traceback" in one.stderr} == {}
    assert [one for one in answers.values() if NEGATIVE.search(one.stdout + one.stderr)] == []
    assert "said" in answers[("log", numbers[0])].stdout


# -- of the whole machine ----------------------------------------------------------------------------------


def _let_the_clock_jump(world: World) -> Path:
    """From now on this world's clock is off by what stands in a file; the clock that only counts is not.

    The supervisors take nothing from an environment: theirs stays, as if the jump had come after their look.
    """
    clock = world.folder.parent / "clock"
    clock.write_text("+0")
    world.environ |= {
        **PRELOADED,
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",  # as it was called
    }
    return clock


@pytest.mark.parametrize("shift", ["-10y", "+15y"])
def test_when_the_clock_jumps_limits_and_pauses_stay_exact_and_the_order_is_kept(world: World, shift: str) -> None:
    clock = _let_the_clock_jump(world)
    daemon = world.run_daemon()
    world.dibs("pause")
    retried = world.add("--retries", "1", "--", 'test "$DIBS_ATTEMPT" = 2')
    limited = world.add("-t", "5s", "--", f"touch up; {UNTIL_GO}")
    world.write("jobs.txt", [world.ledger.job(number) for number in range(4)])
    first = world.add("-f", "jobs.txt")
    world.dibs("unpause")
    wait_until(lambda: (world.folder / "up").exists())
    paused = world.client().job(retried)

    clock.write_text(shift)
    over = world.wait_for(limited, retried, *range(first, first + 4))
    shown = [world.dibs(*words) for words in (("ls", "--all"), ("info", str(limited)), ("info", str(retried)))]
    world.dibs("daemon", "stop")

    assert (paused["state"], paused["attempts"]) == ("queued", 1)
    assert [one["state"] for one in over] == ["timed_out", *["succeeded"] * 5]
    assert _days(over[0]["started_at"], over[0]["ended_at"]) == 365 * int(shift[:3])  # its years
    assert 5.0 <= over[0]["seconds"] < 300
    assert over[1]["attempts"] == 2
    assert world.ledger.started() == ["0", "1", "2", "3"]
    assert [one for one in over if one["seconds"] < 0] == []
    assert [one for one in shown if one.status or NEGATIVE.search(one.stdout)] == []
    assert "Traceback" not in daemon.stderr
    world.assert_nothing_is_left()


def _days(start: str, end: str) -> int:
    return round((datetime.fromisoformat(end) - datetime.fromisoformat(start)) / timedelta(days=1))
