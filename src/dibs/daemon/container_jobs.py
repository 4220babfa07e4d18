"""Jobs in containers before they are added: their engine is chosen, and an image that is missing gets a job.

The pull is a job of its own, without a GPU, and the others follow it: it is listed, has its own time and its own
log, and goes on after a crash of the daemon.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dibs.dataclass import dataclass
from dibs.engine.engine import Engine
from dibs.engine.queue.queue import AddCall, Queue
from dibs.errors import BadInput, about
from dibs.model.gpus import Claim
from dibs.model.jobs import Dependency, JobId, Request, folder_of_call
from dibs.worker_thread import run_in_thread

if TYPE_CHECKING:
    from dibs.containers.admission import ImageNeed

_PATIENCE = 60.0  # seconds for the engine's answers about all images of a request


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerJobs:
    """Checks new jobs that name an image. Used on the event loop; engines are asked in a thread."""

    engine: Engine
    queue: Queue
    default_engine: str
    pulls: dict[tuple[str, str], JobId] = field(default_factory=dict)  # by engine and image: the last one

    async def admit(
        self, requests: Sequence[Request], environment: Mapping[str, str], key: str = ""
    ) -> tuple[Sequence[Request], list[str]]:
        """The requests with their engines, and sentences about the images that are pulled before they start.

        Without a key nothing is pulled. BadInput for what cannot run here.
        """
        # Jobs of one list usually differ in their commands only.
        kinds = {_kind(one): one for one in requests}
        try:
            ready = await run_in_thread(lambda: self._ready(kinds, environment), _PATIENCE, "containers")
        except TimeoutError:
            raise BadInput(
                "the container engine does not answer", remedy="`podman info` or `docker info` tells more"
            ) from None
        found, notes = [], []
        for one in requests:
            admitted, need = ready[_kind(one)]
            new = replace(one, image=admitted.image, container_engine=admitted.container_engine)
            if need is not None and key:
                job = self._pull(need, new, environment, key)
                new = replace(new, after=(*new.after, Dependency(job)))
                notes.append(f"{need.sentence} first, as job {job}")
            found.append(new)
        return found, list(dict.fromkeys(notes))

    async def changed(self, request: Request, environment: Mapping[str, str]) -> dict[str, str]:
        """The engine and the image of a changed job. The image must be here: a job follows older ones only."""
        (new,), _ = await self.admit([replace(request, image_pull="never")], environment)
        return {"image": new.image, "container_engine": new.container_engine}

    def _ready(
        self, kinds: "Mapping[object, Request]", environment: Mapping[str, str]
    ) -> "dict[object, tuple[Request, ImageNeed | None]]":
        """In the thread."""
        from dibs.containers.admission import admitted, check_sense, image_path, missing_image  # few jobs need it

        found: dict[object, tuple[Request, ImageNeed | None]] = {}
        for kind, request in kinds.items():
            if request.on:  # its image is looked for over there
                check_sense(request)
                path = image_path(request.image, request.workdir) if request.image else ""
                found[kind] = (replace(request, image=path), None)
                continue
            with about("image"):
                new = admitted(request, environment, default_engine=self.default_engine, cards=self._cards())
                found[kind] = (new, missing_image(new, environment) if new.image else None)
        return found

    def _cards(self) -> list[Claim]:
        pool = self.engine.cards.pool
        return [Claim(gpu=card.gpu.key, index=card.gpu.index, share=Fraction(1)) for card in pool.cards]

    def _pull(self, need: "ImageNeed", like: Request, environment: Mapping[str, str], key: str) -> JobId:
        """The job that pulls an image: one that is under way, or a new one."""
        known = self.pulls.get((need.engine, need.image))
        if known is not None and like.image_pull != "always":
            state = self.engine.store.listing.states([known]).get(known)
            if state is not None and not state.is_over:
                return known
        digest = hashlib.blake2b(f"{need.engine} {need.image}".encode(), digest_size=6).hexdigest()
        call = AddCall(key=f"{key}/pull-{digest}", requests=[need.as_job(like)], environment=environment)
        job = self.pulls[(need.engine, need.image)] = self.queue.add(call).first
        return job


def _kind(request: Request) -> object:
    """What decides whether it can run in a container."""
    asked = (request.image, request.container_engine, request.image_pull, request.mounts, request.workdir)
    calls = folder_of_call(request.command.words)
    return (*asked, request.on, request.env, bool(request.wishes.num_gpus), request.warm, calls)
