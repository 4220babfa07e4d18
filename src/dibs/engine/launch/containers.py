"""Containers of attempts on this machine: how one is started, and what is left of it when its shim has ended.

An engine's daemon may have started the processes, so that none of them inherited a lock. They are found by the
mark in their environment, and the container by its name, which is the attempt's.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dibs.backends.protocol import AttachedStreams
from dibs.engine.turn.state import Key, OpenAttempt
from dibs.errors import DibsError
from dibs.model.jobs import Attempt
from dibs.supervise.folder import read_spec

if TYPE_CHECKING:
    from dibs.engine.launch.launcher import Place
    from dibs.worker_thread import WorkerThread

_TRIES = 5  # to remove a container of which no process is left


class PreparedContainer(NamedTuple):
    """What the shim of an attempt in a container is told, and files that must be written before."""

    spec: dict[str, Any]
    files: Mapping[str, str]


class AttemptContainers:
    """Prepares containers, and removes those whose shims were killed."""

    def __init__(
        self,
        place: "Place",
        start_thread: "Callable[[str], WorkerThread] | None",
        settle_soon: Callable[[Key], None],
    ) -> None:
        self._place = place
        self._start_thread = start_thread
        self._settle_soon = settle_soon
        self._thread: WorkerThread | None = None
        self._environments: dict[str, dict[str, str]] = {}  # by key, as they were captured
        self._asked: set[Key] = set()  # the engine is removing their containers
        self._answers: dict[Key, str] = {}  # empty: it is removed; otherwise why not
        self._tries: dict[Key, int] = {}

    def prepare(self, one: OpenAttempt, spec: dict[str, Any], attached: AttachedStreams) -> PreparedContainer:
        """The spec with the words of the job's engine. What cannot be is a start error of the attempt."""
        from dibs.containers.host import read_host  # few jobs need it
        from dibs.containers.registry import ENGINES
        from dibs.containers.spec import contained, container_name
        from dibs.supervise.command import encoded, plain_words

        request, attempt = one.job.request, one.attempt
        try:
            captured = self._environment(one.job.environment)
            config = ""
            if request.container_engine == "runc":
                with open(f"{request.image}/config.json", encoding="utf-8") as file:
                    config = file.read()
            plain = plain_words(encoded(request.command.words))
            made, files = contained(
                spec,
                request,
                ENGINES[request.container_engine],
                read_host(captured),
                name=container_name(self._place.root, attempt.job, attempt.number),
                folder=attempt.folder,
                words=request.command.words if plain is None else [os.fsdecode(word) for word in plain],
                captured=captured,
                claims=attempt.claims,
                has_input=attached.stdin is not None,
                has_terminal=attached.terminal is not None,
                config=config,
            )
        except (DibsError, OSError, ValueError, KeyError) as error:
            why = error.message if isinstance(error, DibsError) else str(error)
            return PreparedContainer({**spec, "refusal": why}, {})
        return PreparedContainer(made, files)

    def is_left(self, attempt: Attempt, *, same_boot: bool) -> bool:
        """Whether the container of an attempt may still be there, of which no process lives and no shim is left.

        The engine is told to remove it, in a thread. Until it has confirmed that, a process may be about to start.
        """
        key = attempt.key
        if key in self._asked:
            return same_boot
        why_not = self._answers.get(key)
        if why_not == "" or self._tries.get(key, 0) >= _TRIES:
            self._tries.pop(key, None)
            return False
        self._tries[key] = self._tries.get(key, 0) + 1
        self._remove(key, attempt.folder)
        # After a restart of the machine nothing of it lives: its name alone does not keep the card.
        return same_boot

    def why_not_removed(self, attempt: Attempt) -> str:
        """Why a container is still there that `is_left` has given up; empty where it is gone."""
        return self._answers.pop(attempt.key, "")

    def _remove(self, key: Key, folder: str) -> None:
        def removed(why_not: str) -> None:
            self._asked.discard(key)
            self._answers[key] = why_not
            self._settle_soon(key)

        if self._thread is None and self._start_thread is not None:
            self._thread = self._start_thread("containers")
        if self._thread is not None and self._thread.submit(lambda: self._removed(folder), removed):
            self._asked.add(key)

    def _removed(self, folder: str) -> str:
        """In the thread: remove the container of the attempt in this folder; why that failed."""
        from dibs.containers.commands import ask_engine

        spec = read_spec(folder) or {}
        words = spec.get("container", {}).get("remove")
        if not words:
            return ""
        try:
            captured = _read(spec["environment"])
        except (OSError, ValueError):
            captured = dict(os.environ)
        # Without the attempt's own variables: a process with its mark would be taken for one of the container.
        answer = ask_engine(words, captured)
        is_gone = answer.code == 0 or "no such container" in answer.said.lower()
        return "" if is_gone else answer.last_line or f"exit code {answer.code}"

    def _environment(self, key: str) -> dict[str, str]:
        if key not in self._environments:
            if len(self._environments) > 8:
                self._environments.clear()
            self._environments[key] = _read(self._place.environment_path(key))
        return self._environments[key]


def _read(path: str) -> dict[str, str]:
    """A captured environment."""
    with open(path, "rb") as file:
        found: dict[str, str] = json.loads(file.read())
        return found
