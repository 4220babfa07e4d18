"""The report of a bench, and its Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

COMMAND = "make bench"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows for people; the first column names the row."""

    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A target for speed or size, and the measured value."""

    text: str
    measured: str
    is_met: bool | None  # None: not measured this time


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one bench found."""

    title: str
    how: str  # what was measured and how, in whole sentences
    tables: list[Table]
    targets: list[Target]
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)  # the numbers behind the tables; units are in the keys


def report_from(stored: Mapping[str, Any]) -> Report:
    """The inverse of `dataclasses.asdict`."""
    return Report(
        title=stored["title"],
        how=stored["how"],
        tables=[Table(**table) for table in stored["tables"]],
        targets=[Target(**target) for target in stored["targets"]],
        notes=list(stored["notes"]),
        data=dict(stored["data"]),
    )


def markdown(report: Report) -> str:
    """One section: the tables, the targets and whether they are met, then notes."""
    parts = [f"## {report.title}", report.how]
    for table in report.tables:
        parts += [f"**{table.title}**" if table.title else "", _grid(table.columns, table.rows)]
    verdicts = [[target.text, target.measured, _verdict(target)] for target in report.targets]
    parts.append(_grid(["target", "measured", "met"], verdicts))
    parts += [f"- {note}" for note in report.notes]
    return "\n".join(_spaced([part for part in parts if part])) + "\n"


def page(stored: Mapping[str, Any]) -> str:
    """The whole page of docs/benchmarks.md out of bench/results.json."""
    facts: Mapping[str, str] = stored["machine"]
    parts = [
        "# Benchmarks",
        "",
        "<!-- Written by `bench/run.py --write-docs` from bench/results.json: do not edit, run it again. -->",
        "",
        f"The speed of dibs beside other tools for the same work. `{COMMAND}` measures everything again. It",
        "fetches the tools that are missing, runs them in turn (A B C A B C ...), so that a busy moment affects",
        "all alike, and prints medians. The absolute numbers depend on the machine; the ratios less so.",
        "",
        _grid(["the machine", ""], [[name, value] for name, value in facts.items()]),
    ]
    for bench in stored["benches"].values():
        when = f"*Measured {bench['date']} with dibs {bench['dibs']}, load before it {bench['load']}.*"
        report = report_from(bench["report"])
        parts += ["", markdown(replace(report, how=f"{report.how} {when}")).rstrip("\n")]
    return "\n".join(parts) + "\n"


def number(value: float) -> str:
    """Three digits that mean something: 1,034 · 12.3 · 1.23 · 0.12."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _verdict(target: Target) -> str:
    return {True: "yes", False: "**NO**", None: "not measured"}[target.is_met]


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that is also readable as text: names to the left, the rest to the right."""
    widths = [max(3, *(len(row[place]) for row in [columns, *rows])) for place in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        first, *others = (
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "| " + " | ".join([first, *others]) + " |"

    rule = "|" + "|".join(
        ("-" * (width + 1) + ":") if place else "-" * (width + 2) for place, width in enumerate(widths)
    )
    return "\n".join([line(columns), rule + "|", *map(line, rows)])


def _spaced(parts: Sequence[str]) -> list[str]:
    """A blank line between parts, none between the lines of a list."""
    lines: list[str] = []
    for part in parts:
        if lines and not (part.startswith("- ") and lines[-1].startswith("- ")):
            lines.append("")
        lines.append(part)
    return lines
