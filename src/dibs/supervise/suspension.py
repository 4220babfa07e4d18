"""The engine's side of suspending jobs: starts a helper for each, hears its answer, and ends it at its deadline.

The helper (suspender.py) does the calls of the driver, which may hang. It dies with the thread that started it,
and may be started again for the same attempt at any time: it looks where things stand, and goes on from there.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from dibs.dataclass import dataclass
from dibs.supervise.launcher import AddReader, RemoveReader

_START = "import sys; sys.path.append(sys.argv[1]); from dibs.supervise.suspender import main; main()"
_SOURCE = os.path.realpath(f"{__file__}/../../..")  # the folder of the package
# What the helper gets of our environment: how to find the driver, what crash tests inject, and nothing else.
_HANDED_THROUGH = ("DIBS_PROBE", "DIBS_CUDA_LIBRARY", "DIBS_FAULT", "FAKE_CUDA", "LD_LIBRARY_PATH")
_LONGEST_ANSWER = 65536  # bytes
_LONGEST_QUESTION = 32768  # bytes; a pipe takes them without waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Where an attempt stands after a helper's work."""

    state: str  # suspended, running, ended, unclear; lost: it can neither stand still nor go on; looked
    rung: str = ""  # cuda: its memory is off the card; stop: its processes are stopped; empty: neither
    processes: int = 0  # those of CUDA
    held: Mapping[str, int] = field(default_factory=dict)  # bytes that were moved, by card, as far as is known
    seconds: float = 0.0
    code: str = ""  # why it was not done; empty where it was
    why: str = ""  # the same for people: a part of a sentence


WhenAnswered = Callable[[Answer], None]


class _Helper:
    def __init__(self, process: "subprocess.Popen[bytes]", done: WhenAnswered, deadline: float) -> None:
        self.process = process
        self.done = done
        self.deadline = deadline
        self.heard = b""

    @property
    def channel(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()


class Suspender:
    """Runs the helpers of one engine, one for each key at a time."""

    def __init__(self, add_reader: AddReader, remove_reader: RemoveReader, environ: Mapping[str, str]) -> None:
        self._add_reader = add_reader
        self._remove_reader = remove_reader
        self._environment = {"PATH": os.defpath, "LANG": "C.UTF-8"} | {
            name: environ[name] for name in _HANDED_THROUGH if name in environ
        }
        self._helpers: dict[Any, _Helper] = {}
        self._leaving: list[subprocess.Popen[bytes]] = []  # answered or killed, and not yet waited for

    def start(self, key: Any, question: Mapping[str, Any], done: WhenAnswered, deadline: float) -> None:
        """Have the question answered: `done` is called once, by the reader or by `expire`, and not from here.

        The question is what `suspender.main` reads, without `parent`. The deadline is on the clock that `expire`
        is given. OSError: no helper could be started, and nothing was done. Call it from a thread that stays,
        since the helper dies with it.
        """
        if key in self._helpers:
            raise ValueError(f"a helper works on {key} already")
        self._reap()
        text = json.dumps({**question, "parent": os.getpid()}).encode()
        if len(text) > _LONGEST_QUESTION:
            raise ValueError("the question is too long for a pipe")
        # Isolated: nothing of the user's environment may reach it. With site, for what reads the cards.
        process = subprocess.Popen(
            [sys.executable, "-I", "-X", "utf8", "-c", _START, _SOURCE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=self._environment,
        )
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:  # it died at once: the reader hears it
            stdin.write(text)
        os.set_blocking(process.stdout.fileno(), False)
        helper = self._helpers[key] = _Helper(process, done, deadline)
        self._add_reader(helper.channel, self._hear, key)

    @property
    def next_deadline(self) -> float | None:
        """When `expire` has something to do at the latest; None while no helper works."""
        return min((helper.deadline for helper in self._helpers.values()), default=None)

    def is_working_on(self, key: Any) -> bool:
        return key in self._helpers

    def expire(self, now: float) -> None:
        """End the helpers whose deadline has come: their answer is `unclear`, with the code `deadline`."""
        self._reap()
        for key, helper in list(self._helpers.items()):
            if helper.deadline <= now:
                why = "the driver did not answer in time"
                self._finish(key, Answer(state="unclear", code="deadline", why=why))

    def close(self) -> None:
        """End all helpers, without an answer. The next engine starts them again."""
        for key in list(self._helpers):
            self._finish(key, None)

    def _hear(self, key: Any) -> None:
        helper = self._helpers[key]
        try:
            part = os.read(helper.channel, _LONGEST_ANSWER)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        helper.heard += part
        # The line is the answer: the end of the process may take longer, while the driver lets it go.
        if not part or b"\n" in helper.heard or len(helper.heard) > _LONGEST_ANSWER:
            self._finish(key, _answer_in(helper.heard))

    def _finish(self, key: Any, answer: Answer | None) -> None:
        helper = self._helpers.pop(key)
        self._remove_reader(helper.channel)
        assert helper.process.stdout is not None
        helper.process.stdout.close()
        helper.process.kill()  # nothing is left for it to do
        self._leaving.append(helper.process)
        self._reap()
        if answer is not None:
            helper.done(answer)

    def _reap(self) -> None:
        """Never waits: a process that hangs in the driver may stay for long after it was killed."""
        self._leaving = [process for process in self._leaving if process.poll() is None]


def _answer_in(line: bytes) -> Answer:
    try:
        found = json.loads(line)
        return Answer(**{name: found[name] for name in Answer.__dataclass_fields__})
    except (ValueError, TypeError, KeyError):
        return Answer(state="unclear", code="no-answer", why="its helper ended without an answer")
