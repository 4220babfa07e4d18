"""Notifications: a command, a webhook or apprise, when a job ends or fails, or the queue is empty.

Nothing here is awaited by the loop. At most a few messages are on their way at once; a storm of ends becomes one
summary, and a channel that hangs is given up.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

from dibs.dataclass import dataclass
from dibs.model.events import Ended, Event, Refused
from dibs.model.jobs import Cause, Job, Outcome

_AT_ONCE = 4
_MOST_WAITING = 100  # beyond these, messages become one summary
_COMMAND_SECONDS = 60.0
_WEBHOOK_SECONDS = 10.0
_TRIES = 3
_PAUSE = 1.0  # seconds before the second try; twice as long before the third
_LONGEST = 500  # letters of the message


@dataclass(frozen=True, kw_only=True, slots=True)
class Channels:
    """Where messages go, as the settings have it. Empty: not there."""

    command: str = ""
    webhook: str = ""
    apprise: str = ""
    on: str = "failure"  # `end`, `failure` or `never`; a job's own wish goes first

    @property
    def are_none(self) -> bool:
        return not (self.command or self.webhook or self.apprise)


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """One message, the same in every channel."""

    event: str  # `job.ended`, `queue.empty` or `summary`
    sentence: str
    job: int | None = None
    name: str = ""
    project: str = ""
    state: str = ""
    exit_code: int | None = None
    signal: int | None = None
    cause: str = ""
    message: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)  # of a summary

    def variables(self) -> dict[str, str]:
        """For a command."""
        said = {
            "DIBS_EVENT": self.event,
            "DIBS_SENTENCE": self.sentence,
            "DIBS_JOB_ID": "" if self.job is None else str(self.job),
            "DIBS_JOB_NAME": self.name,
            "DIBS_JOB_PROJECT": self.project,
            "DIBS_JOB_STATE": self.state,
            "DIBS_EXIT_CODE": "" if self.exit_code is None else str(self.exit_code),
            "DIBS_SIGNAL": "" if self.signal is None else str(self.signal),
            "DIBS_CAUSE": self.cause,
            "DIBS_MESSAGE": self.message,
        }
        return {name: value.replace("\0", " ") for name, value in said.items()}

    def body(self) -> dict[str, Any]:
        """For a webhook. `text` is what chat servers show."""
        return {
            "event": self.event,
            "text": self.sentence,
            "job": self.job,
            "name": self.name,
            "project": self.project,
            "state": self.state,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "cause": self.cause,
            "message": self.message,
            "counts": dict(self.counts),
        }


class Notifier:
    """Takes what happened and returns at once. `announce` is told, in a sentence, what could not be sent.

    `announce` is called from threads; what commands say goes to `output`, a descriptor such as the daemon's log.
    """

    def __init__(
        self,
        channels: Channels,
        announce: Callable[[str], None],
        *,
        output: int = 2,
        environ: Mapping[str, str] | None = None,
        command_seconds: float = _COMMAND_SECONDS,
        webhook_seconds: float = _WEBHOOK_SECONDS,
        pause: float = _PAUSE,
    ) -> None:
        self._channels = channels
        self._announce = announce
        self._output = output
        self._environ = os.environ if environ is None else environ
        self._command_seconds = command_seconds
        self._webhook_seconds = webhook_seconds
        self._pause = pause
        self._waiting: deque[Notice] = deque()
        self._beyond: Counter[str] = Counter()  # what is only counted, by state
        self._workers: set[threading.Thread] = set()
        self._commands: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def on_events(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Refused):
                self.job_ended(event.job, event.outcome, False)
            elif isinstance(event, Ended):
                self.job_ended(event.job, event.outcome, event.retry_at is not None)

    def job_ended(self, job: Job, outcome: Outcome, will_retry: bool) -> None:
        """An attempt is over. A job that is tried again has not ended yet."""
        wanted = job.request.notify or self._channels.on
        if will_retry or wanted not in ("end", "failure"):
            return
        if wanted == "end" or outcome.cause is not None:
            self._put(_about(job, outcome))

    def queue_is_empty(self) -> None:
        """Nothing runs and nothing waits. Sent to all that are notified of ends."""
        if self._channels.on == "end":
            self._put(Notice(event="queue.empty", sentence="dibs: the queue is empty"))

    def close(self) -> None:
        """Leave. What has not been sent is not sent; a command that runs is ended."""
        with self._lock:
            self._closed.set()
            self._waiting.clear()
            self._beyond.clear()
            commands = list(self._commands)
        for command in commands:
            _end(command)

    def _put(self, notice: Notice) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            if len(self._waiting) >= _MOST_WAITING:
                self._beyond[notice.state or notice.event] += 1
                return
            self._waiting.append(notice)
            if len(self._workers) < _AT_ONCE:
                self._start_worker()

    def _start_worker(self) -> None:
        worker = threading.Thread(target=self._work, name="dibs-notify", daemon=True)
        self._workers.add(worker)
        try:
            worker.start()
        except RuntimeError:  # too many processes: those that are there go on, or the next notice tries again
            self._workers.discard(worker)

    def _work(self) -> None:
        """Send until nothing is left. A worker that finds nothing is gone, under the lock that adds the next."""
        while (notice := self._take()) is not None:
            for send, channel in (
                (self._run_command, self._channels.command),
                (self._post, self._channels.webhook),
                (self._tell_apprise, self._channels.apprise),
            ):
                if not channel or self._closed.is_set():
                    continue
                try:
                    send(notice)
                except Exception as error:  # whatever a channel does, the queue goes on
                    self._announce(f"cannot notify of {notice.event}: {_reason(error)}")

    def _take(self) -> Notice | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            if self._beyond:
                counts, self._beyond = self._beyond, Counter()
                return _summary(counts)
            self._workers.discard(threading.current_thread())
            return None

    # -- channels --------------------------------------------------------------------------------------

    def _run_command(self, notice: Notice) -> None:
        process = subprocess.Popen(
            ["/bin/sh", "-c", self._channels.command],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env={**self._environ, **notice.variables()},
            start_new_session=True,
        )
        with self._lock:
            self._commands.add(process)
        try:
            if self._closed.is_set():
                _end(process)
            status = process.wait(self._command_seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            process.wait()
            self._announce(f"the notify command was ended after {self._command_seconds:g} seconds")
            return
        finally:
            with self._lock:
                self._commands.discard(process)
        if status and not self._closed.is_set():
            self._announce(f"the notify command ended with status {status}")

    def _post(self, notice: Notice) -> None:
        import urllib.request  # 40 ms that only those with a webhook pay

        request = urllib.request.Request(
            self._channels.webhook,
            data=json.dumps(notice.body()).encode(),
            headers={"Content-Type": "application/json", "User-Agent": "dibs"},
        )
        if request.type not in ("http", "https"):
            raise ValueError(f"the webhook's address begins with {request.type}:, not with https:")
        for attempt in range(1, _TRIES + 1):
            try:
                urllib.request.urlopen(request, timeout=self._webhook_seconds).close()
                return
            except OSError as error:
                is_refusal = 400 <= getattr(error, "code", 0) < 500
                if attempt == _TRIES or is_refusal or self._closed.wait(self._pause * 2 ** (attempt - 1)):
                    raise

    def _tell_apprise(self, notice: Notice) -> None:
        try:
            apprise = importlib.import_module("apprise")  # an extra
        except ImportError:
            raise RuntimeError("apprise is not installed (`pip install 'dibs[notify]'`)") from None
        messenger = apprise.Apprise()
        if not messenger.add(self._channels.apprise):
            raise ValueError("apprise does not understand the address in notify_apprise")
        if not messenger.notify(title="dibs", body=notice.sentence):
            raise RuntimeError("apprise could not deliver the message")


def _about(job: Job, outcome: Outcome) -> Notice:
    how = "" if outcome.cause is None else f": {_how(outcome)}"
    return Notice(
        event="job.ended",
        sentence=_short(f"dibs: job {job.label} {outcome.state.replace('_', ' ')}{how}"),
        job=job.id,
        name=job.request.name,
        project=job.request.project,
        state=outcome.state,
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        cause=outcome.cause or "",
        message=_short(outcome.message),
    )


def _how(outcome: Outcome) -> str:
    if outcome.cause is Cause.EXIT_CODE:
        return f"exit code {outcome.exit_code}"
    if outcome.cause is Cause.SIGNAL:
        return f"signal {outcome.signal}"
    return outcome.message or str(outcome.cause)


def _summary(counts: Counter[str]) -> Notice:
    parts = ", ".join(f"{number} {state.replace('_', ' ')}" for state, number in counts.most_common())
    return Notice(event="summary", sentence=f"dibs: {counts.total()} more messages: {parts}", counts=counts)


def _short(text: str) -> str:
    """One line that fits a phone, in letters that every channel has."""
    text = " ".join(text.encode("utf-8", "backslashreplace").decode().split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return _short(str(reason) or type(error).__name__)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """The command and whatever it started in its session. Until we have waited for it, its number is its own."""
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
