"""Sweeps from a client's side, with a real daemon."""

from collections.abc import Iterator

import pytest

from dibs.client import sweeps
from dibs.client.client import Client
from dibs.errors import DibsError
from stories.outside import World, wait_until

SPEC = {
    "command": 'echo loss={x} >> "$DIBS_METRICS"',
    "parameters": [{"name": "x", "low": 1, "high": 6, "integer": True}],
    "metrics": [{"name": "loss"}],
    "name": "six",
}


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    daemon = world.run_daemon(pool="0,1")
    yield world.client()
    daemon.process.terminate()
    daemon.wait()


def begin(client: Client, key: str = "k", **more: object) -> int:
    environment = {"PATH": "/usr/bin:/bin"}
    return int(sweeps.add_sweep(client, {**SPEC, **more}, key=key, environment=environment)["id"])


def until(client: Client, number: int, state: str) -> None:
    wait_until(lambda: sweeps.sweep(client, number)["state"] == state, show=lambda: sweeps.sweep(client, number))


def test_a_sweep_is_checked_begun_found_and_read(client: Client):
    assert sweeps.check_sweep(client, SPEC)["size"] == 6
    number = begin(client)
    until(client, number, "finished")

    assert begin(client) == number
    assert [sweeps.find_sweep(client, reference) for reference in ("1", "@", "six")] == [number] * 3
    assert [one["id"] for one in sweeps.sweeps(client, states=["finished"])] == [number]
    assert [trial["values"] for trial in sweeps.trials(client, number)] == [[float(x)] for x in range(1, 7)]
    assert sweeps.trial_page(client, number, order="best", limit=1)["trials"][0]["point"] == {"x": "1"}
    assert sweeps.importance(client, number)["importance"][0]["name"] == "x"


def test_all_pages_are_read(client: Client):
    client.pause()
    for place in range(3):
        begin(client, key=f"k{place}")

    assert [one["id"] for one in sweeps.sweeps(client)] == [3, 2, 1]
    page = sweeps.sweep_page(client, limit=2)
    assert ([one["id"] for one in page["sweeps"]], page["cursor"]) == ([3, 2], 2)


def test_acts_and_what_is_refused(client: Client):
    client.pause()
    number = begin(client)

    assert sweeps.act_on_sweep(client, number, "hold")["changed"]
    assert sweeps.act_on_sweep(client, number, "resume", parallel=1)["changed"]
    assert sweeps.act_on_sweep(client, number, "stop", running="keep")["changed"]
    assert sweeps.sweep(client, number)["parallel"] == 1
    with pytest.raises(DibsError, match="there is nothing to change"):
        sweeps.act_on_sweep(client, number, "edit")
    with pytest.raises(DibsError, match="cannot find sweep nobody"):
        sweeps.find_sweep(client, "nobody")
