"""The daemons of a cluster on this host: found by their pid files and command lines, started, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import Any

DAEMONS = ("slurmd", "slurmctld", "munged")


def pid_file(local: str, name: str) -> str:
    return f"{local}/run/{name}.pid"


def pid_of(local: str, base: str, name: str) -> int | None:
    """Its pid: from its file, if that is still the daemon of this cluster and no stranger who got the number.

    Files in /var/tmp may be tidied away after a month, so without one it is looked for.
    """
    try:
        with open(pid_file(local, name)) as file:
            pid = int(file.read(20).split()[0])
        if _is_it(pid, name, local, base):
            return pid
    except (OSError, ValueError, IndexError):
        pass
    return next((pid for pid in _pids() if _is_it(pid, name, local, base)), None)


def is_alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def end(pids: list[int], within: float) -> None:
    """Ask them to end, wait, insist."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        until = time.monotonic() + within
        while any(map(is_alive, pids)) and time.monotonic() < until:
            time.sleep(0.05)


def of_jobs(base: str, node: str) -> list[int]:
    """Steps of this node and whatever they left behind, by what Slurm wrote into their environment.

    A shell with SLURM_CONF set is none of them.
    """
    conf = os.fsencode(f"SLURM_CONF={base}/etc/slurm.conf")
    here = os.fsencode(f"SLURMD_NODENAME={node}")
    step = os.fsencode(f"DIBS_CLUSTER_NODE={base}:{node}")
    found = []
    for pid in _pids():
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
                continue
            with open(f"/proc/{pid}/environ", "rb") as file:
                words = set(file.read().split(b"\0"))
        except OSError:
            continue
        if {conf, here} <= words or step in words:
            found.append(pid)
    return found


def _is_it(pid: int, name: str, local: str, base: str) -> bool:
    """Whether it is this daemon: ours, here, with our folders among its arguments."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = os.fsdecode(file.read()).split("\0")
        # A container may show processes of others, which have networks of their own.
        is_here = os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net")
        is_ours = os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False
    is_named = any(os.path.basename(word) in (name, f"{name}-wlm") for word in words[:4])
    is_told = any(local in word or base in word for word in words)
    return is_here and is_ours and is_named and is_told and is_alive(pid)


def _pids() -> list[int]:
    """All processes but this one."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()]


_PATIENCE = 30.0  # seconds until a daemon has written its pid
_SAYS_WHY = ("fatal", "error")
_NOISE = ("MPI:", "mpi/")  # an optional plugin


def start(request: dict[str, Any]) -> dict[str, Any]:
    """Start one, unless it runs; the answer says whether it did, or why it cannot."""
    base, local, name = request["base"], request["local"], request["name"]
    if pid_of(local, base, name):
        return {"was_there": True}
    for stale in (pid_file(local, name), *([f"{local}/munge.sock"] if name == "munged" else [])):
        if os.path.lexists(stale):
            os.unlink(stale)
    environment = _environment(base)
    if name == "slurmd":
        environment["DIBS_CLUSTER_NODE"] = f"{base}:{request['node']}"  # its steps inherit it, their jobs do not
    said = f"{local}/log/{name}.start"
    with open(said, "wb") as errors:
        try:
            done = subprocess.run(
                _words(name, base, local, request["node"]),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=environment,
                cwd="/",
                timeout=_PATIENCE,
                start_new_session=True,
            )
            is_started = done.returncode == 0
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"error": str(error)}
    until = time.monotonic() + _PATIENCE
    while is_started and time.monotonic() < until:
        if pid_of(local, base, name):
            return {"was_there": False}
        time.sleep(0.05)
    return {"error": _why(said, _SAYS_WHY) or _why(f"{local}/log/{name}.log", _SAYS_WHY) or "it does not say why"}


def stop(request: dict[str, Any]) -> dict[str, Any]:
    """End these daemons, and with `jobs` whatever their jobs left; say which had run."""
    base, local = request["base"], request["local"]
    running = {name: pid_of(local, base, name) for name in request["names"]}
    for name in DAEMONS:  # munged last: the others need it to say good-bye
        pid = running.get(name)
        if pid:
            end([pid], request["within_seconds"])
    if request["jobs"]:
        end(of_jobs(base, request["node"]), 2.0)
    return {"ended": [name for name, pid in running.items() if pid]}


def state(request: dict[str, Any]) -> dict[str, Any]:
    """Which daemons run here, and what those that do not said last."""
    base, local = request["base"], request["local"]
    running = {name: pid_of(local, base, name) for name in DAEMONS}
    why = {name: _why(f"{local}/log/{name}.log", ("fatal",)) for name, pid in running.items() if not pid}
    try:
        with open(f"{base}/src/version") as file:
            source = file.read(200)
    except OSError:
        source = ""
    return {"running": {name: pid for name, pid in running.items() if pid}, "why": why, "source": source}


def ask(request: dict[str, Any]) -> dict[str, Any]:
    """What one of Slurm's commands says."""
    try:
        done = subprocess.run(
            request["words"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**_environment(request["base"]), "LC_ALL": "C"},
            cwd="/",
            timeout=request["seconds"],
        )
    except subprocess.TimeoutExpired:
        return {"status": 124, "said": "", "error": f"no answer within {request['seconds']} seconds"}
    except OSError as error:
        return {"status": 127, "said": "", "error": str(error)}
    said, complaint = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
    return {"status": done.returncode, "said": said, "error": complaint.strip()}


def _words(name: str, base: str, local: str, node: str) -> list[str]:
    if name == "munged":
        # --force: it wants a socket that all users reach, and this one is for one user.
        names = {"key-file": "munge.key", "socket": "munge.sock", "seed-file": "munge.seed"}
        return [
            *(name, "--force", f"--pid-file={pid_file(local, name)}", f"--log-file={local}/log/munged.log"),
            *(f"--{option}={local}/{file}" for option, file in names.items()),
        ]
    return [name, "-f", f"{base}/etc/slurm.conf", *(["-N", node] if name == "slurmd" else [])]


def _environment(base: str) -> dict[str, str]:
    path = (f"{base}/bin", os.environ.get("PATH") or os.defpath, "/usr/local/sbin", "/usr/sbin", "/sbin")
    kept = {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME", "TZ") if name in os.environ}
    return {**kept, "PATH": os.pathsep.join(path), "SLURM_CONF": f"{base}/etc/slurm.conf"}


def _why(path: str, words: tuple[str, ...]) -> str:
    """The last line in which it complains, by the first of these words that is found."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 16384))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    for word in words:
        found = [line for line in lines if word in line.lower() and not any(one in line for one in _NOISE)]
        if found:
            return found[-1].strip()
    return ""
