"""The daemons of a cluster on this host: started, looked at, ended."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

from dibs.cluster.there.processes import DAEMONS, end, of_jobs, pid_file, pid_of

_PATIENCE = 30.0  # seconds until a daemon has written its pid
_SAYS_WHY = ("fatal", "error")
_NOISE = ("MPI:", "mpi/")  # a plugin that nobody asked for


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
    return {"running": {name: pid for name, pid in running.items() if pid}, "why": why}


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
        # --force: it wants its socket to be reached by everybody, and this one is for nobody else.
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
