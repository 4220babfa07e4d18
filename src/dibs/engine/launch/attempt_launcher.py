"""Starts the attempts that a turn has recorded."""

import os
import random
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from dibs.backends.local import is_free_port, ref_of
from dibs.backends.protocol import NOT_ATTACHED, Attached, Backend, LocalInputs, Submission
from dibs.engine.launch.lease_keeper import LeaseKeeper
from dibs.engine.launch.place import Place
from dibs.engine.launch.results import Results
from dibs.engine.turn.state import Key, OpenAttempt
from dibs.engine.watch.cards import Cards
from dibs.model.events import Event, Started, Trouble
from dibs.model.jobs import JobId

# Below the ports that the kernel gives to outgoing connections, so that none of those takes one between our look
# and the job's own start; and without 29500, PyTorch's default.
_PORTS = range(20_000, 29_000)


class AttemptLauncher:
    """Submits attempts to the backend of this machine."""

    def __init__(
        self,
        *,
        place: Place,
        backend: Backend,
        leases: LeaseKeeper,
        cards: Cards,
        results: Results,
        let_go: Callable[[Key], None],
        reach: Callable[[str], None],
    ) -> None:
        self._place = place
        self._backend = backend
        self._leases = leases
        self._cards = cards
        self._results = results
        self._let_go = let_go
        self._reach = reach
        self._ports = Ports()
        self._attached: dict[JobId, Attached] = {}
        self._has_warned = False  # that the CPUs near the cards are not known

    def attach(self, job: JobId, attached: Attached) -> None:
        """Connect a job's command to these descriptors of `dibs run`."""
        self._attached[job] = attached

    def detach(self, job: JobId) -> None:
        self._attached.pop(job, None)

    def launch(self, one: OpenAttempt, running: Mapping[Key, OpenAttempt]) -> list[Event]:
        """Start an attempt. OSError: nothing was started."""
        job, attempt = one.job, one.attempt
        events: list[Event] = []
        if job.request.checkpoint is not None:
            os.makedirs(self._place.checkpoint_folder(job.id), mode=0o700, exist_ok=True)
        self._results.begin(job, attempt)
        stdout, stderr = self._results.streams(job, attempt.folder)
        submission = Submission(
            ref=ref_of(attempt),
            spec=self._spec(one, stdout, stderr, running, events),
            local=LocalInputs(
                lambda: self._let_go(attempt.key),
                self._leases.descriptors(attempt),
                self._attached.get(job.id, NOT_ATTACHED),
            ),
        )
        if why_not := self._backend.submit([submission]).put_off.get(submission.ref):
            raise OSError(why_not)
        self._reach("after-launch")
        events.append(Started(job, attempt, stdout, stderr))
        return events

    def _spec(
        self, one: OpenAttempt, stdout: str, stderr: str, running: Mapping[Key, OpenAttempt], events: list[Event]
    ) -> dict[str, Any]:
        job, attempt = one.job, one.attempt
        port = self._ports.give(attempt.key, running) if len(attempt.claims) > 1 else None
        cpus: Sequence[int] = ()
        if job.request.bind and attempt.claims:
            cpus = self._cards.cpus_near(attempt.claims)
            if not cpus and not self._has_warned:  # once: it holds for every job of this machine
                self._has_warned = True
                sentence = f"job {job.label} is not bound: it is not known which CPUs are near its GPUs"
                events.append(Trouble(sentence))
        return self._place.spec(job, attempt, stdout, stderr, port=port, cpus=cpus)


class Ports:
    """Remembers which port was given to which attempt: it may start to listen much later."""

    def __init__(self) -> None:
        self._given: dict[Key, int] = {}

    def give(self, attempt: Key, running: Container[Key]) -> int | None:
        """A port that is free and that no running attempt was given; None where there is none."""
        self._given = {key: port for key, port in self._given.items() if key in running and key != attempt}
        taken = set(self._given.values())
        # By chance: another engine, which knows nothing of ours, may look in the same moment.
        for port in random.sample(_PORTS, len(_PORTS)):
            if port not in taken and is_free_port(port):
                self._given[attempt] = port
                return port
        return None
