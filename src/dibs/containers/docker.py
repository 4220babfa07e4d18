"""Docker: its daemon starts the processes, so they are not below the shim and inherit no lock of ours."""

from collections.abc import Mapping, Sequence

from dibs.containers.cards import amd_devices, are_amd, are_nvidia, by_cdi, check_rights, once_each
from dibs.containers.engines import CardAccess, ContainerHost, ContainerRun, cannot_give_cards
from dibs.containers.options import STATE_FORMAT, shared_options
from dibs.model.gpus import Claim

_TOOLKIT = "install the NVIDIA container toolkit"


class Docker:
    name = "docker"
    has_own_pids = True
    hands_signals_on = False

    def cards(self, claims: Sequence[Claim], host: ContainerHost) -> CardAccess:
        if host.docker_is_rootless:
            check_rights("docker", claims, host)
        if not claims:
            return CardAccess()
        if are_amd(claims):
            return amd_devices(claims)
        if (host.docker_has_cdi or not host.nvidia_hook) and (access := by_cdi(claims, host)) is not None:
            return access
        if host.nvidia_hook:
            # Quoted: the value is read as CSV, and the list is one field of it.
            names = ",".join(claim.gpu if are_nvidia([claim]) else str(claim.index) for claim in once_each(claims))
            return CardAccess(("--gpus", f'"device={names}"'), is_counted_anew=True)
        if are_nvidia(claims):
            raise cannot_give_cards("docker", "neither CDI nor NVIDIA's runtime hook is set up", _TOOLKIT)
        return CardAccess()

    def run(self, run: ContainerRun, host: ContainerHost) -> list[str]:
        # The shared memory of the machine is large enough for data loaders.
        words = ["docker", "run", *shared_options(run), "--ipc=host", *self._user(run, host)]
        if self.name in host.inits:
            words.append("--init")
        if run.cpus:  # they are not inherited from the shim
            words.append(f"--cpuset-cpus={','.join(map(str, run.cpus))}")
        return [*words, *self.cards(run.claims, host).options, run.image, *run.words]

    def _user(self, run: ContainerRun, host: ContainerHost) -> list[str]:
        if host.docker_is_rootless:
            return []  # root inside is this user outside
        groups = (f"--group-add={group}" for group in host.groups if group != host.gid)
        return ["--user", f"{host.uid}:{host.gid}", *groups]

    def files(self, run: ContainerRun, host: ContainerHost) -> Mapping[str, str]:
        return {}

    def remove(self, name: str, folder: str) -> list[str]:
        return ["docker", "rm", "--force", name]

    def state(self, name: str, folder: str) -> list[str]:
        return ["docker", "container", "inspect", "--format", STATE_FORMAT, name]

    def has_image(self, image: str, host: ContainerHost) -> list[str]:
        return ["docker", "image", "inspect", "--format", "{{.Id}}", image]

    def pull(self, image: str, host: ContainerHost) -> list[str]:
        return [] if image.startswith("/") else ["docker", "pull", image]
