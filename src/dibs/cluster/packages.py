"""Debian's packages on every host: fetched where that works, copied, unpacked."""

import base64
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dibs.cluster.archive import send
from dibs.cluster.ssh import Hands, HostFailed, all_of
from dibs.cluster.there.packages import CORE
from dibs.errors import BadInput, DibsError

_SECONDS = 600.0  # a slow line, and forty libraries


Files = Mapping[str, bytes]  # packages by their names


def gather(hands: Hands, *, base: str, folder: str, fetchers: Sequence[str], tell: Callable[[str], None]) -> Files:
    """The packages: out of `folder`, from an earlier time, or by the first of the fetchers that can get them."""
    files = _from_folder(folder) if folder else _from_folder(f"{base}/packages", must=False)
    return files or _fetched(hands, fetchers, False, tell)


def unpack(
    hands: Hands,
    members: Sequence[str],
    files: Files,
    *,
    base: str,
    fetchers: Sequence[str],
    tell: Callable[[str], None],
) -> str:
    """Unpack the same packages everywhere, with their libraries where one is missing; where the plugins lie."""
    for libraries in (False, True):
        if libraries:
            files = {**files, **_fetched(hands, fetchers, True, tell)}
        answers = _unpacked(hands, members, base, files)
        lacking = {
            host or "this machine": answer["missing"] for host, answer in answers.items() if answer["missing"]
        }
        if not lacking:
            return str(answers[members[0]]["plugins"])
    host, names = next(iter(lacking.items()))
    raise DibsError(
        f"cannot use the packages on {host}: {', '.join(names)} is missing there",
        remedy="--packages names a folder that has the packages with these libraries too",
    )


def _unpacked(hands: Hands, members: Sequence[str], base: str, files: Files) -> dict[str, dict[str, Any]]:
    request = {"base": base, "version": _number(files), "names": sorted(files)}

    def ask(host: str) -> dict[str, Any]:
        answer = hands.call(host, "packages.unpack", request, seconds=_SECONDS)
        if not answer["lacking"]:
            return answer
        send(
            hands, host, base=base, files={f"packages/{name}": (files[name], 0o644) for name in answer["lacking"]}
        )
        return hands.call(host, "packages.unpack", request, seconds=_SECONDS)

    return all_of(members, ask)


def _fetched(
    hands: Hands, fetchers: Sequence[str], libraries: bool, tell: Callable[[str], None]
) -> dict[str, bytes]:
    why = "no host has apt-get"
    for host in fetchers:
        tell(
            f"fetching Slurm's packages on {host or 'this machine'}{', with their libraries' if libraries else ''}"
        )
        try:
            answer = hands.call(host, "packages.fetch", {"libraries": libraries}, seconds=_SECONDS)
            return {os.path.basename(name): base64.b64decode(text) for name, text in answer["files"].items()}
        except HostFailed as error:
            why = error.message
    raise DibsError(
        f"cannot fetch Slurm's packages: {why}",
        remedy="have slurm-wlm and munge installed on every host, or give a folder of .deb files with --packages",
    )


def _from_folder(folder: str, *, must: bool = True) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in sorted(Path(folder).glob("*.deb"))}
    if must and not found:
        raise BadInput(
            f"there is no package in {folder}",
            remedy=f"in it: apt-get download {' '.join(CORE)}",
        )
    return found


def _number(files: Files) -> str:
    return hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()[:12]
