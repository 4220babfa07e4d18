"""What a container engine is told. Each engine is a small file beside this one, and all pass one contract suite.

An engine gives words and starts nothing: the shim runs the container, `commands.py` the questions. The container
has the attempt's name, so that it is found again after a crash of anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Protocol

from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.model.gpus import Claim
from dibs.model.mounts import Mount


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerHost:
    """What this machine has for containers, read from files: no engine is asked."""

    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    cache: str = ""  # the folder for images that are files
    inits: frozenset[str] = frozenset()  # the engines that have an init program for `--init`
    has_mqueue: bool = True  # /dev/mqueue is there
    cdi_devices: frozenset[str] = frozenset()  # the names of NVIDIA's cards in the CDI files
    docker_has_cdi: bool = False
    docker_is_rootless: bool = False
    nvidia_hook: str = ""  # the path of NVIDIA's hook for OCI runtimes
    closed_devices: tuple[str, ...] = ()  # device files of cards that this user may not open


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerRun:
    """A command that is to run in a container, and what the container has in common with this machine."""

    name: str
    image: str
    words: Sequence[str]
    folder: str  # the attempt's own
    workdir: str
    environment: Mapping[str, str] = field(default_factory=dict)  # inside; the engine's own process has them too
    fixed: Mapping[str, str] = field(default_factory=dict)  # inside; the engine's own process needs other values
    home: str = "/tmp"
    left_out: Sequence[str] = ()  # captured variables that are not for it
    mounts: Sequence[Mount] = ()
    claims: Sequence[Claim] = ()
    cpus: Sequence[int] = ()
    umask: int = 0o022
    has_input: bool = False
    has_terminal: bool = False
    config: str = ""  # the content of config.json, where the image is a bundle


@dataclass(frozen=True, slots=True)
class CardAccess:
    """How a container gets its cards."""

    options: tuple[str, ...] = ()
    is_counted_anew: bool = False  # it sees these cards only, numbered from 0


class ContainerEngine(Protocol):
    """The words of one engine."""

    @property
    def name(self) -> str: ...

    @property
    def has_own_pids(self) -> bool:
        """Whether the processes have a pid namespace of their own; otherwise they are below the shim."""

    @property
    def hands_signals_on(self) -> bool:
        """Whether its own process stays above the command's and gives it the signals that it gets itself."""

    def cards(self, claims: Sequence[Claim], host: ContainerHost) -> CardAccess:
        """How the container gets these cards. BadInput where the engine cannot give them."""

    def run(self, run: ContainerRun, host: ContainerHost) -> list[str]:
        """Run the command in the foreground, with the streams and the exit code of the engine's own process."""

    def files(self, run: ContainerRun, host: ContainerHost) -> Mapping[str, str]:
        """Files that must be written before, by their paths."""

    def remove(self, name: str, folder: str) -> list[str]:
        """End a container and remove it; nothing where nothing is left after its processes."""

    def state(self, name: str, folder: str) -> list[str]:
        """Print when it was started: a year 1 if never. Nothing where the engine cannot tell."""

    def has_image(self, image: str, host: ContainerHost) -> list[str]:
        """Exit with 0 if the image is here."""

    def pull(self, image: str, host: ContainerHost) -> list[str]:
        """Fetch the image; nothing where there is nowhere to fetch it from."""


def cannot_give_cards(engine: str, why: str, remedy: str) -> BadInput:
    return BadInput(f"{engine} cannot give a container its GPUs: {why}", remedy=remedy)
