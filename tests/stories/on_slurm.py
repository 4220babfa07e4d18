"""A world whose jobs run on a Slurm of our own, and what that Slurm has of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.private_slurm import PrivateSlurm
from stories.outside import Running, World, wait_until

PATIENCE = 120.0  # seconds; only a failing test waits for so long
# Says that it runs, and does so until a test lets all of them go.
HOLD = "touch up-$DIBS_JOB_ID; until test -e go; do sleep 0.05; done"


@dataclass
class Afar:
    """What a person types and a program reads, of jobs that run there."""

    world: World
    slurm: PrivateSlurm

    def daemon(self, **more: Any) -> Running:
        return self.world.run_daemon(pool="0,1", **more)

    def add(self, *words: str, **more: Any) -> int:
        return self.world.add("--on", "slurm", *words, timeout=60, **more)

    def job(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.world.client().job(number)
        return found

    def attempt(self, number: int) -> dict[str, Any]:
        """The last attempt of a job."""
        found: dict[str, Any] = self.job(number)["attempts_list"][-1]
        return found

    def wait_for(self, *jobs: int) -> list[dict[str, Any]]:
        """These jobs, once all are over."""
        client = self.world.client()
        wait_until(
            lambda: not client.wait(jobs, seconds=5)["waiting"],
            show=lambda: (list(client.jobs()), self.squeue()),
            seconds=PATIENCE,
        )
        return [client.job(number) for number in jobs]

    def wait_until(self, state: str, *jobs: int) -> None:
        wait_until(
            lambda: all(self.job(number)["state"] == state for number in jobs),
            show=lambda: ([self.job(number) for number in jobs], self.squeue()),
            seconds=PATIENCE,
        )

    def wait_until_up(self, *jobs: int) -> None:
        """Until the commands of these are really there."""
        wait_until(
            lambda: all((self.world.folder / f"up-{number}").exists() for number in jobs),
            show=lambda: ([self.job(number) for number in jobs], self.squeue()),
            seconds=PATIENCE,
        )

    def wait_for_output(self, number: int, text: str) -> None:
        """Until its last attempt has said this."""
        wait_until(
            lambda: text in self.output(self.job(number)),
            show=lambda: (self.job(number), self.squeue()),
            seconds=PATIENCE,
        )

    def output(self, job: dict[str, Any]) -> str:
        path = Path(job["stdout"] or "/nothing")
        return path.read_text(errors="surrogateescape") if path.exists() else ""

    def fill(self) -> list[int]:
        """Jobs that have all six cards until `let_go`."""
        jobs = [self.add("-n", "2", "--", HOLD) for _ in range(3)]
        self.wait_until_up(*jobs)
        return jobs

    def let_go(self) -> None:
        self.world.write("go", "")

    def squeue(self) -> list[str]:
        """The name of each job, or element of an array, that Slurm has."""
        return self.slurm.ask("squeue", "-h", "-r", "-a", "-o", "%j").split()

    def assert_nothing_is_left(self) -> None:
        """Slurm has nothing of ours, the daemon can end, and no process is there afterwards."""
        wait_until(lambda: not self.squeue(), show=self.squeue, seconds=PATIENCE)
        assert self.world.dibs("daemon", "stop").status == 0
        self.world.assert_nothing_is_left()


@contextmanager
def afar(world: World, slurm: PrivateSlurm) -> Iterator[Afar]:
    """Rounds in quick succession, and little patience with what is gone."""
    world.environ |= {
        "SLURM_CONF": slurm.environment["SLURM_CONF"],
        "DIBS_SLURM_EVERY": "0.3s",
        "DIBS_SLURM_PATIENCE": "3s",
        "XDG_CONFIG_HOME": str(world.folder.parent / "config"),
    }
    yield Afar(world, slurm)
    (world.folder / "go").touch()
    world.clean_up()
    slurm.clear()
