"""The folders of attempts on nodes that share no file system with us: fetched over ssh into mirrors of ours.

What an attempt needs beside its command goes with the batch script where it is small; otherwise its shim waits on
the node, and it is brought there.

The fence is on the node's own disk, so that only the node knows who took it. While a node that may have started an
attempt does not answer nothing is known of that attempt, and it is not submitted again.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from dibs.backends.protocol import AttemptRef, Submission
from dibs.backends.slurm import mirror, ssh
from dibs.backends.slurm.files import NotReached, Rows, never_start
from dibs.backends.slurm.mirror import AttemptFiles, SubmittedCopies, belongings
from dibs.backends.slurm.sbatch import SlurmBatch, carrying_script
from dibs.backends.slurm.settings import SlurmSettings
from dibs.backends.slurm.squeue import SqueueRow
from dibs.backends.slurm.ssh import NodeAnswer, NodeQuery, Ssh
from dibs.model.jobs import call_moved
from dibs.supervise import fence, folder, node_files
from dibs.supervise.script_job import attempts_below

_IN_SCRIPT = 1024 * 1024  # bytes of files in one batch script; Slurm takes scripts of 4 MiB
_OUTPUTS = ("stdout", "stderr")
_AT_A_STRETCH = 5.0  # seconds in which a look goes on moving what is too big for one call


class FetchedFiles:
    """Mirrors of folders on nodes. Whatever must outlive this process stands in the mirrors."""

    def __init__(self, settings: SlurmSettings, nodes: Callable[[], Iterable[str]]) -> None:
        self._settings = settings
        self._nodes = nodes
        self._ssh = Ssh(settings)
        self._unknown: dict[AttemptRef, OSError] = {}  # why nothing is known of it at the moment
        self._unwanted: set[AttemptRef] = set()  # cancelled, and not known to be over
        self._copies: dict[AttemptRef, SubmittedCopies] = {}  # read once
        self._belongings: dict[AttemptRef, AttemptFiles] = {}  # read once
        self._awaited: dict[AttemptRef, tuple[str, dict[str, int]]] = {}  # by whom, and how much is there
        self._delivered = f"{settings.root}/slurm/delivered"

    def look(self, rows: Rows) -> None:
        """One call to each node on which one of these runs or may have run."""
        self._copies = {ref: copy for ref, copy in self._copies.items() if ref in rows}
        self._belongings = {ref: own for ref, own in self._belongings.items() if ref in rows}
        self._awaited = {ref: where for ref, where in self._awaited.items() if ref in rows}
        self.forbid_there({ref: rows[ref] for ref in self._unwanted if ref in rows})
        asked = {}
        for ref, row in rows.items():
            with contextlib.suppress(OSError):  # `holder` and `record` raise it again
                if not _is_waiting(row) and not self._is_settled(ref, row):
                    asked[ref] = self._may_have(ref, row)
        final = {ref for ref in asked if (row := rows[ref]) is None or not row.is_running}
        self._unknown = self._ask(asked, final=final)
        until = time.monotonic() + _AT_A_STRETCH
        while time.monotonic() < until and (moving := {ref for ref in asked if self._is_moving(ref)}):
            self._unknown = {ref: why for ref, why in self._unknown.items() if ref not in moving}
            self._unknown |= self._ask({ref: asked[ref] for ref in moving}, final=final)

    def withdraw(self, rows: Rows) -> None:
        """Shut the fences of copies that may be over there; a copy that is submitted then has another name."""
        asked = {}
        for ref, row in rows.items():
            with contextlib.suppress(OSError):
                if not self._is_settled(ref, row):
                    asked[ref] = self._may_have(ref, row)
        self._shut(asked)

    def forbid(self, refs: Collection[AttemptRef]) -> set[AttemptRef]:
        """Those of which no copy is over there. The others are remembered until more is known of them."""
        never = set()
        for ref in refs:
            with contextlib.suppress(OSError):
                if not self._copy(ref).is_open and never_start(ref):
                    never.add(ref)
                elif fence.holder(ref.folder) is None:
                    self._unwanted.add(ref)
        return never

    def forbid_there(self, rows: Rows) -> set[AttemptRef]:
        """Those in Slurm's queue are for Slurm to cancel; of the others the nodes say whether they started."""
        asked: dict[AttemptRef, set[str]] = {}
        for ref, row in rows.items():
            with contextlib.suppress(OSError):
                if _is_waiting(row) or self._is_settled(ref, row) or fence.holder(ref.folder) is not None:
                    continue
                # Cancelled before it had a node is Slurm's own word that no node has it.
                is_nowhere = row is not None and row.state == "CANCELLED" and not row.node and not row.restarts
                asked[ref] = set() if is_nowhere else self._may_have(ref, row)
        self._shut(asked)
        self._unwanted = {ref for ref in self._unwanted if ref not in rows or _is_waiting(rows[ref])}
        return self.forbid(asked)

    def prepare(self, one: Submission) -> None:
        own = self._belongings[one.ref] = belongings(one.ref, one.spec)
        own.check()
        folder.prepare_unlocked(one.ref.folder, one.spec)
        self._remember(one.ref, SubmittedCopies(self._copy(one.ref).times + 1, is_open=True))

    def script(self, batch: SlurmBatch) -> bytes:
        environments: dict[str, dict[str, str]] = {}
        attempts = {}
        room = _IN_SCRIPT
        for task, one in batch.members.items():
            key = str(one.spec["environment"])
            if key not in environments:
                environments[key] = _read_json(key)
            name = self._copy(one.ref).name(one.ref)
            own = self._own(one.ref)
            takes = own.outgoing()
            size = sum(size for size, _ in takes.values())
            is_small = size <= room
            room -= size if is_small else 0
            attempts[str(task) if batch.is_array else ""] = {
                "name": name,
                "spec": self._on_node(one, name, own),
                "environment": key,
                "is_call": bool(own.call),
                "brings": own.packed(takes) if is_small else {},
                "awaits": {} if is_small else takes,
            }
        document = {"root": self._settings.node_root, "attempts": attempts, "environments": environments}
        return carrying_script(self._settings.python, self._settings.source, document)

    def refused(self, refs: Collection[AttemptRef]) -> None:
        for ref in refs:
            with contextlib.suppress(OSError):  # then the nodes are asked before it is submitted again
                self._remember(ref, SubmittedCopies(self._copy(ref).times))

    def holder(self, ref: AttemptRef) -> str | None:
        word = fence.holder(ref.folder)
        if word is None and ref in self._unknown:
            raise self._unknown[ref]
        return word

    def record(self, ref: AttemptRef) -> dict[str, Any] | None:
        record = folder.read_record(ref.folder)
        if record is None and ref in self._unknown:
            raise self._unknown[ref]
        return record

    @property
    def output(self) -> str:
        return "/dev/null"  # no folder of ours is there before our shim is

    def _may_have(self, ref: AttemptRef, row: SqueueRow | None) -> set[str]:
        """The nodes that may have started it: the one that Slurm names, one that said so, or any."""
        if row is not None and row.node and not row.restarts:
            return {row.node}
        if (home := self._home(ref)) or fence.holder(ref.folder) is not None:
            return home
        return set(self._nodes())

    def _home(self, ref: AttemptRef) -> set[str]:
        """The node that said that it started there, if one did."""
        return {fence.place_in(fence.holder(ref.folder) or "")[0]} - {""}

    def _own(self, ref: AttemptRef) -> AttemptFiles:
        if ref not in self._belongings:
            self._belongings[ref] = belongings(ref, mirror.spec(ref))
        return self._belongings[ref]

    def _is_moving(self, ref: AttemptRef) -> bool:
        """Whether something of it is on its way, and the last call went well."""
        why = self._unknown.get(ref)
        if why is not None or ref not in self._awaited:
            return isinstance(why, _OnItsWay)
        _, brought = self._awaited[ref]
        return brought != {name: size for name, (size, _) in self._own(ref).outgoing().items()}

    def _is_settled(self, ref: AttemptRef, row: SqueueRow | None) -> bool:
        """Whether there is nothing to ask: it is over and fetched, or no copy of it is over there."""
        if not self._copy(ref).is_open:
            return True
        is_running = row is not None and row.is_running
        return not is_running and (folder.read_record(ref.folder) or {}).get("state") == "ended"

    def _copy(self, ref: AttemptRef) -> SubmittedCopies:
        """The last copy of it that was given to Slurm."""
        if ref not in self._copies:
            self._copies[ref] = mirror.handed(ref)
        return self._copies[ref]

    def _remember(self, ref: AttemptRef, copy: SubmittedCopies) -> None:
        mirror.remember(ref, copy)
        self._copies[ref] = copy

    def _shut(self, asked: Mapping[AttemptRef, set[str]]) -> None:
        """Take the fences of these, on all nodes that may start them. Where all did, no copy is over there."""
        faults = self._ask(asked, forbid=True)
        for ref in asked:
            self._unknown.pop(ref, None)
            try:
                if ref not in faults and fence.holder(ref.folder) is None:
                    self._remember(ref, SubmittedCopies(self._copy(ref).times))
            except OSError as error:
                faults[ref] = error
        self._unknown |= faults

    def _ask(
        self,
        asked: Mapping[AttemptRef, set[str]],
        *,
        final: Collection[AttemptRef] = (),
        forbid: bool = False,
    ) -> dict[AttemptRef, OSError]:
        """Ask the nodes, and put what they say into the mirrors; return of which attempts too little is known.

        The record is wanted of those that are `final`.
        """
        names = {ref: self._copy(ref).name(ref) for ref in asked}
        faults: dict[AttemptRef, OSError] = {}
        wishes: dict[str, dict[str, dict[str, Any]]] = {}
        for ref, nodes in asked.items():
            try:
                own = self._own(ref)
            except OSError as error:
                faults[ref] = error
                continue
            wish = {
                "have": mirror.sizes(ref, own, final=ref in final),
                "final": ref in final,
                "forbid": forbid,
                "files": own.names,
                "checkpoint": bool(own.checkpoint),
                "bound": (node_files.MOST_BYTES, node_files.MOST_FILES),
            }
            for node in nodes:
                wishes.setdefault(node, {})[names[ref]] = wish
        drops = self._deliveries()
        questions = {
            node: NodeQuery(wishes.get(node, {}), tuple(drops.get(node, ())), self._goods(node, names))
            for node in {**wishes, **drops}
        }
        said = self._ssh.ask(questions)
        for node, paths in drops.items():
            if not said[node].fault:
                _remove(paths.values())
        for ref, nodes in asked.items():
            if ref in faults:
                continue
            for node in sorted(nodes):
                try:
                    self._take_over(ref, names[ref], node, said[node])
                except OSError as error:  # of the node, or of our own disk
                    faults[ref] = error
            home = nodes & self._home(ref)
            if home and isinstance(faults.get(ref), NotReached) and not any(said[node].fault for node in home):
                del faults[ref]  # it started there, and what the others would say is no matter
        return faults

    def _take_over(self, ref: AttemptRef, name: str, node: str, answer: NodeAnswer) -> None:
        if answer.fault:
            raise NotReached(answer.fault)
        own = self._own(ref)
        found, pieces = ssh.checked(node, name, own, answer)
        if "brought" in found and found["holder"] is None:
            self._awaited[ref] = node, found["brought"]
        elif self._awaited.get(ref, ("",))[0] == node:
            del self._awaited[ref]
        word = found["holder"]
        if word is None or word == fence.CANCELLED:
            return
        fence.take(ref.folder, word)
        mirror.add(ref, own.on(node), pieces, found["cut"])
        if found["record"]:
            files = found.get("checkpoint", {})
            if not node_files.has_arrived(f"{ref.folder}/{node_files.CHECKPOINT}", files):
                raise _OnItsWay(f"its checkpoint is still on its way from node {node}")
            own.unpack(node, found, f"{attempts_below(self._settings.node_root)}/{name}")
            mirror.finish(ref, found["record"])
            # What is in a file that the user named need not be kept twice.
            named = zip(_OUTPUTS, (own.output, own.error), strict=True)
            _remove([f"{ref.folder}/{stream}" for stream, path in named if path])
            if not found.get("excess"):
                os.makedirs(f"{self._delivered}/{node}", mode=0o700, exist_ok=True)
                open(f"{self._delivered}/{node}/{name}", "w").close()
        elif found.get("has_record"):
            raise _OnItsWay(f"its output is still on its way from node {node}")

    def _goods(self, node: str, names: Mapping[AttemptRef, str]) -> dict[str, list[tuple[str, int, bytes]]]:
        """The next pieces of what attempts on this node wait for."""
        room = ssh.MOST
        found: dict[str, list[tuple[str, int, bytes]]] = {}
        for ref, (where, brought) in self._awaited.items():
            if where != node or ref not in names:
                continue
            own = self._own(ref)
            pieces = found.setdefault(names[ref], [])
            for file, (size, _) in own.outgoing().items():
                start = brought.get(file, 0)
                # An empty file wants its piece, too: without it the file is not there.
                if room > 0 and (start < size or file not in brought):
                    content = node_files.piece(own.path(file), start, min(room, size - start))
                    pieces.append((file, start, content))
                    room -= len(content)
        return found

    def _deliveries(self) -> dict[str, dict[str, str]]:
        """By node: the names of attempts that are whole here and may go there, and where that is noted.

        Noted in files, for after a crash, when the attempt is not asked about any more.
        """
        found: dict[str, dict[str, str]] = {}
        with contextlib.suppress(FileNotFoundError):
            for node in os.listdir(self._delivered):
                names = os.listdir(f"{self._delivered}/{node}")
                if names:
                    found[node] = {name: f"{self._delivered}/{node}/{name}" for name in names}
        return found

    def _on_node(self, one: Submission, name: str, own: AttemptFiles) -> dict[str, Any]:
        """What the shim is told there: paths below our folders become paths below the node's."""
        there = f"{attempts_below(self._settings.node_root)}/{name}"

        def moved(value: Any) -> Any:
            for ours, theirs in ((one.ref.folder, there), (self._settings.root, self._settings.node_root)):
                if isinstance(value, str) and value.startswith(f"{ours}/"):
                    return theirs + value[len(ours) :]
            return value

        env = {name: moved(value) for name, value in one.spec["env"].items()}
        if own.checkpoint:
            env["DIBS_CHECKPOINT_DIR"] = f"{there}/{node_files.CHECKPOINT}"
        outputs = {name: moved(one.spec[name]) for name in _OUTPUTS}
        if own.output:
            outputs = dict.fromkeys(_OUTPUTS, f"{there}/stdout")
        if own.error:
            outputs["stderr"] = f"{there}/stderr"
        words = list(one.spec["words"])
        if own.call:
            words = call_moved(words, self._settings.source, there)
        return {**one.spec, "env": env, "words": words, **outputs}


class _OnItsWay(OSError):
    """More of it comes with the next call."""


def _is_waiting(row: SqueueRow | None) -> bool:
    """Whether Slurm has it in its queue, and never had it on a node."""
    return row is not None and row.is_queued and not row.was_taken_back


def _read_json(path: str) -> dict[str, str]:
    with open(path, "rb") as file:
        found: dict[str, str] = json.loads(file.read())
    return found


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)
