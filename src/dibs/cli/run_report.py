"""What `dibs run` prints: tagged output, a progress line and a table; with --json a line for each event."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dibs.cli import output
from dibs.errors import DibsError
from dibs.foreground.run_types import FAILED, EndedJob, Progress, RunSummary, Stop
from dibs.model.events import Ended, Event, Found, Refused, Started, Trouble, Waits
from dibs.model.gpus import Pool
from dibs.model.jobs import Cause, Job, Outcome, State
from dibs.model.units import show_duration
from dibs.policy.advice import failure_advice

_TAG_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_green")
_PROGRESS_EVERY = 0.1  # seconds
_PATIENCE = 0.5  # seconds that a job may wait before we say why
_TAIL_LINES = 5
_TAIL_BYTES = 4096
_LONGEST_NUMBERS = 60  # letters of a job's metrics


class RunReport:
    """Shows a run at a terminal or in a log file."""

    def __init__(
        self, environ: Mapping[str, str], *, raw: bool = False, quiet: bool = False, single: bool = False
    ) -> None:
        self.follows_output = single or not quiet
        self._raw = raw or single
        self._quiet = quiet
        self._single = single
        self._colour = {1: output.wants_colour(environ, 1), 2: output.wants_colour(environ, 2)}
        self._on_terminal = {1: os.isatty(1), 2: os.isatty(2)}
        self._shows_progress = os.isatty(2) and not quiet and not single
        self._progress = ""  # the line as it stands on the terminal now
        self._progress_at = 0.0
        self._mean_seconds = 0.0
        self._ended = 0
        self._holders: dict[tuple[int, str], str] = {}  # GPU -> job
        self._unread: set[int] = set()  # descriptors whose reader has left
        self._wait: tuple[str, float] | None = None  # why the head of the queue waits, and since when
        self._said_wait = ""

    def begin(self, run: str, pool: Pool, driver: bool) -> None:
        """Say once where it runs and by which name it can be resumed."""
        if self._quiet or self._single:
            return
        where = f"on GPU {pool.shown}" if pool.cards else "without GPUs"
        note = "" if driver or not pool.cards else " (not checked: no GPU driver was found)"
        self._say(f"run {run} {where}{note}")

    # -- as it happens ---------------------------------------------------------------------------------

    def show_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Started):
                self._wait = None
                self._holders.update(
                    {(claim.index, claim.number): _name(event.job) for claim in event.attempt.claims}
                )
                if event.adopted:
                    self._say(f"job {_label(event.job)} was still running; going on with it")
            elif isinstance(event, Ended):
                self._note_end(event)
            elif isinstance(event, Found):
                if event.outcome.cause is not None:
                    self._say(f"job {_label(event.job)} {_how(event)} in the run before")
            elif isinstance(event, Refused):
                self._say(
                    f"job {_label(event.job)} cannot run: {output.one_line(event.outcome.message, 500)}", "red"
                )
            elif isinstance(event, Trouble):
                self._say(output.one_line(event.sentence, 1000), "red")
            elif isinstance(event, Waits):
                self._wait = (event.reason.sentence, time.monotonic())

    def lines(self, job: Job, is_error: bool, data: bytes) -> None:
        fd = 2 if is_error else 1
        if self._on_terminal[fd] and not self._raw:
            data = output.harmless(data)
        if not self._raw:
            tag = self._tag(job, fd)
            data = b"".join(tag + line for line in data.splitlines(keepends=True))
        self._write(fd, data)

    def tick(self, progress: Progress) -> None:
        now = time.monotonic()
        self._say_wait(now, is_idle=progress.running == 0)
        if not self._shows_progress or now < self._progress_at:
            return
        self._progress_at = now + _PROGRESS_EVERY
        self._draw(self._progress_line(progress))

    def stopping(self, stop: Stop, running: int, by: Any, why: str) -> None:
        if self._single:
            return
        jobs, them = _count(running, "job"), "it" if running == 1 else "them"
        again = ""
        if not running:
            text = "nothing more is started"
        elif stop is Stop.DRAIN:
            text = f"nothing more is started; {jobs} run{'s' if running == 1 else ''} on to the end"
            again = f" (Ctrl-C again ends {them}, a third time kills {them})"
        elif stop is Stop.ASK:
            text = f"asking {jobs} to end"
            again = f" (Ctrl-C again kills {them})"
        else:
            text = f"killing {jobs}"
        self._say(f"stopping{f' {why}' if why else ''}: {text}{again if by else ''}", "yellow")

    def trouble(self, error: DibsError) -> None:
        sentence = f"{error.message}{f'; {error.remedy}' if error.remedy else ''}"
        self._say(output.one_line(sentence, 1000), "red")

    # -- at the end ------------------------------------------------------------------------------------

    def finish(self, summary: RunSummary, resume_hint: str) -> None:
        """One table: failures first, with the last lines of their log."""
        self._draw("")
        self._shows_progress = False
        if self._single:
            self._finish_single(summary)
            return
        if summary.is_empty:
            if not self._quiet:
                self._say("the list is empty: nothing was run")
            return
        successes = () if self._quiet else summary.successes
        self._table([*summary.failures, *summary.stops, *successes])
        for shown, total, word in (
            (len(summary.failures), summary.failed, "failed"),
            (len(summary.stops), summary.stopped, "stopped"),
            (len(successes), 0 if self._quiet else summary.succeeded + summary.skipped, "succeeded"),
        ):
            if total > shown:
                self._say(f"… and {total - shown} more {word}")
        parts = [f"{summary.succeeded} succeeded"]
        if summary.skipped:
            parts.append(f"{summary.skipped} had succeeded before")
        parts.append(f"{summary.failed} failed")
        if summary.stopped:
            parts.append(f"{summary.stopped} stopped")
        if summary.left:
            parts.append(f"{summary.left} not started")
        has_more = bool(summary.failed or summary.stopped or summary.left)
        colour = "red" if summary.failed or summary.errors else "yellow" if has_more else "green"
        if not self._quiet or has_more:
            self._say(f"{', '.join(parts)} in {show_duration(summary.seconds)}", colour)
            if has_more:
                self._say(resume_hint)

    def _finish_single(self, summary: RunSummary) -> None:
        last = summary.last
        if isinstance(last, Refused):
            self._say(f"dibs: it cannot run: {last.outcome.message}", "red")
        elif isinstance(last, Ended) and last.outcome.cause in (Cause.TIME_LIMIT, Cause.LOST):
            self._say(f"dibs: it {_how(last)}", "red")

    def _table(self, rows: Sequence[EndedJob]) -> None:
        if not rows:
            return
        cells: list[tuple[str, ...]] = [
            (
                _name(row.job),
                ",".join(map(str, row.gpus)) or "-",
                _how_it_ended(row.outcome) + _which_try(row.job.attempts),
                show_duration(row.outcome.seconds if row.outcome else None),
                output.one_line(row.job.request.command.shown, 1000),
            )
            for row in rows
        ]
        headings = ["job", "GPU", "exit", "time", "command"]
        if any(row.metrics for row in rows):
            headings.insert(4, "metrics")
            cells = [(*cell[:4], _numbers(row.metrics), cell[4]) for cell, row in zip(cells, rows, strict=True)]
        lines = output.table(headings, cells, width=output.terminal_width(), shrink=len(headings) - 1)
        self._say(lines[0], "bold")
        for row, line in zip(rows, lines[1:], strict=True):
            failed = row.job.state in FAILED
            self._say(line, "red" if failed else "yellow" if row.job.state is State.CANCELLED else None)
            for detail in _details(row) if failed else ():
                self._say(f"    {detail}")

    # -- pieces ----------------------------------------------------------------------------------------

    def _note_end(self, event: Ended) -> None:
        for claim in event.attempt.claims:
            self._holders.pop((claim.index, claim.number), None)
        self._ended += 1
        self._mean_seconds += ((event.outcome.seconds or 0.0) - self._mean_seconds) / self._ended
        if self._single or event.outcome.cause is None:
            return
        text = f"job {_label(event.job)} {_how(event)}"
        if event.retry_at is not None:
            text += f"; it is tried again in {show_duration(event.retry_at - time.time())}"
        self._say(text, "yellow" if event.outcome.cause is Cause.STOPPED else "red")

    def _say_wait(self, now: float, *, is_idle: bool) -> None:
        """Say why nothing starts when others are the reason, unless it passes in a moment.

        Our own jobs are on the progress line; while none of them runs, others are the reason.
        """
        if self._wait is None or now - self._wait[1] < _PATIENCE:
            return
        sentence, self._wait = self._wait[0], None
        is_others = is_idle or " of " in sentence or "busy" in sentence or "answer" in sentence
        if is_others and sentence != self._said_wait:
            self._said_wait = sentence
            self._say(f"dibs: the next job {sentence}" if not self._single else f"dibs: {sentence}")

    def _progress_line(self, progress: Progress) -> str:
        parts = [
            f"{progress.done} done",
            f"{progress.failed} failed",
            f"{progress.running} running",
            f"{progress.waiting} waiting{'' if progress.input_is_over else ', more to come'}",
        ]
        parts.append(show_duration(progress.seconds))
        if self._ended and progress.waiting and progress.running:
            left = self._mean_seconds * (progress.waiting / progress.running + 0.5)
            parts.append(f"about {show_duration(left)} left")
        if self._holders:  # last: the longest gives way where the terminal is narrow
            held = (f"{gpu}: {output.one_line(job, 12)}" for (_, gpu), job in sorted(self._holders.items()))
            parts.append(f"GPU {', '.join(held)}")
        return " · ".join(parts)

    def _tag(self, job: Job, fd: int) -> bytes:
        text = f"[{_name(job)}] "
        if self._colour[fd]:
            text = click.style(text, fg=_TAG_COLOURS[job.id % len(_TAG_COLOURS)])
        return text.encode("utf-8", "backslashreplace")

    def _say(self, text: str, style: str | None = None) -> None:
        if self._colour[2] and style:
            text = click.style(text, bold=True) if style == "bold" else click.style(text, fg=style)
        self._write(2, text.encode("utf-8", "backslashreplace") + b"\n")

    def _draw(self, line: str) -> None:
        """Replace the progress line."""
        line = output.one_line(line, output.terminal_width(2) - 1)
        if line != self._progress:
            self._put(2, b"\r\x1b[K" + (click.style(line, dim=True) if self._colour[2] else line).encode())
            self._progress = line

    def _write(self, fd: int, data: bytes) -> None:
        """Put whole lines above the progress line."""
        if self._progress and self._on_terminal[fd]:
            self._put(2, b"\r\x1b[K")
            self._put(fd, data)
            self._progress, line = "", self._progress
            self._draw(line)
        else:
            self._put(fd, data)

    def _put(self, fd: int, data: bytes) -> None:
        # Where the pipe's reader left or the terminal was closed, the jobs go on without being shown.
        if fd not in self._unread and not output.write_all(fd, data):
            self._unread.add(fd)


def _label(job: Job) -> str:
    return output.one_line(job.label, 40)


def _name(job: Job) -> str:
    """For where there is little room: a table, the progress, in front of each line of output."""
    return output.one_line(job.request.name or str(job.id), 24)


def _how(event: Ended | Found) -> str:
    outcome, limit = event.outcome, event.job.request.time_limit
    how = _how_it_ended(outcome)
    if outcome.cause is Cause.EXIT_CODE:
        how = f"exit code {how}"
    elif outcome.cause is Cause.TIME_LIMIT:
        how = f"the limit was {show_duration(limit)}"
    return f"{_failed_word(outcome.state)} ({how})"


def _how_it_ended(outcome: Outcome | None) -> str:
    """`0`, `1`, `SIGKILL`, `time limit`, `gpu-oom`: the shortest true word."""
    if outcome is None:
        return ""
    if outcome.cause not in (None, Cause.EXIT_CODE, Cause.SIGNAL, Cause.KILLED, Cause.STOPPED):
        return str(outcome.cause)
    if outcome.signal is None:
        return str(outcome.exit_code)
    try:
        return signal.Signals(outcome.signal).name
    except ValueError:  # the real-time ones have no names
        return f"signal {outcome.signal}"


def _which_try(attempts: int) -> str:
    """` (2nd try)`; nothing for the first."""
    if attempts < 2:
        return ""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(attempts % 10, "th") if attempts % 100 not in (11, 12, 13) else "th"
    return f" ({attempts}{ending} try)"


def _numbers(metrics: Mapping[str, float | None]) -> str:
    """`loss=0.31 acc=0.9`"""
    told = " ".join(f"{name}={'?' if value is None else f'{value:.4g}'}" for name, value in metrics.items())
    return output.one_line(told, _LONGEST_NUMBERS) or "-"


def _details(row: EndedJob) -> list[str]:
    """Why a job failed, as far as we know: our own sentence, or the last lines of its log."""
    if row.outcome is not None and row.outcome.message:
        return [output.one_line(failure_advice(row.outcome.cause, row.outcome.message), 500)]
    return _tail(_log_of(row.streams))


def _failed_word(state: State) -> str:
    return {State.TIMED_OUT: "ran out of time", State.LOST: "was lost", State.CANCELLED: "was stopped"}.get(
        state, "failed"
    )


def _log_of(streams: Sequence[str]) -> str:
    """The file in which the reason most likely stands: stderr, or stdout where that is empty."""
    for path in reversed(streams):
        with contextlib.suppress(OSError):
            if os.path.getsize(path):
                return path
    return ""


def _tail(path: str) -> list[str]:
    if not path:
        return []
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _TAIL_BYTES))
        lines = output.harmless(file.read()).decode("utf-8", "replace").splitlines()
        return [output.one_line(line, 300) for line in lines[-_TAIL_LINES:]]
    return []


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


class JsonReport:
    """Shows a run to programs: every event as one line of JSON on stdout."""

    follows_output = False

    def begin(self, run: str, pool: Pool, driver: bool) -> None:
        self._print({"event": "run", "run": run, "gpus": [card.gpu.index for card in pool.cards]})

    def show_events(self, events: Sequence[Event]) -> None:
        output.write_all(1, b"".join(json.dumps(_as_json(event)).encode() + b"\n" for event in events))

    def lines(self, job: Job, is_error: bool, data: bytes) -> None:
        pass

    def tick(self, progress: Progress) -> None:
        pass

    def stopping(self, stop: Stop, running: int, by: Any, why: str) -> None:
        reason = by.name if by else why or None
        self._print({"event": "stopping", "how": stop.name.lower(), "why": reason, "running": running})

    def trouble(self, error: DibsError) -> None:
        self._print({"event": "trouble", "message": error.message, "remedy": error.remedy})

    def finish(self, summary: RunSummary, resume_hint: str) -> None:
        self._print(
            {
                "event": "finished",
                "succeeded": summary.succeeded,
                "skipped": summary.skipped,
                "failed": summary.failed,
                "stopped": summary.stopped,
                "not_started": summary.left,
                "metrics": {
                    str(row.job.id): dict(row.metrics)
                    for row in (*summary.failures, *summary.stops, *summary.successes)
                    if row.metrics
                },
                "seconds": round(summary.seconds, 3),
            }
        )

    def _print(self, fields: dict[str, Any]) -> None:
        output.write_all(1, json.dumps({"at": round(time.time(), 3), **fields}).encode() + b"\n")


def _as_json(event: Event) -> dict[str, Any]:
    fields: dict[str, Any] = {"at": round(time.time(), 3), "event": type(event).__name__.lower()}
    if isinstance(event, Trouble):
        return {**fields, "message": event.sentence}
    fields |= {"job": event.job.id, "name": event.job.request.name, "command": event.job.request.command.shown}
    if isinstance(event, Started | Ended | Found):
        fields |= {
            "attempt": event.attempt.number,
            "gpus": [claim.index for claim in event.attempt.claims],
            "folder": event.attempt.folder,
        }
    if isinstance(event, Started):
        fields |= {"stdout": event.stdout, "stderr": event.stderr, "adopted": event.adopted}
    if isinstance(event, Ended | Found | Refused):
        outcome = event.outcome
        fields |= {
            "state": str(outcome.state),
            "exit_code": outcome.exit_code,
            "signal": outcome.signal,
            "cause": outcome.cause and str(outcome.cause),
            "message": outcome.message,
            "seconds": None if outcome.seconds is None else round(outcome.seconds, 3),
        }
    if isinstance(event, Ended):
        fields["retry_at"] = event.retry_at
    if isinstance(event, Waits):
        fields |= {"reason": event.reason.code, "sentence": event.reason.sentence}
    return fields
