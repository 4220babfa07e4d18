"""Places where the contract of the verbs is tried: this machine, and a Slurm of our own."""

import json
import os
import selectors
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from backends.private_slurm import PrivateSlurm
from backends.private_sshd import PrivateSshd
from dibs.backends.local import LocalBackend
from dibs.backends.protocol import (
    AttemptRef,
    Backend,
    BackendProspect,
    Identity,
    Node,
    Observed,
    Phase,
    Submission,
    Submitted,
    Wanted,
)
from dibs.backends.slurm.backend import SlurmBackend, SlurmSettings
from dibs.backends.slurm.commands import Commands
from dibs.model.jobs import Attempt, JobId, Wishes
from dibs.policy.settle import Verdict, settle
from stories.outside import wait_until

NO_GPU = Wanted(wishes=Wishes(num_gpus=0))


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
        wanted: Wanted = NO_GPU,
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

    def start(self, line: str, **more: Any) -> AttemptRef:
        """Submit one, and see it accepted."""
        one = self.submission(line, **more)
        assert one.ref in self.backend.submit([one]).accepted
        return one.ref

    def look(self, ref: AttemptRef) -> Observed:
        return self.backend.observe([ref])[ref]

    def wait(self, ref: AttemptRef, phase: Phase, seconds: float = 60) -> Observed:
        """What is seen once it stands there."""
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


class LocalVerbs:
    """This machine behind the verbs: the local backend with a loop of its own."""

    def __init__(self, root: Path) -> None:
        self._selector = selectors.DefaultSelector()
        self._backend = LocalBackend(str(root), self._add, self._remove)
        self._backend.warm_up()

    def nodes(self) -> Sequence[Node]:
        return [Node(name=os.uname().nodename, state="idle", is_usable=True, cpus=os.cpu_count() or 1)]

    def check(self, wanted: Wanted) -> BackendProspect:
        return BackendProspect(sentence="it starts when its cards are free")

    def submit(self, submissions: Sequence[Submission]) -> Submitted:
        for one in submissions:
            with suppress(FileExistsError, BlockingIOError):  # it was started before, or runs
                self._backend.submit(_attempt(one.ref), dict(one.spec), (), lambda: None)
        return Submitted(accepted=frozenset(one.ref for one in submissions))

    def cancel(self, refs: Sequence[AttemptRef], *, insist: bool = False) -> None:
        for ref in refs:
            self._backend.tell(_attempt(ref), "kill" if insist else "stop")

    def observe(self, refs: Sequence[AttemptRef]) -> Mapping[AttemptRef, Observed]:
        for key, _ in self._selector.select(0):
            callback, arguments = key.data
            callback(*arguments)
        return {ref: self._observe(ref) for ref in refs}

    def unasked(self, mark: str) -> Sequence[Identity]:
        return []  # nothing comes back here

    def take_out(self, strays: Sequence[Identity]) -> None:
        assert not strays

    def close(self) -> None:
        self._backend.close()
        self._selector.close()

    def _observe(self, ref: AttemptRef) -> Observed:
        facts = self._backend.observe(_attempt(ref))
        verdict = settle(
            is_locked=facts.is_locked,
            has_record=facts.exit_record is not None,
            has_started=facts.has_started,
            lease_is_held=False,
            same_boot=True,
        )
        phase = {Verdict.RUNNING: Phase.RUNNING, Verdict.OVER: Phase.ENDED}.get(verdict, Phase.LOST)
        reason = "nobody looks after it any more" if phase is Phase.LOST else ""
        never_started = verdict is Verdict.NEVER_RAN
        return Observed(phase=phase, record=facts.exit_record, reason=reason, never_started=never_started)

    def _add(self, fd: int, callback: Any, *arguments: Any) -> None:
        self._selector.register(fd, selectors.EVENT_READ, (callback, arguments))

    def _remove(self, fd: int) -> None:
        with suppress(KeyError):
            self._selector.unregister(fd)


def _attempt(ref: AttemptRef) -> Attempt:
    number = JobId(int.from_bytes(ref.key.encode(), "big"))
    return Attempt(job=number, number=ref.attempt, claims=(), boot_id="", opened_at=0.0, folder=ref.folder)
