"""Requests and claims as JSON text and back. Plain ASCII, so that bytes which are no UTF-8 survive exactly."""

import json
from fractions import Fraction
from typing import Any

from dibs.model.claims import Claim
from dibs.model.jobs import Command, Request, Wishes

_PLAIN = Request(command=Command((), ""))


def encode_request(request: Request) -> str:
    """Only what differs from the defaults is written."""
    body: dict[str, Any] = {"words": request.command.words, "shown": request.command.shown}
    for name in ("name", "workdir", "priority", "retries", "restartable", "time_limit", "grace"):
        value = getattr(request, name)
        if value != getattr(_PLAIN, name):
            body[name] = value
    if request.env:
        body["env"] = request.env
    wishes = encode_wishes(request.wishes)
    if wishes != "{}":
        body["wishes"] = json.loads(wishes)
    return json.dumps(body, separators=(",", ":"))


def decode_request(text: str) -> Request:
    body = json.loads(text)
    command = Command(tuple(body.pop("words")), body.pop("shown"))
    wishes = _decode_wishes(body.pop("wishes", {}))
    env = tuple((name, value) for name, value in body.pop("env", ()))
    return Request(command=command, wishes=wishes, env=env, **body)


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
    )
