"""Podman: without a daemon, and usually without root. Its processes are below the shim."""

from collections.abc import Mapping, Sequence

from dibs.containers.cards import amd_devices, are_amd, by_cdi, without_cdi
from dibs.containers.engines import CardAccess, ContainerHost, ContainerRun
from dibs.containers.options import STATE_FORMAT, mount_option, shared_options
from dibs.model.gpus import Claim
from dibs.model.mounts import Mount


class Podman:
    name = "podman"
    has_own_pids = True
    hands_signals_on = False

    def cards(self, claims: Sequence[Claim], host: ContainerHost) -> CardAccess:
        if are_amd(claims):
            return amd_devices(claims)
        return by_cdi(claims, host) or without_cdi(self.name, claims)

    def run(self, run: ContainerRun, host: ContainerHost) -> list[str]:
        words = ["podman", "run", *shared_options(run), *self._shared_memory(host), *self._user(run, host)]
        if self.name in host.inits:
            words.append("--init")
        words.append(f"--umask={run.umask:04o}")
        # Folders are mounted as they are: on SELinux they would have to be relabelled.
        words += ["--security-opt", "label=disable"]
        return [*words, *self.cards(run.claims, host).options, run.image, *run.words]

    def _shared_memory(self, host: ContainerHost) -> list[str]:
        """That of the machine, which is large enough for data loaders. Without root `--ipc` needs /dev/mqueue."""
        if host.uid and not host.has_mqueue:
            return ["--mount", mount_option(Mount("/dev/shm", "/dev/shm"))]
        return ["--ipc=host"]

    def _user(self, run: ContainerRun, host: ContainerHost) -> list[str]:
        found = ["--user", f"{host.uid}:{host.gid}"]
        if host.uid:
            return [*found, "--userns=keep-id", *(["--group-add=keep-groups"] if are_amd(run.claims) else [])]
        return [*found, *(f"--group-add={group}" for group in host.groups if group != host.gid)]

    def files(self, run: ContainerRun, host: ContainerHost) -> Mapping[str, str]:
        return {}

    def remove(self, name: str, folder: str) -> list[str]:
        return ["podman", "rm", "--force", "--time=0", "--ignore", name]

    def state(self, name: str, folder: str) -> list[str]:
        return ["podman", "container", "inspect", "--format", STATE_FORMAT, name]

    def has_image(self, image: str, host: ContainerHost) -> list[str]:
        return ["podman", "image", "exists", image]

    def pull(self, image: str, host: ContainerHost) -> list[str]:
        return [] if image.startswith("/") else ["podman", "pull", image]
