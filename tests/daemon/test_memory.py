"""What the daemon keeps in memory: nothing of a burst that is over, and no description before it is requested."""

import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dibs.daemon import memory
from dibs.daemon.memory import return_memory_when_quiet
from dibs.store.store import Store
from stories.outside import DIBS, World, wait_until

DESCRIBE = """
import json, sys
from unittest.mock import MagicMock
if sys.argv[1:]:
    from dibs.daemon.memory import load_fastapi
    load_fastapi()
from dibs.daemon.app import description, make_app
from fastapi.openapi.models import OAuth2
app = make_app(MagicMock())
models = sum(len(getattr(route, "response_fields", ())) for route in app.routes)
print(json.dumps([OAuth2.__pydantic_complete__, models, description(MagicMock())]))
"""


class Watched(Store):
    """A store that counts how often it was asked to be small."""

    times = 0

    def shrink(self) -> None:
        super().shrink()
        self.times += 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Watched]:
    one = Watched(str(tmp_path / "store.db"))
    yield one
    one.close()


def _given_back(store: Watched, monkeypatch: pytest.MonkeyPatch, *counts: int) -> int:
    """How often something was given back, where these numbers of things had happened at each look."""
    looks = iter(counts)
    monkeypatch.setattr(memory, "_CHECK_EVERY", 0.0)

    async def look() -> None:
        with suppress(StopIteration, RuntimeError):
            await return_memory_when_quiet(store, lambda: next(looks))

    asyncio.run(look())
    return store.times


def test_after_a_burst_memory_is_given_back_once(store: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _given_back(store, monkeypatch, 0, 4_000, 9_000, 9_005, 9_005, 9_010, 9_015) == 1


def test_while_it_is_busy_or_was_never_busy_nothing_is_given_back(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _given_back(store, monkeypatch, 0, 4_000, 9_000, 12_000, 15_000) == 0
    assert _given_back(store, monkeypatch, 0, 5, 5, 20, 30, 30) == 0


def test_where_jobs_run_for_days_memory_is_given_back_now_and_then(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _given_back(store, monkeypatch, *range(0, 1_000, 5)) == 9


def test_an_idle_daemon_gives_back_what_long_lists_took(world: World) -> None:
    daemon = world.run_daemon(program=(DIBS,))  # a fork has the memory of its server
    client = world.client()
    jobs = [{"command": f"echo {number} {'x' * 50_000}"} for number in range(120)]
    client.add(jobs, key="much", defaults={"workdir": "/", "hold": True})
    for _ in range(100):
        client.status()
    assert len(list(client.jobs())) == 120
    client.close()

    before = _megabytes(daemon.pid)  # some seventy, and fifty when it was new
    wait_until(lambda: _megabytes(daemon.pid) < before - 8, show=lambda: (before, _megabytes(daemon.pid)))


def _megabytes(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def test_what_only_the_description_needs_is_made_for_it_and_the_description_is_the_same() -> None:
    commands = ([sys.executable, "-c", DESCRIBE, *words] for words in ((), ("lean",)))
    said = [subprocess.run(command, capture_output=True, check=True).stdout for command in commands]
    (is_built, _, plain), (is_built_lean, models, lean) = map(json.loads, said)

    assert (is_built, is_built_lean) == (True, False)
    assert models < 40  # of the few routes that read no JSON
    assert lean == plain
    assert len(lean["paths"]["/v1/jobs"]["get"]["responses"]) > 5
