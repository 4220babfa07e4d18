"""Requests, claims and what was measured as JSON text and back.

Plain ASCII, so that bytes which are no UTF-8 survive exactly.
"""

import json
from collections.abc import Sequence
from dataclasses import fields
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter, is_
from typing import Any

from dibs.model.claims import Claim
from dibs.model.jobs import After, ArrayTask, Checkpoint, Command, Dependency, JobId, Request, Wishes
from dibs.model.usage import Usage

_PLAIN = Request(command=Command((), ""))
_AS_THEY_ARE = (
    *("name", "workdir", "priority", "retries", "restartable", "time_limit", "grace", "project", "umask"),
    *("output", "begin", "hold", "bind", "notify", "once", "env", "tags", "retry_on", "warm", "on", "on_options"),
)
_USAGE = tuple(field.name for field in fields(Usage))
_UNMEASURED = Usage()
_BESIDE_COMMAND = attrgetter(*(field.name for field in fields(Request) if field.name != "command"))
_ENCODER = json.JSONEncoder(separators=(",", ":"))  # once: `json.dumps` makes a new one at every call
_NO_WISHES = Wishes()


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
    body: dict[str, Any] = {}
    for name in _AS_THEY_ARE:
        value = getattr(request, name)
        if value != getattr(_PLAIN, name):
            body[name] = value
    if request.after:
        body["after"] = [(one.job, one.kind) for one in request.after]
    if request.array is not None:
        body["array"] = (request.array.array, request.array.task, request.array.most)
    if request.checkpoint is not None:
        body["checkpoint"] = (request.checkpoint.signal, request.checkpoint.seconds)
    wishes = encode_wishes(request.wishes)
    if wishes != "{}":
        body["wishes"] = json.loads(wishes)
    return body


def decode_request(text: str) -> Request:
    body = json.loads(text)
    command = Command(tuple(body.pop("words")), body.pop("shown"))
    wishes = _decode_wishes(body.pop("wishes", {}))
    for name in ("env", "on_options"):
        if name in body:
            body[name] = tuple((one, value) for one, value in body[name])
    for name in ("tags", "retry_on", "warm"):
        if name in body:
            body[name] = tuple(body[name])
    if "after" in body:
        body["after"] = tuple(Dependency(JobId(job), After(kind)) for job, kind in body["after"])
    if "array" in body:
        body["array"] = ArrayTask(*body["array"])
    if "checkpoint" in body:
        body["checkpoint"] = Checkpoint(*body["checkpoint"])
    return Request(command=command, wishes=wishes, **body)


def encode_wishes(wishes: Wishes) -> str:
    """The wishes as canonical text: jobs with the same text have the same chances."""
    body: dict[str, Any] = {}
    if wishes.num_gpus != 1:
        body["num_gpus"] = wishes.num_gpus
    if wishes.share is not None:
        body["share"] = str(wishes.share)
    if wishes.vram is not None:
        body["vram"] = wishes.vram
    if wishes.shape:
        body["shape"] = wishes.shape
    if wishes.only:
        body["only"] = wishes.only
    if wishes.prefer:
        body["prefer"] = wishes.prefer
    if wishes.gpu_type:
        body["gpu_type"] = wishes.gpu_type
    if wishes.cpus is not None:
        body["cpus"] = wishes.cpus
    if wishes.mem is not None:
        body["mem"] = wishes.mem
    return _ENCODER.encode(body) if body else "{}"


def class_of(request: Request) -> str:
    """What fits one job of a class fits all: the wishes, and whatever else decides who may start now."""
    more = []
    if request.time_limit is not None:
        more.append(f"time {request.time_limit:g}")
    if request.array is not None and request.array.most is not None:
        more.append(f"array {request.array.array}")
    if request.project:
        more.append(f"project {request.project}")
    if request.on:
        more.append(f"on {request.on}")
    return "|".join([encode_wishes(request.wishes), *more]).encode("utf-8", "backslashreplace").decode()


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
    """Only what was measured is written; nothing at all where nobody looked."""
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


def _decode_wishes(body: dict[str, Any]) -> Wishes:
    if not body:
        return _NO_WISHES
    share = body.get("share")
    return Wishes(
        num_gpus=body.get("num_gpus", 1),
        share=None if share is None else Fraction(share),
        vram=body.get("vram"),
        shape=body.get("shape", ""),
        only=tuple(body.get("only", ())),
        prefer=tuple(body.get("prefer", ())),
        gpu_type=body.get("gpu_type", ""),
        cpus=body.get("cpus"),
        mem=body.get("mem"),
    )
