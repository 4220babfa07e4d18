"""Jobs in containers from every face: options, lists, JSON, scripts, sweeps, Python; pulls, edits and reports."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dibs
from containers.private_engines import PrivateEngines
from stories.outside import World, make_world, wait_until

SEEN = "cat /etc/passwd | head -n 1"  # what only the image has
INSIDE = "root:x:0:0::/:/bin/sh\n"


@pytest.fixture(scope="module")
def shared(engines: PrivateEngines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A queue with podman's image, two declared cards and a stand-in for apptainer."""
    world = make_world(tmp_path_factory.mktemp("faces"), is_utf8=True)
    world.environ |= engines.environment
    for engine in ("podman", "apptainer"):
        engines.image_for(engine)
    world.run_daemon(pool="0,1")
    yield world
    world.clean_up()


def output(world: World, number: int) -> str:
    (job,) = world.wait_for(number)
    assert job["state"] == "succeeded", job
    return Path(job["stdout"]).read_text()


def test_lines_json_and_scripts_name_an_image(shared: World) -> None:
    shared.write("jobs.txt", [f"[image=dibs-test] {SEEN}", "echo outside"])
    shared.write("jobs.jsonl", [json.dumps({"command": SEEN, "image": "dibs-test", "mounts": ["/tmp:/mnt:ro"]})])
    script = shared.folder.parent / "job.sh"  # not in the working folder
    options = "#SBATCH --container-image=dibs-test --container-mounts=/tmp:/mnt:ro"
    script.write_text(f"#!/bin/sh\n{options}\n{SEEN}\n")

    first = shared.add("-f", "jobs.txt")
    numbers = [first, first + 1, shared.add("-f", "jobs.jsonl"), shared.add("-f", str(script))]

    assert [output(shared, number) for number in numbers] == [INSIDE, "outside\n", INSIDE, INSIDE]
    assert shared.client().job(numbers[3])["mounts"] == ["/tmp:/mnt:ro", f"{script}:{script}:ro"]
    assert "image             dibs-test" in shared.dibs("info", str(first)).stdout


def test_python_and_sweeps_name_an_image(shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in shared.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(shared.folder)

    job = dibs.submit(SEEN, image="dibs-test", container_engine="podman", mounts="/tmp:/mnt")
    swept = shared.dibs("sweep", "--image", "dibs-test", "-p", "n", "1", "--", "sh", "-c", f"{SEEN}; echo {{n}}")
    shared.dibs("sweep", "wait", "@")

    assert (job.result(60), job.log()) == (0, INSIDE)
    assert swept.status == 0, swept
    last = max(one["id"] for one in shared.client().jobs())
    assert output(shared, last) == INSIDE + "1\n"


def test_an_image_that_is_missing_is_pulled_by_a_job_without_a_gpu(shared: World) -> None:
    options = ("--image", "an/image", "--container-engine", "apptainer")
    added = shared.dibs("add", *options, "--", "sh", "-c", SEEN)
    number = int(added.stdout.split()[-1])
    again = shared.dibs("add", *options, "--", "true")

    pull, job, other = shared.wait_for(number - 1, number, int(again.stdout.split()[-1]))

    assert f"pulling image an/image first, as job {pull['id']}" in added.stderr
    assert (pull["name"], pull["num_gpus"], pull["state"]) == ("pull an/image", 0, "succeeded")
    assert pull["seconds"] is not None
    assert job["after"] == [{"job": pull["id"], "kind": "ok"}]
    assert (job["state"], other["state"]) == ("succeeded", "succeeded")


def test_a_run_pulls_before_it_takes_a_gpu(shared: World) -> None:
    ended = shared.dibs(
        *(
            "run",
            "--gpus",
            "0",
            "--image",
            "another/image",
            "--container-engine",
            "apptainer",
            "--image-pull",
            "always",
        ),
        *("--", "sh", "-c", SEEN),
    )

    assert (ended.status, ended.stdout) == (0, INSIDE), ended
    assert "dibs: pulling image another/image" in ended.stderr
    assert "dibs: pulled another/image in" in ended.stderr


def test_an_edited_job_gets_another_image_or_none(shared: World) -> None:
    number = shared.add("--hold", "--image", "dibs-test", "--", "sh", "-c", SEEN)

    refused = shared.dibs("edit", str(number), "--image", "no/such", "--container-engine", "podman")
    shared.dibs("edit", str(number), "--image", "none")
    shared.dibs("release", str(number))
    (job,) = shared.wait_for(number)

    assert "is not here" in refused.stderr
    assert (job["image"], job["container_engine"]) == ("", "")
    assert Path(job["stdout"]).read_text() != INSIDE


def test_what_cannot_work_is_refused_before_it_has_a_number(shared: World) -> None:
    before = len(list(shared.client().jobs()))

    refusals = [
        shared.dibs("add", "--image", "dibs-test", *more, "--", "true")
        for more in (
            ("--image", "no/such", "--image-pull", "never"),
            ("--mount", "/no/such/folder"),
            ("--warm", "json"),
            ("--on", "slurm", "--container-engine", "docker"),
        )
    ]

    assert [refused.status for refused in refusals] == [2, 2, 2, 2], refusals
    assert len(list(shared.client().jobs())) == before


def test_the_use_of_a_container_is_measured_by_its_processes(engines: PrivateEngines, tmp_path: Path) -> None:
    world = make_world(tmp_path, is_utf8=True)
    image = engines.image_for("docker")
    cards: list[dict[str, Any]] = [{"index": 0, "uuid": "index-0", "name": "A card", "memory_total": 1 << 30}]
    (tmp_path / "cards.json").write_text(json.dumps(cards))
    world.environ |= engines.environment | {"DIBS_PROBE": f"fake:{tmp_path}/cards.json"}
    world.environ["DIBS_READING_SECONDS"] = "0.5"
    world.run_daemon(pool="auto")
    try:
        busy = "while ! test -e go; do :; done"
        number = world.add("-n", "0", "--image", image, "--container-engine", "docker", "--", "sh", "-c", busy)
        client = world.client()
        wait_until(
            lambda: ((client.job(number)["usage"] or {}).get("mean_cpus") or 0.0) > 0.2,
            show=lambda: client.job(number),
        )
        world.write("go", "")
        (job,) = world.wait_for(number)
    finally:
        world.clean_up()

    # Docker's client, which is below the shim, uses no processor. The mean falls a little until the end is seen.
    assert job["usage"]["mean_cpus"] > 0.1
    assert job["usage"]["peak_mem_bytes"] > 0


def test_docker_is_told_which_cards_a_container_gets(engines: PrivateEngines, tmp_path: Path) -> None:
    world = make_world(tmp_path, is_utf8=True)
    image = engines.image_for("docker")
    cards = [{"index": index, "uuid": f"GPU-{index}", "name": "A card", "memory_total": 1} for index in range(3)]
    (tmp_path / "cards.json").write_text(json.dumps(cards))
    path = f"{engines.path_of_nvidias_hook}:{engines.environment['PATH']}"
    world.environ |= engines.environment | {"DIBS_PROBE": f"fake:{tmp_path}/cards.json", "PATH": path}
    words = ("--image", image, "--container-engine", "docker", "--", "sh", "-c")

    two = world.dibs("run", "--gpus", "1,2", "-n", "2", *words, "echo $CUDA_VISIBLE_DEVICES of $DIBS_GPUS")
    none = world.dibs("run", "--gpus", "1", "-n", "0", *words, "echo none [$CUDA_VISIBLE_DEVICES]")

    assert (two.stdout, none.stdout) == ("0,1 of 1,2\n", "none []\n"), (two, none)
    assert engines.cards_given() == ["NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2"]
