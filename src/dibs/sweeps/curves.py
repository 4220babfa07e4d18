"""Distributions of numbers that are not even: normal, log_normal and beta, by their quantiles.

`quantile` turns a share in (0, 1) into a number, and `share_below` turns it back. So a random search draws an even
share, and an adaptive one searches in shares.
"""

import math
from collections.abc import Callable
from typing import Literal

CurveKind = Literal["normal", "log_normal", "beta"]

LEAST_SHARE = 1e-6  # a normal distribution has no end
_LARGEST_EXPONENT = 700.0


def quantile(kind: CurveKind, first: float, second: float, share: float) -> float:
    """The number below which lies this share. `first`, `second`: mu and sigma, or a and b of a beta."""
    share = min(max(share, LEAST_SHARE), 1 - LEAST_SHARE)
    if kind == "beta":
        return _inverse(lambda x: _beta_share(first, second, x), share)
    from statistics import NormalDist  # milliseconds that few sweeps pay

    number = NormalDist(first, second).inv_cdf(share)
    return math.exp(min(number, _LARGEST_EXPONENT)) if kind == "log_normal" else number


def share_below(kind: CurveKind, first: float, second: float, number: float) -> float:
    """The share that lies below a number."""
    if kind == "beta":
        return _beta_share(first, second, number)
    if kind == "log_normal":
        if number <= 0:
            return 0.0
        number = math.log(number)
    from statistics import NormalDist

    return NormalDist(first, second).cdf(number)


def _inverse(share_of: Callable[[float], float], share: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if share_of(middle) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _beta_share(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function, by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - _beta_share(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    found, c, d = 1.0, 1.0, 0.0
    for step in range(400):
        half = step // 2
        if step == 0:
            part = 1.0
        elif step % 2 == 0:
            part = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        else:
            part = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        d = 1 / _not_zero(1 + part * d)
        c = _not_zero(1 + part / c)
        found *= c * d
        if abs(1 - c * d) < 1e-12:
            break
    return min(1.0, max(0.0, math.exp(log_front) * (found - 1) / a))


def _not_zero(number: float) -> float:
    return number if abs(number) > 1e-300 else 1e-300
