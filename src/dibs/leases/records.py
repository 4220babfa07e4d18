"""What stands in a claim or wish file, and what we make of it. Others wrote it: believe little."""

import json
import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from dibs.leases.who import user_name
from dibs.model.claims import Claim

LONGEST = 32768  # bytes of a record, enough for the longest path the kernel takes; no more is ever read
_ROUND = 256  # bytes; LONGEST is a multiple of it
_SHARE = re.compile(r"[0-9]{1,9}(/[0-9]{1,9})?")  # Fraction("1e999999999") would keep us busy for ever


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """Who holds, or waits for, a share of a GPU."""

    gpu: str  # the card's key
    user: str
    uid: int  # the file's owner, not what the file says
    pid: int  # the process that took it, 0 where unknown; its job may outlive it
    job: str
    since: float  # seconds since the epoch
    share: Fraction
    vram: int  # bytes; 0 where none were asked for
    folder: str = ""  # the attempt's folder; empty if unknown


def encode(claim: Claim, *, user: str, uid: int, pid: int, job: str, folder: str, since: float) -> bytes:
    """The record of one claim or wish. A folder too long for it is left out, a job's name is cut."""
    fields = {
        "gpu": claim.gpu,
        "user": user[:64],
        "uid": uid,
        "pid": pid,
        "job": job[:200],
        "since": since,
        "share": str(claim.share),
        "vram": claim.vram,
        "folder": folder,
    }
    record = json.dumps(fields).encode()
    if len(record) > LONGEST:
        record = json.dumps(fields | {"folder": ""}).encode()
    # Blanks up to a round length: the record of the next job mostly fits the file without making it shorter.
    return record.ljust(-(-len(record) // _ROUND) * _ROUND)


@lru_cache(maxsize=1024)
def decode(record: bytes, gpu: str, uid: int) -> Holder:
    """The holder behind a locked file. What cannot be read counts as a whole card.

    Remembered by every byte of the record: asking again about a claim that is still there is cheap, and
    a slot that somebody else took meanwhile is another record.
    """
    try:
        fields = json.loads(record)
        share, since, pid = fields["share"], float(fields["since"]), int(fields["pid"])
        if not _SHARE.fullmatch(share) or not 0 < Fraction(share) <= 1 or not math.isfinite(since):
            raise ValueError(record)
        return Holder(
            gpu=gpu,
            user=_shown(fields["user"]),
            uid=uid,
            pid=pid,
            job=_shown(fields["job"]),
            since=since,
            share=Fraction(share),
            vram=int(fields["vram"]),
            folder=str(fields["folder"]),
        )
    except (ValueError, TypeError, KeyError, ZeroDivisionError, OverflowError, RecursionError):
        return Holder(gpu=gpu, user="", uid=uid, pid=0, job="", since=0.0, share=Fraction(1), vram=0)


def named(holder: Holder) -> Holder:
    """The holder under the name this system knows for the owner; the file could claim any."""
    return replace(holder, user=user_name(holder.uid) or holder.user or f"uid {holder.uid}")


def _shown(text: object) -> str:
    """Text of a stranger, without anything that a terminal would obey."""
    if not isinstance(text, str):
        raise TypeError(text)
    return text if text.isprintable() else ascii(text)[1:-1]
