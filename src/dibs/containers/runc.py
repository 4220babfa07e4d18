"""runc: a plain OCI bundle, a folder with config.json and the root file system, without any image store."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dibs.containers.cards import AMD_DEVICES, are_amd, are_nvidia, once_each
from dibs.containers.engines import CardAccess, ContainerHost, ContainerRun, cannot_give_cards
from dibs.model.gpus import Claim

_SHARED = frozenset({"pid", "network", "ipc", "cgroup"})  # namespaces that a job shares with the machine
_REPLACED = frozenset({"/dev/shm", "/dev/mqueue"})


class Runc:
    name = "runc"
    has_own_pids = False
    hands_signals_on = True

    def cards(self, claims: Sequence[Claim], host: ContainerHost) -> CardAccess:
        """The cards are in config.json: AMD's device files, or what NVIDIA's hook is told in a variable."""
        if are_nvidia(claims) and not host.nvidia_hook:
            why = "NVIDIA's hook for OCI runtimes is not installed"
            raise cannot_give_cards("runc", why, "install the NVIDIA container toolkit")
        return CardAccess(is_counted_anew=bool(claims) and bool(host.nvidia_hook) and not are_amd(claims))

    def run(self, run: ContainerRun, host: ContainerHost) -> list[str]:
        return [*self._runc(run.folder), "run", "--bundle", _bundle(run.folder), run.name]

    def files(self, run: ContainerRun, host: ContainerHost) -> Mapping[str, str]:
        return {f"{_bundle(run.folder)}/config.json": json.dumps(configured(json.loads(run.config), run, host))}

    def remove(self, name: str, folder: str) -> list[str]:
        return [*self._runc(folder), "delete", "--force", name]

    def state(self, name: str, folder: str) -> list[str]:
        return []

    def has_image(self, image: str, host: ContainerHost) -> list[str]:
        return ["test", "-e", f"{image}/config.json"]

    def pull(self, image: str, host: ContainerHost) -> list[str]:
        return []

    def _runc(self, folder: str) -> list[str]:
        """Its state is in the attempt's folder: there it needs no rights, and is found again."""
        return ["runc", "--root", f"{folder}/runc"]


def configured(config: dict[str, Any], run: ContainerRun, host: ContainerHost) -> dict[str, Any]:
    """The bundle's configuration with this command, its folders, its user and its cards."""
    process = config.get("process", {}) | {
        "args": list(run.words),
        "cwd": run.workdir,
        "env": [*_image_variables(config), *_variables(run, host)],
        "user": {
            "uid": host.uid,
            "gid": host.gid,
            "umask": run.umask,
            "additionalGids": [] if host.uid else list(host.groups),
        },
        "terminal": run.has_terminal,
    }
    process.pop("rlimits", None)  # those of the shim
    linux = config.get("linux", {})
    kept = [one for one in linux.get("namespaces", ()) if one.get("type") not in _SHARED | {"user"}]
    linux |= {"namespaces": kept}
    mounts = [one for one in config.get("mounts", ()) if one.get("destination") not in _REPLACED]
    mounts += [_bind("/dev/shm", "/dev/shm"), *(_bind(*mount) for mount in run.mounts)]
    if host.uid:
        linux["namespaces"] = [*kept, {"type": "user"}]
        linux["uidMappings"] = [{"containerID": host.uid, "hostID": host.uid, "size": 1}]
        linux["gidMappings"] = [{"containerID": host.gid, "hostID": host.gid, "size": 1}]
        linux.pop("resources", None)
    if are_amd(run.claims):
        mounts += [_bind(path, path) for path in AMD_DEVICES]
        linux["resources"] = linux.get("resources", {}) | {"devices": [{"allow": True, "access": "rwm"}]}
    hooks = config.get("hooks", {})
    if run.claims and host.nvidia_hook and not are_amd(run.claims):
        hook = {"path": host.nvidia_hook, "args": [host.nvidia_hook, "prestart"]}
        hooks = hooks | {"prestart": [*hooks.get("prestart", ()), hook]}
    root = config.get("root", {})
    path = root.get("path", "rootfs")
    return config | {
        "root": root | {"path": path if path.startswith("/") else f"{run.image}/{path}"},
        "process": process,
        "mounts": mounts,
        "linux": linux,
        "hooks": hooks,
    }


def _bundle(folder: str) -> str:
    return f"{folder}/bundle"


def _image_variables(config: Mapping[str, Any]) -> list[str]:
    found: list[str] = config.get("process", {}).get("env", [])
    return found


def _variables(run: ContainerRun, host: ContainerHost) -> list[str]:
    variables = {**run.environment, "HOME": run.home, **run.fixed}
    if run.claims and host.nvidia_hook and not are_amd(run.claims):
        names = (claim.gpu if are_nvidia([claim]) else str(claim.index) for claim in once_each(run.claims))
        variables |= {"NVIDIA_VISIBLE_DEVICES": ",".join(names), "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    return [f"{name}={value}" for name, value in variables.items()]


def _bind(source: str, target: str, is_read_only: bool = False) -> dict[str, Any]:
    options = ["rbind", *(["ro"] if is_read_only else [])]
    return {"source": source, "destination": target, "type": "bind", "options": options}
