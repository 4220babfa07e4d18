"""The container engines that dibs knows, by their names."""

from collections.abc import Mapping

from dibs.containers.apptainer import Apptainer
from dibs.containers.docker import Docker
from dibs.containers.engines import ContainerEngine
from dibs.containers.podman import Podman
from dibs.containers.runc import Runc

ENGINES: Mapping[str, ContainerEngine] = {
    engine.name: engine for engine in (Podman(), Docker(), Apptainer(), Runc())
}
