"""A chain of many thousand jobs whose first one fails (faults.md, row 72)."""

import sys
import time
from pathlib import Path

import pytest

from dibs.model.jobs import JobId, State
from dibs.store.codec import encode_requests
from dibs.store.journal import read
from engine.queue_world import QueueWorld, a_wish
from engine.world import a_pool
from examples import IS_LONG

LINKS = 100_000 if IS_LONG else 20_000
PORTION = 5_000  # as many as one call of `add` takes
MOST_SECONDS = 0.001  # for one link; it takes a tenth of this


@pytest.fixture
def world(tmp_path: Path):
    for name in ("queue", "leases"):
        (tmp_path / name).mkdir()
    one = QueueWorld(root=str(tmp_path / "queue"), leases_folder=str(tmp_path / "leases"), pool=a_pool(1))
    yield one
    one.journal.close()
    one.close()


def add_chain(world: QueueWorld, after: int, links: int, kind: str = "ok") -> None:
    """Jobs that each follow the one before. Straight into the store: as calls they would take minutes."""
    environment = world.store.job(JobId(after)).environment
    while links:
        portion = min(links, PORTION)
        requests = [a_wish(after={number: kind}) for number in range(after, after + portion)]
        with world.store.turn():
            jobs = world.store.queue.number(requests, environment, "")
            world.store.queue.add(jobs, encode_requests(requests), world.now)
        after, links = after + portion, links - portion


def test_a_long_chain_is_cancelled_without_recursion_when_its_first_job_fails(world: QueueWorld) -> None:
    assert sys.getrecursionlimit() < LINKS
    world.add(a_wish("the first"))
    add_chain(world, after=1, links=LINKS)

    began = time.process_time()
    world.end(1, code=1)
    seconds = time.process_time() - began

    assert world.store.counts() == {State.FAILED: 1, State.CANCELLED: LINKS}
    second, last = (world.store.listing.row(JobId(number)).outcome for number in (2, LINKS + 1))
    assert (second.message, last.message) == ("job 1 failed", f"job {LINKS} was cancelled")
    assert world.store.listing.blocked() == 0
    assert seconds / LINKS < MOST_SECONDS


def test_a_chain_that_was_cancelled_stands_in_the_journal_and_after_a_crash(world: QueueWorld) -> None:
    links = 2_000
    world.add(a_wish("the first"))
    add_chain(world, after=1, links=links)

    world.end(1, code=1)
    world.crash()
    world.resume()

    told = [line.body for line in read(world.journal.path)]
    assert sum(body["k"] == "set" and body["state"] == "cancelled" for body in told) == links
    assert world.store.counts() == {State.FAILED: 1, State.CANCELLED: links}


def test_a_long_chain_is_tried_again_with_its_first_job(world: QueueWorld) -> None:
    links = 2_000
    world.add(a_wish("the first"))
    add_chain(world, after=1, links=links)
    world.end(1, code=1)

    changed = world.do("retry", 1)

    assert len(changed.jobs) == links + 1
    assert world.running() == [1]
    assert world.store.listing.blocked() == links


def test_a_long_chain_runs_link_by_link(world: QueueWorld) -> None:
    links = 100
    world.add(a_wish("the first"))
    add_chain(world, after=1, links=links)

    for number in range(1, links + 2):
        assert world.running() == [number]
        world.end(number, code=0)

    assert world.store.counts() == {State.SUCCEEDED: links + 1}
