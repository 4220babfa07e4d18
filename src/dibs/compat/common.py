"""What the seed tools' commands share: reading options and lines, one-sentence errors, a plain display."""

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NoReturn

from dibs.errors import BadInput, DibsError
from dibs.foreground.run_types import Progress, Stop
from dibs.inputs.entries import Entry
from dibs.inputs.lines import parse_lines, text_lines
from dibs.model.events import Ended, Event, Refused, Started, Trouble, Waits
from dibs.model.jobs import Command, Job, Outcome, Request


def console(prog: str, run: Callable[[Sequence[str]], int]) -> NoReturn:
    """End the process with what `run` returns, or with one sentence."""
    try:
        status = run(sys.argv[1:])
        sys.stdout.flush()
    except DibsError as error:
        tell(prog, f"error: {error.message}{f'; {error.remedy}' if error.remedy else ''}")
        status = error.exit_status
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        # `| head` has seen enough. Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 141
    sys.exit(status)


def tell(prog: str, sentence: str) -> None:
    """Talk goes to stderr, one line each."""
    with contextlib.suppress(OSError):
        sys.stderr.flush()
        sys.stderr.buffer.write(f"{prog}: {printable(sentence)}\n".encode())
        sys.stderr.buffer.flush()


def printable(text: str) -> str:
    """Text of others in a sentence: nothing in it breaks the line or is obeyed by a terminal."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class Parser(argparse.ArgumentParser):
    """argparse with one sentence for a mistake instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(message, remedy=f"`{self.prog} --help` shows what it takes")


def plain_lines(stream: BinaryIO, shell: str, *, name: str, environment_size: int = 0) -> Iterator[Entry]:
    """One job for each line, joined line or block, word for word; blank lines and `#` comments are skipped.

    No fields are read from a line: what worked with the seed tools still means the same.
    """
    return parse_lines(
        text_lines(stream),
        Request(command=Command((), "")),
        shell,
        name=name,
        environment_size=environment_size,
        has_fields=False,
    )


class PlainDisplay:
    """Shows the jobs' output as it is, and messages on stderr."""

    follows_output = True

    def __init__(self, prog: str) -> None:
        self._prog = prog
        self._running = 0
        self._last_wait = ""
        self._gone: set[int] = set()  # descriptors whose reader has left

    def show_events(self, events: Sequence[Event]) -> None:
        waits: Waits | None = None
        for event in events:
            if isinstance(event, Started):
                self._running += 1
                self._last_wait = ""
                self.started(event)
            elif isinstance(event, Ended):
                self._running -= 1
                self.ended(event)
            elif isinstance(event, Refused):
                self.say(f"cannot run `{event.job.request.command.shown}`: {event.outcome.message}")
            elif isinstance(event, Trouble):
                self.say(event.sentence)
            elif isinstance(event, Waits):
                waits = event
        # While our own jobs run, the next one waits for them: that needs no message.
        if waits and not self._running and waits.reason.sentence != self._last_wait:
            self._last_wait = waits.reason.sentence
            self.say(self._last_wait)

    def started(self, event: Started) -> None:
        pass

    def ended(self, event: Ended) -> None:
        pass

    def lines(self, job: Job, is_error: bool, data: bytes) -> None:
        self.put(2 if is_error else 1, data)

    def tick(self, progress: Progress) -> None:
        pass

    def stopping(self, stop: Stop, running: int, by: signal.Signals | None, why: str) -> None:
        jobs = f"{running} job{'' if running == 1 else 's'}"
        if stop is Stop.DRAIN:
            self.say(f"stopping: nothing more is started; {jobs} still running (Ctrl-C again ends them)")
        elif stop is Stop.ASK:
            self.say(f"stopping: asking {jobs} to end (Ctrl-C again kills)")
        else:
            self.say(f"stopping: killing {jobs}")

    def trouble(self, error: DibsError) -> None:
        self.say(f"{error.message}{f'; {error.remedy}' if error.remedy else ''}")

    def say(self, sentence: str) -> None:
        tell(self._prog, sentence)

    def put(self, fd: int, data: bytes) -> None:
        """Write at once. When the reader has left, the jobs go on without being shown."""
        while data and fd not in self._gone:
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError:
                time.sleep(0.005)
            except OSError:
                self._gone.add(fd)


def gpus_of(event: Started | Ended) -> str:
    """`2`, or `0,1` for a group."""
    return ",".join(str(claim.index) for claim in event.attempt.claims)


def how_it_failed(outcome: Outcome) -> str:
    """`exit code 1`, `signal 9` or a sentence."""
    if outcome.signal is not None:
        return f"signal {outcome.signal}"
    if outcome.message or outcome.exit_code is None:
        return outcome.message or str(outcome.cause)
    return f"exit code {outcome.exit_code}"
