"""The moment before which a job does not start: `22:00`, `2026-12-01 08:00`, `+2h`, `tomorrow`."""

import re
from datetime import datetime, timedelta

from dibs.errors import BadInput
from dibs.model.units import parse_duration

_FURTHEST = timedelta(days=366 * 10)
_CLOCK = r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?"
_CLOCKS = {"midnight": "00:00", "noon": "12:00", "teatime": "16:00"}


def parse_begin(text: str, now: datetime) -> float:
    """Seconds since the epoch. A time without a date is the next one by the clock of this machine.

    A number behind `+` is in minutes, as everywhere; Slurm's `now+60` is in seconds, as in Slurm.
    """
    moment = _moment(text.strip().lower(), now)
    if moment is None:
        raise BadInput(
            f"cannot read {text[:60]!r} as a time to begin",
            remedy="write it like 22:00, 2026-12-01 08:00, +2h or tomorrow",
        )
    if moment > now.astimezone(moment.tzinfo) + _FURTHEST if moment.tzinfo else moment > now + _FURTHEST:
        raise BadInput(f"{text[:60]!r} is more than ten years from now", remedy="begin earlier")
    return moment.timestamp()


def _moment(text: str, now: datetime) -> datetime | None:
    if text.startswith("now"):
        rest = text.removeprefix("now").strip()
        return now if not rest else _later(rest, now, "s")
    if text.startswith("+"):
        return _later(text, now, "")
    if text == "today":
        return now
    if text == "tomorrow":
        return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    if clock := re.fullmatch(_CLOCK, _CLOCKS.get(text, text)):
        return _next(int(clock[1]), int(clock[2]), int(clock[3] or 0), now)
    if not re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return None
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError:
        return None


def _later(text: str, now: datetime, unit: str) -> datetime | None:
    amount = text.removeprefix("+").strip()
    if not text.startswith("+") or not amount:
        return None
    if amount.isdigit():
        amount += unit
    try:
        return now + timedelta(seconds=parse_duration(amount))
    except (BadInput, OverflowError):
        return None


def _next(hour: int, minute: int, second: int, now: datetime) -> datetime | None:
    try:
        moment = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    except ValueError:
        return None
    return moment if moment > now else moment + timedelta(days=1)
