"""What the local backend leaves behind in its own process."""

import os
from pathlib import Path

from stories.outside import World
from supervise.hands import Hands


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
