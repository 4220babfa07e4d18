"""A daemon as a process: started, called over its socket, killed, started again."""

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from daemon.listening import Reply, call, connect
from stories.outside import PATIENCE, Finished, Running, World, wait_until

_keys = count()


class DaemonProcess:
    """The daemon of a test world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.running: Running | None = None
        world.environ |= {"DIBS_POOL": "0,1"}

    @property
    def queue(self) -> Path:
        return self.world.state / "queue"

    @property
    def socket(self) -> str:
        return str(self.queue / "socket")

    @property
    def log(self) -> str:
        return (self.queue / "daemon.log").read_text()

    def start(self, *, program: Sequence[str] | None = None, **env: str) -> Running:
        self.running = self.world.start("daemon", "run", program=program, env=env)
        wait_until(self._listens, show=lambda: self.running and self.running.stderr)
        return self.running

    def _listens(self) -> bool:
        assert self.running is not None
        assert self.running.process.poll() is None, self.running.stderr
        try:
            connect(self.socket).close()
        except OSError:
            return False
        return True

    def end(self) -> Finished | None:
        if self.running is None or self.running.process.poll() is not None:
            return None
        self.running.process.terminate()
        return self.running.wait()

    def kill(self) -> None:
        assert self.running is not None
        self.running.kill()

    # -- calls of the API -------------------------------------------------------------------------------

    def call(self, method: str, target: str, body: Any = None, **headers: str) -> Reply:
        return call(self.socket, method, target, body, **headers)

    def get(self, target: str) -> Any:
        reply = self.call("GET", target)
        assert reply.status == 200, reply
        return reply.json

    def post(self, target: str, body: Any) -> Any:
        reply = self.call("POST", target, body)
        assert reply.status in (200, 201), reply
        return reply.json

    def try_to_add(self, *jobs: Any, **more: Any) -> Reply:
        environment = {"PATH": "/usr/bin:/bin", "LEDGER": str(self.world.ledger.path)}
        body = {"key": f"key {next(_keys)}", "environment": environment, "jobs": list(jobs), **more}
        return self.call("POST", "/v1/jobs", body)

    def add(self, *jobs: Any, **more: Any) -> int:
        """The first number."""
        reply = self.try_to_add(*[{"command": job} if isinstance(job, str) else job for job in jobs], **more)
        assert reply.status == 201, reply
        return int(reply.json["first"])

    def job(self, number: int) -> Any:
        return self.get(f"/v1/jobs/{number}")

    def state(self, number: int) -> str:
        return str(self.job(number)["state"])

    def failures(self) -> list[str]:
        """All that is known about failed jobs, for the message of a failed test."""
        found = [self.job(one["id"]) for one in self.get("/v1/jobs?state=failed")["jobs"]]
        said = [Path(one["stderr"]).read_text(errors="replace") for one in found]
        return [json.dumps(one, indent=1) + f"\n{words}" for one, words in zip(found, said, strict=True)]

    def wait(self, *numbers: int) -> Any:
        found = self.get(f"/v1/jobs/wait?ids={','.join(map(str, numbers))}&timeout_seconds={PATIENCE / 2}")
        assert not found["waiting"], found
        return found["jobs"]


class Stream:
    """A client of the event stream."""

    def __init__(self, path: str, since: int | None = None, last: int | None = None) -> None:
        self._connection = connect(path)
        query = "" if since is None else f"?since={since}"
        header = "" if last is None else f"Last-Event-ID: {last}\r\n"
        self._connection.sendall(f"GET /v1/events{query} HTTP/1.1\r\nHost: dibs\r\n{header}\r\n".encode())
        self._file = self._connection.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        while self._file.readline() not in (b"\r\n", b""):
            pass

    def take(self, number: int) -> list[Any]:
        """The next so many events."""
        found: list[Any] = []
        while len(found) < number:
            line = self._file.readline()
            assert line, f"the stream ended after {found}"
            if line.startswith(b"data: "):
                found.append(json.loads(line[6:]))
        return found

    def first_comment(self) -> None:
        """Return when the server has started the stream."""
        while not self._file.readline().startswith(b": "):
            pass

    def rest(self) -> bytes:
        return self._file.read()

    def close(self) -> None:
        self._file.close()
        self._connection.close()
