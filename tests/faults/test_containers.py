"""kill -9 of whatever supervises a container: it is found by its name, keeps its card, and is removed at the end.

Docker's processes are below its own daemon and inherit no lock of ours; podman's are below the shim. A crash test
counts only once it has been seen to fail: the plants at the end are bugs that these checks see.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from containers.private_engines import PrivateEngines
from dibs.supervise.container_usage import numbers_inside
from dibs.supervise.folder import marked_processes, record_of
from faults.test_plants import planted
from stories.outside import Running, World, make_world, wait_until

SCRIPT = "echo started; until test -e go; do sleep 0.05; done; echo done"


class Site:
    """A queue with one card, whose first job runs in a container until there is a file `go`."""

    def __init__(self, world: World, engines: PrivateEngines, engine: str) -> None:
        self.world = world
        self.engine = engine
        self._engines = engines
        self._options = ("--image", engines.image_for(engine), "--container-engine", engine)
        self.daemon: Running
        self.first = 0
        self.folder = ""  # of its attempt

    def start(self, **more: Any) -> None:
        self.daemon = self.world.run_daemon(pool="0", **more)
        self.first = self.world.add(*self._options, "--", "sh", "-c", SCRIPT)
        self.folder = wait_until(lambda: self.job(self.first)["folder"])
        wait_until(lambda: "started" in self.said, show=lambda: self.job(self.first))

    @property
    def said(self) -> str:
        path = Path(self.folder) / "stdout"
        return path.read_text() if path.exists() else ""

    @property
    def lives(self) -> bool:
        """Whether the command in the container runs."""
        return bool(numbers_inside(self.folder))

    @property
    def names(self) -> list[str]:
        return self._engines.names(self.engine)

    @property
    def path_of_nvidias_hook(self) -> str:
        return self._engines.path_of_nvidias_hook

    def job(self, number: int) -> dict[str, Any]:
        return self.world.client().job(number)

    def kill(self, *whom: str) -> None:
        """Kill -9: the daemon first, as a crash that takes everything would leave nobody who notices."""
        record = record_of(self.folder) or {}
        pids = {"shim": record["shim"], "client": record["pid"]}
        if "daemon" in whom:
            self.daemon.kill()
        for name in whom:
            if name in pids:
                with suppress(ProcessLookupError):
                    os.kill(pids[name], signal.SIGKILL)

    def restart(self, **more: Any) -> None:
        self.daemon = self.world.run_daemon(pool="0", **more)

    def add_second(self) -> int:
        return self.world.add("--", "touch", "second")

    @property
    def second_has_run(self) -> bool:
        return (self.world.folder / "second").exists()

    def go(self) -> None:
        self.world.write("go", "")

    def assert_nothing_is_left(self) -> None:
        wait_until(lambda: not marked_processes(self.folder), show=lambda: marked_processes(self.folder))
        assert self.names == []
        assert self.world.holders() == []


@pytest.fixture(params=["podman", "docker"])
def site(request: pytest.FixtureRequest, engines: PrivateEngines, tmp_path: Path) -> Iterator[Site]:
    yield from _site(engines, tmp_path, request.param)


@pytest.fixture
def docker_site(engines: PrivateEngines, tmp_path: Path) -> Iterator[Site]:
    yield from _site(engines, tmp_path, "docker")


def _site(engines: PrivateEngines, root: Path, engine: str) -> Iterator[Site]:
    world = make_world(root, is_utf8=True)
    world.environ |= engines.environment
    yield Site(world, engines, engine)
    world.clean_up()
    for name in engines.names(engine):
        engines.ask(engine, "rm", "--force", name)


def test_a_container_whose_shim_was_killed_keeps_its_card_until_it_ends(site: Site) -> None:
    site.start()
    site.kill("shim")
    second = site.add_second()
    wait_until(lambda: "supervisor of job" in site.daemon.stderr, show=lambda: site.daemon.stderr)

    assert site.lives and not site.second_has_run
    assert [holder.gpu for holder in site.world.holders()] == ["index-0"]
    site.go()
    lost, other = site.world.wait_for(site.first, second)

    assert (lost["state"], other["state"]) == ("lost", "succeeded")
    assert "done" in site.said
    site.assert_nothing_is_left()


def test_a_container_is_adopted_by_the_next_daemon(site: Site) -> None:
    site.start()
    site.kill("daemon")
    assert site.lives

    site.restart()
    site.go()
    (job,) = site.world.wait_for(site.first)

    assert (job["state"], job["exit_code"], site.said) == ("succeeded", 0, "started\ndone\n")
    site.assert_nothing_is_left()


def test_a_container_that_outlives_all_of_ours_has_its_card_locked_again(site: Site) -> None:
    site.start()
    site.kill("daemon", "shim", "client")
    wait_until(lambda: not _is_alive(record_of(site.folder)["pid"]))  # type: ignore[index]
    site.restart()
    second = site.add_second()
    wait_until(lambda: site.world.holders(), show=lambda: site.daemon.stderr)

    assert site.lives and not site.second_has_run
    assert [(holder.job, holder.folder) for holder in site.world.holders()] == [(str(site.first), site.folder)]
    site.world.dibs("kill", str(site.first))
    site.world.dibs("kill", str(site.first))
    killed, other = site.world.wait_for(site.first, second)

    assert (killed["state"], other["state"]) == ("cancelled", "succeeded")
    site.assert_nothing_is_left()


def test_a_container_that_outlives_all_of_ours_is_seen_on_its_card_before_a_daemon_starts(
    docker_site: Site, tmp_path: Path
) -> None:
    site = docker_site
    card = {"index": 0, "uuid": "GPU-1", "name": "A card", "memory_total": 1 << 30, "processes": []}
    site.world.environ["DIBS_PROBE"] = f"fake:{tmp_path}/cards.json"
    path = f"{site.path_of_nvidias_hook}:{site.world.environ['PATH']}"
    site.world.environ["PATH"] = path
    (tmp_path / "cards.json").write_text(json.dumps([card]))
    site.start()
    pid = min(numbers_inside(site.folder))
    (tmp_path / "cards.json").write_text(json.dumps([{**card, "processes": [{"pid": pid, "memory": 1 << 20}]}]))
    (held,) = json.loads(site.world.dibs("gpus", "--json").stdout)

    site.kill("daemon", "shim", "client")
    wait_until(lambda: not _is_alive(record_of(site.folder)["pid"]))  # type: ignore[index]
    (busy,) = json.loads(site.world.dibs("gpus", "--json").stdout)
    run = site.world.dibs("run", "--no-wait", "--gpus", "0", "--", "true")

    assert site.lives
    assert (held["state"], held["foreign"]) == ("held", [])
    assert (busy["state"], [one["pid"] for one in busy["foreign"]]) == ("busy", [pid])
    assert "GPU 0 is busy" in run.stderr, run
    site.go()


def test_the_end_of_the_engines_client_ends_the_container(site: Site) -> None:
    site.start()
    site.kill("client")
    (job,) = site.world.wait_for(site.first)

    assert (job["state"], job["signal"]) == ("failed", signal.SIGKILL)
    assert not site.lives
    site.assert_nothing_is_left()


def test_a_container_that_was_killed_is_seen_as_killed(site: Site) -> None:
    site.start()
    site.world.dibs("kill", str(site.first))
    site.world.dibs("kill", str(site.first))
    (job,) = site.world.wait_for(site.first)

    assert job["state"] == "cancelled"
    site.assert_nothing_is_left()


# -- plants --------------------------------------------------------------------------------------------

PLANTS = {
    # Only locks tell whether something of an attempt lives.
    "looks at locks only": """
        from dibs.supervise import orphans
        orphans.find_left_processes = lambda attempts: {folder: {} for folder in attempts}
        from dibs.engine.launch.containers import AttemptContainers
        AttemptContainers.is_left = lambda self, attempt, *, same_boot: False
    """,
    # The card is kept in the books, but other programs do not see it.
    "does not lock the card again": """
        from dibs.engine.launch.lease_keeper import LeaseKeeper
        LeaseKeeper.hold_again = lambda self, one: None
    """,
}


def test_the_checks_see_an_engine_that_looks_at_locks_only(docker_site: Site) -> None:
    site = docker_site
    program = planted(site.world, PLANTS["looks at locks only"])
    site.start(program=program)
    site.kill("daemon", "shim", "client")
    wait_until(lambda: not _is_alive(record_of(site.folder)["pid"]))  # type: ignore[index]
    site.restart(program=program)

    site.world.wait_for(site.add_second())

    assert site.lives and site.second_has_run  # two jobs on one card
    assert site.names


def test_the_checks_see_an_engine_that_does_not_lock_the_card_again(docker_site: Site) -> None:
    site = docker_site
    program = planted(site.world, PLANTS["does not lock the card again"])
    site.start(program=program)
    site.kill("daemon", "shim", "client")
    wait_until(lambda: not _is_alive(record_of(site.folder)["pid"]))  # type: ignore[index]
    site.restart(program=program)
    wait_until(lambda: "supervisor of job" in site.daemon.stderr, show=lambda: site.daemon.stderr)

    assert site.lives
    assert site.world.holders() == []  # another program would take it


def _is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")
