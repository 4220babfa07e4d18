"""Slurm's side of the four verbs. One caller at a time; every call may take as long as its commands' deadline.

What protects against running twice, from the outside in: a job is looked for by its name before it is submitted;
Slurm never runs one again by itself (`--no-requeue`); and the shim passes the fence in the attempt's folder once.
A controller that forgets jobs or brings old ones back costs time, and at worst an attempt that counts as lost.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dibs.backends.protocol import AttemptRef, Node, Observed, Phase, Submission, Submitted, Wanted
from dibs.backends.slurm import sinfo, squeue
from dibs.backends.slurm.batches import Batch, batches
from dibs.backends.slurm.commands import Commands, Refused, last_line
from dibs.backends.slurm.flags import flags
from dibs.backends.slurm.judging import judge_gone, judge_live
from dibs.backends.slurm.refusals import is_full, refusal
from dibs.backends.slurm.script import array_script, ranges, script
from dibs.backends.slurm.squeue import Row
from dibs.errors import BackendRefused, BackendSilent, DibsError
from dibs.supervise import fence, folder, records

_MOST_SUBMITS = 50  # calls of sbatch in one turn; an array is one
_MOST_CANCELS = 200  # jobs in one call of scancel
_SOURCE = str(Path(__file__).resolve().parents[3])
_CANCELLED = {"v": 1, "state": "ended", "by": "stop", "message": "cancelled before it started"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmSettings:
    """How this user uses Slurm."""

    root: str  # a folder that every node sees; attempts have their folders below it
    python: str = sys.executable  # an interpreter that every node has under this path
    source: str = _SOURCE  # where every node finds the package dibs
    options: tuple[tuple[str, str], ...] = ()  # for every job, unless it says otherwise: partition, account, ...
    patience: float = 60.0  # seconds until a job that is gone without a record counts as lost


@dataclass(frozen=True, slots=True)
class _Config:
    """What the controller is set up for."""

    kill_wait: float  # seconds between TERM and KILL
    largest_array: int


class SlurmBackend:
    """A cluster as a place where attempts run."""

    def __init__(
        self,
        settings: SlurmSettings,
        commands: Commands,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._commands = commands
        self._clock = clock
        self._config: _Config | None = None
        self._doubted_since: dict[AttemptRef, float] = {}  # gone, or ended without a record

    def nodes(self) -> tuple[Node, ...]:
        """Every node that this user may see, with its cards."""
        return sinfo.parse(self._ask("sinfo", ["-N", "-h", "-O", sinfo.FORMAT]))

    def submit(self, submissions: Sequence[Submission]) -> Submitted:
        """Submit those that Slurm does not have and that never started; at most some dozens of calls at once."""
        accepted: set[AttemptRef] = set()
        refused: dict[AttemptRef, DibsError] = {}
        put_off: dict[AttemptRef, str] = {}
        rows = self._rows()
        fresh: list[tuple[Submission, tuple[str, ...]]] = []
        shards = self._shards_per_gpu(submissions)
        for one in sorted(submissions, key=lambda one: -one.wanted.priority):
            ref = one.ref
            row = rows.get((ref.key, ref.attempt))
            try:
                if (row is not None and row.is_live) or fence.holder(ref.folder) is not None:
                    accepted.add(ref)
                else:
                    fresh.append((one, tuple(flags(self._with_options(one), shards_per_gpu=shards))))
            except BackendRefused as error:
                refused[ref] = error
            except OSError as error:
                put_off[ref] = f"cannot look into its folder: {error}"
        for batch in batches(fresh, largest_array=self._configuration().largest_array)[:_MOST_SUBMITS]:
            refs = [member.ref for member in batch.members.values()]
            try:
                self._prepare(batch)
                self._sbatch(batch)
            except OSError as error:
                put_off |= dict.fromkeys(refs, f"cannot make its folder: {error}")
            except Refused as error:
                text = str(error)
                if is_full(text):
                    put_off |= dict.fromkeys(refs, f"Slurm takes no more jobs now: {last_line(text)}")
                else:
                    types = {gpus.type for node in self.nodes() for gpus in node.gpus}
                    refused |= {ref: refusal(ref.key, text, batch.flags, types) for ref in refs}
            except BackendSilent:
                if not accepted:
                    raise
                break  # whether it was accepted, the next look tells
            else:
                accepted |= set(refs)
                for ref in refs:
                    self._doubted_since.pop(ref, None)
        return Submitted(accepted=frozenset(accepted), refused=refused, put_off=put_off)

    def cancel(self, refs: Sequence[AttemptRef], *, insist: bool = False) -> None:
        """Take the fence of those that have not started, so that they never will; ask the shims of the others.

        Asked for through the shim, because Slurm's own way kills it after some seconds, and with it what it knows.
        """
        unstarted = [ref for ref in refs if _forbid(ref)]
        rows = self._rows()
        found = {ref: row for ref in refs if (row := rows.get((ref.key, ref.attempt))) is not None and row.is_live}
        started = [row.address for ref, row in found.items() if ref not in unstarted]
        self._scancel([], [row.address for ref, row in found.items() if ref in unstarted])
        self._scancel(["--batch", f"--signal={'USR2' if insist else 'USR1'}"], started)

    def observe(self, refs: Sequence[AttemptRef]) -> dict[AttemptRef, Observed]:
        """One `squeue` for all. Folders are read only of those that Slurm does not have any more."""
        rows = self._rows()
        asked = set(refs)
        self._doubted_since = {ref: since for ref, since in self._doubted_since.items() if ref in asked}
        return {ref: self._judge(ref, rows.get((ref.key, ref.attempt))) for ref in refs}

    def _judge(self, ref: AttemptRef, row: Row | None) -> Observed:
        # One that Slurm took back may have run all the same; then it waits only to be stopped by the fence.
        try:
            if row is not None and row.is_live and not (row.was_taken_back and fence.holder(ref.folder)):
                self._doubted_since.pop(ref, None)
                return judge_live(row)
            record = _record_in(ref.folder)
            has_started = record is not None or fence.holder(ref.folder) is not None
        except OSError as error:
            # A file system that is away says nothing about the attempt: it stays as it was.
            return Observed(phase=Phase.RUNNING, reason=f"cannot look into its folder: {error}")
        since = self._doubted_since.setdefault(ref, self._clock())
        is_patient = self._clock() - since < self._settings.patience
        # Let go before it started: who was that? Such are few, and asking costs a call.
        odd = row if not has_started and not is_patient else None
        found = judge_gone(
            row,
            record,
            has_started=has_started,
            is_patient=is_patient,
            said="" if odd is None else self._what_was_said(odd),
            controller_started=0.0 if odd is None else self._controller_started(),
        )
        if found.phase is Phase.ENDED:
            del self._doubted_since[ref]
        return found

    def _rows(self) -> dict[tuple[str, int], Row]:
        asked = ["-h", "-r", "-t", "all", f"--user={os.getuid()}", "-O", squeue.FORMAT]
        return squeue.by_identity(squeue.parse(self._ask("squeue", asked)))

    def _prepare(self, batch: Batch) -> None:
        """The folders first: Slurm may start a job before it has answered us."""
        os.makedirs(f"{self._settings.root}/slurm", mode=0o700, exist_ok=True)
        # Slurm kills the shim after its own grace. Half of that is for writing down how the command ended.
        grace = self._configuration().kill_wait / 2
        for one in batch.members.values():
            folder.prepare_unlocked(one.ref.folder, {**one.spec, "outside_grace": grace})

    def _sbatch(self, batch: Batch) -> None:
        settings = self._settings
        folders = {task: one.ref.folder for task, one in batch.members.items()}
        if not batch.is_array:
            text = script(settings.python, settings.source, *folders.values())
            asked = [*batch.flags]
        else:
            text = array_script(settings.python, settings.source, folders)
            most = "" if batch.most is None else f"%{batch.most}"
            asked = [*batch.flags, f"--array={ranges(list(folders))}{most}"]
        # All of our environment is next to nothing. NONE would run a login shell on the node first, and tell every
        # `srun` of the command to pass on nothing.
        own = [
            "--export=ALL",
            "--chdir=/",
            f"--output={settings.root.replace('%', '%%')}/slurm/%j.out",
            f"--job-name={batch.name}",
        ]
        self._commands.ask("sbatch", ["--parsable", *own, *asked], given=text)

    def _scancel(self, how: list[str], addresses: list[str]) -> None:
        for start in range(0, len(addresses), _MOST_CANCELS):
            # A job that ended in between is no error of ours: who observes sees it.
            with contextlib.suppress(Refused):
                self._commands.ask("scancel", [*how, *addresses[start : start + _MOST_CANCELS]])

    def _with_options(self, one: Submission) -> Wanted:
        options = dict(self._settings.options) | dict(one.wanted.options)
        return replace(one.wanted, options=tuple(options.items()))

    def _shards_per_gpu(self, submissions: Iterable[Submission]) -> int:
        """The fewest parts of a card on any node that has them; 0 where nobody asks or there are none."""
        if not any(one.wanted.wishes.share or one.wanted.wishes.vram for one in submissions):
            return 0
        cards = [(node.shards, sum(gpus.total for gpus in node.gpus)) for node in self.nodes()]
        return min((shards // total for shards, total in cards if shards and total), default=0)

    def _configuration(self) -> _Config:
        if self._config is None:
            found = self._show_config()
            self._config = _Config(
                kill_wait=float(_first_number(found.get("KillWait", ""), 30)),
                largest_array=max(1, _first_number(found.get("MaxArraySize", ""), 1001)),
            )
        return self._config

    def _controller_started(self) -> float:
        """Seconds since the epoch. Asked only about a job that may be lost."""
        return float(_first_number(self._show_config().get("BOOT_TIME", ""), 0))

    def _show_config(self) -> dict[str, str]:
        lines = self._ask("scontrol", ["show", "config"]).decode("utf-8", "replace").splitlines()
        return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}

    def _what_was_said(self, row: Row) -> str:
        """The last line that the batch script wrote before it failed."""
        try:
            text = Path(f"{self._settings.root}/slurm/{row.job}.out").read_text("utf-8", "replace").strip()
        except OSError:
            return ""
        return text.splitlines()[-1][:200] if text else ""

    def _ask(self, command: str, arguments: Sequence[str]) -> bytes:
        """A question that Slurm has no reason to refuse."""
        try:
            return self._commands.ask(command, arguments)
        except Refused as error:
            raise BackendSilent(
                f"cannot ask Slurm: {last_line(str(error))}", remedy="`scontrol ping` shows more"
            ) from None


def _record_in(path: str) -> dict[str, Any] | None:
    """What the shim wrote; None where it wrote nothing. An error is an error: it must not look like nothing."""
    try:
        with open(f"{path}/{folder.RECORD}", "rb", buffering=0) as file:
            return records.decode(file.read(records.SIZE))
    except FileNotFoundError:
        return None


def _forbid(ref: AttemptRef) -> bool:
    """Whether the attempt has not started and now never will; its record then says so."""
    try:
        if not fence.take(ref.folder, fence.CANCELLED) and fence.holder(ref.folder) != fence.CANCELLED:
            return False
    except FileNotFoundError:
        return True  # it was never submitted
    except OSError:
        return False  # nobody can tell: its shim is asked, if there is one
    if _record_in(ref.folder) is None:
        fd = os.open(f"{ref.folder}/{folder.RECORD}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, records.encode(_CANCELLED), 0)
            os.fsync(fd)
        finally:
            os.close(fd)
    return True


def _first_number(text: str, default: int) -> int:
    word = text.split()[0] if text else ""
    return int(word) if word.isdecimal() else default
