"""What a node says, checked before any of it becomes a file here: it may be broken, or not be ours any more."""

from collections.abc import Mapping
from typing import Any

from dibs.backends.slurm.files import NotReached
from dibs.backends.slurm.packing import Belongings
from dibs.backends.slurm.ssh import Answer, Pieces
from dibs.supervise import luggage, records
from dibs.supervise.deliver import STREAMS

_LONGEST_WORD = 2_000  # characters of a fence


def checked(node: str, name: str, own: Belongings, answer: Answer) -> tuple[Mapping[str, Any], Pieces]:
    """What it says of an attempt, and the pieces of its files. Raises NotReached where that was not asked for."""
    try:
        found, pieces = answer.found[name], answer.pieces.get(name, ())
        is_fine = _is_word(found["holder"]) and _is_record(found["record"]) and _are_ours(own, found, pieces)
    except (KeyError, TypeError, ValueError, AttributeError):
        is_fine = False
    if not is_fine:
        raise NotReached(f"node {node} answers over ssh with what nobody asked it for")
    return found, pieces


def _is_word(word: Any) -> bool:
    """Whoever took the fence names a node, and we may ask that one over ssh: it must not look like an option."""
    return word is None or (isinstance(word, str) and not word.startswith("-") and len(word) <= _LONGEST_WORD)


def _is_record(text: str) -> bool:
    """Empty, or whole and no longer than its place: our own spec stands behind it."""
    return not text or (len(text.encode()) == records.SIZE and records.decode(text.encode()) is not None)


def _are_ours(own: Belongings, found: Mapping[str, Any], pieces: Pieces) -> bool:
    files = found.get("checkpoint", {})
    numbers = [*found.get("brought", {}).values(), *found.get("excess", {}).values()]
    ends = {f"{luggage.CHECKPOINT}/{name}": int(size) for name, (size, _) in files.items() if own.checkpoint}
    return (
        len(files) <= luggage.MOST_FILES
        and sum(ends.values()) <= luggage.MOST_BYTES
        and all(luggage.is_harmless(name) and size >= 0 for name, (size, _) in files.items())
        and all(0 <= int(written) < 2**63 for _, written in files.values())
        and all(isinstance(number, int) for number in numbers)
        and all(stream in STREAMS and 0 <= int(start) <= int(end) for stream, (start, end) in found["cut"].items())
        and all(
            isinstance(start, int)
            and start >= 0
            and (stream in (*STREAMS, *own.names) or start + len(content) <= ends.get(stream, -1))
            for stream, start, content in pieces
        )
    )
