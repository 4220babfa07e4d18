"""What only the local backend does."""

import os
from pathlib import Path

import pytest

from dibs.backends.local import ref_of
from dibs.backends.protocol import Phase
from dibs.supervise.folder import prepare
from stories.outside import World
from supervise.hands import Hands, an_attempt


def _fifos() -> list[str]:
    """The control FIFOs that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if "/control/" in target:
            found.append(target)
    return found


def test_a_backend_that_is_closed_watches_nobody_any_more(world: World) -> None:
    first = Hands(Path(world.folder) / "run")
    attempt = first.start("until test -e go; do sleep 0.01; done; exit 7")
    first.running(attempt)
    first.close()
    second, third = Hands(first.root), Hands(first.root)
    assert second.adopt(attempt)
    watched = _fifos()

    second.close()
    left = _fifos()
    assert third.adopt(attempt)
    (first.workdir / "go").touch()
    record = third.record(attempt)
    third.close()

    assert (len(watched), left) == (1, [])
    assert record["code"] == 7
    assert _fifos() == []


def test_an_attempt_that_never_ran_can_be_submitted_again_with_a_shorter_spec(world: World) -> None:
    hands = Hands(Path(world.folder) / "run")
    attempt = an_attempt(hands.root, 50)
    os.close(prepare(attempt.folder, hands.spec(["true", "x" * 500], attempt)))

    hands.submit(attempt, hands.spec("exit 8", attempt))
    record = hands.record(attempt)
    hands.close()

    assert record["code"] == 8


def test_a_folder_that_cannot_be_made_puts_the_attempt_off(world: World) -> None:
    hands = Hands(Path(world.folder) / "run")
    (hands.root / "attempts").touch()

    with pytest.raises(OSError, match="not a directory"):
        hands.start("true")
    hands.close()


def test_an_attempt_whose_folder_was_replaced_by_a_file_may_have_run(world: World) -> None:
    hands = Hands(Path(world.folder) / "run")
    attempt = an_attempt(hands.root, 1)
    Path(attempt.folder).parent.mkdir(parents=True)
    Path(attempt.folder).touch()
    ref = ref_of(attempt)

    seen = hands.backend.observe([ref])[ref]
    hands.close()

    assert (seen.phase, seen.never_started) == (Phase.LOST, False)
    assert seen.reason == "its record was replaced, so it may have run"
