"""The real zygote and shims under a loop of our own."""

import fcntl
import json
import os
import selectors
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dibs.backends.local import Leftovers, LocalBackend, WithoutShim, ref_of
from dibs.backends.protocol import NOT_ATTACHED, AttachedStreams, LocalInputs, Submission
from dibs.leases.lockers import file_key
from dibs.model.jobs import Attempt, Command, JobId, Request
from dibs.supervise import folder
from dibs.supervise.folder import AttemptFacts
from stories.outside import PATIENCE

_A_REQUEST = Request(command=Command.line("train"))


class Loop:
    """Calls back when descriptors become readable."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add_reader(self, fd: int, callback: Callable[..., Any], *arguments: Any) -> None:
        self._selector.register(fd, selectors.EVENT_READ, (callback, arguments))

    def remove_reader(self, fd: int) -> None:
        with suppress(KeyError):
            self._selector.unregister(fd)

    def turn(self, seconds: float = 0.0) -> None:
        for key, _ in self._selector.select(seconds):
            callback, arguments = key.data
            callback(*arguments)

    def close(self) -> None:
        self._selector.close()


class Hands:
    """Starts attempts through the local backend and waits until their shims let them go."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workdir = root / "work"
        self.workdir.mkdir(parents=True, exist_ok=True)
        self.environment = {"PATH": os.environ["PATH"]}
        self._loop = Loop()
        self.backend = LocalBackend(str(root), self._loop.add_reader, self._loop.remove_reader)
        self.backend.make_ready()
        self._done: set[tuple[int, int]] = set()
        self._number = 0

    def start(
        self,
        words: Sequence[str] | str,
        *,
        leases: Sequence[int] = (),
        attached: AttachedStreams = NOT_ATTACHED,
        **spec: Any,
    ) -> Attempt:
        """Start words, or a line for bash. OSError: nothing was started."""
        self._number += 1
        attempt = an_attempt(self.root, self._number)
        self.submit(attempt, self.spec(words, attempt) | spec, leases, attached)
        return attempt

    def submit(
        self,
        attempt: Attempt,
        spec: dict[str, Any],
        leases: Sequence[int] = (),
        attached: AttachedStreams = NOT_ATTACHED,
    ) -> None:
        ref = ref_of(attempt)
        self._done.discard(attempt.key)
        local = LocalInputs(lambda: self._done.add(attempt.key), leases, attached)
        answer = self.backend.submit([Submission(ref=ref, spec=spec, local=local)])
        if ref in answer.put_off:
            raise OSError(answer.put_off[ref])

    def spec(self, words: Sequence[str] | str, attempt: Attempt) -> dict[str, Any]:
        environment = self.root / f"environment-{attempt.job}.json"
        environment.write_text(json.dumps(self.environment))
        return {
            "v": 1,
            "job": attempt.job,
            "attempt": attempt.number,
            "words": ["bash", "-c", words] if isinstance(words, str) else list(words),
            "workdir": str(self.workdir),
            "umask": 0o022,
            "environment": str(environment),
            "env": {},
            "stdout": f"{attempt.folder}/stdout",
            "stderr": f"{attempt.folder}/stderr",
            "time_limit": None,
            "grace": 10.0,
        }

    def run(self, words: Sequence[str] | str, **more: Any) -> dict[str, Any]:
        """Run it to its end; the exit record."""
        return self.record(self.start(words, **more))

    def output(self, words: Sequence[str] | str, **more: Any) -> str:
        attempt = self.start(words, **more)
        record = self.record(attempt)
        assert record["code"] == 0, (record, self.log(attempt, "stderr"))
        return self.log(attempt)

    def log(self, attempt: Attempt, stream: str = "stdout") -> str:
        path = Path(attempt.folder) / stream
        return os.fsdecode(path.read_bytes()) if path.exists() else ""

    def record(self, attempt: Attempt) -> dict[str, Any]:
        """The exit record, once its shim has let it go."""
        self.wait(attempt)
        ref = ref_of(attempt)
        record = self.backend.observe([ref])[ref].record
        assert record is not None
        return dict(record)

    def facts(self, attempt: Attempt) -> AttemptFacts:
        return folder.facts(attempt.folder)

    def tell(self, attempt: Attempt, word: str) -> bool:
        """`stop`, `kill` or `signal N`; whether it was heard."""
        if word.startswith("signal "):
            return self.backend.signal(ref_of(attempt), int(word.split()[1]))
        return bool(self.backend.cancel([ref_of(attempt)], insist=word == "kill"))

    def look_after(
        self, attempt: Attempt, request: Request = _A_REQUEST, *, leases: Sequence[int] = (), **facts: Any
    ) -> Leftovers:
        """What is left of an attempt whose shim was killed; `leases` are descriptors of its lease files."""
        keys = [file_key(os.fstat(lease)) for lease in leases]
        facts = {"age": 0.0, "stood_still": 0.0, "is_suspended": False, "has_ended": False} | facts
        one = WithoutShim(ref=ref_of(attempt), request=request, holds_gpu=bool(leases), leases=keys, **facts)
        return self.backend.look_after([one])[one.ref]

    def wait(self, attempt: Attempt) -> None:
        self.turn_until(lambda: attempt.key in self._done)

    def adopt(self, attempt: Attempt) -> bool:
        return self.backend.watch(ref_of(attempt), lambda: self._done.add(attempt.key))

    def turn_until(self, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        until = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < until, "waited in vain"
            self._loop.turn(0.01)
        return found

    def running(self, attempt: Attempt) -> dict[str, Any]:
        """The record of an attempt that is running now: its pid, its shim."""

        def look() -> dict[str, Any] | None:
            record = folder.facts(attempt.folder).record
            return record if record is not None and record["state"] == "running" else None

        found: dict[str, Any] = self.turn_until(look)
        return found

    def close(self) -> None:
        self.backend.close()
        self._loop.close()


def an_attempt(root: Path, number: int) -> Attempt:
    return Attempt(
        job=JobId(number),
        number=1,
        claims=(),
        boot_id="this one",
        opened_at=0.0,
        folder=f"{root}/attempts/0/{number}.1",
    )


def is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False
