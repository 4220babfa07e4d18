"""What every container engine must do for a job: podman, docker and runc are real, apptainer is a stand-in.

The jobs go through a daemon, as a user's would: one for all tests of an engine.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
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
        umask
        echo loss=0.5 > $DIBS_METRICS; echo made > made; test -w /dev/shm && echo shm; test ! -e /etc/apt
    """

    with umask(0o027):
        job = site.ended("--env", "MINE=1", "--only", "1", "--", "sh", "-c", script)

    lines = site.output(job).splitlines()
    user = [str(os.geteuid()), str(os.getegid())]
    assert lines[:4] == [str(site.world.folder), "from outside" + user[0], user[1], "a b $c,1,,1"]
    assert lines[4:] == ["root:x:0:0::/:/bin/sh", "0022" if site.engine == "docker" else "0027", "shm"]
    assert (job["state"], job["exit_code"]) == ("succeeded", 0)
    assert site.world.read("made") == "made\n"
    assert (Path(job["stdout"]).parent / "metrics").read_text() == "loss=0.5\n"


def test_how_commands_end_and_what_they_are_given(site: Site) -> None:
    data = site.world.folder.parent / "data, more"
    data.mkdir()
    (data / "x").write_text("content\n")
    # 64 MiB that are read whole, and kept for a while because the other end of the pipe does not take them.
    large = "busybox dd if=/dev/zero bs=64M count=1 | (sleep 1; cat > /dev/null)"
    numbers = [  # all at once: most of the time of a container is its start
        site.add("--", "sh", "-c", "exit 125"),
        site.add("--", "sh", "-c", "kill -11 $$; sleep 9"),
        site.add("--", "echo one | cat; exit 3"),
        site.add("--", "no-such-program"),
        site.add("--mount", f"{data}:/mnt/data:ro", "--", "sh", "-c", "cat /mnt/data/x; touch /mnt/data/y"),
        site.add("-n", "0", "--", "sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"; ls /dev'),
        site.add("-n", "0", "--", "sh", "-c", large),
    ]

    own_code, killed, line, missing, mounted, without, measured = site.world.wait_for(*numbers)

    assert (own_code["exit_code"], own_code["cause"]) == (125, "exit code")  # not taken for the engine's
    assert (killed["exit_code"], killed["signal"], killed["cause"]) == (None, 11, "signal")
    assert (site.output(line), line["exit_code"]) == ("one\n", 3)  # the image has only sh
    assert missing["state"] == "failed"
    if site.engine in ("podman", "docker"):  # the others exit as a command may
        assert (missing["cause"], missing["exit_code"]) == ("start error", 127)
        assert f"{site.engine} could not start it" in missing["message"]
    assert (site.output(mounted), mounted["exit_code"]) == ("content\n", 1)
    assert not (data / "y").exists()
    assert site.output(without).splitlines()[0] == "[]"
    assert "nvidia" not in site.output(without) and "kfd" not in site.output(without)
    (used,) = measured["attempts_list"]
    assert 64 << 20 <= used["max_rss_bytes"] < 1 << 30, used
    assert 0 <= used["cpu_seconds"] < 60
    _nothing_is_left(site, *numbers)


def test_a_stop_reaches_every_process_once_and_nothing_is_left(site: Site) -> None:
    child = 'trap "echo child" TERM; echo ready; while :; do sleep 0.05; done'
    script = f"trap 'echo parent; sleep 0.3; exit 7' TERM; sh -c '{child}' & wait"
    number = site.add("--grace", "1s", "--", "sh", "-c", script)
    job = site.wait_for_output(number, "ready")

    site.world.dibs("kill", str(number))
    (job,) = site.world.wait_for(number)

    assert job["state"] == "cancelled"
    assert sorted(site.output(job).split()) == ["child", "parent", "ready"]
    _nothing_is_left(site, number)


def test_the_limit_ends_what_ignores_it_and_the_signal_before_it_reaches_the_program(
    site: Site,
) -> None:
    inner = "trap 'echo saved; exit 0' USR1; while :; do sleep 0.05; done"
    limits = ("-t", "7s", "--checkpoint-signal", "USR1@4", "--retries", "0")  # it is running by then
    stubborn = site.add("-t", "1s", "--grace", "0.2s", "--", "sh", "-c", "trap '' TERM; sleep 600 & sleep 600")
    saving = site.add(*limits, "--", "sh", "-c", f'sh -c "{inner}"; exit $?')

    (over,) = site.world.wait_for(stubborn)
    wait_until(lambda: site.world.client().job(saving)["attempts"] > 1)  # it is queued again
    for _ in range(2):
        site.world.dibs("kill", str(saving))
    (saved,) = site.world.wait_for(saving)

    assert over["state"] == "timed_out"
    assert Path(saved["attempts_list"][0]["folder"], "stdout").read_text() == "saved\n"
    _nothing_is_left(site, stubborn, saving)


def test_input_and_exit_code_of_a_run_in_the_foreground(site: Site) -> None:
    words = ["--image", site.image, "--container-engine", site.engine, "--", "sh", "-c", "cat; exit 4"]

    ended = site.world.dibs("run", "--gpus", "0", *words, input="piped in\n")

    assert (ended.status, ended.stdout) == (4, "piped in\n"), ended


def test_an_image_that_is_not_there_and_may_not_be_pulled_is_refused(site: Site) -> None:
    options = ("--image", "/no/such/image", "--container-engine", site.engine, "--image-pull", "never")

    refused = site.world.dibs("add", *options, "--", "true")

    assert refused.status == 2
    assert any(words in refused.stderr for words in ("not here", "no image", "cannot use")), refused


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _nothing_is_left(site: Site, *numbers: int) -> None:
    jobs = [site.world.client().job(number) for number in numbers]
    assert site.engines.names(site.engine) == []
    assert [marked_processes(job["folder"]) for job in jobs] == [[] for _ in jobs]
    assert {holder.job for holder in site.world.holders()}.isdisjoint(map(str, numbers))
