"""Tables, words and colours. Commands return data; this decides how it looks."""

import contextlib
import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from errno import ENOSPC
from typing import Any

import click

from dibs.errors import BadInput, DibsError
from dibs.model.units import parse_moment, show_duration

# Everything a terminal would obey, except colours; and, in a group, text that only looks like it.
# Compiled when it is used: that takes some milliseconds.
_OBEYED = (
    rb"\x1b\[(?![0-9;:]*m)[0-?]*[ -/]*[@-~]?"  # control sequences other than colours, unfinished ones too
    rb"|\x1b[\]PX^_](?s:.*?)(?:\x1b\\|\x07|$)"  # titles, clipboard, device strings
    rb"|\x1b(?!\[)[ -/]*[0-~]"
    rb"|\x1b(?!\[[0-9;:]*m)"
    rb"|\xc2[\x80-\x9f]"  # control characters of eight bits, as UTF-8
    rb"|((?:[\xc2-\xdf][\x80-\xbf]"  # whole letters in UTF-8, which are kept
    rb"|(?:\xe0[\xa0-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]|\xed[\x80-\x9f])[\x80-\xbf]"
    rb"|(?:\xf0[\x90-\xbf]|[\xf1-\xf3][\x80-\xbf]|\xf4[\x80-\x8f])[\x80-\xbf]{2}))"
    rb"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
)


_MOST_SAID = 10  # messages of one kind


def wants_colour(environ: Mapping[str, str], fd: int) -> bool:
    """Colours on a terminal, unless NO_COLOR or a dumb one says otherwise."""
    return os.isatty(fd) and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def harmless(data: bytes) -> bytes:
    """Output that can colour a terminal but not command it. Of a progress bar the last state is kept."""
    if data.isascii() and not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", data):
        return data  # nearly always
    if b"\r" in data:
        data = b"\n".join(_last_state(line) for line in data.split(b"\n"))
    return re.sub(_OBEYED, rb"\1", data)


def one_line(text: str, width: int = 200) -> str:
    """Text in a table or a sentence: nothing in it is obeyed, nothing breaks the line."""
    shown = text if text.isascii() and text.isprintable() else "".join(map(_harmless_letter, text))
    return shown if columns(shown) <= width else _cut(shown, width - 1) + "…"


def columns(text: str) -> int:
    """The columns a text takes on a terminal: Chinese letters take two, accents on top of others none."""
    if text.isascii():
        return len(text)
    return sum(map(_columns_of, text))


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    shrink: int,
    drop: Sequence[int] = (),
) -> list[str]:
    """Aligned columns that fit the width: the column `shrink` gives way, then those in `drop` leave, in order."""
    cells = [list(headings), *[list(row) for row in rows]]
    widths = [max(columns(row[column]) for row in cells) for column in range(len(headings))]
    kept = list(range(len(headings)))
    for column in drop:
        least = sum(min(widths[one], 10) if one == shrink else widths[one] for one in kept)
        if least + 2 * (len(kept) - 1) <= width:
            break
        kept.remove(column)
    spare = width - sum(widths[one] for one in kept) - 2 * (len(kept) - 1)
    if spare < 0 and shrink in kept:
        widths[shrink] = max(min(10, widths[shrink]), widths[shrink] + spare)
    lines = []
    for row in cells:
        row[shrink] = one_line(row[shrink], widths[shrink])
        line = "  ".join(row[one] + " " * (widths[one] - columns(row[one])) for one in kept)
        lines.append(one_line(line.rstrip(), width) if drop else line.rstrip())
    return lines


def terminal_width(fd: int = 2) -> int:
    """Columns; a wide line where there is no terminal."""
    if not os.isatty(fd):
        return 160
    try:
        return max(20, os.get_terminal_size(fd).columns or 80)  # `script` makes terminals of no width
    except OSError:
        return 80


def table_width() -> int:
    """Columns for what goes to stdout; in a file or a pipe nothing is cut."""
    return terminal_width(1) if os.isatty(1) else sys.maxsize


def terminal_height(fd: int = 1) -> int:
    """Lines; a page where there is no terminal."""
    try:
        return max(2, os.get_terminal_size(fd).lines or 24)
    except OSError:
        return 100


def styled(text: str, style: str, fd: int = 1) -> str:
    """Bold, dim or a colour, where colours are wanted."""
    if not style or not wants_colour(os.environ, fd):
        return text
    return click.style(text, **{style: True}) if style in ("bold", "dim") else click.style(text, fg=style)


def show(text: str, end: str = "\n") -> None:
    """Data for stdout, whatever letters the terminal's encoding has."""
    put(1, f"{text}{end}".encode("utf-8", "backslashreplace"))


def show_json(data: Any) -> None:
    """One JSON value; what is no UTF-8 stands in it as escaped lone surrogates."""
    show(json.dumps(data, indent=2))


def put(fd: int, data: bytes) -> None:
    """Write data that must arrive: where it cannot, the command has failed."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            select.select([], [fd], [])
        except BrokenPipeError:
            raise BrokenPipeError from None  # without its number: click would end with 1, and quietly
        except OSError as error:
            if error.errno == ENOSPC:
                raise  # the same words as for every other command (main.py)
            raise DibsError(f"cannot write the output: {error.strerror}") from error


def write_all(fd: int, data: bytes) -> bool:
    """Write every byte, however slowly it is read; False when the reader has gone."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            select.select([], [fd], [])
        except OSError:
            return False
    return True


def trouble_text(answer: Mapping[str, Any]) -> str:
    """What an answer about jobs says of a daemon that can record nothing at the moment; empty: it can."""
    trouble = answer.get("trouble") or ""
    return (
        f"dibs: nothing starts and no end is recorded at the moment: {one_line(trouble, 600)}" if trouble else ""
    )


def say(text: str) -> None:
    """Write a message to stderr; stdout is for data. A closed stderr is ignored."""
    with contextlib.suppress(OSError, AttributeError):  # a stream that was closed from the start is None
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        click.echo(text.encode("utf-8", "backslashreplace"), err=True)


def say_first(sentences: Sequence[str]) -> None:
    """The first ones of what may be many messages, and how many more there are."""
    for sentence in sentences[:_MOST_SAID]:
        say(f"dibs: {one_line(sentence, 500)}")
    if len(sentences) > _MOST_SAID:
        say(f"dibs: … and {len(sentences) - _MOST_SAID} more")


def confirm(question: str, *, what: str, before: Sequence[str] = ()) -> bool:
    """Ask at the terminal whether to do it; the lines `before` come first. BadInput where stdin is no terminal."""
    if not os.isatty(0):
        raise BadInput(
            f"cannot ask whether to {what}: stdin is no terminal", remedy="--yes does it without asking"
        )
    for line in before:
        say(line)
    return click.confirm(question, default=False, err=True)


def _last_state(line: bytes) -> bytes:
    return next((part for part in reversed(line.split(b"\r")) if part), b"")


def _harmless_letter(letter: str) -> str:
    return letter if letter.isprintable() else _escaped(letter)


def _columns_of(letter: str) -> int:
    if letter.isascii():
        return 1
    import unicodedata

    if unicodedata.category(letter) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _cut(text: str, width: int) -> str:
    """As many letters as fit."""
    taken = 0
    for place, letter in enumerate(text):
        taken += _columns_of(letter)
        if taken > width:
            return text[:place]
    return text


def _escaped(letter: str) -> str:
    if "\udc80" <= letter <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return {"\n": "\\n", "\t": " ", "\r": "\\r"}.get(letter) or repr(letter)[1:-1]


Job = Mapping[str, Any]

WAITING = ("queued", "submitted", "held")
BEGUN = ("running", "suspended")
# For other causes the log says more than the message.
_EXPLAINED = (
    *("start error", "dependency", "lost", "killed", "gpu-fault"),
    *("import-error", "syntax-error", "port-in-use", "disk-full"),
)
OVER = ("succeeded", "failed", "cancelled", "timed_out", "lost")
STATES = (*WAITING, *BEGUN, *OVER)
COLOURS = {
    "running": "green",
    "ending": "yellow",
    "held": "yellow",
    "suspended": "yellow",
    "failed": "red",
    "timed_out": "red",
    "lost": "red",
    "cancelled": "yellow",
    "succeeded": "dim",
}
_VERBS = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "was stopped",
    "timed_out": "ran out of time",
    "lost": "was lost",
}


def job_number(job: Job) -> str:
    """`17`, or `17_4` for a task of an array: as it is typed to name the job."""
    array = job.get("array")
    return f"{array['id']}_{array['task']}" if array else str(job["id"])


def job_name(job: Job) -> str:
    """`17` or `17 (train)`."""
    return f"{job_number(job)} ({one_line(job['name'], 40)})" if job.get("name") else job_number(job)


def gpu_numbers(job: Job) -> list[str]:
    """The GPUs of a job or of an attempt: `0`, or `0:1` for a part."""
    return [str(one) for one in job.get("gpu_numbers") or job.get("gpus") or ()]


def gpu_place(job: Job) -> str:
    """Where a job or an attempt has its GPUs: `0,1` of this machine, `n1:0,1` or `n1` of a node; else empty."""
    if node := job.get("node"):
        gpus = one_line(job.get("node_gpus") or "", 60)
        return f"{one_line(node, 60)}:{gpus}" if gpus else one_line(node, 60)
    return ",".join(gpu_numbers(job))


def shown_state(job: Job) -> str:
    """Its state; `ending` where its end was asked for and it has not ended."""
    return "ending" if job.get("is_ending") else str(job["state"])


def short_outcome(job: Job) -> str:
    """The outcome in one or two words: `exit 1`, `SIGKILL`, `gpu-oom`; empty where the state says it all."""
    if job["state"] not in ("failed", "cancelled"):
        return ""
    if job.get("cause") not in (None, "", "exit code", "signal", "killed", "stopped"):
        return str(job["cause"])
    if job.get("signal"):
        return signal_name(job["signal"])
    if job.get("exit_code") is not None and job["state"] == "failed":
        return f"exit {job['exit_code']}"
    return ""


def outcome_text(job: Job) -> str:
    """`failed (exit 1) after 3m05s`, with the reason where the job itself could not say it."""
    how = short_outcome(job)
    took = f" after {show_duration(job['seconds'])}" if job.get("seconds") is not None else ""
    why = f": {one_line(explanation(job), 500)}" if job.get("cause") in _EXPLAINED and job.get("message") else ""
    return f"{_VERBS.get(job['state'], job['state'])}{f' ({how})' if how else ''}{took}{why}"


def explanation(job: Job, longest: int | None = None) -> str:
    """Why it failed and what helps, as far as that is known: `No module named 'torch': is the environment ...`

    `longest`: columns of the job's own message, so that the advice is seen beside it.
    """
    from dibs.policy.advice import failure_advice  # only for jobs that failed

    message = job.get("message") or ""
    return failure_advice(job.get("cause"), message if longest is None else one_line(message, longest))


def exit_status(job: Job) -> int:
    """As in a shell: the exit code, 128+n for a signal, 124 for the time limit."""
    if job["state"] == "succeeded":
        return 0
    if job["state"] == "timed_out":
        return 124
    if job.get("signal"):
        return 128 + int(job["signal"])
    return int(job.get("exit_code") or 1)


def elapsed_seconds(job: Job, now: float | None = None) -> float | None:
    """How long it ran, runs or waits; never negative, also where the clock was set back.

    The time in which it stood still does not count.
    """
    if job.get("seconds") is not None and job["state"] in OVER:
        return float(job["seconds"])
    since = _seconds_at(job.get("started_at") if job["state"] in BEGUN else job.get("queued_at"))
    if since is None or job["state"] in OVER:
        return None
    return max(0.0, (time.time() if now is None else now) - since - (job.get("suspended_seconds") or 0.0))


def seconds_between(since: str | None, until: str | None) -> float:
    """From one moment to another, or until now."""
    begin, end = _seconds_at(since), _seconds_at(until)
    return 0.0 if begin is None else max(0.0, (time.time() if end is None else end) - begin)


_BAR = 10  # columns


def progress_text(job: Job, *, with_bar: bool = False, now: float | None = None) -> str:
    """`45 %, 12m left`; empty where it does not report its progress. Of one that is late no end is known."""
    part = job.get("progress")
    if part is None:
        return ""
    done = int(part * _BAR)
    bar = f"{'█' * done}{'░' * (_BAR - done)} " if with_bar else ""
    ends = _seconds_at(job.get("ends_at"))
    left = 0.0 if ends is None else ends - (time.time() if now is None else now)
    return f"{bar}{int(part * 100)} %{f', {show_duration(left)} left' if left > 0 else ''}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time ones have no names
        return f"signal {number}"


def _seconds_at(text: str | None) -> float | None:
    """Seconds since the epoch; None where the daemon named no moment."""
    try:
        return parse_moment(text) if text else None
    except BadInput:
        return None


def show_moment(text: str | None, *, now: float | None = None) -> str:
    """`14:30:05`, or with the date where it is another day; `-` where there is none."""
    at = _seconds_at(text)
    if at is None:
        return "-"
    then, today = time.localtime(at), time.localtime(time.time() if now is None else now)
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)


def show_about(text: str | None, *, now: float | None = None) -> str:
    """`14:30`: an estimated time, without seconds."""
    shown = show_moment(text, now=now)
    return shown[:5] if shown.count(":") == 2 else shown


def why_sentence(job: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """`job 17 waits for 2 GPUs: ...`; of a job that does not wait, what it does instead."""
    job_text = f"job {job_name(job)}"
    if job["state"] in OVER:
        outcome, text = outcome_text(job), one_line(explanation(job), 500)
        return f"{job_text} does not wait: it {outcome}{f': {text}' if text and text not in outcome else ''}"
    if job["state"] == "running":
        runs = f"{job_text} does not wait: it runs{_where(job)} for {show_duration(elapsed_seconds(job))}"
        if job.get("is_ending"):
            runs += ", and was told to end"
        reason = answer.get("reason")  # why a job that runs elsewhere makes no progress
        return f"{runs}; {one_line(reason['sentence'], 1000)}" if reason else runs
    return f"{job_text} {waiting_text(answer)}"


def _where(job: Mapping[str, Any]) -> str:
    """` on GPU 0, 1`, or ` on node n1, GPU 0,1`."""
    if node := job.get("node"):
        gpus = job.get("node_gpus")
        return f" on node {one_line(node, 60)}{f', GPU {one_line(gpus, 60)}' if gpus else ''}"
    return f" on GPU {', '.join(gpu_numbers(job))}" if gpu_numbers(job) else ""


def waiting_text(answer: Mapping[str, Any]) -> str:
    """The daemon's reason, and when the job may start where that is known."""
    reason = answer.get("reason")
    if not reason:
        return "waits at Slurm" if answer.get("state") == "submitted" else "starts next"
    text = one_line(reason["sentence"], 1000)
    if answer.get("starts_at") and "until about" not in text and reason["code"] != "starting":
        text += f"; it may start at about {show_about(answer['starts_at'])}"
    return text + estimate_note(answer)


def estimate_note(answer: Mapping[str, Any]) -> str:
    """`; its start cannot be estimated: job 3 has no time limit`; empty where it can, or the reason says it."""
    said = answer.get("reason") or {}
    if not answer.get("no_estimate") or said.get("code") in ("held", "paused", "backend"):
        return ""
    hour = f", not before {show_about(said['until_at'])}" if said.get("code") == "begin" else ""
    return f"{hour}; its start cannot be estimated: {one_line(answer['no_estimate'], 500)}"
