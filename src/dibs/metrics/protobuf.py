"""Reads messages of Protocol Buffers without their descriptions: numbers and contents of fields."""

from collections.abc import Iterator


def message_fields(content: bytes) -> Iterator[tuple[int, "int | bytes"]]:
    """The fields of a message: numbers of variable length as numbers, all others as bytes; or ValueError."""
    at, end = 0, len(content)
    while at < end:
        key, at = _varint(content, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(content, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _varint(content, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(kind)
        if at + length > end:
            raise ValueError("it is cut off")
        yield key >> 3, content[at : at + length]
        at += length


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at] if at < len(content) else 256
        if byte > 255 or shift > 63:
            raise ValueError("not a number of variable length")
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
