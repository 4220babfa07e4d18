"""Where jobs run, over the API: what is stored, what is refused, and which setting decides otherwise."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.private_slurm import PrivateSlurm
from daemon.daemon_process import DaemonProcess
from stories.outside import World, make_world, wait_until

TOLD = {"partition": "gpu", "mail-user": "ann@example.org"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, slurm: PrivateSlurm) -> Iterator[DaemonProcess]:
    """A daemon that knows a Slurm."""
    world = make_world(tmp_path_factory.mktemp("shared"))
    one = DaemonProcess(world)
    one.start(SLURM_CONF=slurm.environment["SLURM_CONF"])
    yield one
    one.end()
    world.clean_up()


def held(**more: object) -> dict[str, object]:
    """A job that goes nowhere, however it is wished for."""
    return {"command": "true", "hold": True, **more}


def test_a_job_tells_where_it_runs_and_what_slurm_is_told(shared: DaemonProcess):
    there = shared.add(held(on="slurm", on_options=TOLD))
    here = shared.add(held(on="local"))
    unsaid = shared.add(held())

    job = shared.job(there)
    assert (job["on"], job["on_options"], job["node"], job["node_gpus"]) == ("slurm", TOLD, "", "")
    assert [shared.job(number)["on"] for number in (here, unsaid)] == ["", ""]
    assert shared.get("/v1/status")["default_backend"] == "local"


def test_one_job_of_a_call_may_run_elsewhere_than_the_others(shared: DaemonProcess):
    first = shared.add(
        held(), held(on="local"), held(on_options={"nodelist": "n1"}), defaults={"on": "slurm", "on_options": TOLD}
    )

    found = [shared.job(first + number) for number in range(3)]
    assert [(one["on"], one["on_options"]) for one in found] == [
        ("slurm", TOLD),
        ("", {}),
        ("slurm", {"nodelist": "n1"}),
    ]


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"on_options": {"partition": "gpu"}}, "cannot use partition for a job that runs on this machine"),
        ({"on": "slurm", "only": ["0"]}, "cannot ask Slurm for a GPU by its number"),
        ({"on": "slurm", "prefer": ["0"]}, "cannot ask Slurm for a GPU by its number"),
        ({"on": "slurm", "warm": ["json"]}, "cannot keep a warm process on Slurm"),
        ({"on": "slurm", "bind": True}, "cannot choose the CPUs of a job on Slurm"),
        ({"on": "slurm", "vram": "auto"}, "cannot learn on Slurm how much GPU memory jobs need"),
        ({"on": "slurm", "on_options": {"wrap": "x"}}, "cannot tell Slurm about 'wrap'"),
    ],
)
def test_what_makes_no_sense_there_is_refused_by_all_doors(shared: DaemonProcess, wanted, sentence):
    job = shared.add(held())
    key = {
        "key": f"sweep {sentence}",
        "spec": {"command": "x {a}", "parameters": [{"name": "a", "values": ["1"]}]},
    }

    refusals = [
        shared.try_to_add(held(**wanted)),
        shared.call("POST", "/v1/jobs/check", {"jobs": [held(**wanted)]}),
        shared.call("PATCH", f"/v1/jobs/{job}", wanted),
        shared.call("POST", "/v1/sweeps", {**key, "defaults": wanted}),
    ]

    for refusal in refusals:
        assert refusal.status == 400, refusal
        assert refusal.json["error"]["message"].startswith(sentence)
        assert refusal.json["error"]["remedy"]


def test_an_unknown_place_is_refused(shared: DaemonProcess):
    refusal = shared.try_to_add(held(on="elsewhere"))

    assert refusal.status == 400
    assert "local" in refusal.json["error"]["message"] and "slurm" in refusal.json["error"]["message"]


def test_a_job_may_be_sent_elsewhere_before_it_starts(shared: DaemonProcess):
    job = shared.add(held())

    there = shared.call("PATCH", f"/v1/jobs/{job}", {"on": "slurm", "on_options": TOLD}).json
    here = shared.call("PATCH", f"/v1/jobs/{job}", {"on": "local"}).json

    assert (there["on"], there["on_options"]) == ("slurm", TOLD)
    assert (here["on"], here["on_options"]) == ("", {})


def test_what_says_nothing_runs_where_the_setting_says_and_what_does_where_it_says(
    world: World, slurm: PrivateSlurm
):
    daemon = DaemonProcess(world)
    daemon.start(DIBS_BACKEND="slurm", SLURM_CONF=slurm.environment["SLURM_CONF"])

    unsaid = daemon.add(held(on_options=TOLD))
    here, empty = daemon.add(held(on="local", only=["0"])), daemon.add(held(on="", bind=True))

    assert (daemon.job(unsaid)["on"], daemon.job(unsaid)["on_options"]) == ("slurm", TOLD)
    assert [daemon.job(number)["on"] for number in (here, empty)] == ["", ""]
    assert daemon.get("/v1/status")["default_backend"] == "slurm"
    daemon.end()


def test_an_attempt_over_there_tells_its_node_and_no_pid_of_another_machine(
    shared: DaemonProcess, slurm: PrivateSlurm
):
    number = shared.add({"command": "echo hi", "on": "slurm"})

    (job,) = shared.wait(number)

    (attempt,) = shared.job(number)["attempts_list"]
    assert (job["state"], job["gpus"]) == ("succeeded", [])
    assert job["node"] in slurm.nodes and job["node_gpus"] in ("0", "1")
    assert (attempt["backend"], attempt["node"], attempt["node_gpus"]) == ("slurm", job["node"], job["node_gpus"])
    assert attempt["pid"] is None


def test_an_attempt_tells_its_number_over_there_while_it_runs_and_afterwards(
    shared: DaemonProcess, slurm: PrivateSlurm
):
    single = shared.add({"command": "sleep 600", "on": "slurm"})
    task = {"command": "sleep 600", "on": "slurm"}
    first = shared.add({**task, "array": {"task": 0}}, {**task, "array": {"task": 1}})
    jobs = (single, first, first + 1)

    def numbers() -> list[str]:
        return [shared.job(job)["attempts_list"][-1]["backend_job"] for job in jobs if shared.job(job)["attempts"]]

    wait_until(lambda: [shared.job(job)["state"] for job in jobs] == ["running"] * 3, show=numbers)
    wait_until(lambda: len(list(filter(None, numbers()))) == 3, show=numbers)
    told = numbers()
    for job, number in zip(jobs, told, strict=True):
        [node] = slurm.ask("squeue", "-h", "-j", number, "-o", "%N").split()
        assert node == shared.job(job)["node"]
    assert "_" not in told[0]
    assert [number.partition("_")[2] for number in told[1:]] == ["0", "1"]
    [standing] = shared.get("/v1/status")["backends"]
    assert standing == {
        "name": "slurm",
        "attempts": 3,
        "trouble": "",
        "remedy": "",
        "silent_since_at": None,
    }

    shared.post("/v1/jobs/act", {"action": "kill", "ids": list(jobs)})
    shared.wait(*jobs)

    assert numbers() == told


def test_an_export_keeps_the_place(shared: DaemonProcess):
    there, here = shared.add(held(on="slurm", on_options=TOLD)), shared.add(held())

    reply = shared.call("GET", f"/v1/export?ids={there},{here}")
    lines = [json.loads(line) for line in reply.body.splitlines()]

    assert [(line["on"], line["on_options"]) for line in lines] == [("slurm", TOLD), ("", {})]


@pytest.fixture
def changing(world: World, slurm: PrivateSlurm) -> Iterator[tuple[DaemonProcess, Path]]:
    """A daemon on a Slurm that takes no such job any more once a file is there."""
    folder = world.folder.parent / "bin"
    folder.mkdir()
    refuses = folder / "refuses"
    (folder / "sbatch").write_text(
        f"#!/bin/sh\n[ -e '{refuses}' ] || exit 0\n"
        "echo 'sbatch: error: invalid partition specified: x' >&2; exit 1\n"
    )
    (folder / "sbatch").chmod(0o755)
    daemon = DaemonProcess(world)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    daemon.start(SLURM_CONF=slurm.environment["SLURM_CONF"], PATH=path)
    yield daemon, refuses
    daemon.end()


def test_a_call_that_is_repeated_is_not_refused_later(changing: tuple[DaemonProcess, Path]):
    daemon, refuses = changing
    sweep = {
        "spec": {"command": "x {a}", "parameters": [{"name": "a", "values": ["1"]}]},
        "defaults": {"on": "slurm", "hold": True},
    }
    calls = [
        ("/v1/jobs", {"key": "a", "environment": {}, "jobs": [held(on="slurm")]}),
        ("/v1/jobs", {"key": "b", "environment": {}, "jobs": [held(on="slurm", once="only")]}),
        ("/v1/sweeps", {"key": "c", **sweep}),
    ]
    first = [daemon.call("POST", target, body) for target, body in calls]
    refuses.touch()
    again = [daemon.call("POST", target, body) for target, body in calls]
    another = daemon.call("POST", "/v1/jobs", {**calls[1][1], "key": "d"})

    assert [reply.status for reply in first] == [201, 201, 201], first
    assert [reply.status for reply in [*again, another]] == [200, 200, 200, 200], again
    assert [reply.json.get("first") for reply in again[:2]] == [reply.json["first"] for reply in first[:2]]
    assert daemon.try_to_add(held(on="slurm")).status == 409


def test_two_queues_with_one_folder_for_slurm_do_not_take_each_others_jobs_for_theirs(
    tmp_path_factory: pytest.TempPathFactory, slurm: PrivateSlurm
):
    root = tmp_path_factory.mktemp("root")
    said = []
    for word in ("one", "two"):
        world = make_world(tmp_path_factory.mktemp(word))
        daemon = DaemonProcess(world)
        daemon.start(
            SLURM_CONF=slurm.environment["SLURM_CONF"], DIBS_SLURM_ROOT=str(root), DIBS_SLURM_EVERY="0.3s"
        )
        job = daemon.add({"command": f"echo {word}", "on": "slurm"})
        assert job == 1
        assert daemon.wait(job)[0]["state"] == "succeeded"
        said.append(daemon.call("GET", f"/v1/jobs/{job}/log").body)
        daemon.end()
        world.clean_up()

    assert said == [b"one\n", b"two\n"]


def test_an_image_is_refused_at_once_where_the_nodes_do_not_share_our_folders(world: World):
    daemon = DaemonProcess(world)
    # There is no such Slurm: the answer needs no question.
    daemon.start(SLURM_CONF="/no/such/slurm.conf", DIBS_SLURM_SSH="ssh", DIBS_SLURM_NODE_ROOT="/there")
    wanted = {"command": "true", "on": "slurm", "image": "torch"}
    here = daemon.add(held())
    spec = {"command": "true {n}", "parameters": [{"name": "n", "values": ["1"]}], "method": "grid"}
    sweep = {"key": "k", "environment": {}, "spec": spec, "defaults": {"on": "slurm", "image": "torch"}}

    answers = [
        daemon.try_to_add(wanted),
        daemon.try_to_add({"command": "true", "image": "no/such", "container_engine": "podman"}, wanted),
        daemon.call("POST", "/v1/jobs/check", {"environment": {}, "jobs": [wanted]}),
        daemon.call("POST", "/v1/sweeps", sweep),
        daemon.call("PATCH", f"/v1/jobs/{here}", {"on": "slurm", "image": "torch"}),
    ]

    why = "the nodes of this cluster do not share the folders of this machine"
    assert [answer.status for answer in answers] == [400] * 5, answers
    assert {answer.json["error"]["message"] for answer in answers} == {f"a job like this could never start: {why}"}
    assert {answer.json["error"]["remedy"] for answer in answers} == {
        "leave out --image, or start the container in the command"
    }
    assert [(job["id"], job["on"]) for job in daemon.get("/v1/jobs")["jobs"]] == [(here, "")]  # nothing was pulled
    assert daemon.get("/v1/sweeps")["sweeps"] == []
    daemon.end()


def test_a_job_that_comes_back_from_slurm_must_find_an_engine_for_its_image_here(shared: DaemonProcess):
    there = shared.add(held(on="slurm", image="/images/torch.sif"))

    answer = shared.call("PATCH", f"/v1/jobs/{there}", {"on": "local"})

    assert (answer.status, answer.json["error"]["message"]) == (
        400,
        "cannot run a container: there is no apptainer here",
    )
    assert shared.job(there)["on"] == "slurm"
