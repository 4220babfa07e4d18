"""Debian's packages without root: fetched, unpacked into a folder, and started from there."""

from __future__ import annotations

import base64
import glob
import os
import shutil
import subprocess
import tempfile
from typing import Any

CORE = ("slurmd", "slurmctld", "slurm-client", "munge", "libmunge2", "slurm-wlm-basic-plugins")
# Of the system itself: with others than its own nothing would start.
_NOT_OURS = ("libc6", "libc-", "libgcc", "libcrypt1", "libstdc++", "libnss")
# The plugins that our configuration names, beside the programs.
_PLUGINS = ("auth_munge", "cred_munge", "select_cons_tres", "gres_gpu", "proctrack_linuxproc", "cgroup_v1")
_HASTE = ("-o", "Acquire::http::Timeout=20", "-o", "Acquire::https::Timeout=20", "-o", "Acquire::Retries=1")
_LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}


def fetch(request: dict[str, Any]) -> dict[str, Any]:
    """The packages as base64, with all libraries they depend on where `libraries` says so."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        why = _download(folder, [], libraries=request["libraries"])
        if why:
            # Without lists of packages, as in a container, and without permission to fetch them for the system.
            state = f"{folder}/apt"
            os.makedirs(f"{state}/lists/partial")
            own = ["-o", f"Dir::State::Lists={state}/lists", "-o", f"Dir::Cache={state}/cache"]
            os.makedirs(f"{state}/cache/archives/partial")
            done = _run(["apt-get", *_HASTE, *own, "update"], folder)
            if done.returncode != 0 or _download(folder, own, libraries=request["libraries"]):
                return {"error": why}
        found = {}
        for path in glob.glob(f"{folder}/*.deb"):
            with open(path, "rb") as file:
                found[os.path.basename(path)] = base64.b64encode(file.read()).decode("ascii")
        return {"files": found}


def unpack(request: dict[str, Any]) -> dict[str, Any]:
    """Unpack the packages of a folder, and say which libraries are still missing.

    Whole or not at all: hosts that share the folder may do this at the same time.
    """
    base = request["base"]
    root = f"{base}/root-{request['version']}"
    lacking = [name for name in request["names"] if not _is_file(f"{base}/packages/{name}")]
    if not os.path.isdir(root):
        if lacking:
            return {"lacking": lacking}
        part = tempfile.mkdtemp(prefix="root.", suffix=".part", dir=base)
        for name in request["names"]:
            done = _run(["dpkg-deb", "-x", f"{base}/packages/{name}", part], base)
            if done.returncode != 0:
                return {"error": _last(done)}
        for name in ("slurmd", "slurmctld", "slurmstepd"):
            # Debian leaves the plain names to its alternatives. They matter: a daemon knows by its name what it
            # is, and as `slurmctld-wlm` it counts no GPUs.
            if os.path.exists(f"{part}/usr/sbin/{name}-wlm") and not os.path.lexists(f"{part}/usr/sbin/{name}"):
                os.symlink(f"{name}-wlm", f"{part}/usr/sbin/{name}")
        try:
            os.rename(part, root)
        except OSError:
            shutil.rmtree(part, ignore_errors=True)  # another host was quicker
    plugins = glob.glob(f"{root}/usr/lib/*/slurm-wlm")
    loader = _LOADERS.get(os.uname().machine, "")
    if not plugins or not loader:
        return {"error": f"the packages hold no Slurm for {os.uname().machine}"}
    libraries = [plugins[0], os.path.dirname(plugins[0]), f"{root}/lib/{plugins[0].split('/')[-2]}"]
    _wrap(f"{base}/bin", root, libraries, loader)
    return {"lacking": [], "plugins": plugins[0], "missing": _missing(root, plugins[0], libraries)}


def _wrap(folder: str, root: str, libraries: list[str], loader: str) -> None:
    """Small scripts under the programs' own names.

    The commands find their libraries without a variable: `sbatch` would hand that on to every job. The daemons
    need it, because they start others.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = ":".join(libraries)
    for program in glob.glob(f"{root}/usr/bin/*"):
        _script(f"{folder}/{os.path.basename(program)}", f"exec {loader} --library-path '{path}' '{program}'")
    for name in ("slurmctld", "slurmd", "munged"):
        more = f" -d '{root}/usr/sbin/slurmstepd'" if name == "slurmd" else ""
        _script(f"{folder}/{name}", f"LD_LIBRARY_PATH='{path}' exec '{root}/usr/sbin/{name}'{more}")


def _script(path: str, line: str) -> None:
    part = f"{path}.{os.uname().nodename}.{os.getpid()}.part"
    with open(part, "w") as file:
        file.write(f'#!/bin/sh\n{line} "$@"\n')
    os.chmod(part, 0o755)
    os.rename(part, path)


def _missing(root: str, plugins: str, libraries: list[str]) -> list[str]:
    programs = [f"{root}/usr/sbin/{name}" for name in ("slurmd", "slurmstepd", "slurmctld", "munged")]
    programs += [f"{root}/usr/bin/{name}" for name in ("sbatch", "squeue", "scancel", "scontrol", "sinfo")]
    programs += [f"{plugins}/{name}.so" for name in _PLUGINS]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries), "LC_ALL": "C"}
    words = ["ldd", *filter(_is_file, programs)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, timeout=60)
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return sorted({line.split()[0] for line in lines if line.endswith("not found")})


def _is_file(path: str) -> bool:
    return os.path.isfile(path)


def _download(folder: str, options: list[str], *, libraries: bool) -> str:
    """Why they cannot be fetched; empty where they are."""
    names = list(CORE)
    if libraries:
        less = [
            f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
        ]
        done = _run(["apt-cache", *options, "depends", "--recurse", *less, *CORE], folder)
        listed = done.stdout.decode("utf-8", "replace").splitlines()
        names += sorted(
            {
                line
                for line in listed
                if line.startswith("lib") and ":" not in line and not line.startswith(_NOT_OURS)
            }
            - set(CORE)
        )
    done = _run(["apt-get", *_HASTE, *options, "download", *names], folder)
    return "" if done.returncode == 0 else _last(done)


def _run(words: list[str], folder: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            timeout=300,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, 127, b"", str(error).encode())


def _last(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E:")] or lines
    return errors[-1][:300] if errors else f"{done.args[0]} does not say why"
