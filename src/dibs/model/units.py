"""Sizes, durations, moments, ranges of numbers, ids of GPUs and names of modules as text."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

from dibs.errors import BadInput

if TYPE_CHECKING:
    from fractions import Fraction

# Every pattern bounds its digits: what people type must not become an integer of a million places.
# Compiled when they are used: `dibs gpus` shows sizes and reads none.
_SIZE = r"(?i:([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*([KMGT]?)(?:i?B)?)"
_FACTOR = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_MINUTES = r"[0-9]{1,9}(\.[0-9]{1,9})?"
_DAYS = r"([0-9]{1,6})-([0-9]{1,6})(?::([0-9]{1,6}))?(?::([0-9]{1,6}))?"
_CLOCK = r"(?:([0-9]{1,6}):)?([0-9]{1,6}):([0-9]{1,6})"
_SHARE = r"[0-9]{0,9}\.?[0-9]{1,9}|[0-9]{1,9}/[0-9]{1,9}"
_RANGE = r"([0-9]{1,15})(?:-([0-9]{1,15}))?(?::([0-9]{1,15}))?"
# How a job is named other than by its name: 17 · @, @~2 (the last, the one before it) · 17_4, 17_ (an array) · 3-9
LAST_JOB, TASK, JOB_RANGE = r"@(?:~([0-9]{1,9}))?", r"([0-9]{1,18})_([0-9]{1,18})?", r"([0-9]{1,18})-([0-9]{1,18})"
_MODULE = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
AUTO = "auto"  # stands for the shape of a job (policy/shapes.py) until its command is known
_MOST_MODULES = 32
_LONGEST_MODULE = 200  # characters of a name
_LARGEST_SIZE = 2**53  # bytes; the largest whole number that every JSON reader keeps exact
_LONGEST_TIME = 100 * 365 * 86400.0  # seconds; the kernel's timers take no more than some centuries


def parse_size(text: str) -> int:
    """Bytes. G means GiB, as people mean it for GPU memory; a bare number is GiB too."""
    match = re.fullmatch(_SIZE, text.strip())
    size = int(float(match[1]) * _FACTOR[match[2].upper() or "G"]) if match else 0
    if not 1 <= size <= _LARGEST_SIZE:
        raise BadInput(f"cannot read {text!r} as a size", remedy="write it like 12G or 900M")
    return size


def parse_vram(text: str) -> tuple[int | None, str]:
    """Bytes on each card, and AUTO where they are learned: `12G`, `auto`, `auto:12G` (12G until that)."""
    word, colon, size = text.strip().partition(":")
    if word.strip().lower() != AUTO:
        try:
            return parse_size(text), ""
        except BadInput as error:
            raise BadInput(error.message, remedy=f"{error.remedy}, or auto to let dibs find out") from None
    return (parse_size(size) if colon else None), AUTO


def parse_duration(text: str) -> float:
    """Seconds, from `2h`, `1h30m`, `90s`, and as Slurm has it `45` (minutes), `90:00`, `01:30:00`, `2-12`."""
    seconds = _seconds(text.strip())
    if seconds is None or not 0 < seconds <= _LONGEST_TIME:
        raise BadInput(f"cannot read {text!r} as a time", remedy="write it like 2h, 1h30m, 90s, or 45 for minutes")
    return seconds


def _seconds(text: str) -> float | None:
    if re.fullmatch(_MINUTES, text):
        return float(text) * 60
    if days := re.fullmatch(_DAYS, text):
        d, h, m, s = (int(part or 0) for part in days.groups())
        return float(((d * 24 + h) * 60 + m) * 60 + s)
    if clock := re.fullmatch(_CLOCK, text):
        h, m, s = (int(part or 0) for part in clock.groups())
        return float((h * 60 + m) * 60 + s)
    if len(text) > 100:
        return None
    from pytimeparse.timeparse import timeparse  # 4 ms that only those who set a limit pay

    seconds = timeparse(text)
    return None if seconds is None else float(seconds)


def parse_moment(text: str, what: str = "a time", *, zone: tzinfo | None = None) -> float:
    """Seconds since the epoch, from an RFC 3339 time like `2030-01-31T22:00:00Z`.

    `zone` is for a text that names none; without it such a text is refused.
    """
    try:
        if not re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]", text):
            raise ValueError(text)
        moment = datetime.fromisoformat(text.upper())
        if moment.tzinfo is None and zone is None:
            raise ValueError(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise BadInput(
            f"cannot read {text[:60]!r} as {what}", remedy="write it like 2030-01-31T22:00:00Z"
        ) from None


def parse_share(text: str) -> "Fraction":
    """A part of one card: `0.5` or `1/3`."""
    from fractions import Fraction  # 2 ms that commands like `dibs wait` do not pay

    text = text.strip()
    try:
        # Fraction itself would spend minutes on 1e-99999999.
        share = Fraction(text) if re.fullmatch(_SHARE, text) else Fraction(0)
    except ZeroDivisionError:
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


def parse_ranges(text: str, *, may_step: bool = False) -> list[range]:
    """The ranges in a text like `1-5,8`, and with `may_step` like `1-9:2`; ValueError if it is something else.

    A range is not expanded, so that 0-999999999 does not fill the memory. One like 5-3 is empty.
    """
    found = []
    for part in text.split(","):
        match = re.fullmatch(_RANGE, part.strip())
        if not match or (match[3] and not (may_step and match[2])):
            raise ValueError(part)
        found.append(range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1)))
    return found


def check_modules(names: list[str]) -> tuple[str, ...]:
    """Names of Python modules, each once, in the order in which they were given."""
    for name in names:
        if not re.fullmatch(_MODULE, name) or len(name) > _LONGEST_MODULE:
            raise BadInput(f"cannot read {name[:60]!r} as a module", remedy="name modules like torch,transformers")
    found = tuple(dict.fromkeys(names))
    if len(found) > _MOST_MODULES:
        raise BadInput(f"{len(found)} modules are too many", remedy=f"name at most {_MOST_MODULES}")
    return found


def show_size(size: int | None) -> str:
    """`9.1G`, `900M`, `?`."""
    if size is None:
        return "?"
    for unit in ("T", "G", "M", "K"):
        if size >= _FACTOR[unit]:
            number = size / _FACTOR[unit]
            return f"{number:.0f}{unit}" if number >= 100 else f"{number:.3g}{unit}"
    return f"{size}B"


def show_energy(watt_hours: float) -> str:
    """`0.5 Wh`, `12.3 kWh`, `1500 kWh`: three digits, and all before the point."""
    value, unit = (watt_hours / 1000, "kWh") if watt_hours >= 1000 else (watt_hours, "Wh")
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


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


def format_moment(seconds: float, timespec: str = "auto") -> str:
    """RFC 3339 in UTC; a `timespec` is that of `datetime.isoformat`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def show_ranges(numbers: Iterable[int]) -> str:
    """`1-5,8` for these numbers, each once and in order."""
    pairs = spans(sorted(set(numbers)))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)


def spans(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of consecutive numbers. The numbers must be in order."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def is_job_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def is_reference(text: str) -> bool:
    """Whether it names a job by its number or place, so that it cannot be a name: `17`, `@`, `17_4`, `3-9`."""
    text = text.strip()
    if not text or not (text[0] == "@" or text[0].isdigit()):
        return False  # nearly always
    return is_job_number(text) or any(re.fullmatch(way, text) for way in (LAST_JOB, TASK, JOB_RANGE))


def is_gpu_id(text: str) -> bool:
    """Whether it looks like a GPU's number, that of a part of one, or a UUID."""
    if text.startswith(("GPU-", "MIG-", "AMD-")):
        return True
    numbers = text.split(":")
    return len(numbers) <= 2 and all(one.isascii() and one.isdigit() and len(one) <= 4 for one in numbers)


def show_gpu(index: int, part: int | None) -> str:
    """The number of a GPU: `0`, or `0:1` for a part of a card."""
    return str(index) if part is None else f"{index}:{part}"
