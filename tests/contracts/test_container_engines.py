"""What every container engine must do for a job: podman, docker and runc are real, apptainer is a stand-in.

The jobs go through a daemon, as a user's would: one for all tests of an engine.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from containers.private_engines import PrivateEngines
from dibs.supervise.folder import marked_processes
from stories.outside import World, make_world, wait_until

ENGINES = ("podman", "docker", "runc", "apptainer")


@dataclass
class Site:
    """A queue whose jobs run in containers of one engine."""

    engine: str
    image: str
    world: World
    engines: PrivateEngines

    def add(self, *words: str) -> int:
        return self.world.add("--image", self.image, "--container-engine", self.engine, *words)

    def ended(self, *words: str) -> dict[str, Any]:
        """The job with these options and this command, once it is over."""
        return self.world.wait_for(self.add(*words))[0]

    def output(self, job: dict[str, Any]) -> str:
        return Path(job["stdout"]).read_text()

    def wait_for_output(self, number: int, text: str) -> dict[str, Any]:
        client = self.world.client()
        job = client.job(number)

        def is_said() -> bool:
            nonlocal job
            job = client.job(number)
            return bool(job["stdout"]) and Path(job["stdout"]).exists() and text in self.output(job)

        wait_until(is_said, show=lambda: job)
        return job


@pytest.fixture(scope="module", params=ENGINES)
def site(
    request: pytest.FixtureRequest, engines: PrivateEngines, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    world = make_world(tmp_path_factory.mktemp(request.param), is_utf8=True)
    world.environ |= engines.environment | {"LD_LIBRARY_PATH": "/host/lib", "TOKEN": "a b $c"}
    image = engines.image_for(request.param)
    world.run_daemon(pool="0,1,2")
    yield Site(request.param, image, world, engines)
    world.clean_up()


def test_nothing_is_changed_but_the_root(site: Site) -> None:
    site.world.write("seen", "from outside")
    script = """
        pwd; cat seen; id -u; id -g; echo "$TOKEN,$MINE,$LD_LIBRARY_PATH,$CUDA_VISIBLE_DEVICES"; cat /etc/passwd
        echo loss=0.5 > $DIBS_METRICS; echo made > made; test -w /dev/shm && echo shm; test ! -e /etc/apt
    """

    job = site.ended("--env", "MINE=1", "--only", "1", "--", "sh", "-c", script)

    lines = site.output(job).splitlines()
    user = [str(os.geteuid()), str(os.getegid())]
    assert lines[:4] == [str(site.world.folder), "from outside" + user[0], user[1], "a b $c,1,,1"]
    assert lines[4:] == ["root:x:0:0::/:/bin/sh", "shm"]
    assert (job["state"], job["exit_code"]) == ("succeeded", 0)
    assert site.world.read("made") == "made\n"
    assert (Path(job["stdout"]).parent / "metrics").read_text() == "loss=0.5\n"


def test_a_job_without_a_gpu_is_given_none(site: Site) -> None:
    job = site.ended("-n", "0", "--", "sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"; ls /dev')

    assert site.output(job).splitlines()[0] == "[]"
    assert "nvidia" not in site.output(job) and "kfd" not in site.output(job)


@pytest.mark.parametrize(
    ("command", "code", "number", "cause"),
    [("exit 125", 125, None, "exit code"), ("kill -11 $$; sleep 9", None, 11, "signal")],
)
def test_how_the_command_ended_is_kept(
    site: Site, command: str, code: int | None, number: int | None, cause: str
) -> None:
    job = site.ended("--", "sh", "-c", command)

    assert (job["exit_code"], job["signal"], job["cause"]) == (code, number, cause)


def test_a_line_for_bash_runs_where_the_image_has_only_sh(site: Site) -> None:
    job = site.ended("--", "echo one | cat; exit 3")

    assert (site.output(job), job["exit_code"]) == ("one\n", 3)


def test_a_program_that_is_not_in_the_image_is_a_start_error(site: Site) -> None:
    job = site.ended("--", "no-such-program")

    assert job["state"] == "failed"
    if site.engine in ("podman", "docker"):  # the others exit as a command may
        assert (job["cause"], job["exit_code"]) == ("start error", 127)
        assert f"{site.engine} could not start it" in job["message"]


def test_folders_are_mounted_where_they_are_named(site: Site) -> None:
    data = site.world.folder.parent / "data, more"
    data.mkdir(exist_ok=True)
    (data / "x").write_text("content\n")

    job = site.ended("--mount", f"{data}:/mnt/data:ro", "--", "sh", "-c", "cat /mnt/data/x; touch /mnt/data/y")

    assert site.output(job) == "content\n"
    assert job["exit_code"] == 1
    assert not (data / "y").exists()


def test_a_stop_reaches_every_process_once_and_nothing_is_left(site: Site) -> None:
    child = 'trap "echo child" TERM; echo ready; while :; do sleep 0.05; done'
    script = f"trap 'echo parent; sleep 0.3; exit 7' TERM; sh -c '{child}' & wait"
    number = site.add("--grace", "1s", "--", "sh", "-c", script)
    job = site.wait_for_output(number, "ready")

    site.world.dibs("kill", str(number))
    (job,) = site.world.wait_for(number)

    assert job["state"] == "cancelled"
    assert sorted(site.output(job).split()) == ["child", "parent", "ready"]
    _nothing_is_left(site, job)


def test_what_ignores_the_time_limit_is_killed(site: Site) -> None:
    job = site.ended("-t", "1s", "--grace", "0.2s", "--", "sh", "-c", "trap '' TERM; sleep 600 & sleep 600")

    assert job["state"] == "timed_out"
    _nothing_is_left(site, job)


def test_the_signal_before_the_limit_reaches_the_program_behind_a_shell(site: Site) -> None:
    inner = "trap 'echo saved; exit 0' USR1; while :; do sleep 0.05; done"
    script = f'sh -c "{inner}"; exit $?'
    options = ("-t", "3s", "--checkpoint-signal", "USR1@2", "--retries", "0")

    number = site.add(*options, "--", "sh", "-c", script)
    job = site.wait_for_output(number, "saved")

    wait_until(lambda: site.world.client().job(number)["attempts"] > 1)  # it is queued again
    site.world.dibs("kill", str(number))
    site.world.dibs("kill", str(number))
    (job,) = site.world.wait_for(number)
    _nothing_is_left(site, job)


def test_input_and_exit_code_of_a_run_in_the_foreground(site: Site) -> None:
    words = ["--image", site.image, "--container-engine", site.engine, "--", "sh", "-c", "cat; exit 4"]

    ended = site.world.dibs("run", "--gpus", "0", *words, input="piped in\n")

    assert (ended.status, ended.stdout) == (4, "piped in\n"), ended


def test_an_image_that_is_not_there_and_may_not_be_pulled_is_refused(site: Site) -> None:
    options = ("--image", "/no/such/image", "--container-engine", site.engine, "--image-pull", "never")

    refused = site.world.dibs("add", *options, "--", "true")

    assert refused.status == 2
    assert "not here" in refused.stderr or "no image" in refused.stderr or "cannot ask" in refused.stderr


def _nothing_is_left(site: Site, job: dict[str, Any]) -> None:
    assert site.engines.names(site.engine) == []
    assert marked_processes(job["folder"]) == []
    assert str(job["id"]) not in [holder.job for holder in site.world.holders()]
