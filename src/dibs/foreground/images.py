"""Images for the jobs of a run: looked for, and pulled, when a job is read. No GPU is taken before."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dibs.errors import BadInput, DibsError
from dibs.inputs.entries import BadEntry, Entry, refuse
from dibs.model.gpus import Claim, Pool
from dibs.model.jobs import Request
from dibs.model.units import show_duration

if TYPE_CHECKING:
    from dibs.containers.admission import ImageNeed


class RunImages:
    """Knows which images are ready, so that the jobs of a list wait for each of them once."""

    def __init__(
        self,
        environ: Mapping[str, str],
        pool: Pool,
        say: Callable[[str], None],
        *,
        default_engine: str,
        workdir: str,
    ) -> None:
        self._environ = environ
        self._cards = [Claim(gpu=card.gpu.key, index=card.gpu.index, share=Fraction(1)) for card in pool.cards]
        self._say = say
        self._default_engine = default_engine
        self._workdir = workdir
        self._ready: set[tuple[str, str]] = set()  # engines and images

    def entries(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """The same entries; one whose image cannot be had is a bad one."""
        for entry in entries:
            if isinstance(entry, BadEntry) or not (entry.image or entry.mounts or entry.image_pull):
                yield entry
                continue
            try:
                yield self.ready(entry)
            except DibsError as error:
                yield refuse(entry.command.shown, error, "")

    def ready(self, request: Request) -> Request:
        """The request with its engine, once its image is here. Raises BadInput for what cannot run here."""
        from dibs.containers.admission import admitted, missing_image  # few jobs need it

        here = replace(request, workdir=request.workdir or self._workdir)
        new = admitted(here, self._environ, default_engine=self._default_engine, cards=self._cards)
        if not new.image:
            return request
        if (new.container_engine, new.image) not in self._ready:
            if need := missing_image(new, self._environ):
                self._pull(need)
            self._ready.add((new.container_engine, new.image))
        return replace(request, image=new.image, container_engine=new.container_engine)

    def _pull(self, need: "ImageNeed") -> None:
        began = time.monotonic()
        self._say(f"dibs: {need.sentence}")
        code = _run(need.pull, self._environ)
        if code:
            raise BadInput(
                f"cannot pull the image {need.image}: {need.engine} ended with exit code {code}",
                remedy=f"`{' '.join(need.pull)}` shows what is wrong",
            )
        self._say(f"dibs: pulled {need.image} in {show_duration(time.monotonic() - began)}")


def _run(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """With the output on stderr: stdout is for the jobs."""
    import subprocess  # few runs need it

    try:
        return subprocess.run(
            list(words), env=dict(environ), stdin=subprocess.DEVNULL, stdout=2, check=False
        ).returncode
    except OSError:
        return 127
