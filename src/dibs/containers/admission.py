"""Whether a job can run in a container here: which engine runs it, what is refused, whether its image is there."""

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from dibs.containers.commands import EngineAnswer, ask_engine
from dibs.containers.engines import ContainerHost
from dibs.containers.host import read_host
from dibs.containers.registry import ENGINES
from dibs.containers.spec import check_mountable
from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.model.gpus import Claim
from dibs.model.jobs import Command, Request, Wishes, folder_of_call
from dibs.model.mounts import parse_mount

_BY_NAME = ("podman", "docker", "apptainer")  # in this order, where an image is a name and no engine was chosen
_INSTALL = "install podman, docker or apptainer, or name the engine with --container-engine"

Ask = Callable[[Sequence[str], Mapping[str, str]], EngineAnswer]


@dataclass(frozen=True, slots=True)
class ImageNeed:
    """An image that an engine must have before jobs start."""

    engine: str
    image: str
    pull: tuple[str, ...]  # the command that fetches it

    @property
    def sentence(self) -> str:
        return f"pulling image {self.image}"

    def as_job(self, like: Request) -> Request:
        """A job without a GPU that fetches it, for jobs like this one."""
        return Request(
            command=Command.exact(self.pull),
            wishes=Wishes(num_gpus=0),
            name=f"pull {self.image}"[:255],
            project=like.project,
            workdir="/",
            umask=like.umask,
            retries=2,
        )


def admitted(
    request: Request,
    environ: Mapping[str, str],
    *,
    default_engine: str = "",
    cards: Iterable[Claim] = (),
    host: ContainerHost | None = None,
) -> Request:
    """The request with its engine and the path of its image; BadInput for what cannot work here.

    `environ` is that of the job, `cards` are those that it may get. No engine is asked.
    """
    check_sense(request)
    if not request.image:
        return request
    image = image_path(request.image, request.workdir)
    name = request.container_engine or _engine_for(image) or default_engine or _engine_there(environ)
    if not shutil.which(name, path=environ.get("PATH", os.defpath)):
        raise BadInput(f"cannot run a container: there is no {name} here", remedy=_INSTALL)
    _check_folders(request, name, environ)
    facts = read_host(environ) if host is None else host
    if request.wishes.num_gpus:
        ENGINES[name].cards(list(cards), facts)
    return replace(request, image=image, container_engine=name)


def missing_image(request: Request, environ: Mapping[str, str], ask: Ask = ask_engine) -> ImageNeed | None:
    """What must be fetched before an admitted request starts; BadInput where it may not or cannot be.

    The engine is asked, which may take seconds.
    """
    engine, host = ENGINES[request.container_engine], read_host(environ)
    pull = engine.pull(request.image, host)
    is_there = False
    if request.image_pull != "always" or not pull:
        answer = ask(engine.has_image(request.image, host), environ)
        is_there = answer.code == 0
        if "invalid reference" in answer.said or "must be lowercase" in answer.said:
            raise BadInput(
                f"cannot use {request.image[:60]!r} as an image: {answer.last_line}",
                remedy="its name is like pytorch/pytorch:latest, without capital letters and blanks",
            )
        if answer.code not in (0, 1) or _is_silent(answer):
            raise BadInput(
                f"cannot ask {engine.name} for the image {request.image}: {answer.last_line}",
                remedy=f"`{engine.name} info` tells more",
            )
    if is_there:
        return None
    if request.image_pull == "never":
        raise BadInput(
            f"the image {request.image} is not here, and may not be pulled",
            remedy=f"`{' '.join(pull)}` fetches it" if pull else "name one that is here",
        )
    if not pull:
        raise BadInput(f"there is no image {request.image} for {engine.name}", remedy="name one that is here")
    return ImageNeed(engine.name, request.image, tuple(pull))


def _is_silent(answer: EngineAnswer) -> bool:
    """Whether the engine's daemon did not answer, so that nothing is known about the image."""
    return answer.code != 0 and "daemon" in answer.said.lower() and "o such image" not in answer.said


def check_sense(request: Request) -> None:
    """Refuse what makes no sense together, wherever it is to run."""
    if not request.image:
        for word, value in (("--mount", request.mounts), ("--image-pull", request.image_pull)):
            if value:
                raise BadInput(f"{word} is for a job in a container", remedy="name its image with --image")
        return
    if request.image.startswith("-"):  # the engine would read it as an option
        raise BadInput(
            f"cannot use {request.image[:60]!r} as an image",
            remedy="name one such as pytorch/pytorch, or the path of a file or a bundle",
        )
    if request.warm:
        raise BadInput("a warm process runs outside of containers", remedy="leave out --warm, or --image")
    if folder_of_call(request.command.words):
        raise BadInput(
            "cannot call a Python function in a container: the image has another interpreter",
            remedy='submit a command, such as dibs.submit("python train.py", image=...)',
        )


def image_path(image: str, workdir: str) -> str:
    """An image that is a file or a folder, by its path; a name as it is."""
    path = os.path.join(workdir or os.getcwd(), os.path.expanduser(image))
    looks_like_path = image.startswith(("/", "./", "../", "~")) or image.endswith(".sif")
    is_bundle = os.path.exists(f"{path}/config.json")
    return os.path.abspath(path) if looks_like_path or is_bundle else image


def _engine_for(image: str) -> str:
    """The only engine for an image that is a bundle, a file or an address; empty for a name."""
    if image.startswith("/"):
        return "runc" if os.path.exists(f"{image}/config.json") else "apptainer"
    return "apptainer" if "://" in image else ""


def _engine_there(environ: Mapping[str, str]) -> str:
    """The first engine that is installed."""
    path = environ.get("PATH", os.defpath)
    for name in _BY_NAME:
        if shutil.which(name, path=path):
            return name
    raise BadInput("cannot run a container: there is no podman, docker or apptainer here", remedy=_INSTALL)


def _check_folders(request: Request, engine: str, environ: Mapping[str, str]) -> None:
    """Refuse what the engine could not mount."""
    where = environ.get("DOCKER_HOST", "") if engine == "docker" else ""
    if where and not where.startswith("unix://"):
        raise BadInput(
            f"docker cannot mount folders of this machine: DOCKER_HOST names another one ({where})",
            remedy="unset DOCKER_HOST, or use another engine with --container-engine",
        )
    for path in (request.workdir, *(parse_mount(text).source for text in request.mounts)):
        if path and not os.path.exists(path):
            raise BadInput(f"{engine} cannot mount {path}: it is not there", remedy="make it, or name another")
        check_mountable(engine, path)
