"""Acting on a recorded intent: the attempt's folder, its descriptors, a shim."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from dibs.backends.local import Attached, LocalBackend
from dibs.engine.cards import Cards
from dibs.engine.hand import Hand, Open
from dibs.engine.keeper import Keeper
from dibs.engine.place import Place
from dibs.engine.ports import Ports
from dibs.engine.results import Results
from dibs.model.events import Started, Trouble
from dibs.model.jobs import JobId


class Launching:
    """Hands attempts to the backend. What cannot be started is let go, and the next turn finds it unstarted."""

    def __init__(
        self,
        *,
        hand: Hand,
        place: Place,
        backend: LocalBackend,
        keeper: Keeper,
        cards: Cards,
        results: Results,
        reach: Callable[[str], None],
    ) -> None:
        self._hand = hand
        self._place = place
        self._backend = backend
        self._keeper = keeper
        self._cards = cards
        self._results = results
        self._reach = reach
        self._ports = Ports()
        self._attached: dict[JobId, Attached] = {}
        self._has_warned = False  # that the CPUs near the cards are not known

    def attach(self, job: JobId, attached: Attached) -> None:
        """Connect a job's command to the descriptors of the person who waits for it."""
        self._attached[job] = attached

    def detach(self, job: JobId) -> None:
        self._attached.pop(job, None)

    def launch(self, begun: Sequence[Open], now: float) -> None:
        for place, one in enumerate(begun):
            try:
                self._launch(one, now)
            except Exception:  # a bug: the others were not started either, and their cards are not lost over it
                for other in begun[place:]:
                    self._hand.let_go(other.attempt.key)
                raise

    def _launch(self, one: Open, now: float) -> None:
        job, attempt = one.job, one.attempt
        try:
            if job.request.checkpoint is not None:
                os.makedirs(self._place.checkpoint_folder(job.id), mode=0o700, exist_ok=True)
            self._results.begin(job, attempt)
            stdout, stderr = self._results.streams(job, attempt.folder)
            self._backend.submit(
                attempt,
                self._spec(one, stdout, stderr),
                self._keeper.descriptors(attempt),
                lambda: self._hand.let_go(attempt.key),
                self._attached.get(job.id),
            )
            self._reach("after-launch")
        except OSError as error:
            # Nothing was started: the next turn finds a folder without a start and queues the job again.
            self._hand.trouble(f"cannot start job {job.label}: {error}", now)
            self._hand.let_go(attempt.key)
        else:
            self._hand.events.append(Started(job, attempt, stdout, stderr))

    def _spec(self, one: Open, stdout: str, stderr: str) -> dict[str, Any]:
        job, attempt = one.job, one.attempt
        port = self._ports.give(attempt.key, self._hand.open) if len(attempt.claims) > 1 else None
        cpus: Sequence[int] = ()
        if job.request.bind and attempt.claims:
            cpus = self._cards.cpus_near(attempt.claims)
            if not cpus and not self._has_warned:  # once: it is the machine, and so with every job
                self._has_warned = True
                sentence = f"job {job.label} is not bound: nobody knows which CPUs are near its GPUs"
                self._hand.events.append(Trouble(sentence))
        return self._place.spec(job, attempt, stdout, stderr, port=port, cpus=cpus)
