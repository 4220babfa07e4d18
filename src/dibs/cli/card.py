"""The report card of an attempt: what it used, how that went over time, and what to make of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_BARS = "▁▂▃▄▅▆▇█"
_WIDEST = 60  # columns of a sparkline
_NARROWEST = 10

Numbers = Sequence[float | None]


def report_card(report: Mapping[str, Any], width: int) -> Iterator[str]:
    """The lines, from what the daemon says about the usage of a job; none where nobody looked."""
    from dibs.cli.output import columns, one_line, styled
    from dibs.model.units import show_duration

    usage = report.get("usage")
    if not usage:
        return
    yield ""
    heading = f"used in attempt {report['attempt']}, measured for {show_duration(usage['seconds'])}"
    yield f"  {styled(heading, 'bold')}"
    rows = [row for row in _rows(usage, report.get("series") or {}) if row[1]]
    widest = max((columns(text) for _, text, line in rows if line), default=0)
    room = min(_WIDEST, width - 4 - len("memory") - 2 - widest - 2)
    for word, text, numbers in rows:
        line = spark(numbers, room, of=100.0 if word == "load" else None) if room >= _NARROWEST else ""
        yield f"    {word.ljust(len('memory'))}  {f'{text.ljust(widest)}  {line}' if line else text}"
    for sentence in report.get("advice") or ():
        yield f"    {'advice'.ljust(len('memory'))}  {one_line(sentence, 300)}"


def spark(numbers: Numbers, width: int, of: float | None = None) -> str:
    """A line of bars, at most so many; the highest is `of`, or the highest of them. What is not known is blank."""
    cells = _squeezed(numbers, width)
    highest = of or max((number for number in cells if number is not None), default=0.0)
    return "".join(_bar(number, highest) for number in cells).rstrip()


def _rows(usage: Mapping[str, Any], series: Mapping[str, Any]) -> Iterator[tuple[str, str, Numbers]]:
    from dibs.model.units import show_size

    if usage["peak_vram_bytes"] is not None:
        of = f" of {show_size(usage['vram_total_bytes'])}" if usage["vram_total_bytes"] else ""
        shared = "" if usage["was_alone"] else ", not alone"
        peak = f"peak {show_size(usage['peak_vram_bytes'])}" if usage["peak_vram_bytes"] else "none"
        yield "memory", f"{peak}{of}{shared}", series.get("memory_bytes", ())
    if usage["mean_load_percent"] is not None:
        yield "load", f"{usage['mean_load_percent']:.0f} %", series.get("load_percent", ())
    if usage["energy_watt_hours"] is not None:
        yield "energy", _energy(usage["energy_watt_hours"]), series.get("power_watts", ())
    host = []
    if usage["mean_cpus"] is not None:
        host.append(f"CPU {100 * usage['mean_cpus']:.0f} %")
    if usage["peak_mem_bytes"] is not None:
        host.append(f"{show_size(usage['peak_mem_bytes'])} of memory")
    yield "host", ", ".join(host), series.get("cpus", ())


def _energy(watt_hours: float) -> str:
    return f"{watt_hours / 1000:.3g} kWh" if watt_hours >= 1000 else f"{watt_hours:.3g} Wh"


def _squeezed(numbers: Numbers, width: int) -> list[float | None]:
    """The same course in fewer numbers: of each part its mean."""
    if len(numbers) <= width:
        return list(numbers)
    parts = [numbers[len(numbers) * one // width : len(numbers) * (one + 1) // width] for one in range(width)]
    return [_mean([number for number in part if number is not None]) for part in parts]


def _mean(numbers: Sequence[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None


def _bar(number: float | None, highest: float) -> str:
    if number is None:
        return " "
    part = number / highest if highest > 0 else 0.0
    return _BARS[max(0, min(len(_BARS) - 1, round(part * (len(_BARS) - 1))))]
