"""Jobs, attempts and outcomes as frozen values, and a request as JSON has it."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NewType, TypeVar

from dibs.dataclass import dataclass
from dibs.model.fields import BESIDE_COMMAND, BY_KEY, Field, Kind
from dibs.model.units import AUTO, format_moment

if TYPE_CHECKING:  # neither is needed for a job that is only asked for, as by `dibs add`
    from fractions import Fraction

    from dibs.model.gpus import Claim

JobId = NewType("JobId", int)
AttemptKey = tuple[JobId, int]  # a job, and which of its attempts
_T = TypeVar("_T")
ABOVE_ALL = 2_000_000  # added to the priority of an urgent job: more than two priorities can differ by
BEING_RELEASED = "is being released"  # the `why_held` of a submitted job until its system has let it go
_CALLS_A_FUNCTION = "/dibs/api/work.py"  # the program of a job that calls a Python function


class State(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    HELD = "held"
    SUBMITTED = "submitted"  # handed to another system, where it waits
    RUNNING = "running"
    SUSPENDED = "suspended"  # begun, and stopped for now: another job may have its GPUs
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    LOST = "lost"

    @property
    def is_over(self) -> bool:
        return self in OVER

    @property
    def has_begun(self) -> bool:
        """Whether it has an attempt that was begun and has not ended."""
        return self in (State.RUNNING, State.SUSPENDED)

    @property
    def phrase(self) -> str:
        """`is running`, `has failed`, `was cancelled`: what a sentence says of the job."""
        if self is State.TIMED_OUT:
            return "ran out of time"
        verb = "has" if self in (State.SUCCEEDED, State.FAILED) else "was" if self.is_over else "is"
        return f"{verb} {self}"


OVER = (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.TIMED_OUT, State.LOST)


class Cause(StrEnum):
    """Why an attempt did not succeed."""

    EXIT_CODE = "exit code"
    SIGNAL = "signal"
    TIME_LIMIT = "time limit"
    START_ERROR = "start error"
    GPU_OOM = "gpu-oom"  # the card's memory did not suffice
    HOST_OOM = "host-oom"  # the machine's memory did not suffice, and the kernel chose this job
    GPU_FAULT = "gpu-fault"  # the card failed, not the job
    IMPORT_ERROR = "import-error"  # a module is missing
    SYNTAX_ERROR = "syntax-error"  # the program cannot be read
    PORT_IN_USE = "port-in-use"
    DISK_FULL = "disk-full"
    KILLED = "killed"  # another program or user ended it; the message says which, where that can be seen
    DEPENDENCY = "dependency"  # the job that it depends on ended otherwise than wanted
    REFUSED = "refused"  # it could never run, and was told so at submit
    STOPPED = "stopped"  # its end was asked for
    LOST = "lost"  # its end was not seen


NOT_RETRIED = frozenset({Cause.STOPPED, Cause.REFUSED, Cause.DEPENDENCY})


def retry_names() -> tuple[str, ...]:
    """What `--retry-on` may name."""
    return tuple(retry_name(cause) for cause in Cause if cause not in NOT_RETRIED)


def retry_name(cause: str) -> str:
    """A cause as it is written on the command line: `exit-code`."""
    return cause.strip().replace(" ", "-").replace("_", "-").lower()


@dataclass(frozen=True, slots=True)
class Command:
    """What is executed, word for word, and how it is shown to people."""

    words: tuple[str, ...]
    shown: str

    @classmethod
    def line(cls, text: str, shell: str = "bash") -> "Command":
        """A line for a shell: pipes, redirections, quotes and all."""
        return cls((shell, "-c", text), text)

    @classmethod
    def exact(cls, words: Sequence[str]) -> "Command":
        """Words that no shell touches."""
        return cls(tuple(words), shlex.join(words))


@dataclass(frozen=True, kw_only=True, slots=True)
class Wishes:
    """What a job wants of the GPUs."""

    num_gpus: int = 1
    share: "Fraction | None" = None  # of each card; None: one slot of the pool
    vram: int | None = None  # bytes on each card
    shape: str = ""  # `--vram auto`: what jobs of this shape were seen to need is booked, `vram` before that
    only: tuple[str, ...] = ()  # it waits for one of these ids
    prefer: tuple[str, ...] = ()  # taken first when they are free
    gpu_type: str = ""  # a part of the card's name, in any case: `h200`
    cpus: int | None = None  # booked of the machine's, where it is set
    mem: int | None = None  # bytes of the machine's memory, likewise


class After(StrEnum):
    """How another job must end before this one may start."""

    OK = "ok"
    ANY = "any"
    FAIL = "fail"

    def is_met_by(self, state: State) -> bool:
        """Whether a job that ended in this state frees the job that waits for it."""
        return self is After.ANY or (state is State.SUCCEEDED) == (self is After.OK)


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job that must end first."""

    job: JobId
    kind: After = After.OK


@dataclass(frozen=True, slots=True)
class ArrayTask:
    """One job of an array: the same command with another DIBS_ARRAY_TASK_ID."""

    array: JobId  # the number of the array's first job; 0 until it has one
    task: int
    most: int | None = None  # so many of the array at once


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A signal before the time limit, on which the command saves its work; then it is queued again."""

    signal: int
    seconds: float  # before the limit


# Variables of the trials of a population: its size, and the trial whose checkpoint one continues.
OF_POPULATION, CONTINUES = "DIBS_POPULATION", "DIBS_CONTINUES"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a user asks for, before it has a number."""

    command: Command
    wishes: Wishes = field(default_factory=Wishes)
    name: str = ""
    workdir: str = ""  # empty: the caller's folder
    env: tuple[tuple[str, str], ...] = ()  # on top of the caller's environment
    priority: int = 0
    urgent: bool = False  # goes before all that are not, and suspends preemptible jobs where no card is free
    preemptible: bool | None = None  # whether it may be suspended for an urgent job; None: the settings say
    no_cuda_ipc: bool = False  # its processes share no memory of a card: several of them may be suspended
    retries: int = 0
    restartable: bool = False  # may be queued again after it was lost
    time_limit: float | None = None  # seconds
    grace: float = 10.0  # seconds between TERM and KILL
    project: str = ""
    tags: tuple[str, ...] = ()
    umask: int | None = None  # None: the engine's own
    output: str = ""  # a file for stdout and stderr, absolute; empty: the attempt's folder
    error: str = ""  # a file for stderr alone, absolute; empty: where the output goes
    after: tuple[Dependency, ...] = ()
    begin: float | None = None  # seconds since the epoch; not before this moment
    hold: bool = False  # wait until it is released
    array: ArrayTask | None = None
    retry_on: tuple[str, ...] = ()  # causes that are tried again; empty: all
    checkpoint: Checkpoint | None = None
    bind: bool = False  # keep it to the CPUs near its cards
    notify: str = ""  # send a message at its `end`, or at its `failure` only
    once: str = ""  # at most one job with this key
    warm: tuple[str, ...] = ()  # modules that a process has imported before, from which it is forked
    image: str = ""  # the command runs in a container of it; empty: in none
    container_engine: str = ""  # of these jobs; empty until it is chosen
    mounts: tuple[str, ...] = ()  # what the container sees beside the folder: model/mounts.py
    image_pull: str = ""  # `never`, `missing` or `always`; empty: missing
    metric_patterns: tuple[str, ...] = ()  # that find metrics in its output
    on: str = ""  # the backend that runs it; empty: this machine
    on_options: tuple[tuple[str, str], ...] = ()  # what only that backend understands: `partition`, `account`, ...

    @property
    def precedence(self) -> int:
        """Its priority; of an urgent job one above those of all others."""
        return self.priority + ABOVE_ALL if self.urgent else self.priority

    @property
    def has_checkpoint_folder(self) -> bool:
        """Whether its command gets a folder for its checkpoints, as the trials of a population do."""
        return self.checkpoint is not None or any(name == OF_POPULATION for name, _ in self.env)

    @property
    def continues_another(self) -> bool:
        """Whether it may only start with a copy of another job's checkpoint."""
        return any(name == CONTINUES for name, _ in self.env)

    @property
    def content_key(self) -> str:
        """The identity of the work itself: the same text is the same work, wherever its line stands.

        Wishes and limits are not part of it: asking for more time does not make it another job. In another image
        the same command is another program.
        """
        import hashlib  # 2 ms that `dibs gpus` does not pay

        parts: tuple[object, ...] = (self.command.words, self.workdir, self.env)
        text = repr((*parts, self.image) if self.image else parts).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, digest_size=16).hexdigest()


NOTHING = Request(command=Command((), ""))  # what a new job is that says nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How an attempt ended. Exactly one of exit_code and signal is set, unless the end was not seen."""

    exit_code: int | None = None
    signal: int | None = None
    cause: Cause | None = None  # None for success
    message: str = ""
    seconds: float | None = None
    checkpointed: bool = False  # it was told to save its work before the time limit: queue it again
    tried_alone: bool = False  # it ran out of memory beside others: queue it again with the card to itself

    @property
    def state(self) -> State:
        if self.cause is None:
            return State.SUCCEEDED
        return _STATE_OF.get(self.cause, State.FAILED)

    @property
    def exit_status(self) -> int:
        """As a shell would tell it: the exit code, 128+n for a signal, 124 for the time limit."""
        if self.cause is Cause.TIME_LIMIT:
            return 124
        if self.signal is not None:
            return 128 + self.signal
        return 1 if self.exit_code is None else self.exit_code


_STATE_OF = {
    Cause.TIME_LIMIT: State.TIMED_OUT,
    Cause.STOPPED: State.CANCELLED,
    Cause.DEPENDENCY: State.CANCELLED,
    Cause.LOST: State.LOST,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A request with a number and a state."""

    id: JobId
    request: Request
    state: State = State.QUEUED
    attempts: int = 0  # begun so far
    tries: int = 0  # counted against `retries`; a resumed run starts counting again
    not_before: float | None = None  # seconds since the epoch; a retry waits for it
    environment: str = ""  # the key of the captured environment
    rank: float | None = None  # its place among those of its precedence; None: its number
    blockers: int = 0  # jobs that it still waits for
    why_held: str = ""  # a sentence, where it is held; of a submitted job its system is told
    code: str = ""  # the key of what is known about its code
    is_stopping: bool = False  # its end was asked for: it is not tried again
    batch: JobId | None = None  # the first job of the call that added several; None: it was added alone

    @property
    def is_held_there(self) -> bool:
        """Whether the system that has it is to hold it; it may not know yet."""
        return self.state is State.SUBMITTED and self.why_held not in ("", BEING_RELEASED)

    @property
    def label(self) -> str:
        """`17`, `17 (train)`, `17_4 (train)`: as a sentence has it after `job`. Names are not unique."""
        name = self.request.name
        return f"{self.reference} ({name})" if name else self.reference

    @property
    def reference(self) -> str:
        """`17`, or `17_4` for a task of an array: as it is typed to name the job."""
        array = self.request.array
        return str(self.id) if array is None else f"{array.array}_{array.task}"

    @property
    def group(self) -> str:
        """The jobs whose failures are counted together: `project NAME`, else `batch N`; empty: this job alone."""
        if self.request.project:
            return f"project {self.request.project}"
        return "" if self.batch is None else f"batch {self.batch}"

    @property
    def order(self) -> tuple[int, float]:
        """The sort key among the jobs of one project."""
        return (-self.request.precedence, self.id if self.rank is None else self.rank)


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One run of a job, from the claim on its GPUs to its outcome."""

    job: JobId
    number: int
    claims: "tuple[Claim, ...]"
    boot_id: str
    opened_at: float  # seconds since the epoch
    folder: str
    backend: str = ""  # where it was handed to; empty: this machine
    node: str = ""  # the machine over there, once that is known
    # The cards that it was given there, as that machine counts them: `0,1`; `0,1,+6`: and six on other nodes.
    node_gpus: str = ""

    @property
    def key(self) -> AttemptKey:
        return (self.job, self.number)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits: data with one sentence, the same wherever it is shown.

    Only the reader's program knows the time zone, and adds "until about 14:30" where `until` is known. A moment
    that moves does not make it another reason, so that it is not announced again.
    """

    code: str
    sentence: str
    until: float | None = field(default=None, compare=False)  # seconds since the epoch


def changed(value: _T, **changes: Any) -> _T:
    """What `dataclasses.replace` does, in half the time; for what is done at every job.

    Only for slotted dataclasses that check nothing when they are made. A wrong name is an AttributeError.
    """
    kind = type(value)
    new = object.__new__(kind)
    put = object.__setattr__
    for name in kind.__slots__:  # type: ignore[attr-defined]
        put(new, name, getattr(value, name))
    for name in changes:
        put(new, name, changes[name])
    return new


def folder_of_call(words: Sequence[str]) -> str:
    """The folder of the function that `PYTHON .../work.py --NAME FOLDER` calls; empty for another command."""
    return words[-1] if len(words) >= 4 and words[-3].endswith(_CALLS_A_FUNCTION) else ""


def call_moved(words: Sequence[str], source: str, folder: str) -> list[str]:
    """The same call where the package is in `source` and the function in `folder`."""
    return [*words[:-3], f"{source}{_CALLS_A_FUNCTION}", words[-2], folder]


_OF_GPUS = frozenset(field.name for field in BESIDE_COMMAND if field.of_gpus)


def with_values(request: Request, values: Mapping[str, Any]) -> Request:
    """The request with these values, by the names of their fields."""
    changes = {name: value for name, value in values.items() if name not in _OF_GPUS}
    if len(changes) < len(values):
        of_gpus = {name: value for name, value in values.items() if name in _OF_GPUS}
        changes["wishes"] = replace(request.wishes, **of_gpus)
    return replace(request, **changes) if changes else request


def to_json(field: Field, value: Any) -> Any:
    """A value as JSON has it under the key of its field."""
    write = _WRITERS.get(field.kind)
    return value if write is None or value is None else write(value)


def request_json(request: Request) -> dict[str, Any]:
    """Everything that was asked for, but for the command."""
    return {
        key: value if write is None or value is None else write(value)
        for (key, write), value in zip(_KEYS, values_of(request), strict=True)
    }


_WRITERS: dict[Kind, Callable[[Any], Any]] = {
    Kind.SHAPE: lambda shape: AUTO if shape else None,
    Kind.SHARE: str,
    Kind.GPU_IDS: list,
    Kind.NAMES: list,
    Kind.MODULES: list,
    Kind.CAUSES: list,
    Kind.MOUNTS: list,
    Kind.PATTERNS: list,
    Kind.VARIABLES: dict,
    Kind.SYSTEM_OPTIONS: dict,
    Kind.MOMENT: format_moment,
    Kind.DEPENDENCIES: lambda after: [{"job": one.job, "kind": str(one.kind)} for one in after],
    Kind.ARRAY: lambda array: {"task": array.task, "most": array.most},
    Kind.CHECKPOINT: lambda checkpoint: {"signal": checkpoint.signal, "seconds": checkpoint.seconds},
}
_KEYS = tuple((key, _WRITERS.get(field.kind)) for key, field in BY_KEY.items())
# What a request has in each field that has a key, in the order of BY_KEY; in one call, because lists are long.
values_of: Callable[[Request], tuple[Any, ...]] = attrgetter(
    *(f"wishes.{field.name}" if field.of_gpus else field.name for field in BY_KEY.values())
)
