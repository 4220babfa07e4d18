"""`dibs run --json`: every event as one line of JSON on stdout, for programs."""

import json
import time
from collections.abc import Sequence
from typing import Any

from dibs.cli import output
from dibs.errors import DibsError
from dibs.foreground.orders import Progress, Stop, Tally
from dibs.model.events import Ended, Event, Found, Refused, Started, Trouble, Waits
from dibs.model.jobs import Job
from dibs.model.pool import Pool


class JsonReport:
    """A face for programs: every event as one line of JSON on stdout."""

    follows_output = False

    def begin(self, run: str, pool: Pool, driver: bool) -> None:
        self._print({"event": "run", "run": run, "gpus": [card.gpu.index for card in pool.cards]})

    def heard(self, events: Sequence[Event]) -> None:
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

    def finish(self, tally: Tally, resume_hint: str) -> None:
        self._print(
            {
                "event": "finished",
                "succeeded": tally.succeeded,
                "skipped": tally.skipped,
                "failed": tally.failed,
                "stopped": tally.stopped,
                "not_started": tally.left,
                "seconds": round(tally.seconds, 3),
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
