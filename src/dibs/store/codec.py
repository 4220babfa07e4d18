"""Requests and claims as JSON text and back. Plain ASCII, so that bytes which are no UTF-8 survive exactly."""

import json
from fractions import Fraction
from typing import Any

from dibs.model.claims import Claim
from dibs.model.jobs import After, ArrayTask, Checkpoint, Command, Dependency, JobId, Request, Wishes

_PLAIN = Request(command=Command((), ""))
_AS_THEY_ARE = (
    *("name", "workdir", "priority", "retries", "restartable", "time_limit", "grace", "project", "umask"),
    *("output", "begin", "hold", "notify", "once", "env", "tags", "retry_on"),
)


def encode_request(request: Request) -> str:
    """Only what differs from the defaults is written."""
    body: dict[str, Any] = {"words": request.command.words, "shown": request.command.shown}
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
    return json.dumps(body, separators=(",", ":"))


def decode_request(text: str) -> Request:
    body = json.loads(text)
    command = Command(tuple(body.pop("words")), body.pop("shown"))
    wishes = _decode_wishes(body.pop("wishes", {}))
    if "env" in body:
        body["env"] = tuple((name, value) for name, value in body["env"])
    for name in ("tags", "retry_on"):
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
    return json.dumps(body, separators=(",", ":")) if body else "{}"


def encode_claims(claims: tuple[Claim, ...]) -> str:
    return json.dumps([(claim.gpu, claim.index, str(claim.share), claim.vram) for claim in claims])


def decode_claims(text: str) -> tuple[Claim, ...]:
    return tuple(
        Claim(gpu=gpu, index=index, share=Fraction(share), vram=vram)
        for gpu, index, share, vram in json.loads(text)
    )


def _decode_wishes(body: dict[str, Any]) -> Wishes:
    share = body.get("share")
    return Wishes(
        num_gpus=body.get("num_gpus", 1),
        share=None if share is None else Fraction(share),
        vram=body.get("vram"),
        only=tuple(body.get("only", ())),
        prefer=tuple(body.get("prefer", ())),
        gpu_type=body.get("gpu_type", ""),
        cpus=body.get("cpus"),
        mem=body.get("mem"),
    )
