"""Where the output of a run's jobs goes, and the folder that shows how a job went."""

import contextlib
import os
import shlex
import time

from dibs.dataclass import dataclass
from dibs.files import replace_file
from dibs.model.jobs import Attempt, Job, Outcome
from dibs.model.usage import Usage


class InAttemptFolders:
    """Output stays in the attempt's own folder; nothing else is written."""

    writes_more = False

    def shows_attempts(self, job: Job) -> bool:
        return False

    def forget(self, job: Job) -> None:
        pass

    def streams(self, job: Job, folder: str, node: str = "") -> tuple[str, str]:
        return f"{folder}/stdout", f"{folder}/stderr"

    def begin(self, job: Job, attempt: Attempt) -> None:
        pass

    def end(self, job: Job, attempt: Attempt, outcome: Outcome, usage: Usage | None = None) -> None:
        pass

    def refuse(self, job: Job, outcome: Outcome) -> None:
        pass

    def confirm(self, job: Job) -> None:
        pass


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFolders:
    """One folder per job, named by its number: stdout, stderr, info, and SUCCESS or FAILURE at the end.

    The names hold `{}` where the folder's own name goes. Numbers and never a job's name make the path: a name
    may hold anything.
    """

    root: str
    prefix: str = "job_"
    first: int = 1  # the number in the first folder's name
    stdout: str = "stdout"
    stderr: str = "stderr"
    info: str = "info"

    @property
    def writes_more(self) -> bool:
        return True

    def shows_attempts(self, job: Job) -> bool:
        return False

    def forget(self, job: Job) -> None:
        pass

    def streams(self, job: Job, folder: str, node: str = "") -> tuple[str, str]:
        folder, name = self._folder(job)
        return f"{folder}/{self.stdout.format(name)}", f"{folder}/{self.stderr.format(name)}"

    def begin(self, job: Job, attempt: Attempt) -> None:
        folder, _ = self._folder(job)
        os.makedirs(folder, exist_ok=True)
        for marker in ("SUCCESS", "FAILURE"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{folder}/{marker}")
        for path in self.streams(job, attempt.folder):
            self._set_aside(path, attempt.number - 1)
        self._write_info(job, attempt, None)

    def end(self, job: Job, attempt: Attempt, outcome: Outcome, usage: Usage | None = None) -> None:
        folder, _ = self._folder(job)
        os.makedirs(folder, exist_ok=True)  # the process that began it may have died before
        self._write_info(job, attempt, outcome, usage)
        _mark(folder, "SUCCESS" if outcome.cause is None else "FAILURE")

    def refuse(self, job: Job, outcome: Outcome) -> None:
        folder, _ = self._folder(job)
        os.makedirs(folder, exist_ok=True)
        self._write_info(job, None, outcome)
        _mark(folder, "FAILURE")

    def confirm(self, job: Job) -> None:
        folder, _ = self._folder(job)
        if os.path.isdir(folder) and not os.path.exists(f"{folder}/SUCCESS"):
            _mark(folder, "SUCCESS")

    def _folder(self, job: Job) -> tuple[str, str]:
        name = f"{self.prefix}{job.id - 1 + self.first}"
        return f"{self.root}/{name}", name

    def _set_aside(self, path: str, number: int) -> None:
        """The plain name is always the latest attempt's; an earlier one's output gets its number."""
        with contextlib.suppress(FileNotFoundError):
            if number > 0:
                os.rename(path, f"{path}.{number}")
            else:
                os.unlink(path)  # of a run that was started over

    def _write_info(
        self, job: Job, attempt: Attempt | None, outcome: Outcome | None, usage: Usage | None = None
    ) -> None:
        folder, name = self._folder(job)
        lines = {
            "job": name,
            "name": job.request.name,
            "command": job.request.command.shown,
            "workdir": os.path.abspath(job.request.workdir),
        }
        if attempt is not None:
            lines["gpu"] = ",".join(claim.number for claim in attempt.claims)
            lines["attempt"] = str(attempt.number)
            lines["started"] = _moment(attempt.opened_at)
        if outcome is not None:
            lines["ended"] = _moment(time.time())
            lines["seconds"] = f"{outcome.seconds or 0:.3f}"
            lines["exit_code"] = "" if outcome.exit_code is None else str(outcome.exit_code)
            lines["signal"] = "" if outcome.signal is None else str(outcome.signal)
            lines["cause"] = outcome.cause or ""
            lines["message"] = outcome.message
        if usage is not None:
            lines |= _measured(usage)
        text = "".join(f"{key}: {_one_line(value)}\n" for key, value in lines.items())
        content = text.encode("utf-8", "surrogateescape")
        replace_file(f"{folder}/{self.info}", content, mode=None, sync=False)


def _mark(folder: str, marker: str) -> None:
    """Make an empty file. Renamed into place: the job may have put a pipe there, which would block an open."""
    replace_file(f"{folder}/{marker}", b"", mode=None, sync=False)


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds))


def _measured(usage: Usage) -> dict[str, str]:
    """What is known of what it used, with the unit in the name."""
    found = {
        "peak_vram_bytes": usage.peak_vram,
        "mean_load_percent": usage.mean_load,
        "energy_watt_hours": usage.energy,
        "peak_mem_bytes": usage.peak_mem,
        "mean_cpus": usage.mean_cpus,
    }
    return {name: f"{value:.15g}" for name, value in found.items() if value is not None}


def _one_line(text: str) -> str:
    """A command of several lines is quoted, so that every line of the file is one fact."""
    return text if text.isprintable() or not text else shlex.quote(text).replace("\n", "\\n")
