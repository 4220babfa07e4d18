"""Sizes and times as people write them."""

import math
import re
from fractions import Fraction

from dibs.errors import BadInput

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", re.IGNORECASE)
_FACTOR = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_DAYS = re.compile(r"(\d+)-(\d+)(?::(\d+))?(?::(\d+))?")


def parse_size(text: str) -> int:
    """Bytes. G means GiB, as people mean it for GPU memory; a bare number is GiB too."""
    match = _SIZE.fullmatch(text)
    if not match or float(match[1]) <= 0:
        raise BadInput(f"cannot read {text!r} as a size", remedy="write it like 12G or 900M")
    number, unit = float(match[1]), match[2].upper()
    return int(number * _FACTOR[unit or "G"])


def parse_duration(text: str) -> float:
    """Seconds, from `2h`, `1h30m`, `90s`, `01:30:00`, Slurm's `2-12` and a bare number of minutes."""
    from pytimeparse.timeparse import timeparse  # 4 ms that only those who set a limit pay

    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        seconds: float | None = float(text) * 60
    elif days := _DAYS.fullmatch(text):
        d, h, m, s = (int(part or 0) for part in days.groups())
        seconds = ((d * 24 + h) * 60 + m) * 60 + s
    else:
        seconds = timeparse(text)
    if seconds is None or not 0 < seconds < math.inf:
        raise BadInput(
            f"cannot read {text!r} as a time", remedy="write it like 2h, 1h30m, 90s, or 45 for minutes"
        )
    return float(seconds)


def parse_share(text: str) -> Fraction:
    """A part of one card: `0.5` or `1/3`."""
    try:
        share = Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share <= 1:
        raise BadInput(f"cannot read {text!r} as a share of a GPU", remedy="write it like 0.5 or 1/3")
    return share


def parse_count(text: str, what: str, *, least: int = 0) -> int:
    """A whole number, written in plain digits."""
    text = text.strip()
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < least:
        raise BadInput(f"cannot read {text!r} as {what}", remedy=f"it is a whole number from {least}")
    return int(text)


def show_size(size: int | None) -> str:
    """`9.1G`, `900M`, `?`."""
    if size is None:
        return "?"
    for unit in ("T", "G", "M", "K"):
        if size >= _FACTOR[unit]:
            return f"{size / _FACTOR[unit]:.3g}{unit}"
    return f"{size}B"


def show_duration(seconds: float | None) -> str:
    """`0.4s`, `12s`, `3m05s`, `2h07m`, `3d04h`."""
    if seconds is None:
        return "?"
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"
