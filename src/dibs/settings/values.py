"""What people may write as the value of a setting. Each reader raises BadInput with the remedy as its message."""

import os
import re
import shlex
from collections.abc import Callable, Mapping

from dibs.errors import BadInput

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_BYTES = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_GPU_ID = r"[0-9]{1,4}(:[0-9]{1,4})?|(GPU|MIG|AMD)-[\w.:/-]*"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


def text(written: object) -> str:
    if not isinstance(written, str) or "\0" in written:
        raise BadInput("it is text, between quotes")
    return written


def gpus(written: object) -> str:
    found = text(written)
    are_ids = all(re.fullmatch(_GPU_ID, one.strip()) for one in re.split("[,+]", found))
    if found.strip() not in ("", "auto", "all") and not are_ids:
        raise BadInput('it is "auto", or GPUs like "0,1" or "0,0,1"')
    return found


def gpu_order(written: object) -> str:
    found = str(written) if isinstance(written, int) and not isinstance(written, bool) else text(written)
    ids = [part.strip() for part in found.split(",")]
    are_ids = all(re.fullmatch(_GPU_ID, one) for one in ids)
    if found not in ("emptiest", "coolest", "last") and (not are_ids or len(set(ids)) < len(ids)):
        raise BadInput("it is emptiest, coolest, last, or GPUs like 3,2")
    return found


def folder(written: object) -> str:
    return path(written, "it is the absolute path of a folder, or none, or empty", "none")


def path(written: object, remedy: str = "it is an absolute path, or empty", *words: str) -> str:
    found = os.path.expanduser(text(written))
    if found and found not in words and not found.startswith("/"):
        raise BadInput(remedy)
    return found


def web(written: object) -> str:
    found = text(written).strip()
    match = re.fullmatch(r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\]):([0-9]{1,5})", found)
    if found not in ("asked", "never") and (match is None or not 1 <= int(match[1]) <= 65_535):
        raise BadInput('it is "asked", "never", or an address of this machine like "127.0.0.1:8265"')
    return found


def whole(least: int) -> Callable[[object], int]:
    def read(written: object) -> int:
        if isinstance(written, bool) or not re.fullmatch(r"[0-9]{1,9}", str(written)) or int(str(written)) < least:
            raise BadInput(f"it is a whole number from {least}")
        return int(str(written))

    return read


def seconds(written: object) -> float:
    if isinstance(written, bool) or not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", str(written)):
        raise BadInput("it is a number of seconds")
    return float(str(written))


def pause(written: object) -> float:
    found = seconds(written)
    if not 0.1 <= found <= 60:
        raise BadInput("it is a number of seconds from 0.1 to 60")
    return found


def duration(written: object) -> float | None:
    if written == "never":
        return None
    match = (
        re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*([smhdw])", written) if isinstance(written, str) else None
    )
    if match is None or not float(match[1]):
        raise BadInput('it is "never", or a time like "30d" or "12h"')
    return float(match[1]) * _SECONDS[match[2]]


def time(written: object) -> float:
    try:
        found = duration(written)
    except BadInput:
        found = None
    if found is None:
        raise BadInput('it is a time like "10m" or "1h"')
    return found


def time_or_off(written: object) -> float | None:
    if written is False or (isinstance(written, str) and written.lower() in _FALSE):
        return None
    try:
        return time(written)
    except BadInput:
        raise BadInput('it is "off", or a time like "30m" or "2h"') from None


def canary(written: object) -> str:
    found = text(written).strip()
    if not found:
        raise BadInput('it is "auto", "never", or a command')
    return found


def size(written: object) -> int:
    match = (
        re.fullmatch(r"(?i:([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([KMGT]?)(?:i?B)?)", written)
        if isinstance(written, str)
        else None
    )
    found = int(float(match[1]) * _BYTES[match[2].upper()]) if match else 0
    if found < 1024**2:
        raise BadInput('it is a size from "1M", like "1G"')
    return found


def size_or_never(written: object) -> int | None:
    if written == "never":
        return None
    try:
        return size(written)
    except BadInput:
        raise BadInput('it is "never", or a size from "1M", like "50G"') from None


def size_or_zero(written: object) -> int:
    if str(written) == "0" and not isinstance(written, bool):
        return 0
    try:
        return size(written)
    except BadInput:
        raise BadInput('it is 0, or a size from "1M", like "200M"') from None


def truth(written: object) -> bool:
    if isinstance(written, bool):
        return written
    if isinstance(written, str) and written.lower() in _TRUE + _FALSE:
        return written.lower() in _TRUE
    raise BadInput("it is true or false")


def truth_or_names(written: object) -> bool | tuple[str, ...]:
    """`on`, `off`, or names with commas between them."""
    try:
        return truth(written)
    except BadInput:
        names = [part.strip() for part in written.split(",")] if isinstance(written, str) else []
    if not names or not all(names) or any(name.lower() in _TRUE + _FALSE for name in names):
        raise BadInput("it is on, off, or names like vision,audio")
    return tuple(names)


def one_of(*words: str) -> Callable[[object], str]:
    def read(written: object) -> str:
        if written not in words:
            raise BadInput(f"it is one of {', '.join(words)}")
        return str(written)

    return read


def options(written: object) -> tuple[tuple[str, str], ...]:
    """`partition=gpu,account=lab`; as a table in a file, too."""
    if isinstance(written, Mapping):
        pairs = [(str(name), str(value)) for name, value in written.items()]
    else:
        parts = [part.strip() for part in text(written).split(",") if part.strip()]
        pairs = [(name.strip(), value.strip()) for name, _, value in (part.partition("=") for part in parts)]
    if not all(re.fullmatch(r"[a-z-]+", name) and value for name, value in pairs):
        raise BadInput('it is like "partition=gpu,account=lab"')
    return tuple(pairs)


def words(written: object) -> tuple[str, ...]:
    """A command line, as its words."""
    try:
        return tuple(shlex.split(text(written)))
    except ValueError:
        raise BadInput('it is a command line, like "ssh -p 2222"') from None
