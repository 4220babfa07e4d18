"""A command in a container on a node: by pyxis where the site has it, otherwise by apptainer.

The shim stays outside of the container, as on this machine, and runs `srun --container-image` or `apptainer exec`.
"""

import json
from collections.abc import Mapping
from typing import Any

from dibs.containers.apptainer import exec_words
from dibs.containers.engines import ContainerRun
from dibs.containers.spec import for_any_shell
from dibs.containers.variables import is_for_containers, left_out
from dibs.model.mounts import Mount, parse_mount


def contained(spec: Mapping[str, Any], folder: str, *, has_pyxis: bool) -> dict[str, Any]:
    """The spec of the same command in its image; as it is where it names none."""
    image = spec.get("image")
    if not image:
        return dict(spec)
    mounts = _mounts(spec, folder)
    spec = {**spec, "words": for_any_shell(spec["words"])}
    if has_pyxis and not image["engine"]:
        # Slurm starts the command: what `srun` used says nothing about it.
        return {**spec, "words": _pyxis_words(spec, image, mounts), "is_measured": False}
    return {**spec, "words": _apptainer_words(spec, image, mounts, folder)}


def _pyxis_words(spec: Mapping[str, Any], image: Mapping[str, Any], mounts: list[Mount]) -> list[str]:
    binds = ",".join(f"{one.source}:{one.target}{':ro' * one.is_read_only}" for one in mounts)
    options = [f"--container-image={_for_pyxis(image['name'])}", f"--container-mounts={binds}"]
    return ["srun", "--ntasks=1", *options, f"--container-workdir={spec['workdir']}", *spec["words"]]


def _apptainer_words(
    spec: Mapping[str, Any], image: Mapping[str, Any], mounts: list[Mount], folder: str
) -> list[str]:
    name = image["name"]
    run = ContainerRun(
        name="",
        image=name,
        words=spec["words"],
        folder=folder,
        workdir=spec["workdir"],
        left_out=left_out(_captured(spec["environment"])),
        fixed={key: value for key, value in spec["env"].items() if not is_for_containers(key)},
        mounts=mounts,
    )
    is_address = name.startswith("/") or "://" in name
    return exec_words(run, name if is_address else f"docker://{name}", ("--nv",) if image["has_cards"] else ())


def _mounts(spec: Mapping[str, Any], folder: str) -> list[Mount]:
    paths = [spec["workdir"], folder, spec["env"].get("DIBS_CHECKPOINT_DIR", "")]
    return [*(Mount(path, path) for path in paths if path), *map(parse_mount, spec["image"]["mounts"])]


def _for_pyxis(image: str) -> str:
    """Pyxis has `#` between a registry and a name: `ghcr.io#org/image`."""
    first, slash, rest = image.partition("/")
    return f"{first}#{rest}" if slash and first and set(first) & set(".:") and "://" not in image else image


def _captured(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            return list(json.loads(file.read()))
    except (OSError, ValueError):
        return []
