"""The exit record: the one truth about how an attempt ended.

It is allocated before the command starts and overwritten once, in place, so that neither a full disk nor a
half-written file can lose an exit code. A bad checksum means: no record. Standard library only; versioned,
because a supervisor may be older than the engine that reads what it left.
"""

import json
import zlib
from typing import Any

SIZE = 1024
_MAGIC = b"DIBS1"


def encode(record: dict[str, Any]) -> bytes:
    """The record as exactly SIZE bytes. A message that is too long loses its end, never its checksum."""
    body = _body(record)
    while len(body) > SIZE - 32:
        excess = len(body) - (SIZE - 32)
        record = {**record, "message": record["message"][: -max(1, excess // 6)]}
        body = _body(record)
    head = b"%s %08x %04d " % (_MAGIC, zlib.crc32(body), len(body))
    return (head + body).ljust(SIZE - 1) + b"\n"


def decode(data: bytes) -> dict[str, Any] | None:
    """What `encode` wrote, or None where nothing whole was written."""
    head, body = data[:20].split(b" "), data[20:]
    try:
        if head[0] != _MAGIC:
            return None
        body = body[: int(head[2])]
        if zlib.crc32(body) != int(head[1], 16):
            return None
        record = json.loads(body)
    except (ValueError, IndexError):
        return None
    return record if isinstance(record, dict) else None


def _body(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()
