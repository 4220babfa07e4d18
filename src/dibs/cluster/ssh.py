"""The caller: run what stands in `on_host/` on hosts, over ssh, or here without it."""

import contextlib
import json
import os
import queue
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from dibs.cluster.checks import Problem, why_unreached
from dibs.cluster.on_host.talk import MARK
from dibs.cluster.saved import SSH_OPTIONS
from dibs.errors import BadInput, DibsError

PATIENCE = 60.0  # seconds for an answer

_Answer = TypeVar("_Answer")
_MODULES = ("talk", "daemons", "look", "files", "packages")  # each may import those before it
_BOOT = "import sys; b=sys.stdin.buffer; exec(b.read(int(b.readline())))"
# It passes through the user's login shell there, so it has no single quote and no exclamation mark.
_FIND_PYTHON = (
    "for p in python3.11 python3.12 python3.13 python3.14 python3; do"
    ' $p -c "" 2>/dev/null && exec $p -c "' + _BOOT + '"; done; echo no-python3 >&2; exit 127'
)
_CALL = """
import json, sys, types
payload = json.loads(b.read(int(b.readline())).decode())
for name, text in payload["modules"]:
    module = sys.modules["dibs.cluster.on_host." + name] = types.ModuleType(name)
    exec(compile(text, name + ".py", "exec"), module.__dict__)
module, _, function = payload["call"].partition(".")
try:
    answer = getattr(sys.modules["dibs.cluster.on_host." + module], function)(payload["request"])
except Exception as error:
    answer = {"error": str(error) or type(error).__name__}
sys.modules["dibs.cluster.on_host.talk"].say(answer)
"""


class HostUnreachable(DibsError):
    """A host did not answer; the problem says what that means."""

    code = "unreached"

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.host}: {problem.message}", remedy=problem.remedy)
        self.problem = problem


class HostFailed(DibsError):
    """A host answered that it cannot do what it was asked."""

    code = "host-failed"


class HostCaller:
    """Calls functions of `on_host/` by their names, `look.look`, on hosts; an empty host is this machine."""

    def __init__(self, ssh: Sequence[str]) -> None:
        self.ssh = tuple(ssh)

    def call(
        self, host: str, call: str, request: Mapping[str, Any], *, data: bytes = b"", seconds: float = PATIENCE
    ) -> dict[str, Any]:
        """The answer of a host. Raises Unreached where there is none, HostFailed where it says that it cannot."""
        with self._open(host) as process:
            try:
                said, errors = process.communicate(_sent(call, request) + data, timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                raise HostUnreachable(_no_answer(host, f"within {seconds:g} seconds", self.ssh)) from None
        found = [line for line in said.decode("utf-8", "replace").splitlines() if line.startswith(MARK)]
        if not found:
            raise _unreached(host, process.returncode, errors, self.ssh)
        return _checked(host, json.loads(found[-1].removeprefix(MARK)))

    def talk(self, host: str, call: str, request: Mapping[str, Any]) -> "HostCall":
        """A call that answers several times, and waits for a word between."""
        return HostCall(host, self._open(host), _sent(call, request), self.ssh)

    def address_of(self, host: str) -> str:
        """The name or address at which ssh reaches a host, whatever the user calls it."""
        words = [*self.ssh, "-G", "--", host]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
        for line in done.stdout.decode("utf-8", "replace").splitlines():
            name, _, value = line.partition(" ")
            if name == "hostname" and value:
                return value
        return host.rpartition("@")[2]

    def _open(self, host: str) -> "subprocess.Popen[bytes]":
        here = [sys.executable, "-I", "-c", _BOOT]
        there = [*self.ssh, *SSH_OPTIONS, "--", host, f"sh -c {shlex.quote(_FIND_PYTHON)}"]
        words, pipe = there if host else here, subprocess.PIPE
        try:
            return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        except OSError as error:
            remedy = "install openssh-client, or look at --ssh" if host else "it is what dibs itself runs with"
            raise DibsError(f"cannot start {words[0]}: {error.strerror}", remedy=remedy) from error


class HostCall:
    """One call in progress."""

    def __init__(self, host: str, process: "subprocess.Popen[bytes]", sent: bytes, ssh: Sequence[str]) -> None:
        self.host = host
        self._ssh = ssh
        self._process = process
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.say(sent)

    def say(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # why it left is told by `hear`
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def hear(self, seconds: float = PATIENCE) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise HostUnreachable(_no_answer(self.host, f"within {seconds:g} seconds", self._ssh)) from None
        if answer is None:
            assert self._process.stderr is not None
            raise _unreached(self.host, self._process.wait(), self._process.stderr.read(), self._ssh)
        return _checked(self.host, answer)

    def close(self) -> None:
        """Hang up; it ends by itself, and is ended where it does not."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(timeout=10)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.decode("utf-8", "replace")
            if text.startswith(MARK):
                self._answers.put(json.loads(text.removeprefix(MARK)))
        self._answers.put(None)


def each(hosts: Sequence[str], ask: Callable[[str], _Answer]) -> tuple[dict[str, _Answer], list[DibsError]]:
    """Ask all hosts at once; the answers, and what went wrong elsewhere."""
    answers, errors = {}, []
    with ThreadPoolExecutor(max_workers=max(1, min(32, len(hosts)))) as pool:
        for host, asked in [(host, pool.submit(ask, host)) for host in hosts]:
            try:
                answers[host] = asked.result()
            except DibsError as error:
                errors.append(error)
    return answers, errors


def all_of(hosts: Sequence[str], ask: Callable[[str], _Answer]) -> dict[str, _Answer]:
    """The same, where every answer is needed: the first thing that went wrong is raised."""
    answers, errors = each(hosts, ask)
    if errors:
        raise errors[0]
    return answers


def _sent(call: str, request: Mapping[str, Any]) -> bytes:
    payload = json.dumps({"modules": _sources(), "call": call, "request": request}).encode()
    first = _CALL.encode()
    return b"%d\n%s%d\n%s" % (len(first), first, len(payload), payload)


@cache
def _sources() -> list[tuple[str, str]]:
    folder = Path(__file__).parent / "on_host"
    return [(name, (folder / f"{name}.py").read_text(encoding="utf-8")) for name in _MODULES]


def _checked(host: str, answer: dict[str, Any]) -> dict[str, Any]:
    if set(answer) == {"error"}:
        raise HostFailed(f"{host or 'this machine'}: {answer['error']}")
    return answer


def _unreached(host: str, status: int, errors: bytes, ssh: Sequence[str]) -> HostUnreachable:
    return HostUnreachable(why_unreached(host or "this machine", status, errors.decode("utf-8", "replace"), ssh))


def _no_answer(host: str, within: str, ssh: Sequence[str]) -> Problem:
    shown = host or "this machine"
    typed = shlex.join([*ssh, host, "true"]) if host else "dibs doctor"
    return Problem(host=shown, code="no-answer", message=f"does not answer {within}", remedy=f"try `{typed}`")


def up_command(hosts: Sequence[str], ssh: Sequence[str]) -> str:
    """What makes a cluster of these hosts, which are reached by this command."""
    more = [] if tuple(ssh) == ("ssh",) else ["--ssh", shlex.join(ssh)]
    return shlex.join(["dibs", "cluster", "up", *hosts, *more])


def ssh_words(text: str) -> tuple[str, ...]:
    """The words of `--ssh`, `ssh -p 2222 -i key`."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise BadInput(
            f"cannot read --ssh {text!r}: {error}", remedy="write it like 'ssh -p 2222 -i key'"
        ) from error
    if not words:
        raise BadInput("--ssh is empty", remedy="write it like 'ssh -p 2222 -i key'")
    # A key is named relative to where the user stands now, and used from elsewhere later.
    return tuple(
        os.path.abspath(word) if place and os.path.exists(word) else word for place, word in enumerate(words)
    )
