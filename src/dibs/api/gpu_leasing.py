"""Leases GPUs for a process by the rules of `dibs run`: they must be free by all leases and by their readings."""

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from dibs.engine.watch.cards import Cards
from dibs.engine.watch.own_processes import is_of_a_running_job
from dibs.engine.watch.sharing_rules import SharingRules, sharing_rules
from dibs.errors import BadInput, NoGpuNow
from dibs.gpus.detect import find_probe
from dibs.gpus.pool import pool_by_default, resolve_pool
from dibs.gpus.probe import Probe, ProbeFailed, answer_within
from dibs.gpus.processes import pid_is_alive
from dibs.leases.files import Holder, LeaseRefused
from dibs.leases.leases import Busy, Lease, Leases, build_leases
from dibs.model.gpus import Claim, GpuReading, Reading
from dibs.model.jobs import Command, Job, JobId, Request, Wishes
from dibs.policy.fitting import is_allowed, need
from dibs.policy.schedule import impossible, schedule
from dibs.policy.snapshot import Snapshot
from dibs.settings import load_settings

_PAUSE = 0.1  # seconds between two tries for cards that other programs hold
_CHECK_EVERY = 2.0  # seconds between two looks at the lease files
_READ_EVERY = 1.0  # seconds between two readings of the cards
_ONLY_JOB = JobId(1)  # the plan has one job
_log = logging.getLogger("dibs")


class LeasedGpus:
    """GPUs that are held until they are returned, or this process and its forks have ended.

    A thread makes lease files again that were deleted. It never lives during a fork.
    """

    def __init__(self, claims: tuple[Claim, ...], lease: Lease, leases: Leases) -> None:
        self.claims = claims
        self._lease = lease
        self._leases = leases
        self._pid = os.getpid()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._overbooked: set[str] = set()  # GPUs about which a warning was logged
        self._refusal = ""  # why the last check failed, which was logged
        self.resume()

    def close(self) -> None:
        """Return the GPUs; in a fork the lease of the parent continues."""
        self.pause()
        self._lease.close()

    def pause(self) -> None:
        """Stop looking at the files, in this process."""
        thread, self._thread = self._thread, None
        if thread is not None and self._pid == os.getpid():
            self._stop.set()
            thread.join()

    def resume(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, name="dibs-leases", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Make lease files again that were deleted, and warn where another program has taken a GPU meanwhile."""
        try:
            for path in self._leases.restore(self._lease):
                _log.warning("the lease file %s was deleted; it was made again", path)
            overbooked = self._leases.overbooked({claim.gpu for claim in self.claims})
            self._refusal = ""
        except LeaseRefused as error:
            if error.message != self._refusal:
                self._refusal = error.message
                _log.warning("%s", error.message)
            return
        numbers = {claim.gpu: claim.number for claim in self.claims}
        for gpu in overbooked.keys() - self._overbooked:
            _log.warning("GPU %s %s", numbers[gpu], overbooked[gpu])
        self._overbooked = set(overbooked)

    def _watch(self) -> None:
        while not self._stop.wait(_CHECK_EVERY):
            self.check()


def borrow(
    wishes: Wishes, *, gpus: str | None, label: str, environ: Mapping[str, str], seconds: float | None
) -> LeasedGpus:
    """Take GPUs; wait for at most so many seconds (None: no limit).

    Processes that wait are served in the order of their arrival, whichever user they belong to.
    """
    probe = find_probe(environ)
    settings = load_settings(environ)
    pool = resolve_pool(pool_by_default(settings.gpus, environ) if gpus is None else gpus, probe, environ)
    rules = sharing_rules(settings)
    if problem := impossible(wishes, pool, keep_free=rules.min_free):
        raise BadInput(f"cannot lease GPUs like this: {problem}", remedy="`dibs gpus` shows the GPUs there are")
    cards = Cards(pool, is_ours=is_of_a_running_job, is_alive=pid_is_alive, rules=rules)
    leases = build_leases(environ)
    try:
        return _Borrower(cards, leases, probe, rules, wishes, label).borrow(seconds)
    finally:
        leases.close()  # ends the wishes; the lease of the GPUs stays


class _Borrower:
    def __init__(
        self, cards: Cards, leases: Leases, probe: Probe | None, rules: SharingRules, wishes: Wishes, label: str
    ) -> None:
        self._cards = cards
        self._leases = leases
        self._probe = probe
        self._rules = rules
        self._job = Job(id=_ONLY_JOB, request=Request(command=Command.exact(["-"]), wishes=wishes))
        self._label = label
        self._since = time.time()  # the place in the line
        self._read_at: float | None = None
        self._reason = ""

    def borrow(self, seconds: float | None) -> LeasedGpus:
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            self._look()
            if lent := self._try():
                return lent
            if until is not None and time.monotonic() >= until:
                raise NoGpuNow(
                    f"cannot lease {_gpus(self._job.request.wishes.num_gpus)} now: {self._reason}",
                    remedy="wait=True waits for them; `dibs gpus` shows who has them",
                )
            self._stand_in_line()
            left = _PAUSE if until is None else max(0.0, min(_PAUSE, until - time.monotonic()))
            time.sleep(left)

    def _try(self) -> LeasedGpus | None:
        """Try as long as the plan finds cards: another program may take the first ones meanwhile."""
        while True:
            board = self._cards.board()
            plan = schedule(
                Snapshot(
                    cards=board.views({}),
                    groups=self._cards.pool.groups,
                    waiting=[self._job],
                    now=self._since,
                    links=board.links,
                    keep_free=self._rules.min_free,
                    in_use=frozenset(holder.gpu for holder in self._holders())
                    if self._rules.min_free
                    else frozenset(),
                )
            )
            if not plan.placements:
                self._reason = plan.reasons[self._job.id].sentence
                return None
            claims = plan.placements[0].claims
            taken = self._take(claims)
            if isinstance(taken, Lease):
                return LeasedGpus(claims, taken, self._leases)
            self._cards.taken_by_others(claims, taken)

    def _take(self, claims: Sequence[Claim]) -> Lease | Busy:
        try:
            return self._leases.take(claims, job=self._label, folder="", since=self._since)
        except LeaseRefused as error:
            return Busy(guarded_by=error.message, remedy=error.remedy)

    def _look(self) -> None:
        """Forget the leases of others, and read the cards again where the reading is old."""
        self._cards.look_again()
        if self._probe is None:
            return
        now = time.monotonic()
        if self._read_at is not None and now - self._read_at < _READ_EVERY:
            return
        self._read_at = now
        try:
            self._cards.saw(self._without_holders(answer_within(self._probe.read)))
        except ProbeFailed as error:
            self._cards.saw(None, error.message)

    def _without_holders(self, reading: Reading) -> Reading:
        """The reading without processes that hold a claim on their card, and without this process."""
        holders = self._holders()

        def is_stranger(pid: int, gpu: str) -> bool:
            return pid != os.getpid() and not _descends(pid, {one.pid for one in holders if one.gpu == gpu})

        def strangers(seen: GpuReading) -> GpuReading:
            processes = tuple(one for one in seen.processes if is_stranger(one.pid, seen.gpu.key))
            return replace(seen, processes=processes)

        return replace(reading, gpus=tuple(map(strangers, reading.gpus)))

    def _holders(self) -> list[Holder]:
        try:
            return self._leases.holders()
        except LeaseRefused:
            return []  # the attempt to take a lease will report the problem

    def _stand_in_line(self) -> None:
        """Register a wish for GPUs that others hold, so that later processes wait behind this one."""
        wishes = self._job.request.wishes
        cards = [self._cards.pool.card(key) for key in self._cards.board().awaited]
        claims = [
            Claim(gpu=card.gpu.key, index=card.gpu.index, share=share, vram=vram)
            for card in cards
            if card is not None and is_allowed(card.gpu, wishes)
            for share, vram in [need(card, wishes)]
        ]
        with suppress(LeaseRefused):  # without a wish the wait may be longer
            self._leases.wish(claims, job=self._label, since=self._since)


def _descends(pid: int, elders: set[int | None]) -> bool:
    """Whether a process is one of these, or was started by one of them."""
    while pid > 1:
        if pid in elders:
            return True
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b") ")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False


def _gpus(count: int) -> str:
    return "a GPU" if count == 1 else f"{count} GPUs"
