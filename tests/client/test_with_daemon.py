"""Every method of the client against the real daemon: the two sides of the wire agree."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dibs.client.client import Client
from dibs.client.events import follow_events
from dibs.errors import BadInput, Conflict, NoSuchJob
from stories.outside import World, wait_until


@pytest.fixture
def queue(world: World) -> Iterator[World]:
    world.environ["DIBS_POOL"] = "0,1"
    assert world.dibs("daemon", "start").status == 0
    yield world
    world.dibs("daemon", "stop", "--jobs")


@pytest.fixture
def client(queue: World) -> Client:
    return queue.client()


def test_every_question_has_an_answer(queue: World, client: Client) -> None:
    defaults = {"workdir": str(queue.folder), "project": "p"}
    answer = client.add(
        [{"command": "echo hi", "name": "é"}, {"words": ["sleep", "60"], "hold": True}],
        key="k",
        defaults=defaults,
        environment={"A": "a\udcff"},
        code={"commit": "abc"},
    )

    assert answer == {"first": 1, "last": 2, "is_new": True, "missing": 0, "notes": []}
    assert client.add([{"command": "true"}], key="k")["is_new"] is False
    assert [job["id"] for job in client.wait([1, 2], seconds=0.1)["jobs"]] in ([], [1])
    queue.wait_for(1)
    assert client.status()["counts"]["held"] == 1
    assert [job["id"] for job in client.jobs(state=("held",), project="p")] == [2]
    assert client.job(1)["code"] == {"commit": "abc"}
    assert client.environment(1) == {"A": "a\udcff"}
    assert client.why(2)["state"] == "held"
    assert client.log(1).data == b"hi\n"
    assert client.log(1, tail=0).size == 3
    assert client.find("@", "é", "1-2") == [2, 1]
    assert client.check([{"command": "true"}], defaults=defaults)[0]["gpus"] == [0]
    assert client.edit(2, {"priority": 3})["priority"] == 3
    assert [job["id"] for job in client.export(project="p")] == [1, 2]
    assert {gpu["index"] for gpu in client.gpus()["gpus"]} == {0, 1}
    assert client.act_on_gpus("drain", ["1"])
    assert client.act_on_gpus("undrain", ["1"])
    assert [project["name"] for project in client.projects()] == ["p"]
    assert (client.pause("p"), client.pause("p"), client.unpause("p")) == (True, False, True)
    assert client.act("kill", [2])["changed"] == [2]
    assert client.act("retry", [1])["changed"] == [1]
    queue.wait_for(1)
    assert "dibs" in client.metrics()
    assert client.clean(states=("cancelled",)) == {"removed": 1, "kept": []}


def test_errors_come_as_their_classes(queue: World, client: Client) -> None:
    client.add([{"command": "true"}], key="k", defaults={"workdir": "/"})
    queue.wait_for(1)

    with pytest.raises(NoSuchJob):
        client.job(99)
    with pytest.raises(NoSuchJob):
        client.find("nobody")
    with pytest.raises(BadInput):
        client.check([{"command": "true", "num_gpus": 9}])
    with pytest.raises(Conflict):
        client.edit(1, {"priority": 3})


def test_events_go_on_through_a_restart(queue: World, client: Client) -> None:
    seen: list[dict[str, Any]] = []

    def read() -> None:
        for event in follow_events(queue.client(), since=0):
            seen.append(event)
            if event["kind"] == "job.ended" and event["job"] == 2:
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    client.add([{"command": "true"}], key="a", defaults={"workdir": "/"})
    wait_until(lambda: any(event["kind"] == "job.ended" for event in seen), show=lambda: seen)
    assert queue.dibs("daemon", "restart").status == 0
    client.add([{"command": "true"}], key="b", defaults={"workdir": "/"})

    reader.join(30)
    ids = [event["id"] for event in seen]
    assert not reader.is_alive(), seen
    assert ids == sorted(set(ids))
    assert [event["job"] for event in seen if event["kind"] == "job.ended"] == [1, 2]
