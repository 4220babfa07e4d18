"""What goes to a host: Slurm's packages from Debian, our own package, and the configuration."""

import base64
import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dibs
from dibs.cluster.configure import configuration, python_script
from dibs.cluster.on_host.packages import CORE
from dibs.cluster.saved import Cluster, ClusterNode
from dibs.cluster.ssh import HostCaller, HostFailed, all_of
from dibs.errors import BadInput, DibsError
from dibs.version import __version__

Files = Mapping[str, tuple[bytes, int]]  # path, from the base on: content and mode
Packages = Mapping[str, bytes]  # by their names
_CARRIED = "src/dibs/carried"  # where api/work.py looks for what it cannot import
_SECONDS = 600.0  # a slow line, and forty libraries


def send(
    caller: HostCaller,
    host: str,
    *,
    base: str,
    files: Files,
    folders: Sequence[str] = (),
    links: Sequence[tuple[str, str]] = (),
) -> None:
    """Put files, folders and links where they belong on a host."""
    data = _archive(files)
    request = {"base": base, "folders": [base, *folders], "links": links, "size": len(data)}
    caller.call(host, "files.put", request, data=data, seconds=300.0)


def install(caller: HostCaller, host: str, cluster: Cluster, key: bytes) -> None:
    """Everything that a host needs besides Slurm itself."""
    local = cluster.local
    node = next((node for node in cluster.nodes if node.destination == host), None)
    files = {f"etc/{name}": (text.encode(), 0o644) for name, text in configuration(cluster).items()}
    files["bin/dibs-python"] = (python_script(cluster.nodes).encode(), 0o755)
    files |= {f"src/dibs/{name}": (data, 0o644) for name, data in _source().items()}
    files |= {f"{_CARRIED}/{name}": (data, 0o644) for name, data in _cloudpickle().items()}
    files["src/version"] = (source_mark().encode(), 0o644)
    files[f"{local}/munge.key"] = (key, 0o600)
    folders = [local, *(f"{local}/{name}" for name in ("run", "log", "spool", "state", "dev"))]
    folders.append(f"{cluster.base}/attempts")
    send(caller, host, base=cluster.base, files=files, folders=folders, links=_devices(node, local))


def _devices(node: ClusterNode | None, local: str) -> list[tuple[str, str]]:
    """Cards out of a file have no device; for Slurm it must be a character device, or a link to one."""
    cards = node.cards if node else ()
    return [(card.device, "/dev/null") for card in cards if card.device.startswith(f"{local}/dev/")]


def _source() -> dict[str, bytes]:
    """Our own package, of which the nodes run the shim."""
    return _files_below(Path(dibs.__file__).parent)


def _cloudpickle() -> dict[str, bytes]:
    """What reads a function from Python in its job. Where it is not installed here, no function can be sent."""
    found = find_spec("cloudpickle")
    if found is None or not found.submodule_search_locations:
        return {}
    folder = Path(found.submodule_search_locations[0])
    return {f"cloudpickle/{name}": data for name, data in _files_below(folder).items()}


def _files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.py"))}


def source_mark() -> str:
    """The same for the same package of ours: its version, and a hash of its files."""
    digest = hashlib.sha256()
    for name, data in _source().items():
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return f"{__version__} {digest.hexdigest()[:16]}"


def other_source(mark: str) -> str:
    """What is wrong with a host whose package has this mark; empty where it is ours."""
    if mark == source_mark():
        return ""
    version = mark.partition(" ")[0]
    which = "another version of dibs" if version in ("", __version__) else f"dibs {version}, not {__version__}"
    return f"it has {which}: `dibs cluster up` brings this one"


def _archive(files: Files) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        for name, (data, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def check_packages(folder: str) -> None:
    """Raise BadInput where one of Slurm's packages is not in this folder. What else lacks depends on the host."""
    there = {path.name.partition("_")[0] for path in Path(folder).glob("*.deb")}
    if missing := [name for name in CORE if name not in there]:
        raise BadInput(
            f"cannot use the packages in {folder}: {_listed(missing)} not there",
            remedy=f"in that folder: apt-get download {' '.join(missing)}",
        )


def gather(
    caller: HostCaller, *, base: str, folder: str, fetchers: Sequence[str], tell: Callable[[str], None]
) -> Packages:
    """The packages: out of `folder`, from an earlier time, or by the first of the fetchers that can get them."""
    files = _from_folder(folder or f"{base}/packages")
    return files or _fetched(caller, fetchers, False, tell)


def unpack(
    caller: HostCaller,
    members: Sequence[str],
    files: Packages,
    *,
    base: str,
    fetchers: Sequence[str],
    tell: Callable[[str], None],
) -> str:
    """Unpack the same packages everywhere, with their libraries where one is missing; where the plugins lie."""
    why = ""
    for libraries in (False, True):
        if libraries:
            try:
                files = {**files, **_fetched(caller, fetchers, True, tell)}
            except DibsError as error:
                why = f"; {error.message}"
                break
        answers = _unpacked(caller, members, base, files)
        lacking = {
            host or "this machine": answer["missing"] for host, answer in answers.items() if answer["missing"]
        }
        if not lacking:
            return str(answers[members[0]]["plugins"])
    host, names = next(iter(lacking.items()))
    raise DibsError(
        f"cannot use the packages on {host}: {_listed(names)} missing there{why}",
        remedy="--packages names a folder that has the packages with these libraries too",
    )


def _unpacked(caller: HostCaller, members: Sequence[str], base: str, files: Packages) -> dict[str, dict[str, Any]]:
    request = {"base": base, "version": _number(files), "names": sorted(files)}

    def ask(host: str) -> dict[str, Any]:
        answer = caller.call(host, "packages.unpack", request, seconds=_SECONDS)
        if not answer["lacking"]:
            return answer
        send(
            caller, host, base=base, files={f"packages/{name}": (files[name], 0o644) for name in answer["lacking"]}
        )
        return caller.call(host, "packages.unpack", request, seconds=_SECONDS)

    return all_of(members, ask)


def _fetched(
    caller: HostCaller, fetchers: Sequence[str], libraries: bool, tell: Callable[[str], None]
) -> dict[str, bytes]:
    why = "no host has apt-get"
    for host in fetchers:
        tell(
            f"fetching Slurm's packages on {host or 'this machine'}{', with their libraries' if libraries else ''}"
        )
        try:
            answer = caller.call(host, "packages.fetch", {"libraries": libraries}, seconds=_SECONDS)
            return {os.path.basename(name): base64.b64decode(text) for name, text in answer["files"].items()}
        except HostFailed as error:
            why = error.message
    raise DibsError(
        f"cannot fetch Slurm's packages: {why}",
        remedy="have slurm-wlm and munge installed on every host, or give a folder of .deb files with --packages",
    )


def _from_folder(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(folder).glob("*.deb"))}


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _number(files: Packages) -> str:
    return hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()[:12]
