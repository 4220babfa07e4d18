"""What this machine has for containers: programs, CDI files, rights. Files are read; no engine is asked."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from glob import glob

from dibs.containers.engines import ContainerHost

_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
_CDI_KIND = re.compile(r"""["']?kind["']?\s*:\s*["']?nvidia\.com/gpu\b""")
_CDI_NAME = re.compile(r"""["']?name["']?\s*:\s*["']?([A-Za-z0-9:_.-]+)""")
_LARGEST_FILE = 4 * 1024**2  # bytes
_DOCKER_SETTINGS = "/etc/docker/daemon.json"
_NVIDIA_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
_PODMAN_INITS = (
    "/usr/libexec/podman/catatonit",
    "/usr/lib/podman/catatonit",
    "/usr/local/libexec/podman/catatonit",
)
_CARD_DEVICES = ("/dev/nvidiactl", "/dev/kfd")


def read_host(environ: Mapping[str, str], *, cdi_folders: Iterable[str] = _CDI_FOLDERS) -> ContainerHost:
    """The facts as they are now, for engines that run with these variables."""
    uid = os.geteuid()
    path = environ.get("PATH", os.defpath)
    hook = next(filter(None, (find_program(name, path) for name in _NVIDIA_HOOKS)), "")
    cache = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME', '')}/.cache"
    return ContainerHost(
        uid=uid,
        gid=os.getegid(),
        groups=tuple(os.getgroups()),
        cache=f"{cache}/dibs/images",
        inits=frozenset(_inits(path)),
        has_mqueue=os.path.exists("/dev/mqueue"),
        cdi_devices=frozenset(_cdi_devices(cdi_folders)),
        docker_has_cdi=_docker_has_cdi(),
        docker_is_rootless=uid != 0 and _is_own_socket(environ.get("DOCKER_HOST", ""), uid),
        nvidia_hook=hook,
        closed_devices=tuple(
            device
            for device in _CARD_DEVICES
            if os.path.exists(device) and not os.access(device, os.R_OK | os.W_OK)
        ),
    )


def find_program(name: str, path: str) -> str:
    """The path of a program; empty where there is none."""
    for folder in path.split(os.pathsep):
        found = os.path.join(folder, name)
        if os.access(found, os.X_OK) and os.path.isfile(found):
            return found
    return ""


def _inits(path: str) -> list[str]:
    """The engines that find a program for `--init`: without one podman and docker refuse the option."""
    has_podmans = any(map(os.path.exists, _PODMAN_INITS)) or find_program("catatonit", path)
    has_dockers = find_program("docker-init", path) or os.path.exists("/usr/libexec/docker/docker-init")
    return ["podman"] * bool(has_podmans) + ["docker"] * bool(has_dockers)


def _cdi_devices(folders: Iterable[str]) -> list[str]:
    """The names of NVIDIA's cards in the CDI files. They are YAML or JSON; the names are read from either."""
    found: list[str] = []
    for folder in folders:
        for path in glob(f"{_escaped(folder)}/*.yaml") + glob(f"{_escaped(folder)}/*.json"):
            text = _text_of(path)
            if _CDI_KIND.search(text):
                found += _CDI_NAME.findall(text)
    return found


def _escaped(folder: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", folder)


def _docker_has_cdi() -> bool:
    try:
        settings = json.loads(_text_of(_DOCKER_SETTINGS))
        return settings["features"]["cdi"] is True
    except (ValueError, KeyError, TypeError):
        return False


def _is_own_socket(host: str, uid: int) -> bool:
    """Whether this user's own docker is meant: a rootless one."""
    path = host.removeprefix("unix://") if host else f"/run/user/{uid}/docker.sock"
    if not host and os.path.exists("/var/run/docker.sock"):
        return False
    try:
        return os.stat(path).st_uid == uid
    except OSError:
        return False


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LARGEST_FILE)
    except OSError:
        return ""
