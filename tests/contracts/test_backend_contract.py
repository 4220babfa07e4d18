"""What every place where attempts run must do. The local one is the first; Slurm comes next."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.backends.local import LocalBackend
from dibs.supervise.folder import prepare
from stories.outside import World, wait_until
from supervise.hands import Hands, an_attempt


@pytest.fixture(params=[LocalBackend])
def place(request: pytest.FixtureRequest, world: World) -> Iterator[Hands]:
    one = Hands(Path(world.folder) / "run", backend=request.param)
    yield one
    one.close()


def test_the_exit_record_decides_the_outcome(place: Hands) -> None:
    attempt = place.start("echo out; echo err >&2; exit 4")

    record = place.record(attempt)

    assert (record["state"], record["code"], record["signal"]) == ("ended", 4, None)
    assert (place.log(attempt), place.log(attempt, "stderr")) == ("out\n", "err\n")


def test_observing_does_not_disturb(place: Hands) -> None:
    attempt = place.start("until test -e go; do sleep 0.01; done; exit 5")
    place.running(attempt)

    before = [place.facts(attempt) for _ in range(50)]
    (place.workdir / "go").touch()
    record = place.record(attempt)

    assert all(facts.is_locked and facts.has_started and facts.exit_record is None for facts in before)
    assert record["code"] == 5


def test_what_was_never_submitted_never_ran(place: Hands) -> None:
    facts = place.facts(an_attempt(place.root, 99))

    assert (facts.is_locked, facts.exit_record, facts.has_started) == (False, None, False)


def test_a_second_submit_of_an_attempt_starts_nothing(place: Hands) -> None:
    attempt = place.start("echo ran >> ran; until test -e go; do sleep 0.01; done")
    place.running(attempt)

    with pytest.raises(OSError):
        place.backend.submit(attempt, place.spec("echo ran >> ran", attempt), (), lambda: None)
    facts = place.facts(attempt)
    (place.workdir / "go").touch()
    place.record(attempt)

    assert facts.is_locked and facts.has_started
    assert (place.workdir / "ran").read_text() == "ran\n"


def test_a_second_submit_of_an_attempt_that_is_over_starts_nothing(place: Hands) -> None:
    attempt = place.start("echo ran >> ran; exit 6")
    place.record(attempt)
    wait_until(lambda: not place.facts(attempt).is_locked)

    with pytest.raises(OSError):
        place.backend.submit(attempt, place.spec("echo ran >> ran", attempt), (), lambda: None)

    assert (place.workdir / "ran").read_text() == "ran\n"
    assert place.facts(attempt).exit_record is not None


def test_a_stop_ends_it_and_says_so(place: Hands) -> None:
    attempt = place.start(["sleep", "1000"])
    place.running(attempt)

    place.backend.tell(attempt, "stop")
    record = place.record(attempt)

    assert (record["signal"], record["by"]) == (signal.SIGTERM, "stop")


def test_another_engine_finds_what_was_left_behind(place: Hands) -> None:
    attempt = place.start("until test -e go; do sleep 0.01; done; exit 7")
    place.running(attempt)
    place.close()
    other = Hands(place.root, backend=type(place.backend))

    assert other.facts(attempt).is_locked
    assert other.adopt(attempt)
    (place.workdir / "go").touch()
    record = other.record(attempt)
    other.close()

    assert record["code"] == 7


def test_many_at_once_do_not_mix_up_their_outcomes(place: Hands) -> None:
    attempts = [place.start(f"sleep 0.0{number % 5}; echo {number}; exit {number}") for number in range(24)]

    records = [place.record(attempt) for attempt in attempts]

    assert [record["code"] for record in records] == list(range(24))
    assert [place.log(attempt) for attempt in attempts] == [f"{number}\n" for number in range(24)]


def test_an_attempt_that_never_ran_can_be_submitted_again_with_a_shorter_spec(place: Hands) -> None:
    attempt = an_attempt(place.root, 50)
    record = prepare(attempt.folder, place.spec(["true", "x" * 500], attempt))
    os.close(record)
    done: list[int] = []

    place.backend.submit(attempt, place.spec("exit 8", attempt), (), lambda: done.append(1))
    place.turn_until(lambda: done)

    found = place.facts(attempt).exit_record
    assert found is not None and found["code"] == 8
