"""What `dibs doctor` looks at where there is a Slurm: whether it answers, and what its nodes need."""

import os
from collections.abc import Callable

from dibs import paths
from dibs.cli.checkup import OK, PROBLEM, WARNING, Environ, Finding
from dibs.errors import DibsError

_THEIRS = "/etc/slurm/slurm.conf"  # where Slurm's own programs look for its settings


def check_slurm(environ: Environ) -> list[Finding]:
    """Nothing where there is none. What is wrong with one thing hides no other."""
    from dibs.backends.slurm.backend import SlurmBackend
    from dibs.build import build_backend, is_set_up
    from dibs.settings import load_settings

    settings = load_settings(environ)
    is_wanted = is_set_up(environ, settings)
    if not is_wanted and not os.path.isfile(environ.get("SLURM_CONF", _THEIRS)):
        return []
    backend = build_backend("slurm", environ, settings)
    assert isinstance(backend, SlurmBackend)
    ours = backend.settings
    has_package = os.path.isfile(f"{ours.source}/dibs/__init__.py")
    files = [
        _file("python", ours.python, os.access(ours.python, os.X_OK), "it cannot be executed"),
        _file("source", ours.source, has_package, "the package dibs is not in it"),
    ]
    return [
        _answers(backend.version, is_wanted),
        _root(ours.root, is_fetched=bool(ours.ssh)),
        *([] if ours.ssh else files),
    ]


def _answers(version: Callable[[], str], is_wanted: bool) -> Finding:
    try:
        found = version()
    except DibsError as error:
        return Finding(PROBLEM if is_wanted else WARNING, error.message, error.remedy)
    return Finding(OK, f"its controller answers{f', version {found}' if found else ''}")


def _root(root: str, *, is_fetched: bool) -> Finding:
    """The folder that jobs over there write to."""
    remedy = "`dibs config set backends.slurm.root FOLDER`, where FOLDER is one that all nodes see"
    nearest = root
    while not os.path.isdir(nearest) and nearest != os.path.dirname(nearest):
        nearest = os.path.dirname(nearest)
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Finding(PROBLEM, f"backends.slurm.root: {nearest} cannot be written to", remedy)
    if is_fetched:
        return Finding(OK, f"backends.slurm.root: {root} can be written to; the nodes' files are fetched over ssh")
    if kind := paths.network_file_system(root):
        return Finding(OK, f"backends.slurm.root: {root} can be written to, and is shared by {kind}")
    on = paths.file_system(nearest) or "a local disk"
    return Finding(WARNING, f"backends.slurm.root: {root} is on {on}, which other machines may not see", remedy)


def _file(name: str, path: str, is_good: bool, why: str) -> Finding:
    """What the nodes need under the same path as this machine."""
    if is_good:
        return Finding(OK, f"backends.slurm.{name}: {path} is there; the nodes need it too")
    return Finding(WARNING, f"backends.slurm.{name}: {path}: {why} here", "see that every node has it there")
