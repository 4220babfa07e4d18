"""`schedule "train.py foo --bar 5"`: start a task as soon as its GPUs are free, among all users of the machine.

Its options are those of the tool called Scheduler; docs/compat.md has what differs.
"""

import argparse
import os
import random
import re
import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dibs.compat.common import Parser, PlainDisplay, console, how_it_failed, tell
from dibs.engine.watch.survey import GpuUse, pid_of
from dibs.errors import BadInput, NoGpu
from dibs.foreground.gpus import survey_gpus
from dibs.foreground.run_types import RunOptions
from dibs.foreground.runner import Runner
from dibs.foreground.runs import open_run
from dibs.gpus.detect import find_probe
from dibs.gpus.pool import resolve_pool
from dibs.gpus.probe import Probe, answer_within
from dibs.inputs.checks import check_request, environment_size
from dibs.leases.files import Holder
from dibs.leases.folder import lease_folder
from dibs.leases.host_pool import HostPool, read_host_pool, write_host_pool
from dibs.model.events import Ended
from dibs.model.gpus import Pool
from dibs.model.jobs import Cause, Command, Request, Wishes
from dibs.policy.schedule import impossible
from dibs.supervise import folder

_PROG = "schedule"
_DECLARED = 4  # GPUs that are assumed where there is no driver, as in the original
_MOST = 4096
# The task's first word, behind variables that are set for it, where nothing of it needs a shell to be read.
_FIRST_WORD = re.compile(r"\s*(?:[A-Za-z_]\w*=[\w./:,+-]*\s+)*(?P<word>[\w./+@%,-]+)(?=\s|$)")


def main() -> None:
    """The console script."""
    console(_PROG, _run)


def _run(argv: Sequence[str]) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    host = _Host(dict(os.environ))
    has_nothing_to_do = True
    status = 0
    if options.init is not None:
        host.set_pool(options.init)
        has_nothing_to_do = False
    if options.release_gpu is not None:
        status = host.make_available(options.release_gpu)
        has_nothing_to_do = False
    if options.status:
        print("\n".join(host.status()), flush=True)
        has_nothing_to_do = False
    if options.task is not None:
        return _Task(host, options).execute()
    if has_nothing_to_do:
        parser.print_usage(sys.stderr)
        tell(_PROG, "error: there is no task to start; quote it: schedule 'train.py foo --bar 5'")
        return 2
    return status


class _Host:
    """The GPUs of this machine as all its users have agreed on them."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = environ
        self.probe: Probe | None = find_probe(environ)
        self._leases = lease_folder(environ)

    @property
    def agreed(self) -> HostPool | None:
        """What was set with -i."""
        return read_host_pool(self._leases)

    def set_pool(self, numbers: Sequence[int]) -> None:
        """Put in force what -i says."""
        count, *unavailable = numbers
        if not 1 <= count <= _MOST:
            raise BadInput(f"cannot use {count} as the count of GPUs", remedy=f"it is a number from 1 to {_MOST}")
        for number in unavailable:
            if not 0 <= number < count:
                raise BadInput(
                    f"cannot mark GPU {number} as unavailable: {count} GPUs have the numbers 0 to {count - 1}",
                    remedy="the first number is the count, the others are GPUs",
                )
        if self.probe is not None:
            shown = len(answer_within(self.probe.read).gpus)
            if count > shown:
                raise BadInput(
                    f"cannot use {count} GPUs: the driver shows {shown}", remedy="`dibs gpus` shows them"
                )
        self._write(count, unavailable)

    def make_available(self, numbers: Sequence[int]) -> int:
        """Undo what -i said about these GPUs, and say what else keeps them. 1 when a job does."""
        agreed = self.agreed
        known = self.numbers()
        for number in numbers:
            if number not in known:
                raise _unknown(number, known)
        status = 0
        for number in dict.fromkeys(numbers):
            was_marked = agreed is not None and number in agreed.unavailable
            if agreed is not None and was_marked:
                agreed = self._write(agreed.count, [one for one in agreed.unavailable if one != number])
                tell(_PROG, f"GPU {number} is available again")
            if holders := self._holders(number):
                names = "; ".join(f"job {one.job or '?'} of {one.user}, pid {pid_of(one)}" for one in holders)
                tell(_PROG, f"GPU {number} is held by {names}; `dibs gpus release {number}` ends a job of yours")
                status = 1
            elif not was_marked:
                tell(_PROG, f"GPU {number} is free")
        return status

    def status(self) -> list[str]:
        """user/GPU/taskPID/start of every GPU in use, in columns."""
        rows = [("user", "GPU", "taskPID", "start")]
        for use in self._uses():
            rows += [
                (
                    holder.user,
                    use.key if use.index is None else str(use.index),
                    str(pid_of(holder) or "?"),
                    _moment(holder.since) if holder.since else "?",
                )
                for holder in use.holders
            ]
        if (agreed := self.agreed) and agreed.unavailable:
            names = ", ".join(map(str, sorted(set(agreed.unavailable))))
            tell(_PROG, f"GPU {names} marked as unavailable with -i")
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return [
            "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows
        ]

    def pool(self, forced: int | None) -> Pool:
        """The GPUs that a task may use now. The forced one must at least exist."""
        known = self.numbers()
        if forced is not None and forced not in known:
            raise _unknown(forced, known)
        agreed = self.agreed
        usable = [number for number in known if not (agreed and number in agreed.unavailable)]
        if not usable:
            raise NoGpu(
                "cannot start the task: every GPU was marked as unavailable", remedy="`schedule -rg 0` undoes it"
            )
        if self.probe is not None:
            everything = resolve_pool("auto", self.probe, self.environ)
            cards = tuple(card for card in everything.cards if card.gpu.index in usable)
            return replace(everything, cards=cards)
        visible = [number for number in usable if self._is_visible(number)]
        return resolve_pool(",".join(map(str, visible or usable)), None, self.environ)

    def remedy_for(self, wishes: Wishes) -> str:
        """What to try where the GPUs that may be used could never satisfy these wishes."""
        if wishes.num_gpus > (count := len(self.numbers())):
            return f"-gc is at most {count} here"
        if (agreed := self.agreed) is not None and agreed.unavailable:
            marked = list(map(str, sorted(agreed.unavailable)))
            return f"`schedule -rg {' '.join(marked)}` makes GPU {', '.join(marked)} available"
        return "`dibs gpus` shows the GPUs there are"

    def numbers(self) -> list[int]:
        """Of all GPUs, also of those that are unavailable now."""
        if (agreed := self.agreed) is not None:
            return list(range(agreed.count))
        if self.probe is not None:
            return [seen.gpu.index for seen in answer_within(self.probe.read).gpus]
        return list(range(_DECLARED))

    def _is_visible(self, number: int) -> bool:
        """Whether an outer job or the user has left this GPU to us."""
        limits = [self.environ.get(name) for name in ("DIBS_GPUS", "CUDA_VISIBLE_DEVICES")]
        return all(limit is None or str(number) in limit.replace(" ", "").split(",") for limit in limits)

    def _uses(self) -> list[GpuUse]:
        uses, failure, _ = survey_gpus(self.environ)
        if failure is not None:
            raise failure
        return uses

    def _holders(self, number: int) -> tuple[Holder, ...]:
        return next((use.holders for use in self._uses() if use.index == number), ())

    def _write(self, count: int, unavailable: Sequence[int]) -> HostPool:
        pool = HostPool(count=count, unavailable=tuple(dict.fromkeys(unavailable)), at=time.time())
        write_host_pool(self._leases, pool)
        return pool


class _Task:
    """One task, from its options to its exit code."""

    def __init__(self, host: _Host, options: argparse.Namespace) -> None:
        self._host = host
        self._options = options

    def execute(self) -> int:
        options, environ = self._options, self._host.environ
        wishes = self._wishes()
        request = Request(command=self._command(), wishes=wishes)
        check_request(request, environment_size(environ))
        pool = self._host.pool(options.forced_gpu)
        if problem := impossible(wishes, pool):
            remedy = self._host.remedy_for(wishes)
            raise BadInput(f"the task could never start: {problem}", remedy=remedy)
        display = _Display(options.task, options.verbose)
        run_options = RunOptions(
            single=request,
            pool=pool,
            probe=self._host.probe,
            environment=environ,
        )
        summary = Runner(open_run(environ), run_options, display, environ).execute()
        if summary.errors:
            raise summary.errors[0]
        return summary.single_exit_status

    def _wishes(self) -> Wishes:
        options = self._options
        if options.gpu_count < 1:
            raise BadInput(f"cannot start a task on {options.gpu_count} GPUs", remedy="-gc is a number from 1")
        if options.forced_gpu is not None and options.gpu_count > 1:
            raise BadInput("-fg names one GPU, but -gc wants more", remedy="leave out one of them")
        return Wishes(
            num_gpus=options.gpu_count,
            only=() if options.forced_gpu is None else (str(options.forced_gpu),),
            prefer=() if options.prefered_gpu is None else self._prefer(options.prefered_gpu),
        )

    def _prefer(self, number: int) -> tuple[str, ...]:
        known = self._host.numbers()
        if number not in known:
            there = ", ".join(map(str, known))
            tell(_PROG, f"there is no GPU {number} to prefer: there are GPU {there}; any free one is taken")
        return preferred_order(number, known)

    def _command(self) -> Command:
        """A line for the shell. Files are opened by the task itself: they are whole even if we are killed."""
        options = self._options
        task = options.task.strip()
        if not task:
            raise BadInput("the task is empty", remedy="quote the command to start")
        out, err = (self._file(path) for path in (options.out, options.err))
        lines = []
        if out:
            lines.append(f"exec >{shlex.quote(out)}")
        if err:
            lines.append("exec 2>&1" if out == err else f"exec 2>{shlex.quote(err)}")
        lines.append(_found_here(task, self._host.environ))
        return replace(Command.line("\n".join(lines)), shown=task)

    def _file(self, path: str | None) -> str:
        """The file to write to, absolute; empty for the caller's own stream."""
        if not path:
            return ""
        path = os.path.realpath(path)
        try:
            with open(path, "ab"):
                pass
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise BadInput(
                f"cannot write to {path}: {reason}", remedy="name another file with -o or -e"
            ) from error
        return path


def preferred_order(number: int, known: Sequence[int]) -> tuple[str, ...]:
    """The preferred GPU, then the others in random order, as -pg promises; only the others where it is unknown."""
    others = [one for one in known if one != number]
    order = random.sample(others, len(others))
    return tuple(map(str, [number, *order] if number in known else order))


def _found_here(task: str, environ: Mapping[str, str]) -> str:
    """The task with its program found in this folder where the PATH has none of that name.

    The document says "train.py foo": a script of this folder, and often one that is not executable.
    """
    match = _FIRST_WORD.match(task)
    if not match:
        return task
    word, place = match["word"], match.start("word")
    path = environ.get("PATH", os.defpath)
    if not os.path.isfile(word) or ("/" not in word and shutil.which(word, path=path)):
        return task
    if word.endswith(".py") and not _runs_by_itself(word):
        python = shutil.which("python", path=path) or shutil.which("python3", path=path) or sys.executable
        return f"{task[:place]}{shlex.quote(python)} {task[place:]}"
    return task if "/" in word else f"{task[:place]}./{task[place:]}"


def _runs_by_itself(script: str) -> bool:
    if not os.access(script, os.X_OK):
        return False
    with open(script, "rb") as file:
        return file.read(2) == b"#!"


def _unknown(number: int, known: Sequence[int]) -> BadInput:
    there = ", ".join(map(str, known))
    return BadInput(f"cannot find GPU {number}: there are GPU {there}", remedy="`schedule -i COUNT` changes that")


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


class _Display(PlainDisplay):
    def __init__(self, task: str, verbose: bool) -> None:
        super().__init__(_PROG)
        self._task = task
        self._verbose = verbose

    def ended(self, event: Ended) -> None:
        outcome, attempt = event.outcome, event.attempt
        if outcome.cause is Cause.START_ERROR or (outcome.message and outcome.cause is Cause.LOST):
            self.say(how_it_failed(outcome))
        if not self._verbose:
            return
        record = folder.record_of(attempt.folder) or {}
        names = ",".join(f"cuda{claim.index}" for claim in attempt.claims)
        how = f"exit code {outcome.exit_code}" if outcome.signal is None else f"signal {outcome.signal}"
        self.say(
            f"task `{self._task}` completed: {how}, GPU {names}, PID {record.get('pid', '?')},"
            f" start {_moment(attempt.opened_at)}, end {_moment(time.time())}"
        )


def _parser() -> Parser:
    parser = Parser(prog=_PROG)
    parser.add_argument(
        "task",
        nargs="?",
        help="The quoted task with arguments which will be started on free GPUs as soon as possible.",
    )
    parser.add_argument(
        "-gc", "--gpu_count", type=int, default=1, help="The count of required GPUs for specified task."
    )
    parser.add_argument(
        "-i",
        "--init",
        type=int,
        nargs="+",
        help="Sets the GPUs of this machine for all its users. List of numbers is expected, where first number is"
        " total count of GPUs and the rest of the numbers denotes unavailable GPUs. e.g -i 5 3 4 means that total"
        " count of GPUs is 5 and GPU 3 and 4 are currently unavailable.",
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="Prints info about the process, when the task is completed."
    )
    parser.add_argument(
        "-o",
        "--out",
        nargs="?",
        help="The name of the file, which will be used to store stdout. The default file is sys.stdout.",
    )
    parser.add_argument(
        "-e",
        "--err",
        nargs="?",
        help="The name of the file, which will be used to store stderr. The default file is sys.stderr.",
    )
    parser.add_argument(
        "-pg",
        "--prefered_gpu",
        type=int,
        help="If possible, prefered GPU is assigned to the task, otherwise is assigned random free GPU.",
    )
    parser.add_argument("-fg", "--forced_gpu", type=int, help="Wait until specified GPU is free.")
    parser.add_argument(
        "-s", "--status", action="store_true", help="Show info about GPU usage - user/GPU/taskPID/start"
    )
    parser.add_argument(
        "-rg",
        "--release_gpu",
        type=int,
        nargs="+",
        help="Releases GPUs according their indices. e.g -rg 0 2 will release GPU 0 and 2.",
    )
    return parser
