"""`dibs ls`: what runs, what waits, what has ended; with -w on a screen that is drawn again and again."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import click

from dibs.cli.filters import filter_options, query_of
from dibs.cli.options import count
from dibs.cli.output import (
    COLOURS,
    OVER,
    WAITING,
    elapsed_seconds,
    explanation,
    gpu_place,
    job_number,
    one_line,
    progress_text,
    say,
    short_outcome,
    show,
    shown_state,
    styled,
    table,
    table_width,
    terminal_height,
    terminal_width,
    trouble_text,
    waiting_text,
    write_all,
)
from dibs.cli.references import REF, find_jobs
from dibs.client.client import Client, connect
from dibs.errors import BadInput, DibsError, NoDaemon, NoSuchJob
from dibs.model.units import show_duration, show_ranges

_PAGE = 100  # jobs, where there is no terminal whose height could be filled
_AT_ONCE = 1000  # jobs in one answer
_HEADS = 3  # waiting jobs whose reason is shown, and as many suspended ones
_ENDS = 3  # failed jobs whose cause is explained
_MESSAGE = 80  # columns of what such a job said; PyTorch's message about memory has 400 characters
_HEADINGS = ("job", "state", "name", "GPU", "time", "command")
_COMMAND = 5
_LEAVE: tuple[int, ...] = (5, 3, 2, 4)  # on a narrow terminal: the command first, then GPUs, name and time

# The parts of the table, from top to bottom: what is asked for, and in which order.
_PARTS = {
    "running": ((("running",), "newest"), (("suspended",), "newest")),
    "waiting": ((("submitted",), "oldest"), (("queued",), "turn"), (("held",), "newest")),
    "over": ((OVER, "ended"),),
}

_EPILOG = """\b
Examples:
  dibs ls                        what runs, what waits, what ended last
  dibs ls -w                     the same, always fresh
  dibs ls --state failed --since 2h
  dibs ls --project a --all
  dibs ls 3-9 17_                these jobs, and the array 17
  dibs kill $(dibs ls --ids --state waiting --tag old)
  dibs ls --json --limit 10 | jq -r '.jobs[].id'

\b
--json prints one object: jobs (up to --limit, 100 unless told), cursor (for --cursor; null at
the end) and counts. --ids prints all that match. A pipe gets the table uncut, without colours.
"""


@click.command(epilog=_EPILOG)
@click.argument("references", nargs=-1, type=REF, metavar="[REF...]")
@filter_options
@click.option(
    "--sort",
    type=click.Choice(["newest", "oldest", "ended", "turn"]),
    help="By number, by end, or in the order of starting.",
)
@click.option("-a", "--all", "everything", is_flag=True, help="Every job, not one page.")
@click.option("--limit", type=count(1), metavar="N", help="Show at most N jobs.")
@click.option("-w", "--watch", is_flag=True, help="Stay, and show changes as they come; Ctrl-C ends it.")
@click.option("--ids", "only_ids", is_flag=True, help="Print numbers only.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--cursor", metavar="TEXT", help="With --json: go on where the page before ended.")
def ls(references: Sequence[str], watch: bool, only_ids: bool, as_json: bool, **options: Any) -> int:
    """List jobs: what runs, what waits, and what ended last."""
    _check(watch, only_ids, as_json, options)
    client = connect(os.environ)
    query = query_of(options)
    if references:
        query["ids"] = show_ranges(find_jobs(client, references))
    if as_json:
        return _print_json(client, query, options)
    if only_ids:
        for job in _jobs(client, query, options, options["limit"]):
            show(str(job["id"]))
        return 0
    if watch:
        client.status()  # it runs now; if it is stopped later, watching does not start it again
        client = connect(os.environ, start=False)
        most = options["limit"] or sys.maxsize
        return watch_jobs(lambda rows, width: picture(client, query, options, rows=min(rows, most), width=width))
    return _print_table(client, query, options)


def picture(
    client: Client, query: Mapping[str, Any], options: Mapping[str, Any], *, rows: int, width: int
) -> list[str]:
    """The lines of a screen: the table, and what there is no room for in one sentence."""
    jobs, notes = _page(client, query, options, rows)
    if not jobs:
        notes = [_nothing(query, options), *notes]
    return [*_table(jobs, _reasons(client, jobs), width), *(one_line(note, width) for note in notes)]


def _check(watch: bool, only_ids: bool, as_json: bool, options: Mapping[str, Any]) -> None:
    if watch + only_ids + as_json > 1:
        raise BadInput("--watch, --ids and --json exclude each other", remedy="choose one")
    if watch and not os.isatty(1):
        raise BadInput("--watch needs a terminal", remedy="`dibs ls --json` is for programs")
    if options["cursor"] and not as_json:
        raise BadInput("--cursor is for --json", remedy="`dibs ls --all` shows everything")
    if options["everything"] and (options["limit"] or options["cursor"]):
        raise BadInput("--all and --limit or --cursor were both given", remedy="one of them says how many")


# -- which jobs --------------------------------------------------------------------------------------------


def _jobs(
    client: Client, query: Mapping[str, Any], options: Mapping[str, Any], limit: int | None
) -> Iterator[Any]:
    """Those that match, in the order that was asked for."""
    order = options["sort"] or "newest"
    found = islice(client.jobs(**query, order=order, limit=min(limit or _AT_ONCE, _AT_ONCE)), limit)
    return found if order != "turn" or limit else _said_to_be_cut(found)


def _said_to_be_cut(jobs: Iterator[Any]) -> Iterator[Any]:
    """The daemon sorts so many by their turn and no more."""
    number = 0
    for job in jobs:
        number += 1
        yield job
    if number >= _AT_ONCE:
        say(f"dibs: these are the first {number} in turn, and not all; --sort oldest shows all")


def _page(
    client: Client, query: Mapping[str, Any], options: Mapping[str, Any], rows: int
) -> tuple[list[Any], list[str]]:
    """What fits on a page, and lines about what does not and what is wrong."""
    limit = min(rows, _AT_ONCE)
    if options["sort"] or "state" in query or "ids" in query:
        page = client.page(**query, order=options["sort"] or "newest", limit=limit)
        has_more = page["cursor"] or (options["sort"] == "turn" and len(page["jobs"]) == limit)
        return page["jobs"], _notes("… and more: `--all` shows them" if has_more else "", trouble_text(page))
    parts = [_part(client, query, asked, limit) for asked in _PARTS.values()]
    numbers = _shares([len(jobs) for jobs, *_ in parts], rows)
    is_counted = query.keys() <= {"project"}  # the daemon counts by project, not by what a filter leaves
    shown: list[Any] = []
    hidden = []
    for word, (jobs, has_more, total, _), number in zip(_PARTS, parts, numbers, strict=True):
        shown += jobs[:number]
        if is_counted and total > number:
            hidden.append(f"{total - number} more that are {word}")
        elif not is_counted and (has_more or len(jobs) > number):
            hidden.append(f"more that are {word}")
    more = f"… {', '.join(hidden)}: `dibs ls --all`, --state, --limit" if hidden else ""
    return shown, _notes(more, *(trouble for *_, trouble in parts))


def _notes(*texts: str) -> list[str]:
    """Each once, without the empty ones."""
    return list(dict.fromkeys(filter(None, texts)))


def _part(
    client: Client, query: Mapping[str, Any], asked: Sequence[tuple[Sequence[str], str]], limit: int
) -> tuple[list[Any], bool, int, str]:
    """One part of the table: its first jobs, whether there are more, how many without a filter, what is wrong."""
    pages = [(states, client.page(**query, state=states, order=order, limit=limit)) for states, order in asked]
    jobs = [job for _, page in pages for job in page["jobs"]]
    has_more = any(page["cursor"] or len(page["jobs"]) == limit for _, page in pages)
    total = sum(page["counts"].get(state, 0) for states, page in pages for state in states)
    return jobs, has_more, total, trouble_text(pages[-1][1])


def _shares(wanted: Sequence[int], rows: int) -> list[int]:
    """How many lines each part gets: what runs first, but a few of the others are always seen."""
    running, waiting, over = wanted
    few = max(1, rows // 6)
    first = min(running, max(1, rows - min(few, waiting) - min(few, over)))
    left = rows - first
    second = min(waiting, left - min(over, left // 2))
    return [first, second, min(over, left - second)]


def _reasons(client: Client, jobs: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Why those that are next have not started, others are held or suspended, and what is wrong with the rest."""
    reasons = {job["id"]: job["remark"] for job in jobs if job.get("remark")}
    heads = [job for job in jobs if job["state"] in WAITING][:_HEADS]
    still = [job for job in jobs if (job.get("suspension") or {"phase": "over"})["phase"] != "over"][:_HEADS]
    for job in [*(job for job in jobs if job.get("orphans") is not None), *still, *heads]:
        try:
            answer = client.why(job["id"])
        except NoSuchJob:  # it was cleaned up in between
            continue
        if answer.get("reason") or job["state"] == "queued":
            reasons[job["id"]] = waiting_text(answer)
    return reasons


def _causes(jobs: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Why the last of those failed whose reason is known, and what helps."""
    told = ((job["id"], explanation(job, _MESSAGE)) for job in jobs if job["state"] in ("failed", "lost"))
    return dict(islice(((number, text) for number, text in told if text), _ENDS))


# -- how they look -----------------------------------------------------------------------------------------


def _print_table(client: Client, query: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    on_terminal, width = os.isatty(1), table_width()
    if options["everything"]:
        left = _jobs(client, query, options, None)
        while chunk := list(islice(left, _AT_ONCE)):
            show("\n".join(_table(chunk, {}, width)))
        return 0
    rows = options["limit"] or (max(3, terminal_height() - 3 - _HEADS - _ENDS) if on_terminal else _PAGE)
    jobs, notes = _page(client, query, options, rows)
    if jobs:
        show("\n".join(_table(jobs, _reasons(client, jobs) | _causes(jobs), width)))
    else:
        say(f"dibs: {_nothing(query, options)}")
    for note in notes:
        say(note)
    return 0


def _table(jobs: Sequence[Mapping[str, Any]], reasons: Mapping[int, str], width: int) -> list[str]:
    headings: Sequence[str] = _HEADINGS
    cells: Sequence[Sequence[str]] = [_cells(job) for job in jobs]
    command, leave = _COMMAND, _LEAVE
    if any(job.get("progress") is not None for job in jobs):
        told = [progress_text(job, with_bar=True) or "-" for job in jobs]
        headings = (*_HEADINGS[:_COMMAND], "progress", *_HEADINGS[_COMMAND:])
        cells = [(*row[:_COMMAND], text, *row[_COMMAND:]) for row, text in zip(cells, told, strict=True)]
        command, leave = _COMMAND + 1, (_COMMAND + 1, *_LEAVE[1:], _COMMAND)
    heading, *lines = table(headings, cells, width=width, shrink=command, drop=leave)
    shown = [styled(heading, "bold")]
    for job, line in zip(jobs, lines, strict=True):
        shown.append(styled(line, COLOURS.get(shown_state(job), "")))
        if job["id"] in reasons:
            shown.append(styled(one_line(f"  {reasons[job['id']]}", width), "dim"))
    return shown


def _cells(job: Mapping[str, Any]) -> tuple[str, ...]:
    how, seconds = short_outcome(job), elapsed_seconds(job)
    name = "/".join(one_line(part, 24) for part in (job.get("project"), job.get("name")) if part)
    return (
        job_number(job),
        f"{shown_state(job).replace('_', ' ')}{f': {how}' if how else ''}",
        name or "-",
        gpu_place(job) or "-",
        "-" if seconds is None else show_duration(seconds),
        one_line(job["command"], 4000),
    )


def _nothing(query: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    if query:
        return "no job matches"
    if options["sort"] == "turn":
        return "no job is queued"
    return "there are no jobs yet: `dibs add -- COMMAND` queues one"


# -- for programs ------------------------------------------------------------------------------------------


def _print_json(client: Client, query: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """One object. A million jobs are written as they come, not gathered first."""
    left = sys.maxsize if options["everything"] else options["limit"] or _PAGE
    cursor, comma, counts = options["cursor"], '{"jobs": [', {}
    while left > 0:
        order = options["sort"] or "newest"
        page = client.page(**query, order=order, limit=min(left, _AT_ONCE), cursor=cursor)
        for job in page["jobs"]:
            show(f"{comma}\n{json.dumps(job)}", end="")
            comma = ","
        left -= len(page["jobs"])
        cursor, counts = page["cursor"], page["counts"]
        if not cursor:
            break
    show(f'{"" if comma == "," else comma}\n], "cursor": {json.dumps(cursor)}, "counts": {json.dumps(counts)}}}')
    return 0


_EVERY = 1.0  # seconds between two pictures
_LOOK_EVERY = 0.1  # seconds between two looks at the terminal's size


def watch_jobs(draw: Callable[[int, int], list[str]]) -> int:
    """Show what `draw(rows, width)` returns, until Ctrl-C."""
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    signal.signal(signal.SIGTERM, _leave)  # through `finally`: the terminal is given back as it was
    signal.signal(signal.SIGHUP, _leave)
    if not is_dumb:
        _put("\x1b[?1049h\x1b[?25l")
    try:
        while True:
            size = (terminal_height(), terminal_width(1))
            _put(_picture(draw, *size, is_dumb))
            until = time.monotonic() + _EVERY
            while time.monotonic() < until and size == (terminal_height(), terminal_width(1)):
                time.sleep(_LOOK_EVERY)
    except KeyboardInterrupt:
        return 0
    finally:
        if not is_dumb:
            _put("\x1b[?25h\x1b[?1049l")


def _picture(draw: Callable[[int, int], list[str]], height: int, width: int, is_dumb: bool) -> str:
    try:
        # The reasons of waiting jobs take lines of their own.
        lines = draw(max(1, height - 6), width)
    except NoDaemon as error:
        lines = [one_line(f"the daemon is away; jobs go on: {error.message}", width)]
    except DibsError as error:
        lines = [one_line(error.message, width)]
    lines = [one_line(f"{time.strftime('%H:%M:%S')} · Ctrl-C ends this", width), *lines][: height - 1]
    if is_dumb:
        return "\n".join(lines) + "\n\n"
    # Each line wipes its own end: the screen is never empty, and so it does not flicker.
    return "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J"


def _put(text: str) -> None:
    if not write_all(1, text.encode("utf-8", "backslashreplace")):
        sys.exit(0)  # the terminal was closed


def _leave(number: int, _: Any) -> None:
    sys.exit(128 + number)
