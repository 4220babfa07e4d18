"""`dibs info`: everything about a job; `dibs why`: what it waits for."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from dibs.cli.output import (
    COLOURS,
    OVER,
    WAITING,
    columns,
    explanation,
    gpu_numbers,
    gpu_place,
    job_name,
    one_line,
    outcome_text,
    progress_text,
    seconds_between,
    short_outcome,
    show,
    show_json,
    show_moment,
    shown_state,
    signal_name,
    styled,
    table,
    terminal_width,
    waiting_text,
    why_sentence,
)
from dibs.cli.references import REF, find_job, find_jobs, in_chunks
from dibs.client.client import Client, connect
from dibs.model.fields import BY_KEY, Field, Kind
from dibs.model.units import show_duration, show_energy, show_ranges, show_size

# They differ between any two shells, and no job cares.
_OF_THE_SHELL = frozenset(("_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "WINDOWID", "SSH_TTY", "GPG_TTY"))

_EPILOG = """\b
Examples:
  dibs info 17
  dibs info @ --env           with every variable it was added with
  dibs info --json 17 | jq -r .stdout
  dibs info --json 17 | jq -r '.attempts_list[-1].backend_job'   Slurm's own number of it
"""


_MOST_ATTEMPTS = 20  # rows


@click.command(epilog=_EPILOG)
@click.argument("reference", type=REF, metavar="REF")
@click.option(
    "--env", "all_variables", is_flag=True, help="Every variable, not only those that differ from this shell."
)
@click.option("--json", "as_json", is_flag=True, help="Print an object; with --env it has an environment.")
def info(reference: str, all_variables: bool, as_json: bool) -> int:
    """Show everything about a job: wishes, attempts, what it used, code, environment, cause, files."""
    client = connect(os.environ)
    number = find_job(client, reference)
    job = client.job(number)
    if as_json:
        show_json({**job, "environment": client.environment(number)} if all_variables else job)
        return 0
    environment = _environment(client.environment(number), all_variables)
    show("\n".join([*_facts(job), *_attempts(job), *_card(client, job), *environment]))
    return 0


def _facts(job: Mapping[str, Any]) -> Iterator[str]:
    yield styled(f"job {job_name(job)}", "bold")
    pairs = [pair for pair in [*_state(job), *_wishes(job), *_code(job), *_files(job)] if pair[1]]
    width = max(len(word) for word, _ in pairs)
    for word, text in pairs:
        colour = COLOURS.get(shown_state(job), "") if word == "state" else ""
        yield f"  {word.ljust(width)}  {styled(one_line(text, 4000), colour)}"


def _state(job: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    last = job["attempts_list"][-1] if job.get("attempts_list") else {}
    state = outcome_text(job) if job["state"] in OVER else shown_state(job)
    yield "state", state
    if job["state"] in WAITING or job.get("reason"):
        yield "why", waiting_text(job)
    yield "suspended", _suspended(last)
    yield "progress", progress_text(job, with_bar=True)
    yield "message", "" if (told := explanation(job)) in state else told
    yield "cause", job.get("cause") or ""
    yield "command", job["command"]
    yield "folder", job["workdir"]
    yield "project", job["project"]
    yield "tags", ", ".join(job["tags"])
    yield "user", job["user"]
    yield "on", job.get("on", "")
    for name, told in job.get("on_options", {}).items():
        yield name, told
    yield last.get("backend") or "", last.get("backend_job") or ""  # `slurm  4711_3`, for squeue and scontrol
    yield "node", job.get("node", "")
    yield "GPUs", job["node_gpus"] if job.get("node") else ", ".join(gpu_numbers(job))
    yield "pid", str(last.get("pid") or "") if job["state"] not in OVER else ""
    yield "queued", show_moment(job["queued_at"])
    yield "started", show_moment(job["started_at"]) if job["started_at"] else ""
    yield "ended", show_moment(job["ended_at"]) if job["ended_at"] else ""


def _wishes(job: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    wishes = [f"{job['num_gpus']} GPU{'' if job['num_gpus'] == 1 else 's'}", _share(job), _vram(job)]
    asked = [(field, job.get(key)) for key, field in BY_KEY.items() if key not in _SAID_OTHERWISE]
    wishes += [_said(field, value) for field, value in asked if field.of_gpus]
    yield "wishes", ", ".join(wish for wish in wishes if wish)
    yield "booked", _booked(job)
    for lesson in job.get("lessons", ()):
        yield "learned", lesson["sentence"]
    for field, value in asked:
        if field.label:
            yield field.label, _said(field, value)
    if array := job["array"]:
        most = f", {array['most']} at once" if array["most"] else ""
        yield "array", f"task {array['task']} of array {array['id']}{most}; its number is {job['id']}"
    if sweep := job.get("sweep"):
        yield "sweep", f"trial {sweep['trial']} of sweep {sweep['id']}: `dibs sweep show {sweep['id']}`"
    else:  # a trial's key only says the same
        yield "once", job["once"]


def _suspended(attempt: Mapping[str, Any]) -> str:
    """How often it has stood still, and for how long: `3 times, 2h07m in all`."""
    times = [one for one in attempt.get("suspensions", ()) if one["suspended_at"]]
    if not times:
        return ""
    seconds = sum(seconds_between(one["suspended_at"], one["ended_at"]) for one in times)
    return f"{'once' if len(times) == 1 else f'{len(times)} times'}, {show_duration(seconds)} in all"


_SAID_OTHERWISE = ("num_gpus", "share", "vram", "vram_bytes", "array", "once")


def _said(field: Field, value: Any) -> str:
    """A wish in words; empty where it is not one."""
    if field.kind is Kind.FLAG and field.default is None and value is False:
        return "no"
    is_said = value == 0 if field.kind is Kind.DURATION else False  # no grace is a wish, too
    if value == field.default or not (value or is_said):
        return ""
    return field.phrase.format(_IN_WORDS[field.kind](value) if field.kind in _IN_WORDS else value)


def _duration(seconds: float) -> str:
    return show_duration(seconds)


def _moment(text: str) -> str:
    return show_moment(text)


def _size(size: int) -> str:
    return show_size(size)


def _checkpoint(checkpoint: Mapping[str, Any]) -> str:
    return f"{signal_name(checkpoint['signal'])}, {_duration(checkpoint['seconds'])} before the limit"


_IN_WORDS: dict[Kind, Callable[[Any], str]] = {  # all others are shown as they are
    Kind.DURATION: _duration,
    Kind.MOMENT: _moment,
    Kind.SIZE: _size,
    Kind.CHECKPOINT: _checkpoint,
    Kind.GPU_IDS: lambda ids: ", ".join(one[:12] for one in ids),
    Kind.MODULES: ", ".join,
    Kind.CAUSES: ", ".join,
    Kind.MOUNTS: ", ".join,
    Kind.PATTERNS: ", ".join,
    Kind.DEPENDENCIES: lambda after: ", ".join(f"{one['job']} ({one['kind']})" for one in after),
    Kind.VARIABLES: lambda env: " ".join(f"{name}={value}" for name, value in env.items()),
}


def _booked(job: Mapping[str, Any]) -> str:
    """What dibs chose for the last attempt of a job that left it to dibs."""
    if not job.get("vram") or not job.get("attempts_list"):
        return ""

    last = job["attempts_list"][-1]
    if last.get("vram_bytes"):
        return f"{show_size(last['vram_bytes'])} on each, {last['share']} of it"
    return "the whole card" if last.get("share") == "1" else ""


def _share(job: Mapping[str, Any]) -> str:
    if job.get("vram") and job["share"] == "1":
        return "each to itself"
    return f"{job['share']} of each" if job["share"] else ""


def _vram(job: Mapping[str, Any]) -> str:
    size = f"{show_size(job['vram_bytes'])} on each" if job["vram_bytes"] else ""
    if not job.get("vram"):
        return size
    return f"{size} until it is known what jobs like it need" if size else "what jobs like it need on each"


def _code(job: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    code = job.get("code") or {}
    if commit := code.get("commit"):
        dirty = ", with changes that were not committed" if code.get("is_dirty") else ""
        yield "code", f"commit {commit}{dirty}"
    for key in ("branch", "root"):
        yield key, str(code.get(key) or "")
    if copy := code.get("snapshot"):
        yield "snapshot", f"{copy} (what the job writes there is kept)"


def _files(job: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    stdout = job.get("stdout") or job.get("output") or ""  # before its start: the file that was named for it
    stderr = job.get("stderr") or job.get("error") or ""
    yield "stdout", stdout
    if stderr != stdout:
        yield "stderr", stderr
    yield "attempt in", job["folder"]


def _attempts(job: Mapping[str, Any]) -> list[str]:
    if not job.get("attempts_list"):
        return []
    rows = [
        (
            str(one["number"]),
            gpu_place(one) or "-",
            str(one.get("pid") or "-"),
            "-" if _waits_elsewhere(one) else show_moment(one["started_at"]),
            "-" if one["seconds"] is None else show_duration(one["seconds"]),
            "-" if one.get("cpu_seconds") is None else show_duration(one["cpu_seconds"]),
            "-" if one.get("max_rss_bytes") is None else show_size(one["max_rss_bytes"]),
            _how(one),
        )
        for one in job["attempts_list"][-_MOST_ATTEMPTS:]
    ]
    earlier = len(job["attempts_list"]) - len(rows)
    headings = ("attempt", "GPU", "pid", "started", "time", "CPU", "memory", "end")
    width = max(40, terminal_width(1) - 2)
    heading, *lines = table(headings, rows, width=width, shrink=7, drop=(5, 6, 2))
    more = [f"  {styled(f'and {earlier} earlier: --json has them all', 'dim')}"] if earlier else []
    return ["", f"  {styled(heading, 'bold')}", *(f"  {line}" for line in lines), *more]


def _waits_elsewhere(attempt: Mapping[str, Any]) -> bool:
    """Whether it was handed to another system and has not begun there."""
    return bool(attempt.get("backend")) and not attempt.get("node")


def _card(client: Client, job: Mapping[str, Any]) -> Iterator[str]:
    return report_card(client.usage(job["id"]), terminal_width(1)) if job.get("usage") else iter(())


def _how(attempt: Mapping[str, Any]) -> str:
    """`exit 1`, `time limit`, `SIGKILL: it was killed`, or `-` while it runs."""
    if attempt["ended_at"] is None:
        return "-"
    if not attempt["cause"]:
        return "succeeded"
    how = short_outcome({**attempt, "state": "failed"}) or str(attempt["cause"])
    return f"{how}: {one_line(attempt['message'], 300)}" if attempt["message"] else how


def _environment(environment: Mapping[str, str], all_variables: bool) -> Sequence[str]:
    if all_variables:
        lines = [f"{name}={environment[name]}" for name in sorted(environment)]
        title = f"environment: {len(lines)} variables"
    else:
        lines = _difference(environment, os.environ)
        title = "environment: what is different from here"
        if not lines:
            return ["", "  environment: the same as here"]
    return ["", f"  {styled(title, 'bold')}", *(f"    {one_line(line, 300)}" for line in lines)]


def _difference(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """`+` only the job has it, `-` only this shell has it, `~` both, and the job's is shown."""
    lines = []
    for name in sorted(there.keys() | here.keys()):
        if name in _OF_THE_SHELL or there.get(name) == here.get(name):
            continue
        if name not in there:
            lines.append(f"- {name}")
        else:
            lines.append(f"{'~' if name in here else '+'} {name}={there[name]}")
    return lines


_WHY_EPILOG = """\b
Examples:
  dibs why 17        waits for 2 GPUs: GPU 1 is held by job 12 until about 14:30
  dibs why @         the last job that was added
  dibs why --json 17 | jq -r .reason.code
"""


@click.command(epilog=_WHY_EPILOG)
@click.argument("references", nargs=-1, required=True, type=REF, metavar="REF...")
@click.option("--json", "as_json", is_flag=True, help="Print an object, or of several jobs a list.")
def why(references: Sequence[str], as_json: bool) -> int:
    """Say what a job waits for; of a job that does not wait, say whether it runs or how it ended."""
    client = connect(os.environ)
    jobs = find_jobs(client, references)
    if len(jobs) > _FEW:
        return _why_many(client, jobs, as_json=as_json)
    if as_json:
        answers = [client.why(job) for job in jobs]
        show_json(answers[0] if len(answers) == 1 else answers)
        return 0
    for number in jobs:
        job = client.job(number)
        show(why_sentence(job, client.why(number)))
    return 0


_FEW = 20  # jobs of which each is asked about by itself
_MOST_REFERENCES = 100  # in one question


def _why_many(client: Client, jobs: Sequence[int], *, as_json: bool) -> int:
    """Each answer once, with the jobs that it is true of."""
    ranges = show_ranges(jobs).split(",")
    answers = [one for some in in_chunks(ranges, _MOST_REFERENCES) for one in client.why_many(*some)]
    if as_json:
        by_job = {job: {"job": job, **one} for one in answers for job in one.pop("jobs")}
        show_json([by_job[job] for job in jobs if job in by_job])
        return 0
    for one in answers:
        which = f"{len(one['jobs'])} job{'s' * (len(one['jobs']) != 1)} ({show_ranges(one['jobs'])})"
        if one["state"] in WAITING:
            show(f"{which}, the first of them: {waiting_text(one)}")
        else:
            show(f"{which}: {one['state'].replace('_', ' ')}")
    return 0


_BARS = "▁▂▃▄▅▆▇█"
_WIDEST = 60  # columns of a sparkline
_NARROWEST = 10

Numbers = Sequence[float | None]


def report_card(report: Mapping[str, Any], width: int) -> Iterator[str]:
    """The lines of what a job used; none where it was not measured."""
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
    if usage["peak_vram_bytes"] is not None:
        of = f" of {show_size(usage['vram_total_bytes'])}" if usage["vram_total_bytes"] else ""
        shared = "" if usage["was_alone"] else ", not alone"
        peak = f"peak {show_size(usage['peak_vram_bytes'])}" if usage["peak_vram_bytes"] else "none"
        yield "memory", f"{peak}{of}{shared}", series.get("memory_bytes", ())
    if usage["mean_load_percent"] is not None:
        yield "load", f"{usage['mean_load_percent']:.0f} %", series.get("load_percent", ())
    if usage["energy_watt_hours"] is not None:
        yield "energy", show_energy(usage["energy_watt_hours"]), series.get("power_watts", ())
    host = []
    if usage["mean_cpus"] is not None:
        host.append(f"CPU {100 * usage['mean_cpus']:.0f} %")
    if usage["peak_mem_bytes"] is not None:
        host.append(f"{show_size(usage['peak_mem_bytes'])} of memory")
    yield "host", ", ".join(host), series.get("cpus", ())


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
