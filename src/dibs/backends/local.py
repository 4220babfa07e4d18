"""This machine as a backend: one shim for each attempt, watched through its channel or its FIFO."""

import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dibs.backends.protocol import (
    AttachedStreams,
    AttemptRef,
    BackendProspect,
    Identity,
    LocalInputs,
    Node,
    Observed,
    Phase,
    Resources,
    Submission,
    Submitted,
)
from dibs.dataclass import dataclass
from dibs.files import error_with_path
from dibs.model.jobs import Attempt, Request
from dibs.supervise import folder
from dibs.supervise.folder import decode_record
from dibs.supervise.launcher import AddReader, Launcher, RemoveReader, WhenDone, Zygote
from dibs.worker_thread import PatientReader

if TYPE_CHECKING:
    from dibs.supervise.orphans import FileKey, LeftProcess, OrphanedAttempt
    from dibs.supervise.warm.pool import WarmProcesses

_MOST_RECYCLED = 64
_NO_INPUTS = LocalInputs(when_done=lambda: None)


def ref_of(attempt: Attempt) -> AttemptRef:
    """An attempt of this machine, as its backend knows it."""
    return AttemptRef(str(attempt.job), attempt.number, attempt.folder, attempt.opened_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutShim:
    """An attempt whose shim is gone, though something of it may live."""

    ref: AttemptRef
    request: Request
    holds_gpu: bool  # its lease is still locked
    leases: "Collection[FileKey]"  # the files of its lease
    age: float  # seconds since it was opened
    stood_still: float  # seconds of its age in which it was suspended
    is_suspended: bool
    has_ended: bool  # its end is recorded: what is left was left behind by its command


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What is left of an attempt without a shim."""

    processes: "tuple[LeftProcess, ...]" = ()
    holds_gpu: bool = False  # a process has its lease, if not one of these then one that cannot be seen
    ended_by: str = ""  # why they were told to end: `stop` or `time`

    @property
    def is_alive(self) -> bool:
        return self.holds_gpu or bool(self.processes)


class LocalBackend:
    """Starts attempts on this machine.

    Beside the verbs of every backend it sends signals, uses folders again and keeps warm processes.
    """

    def __init__(
        self, root: str, add_reader: AddReader, remove_reader: RemoveReader, zygote: Zygote | None = None
    ) -> None:
        self._control = f"{root}/control"
        self._launcher = Launcher(add_reader, remove_reader, zygote)
        self._warm: WarmProcesses | None = None
        self._reader = PatientReader()  # a job can replace its folder by one that does not answer
        self._add_reader = add_reader
        self._remove_reader = remove_reader
        self._recycled: list[str] = []  # folders that may be used again
        self._prepared: dict[str, int] = {}  # by folder: locked records of attempts that are not submitted yet
        self._ended: dict[str, Observed] = {}  # by folder: what shims reported and `observe` has not returned yet
        self._orphaned: dict[str, OrphanedAttempt] = {}  # by folder: their shims are gone
        self._watched: set[int] = set()  # FIFOs of attempts that an earlier engine submitted

    # -- the verbs of every backend --------------------------------------------------------------------

    def nodes(self) -> Sequence[Node]:
        return [Node(name=os.uname().nodename, state="idle", is_usable=True, cpus=os.cpu_count() or 1)]

    def check(self, wanted: Resources) -> BackendProspect:
        """Accept everything: the policy knows what fits on this machine."""
        return BackendProspect(sentence="it starts when its GPUs are free")

    def make_ready(self) -> None:
        """Start the zygote now, so that the first job does not wait for it."""
        os.makedirs(self._control, mode=0o700, exist_ok=True)
        self._launcher.warm_up()

    def submit(self, submissions: Sequence[Submission]) -> Submitted:
        """Hand attempts to shims. Of one that is put off nothing was started."""
        accepted, put_off = set(), {}
        for one in submissions:
            try:
                self._start(one, one.local or _NO_INPUTS)
            except OSError as error:
                put_off[one.ref] = error_with_path(error)
            else:
                accepted.add(one.ref)
        return Submitted(accepted=frozenset(accepted), put_off=put_off)

    def watch(self, ref: AttemptRef, when_done: Callable[[], None]) -> bool:
        try:
            fd = self._reader.read(ref.folder, lambda: folder.watch(ref.folder))
        except OSError:
            return False
        if fd is None:
            return False

        def gone() -> None:
            self._unwatch(fd)
            when_done()

        # A FIFO's writing end is never readable; it reports an error once its reader is gone.
        self._add_reader(fd, gone)
        self._watched.add(fd)
        return True

    def cancel(self, refs: Sequence[AttemptRef], *, insist: bool = False) -> frozenset[AttemptRef]:
        """Ask their shims, or the processes of a shim that was killed.

        An attempt that waits for a warm process is taken back instead.
        """
        word = "kill" if insist else "stop"
        return frozenset(ref for ref in refs if self._withdraw(ref) or self._tell(ref, word))

    def hold(self, refs: Sequence[AttemptRef], *, release: bool = False) -> None:
        """What is submitted here starts at once, so there is nothing to hold."""

    def observe(self, refs: Sequence[AttemptRef]) -> Mapping[AttemptRef, Observed]:
        return {ref: self._observe(ref) for ref in refs}

    def strays(self, mark: str) -> Sequence[Identity]:
        return ()  # no other system brings anything back

    def remove_strays(self, strays: Sequence[Identity]) -> None:
        assert not strays, strays

    # -- what only this machine does -------------------------------------------------------------------

    def prepare(self, one: Submission) -> None:
        """Make the folder and the blank record of an attempt, before its intent is recorded.

        OSError: it is there already, and may have been started, or it cannot be made.
        """
        self._prepared[one.ref.folder] = self._prepare(one)

    def close_prepared(self) -> None:
        """Close the records of attempts that are not submitted after all. What is blank stays blank."""
        for record in self._prepared.values():
            os.close(record)
        self._prepared.clear()

    def signal(self, ref: AttemptRef, number: int) -> bool:
        """Send a signal to the command; False when it is not reached (yet)."""
        return self._tell(ref, f"signal {number}")

    def look_after(self, attempts: Sequence[WithoutShim]) -> Mapping[AttemptRef, Leftovers]:
        """Find the processes that are left of attempts without a shim, and end them when it is time for that.

        To be repeated for an attempt until nothing is left of it.
        """
        from dibs.supervise.orphans import find_left_processes  # few shims are killed

        found = find_left_processes({one.ref.folder: one.leases for one in attempts})
        return {one.ref: self._look_after(one, found[one.ref.folder]) for one in attempts}

    def recycle(self, ref: AttemptRef) -> bool:
        """The outcome is in the store: use the folder for a later attempt if nothing else is in it.

        Returns whether it will be used.
        """
        if len(self._recycled) >= _MOST_RECYCLED or not folder.is_silent(ref.folder):
            return False
        self._recycled.append(ref.folder)
        return True

    def forget_folders(self, folders: Sequence[str]) -> None:
        """Use none of these folders again: they are about to be removed."""
        self._recycled = [folder for folder in self._recycled if folder not in folders]

    @property
    def warm_processes(self) -> list[tuple[tuple[str, ...], int | None]]:
        """The modules of each, and its pid once it has imported them."""
        return [] if self._warm is None else self._warm.shown

    def close(self) -> None:
        """Stop watching. What runs goes on under its shim."""
        if self._warm is not None:
            self._warm.close()
        self._launcher.close()
        self.close_prepared()
        for fd in list(self._watched):
            self._unwatch(fd)

    def _start(self, one: Submission, local: LocalInputs) -> None:
        record = self._prepared.pop(one.ref.folder, -1)
        try:
            record = self._prepare(one) if record < 0 else record
        except (FileExistsError, BlockingIOError):
            local.when_done()  # it was started before: whether it runs or is over, `observe` tells
            return
        done = self._when_done(one.ref.folder, local.when_done)
        fds = [record, *_attached_fds(local.attached), *local.leases]
        stdin, terminal = local.attached.stdin is not None, local.attached.terminal is not None
        try:
            if "warm" in one.spec:
                warm = self._get_warm()
                warm.hand_over(one.spec, self._control, fds, done, stdin=stdin, terminal=terminal)
            else:
                self._launcher.hand_over(self._control, fds, done, stdin=stdin, terminal=terminal)
        finally:
            os.close(record)

    def _prepare(self, one: Submission) -> int:
        """The descriptor of the attempt's record, locked."""
        record = None
        if self._recycled and not os.path.lexists(one.ref.folder):
            record = folder.reuse(self._recycled.pop(), one.ref.folder, one.spec)
        return folder.prepare(one.ref.folder, one.spec) if record is None else record

    def _when_done(self, path: str, when_done: Callable[[], None]) -> WhenDone:
        def done(content: bytes | None) -> None:
            record = None if content is None else decode_record(content)
            if record is not None and record.get("state") == "ended":
                self._ended[path] = Observed(phase=Phase.ENDED, record=record)
            when_done()

        return done

    def _observe(self, ref: AttemptRef) -> Observed:
        path = ref.folder
        if path in self._ended:
            return self._ended.pop(path)
        try:
            return observed(self._reader.read(path, lambda: folder.facts(path)), ref)
        except OSError as error:
            return Observed(phase=Phase.QUEUED, reason=error_with_path(error))

    def _look_after(self, one: WithoutShim, left: "Mapping[int, LeftProcess]") -> Leftovers:
        from dibs.supervise.orphans import AttemptLimits, OrphanedAttempt  # few shims are killed

        path, request = one.ref.folder, one.request
        orphaned = self._orphaned.get(path)
        if orphaned is None:
            save = request.checkpoint
            limits = AttemptLimits(
                grace=request.grace,
                time=request.time_limit,
                checkpoint=None if save is None else (save.signal, save.seconds),
            )
            started_at = self._started_at(path, one.age) + one.stood_still
            orphaned = self._orphaned[path] = OrphanedAttempt(path, limits, started_at=started_at)
        orphaned.seen(left, is_suspended=one.is_suspended)
        if not left:
            del self._orphaned[path]
        elif one.has_ended:
            orphaned.obey("kill")  # as its shim would have done
        return Leftovers(tuple(left.values()), one.holds_gpu, orphaned.ended_by)

    def _started_at(self, path: str, age: float) -> float:
        """By the clock since the boot; `age` counts where the record does not say it."""
        from dibs.supervise.command import boottime  # few shims are killed

        record: dict[str, Any] | None = None
        with suppress(OSError):  # its folder does not answer
            record = self._reader.read(path, lambda: folder.record_of(path))
        started_at: float = (record or {}).get("clock", boottime() - age)
        return started_at

    def _tell(self, ref: AttemptRef, word: str) -> bool:
        if (orphaned := self._orphaned.get(ref.folder)) is not None:
            orphaned.obey(word)
            return True
        try:
            return self._reader.read(ref.folder, lambda: folder.tell(ref.folder, word))
        except OSError:
            return False  # its folder cannot be read now; the engine asks again

    def _withdraw(self, ref: AttemptRef) -> bool:
        return self._warm is not None and self._warm.withdraw((ref.key, ref.attempt))

    def _get_warm(self) -> "WarmProcesses":
        if self._warm is None:
            from dibs.supervise.warm.pool import WarmProcesses  # few jobs need it

            self._warm = WarmProcesses(self._launcher, self._add_reader, self._remove_reader)
        return self._warm

    def _unwatch(self, fd: int) -> None:
        self._watched.remove(fd)
        self._remove_reader(fd)
        os.close(fd)


def observed(facts: folder.AttemptFacts, ref: AttemptRef) -> Observed:
    """What an attempt's folder tells. Only the shim itself can say that no process is left."""
    if facts.is_locked:
        return Observed(phase=Phase.RUNNING)
    damage = facts.damage
    is_recorded = ref.opened_at is not None  # only of such an attempt is it known which record is its own
    if not damage and is_recorded and not facts.is_of(int(ref.key), ref.attempt, ref.opened_at):
        damage = "the record in its folder is of another attempt"
    if damage:
        return Observed(phase=Phase.LOST, reason=f"{damage}, so it may have run", may_linger=True)
    if facts.exit_record is not None:
        return Observed(phase=Phase.ENDED, record=facts.exit_record, may_linger=True)
    never_started = not facts.has_started
    reason = "it was not started" if never_started else "its supervisor was killed or the machine stopped"
    return Observed(phase=Phase.LOST, reason=reason, never_started=never_started, may_linger=True)


def is_free_port(port: int) -> bool:
    """Whether no program uses this port now, at any address of the machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def _attached_fds(attached: AttachedStreams) -> tuple[int, ...]:
    return (() if attached.stdin is None else (attached.stdin,)) + (attached.terminal or ())
