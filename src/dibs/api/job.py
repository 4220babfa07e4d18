"""A job of the queue as an object: inspect it, wait for it, read its output, end it."""

import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from dibs.api.connection import ask, patient, say
from dibs.api.errors import JobFailed
from dibs.errors import DibsError, NoSuchJob
from dibs.model.jobs import State

if TYPE_CHECKING:
    from dibs.api.job_log import JobLog
    from dibs.client.client import Client

_ROUND = 30.0  # seconds of one request; the daemon answers at once when the job is over
_LOOK_AGAIN = 0.05  # seconds between two looks at a job that is being suspended, at first;
_LONGEST_PAUSE = 2.0  # later
_LAST_LINES = 20  # of the log, in an error
_MISSING = object()


class Job:
    """A job in the queue. Its properties ask the daemon; `about` is the last answer."""

    def __init__(self, id: int, about: Mapping[str, Any] | None = None) -> None:
        self.id = int(id)
        self._about = about
        self._value: Any = _MISSING  # of a function that has returned

    def __repr__(self) -> str:
        if self._about is None:
            return f"<dibs.Job {self.id}>"
        return (
            f"<dibs.Job {self.id}: {self._about['name'] or self._about['command'][:60]!r}, {self._about['state']}>"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # -- its fields -------------------------------------------------------------------------------

    def refresh(self) -> "Job":
        """Ask the daemon for everything about it."""
        self._about = ask(lambda client: client.job(self.id))
        return self

    @property
    def about(self) -> Mapping[str, Any]:
        """All fields of the job, with the names of the API, as of the last request."""
        if self._about is None:
            self.refresh()
        assert self._about is not None
        return self._about

    @property
    def name(self) -> str:
        return str(self.about["name"])

    @property
    def command(self) -> str:
        return str(self.about["command"])

    @property
    def state(self) -> str:
        """queued, held, submitted, running, suspended, succeeded, failed, cancelled, timed_out or lost; now."""
        return str(self.refresh().about["state"])

    @property
    def suspension(self) -> Mapping[str, Any] | None:
        """The last suspension of its running attempt, with the keys of the API; None where there was none; now."""
        found: Mapping[str, Any] | None = self.refresh().about["suspension"]
        return found

    @property
    def exit_code(self) -> int | None:
        """Of its last attempt; None while it has none, and where a signal ended it."""
        code = self._latest().get("exit_code")
        return None if code is None else int(code)

    @property
    def gpus(self) -> Sequence[int]:
        """The GPUs that it has, or had last."""
        return tuple(self._latest()["gpus"])

    def why(self) -> str:
        """The reason why it waits, in one sentence; empty where it does not."""
        answer = ask(lambda client: client.why(self.id))
        return str((answer["reason"] or {}).get("sentence", ""))

    # -- until it is over -------------------------------------------------------------------------

    def done(self) -> bool:
        """Whether it is over, however it ended."""
        return State(self.state).is_over

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is over, or for so many seconds; whether it is over."""
        until = None if timeout is None else time.monotonic() + timeout
        with patient() as daemon:
            while True:
                left = _ROUND if until is None else min(_ROUND, max(0.0, until - time.monotonic()))
                answer = daemon.ask(partial(_wait, job=self.id, seconds=left))
                if answer["jobs"]:
                    self._about = answer["jobs"][0]
                    return True
                if self.id not in answer["waiting"]:
                    raise NoSuchJob(self.id)
                if until is not None and time.monotonic() >= until:
                    return False

    def result(self, timeout: float | None = None) -> Any:
        """Its result: 0 for a command, the value of a function. A job that did not succeed raises.

        A function's exception is raised again, with the traceback of the job as its cause; every other failure is
        a JobFailed. After `timeout` seconds it is a TimeoutError.
        """
        if self._value is not _MISSING:
            return self._value
        if not self.wait(timeout):
            raise TimeoutError(f"job {self.id} is not over after {timeout:g} seconds")
        from dibs.api.calls import Call

        self.refresh()  # `wait` has fewer fields: no explanation and no folder
        call = Call.of(self.about)
        if call is None:
            self.check()
            return 0
        self._value = call.value(self)
        return self._value

    def metric(self, name: str, timeout: float | None = None) -> float:
        """The last number that it reported under this name (`DIBS_METRICS`, `dibs.report`), once it is over.

        Raises as `result` does where it did not succeed, and JobFailed where it reported no valid number.
        """
        self.result(timeout)
        return _last_metric(self, name)

    def metrics(self, *names: str, attempt: int | None = None) -> dict[str, dict[str, Any]]:
        """What it has reported so far, by name, also while it runs: `job.metrics()["loss"]["last"]`.

        Each series has `reported`, `last`, `min`, `max` with their steps, and at most 512 points in the lists
        `steps`, `at_seconds` and `values`, the lowest and the highest among them.
        """
        found = ask(lambda client: client.job_metrics(self.id, attempt=attempt, names=names))
        return {series.pop("name"): series for series in found["series"]}

    @property
    def progress(self) -> float | None:
        """How far it is, from 0 to 1, as it reports itself while it runs; None where it does not."""
        part = self.refresh().about["progress"]
        return None if part is None else float(part)

    def check(self) -> None:
        """Raise JobFailed unless it has succeeded."""
        if self.about["state"] != State.SUCCEEDED:
            raise self.failure()

    def failure(self, message: str = "") -> JobFailed:
        """The exception for this job: how it ended, with the last lines of its output."""
        return JobFailed(self.about, log=self._last_lines(), message=message)

    def cancel(self) -> bool:
        """Take it out of the queue, or end it where it runs (TERM, grace, KILL). False where it was over."""
        return bool(ask(lambda client: client.act("kill", [self.id]))["changed"])

    def suspend(self) -> None:
        """Have it stand still and free its GPUs; returns when it does. It keeps its work until `resume`.

        Raises DibsError, which says why, where it cannot be suspended: then it goes on as before.
        """
        answer = ask(lambda client: client.act("suspend", [self.id]))
        pause = _LOOK_AGAIN
        while (found := self.suspension) is not None and found["phase"] == "suspending":
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, 1.5 * pause)
        if found is None or found["phase"] != "suspended":
            left = [one["why"] for one in answer["unchanged"]]
            why_not = left[0] if left else found["why_not"] if found is not None else "it is over"
            raise DibsError(f"cannot suspend job {self.id}: {why_not}")

    def resume(self) -> None:
        """Let it go on as soon as its GPUs have room; returns at once. DibsError where it is not suspended."""
        answer = ask(lambda client: client.act("resume", [self.id]))
        for one in answer["unchanged"]:
            raise DibsError(f"cannot resume job {self.id}: {one['why']}")

    def __await__(self) -> Generator[Any, None, Any]:
        from dibs.api.watch import result_of

        return result_of(self).__await__()

    # -- its output -------------------------------------------------------------------------------

    @overload
    def log(self, *, stream: str = ..., lines: int | None = ..., follow: Literal[False] = ...) -> str: ...

    @overload
    def log(self, *, stream: str = ..., lines: int | None = ..., follow: Literal[True]) -> "JobLog": ...

    def log(self, *, stream: str = "both", lines: int | None = None, follow: bool = False) -> "str | JobLog":
        """Its output as text: `stdout`, `stderr`, or both, one after the other; the last `lines` of each.

        With `follow`, its lines as they are written, until it is over: `for line in job.log(follow=True)`, or with
        `async for`.
        """
        from dibs.api.job_log import JobLog, streams_of

        following = JobLog(self, streams_of(stream), lines)
        return following if follow else following.all()

    def _latest(self) -> Mapping[str, Any]:
        if self._about is None or not State(self._about["state"]).is_over:
            self.refresh()
        return self.about

    def _last_lines(self) -> str:
        try:
            return self.log(lines=_LAST_LINES)
        except DibsError:  # it has not written anything, or that was removed
            return ""


def _wait(client: "Client", *, job: int, seconds: float) -> Mapping[str, Any]:
    return client.wait([job], seconds=seconds)


def job_by_id(id: int | str) -> Job:
    """The job with this number or name; `@` is the last one."""
    number = id if isinstance(id, int) else _found(id)
    return Job(number).refresh()


def jobs(**filters: object) -> Iterator[Job]:
    """The jobs of the queue, newest first: `dibs.jobs(state="running", project="net")`."""
    from dibs.client.client import connect

    client = connect(os.environ, notice=say)
    try:
        for about in client.jobs(**filters):
            yield Job(about["id"], about)
    finally:
        client.close()


def _found(reference: str) -> int:
    from dibs.errors import BadInput

    numbers = ask(lambda client: client.find(reference))
    if len(numbers) != 1:
        raise BadInput(f"{reference!r} names {len(numbers)} jobs instead of one", remedy="name one of them")
    return numbers[0]


def _last_metric(job: Job, name: str) -> float:
    """The last number that the last attempt reported under a name; JobFailed where there is no valid one."""
    from dibs.supervise.folder import NotOurFile, open_own_file  # few programs need it
    from dibs.sweeps.results import MetricsReader

    reader = MetricsReader([name])
    try:
        with open(open_own_file(f"{job.about['folder']}/metrics"), "rb") as file:
            while piece := file.read(1 << 20):
                reader.feed(piece)
        reader.finish()
    except (FileNotFoundError, NotOurFile):
        pass  # it has reported nothing: `result` says so
    found = reader.result()
    if found.values is None:
        raise job.failure(f"job {job.id} has not reported {name}: {found.problem}")
    return found.values[0]
