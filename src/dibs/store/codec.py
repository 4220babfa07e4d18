"""Values as JSON text and as rows of the store, and back.

The JSON is plain ASCII, so that bytes which are not UTF-8 survive exactly.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter, is_
from typing import Any

from dibs.dataclass import dataclass
from dibs.errors import StoreUnusable
from dibs.model.fields import BY_KEY, Field, Kind
from dibs.model.gpus import Claim
from dibs.model.jobs import (
    After,
    ArrayTask,
    Attempt,
    Cause,
    Checkpoint,
    Command,
    Dependency,
    Job,
    JobId,
    Outcome,
    Request,
    State,
    Wishes,
)
from dibs.model.usage import Usage
from dibs.store.file import LEFT_UNCHANGED

_USAGE = tuple(field.name for field in fields(Usage))
_UNMEASURED = Usage()
_BESIDE_COMMAND = attrgetter(*(field.name for field in fields(Request) if field.name != "command"))
_ENCODER = json.JSONEncoder(separators=(",", ":"))  # once: `json.dumps` makes a new one at every call
_NO_WISHES = Wishes()
_Encode = Callable[[Any], Any]


class RequestEncoder:
    """Encodes one request after another. Those of one list differ in their command alone: the rest is kept."""

    def __init__(self) -> None:
        self._like: tuple[Any, ...] = ()
        self._rest = self._class = ""

    def encode(self, request: Request) -> tuple[str, str]:
        """The request as text, and its class. Only what differs from the defaults is written."""
        beside = _BESIDE_COMMAND(request)
        if not self._like or not all(map(is_, beside, self._like)):
            self._like = beside
            self._rest = _ENCODER.encode(_beside_command(request))[1:]
            self._class = class_of(request)
        command = _ENCODER.encode(_of_command(request))
        return f"{command[:-1]},{self._rest}" if self._rest != "}" else command, self._class


def encode_requests(requests: Sequence[Request]) -> list[str]:
    encoder = RequestEncoder()
    return [encoder.encode(request)[0] for request in requests]


def encode_request(request: Request) -> str:
    return RequestEncoder().encode(request)[0]


def _of_command(request: Request) -> dict[str, Any]:
    return {"words": request.command.words, "shown": request.command.shown}


def _beside_command(request: Request) -> dict[str, Any]:
    body = _OF_REQUEST.unlike_default(request)
    if wishes := _OF_WISHES.unlike_default(request.wishes):
        body["wishes"] = wishes
    return body


def decode_request(text: str) -> Request:
    body = json.loads(text)
    command = Command(tuple(body.pop("words")), body.pop("shown"))
    wishes = body.pop("wishes", None)
    return Request(
        command=command,
        wishes=Wishes(**_decoded(wishes)) if wishes else _NO_WISHES,
        **_decoded(body),
    )


def encode_wishes(wishes: Wishes) -> str:
    """The wishes as canonical text: jobs with the same text have the same chances."""
    body = _OF_WISHES.unlike_default(wishes)
    return _ENCODER.encode(body) if body else "{}"


def class_of(request: Request) -> str:
    """What fits one job of a class fits all: the wishes, and what else decides which job may start now."""
    more = [
        f"{field.word} {text}"
        for field, value, _ in _IN_CLASS.differences(request)
        if (text := _class_text(field, value))
    ]
    return "|".join([encode_wishes(request.wishes), *more]).encode("utf-8", "backslashreplace").decode()


def _class_text(field: Field, value: Any) -> str:
    if field.kind is Kind.ARRAY:  # without a limit its tasks are like any other jobs
        return "" if value.most is None else str(value.array)
    return f"{value:g}" if field.kind is Kind.DURATION else str(value)


class _Rows:
    """Some fields of a request or of its wishes. Most jobs wish for few of them: all are compared in one go."""

    def __init__(self, rows: Sequence[Field]) -> None:
        self._rows = [(field, field.default, _ENCODED.get(field.kind)) for field in rows]
        self._values_of = attrgetter(*(field.name for field in rows))
        self._defaults = tuple(field.default for field in rows)

    def differences(self, values: Request | Wishes) -> Sequence[tuple[Field, Any, _Encode | None]]:
        """What is not the default, with its field and how it is written."""
        found = self._values_of(values)
        if found == self._defaults:
            return ()
        rows = zip(self._rows, found, strict=True)
        return [(field, value, encode) for (field, default, encode), value in rows if value != default]

    def unlike_default(self, values: Request | Wishes) -> dict[str, Any]:
        """The same, as it is written."""
        return {
            field.name: value if encode is None else encode(value)
            for field, value, encode in self.differences(values)
        }


def _decoded(body: dict[str, Any]) -> dict[str, Any]:
    return {name: _DECODERS[name](value) if name in _DECODERS else value for name, value in body.items()}


_BY_NAME = {field.name: field for field in BY_KEY.values()}
_ENCODED: dict[Kind, _Encode] = {
    Kind.SHARE: str,
    Kind.DEPENDENCIES: lambda after: [(one.job, one.kind) for one in after],
    Kind.ARRAY: lambda array: (array.array, array.task, array.most),
    Kind.CHECKPOINT: lambda checkpoint: (checkpoint.signal, checkpoint.seconds),
}
_OF_WISHES = _Rows([_BY_NAME[field.name] for field in fields(Wishes)])
_OF_REQUEST = _Rows([field for field in _BY_NAME.values() if not field.of_gpus])
_IN_CLASS = _Rows([field for field in _BY_NAME.values() if field.in_class and not field.of_gpus])
_DECODED: dict[Kind, Callable[[Any], Any]] = {
    Kind.SHARE: Fraction,
    Kind.DEPENDENCIES: lambda after: tuple(Dependency(JobId(job), After(kind)) for job, kind in after),
    Kind.ARRAY: lambda array: ArrayTask(*array),
    Kind.CHECKPOINT: lambda checkpoint: Checkpoint(*checkpoint),
    **dict.fromkeys((Kind.GPU_IDS, Kind.NAMES, Kind.MODULES, Kind.CAUSES, Kind.MOUNTS, Kind.PATTERNS), tuple),
    **dict.fromkeys(
        (Kind.VARIABLES, Kind.SYSTEM_OPTIONS), lambda pairs: tuple((name, value) for name, value in pairs)
    ),
}
_DECODERS = {name: _DECODED[field.kind] for name, field in _BY_NAME.items() if field.kind in _DECODED}
_SELDOM = ("address", "part")


@lru_cache(maxsize=64)
def encode_claims(claims: tuple[Claim, ...]) -> str:
    return json.dumps([_of_claim(claim) for claim in claims])


def decode_claims(text: str) -> tuple[Claim, ...]:
    return tuple(
        Claim(gpu=gpu, index=index, share=Fraction(share), vram=vram, **dict(zip(_SELDOM, seldom, strict=False)))
        for gpu, index, share, vram, *seldom in json.loads(text)
    )


def _of_claim(claim: Claim) -> tuple[object, ...]:
    """The address and the part stand there only where there are any: most cards have none."""
    plain = (claim.gpu, claim.index, str(claim.share), claim.vram)
    return (*plain, claim.address, claim.part) if claim.address or claim.part is not None else plain


def encode_usage(usage: Usage | None) -> str:
    """Only what was measured is written; nothing at all where nothing was measured."""
    if usage is None:
        return ""
    body = {name: value for name in _USAGE if (value := getattr(usage, name)) != getattr(_UNMEASURED, name)}
    return json.dumps(body, separators=(",", ":"))


def decode_usage(text: str) -> Usage | None:
    """What another version measured beside this is left out. ValueError or TypeError where it is no usage."""
    if not text:
        return None
    body = {name: value for name, value in json.loads(text).items() if name in _USAGE}
    astray = tuple(map(str, body.pop("astray", ())))
    for value in body.values():
        if not (isinstance(value, int | float) and abs(value) < 2**63):
            raise ValueError(value)
    return Usage(**body, astray=astray)


# -- rows -------------------------------------------------------------------------------------------------

# The columns that job_of reads.
JOB = (
    "id, request, state, attempts, tries, not_before, environment, rank, blockers, why_held, code, is_stopping,"
    " batch"
)
_OF_JOB = 13


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as tables show it: with its outcome and its last attempt."""

    job: Job
    outcome: Outcome | None
    gpus: tuple[int, ...]
    folder: str  # of the last attempt; empty when there was none
    queued_at: float
    started_at: float | None
    ended_at: float | None
    usage: Usage | None = None  # of the last attempt, once it has ended
    gpu_numbers: tuple[str, ...] = ()  # the same as `gpus`, and which part where a card is divided
    node: str = ""  # the machine of the last attempt, where another system ran it
    node_gpus: str = ""  # its cards there
    trial: "TrialRow | None" = None  # of a sweep that is still known
    reported: Mapping[str, float | None] = field(default_factory=dict)  # by name, once it has ended

    @property
    def metrics(self) -> Mapping[str, float | None]:
        """The last numbers of the job; of a trial first its results, also where later numbers were worse."""
        if self.trial is None:
            return self.reported
        results = self.trial.results
        return {**results, **self.trial.reported, **results}


@dataclass(frozen=True, slots=True)
class TrialRow:
    """The point of a sweep that a job tries, and what came of it, by the names of the metrics."""

    point: Mapping[str, str | None]
    results: Mapping[str, float]
    reported: Mapping[str, float | None] = field(default_factory=dict)  # the last of all its numbers


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt and, once it has ended, how."""

    attempt: Attempt
    ended_at: float | None
    outcome: Outcome | None
    usage: Usage | None = None


# What job_row_of reads.
JOB_ROW = (
    f"{JOB}, exit_code, signal, cause, message, seconds, queued_at, started_at, ended_at,"
    " (select claims from attempts where job = jobs.id and number = jobs.attempts),"
    " (select folder from attempts where job = jobs.id and number = jobs.attempts),"
    " (select usage from attempts where job = jobs.id and number = jobs.attempts),"
    " (select node from attempts where job = jobs.id and number = jobs.attempts),"
    " (select node_gpus from attempts where job = jobs.id and number = jobs.attempts),"
    " (select json_array(point, found, json_extract(spec, '$.metrics'), trials.reported)"
    " from trials join sweeps on sweeps.id = sweep where job = jobs.id),"
    " (select numbers from reported where job = jobs.id and attempt = jobs.attempts)"
)
# What _attempt reads.
ATTEMPT = "number, boot_id, folder, claims, opened_at, backend, node, node_gpus"
_OF_ATTEMPT = 9  # with its job
# What attempt_row_of reads.
ATTEMPT_ROW = f"job, {ATTEMPT}, ended_at, exit_code, signal, cause, message, seconds, usage"


def job_of(row: tuple) -> Job:  # type: ignore[type-arg]
    number, request, state, attempts, tries, not_before, environment, *more = row
    rank, blockers, why_held, code, is_stopping, batch = more
    try:
        wanted, stands = decode_request(request), State(state)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreUnusable(f"cannot read job {number}: its row is damaged", remedy=LEFT_UNCHANGED) from error
    return Job(
        id=JobId(number),
        request=wanted,
        state=stands,
        attempts=attempts,
        tries=tries,
        not_before=not_before,
        environment=environment,
        rank=rank,
        blockers=blockers,
        why_held=why_held,
        code=code,
        is_stopping=bool(is_stopping),
        batch=None if batch is None else JobId(batch),
    )


def attempt_of(row: tuple) -> tuple[Job, Attempt]:  # type: ignore[type-arg]
    return job_of(row[:_OF_JOB]), _attempt(row[0], *row[_OF_JOB:])


def attempt_row_of(row: tuple) -> AttemptRow:  # type: ignore[type-arg]
    ended_at, *ended, usage = row[_OF_ATTEMPT:]
    outcome = None if ended_at is None else _outcome(*ended)
    return AttemptRow(_attempt(*row[:_OF_ATTEMPT]), ended_at, outcome, read_usage(usage))


def job_row_of(row: tuple) -> JobRow:  # type: ignore[type-arg]
    job = job_of(row[:_OF_JOB])
    *ended, queued_at, started_at, ended_at, claims, folder, usage, node, node_gpus, trial, numbers = row[_OF_JOB:]
    held = decode_claims(claims or "[]")
    return JobRow(
        job=job,
        outcome=_outcome(*ended) if job.state.is_over else None,
        gpus=tuple(claim.index for claim in held),
        folder=os.fsdecode(folder or ""),
        queued_at=queued_at,
        started_at=started_at,
        ended_at=ended_at,
        usage=read_usage(usage),
        gpu_numbers=tuple(claim.number for claim in held),
        node=node or "",
        node_gpus=node_gpus or "",
        trial=None if trial is None else _trial(trial),
        reported={} if numbers is None else read_numbers(numbers),
    )


def read_numbers(text: str) -> Mapping[str, float | None]:
    """Reported numbers by name. What cannot be read is left out, as with a measurement."""
    try:
        found = json.loads(text)
        return {name: None if value is None else float(value) for name, value in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _trial(text: str) -> TrialRow | None:
    """What cannot be read is left out, as with a measurement."""
    try:
        parts = (json.loads(one) if isinstance(one, str) else one for one in json.loads(text))
        point, found, metrics, reported = parts
        names = [metric["name"] for metric in metrics or ()]
        return TrialRow(point, dict(zip(names, found or (), strict=False)), reported or {})
    except (ValueError, TypeError, KeyError):
        return None


def read_usage(text: str | None) -> Usage | None:
    """A measurement that cannot be read counts as not measured: no job depends on it."""
    try:
        return decode_usage(text or "")
    except (ValueError, TypeError, AttributeError):
        return None


def _attempt(
    job: int,
    number: int,
    boot_id: str,
    folder: str | bytes,
    claims: str,
    opened_at: float,
    backend: str,
    node: str,
    node_gpus: str,
) -> Attempt:
    return Attempt(
        job=JobId(job),
        number=number,
        boot_id=boot_id,
        folder=os.fsdecode(folder),
        claims=decode_claims(claims),
        opened_at=opened_at,
        backend=backend,
        node=node,
        node_gpus=node_gpus,
    )


def _outcome(
    exit_code: int | None, signal: int | None, cause: str | None, message: str, seconds: float | None
) -> Outcome:
    return Outcome(
        exit_code=exit_code,
        signal=signal,
        cause=Cause(cause) if cause else None,
        message=message,
        seconds=seconds,
    )


def path_value(path: str) -> str | bytes:
    """A folder's name need not be UTF-8; SQLite keeps such a name as bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path)
    return path


def text_value(text: str) -> str:
    """Messages may name files whose names are not UTF-8; SQLite wants text."""
    return text.encode("utf-8", "backslashreplace").decode()
