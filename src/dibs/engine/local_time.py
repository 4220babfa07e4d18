"""Moments in sentences: by this machine's clock on the wall."""

import time

_HALF_A_DAY = 12 * 3600


def clock_time(at: float, now: float) -> str:
    """`14:02`, or `2026-11-18 14:02` where it is more than half a day away."""
    is_near = abs(at - now) < _HALF_A_DAY
    return time.strftime("%H:%M" if is_near else "%Y-%m-%d %H:%M", time.localtime(at))
