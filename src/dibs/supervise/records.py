"""An attempt's record: a file with SIZE bytes of state, followed by the spec, a JSON object.

The first part is blank until a shim takes the attempt, then it says `starting`, `running` and at last `ended`. It
is written before the command starts and overwritten in place: neither a full disk nor a half-written
file can lose an exit code. A bad checksum means: no record. Standard library only; versioned, because a shim may
be older than the engine that reads what it left.
"""

import json
import zlib
from typing import Any

SIZE = 1024
_MAGIC = b"DIBS1"
_ROUND = 512  # bytes
_ENCODER = json.JSONEncoder(separators=(",", ":"))  # once: `json.dumps` makes a new one at every call
_HEAD = 20  # bytes: magic, checksum, length


def blank(spec: dict[str, Any]) -> bytes:
    """A record that no shim has taken, with its spec."""
    text = json.dumps(spec).encode()
    # Padded to a round length, so that the next attempt's spec usually has the same size.
    return bytes(SIZE) + text.ljust(-(-len(text) // _ROUND) * _ROUND)


def is_blank(content: bytes) -> bool:
    return content[0] == 0


def encode(record: dict[str, Any]) -> bytes:
    """The record as exactly SIZE bytes. A message that is too long loses its beginning, never its checksum."""
    body = _body(record)
    while len(body) > SIZE - _HEAD - 1 and record.get("message"):
        record = {**record, "message": record["message"][len(record["message"]) // 4 + 1 :]}
        body = _body(record)
    head = b"%s %08x %04d " % (_MAGIC, zlib.crc32(body), len(body))
    return (head + body).ljust(SIZE - 1) + b"\n"


def decode(content: bytes) -> dict[str, Any] | None:
    """What `encode` wrote, or None where it is incomplete."""
    head = content[:_HEAD].split(b" ")
    try:
        if head[0] != _MAGIC:
            return None
        body = content[_HEAD : _HEAD + int(head[2])]
        if zlib.crc32(body) != int(head[1], 16):
            return None
        record = json.loads(body.decode())
    except (ValueError, IndexError):
        return None
    return record if isinstance(record, dict) else None


def _body(record: dict[str, Any]) -> bytes:
    return _ENCODER.encode(record).encode()
