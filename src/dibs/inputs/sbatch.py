"""A script with `#SBATCH` lines: one job that runs the file as it is, with the options that Slurm would read.

Slurm's options keep Slurm's meaning: `--time` is in minutes, 0 is no limit, the last of two lines with one option
counts, and a script that asks for no GPU gets none, unless the command line asks for some. No job becomes smaller
than its script says: on Slurm every option that dibs does not do itself is passed on, and here one that changes
the size or the meaning is refused. What only a queue does (an array, a dependency, a start time) is refused in the
foreground. For what Slurm alone understands the command line takes precedence, as in Slurm.
"""

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, BinaryIO, NamedTuple

from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.inputs.checks import check_request, check_variable_name
from dibs.inputs.entries import open_input
from dibs.inputs.slurm import Tasks, parse_array, parse_dependency, parse_gpus, parse_gres
from dibs.inputs.wishes import apply_wishes, check_checkpoint, parse_begin, parse_checkpoint
from dibs.model.fields import FIELDS
from dibs.model.jobs import After, Command, Dependency, JobId, Request
from dibs.model.mounts import Mount
from dibs.model.places import LOCAL, SLURM
from dibs.model.slurm_options import OF_GPUS, OF_TASKS, Use, check_option, takes_value, use_of, whole_name
from dibs.model.units import parse_count, parse_size

_LONGEST_LINE = 65_536  # bytes
_KINDS = {"--after": After.OK, "--after-any": After.ANY, "--after-fail": After.FAIL}
_WITHIN = re.compile(r"(?<=\S)#")
_UNLIMITED = ("0", "infinite", "unlimited")
_SIGNAL_BEFORE = 60  # seconds before the end, where the script does not say
_HETEROGENEOUS = ("hetjob", "packjob")


class SbatchLine(NamedTuple):
    """An option of the script, and where it stands."""

    number: int
    option: str  # as it is written: `-N`
    name: str  # as in `sbatch --help`, without dashes
    value: str
    shown: str  # `-N 2`


@dataclass(frozen=True, slots=True)
class Script:
    """A script as a job, and warnings about options that dibs ignores."""

    request: Request
    warnings: tuple[str, ...]
    tasks: Tasks | None = None  # where it is an array; for a queue only


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptReading:
    """What decides how the lines of a script are read."""

    queued_at: datetime | None = None  # now, for a queue; None in the foreground
    default_place: Callable[[], str] = lambda: LOCAL  # where jobs run; asked where it matters
    asks_for_gpus: bool = False  # the command line does
    ignored: Collection[str] = ()  # options, as users write them


IN_FOREGROUND = ScriptReading()


def is_script(first_bytes: bytes) -> bool:
    """Whether a file is one job, because its first line names an interpreter."""
    return first_bytes.startswith(b"#!")


def read_script(
    path: str, defaults: Request, reading: ScriptReading = IN_FOREGROUND, *, environment_size: int = 0
) -> Script:
    """The job that runs this script."""
    with open_input(path) as file:
        first = file.readline(_LONGEST_LINE).decode("utf-8", "surrogateescape")
        header = list(_header(file, path))
    request = replace(defaults, command=Command.exact([*_interpreter(first), os.path.abspath(path)]))
    ignored = {whole_name(text if text.startswith("-") else f"--{text}") for text in reading.ignored}
    # Of two lines the last counts, in its place.
    lines = {line.name: line for line in header}
    script = _ScriptReader(path, request, [one for name, one in lines.items() if name not in ignored], reading)
    script.read(has_lines=bool(header))
    check_request(script.request, environment_size)
    names = ", ".join(dict.fromkeys(script.unused))
    return Script(script.request, (f"{path}: dibs ignores {names}",) if names else (), script.tasks)


def _interpreter(first_line: str) -> list[str]:
    """The words of the `#!` line, split as the kernel does: a program and at most one argument."""
    words = first_line.removeprefix("#!").strip().split(None, 1) if first_line.startswith("#!") else []
    return words or ["bash"]


def _header(stream: BinaryIO, path: str) -> Iterator[SbatchLine]:
    """The options of all `#SBATCH` lines before the first command, as Slurm reads them."""
    number = 1
    while line := stream.readline(_LONGEST_LINE):
        number += 1
        text = line.decode("utf-8", "surrogateescape").strip()
        if text and not text.startswith("#"):
            return
        marker, _, options = text.partition(" ")
        if marker != "#SBATCH":
            continue
        try:
            # A comment begins a word. Within one `#` is a letter, as in pyxis' `registry#image`.
            words = [one.replace("\0", "#") for one in shlex.split(_WITHIN.sub("\0", options), comments=True)]
        except ValueError as error:
            raise BadInput(f"{path} line {number}: a quote is not closed", remedy="close it") from error
        try:
            for option, value, shown in _options(words):
                yield SbatchLine(number, option, whole_name(option), value, shown)
        except BadInput as error:
            raise BadInput(f"{path} line {number}: {error.message}", remedy=error.remedy) from error


def _options(words: list[str]) -> Iterator[tuple[str, str, str]]:
    """Options, their values, and how both are written."""
    rest = words[::-1]
    while rest:
        word = shown = rest.pop()
        if word in _HETEROGENEOUS:
            raise BadInput(
                "dibs cannot run the parts of a heterogeneous job", remedy="give it to Slurm itself: sbatch FILE"
            )
        if word.startswith("--"):
            option, has_value, value = word.partition("=")
        else:
            option, value = word[:2], word[2:]
            has_value = value
        if not has_value and takes_value(whole_name(option)) and rest and not rest[-1].startswith("-"):
            value = rest.pop()
            shown = f"{option} {value}"
        yield option, value, shown


class _ScriptReader:
    """From the lines of one script to its request."""

    def __init__(self, path: str, request: Request, lines: list[SbatchLine], reading: ScriptReading) -> None:
        self.request = request
        self.tasks: Tasks | None = None
        self.unused: list[str] = []
        self._path = path
        self._lines = {line.name: line for line in lines}
        self._now = reading.queued_at
        self._asks_for_gpus = reading.asks_for_gpus
        self._told: dict[str, str] = {}  # what Slurm is passed on
        needs_slurm = self._now is not None and any(map(_depends_on_place, lines))
        self._is_for_slurm = needs_slurm and (request.on or reading.default_place()) == SLURM

    def read(self, *, has_lines: bool) -> None:
        if has_lines and not self._asks_for_gpus:
            self._want(num_gpus=0)
        if has_lines:
            with contextlib.suppress(OSError):  # of a folder that was removed; the job itself says so
                self._set({"SLURM_SUBMIT_DIR": os.getcwd()})
        folders = ("chdir", "container-workdir")  # other paths are relative to them
        for line in sorted(self._lines.values(), key=lambda line: line.name not in folders):
            self._at(line, self._read)
        # What depends on the number of cards or CPUs comes last.
        for name in ("cpus-per-gpu", "mem-per-gpu", "mem-per-cpu"):
            if (one := self._lines.get(name)) and not self._is_for_slurm:
                self._at(one, self._read_share)
        if one := self._lines.get("signal"):
            self._at(one, lambda _: check_checkpoint(self.request))
        if self._is_for_slurm:
            told = {**self._told, **dict(self.request.on_options)}
            self.request = replace(self.request, on=SLURM, on_options=tuple(told.items()))
        if self.request.image:
            self._show_script()

    def _show_script(self) -> None:
        """A container sees the working folder; a script that is elsewhere is a mount of its own."""
        path = os.path.abspath(self._path)
        is_seen = os.path.commonpath([path, self.request.workdir or "/"]) == self.request.workdir
        if not is_seen and ":" not in path:  # which a mount cannot be told
            self.request = replace(self.request, mounts=(*self.request.mounts, str(Mount(path, path, True))))

    def _at(self, line: SbatchLine, read: Callable[[SbatchLine], None]) -> None:
        try:
            read(line)
        except BadInput as error:
            raise BadInput(f"{self._path} line {line.number}: {error.message}", remedy=error.remedy) from error

    def _read(self, line: SbatchLine) -> None:
        match use_of(line.name):
            case _ if line.name in OF_GPUS:
                self._read_gpus(line)
            case Use.OURS:
                self._read_ours(line)
            case Use.TALK:
                pass
            case Use.NEVER:
                raise self._refusal(line, _WHY.get(line.name, "dibs cannot do that"))
            case _ if line.name in _OF_QUEUE and not (self._is_for_slurm and line.value == "0"):
                self._read_of_queue(line)
            case _ if self._is_for_slurm:
                check_option(line.name, line.value)
                self._told[line.name] = line.value
            case Use.SITE:
                self._leave_out(line)
            case _ if line.name not in _SHARES and not _is_one(line):
                raise self._refusal(line, _WHY.get(line.name, "that is for Slurm"))

    def _refusal(self, line: SbatchLine, why: str) -> BadInput:
        passes_on = "`--on slurm`" if self._now is not None else "`dibs add --on slurm`"
        ways = [f"{passes_on} passes it on"] if use_of(line.name) in (Use.SIZE, Use.SITE) else []
        return BadInput(
            f"cannot do what {line.shown[:60]} asks for: {why}",
            remedy="; ".join([*ways, f"`--ignore {line.name}` runs the script without it"]),
        )

    def _leave_out(self, line: SbatchLine) -> None:
        self.unused.append(line.option)

    def _want(self, **wishes: Any) -> None:
        self.request = replace(self.request, wishes=replace(self.request.wishes, **wishes))

    # -- options with a meaning of their own ---------------------------------------------------------------

    def _read_ours(self, line: SbatchLine) -> None:
        value = line.value
        match line.name:
            case "job-name":
                self._apply(name=value)
            case "chdir" | "container-workdir":
                self._apply(workdir=value)
            case "time":
                if value.lower() in _UNLIMITED:
                    self.request = replace(self.request, time_limit=None)
                else:
                    self._apply(time=value)
            case "container-image":
                self._apply(image=_image(value))
            case "container-mounts":
                self._apply(mounts=[_mount(one) for one in value.split(",")])
            case "export":
                self._export(value)
            case "requeue" | "no-requeue" | "output" | "error" if self._now is None:
                self._leave_out(line)
            case _ if self._now is None:
                raise self._refusal(
                    line, f"{_ONLY_QUEUED.get(line.name, 'that needs a queue')}; `dibs add` does it"
                )
            case "array":
                self.tasks = parse_array(value)
            case "requeue" | "no-requeue":
                self._apply(**{_OF_REQUEUE: "yes" if line.name == "requeue" else "no"})
            case "hold":
                self.request = replace(self.request, hold=True)
            case "signal":
                before = "" if "@" in value else f"@{_SIGNAL_BEFORE}"
                self.request = replace(self.request, checkpoint=parse_checkpoint(value + before))
            case "begin":
                self.request = replace(self.request, begin=parse_begin(value, self._now))
            case "dependency":
                named = parse_dependency(value)
                after = [Dependency(_job(job), _KINDS[kind]) for kind, jobs in named.items() for job in jobs]
                self.request = replace(self.request, after=(*self.request.after, *after))
            case "output":
                self.request = replace(self.request, output=os.path.join(self.request.workdir, value))
            case "error":
                self.request = replace(self.request, error=os.path.join(self.request.workdir, value))

    def _export(self, value: str) -> None:
        """`ALL,FOO=1`: what has a value is set. The job has the variables of the caller in any case."""
        words = [word.strip() for word in value.split(",") if word.strip()]
        pairs = [word.partition("=") for word in words if "=" in word]
        for name, _, _ in pairs:
            check_variable_name(name)
        self._set({name: text for name, _, text in pairs})
        if "ALL" not in (word.upper() for word in words):
            self.unused.append("that --export keeps your other variables out")

    def _set(self, variables: Mapping[str, str]) -> None:
        """Variables of the job, where the command line does not say otherwise."""
        self.request = replace(self.request, env=tuple({**variables, **dict(self.request.env)}.items()))

    def _apply(self, **wishes: Any) -> None:
        self.request = apply_wishes(self.request, wishes)

    def _read_of_queue(self, line: SbatchLine) -> None:
        """CPUs and memory, which only a queue books."""
        if self._now is None:
            self._leave_out(line)
        elif line.name == "mem":
            self._want(mem=None if line.value == "0" else _size(line.value))
        else:
            self._want(cpus=parse_count(line.value, "CPUs", least=1))

    def _read_share(self, line: SbatchLine) -> None:
        """CPUs or memory for each card, or memory for each CPU."""
        if self._now is None:
            self._leave_out(line)
            return
        wishes = self.request.wishes
        if line.name == "cpus-per-gpu":
            self._want(cpus=max(1, parse_count(line.value, "CPUs", least=1) * wishes.num_gpus))
        else:
            each = wishes.num_gpus if line.name == "mem-per-gpu" else wishes.cpus or 1
            self._want(mem=_size(line.value) * each or None)

    # -- cards ---------------------------------------------------------------------------------------------

    def _read_gpus(self, line: SbatchLine) -> None:
        """Their number for one node becomes ours; what only Slurm can count is passed on as it is."""
        others: list[str] = []
        if line.name == "gres":
            total, kind, others = parse_gres(line.value)
        else:
            found = [parse_gpus(item) for item in line.value.split(",")]
            total = sum(number for number, _ in found)
            kind = next((kind for _, kind in reversed(found) if kind), "")
        if others and not self._is_for_slurm:
            raise self._refusal(line, f"this machine has no {others[0].partition(':')[0][:40]} to give")
        if line.name == "gpus-per-socket" and not self._is_for_slurm:
            raise self._refusal(line, _WHY[line.name])
        if total is not None:
            self._want(num_gpus=total)
        is_spread = line.name == "gpus" and any(
            name in OF_TASKS and not _is_one(one) for name, one in self._lines.items()
        )
        if self._is_for_slurm and (is_spread or not _is_plain(line)):
            check_option(line.name, line.value)
            self._told[line.name] = line.value
        elif kind and self._now is not None:
            self._want(gpu_type=kind)
        elif kind:
            self.unused.append(f"the GPU type {kind}")


(_OF_REQUEUE,) = (field.word for field in FIELDS if "--requeue" in field.aliases)
_OF_QUEUE = ("cpus-per-task", "mem")
_SHARES = ("cpus-per-gpu", "mem-per-gpu", "mem-per-cpu")
_ONLY_QUEUED = {
    "array": "dibs runs a script once, not as an array",
    "signal": "the signal comes from a queue, which then starts it again",
}
_WHY = {
    "nodes": "this is one machine",
    "wait": "dibs returns at once; `dibs wait` waits",
    "clusters": "dibs sees one cluster",
    "input": "a job of dibs has no standard input",
    "gpus-per-socket": "dibs does not count by socket",
    "exclusive": "dibs gives out GPUs, not the whole machine",
    **dict.fromkeys(
        (name for name in OF_TASKS if name != "nodes"), "it runs once here, and no srun starts the other tasks"
    ),
}


def _depends_on_place(line: SbatchLine) -> bool:
    """Whether Slurm is told this in another way than it is done here."""
    if line.name in _OF_QUEUE:
        return line.value == "0"
    return use_of(line.name) in (Use.SIZE, Use.SITE) and not _is_plain(line)


def _is_plain(line: SbatchLine) -> bool:
    """Whether it is a number of cards of one type on one node, which dibs asks for in the same way."""
    is_counted = line.name in ("gpus", "gpus-per-node") or (line.name == "gres" and "gpu" in line.value)
    return is_counted and "," not in line.value


def _is_one(line: SbatchLine) -> bool:
    """`--nodes=1`, `--ntasks=1`: as it is here; of `1-4` nodes one is enough."""
    return line.name in OF_TASKS and line.value.partition("-")[0] == "1"


def _size(value: str) -> int:
    """Bytes; Slurm's numbers are megabytes."""
    return parse_size(f"{value}M" if value.isdigit() else value)


def _job(text: str) -> JobId:
    if not text.isdigit():
        raise BadInput(f"cannot use {text!r} in a script", remedy="name a job by its number, or use --after")
    return JobId(int(text))


def _image(value: str) -> str:
    """Pyxis writes `registry#name`, and `docker://` before it; a file is a path."""
    return value.removeprefix("docker://").replace("#", "/", 1)


def _mount(value: str) -> str:
    """`SRC:DST:FLAGS` of pyxis, where flags are joined with `+`: only `ro` has a meaning here."""
    source, _, rest = value.partition(":")
    target, _, flags = rest.partition(":")
    return f"{source}:{target or source}{':ro' * ('ro' in flags.split('+'))}"
