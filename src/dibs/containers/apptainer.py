"""Apptainer: usual on clusters. An image is a file; processes, cards and home are those of the user outside."""

import hashlib
import re
from collections.abc import Mapping, Sequence

from dibs.containers.cards import are_amd
from dibs.containers.engines import CardAccess, ContainerHost, ContainerRun
from dibs.containers.options import mount_option
from dibs.model.gpus import Claim

_NEEDED = frozenset({"PATH", "HOME", "TMPDIR"})  # by apptainer itself, which gives the container others
_ITS_OWN = ("APPTAINER_", "SINGULARITY_", "XDG_")


class Apptainer:
    name = "apptainer"
    has_own_pids = False
    hands_signals_on = False

    def cards(self, claims: Sequence[Claim], host: ContainerHost) -> CardAccess:
        """All cards of the machine: the variables hide those that are not the job's, as outside."""
        if not claims:
            return CardAccess()
        return CardAccess(("--rocm",) if are_amd(claims) else ("--nv",))

    def run(self, run: ContainerRun, host: ContainerHost) -> list[str]:
        return exec_words(run, image_file(run.image, host), self.cards(run.claims, host).options)

    def files(self, run: ContainerRun, host: ContainerHost) -> Mapping[str, str]:
        return {}

    def remove(self, name: str, folder: str) -> list[str]:
        return []

    def state(self, name: str, folder: str) -> list[str]:
        return []

    def has_image(self, image: str, host: ContainerHost) -> list[str]:
        return ["test", "-e", image_file(image, host)]

    def pull(self, image: str, host: ContainerHost) -> list[str]:
        if image.startswith("/"):
            return []
        source = image if "://" in image else f"docker://{image}"
        return ["apptainer", "pull", "--force", image_file(image, host), source]


def exec_words(run: ContainerRun, image: str, cards: Sequence[str]) -> list[str]:
    """`apptainer exec`. It passes its whole environment on: what is not for the container is taken out before."""
    taken_out = [name for name in run.left_out if name not in _NEEDED and not name.startswith(_ITS_OWN)]
    words = ["env", *(word for name in taken_out for word in ("-u", name))] if taken_out else []
    words += ["apptainer", "exec", "--pwd", run.workdir, *cards]
    words += [word for name, value in run.fixed.items() for word in ("--env", f"{name}={value}")]
    words += [word for mount in run.mounts for word in ("--mount", mount_option(mount))]
    return [*words, image, *run.words]


def image_file(image: str, host: ContainerHost) -> str:
    """The file of an image: a path as it is; for a name the file that `pull` makes of it."""
    if image.startswith("/"):
        return image
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", image.rpartition("://")[2])[-60:]
    return f"{host.cache}/{readable}-{hashlib.blake2b(image.encode(), digest_size=4).hexdigest()}.sif"
