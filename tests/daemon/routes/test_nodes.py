"""The machines of another system over the API: how they stand, and which of our jobs run there."""

import contextlib
import os
import threading
from collections.abc import Iterator

import pytest

from backends.fake_sinfo import BIG, failing_sinfo, fake_sinfo
from backends.private_slurm import PrivateSlurm
from daemon.daemon_process import DaemonProcess
from stories.outside import World, make_world, wait_until


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, slurm: PrivateSlurm) -> Iterator[DaemonProcess]:
    """A daemon whose jobs may run on a real Slurm with three nodes."""
    world = make_world(tmp_path_factory.mktemp("there"))
    world.environ |= {"SLURM_CONF": slurm.environment["SLURM_CONF"], "DIBS_SLURM_EVERY": "0.3s"}
    daemon = DaemonProcess(world)
    daemon.start()
    yield daemon
    daemon.end()
    world.clean_up()


def nodes(daemon: DaemonProcess) -> dict[str, dict[str, object]]:
    [backend] = daemon.get("/v1/nodes?on=slurm")["backends"]
    return {node["name"]: node for node in backend["nodes"]}


def test_a_cluster_that_is_not_used_is_not_shown(shared: DaemonProcess):
    assert shared.get("/v1/nodes") == {"backends": []}
    assert "dibs_nodes" not in shared.call("GET", "/metrics").body.decode()


def test_a_node_tells_which_jobs_of_ours_run_there(there: DaemonProcess, slurm: PrivateSlurm):
    job = there.add({"command": "sleep 600", "name": "train", "on": "slurm", "num_gpus": 2})
    wait_until(lambda: there.state(job) == "running", show=lambda: there.job(job))
    waits = there.add({"command": "true", "on": "slurm", "on_options": {"nodelist": there.job(job)["node"]}})
    wait_until(lambda: there.state(waits) == "submitted", show=lambda: there.job(waits))
    name = there.job(job)["node"]
    wait_until(lambda: nodes(there)[name]["state"] == "full", show=lambda: nodes(there))
    # Which cards it has its shim says, a moment after Slurm says that it runs.
    wait_until(lambda: there.job(job)["node_gpus"] == "0,1", show=lambda: there.job(job))

    [backend] = there.get("/v1/nodes")["backends"]
    found = {node["name"]: node for node in backend["nodes"]}
    numbers = there.call("GET", "/metrics").body.decode().splitlines()
    spans = there.get("/v1/timeline")["attempts"]

    assert (backend["name"], backend["trouble"]) == ("slurm", "")
    assert found[name]["jobs"] == [{"id": job, "name": "train", "gpus": "0,1"}]
    assert found[name]["gpus"] == [{"type": "", "total": 2, "used": 2}]
    assert [node["jobs"] for node in found.values() if node["name"] != name] == [[], []]
    assert 'dibs_jobs{state="submitted"} 1.0' in numbers
    assert 'dibs_nodes{backend="slurm",state="full"} 1.0' in numbers
    assert 'dibs_nodes{backend="slurm",state="free"} 2.0' in numbers
    assert 'dibs_node_gpus{backend="slurm",use="used"} 2.0' in numbers
    assert 'dibs_node_gpus{backend="slurm",use="free"} 4.0' in numbers
    # What only waits over there has not run.
    assert [(span["job"], span["node"], span["node_gpus"], span["gpus"]) for span in spans] == [
        (job, name, "0,1", [])
    ]
    there.post("/v1/jobs/act", {"action": "kill", "ids": [job, waits]})
    there.wait(job, waits)
    wait_until(lambda: not any(node["jobs"] for node in nodes(there).values()), show=lambda: nodes(there))
    assert [span["job"] for span in there.get("/v1/timeline")["attempts"]] == [job]


def test_an_unknown_backend_is_not_found(there: DaemonProcess):
    reply = there.call("GET", "/v1/nodes?on=ray")

    assert (reply.status, reply.code) == (404, "no-backend")
    assert "'ray'" in reply.json["error"]["message"]


def test_a_cluster_that_is_not_set_up_is_not_found(world: World):
    daemon = DaemonProcess(world)
    daemon.start(SLURM_CONF="/nowhere/slurm.conf", DIBS_BACKEND="slurm")

    reply = daemon.call("GET", "/v1/nodes?on=slurm")
    [backend] = daemon.get("/v1/nodes")["backends"]

    assert (reply.status, reply.code) == (404, "no-backend")
    assert "cannot use Slurm" in reply.json["error"]["message"]
    assert (backend["trouble"], backend["nodes"]) == (reply.json["error"]["message"], [])
    daemon.end()


def test_a_cluster_that_does_not_answer_is_an_error_only_to_who_asks_for_it(world: World):
    says = "Unable to contact slurm controller (connect failure)"
    path = failing_sinfo(world.folder.parent / "bin", says)
    daemon = DaemonProcess(world)
    daemon.start(PATH=f"{path}{os.pathsep}{os.environ['PATH']}", SLURM_CONF="", DIBS_BACKEND="slurm")

    reply = daemon.call("GET", "/v1/nodes?on=slurm")
    [backend] = daemon.get("/v1/nodes")["backends"]
    numbers = daemon.call("GET", "/metrics")

    assert (reply.status, reply.code) == (503, "backend-silent")
    assert says in reply.json["error"]["message"]
    assert says in backend["trouble"] and backend["remedy"]
    assert numbers.status == 200 and b"dibs_nodes" not in numbers.body
    daemon.end()


def test_a_slow_cluster_delays_no_other_request(world: World):
    path = fake_sinfo(world.folder.parent / "bin", [BIG])
    (world.folder.parent / "bin" / "sinfo").write_text("#!/bin/sh\nexec sleep 600\n")
    daemon = DaemonProcess(world)
    daemon.start(PATH=f"{path}{os.pathsep}{os.environ['PATH']}", SLURM_CONF="", DIBS_BACKEND="slurm")
    answered = threading.Event()

    def ask() -> None:
        with contextlib.suppress(Exception):  # the daemon ends before it answers
            daemon.call("GET", "/v1/nodes")
        answered.set()

    threading.Thread(target=ask, daemon=True).start()
    daemon.wait(daemon.add({"command": "true", "on": "local"}))
    numbers = daemon.call("GET", "/metrics")

    assert (numbers.status, b"dibs_nodes" in numbers.body) == (200, False)
    assert not answered.wait(1)  # it is still being asked
    daemon.end()
