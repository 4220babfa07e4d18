"""Slurm's side of the verbs. One caller at a time; every call may take as long as its commands' deadline.

What protects against running twice, from the outside in: a job is looked for by its mark before it is submitted;
Slurm never runs one again by itself (`--no-requeue`); and the shim passes the fence in the attempt's folder once.
A controller that forgets jobs or brings old ones back costs time, and at worst an attempt that counts as lost.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dibs.backends.protocol import (
    AttemptRef,
    BackendProspect,
    Identity,
    Node,
    Observed,
    Phase,
    Resources,
    Submission,
    Submitted,
)
from dibs.backends.slurm import acceptance, squeue
from dibs.backends.slurm.acceptance import has_no_node, is_full, leaves_none, refusal
from dibs.backends.slurm.containers import PYXIS, contained, pyxis_refusal
from dibs.backends.slurm.controller import Commands, Controller, SlurmRefused, last_line
from dibs.backends.slurm.fetched import FetchedFiles
from dibs.backends.slurm.files import Files, NotReached, SharedFiles, cannot_look, cannot_put
from dibs.backends.slurm.root_mark import RootMark
from dibs.backends.slurm.sbatch import SlurmBatch, batches, flags, named
from dibs.backends.slurm.settings import SlurmSettings
from dibs.backends.slurm.squeue import SqueueRow
from dibs.backends.slurm.states import judge_gone, judge_live, judge_removed, judge_unseen
from dibs.backends.slurm.submit_limits import SubmitLimits
from dibs.backends.slurm.times import times
from dibs.errors import BackendMissing, BackendRefused, BackendSilent, DibsError
from dibs.model.jobs import Cause
from dibs.model.slurm_options import of_pyxis
from dibs.model.units import show_ranges
from dibs.supervise import fence

__all__ = ["SlurmBackend", "SlurmSettings"]

_MOST_SUBMITS = 50  # calls of sbatch in one turn; an array is one
_LONG = 10  # patiences until an attempt on a node that does not answer is given up
_NOTHING = b"#!/bin/sh\n"  # a script for a job that is not submitted


class SlurmBackend:
    """A cluster as a place where attempts run."""

    def __init__(
        self,
        settings: SlurmSettings,
        commands: Commands,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if settings.ssh and not settings.node_root.startswith("/"):
            raise BackendMissing(
                "cannot use Slurm over ssh: no folder on the nodes is named for its jobs",
                remedy="`dibs config set backends.slurm.node_root /a/folder/on/the/nodes`",
            )
        self._settings = settings
        self._commands = commands
        self._controller = Controller(commands)
        self._clock = clock
        self._files: Files = FetchedFiles(settings, self._names) if settings.ssh else SharedFiles(settings)
        self._mark = RootMark(settings.root, settings.memory)
        self._began: float | None = None  # when the controller began, as far as the last look asked
        self._limits = SubmitLimits(clock)
        self._doubted_since: dict[AttemptRef, float] = {}  # gone, or ended without a record
        self._strays: list[Identity] = []  # what the last look saw beside what it was asked about
        self._ending: set[AttemptRef] = set()  # whose end was asked for while their folders were away
        self._unborn: set[AttemptRef] = set()  # not handed over before their folders were removed with the cluster
        self._gpus: dict[AttemptRef, str] = {}  # of those that were seen running; their folders are read once

    @property
    def settings(self) -> SlurmSettings:
        """How it is used here."""
        return self._settings

    @property
    def roots(self) -> tuple[str, ...]:
        """Where attempts have their folders, or had them under earlier settings."""
        return tuple(dict.fromkeys((self._settings.root, *self._mark.roots)))

    @property
    def why_no_image(self) -> str:
        """Why no command can be run in a container there; empty where one can."""
        return "the nodes of this cluster do not share the folders of this machine" if self._settings.ssh else ""

    def make_ready(self) -> None:
        """Before something is put below the root: raise where that cannot be, or it is another folder by now."""
        self._mark.make()

    def version(self) -> str:
        """The controller's version; empty where it does not tell."""
        return self._controller.version()

    def nodes(self) -> tuple[Node, ...]:
        """Every node that this user may see, with its cards."""
        return self._controller.nodes()

    def check(self, wanted: Resources) -> BackendProspect:
        """Whether Slurm would ever start such a job, and when: its own estimate, with what it does not look at."""
        self._check_container(wanted)
        whole = self._with_options(wanted)
        asked = flags(whole, shards_per_gpu=self._controller.shards_per_gpu([wanted]))
        found: BackendProspect | None = None
        try:
            found = acceptance.prospect(self._commands.would_submit(asked, _NOTHING), time.time())
        except SlurmRefused as error:
            text, nodes = str(error), self.nodes()
        where = self._controller.partitions(whole)
        if found is None and not is_full(text):
            # Slurm says the same of a job that is too big and of one whose nodes are down, which it would take.
            much = acceptance.what_is_too_much(whole, nodes, where)
            if much or not has_no_node(text):
                raise refusal(text, asked, _types(nodes), much)
        if wanted.time_limit is not None:
            acceptance.refuse_too_long(wanted.time_limit, where)
        if any(one.accounts is not None or one.not_accounts for one in where):
            account = dict(whole.options).get("account") or self._controller.default_account()
            line = None if account is None else self._controller.with_parents(account)
            if account is not None and line is not None:
                acceptance.refuse_closed(account, line, where)
        if where and not any(one.is_up for one in where):
            return acceptance.not_yet("its partition starts no jobs now")
        return found or acceptance.not_yet("the nodes that it needs are down or drained")

    def _check_container(self, wanted: Resources) -> None:
        """Refuse folders that pyxis cannot be told to mount. Where the site has none, apptainer takes any."""
        if not wanted.container_paths:
            return
        refusal = pyxis_refusal((*wanted.container_paths, self._settings.root))
        if refusal is not None and PYXIS in self._controller.pyxis():
            raise refusal

    def submit(self, submissions: Sequence[Submission]) -> Submitted:
        """Submit those that Slurm does not have and that never started; at most some dozens of calls at once."""
        if not submissions:
            return Submitted()
        accepted: set[AttemptRef] = set()
        refused: dict[AttemptRef, DibsError] = {}
        put_off: dict[AttemptRef, str] = {}
        self._mark.make()
        accepted |= {one.ref for one in submissions if self._mark.is_removed(one.ref.folder)}
        self._unborn |= accepted  # `observe` says so
        missing = self._mark.missing(one.ref.folder for one in submissions)
        put_off |= {one.ref: _whole(missing[one.ref.folder]) for one in submissions if one.ref.folder in missing}
        submissions = [one for one in submissions if one.ref not in accepted and one.ref not in put_off]
        if not submissions:
            return Submitted(accepted=frozenset(accepted), put_off=put_off)
        queue = self._queue()
        there = squeue.by_identity(queue)
        rows = _of((one.ref for one in submissions), there)
        accepted |= {ref for ref, row in rows.items() if row is not None and row.is_live}
        left = [one for one in submissions if one.ref not in accepted]
        self._files.withdraw({one.ref: rows[one.ref] for one in left})
        fresh: list[tuple[Submission, tuple[str, ...]]] = []
        shards = self._controller.shards_per_gpu(one.wanted for one in left)
        for one in sorted(left, key=lambda one: -one.wanted.priority):
            try:
                if self._files.holder(one.ref) is not None:
                    accepted.add(one.ref)
                else:
                    fresh.append((self._in_its_image(one), tuple(self._flags(one.wanted, shards))))
            except BackendRefused as error:
                refused[one.ref] = error
            except OSError as error:
                put_off[one.ref] = cannot_look(error, one.ref)
        largest = self._controller.config().largest_array
        self._limits.begin(queue, there)
        to_do = deque(batches(fresh, largest_array=largest)[:_MOST_SUBMITS])
        while to_do:
            whole = to_do.popleft()
            room, why = self._limits.room(whole)
            batch, rest = whole.divided(room)
            if rest is not None and room and not why:
                to_do.appendleft(rest)
            elif rest is not None:
                put_off |= dict.fromkeys(rest.refs, why)
            if batch is None:
                continue
            ready = self._prepare(batch, refused, put_off)
            for part in batches(ready, largest_array=largest):
                try:
                    self._sbatch(part, shards)
                except OSError as error:
                    self._files.refused(part.refs)
                    put_off |= dict.fromkeys(part.refs, cannot_put(error, self._settings.root))
                except SlurmRefused as error:
                    self._files.refused(part.refs)
                    if self._limits.refused(part, str(error)):
                        to_do.appendleft(part)
                    else:
                        self._sort_out(part, str(error), refused, put_off)
                except BackendSilent as error:
                    # Slurm may have it, and runs what its folder says: the next look tells.
                    put_off |= dict.fromkeys(part.refs, error.message)
                    return Submitted(accepted=frozenset(accepted), refused=refused, put_off=put_off)
                else:
                    accepted.update(part.refs)
                    self._limits.accepted(part)
                    for ref in part.refs:
                        self._doubted_since.pop(ref, None)
        return Submitted(accepted=frozenset(accepted), refused=refused, put_off=put_off)

    def _in_its_image(self, one: Submission) -> Submission:
        """The same, with its command in a container where it names an image."""
        more = of_pyxis(dict(self._with_options(one.wanted).options))
        if "image" not in one.spec:
            if more:
                raise BackendRefused(f"cannot do what --{next(iter(more))} asks for: the job names no image")
            return one
        if self.why_no_image:  # it was not so when the job was added
            raise BackendRefused(f"cannot run a container: {self.why_no_image}")
        pyxis, cpus = self._controller.pyxis(), one.wanted.wishes.cpus
        spec = contained(one.spec, one.ref.folder, pyxis=pyxis, cpus=cpus, more=more)
        return replace(one, spec=spec)

    def watch(self, ref: AttemptRef, when_done: Callable[[], None]) -> bool:
        return False  # Slurm is polled

    def cancel(self, refs: Sequence[AttemptRef], *, insist: bool = False) -> frozenset[AttemptRef]:
        """Take the fence of those that have not started, so that they never will; ask the shims of the others.

        Asked for through the shim, because Slurm's own way kills it after some seconds, and with it what it knows.
        """
        refs = [ref for ref in refs if not self._mark.is_removed(ref.folder)]
        if not refs:
            return frozenset()
        missing = self._mark.missing(ref.folder for ref in refs)
        away = {ref for ref in refs if ref.folder in missing}  # Slurm alone can be told of these
        self._ending |= away
        # First of all: it holds also where Slurm does not answer.
        never = self._files.forbid([ref for ref in refs if ref not in away])
        rows = self._rows(refs)
        never |= self._files.forbid_there({ref: rows[ref] for ref in refs if ref not in never | away})
        live = {ref: row for ref, row in rows.items() if row is not None and row.is_live}
        self._controller.scancel([], [row.address for ref, row in live.items() if ref in never])
        others = [row for ref, row in live.items() if ref not in never]
        self._controller.scancel(["--state=PENDING"], [row.address for row in others if row.is_queued])
        # Slurm refuses to signal one that it suspended; its own way wakes it up first.
        self._controller.scancel([], [row.address for row in others if row.is_suspended])
        awake = [row.address for row in others if row.is_running and not row.is_suspended]
        self._controller.scancel(["--batch", f"--signal={'USR2' if insist else 'USR1'}"], awake)
        return frozenset()  # scancel does not say whether a signal arrived

    def hold(self, refs: Sequence[AttemptRef], *, release: bool = False) -> None:
        rows = self._rows(ref for ref in refs if not self._mark.is_removed(ref.folder)).values()
        self._controller.hold([row.address for row in rows if row is not None and row.is_queued], release=release)

    def observe(self, refs: Sequence[AttemptRef]) -> dict[AttemptRef, Observed]:
        """One `squeue` for all. Folders are read only of those that Slurm does not have any more."""
        self._strays = []
        removed = {ref for ref in refs if self._mark.is_removed(ref.folder)}
        missing = self._mark.missing(ref.folder for ref in refs if ref not in removed)
        away = {ref: _whole(missing[ref.folder]) for ref in refs if ref.folder in missing}
        self._ending -= {ref for ref in refs if ref not in away}
        if away and self._ending.isdisjoint(away) and len(away) + len(removed) == len(refs):
            raise next(iter(missing.values()))
        found = {ref: judge_removed(never_started=ref in self._unborn) for ref in removed}
        self._unborn -= removed
        if refs and len(removed) == len(refs):
            return found  # perhaps there is no Slurm any more
        there = squeue.by_identity(self._queue())
        rows = _of(refs, there)
        asked = {(ref.key, ref.attempt) for ref in refs}
        self._strays = [one for one, row in there.items() if row.is_live and one not in asked]
        self._doubted_since = {ref: since for ref, since in self._doubted_since.items() if ref in rows}
        self._gpus = {ref: gpus for ref, gpus in self._gpus.items() if ref in rows}
        self._files.look({ref: row for ref, row in rows.items() if ref not in away and ref not in removed})
        self._began = None
        unseen = [ref for ref, row in rows.items() if row is None and ref not in removed and ref not in away]
        rows |= self._booked(unseen)
        for ref, row in rows.items():
            if ref not in removed:
                seen = self._judge_unseen(ref, row, away[ref]) if ref in away else self._judge(ref, row)
                found[ref] = seen
        ahead = self._controller.ahead() if any(_has_times(seen) for seen in found.values()) else 0.0
        for ref, seen in found.items():
            row = rows[ref]
            began, ended = times(row, seen.record, ahead)
            number = "" if row is None else row.address
            start = None if seen.expected_start is None else seen.expected_start - ahead
            found[ref] = replace(seen, number=number, began=began, ended=ended, expected_start=start)
        return found

    def strays(self, mark: str) -> list[Identity]:
        return [(key, attempt) for key, attempt in self._strays if key.startswith(f"{mark}-")]

    def remove_strays(self, strays: Sequence[Identity]) -> None:
        """Look for them again first: a number that was seen before may be another job's by now."""
        wanted = set(strays)
        found = [row for row in self._queue() if row.is_live and row.identity in wanted]
        self._controller.scancel([], [row.address for row in found])

    def _booked(self, refs: Iterable[AttemptRef]) -> dict[AttemptRef, SqueueRow | None]:
        """Those that are about to be given up and that Slurm has forgotten, as its accounting has them."""
        numbers: dict[AttemptRef, str] = {}
        now = self._clock()
        for ref in refs:
            if now - self._doubted_since.get(ref, now) >= self._settings.patience:
                with contextlib.suppress(OSError):
                    record = self._files.record(ref)
                    if record is not None and record.get("state") != "ended":
                        numbers[ref] = str(record.get("number") or "")
        if not any(numbers.values()):
            return {}
        there = squeue.by_identity(self._controller.booked(filter(None, numbers.values())))
        return {ref: row for ref, row in _of(numbers, there).items() if row is not None}

    def _judge_unseen(self, ref: AttemptRef, row: SqueueRow | None, why: str) -> Observed:
        since = self._clock() if row is not None and row.is_live else self._doubted_since.get(ref, self._clock())
        self._doubted_since[ref] = since
        is_patient = self._clock() - since < self._settings.patience
        return judge_unseen(row, why, is_ending=ref in self._ending, is_patient=is_patient)

    def _judge(self, ref: AttemptRef, row: SqueueRow | None) -> Observed:
        # One that Slurm took back may have run all the same; then it waits only to be stopped by the fence.
        since = self._doubted_since.get(ref, self._clock())
        try:
            if row is not None and row.is_live and not (row.was_taken_back and self._files.holder(ref)):
                self._doubted_since.pop(ref, None)
                return replace(judge_live(row), gpus=self._cards(ref) if row.is_running else "")
            record = self._files.record(ref)
            has_started = record is not None or self._files.holder(ref) is not None
        except NotReached as error:
            self._doubted_since[ref] = since
            node = "" if row is None else row.node
            if self._clock() - since < _LONG * self._settings.patience:
                phase = Phase.RUNNING if node else Phase.QUEUED  # who is taken for running by us stays that
                return Observed(phase=phase, reason=str(error), node=node)
            reason = f"{error}; it was waited for in vain"
            return Observed(phase=Phase.LOST, reason=reason, cause=Cause.LOST, node=node)
        except OSError as error:
            # A file system that is away says nothing about the attempt: it stays as it was.
            self._doubted_since.pop(ref, None)
            return Observed(phase=Phase.QUEUED, reason=cannot_look(error, ref))
        self._doubted_since[ref] = since
        is_patient = self._clock() - since < self._settings.patience
        # Let go before it started: who was that? Asking costs a call.
        odd = row if not has_started and not is_patient else None
        found = judge_gone(
            row,
            record,
            has_started=has_started,
            is_patient=is_patient,
            said="" if odd is None else self._what_was_said(odd),
            controller_started=0.0 if odd is None else self._controller_began(),
        )
        if found.phase is Phase.ENDED:
            del self._doubted_since[ref]
        if row is not None and row.is_live and found.phase in (Phase.ENDED, Phase.LOST):
            self._controller.scancel(
                [], [row.address]
            )  # the fence would stop it, but held over there it would stay for ever
        return found

    def _cards(self, ref: AttemptRef) -> str:
        """Of one that runs. Its shim says it when it starts the command, a moment after Slurm starts the shim."""
        if ref not in self._gpus:
            with contextlib.suppress(OSError):
                if (word := self._files.holder(ref)) is not None:
                    self._gpus[ref] = fence.place_in(word)[1]
        return self._gpus.get(ref, "")

    def _rows(self, refs: Iterable[AttemptRef]) -> dict[AttemptRef, SqueueRow | None]:
        """What Slurm has of each of these."""
        return _of(refs, squeue.by_identity(self._queue()))

    def _queue(self) -> list[SqueueRow]:
        try:
            return self._controller.queue()
        except BackendSilent:
            self._doubted_since.clear()  # a controller that comes back hears of its jobs only after a while
            raise

    def _prepare(
        self, batch: SlurmBatch, refused: dict[AttemptRef, DibsError], put_off: dict[AttemptRef, str]
    ) -> list[tuple[Submission, tuple[str, ...]]]:
        """Make their folders; one that cannot be made keeps no other waiting."""
        # Slurm kills the shim after its own grace. Half of that is for writing down how the command ended.
        grace = self._controller.config().kill_wait / 2
        ready = []
        for one in batch.members.values():
            ours = replace(one, spec={**one.spec, "outside_grace": grace})
            try:
                self._files.prepare(ours)
            except BackendRefused as error:
                refused[one.ref] = error
            except OSError as error:
                put_off[one.ref] = cannot_put(error, one.ref.folder)
            else:
                ready.append((ours, batch.flags))
        return ready

    def _sbatch(self, batch: SlurmBatch, shards: int) -> None:
        asked = list(batch.flags)
        if batch.wanted.avoid and self._leaves_no_node(asked):
            # The node on which it failed is all that is left: better there than never.
            asked = self._flags(replace(batch.wanted, avoid=()), shards)
        if batch.is_array:
            most = "" if batch.most is None else f"%{batch.most}"
            asked.append(f"--array={show_ranges(batch.members)}{most}")
        # All of our environment is next to nothing. NONE would run a login shell on the node first, and tell every
        # `srun` of the command to pass on nothing.
        options = dict(self._with_options(batch.wanted).options)
        comment = f"{batch.mark} {options.get('comment', '')}".strip()
        own = ["--export=ALL", f"--chdir={batch.workdir}", f"--output={self._files.output}"]
        own += [f"--job-name={named(batch.title, batch.mark)}", f"--comment={comment}"]
        # Ours come last: nothing that was passed on may take their place.
        self._commands.ask("sbatch", ["--parsable", *asked, *own], given=self._files.script(batch))

    def _leaves_no_node(self, asked: Sequence[str]) -> bool:
        """Whether no node could start such a job, now or later; those that are down do not count."""
        try:
            self._commands.would_submit(asked, _NOTHING)
        except SlurmRefused as error:
            return leaves_none(str(error))
        return False

    def _sort_out(
        self, batch: SlurmBatch, text: str, refused: dict[AttemptRef, DibsError], put_off: dict[AttemptRef, str]
    ) -> None:
        if is_full(text):
            put_off |= dict.fromkeys(batch.refs, f"Slurm takes no more jobs now: {last_line(text)}")
        else:
            types: set[str] = set()
            with contextlib.suppress(BackendSilent):  # the sentence only lacks the types then
                types = _types(self.nodes())
            refused |= {ref: refusal(text, batch.flags, types) for ref in batch.refs}

    def _flags(self, wanted: Resources, shards: int) -> list[str]:
        return flags(self._with_options(wanted), shards_per_gpu=shards)

    def _with_options(self, wanted: Resources) -> Resources:
        options = dict(self._settings.options) | dict(wanted.options)
        return replace(wanted, options=tuple(options.items()))

    def _names(self) -> list[str]:
        return [node.name for node in self.nodes()]

    def _controller_began(self) -> float:
        """Asked only about jobs that may be lost, and once for all of a look."""
        if self._began is None:
            self._began = self._controller.began()
        return self._began

    def _what_was_said(self, row: SqueueRow) -> str:
        """The last line that the batch script wrote before it failed."""
        try:
            text = Path(f"{self._settings.root}/slurm/{row.job}.out").read_text("utf-8", "replace").strip()
        except OSError:
            return ""
        return text.splitlines()[-1][:200] if text else ""


def _of(refs: Iterable[AttemptRef], rows: Mapping[Identity, SqueueRow]) -> dict[AttemptRef, SqueueRow | None]:
    return {ref: rows.get((ref.key, ref.attempt)) for ref in refs}


def _has_times(seen: Observed) -> bool:
    return seen.phase is not Phase.QUEUED or seen.expected_start is not None


def _whole(error: DibsError) -> str:
    return f"{error.message}; {error.remedy}"


def _types(nodes: Iterable[Node]) -> set[str]:
    return {gpus.type for node in nodes for gpus in node.gpus}
