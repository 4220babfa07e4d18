"""Moments as people write and read them. The daemon speaks RFC 3339 in UTC, people in the time of their clock."""

import time
from datetime import datetime, timedelta

from dibs.errors import BadInput
from dibs.model.units import format_moment, parse_duration, parse_moment


def moment(text: str | None) -> float | None:
    """Seconds since the epoch, of a moment the daemon named."""
    try:
        return parse_moment(text) if text else None
    except BadInput:
        return None


def show_moment(text: str | None, *, now: float | None = None) -> str:
    """`14:30:05`, or with the date where it is another day; `-` where there is none."""
    at = moment(text)
    if at is None:
        return "-"
    then, today = time.localtime(at), time.localtime(time.time() if now is None else now)
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)


def about(text: str | None, *, now: float | None = None) -> str:
    """`14:30`: a moment that is only guessed needs no seconds."""
    shown = show_moment(text, now=now)
    return shown[:5] if shown.count(":") == 2 else shown


def parse_since(text: str) -> str:
    """The moment `2h` ago, or a date or a time of today, in the daemon's words."""
    return format_moment(int(_since(text.strip())), "seconds")


def _since(text: str) -> float:
    today = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
    days = {"today": today, "yesterday": today - timedelta(days=1)}
    try:
        if text in days:
            return days[text].timestamp()
        if ":" in text and "-" not in text:  # a time of today, not minutes and seconds
            clock = datetime.strptime(text, "%H:%M" if text.count(":") == 1 else "%H:%M:%S")
            return today.replace(hour=clock.hour, minute=clock.minute, second=clock.second).timestamp()
        if text[:4].isdigit() and "-" in text:
            return datetime.fromisoformat(text).timestamp()
        return max(0.0, time.time() - parse_duration(text))
    except (ValueError, OverflowError, OSError, BadInput):
        raise BadInput(
            f"cannot read {text!r} as a moment", remedy="write it like 2h, 14:30, yesterday or 2026-11-15"
        ) from None
