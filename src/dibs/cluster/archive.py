"""Files on their way to a host, as one archive."""

import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import dibs
from dibs.cluster.configure import configuration, python_script
from dibs.cluster.known import Cluster, ClusterNode
from dibs.cluster.ssh import Hands

Files = Mapping[str, tuple[bytes, int]]  # path, from the base on: content and mode


def send(
    hands: Hands,
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
    hands.call(host, "files.put", request, data=data, seconds=300.0)


def install(hands: Hands, host: str, cluster: Cluster, key: bytes) -> None:
    """Everything that a host needs besides Slurm itself."""
    local = cluster.local
    node = next((node for node in cluster.nodes if node.destination == host), None)
    files = {f"etc/{name}": (text.encode(), 0o644) for name, text in configuration(cluster).items()}
    files["bin/dibs-python"] = (python_script(cluster.nodes).encode(), 0o755)
    files |= {f"src/dibs/{name}": (data, 0o644) for name, data in _source().items()}
    files[f"{local}/munge.key"] = (key, 0o600)
    folders = [local, *(f"{local}/{name}" for name in ("run", "log", "spool", "state", "dev"))]
    folders.append(f"{cluster.base}/attempts")
    send(hands, host, base=cluster.base, files=files, folders=folders, links=_devices(node, local))


def _devices(node: ClusterNode | None, local: str) -> list[tuple[str, str]]:
    """Cards out of a file have no device; for Slurm it must be a character device, or a link to one."""
    cards = node.cards if node else ()
    return [(card.device, "/dev/null") for card in cards if card.device.startswith(f"{local}/dev/")]


def _source() -> dict[str, bytes]:
    """Our own package, of which the nodes run the shim."""
    folder = Path(dibs.__file__).parent
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.py"))}


def _archive(files: Files) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        for name, (data, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()
