"""Backends for the contract suite: this machine, a private Slurm, and the fakes of the engine's tests."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from backends.private_slurm import PrivateSlurm
from backends.private_sshd import PrivateSshd
from dibs.backends.local import LocalBackend
from dibs.backends.protocol import AttemptRef, Backend, Observed, Phase, Resources, Submission
from dibs.backends.slurm.backend import SlurmBackend, SlurmSettings
from dibs.backends.slurm.controller import Commands
from dibs.model.jobs import JobId, Wishes
from engine.remote_world import Cluster
from engine.world import FakeBackend, Machine
from stories.outside import wait_until
from supervise.hands import Loop

NO_GPU = Resources(wishes=Wishes(num_gpus=0))


class Site:
    """A backend, a folder for its attempts, and a folder in which their commands run."""

    def __init__(self, root: Path, backend: Backend) -> None:
        self.root = root
        self.backend = backend
        self.workdir = root / "work"
        self.workdir.mkdir(parents=True, exist_ok=True)
        self.mark = os.urandom(3).hex()
        self.environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "of another job", "SLURM_FOREIGN": "1"}
        self._number = 0

    def submission(
        self,
        line: str,
        *,
        key: str = "",
        attempt: int = 1,
        wanted: Resources = NO_GPU,
        **spec: Any,
    ) -> Submission:
        if not key:
            self._number += 1
            key = f"{self.mark}-{self._number}"
        ref = AttemptRef(key, attempt, f"{self.root}/attempts/0/{key}.{attempt}")
        environment = self.root / "environment.json"
        if not environment.exists():
            environment.write_text(json.dumps(self.environment))
        whole = {
            "v": 1,
            "job": key,
            "attempt": attempt,
            "words": ["bash", "-c", line],
            "workdir": str(self.workdir),
            "umask": 0o022,
            "environment": str(environment),
            "env": {},
            "stdout": f"{ref.folder}/stdout",
            "stderr": f"{ref.folder}/stderr",
            "time_limit": wanted.time_limit,
            "grace": 10.0,
        }
        return Submission(ref=ref, spec=whole | spec, wanted=wanted)

    def prepare(self, one: Submission) -> None:
        """What an engine does before it records that it will submit this one."""

    def start(self, line: str, **more: Any) -> AttemptRef:
        """Submit one, and see it accepted."""
        one = self.submission(line, **more)
        assert one.ref in self.backend.submit([one]).accepted
        return one.ref

    def look(self, ref: AttemptRef) -> Observed:
        return self.backend.observe([ref])[ref]

    def wait(self, ref: AttemptRef, phase: Phase, seconds: float = 60) -> Observed:
        """What is seen once it is in this phase."""
        seen: list[Observed] = []

        def is_there() -> bool:
            seen[:] = [self.look(ref)]
            return seen[0].phase is phase

        wait_until(is_there, show=lambda: (seen, self.log(ref), self.log(ref, "stderr")), seconds=seconds)
        return seen[0]

    def wait_for(self, name: str) -> str:
        """What a command wrote to a file of its folder."""
        path = self.workdir / name
        wait_until(lambda: path.exists() and path.read_text().endswith("\n"), show=lambda: path, seconds=60)
        return path.read_text()

    def record(self, ref: AttemptRef) -> Mapping[str, Any]:
        record = self.wait(ref, Phase.ENDED).record
        assert record is not None
        return record

    def log(self, ref: AttemptRef, stream: str = "stdout") -> str:
        path = Path(ref.folder) / stream
        return path.read_text(errors="replace") if path.exists() else ""

    def renew(self) -> None:
        """Use a new backend, which remembers nothing."""
        raise NotImplementedError

    # -- a command that runs until the test lets it end --

    def held(self, *, code: int, key: str = "", attempt: int = 1) -> Submission:
        """It ends with this code once `let_end` was called."""
        one = self.submission("", key=key, attempt=attempt)
        name = f"{one.ref.key}.{one.ref.attempt}"
        line = f"echo $PPID >> ran-{name}; until test -e go-{name}; do sleep 0.05; done; exit {code}"
        return replace(one, spec=one.spec | {"words": ["bash", "-c", line]})

    def wait_until_running(self, ref: AttemptRef) -> None:
        self.wait_for(f"ran-{ref.key}.{ref.attempt}")

    def let_end(self, ref: AttemptRef) -> None:
        (self.workdir / f"go-{ref.key}.{ref.attempt}").touch()

    def starts(self, ref: AttemptRef) -> int:
        """How often its command was started."""
        return len(self.wait_for(f"ran-{ref.key}.{ref.attempt}").split())

    def kill_shim(self, ref: AttemptRef) -> None:
        os.kill(int(self.wait_for(f"ran-{ref.key}.{ref.attempt}")), 9)


class LocalSite(Site):
    """This machine, with a loop for its backend."""

    def __init__(self, root: Path) -> None:
        self._loop = Loop()
        super().__init__(root, self._new_backend(root))

    def prepare(self, one: Submission) -> None:
        assert isinstance(self.backend, LocalBackend)
        self.backend.prepare(one)
        self.backend.close_prepared()

    def look(self, ref: AttemptRef) -> Observed:
        self._loop.turn()
        return super().look(ref)

    def renew(self) -> None:
        self.close()
        self._loop = Loop()
        self.backend = self._new_backend(self.root)

    def close(self) -> None:
        assert isinstance(self.backend, LocalBackend)
        self.backend.close()
        self._loop.close()

    def _new_backend(self, root: Path) -> LocalBackend:
        return LocalBackend(str(root), self._loop.add_reader, self._loop.remove_reader)


class FakeMachineSite(Site):
    """The machine without processes of the engine's tests."""

    def __init__(self, root: Path) -> None:
        self.machine = Machine(obeys=True, may_repeat=True)
        self._codes: dict[AttemptRef, int] = {}
        super().__init__(root, FakeBackend(self.machine, lambda ref: ()))

    def prepare(self, one: Submission) -> None:
        self.machine.prepare(one.ref.folder, one.spec)

    def held(self, *, code: int, key: str = "", attempt: int = 1) -> Submission:
        self._number += not key
        one = self.submission("", key=key or str(self._number), attempt=attempt)
        self._codes[one.ref] = code
        return one

    def wait_until_running(self, ref: AttemptRef) -> None: ...

    def let_end(self, ref: AttemptRef) -> None:
        self.machine.end(self.machine.runs[ref.folder], code=self._codes[ref])

    def starts(self, ref: AttemptRef) -> int:
        return self.machine.starts(JobId(int(ref.key)))

    def kill_shim(self, ref: AttemptRef) -> None:
        run = self.machine.runs[ref.folder]
        run.is_alive = False
        self.machine.kill_shim(run)

    def renew(self) -> None:
        self.machine.forget_engine()
        self.machine.epoch += 1
        self.backend = FakeBackend(self.machine, lambda ref: ())


class FakeClusterSite(Site):
    """The cluster without processes of the engine's tests."""

    def __init__(self, root: Path) -> None:
        self.cluster = Cluster()
        self._codes: dict[AttemptRef, int] = {}
        super().__init__(root, self.cluster)

    def held(self, *, code: int, key: str = "", attempt: int = 1) -> Submission:
        one = self.submission("", key=key, attempt=attempt)
        self._codes[one.ref] = code
        return one

    def wait_until_running(self, ref: AttemptRef) -> None:
        self.cluster.start(self.cluster.jobs[ref.key, ref.attempt])

    def let_end(self, ref: AttemptRef) -> None:
        self.cluster.end(self.cluster.jobs[ref.key, ref.attempt], code=self._codes[ref])

    def starts(self, ref: AttemptRef) -> int:
        return self.cluster.jobs[ref.key, ref.attempt].starts

    def kill_shim(self, ref: AttemptRef) -> None:
        self.cluster.lose(self.cluster.jobs[ref.key, ref.attempt])

    def renew(self) -> None: ...  # a new engine talks to the same cluster


def slurm_backend(slurm: PrivateSlurm, root: Path, *, patience: float = 3.0, **more: Any) -> SlurmBackend:
    """A backend as a new daemon would make it."""
    settings = replace(SlurmSettings(root=str(root), patience=patience), **more)
    return SlurmBackend(settings, Commands(slurm.environment))


def node_root(root: Path) -> Path:
    """The folder that stands for the nodes' own disks."""
    return root.parent / "on the nodes"


def fetching_backend(slurm: PrivateSlurm, sshd: PrivateSshd, root: Path, **more: Any) -> SlurmBackend:
    """One whose nodes see nothing of `root`."""
    return slurm_backend(slurm, root, ssh=sshd.ssh, node_root=str(node_root(root)), **more)


class SlurmSite(Site):
    """A private Slurm; with sshd its nodes share no file system with us."""

    def __init__(self, root: Path, slurm: PrivateSlurm, sshd: PrivateSshd | None = None) -> None:
        self._slurm = slurm
        self._sshd = sshd
        super().__init__(root, self._new_backend(root))

    def renew(self) -> None:
        self.backend = self._new_backend(self.root)

    def _new_backend(self, root: Path) -> SlurmBackend:
        if self._sshd is None:
            return slurm_backend(self._slurm, root)
        return fetching_backend(self._slurm, self._sshd, root)
