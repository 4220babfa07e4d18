"""A command in a container on a node: by pyxis where the site has it, otherwise by apptainer.

The shim stays outside of the container, as on this machine, and runs `srun --container-image` or `apptainer exec`.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dibs.backends.slurm.sbatch import as_options
from dibs.containers.apptainer import exec_words
from dibs.containers.engines import ContainerRun
from dibs.containers.spec import for_any_shell, mounts_of
from dibs.containers.variables import is_for_containers, left_out
from dibs.errors import BackendRefused
from dibs.model.mounts import Mount

PYXIS = "container-image"  # the option by which a site has it
_OF_SRUN = frozenset({"PATH", "HOME"})  # it needs them itself, and the image has its own PATH
_NOT_SAID = re.compile(r"[\s,:\"'$`\\]")  # a mount is a word in a line of a shell, between commas and colons
# The shim finds its processes by their mark: they are below Slurm's own daemon, with the pids of the node.
_PYXIS = {
    "engine": "pyxis",
    "name": "",
    "remove": (),
    "state": (),
    "has_own_pids": False,
    "is_elsewhere": True,
    "hands_signals_on": False,
    "has_init": False,
}


def contained(
    spec: Mapping[str, Any],
    folder: str,
    *,
    pyxis: Collection[str],
    cpus: int | None = None,
    more: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The spec of the same command in its image; as it is where it names none.

    `pyxis` are those of its options that the site's srun knows, `more` those that the user named beside the image
    and its mounts. BackendRefused where it cannot be said to pyxis.
    """
    image = spec.get("image")
    if not image:
        return dict(spec)
    more = more or {}
    if unknown := [name for name in more if name not in pyxis]:
        raise BackendRefused(
            f"cannot do what --{unknown[0]} asks for: this cluster's srun does not know it",
            remedy="`srun --help` lists the options of pyxis",
        )
    mounts = mounts_of(spec, folder, image["mounts"])
    own = spec["env"]
    # A variable of the host's own paths that the user set is for the container; what starts it keeps the node's.
    fixed = {name: value for name, value in own.items() if not is_for_containers(name)}
    spec = {**spec, "words": for_any_shell(spec["words"]), "env": {k: v for k, v in own.items() if k not in fixed}}
    if PYXIS in pyxis and not image["engine"]:
        return {**spec, "words": _pyxis_words(spec, mounts, fixed, pyxis, cpus, more), "container": _PYXIS}
    return {**spec, "words": _apptainer_words(spec, mounts, fixed, folder)}


def pyxis_refusal(paths: Iterable[str]) -> BackendRefused | None:
    """Why pyxis cannot be told to mount these; None where it can."""
    for path in paths:
        if _NOT_SAID.search(path):
            return BackendRefused(
                f"pyxis cannot mount {path!r}: it takes no blanks, commas, colons, quotes, dollars or backslashes",
                remedy="rename the folder, or use --container-engine apptainer",
            )
    return None


def _pyxis_words(
    spec: Mapping[str, Any],
    mounts: Sequence[Mount],
    fixed: Mapping[str, str],
    known: Collection[str],
    cpus: int | None,
    more: Mapping[str, str],
) -> list[str]:
    captured = _captured(spec["environment"])
    # `srun` passes its whole environment on: what is not for the container is taken out before.
    taken_out = [name for name in left_out(captured) if name not in _OF_SRUN]
    words = ["env", *(word for name in taken_out for word in ("-u", name))] if taken_out else []
    words += ["srun", "--nodes=1", "--ntasks=1"]
    if cpus:  # a step does not inherit them
        words.append(f"--cpus-per-task={cpus}")
    words += [f"--container-image={_for_pyxis(spec['image']['name'])}"]
    words += [f"--container-mounts={','.join(map(_said_to_pyxis, mounts))}"]
    words += [f"--container-workdir={spec['workdir']}"]
    words += as_options(more)
    if "no-container-remap-root" in known and not any(name.endswith("container-remap-root") for name in more):
        words.append("--no-container-remap-root")
    if "container-env" in known and "container-env" not in more:  # otherwise a value that the image sets would win
        names = {name for name in captured if is_for_containers(name)} | set(spec["env"])
        words.append(f"--container-env={','.join(sorted(name for name in names if ',' not in name))}")
    if fixed:
        words += ["env", *(f"{name}={value}" for name, value in fixed.items())]
    return [*words, *spec["words"]]


def _said_to_pyxis(mount: Mount) -> str:
    if refusal := pyxis_refusal((mount.source, mount.target)):
        raise refusal
    return f"{mount.source}:{mount.target}{':ro' * mount.is_read_only}"


def _apptainer_words(
    spec: Mapping[str, Any], mounts: Sequence[Mount], fixed: Mapping[str, str], folder: str
) -> list[str]:
    image = spec["image"]
    name = image["name"]
    run = ContainerRun(
        name="",
        image=name,
        words=spec["words"],
        folder=folder,
        workdir=spec["workdir"],
        left_out=left_out(_captured(spec["environment"])),
        fixed=fixed,
        mounts=mounts,
    )
    is_address = name.startswith("/") or "://" in name
    return exec_words(run, name if is_address else f"docker://{name}", ("--nv",) if image["has_cards"] else ())


def _for_pyxis(image: str) -> str:
    """Pyxis has `#` between a registry and a name, `ghcr.io#org/image`, and adds `docker://` itself."""
    image = image.removeprefix("docker://")
    first, slash, rest = image.partition("/")
    is_registry = slash and first and (set(first) & set(".:") or first == "localhost") and "://" not in image
    return f"{first}#{rest}" if is_registry else image


def _captured(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            return list(json.loads(file.read()))
    except (OSError, ValueError):
        return []
