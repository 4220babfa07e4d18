"""The exceptions for jobs that did not succeed."""

from collections.abc import Mapping
from typing import Any

from dibs.errors import DibsError

_VERBS = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "was stopped",
    "timed_out": "ran out of time",
    "lost": "was lost: its end was not seen",
}


class JobFailed(DibsError):
    """A job did not succeed. `job` is its number; `log` has the last lines that it wrote."""

    code = "job-failed"

    def __init__(self, about: Mapping[str, Any], *, log: str = "", message: str = "") -> None:
        self.job = int(about["id"])
        self.state = str(about["state"])
        self.cause: str | None = about.get("cause")
        self.exit_code: int | None = about.get("exit_code")
        self.signal: int | None = about.get("signal")
        self.log = log
        super().__init__(message or how_it_ended(about), remedy=f"`dibs info {self.job}` tells more")

    def __reduce__(self) -> Any:
        """A job may raise it about another job: it must be readable again where that is collected."""
        about = {"id": self.job, "state": self.state, "cause": self.cause}
        return _failed, ({**about, "exit_code": self.exit_code, "signal": self.signal}, self.log, self.message)

    def __str__(self) -> str:
        last = "".join(f"\n  | {line}" for line in self.log.splitlines())
        return f"{self.message}{last}"


class RemoteTraceback(Exception):
    """The traceback of a function in its job, as text: the cause of the exception that is raised here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'


def _failed(about: Mapping[str, Any], log: str, message: str) -> JobFailed:
    return JobFailed(about, log=log, message=message)


def how_it_ended(about: Mapping[str, Any]) -> str:
    """`job 17 (train) failed: exit code 1`, with what is known about the reason."""
    name = f" ({about['name']})" if about.get("name") else ""
    verb = _VERBS.get(about["state"], f"is {about['state']}")
    why = about.get("explanation") or about.get("message") or _ending(about)
    return f"job {about['id']}{name} {verb}" + (f": {why}" if why and about["state"] != "succeeded" else "")


def _ending(about: Mapping[str, Any]) -> str:
    if about.get("signal"):
        return f"signal {about['signal']}"
    if about.get("exit_code") is not None:
        return f"exit code {about['exit_code']}"
    return str(about.get("cause") or "")
