"""Asks nodes over ssh what attempts have written, and brings them what they wait for.

One call for all attempts of a node, several nodes at the same time. An answer is checked before any of it becomes
a file here: the node may be broken, or not ours any more.
"""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import Any

from dibs.backends.slurm.files import NotReached
from dibs.backends.slurm.mirror import AttemptFiles, Pieces
from dibs.backends.slurm.sbatch import call
from dibs.backends.slurm.settings import SlurmSettings
from dibs.dataclass import dataclass
from dibs.supervise import node_files
from dibs.supervise.folder import RECORD_SIZE, decode_record
from dibs.supervise.node_sync import MAGIC, STREAMS

# Bytes from one node, and to one node, in one call: a huge file must not keep others waiting.
MOST = 8 * 1024 * 1024
_AT_ONCE = 16  # nodes
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")  # no user is there to type a password
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0  # seconds


@dataclass(frozen=True, slots=True)
class NodeQuery:
    """What one node is asked: about attempts by their names there, which were delivered and may go, and for which
    of those that wait there something is brought."""

    asked: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    drop: Sequence[str] = ()
    bring: Mapping[str, Pieces] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What a node says of each attempt, with the pieces of its files; or why there is no answer."""

    found: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pieces: Mapping[str, Pieces] = field(default_factory=dict)
    fault: str = ""


class Ssh:
    """Reaches nodes. After a call that a node did not answer the next ones to it fail at once, for a while."""

    def __init__(
        self, settings: SlurmSettings, *, deadline: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._deadline = deadline  # seconds
        self._clock = clock
        self._pauses: dict[str, tuple[float, float, str]] = {}  # by node: until when, how long, why

    def ask(self, questions: Mapping[str, NodeQuery]) -> dict[str, NodeAnswer]:
        """Ask every node its question. Takes as long as the slowest of them, and no longer than the deadline."""
        if not questions:
            return {}
        with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(questions))) as hands:
            return dict(zip(questions, hands.map(self._ask, questions, questions.values()), strict=True))

    def _ask(self, node: str, question: NodeQuery) -> NodeAnswer:
        until, pause, why = self._pauses.get(node, (0.0, 0.0, ""))
        if self._clock() < until:
            return NodeAnswer(fault=why)
        given = {
            "root": self._settings.node_root,
            "most": MOST,
            "asked": question.asked,
            "drop": question.drop,
            "bring": {
                name: [(file, start, len(content)) for file, start, content in pieces]
                for name, pieces in question.bring.items()
            },
        }
        contents = [content for pieces in question.bring.values() for _, _, content in pieces]
        try:
            done = subprocess.run(
                self._words(node),
                input=b"".join((json.dumps(given).encode(), b"\n", *contents)),
                capture_output=True,
                timeout=self._deadline,
                cwd="/",
                start_new_session=True,  # a Ctrl-C is ours to handle
            )
            answer = _parse(done.stdout)
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            fault = (said or [f"its answer makes no sense (exit code {done.returncode})"])[-1][:200]
        except subprocess.TimeoutExpired:
            answer, fault = None, f"no answer within {self._deadline:g} seconds"
        except OSError as error:
            answer, fault = None, str(error)
        if answer is not None:
            self._pauses.pop(node, None)
            return answer
        pause = min(max(_FIRST_PAUSE, 2 * pause), _LONGEST_PAUSE)
        why = f"node {node} does not answer over ssh: {fault}"
        self._pauses[node] = (self._clock() + pause, pause, why)
        return NodeAnswer(fault=why)

    def _words(self, node: str) -> list[str]:
        wanted = call(self._settings.python, self._settings.source, "node_sync")
        destination = dict(self._settings.destinations).get(node, node)
        if not destination:
            return wanted
        first, *rest = self._settings.ssh
        options = _OPTIONS if os.path.basename(first) == "ssh" else ()
        named = [word.replace("{node}", destination) for word in rest]
        last = [] if named != rest else [destination]
        return [first, *options, *named, *last, shlex.join(wanted)]


def _parse(output: bytes) -> NodeAnswer | None:
    """None where it is no answer, or not all of one."""
    _, magic, rest = output.partition(MAGIC)
    length, _, rest = rest.partition(b"\n")
    if not magic or not length.isdigit() or len(rest) < int(length):
        return None
    try:
        found: dict[str, dict[str, Any]] = json.loads(rest[: int(length)])
    except ValueError:
        return None
    pieces: dict[str, list[tuple[str, int, bytes]]] = {}
    place = int(length)
    for name, one in found.items():
        for stream, start, size in one["pieces"]:
            pieces.setdefault(name, []).append((stream, start, rest[place : place + size]))
            place += size
    return NodeAnswer(found, pieces) if place == len(rest) else None


_LONGEST_WORD = 2_000  # characters of a fence


def checked(node: str, name: str, own: AttemptFiles, answer: NodeAnswer) -> tuple[Mapping[str, Any], Pieces]:
    """What it says of an attempt, and the pieces of its files. Raises NotReached where that was not asked for."""
    try:
        found, pieces = answer.found[name], answer.pieces.get(name, ())
        is_fine = _is_word(found["holder"]) and _is_record(found["record"]) and _are_ours(own, found, pieces)
    except (KeyError, TypeError, ValueError, AttributeError):
        is_fine = False
    if not is_fine:
        raise NotReached(f"node {node} gives an answer over ssh that it was not asked for")
    return found, pieces


def _is_word(word: Any) -> bool:
    """The holder of a fence names a node, which may be asked over ssh: it must not look like an option."""
    return word is None or (isinstance(word, str) and not word.startswith("-") and len(word) <= _LONGEST_WORD)


def _is_record(text: str) -> bool:
    """Empty, or whole and no longer than its place: our own spec stands behind it."""
    return not text or (len(text.encode()) == RECORD_SIZE and decode_record(text.encode()) is not None)


def _are_ours(own: AttemptFiles, found: Mapping[str, Any], pieces: Pieces) -> bool:
    files = found.get("checkpoint", {})
    numbers = [*found.get("brought", {}).values(), *found.get("excess", {}).values()]
    ends = {f"{node_files.CHECKPOINT}/{name}": int(size) for name, (size, _) in files.items() if own.checkpoint}
    return (
        len(files) <= node_files.MOST_FILES
        and sum(ends.values()) <= node_files.MOST_BYTES
        and all(node_files.is_harmless(name) and size >= 0 for name, (size, _) in files.items())
        and all(0 <= int(written) < 2**63 for _, written in files.values())
        and all(isinstance(number, int) for number in numbers)
        and all(stream in STREAMS and 0 <= int(start) <= int(end) for stream, (start, end) in found["cut"].items())
        and all(
            isinstance(start, int)
            and start >= 0
            and (stream in (*STREAMS, *own.names) or start + len(content) <= ends.get(stream, -1))
            for stream, start, content in pieces
        )
    )
