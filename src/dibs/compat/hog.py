"""`hog --job_file foo.txt --gpus 1,2,3`: a list of jobs over GPUs, with a folder for each job.

Its options and folders are those of gpu-hog's README; docs/compat.md has what differs.
"""

import contextlib
import logging
import os
import re
from collections.abc import Mapping, Sequence

from dibs.compat.common import Parser, PlainDisplay, console, gpus_of, how_it_failed, plain_lines, printable
from dibs.errors import BadInput
from dibs.foreground.feed import JobList
from dibs.foreground.results import JobFolders
from dibs.foreground.run_types import RunOptions
from dibs.foreground.runner import Runner
from dibs.foreground.runs import open_run
from dibs.gpus.detect import find_probe
from dibs.gpus.pool import read_pool_file, resolve_pool
from dibs.inputs.checks import environment_size
from dibs.inputs.entries import open_input
from dibs.inputs.generator import load_generator
from dibs.model.events import Ended, Started
from dibs.model.jobs import Command, Job, Request
from dibs.model.units import show_duration

_PROG = "hog"
_LOOK_AHEAD = 64  # jobs that are taken from a yielder before there is a GPU for them
_log = logging.getLogger(_PROG)


def main() -> None:
    """The console script."""
    console(_PROG, _run)


def _run(argv: Sequence[str]) -> int:
    environ = dict(os.environ)
    options = _parser().parse_args(argv)
    if "/" in options.prefix or "\0" in options.prefix:
        raise BadInput(
            f"cannot use {options.prefix!r} as a prefix", remedy="it is the beginning of a folder's name"
        )
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s: %(message)s", level=logging.INFO)
    jobs = _jobs(options.job_file, options.job_yielder, environ)
    if options.gpus is not None and not options.gpus.strip():
        raise BadInput("--gpus names no GPU", remedy="name GPUs like 0,1,2")
    probe = find_probe(environ)
    pool = resolve_pool(read_pool_file(options.gpu_file) if options.gpu_file else options.gpus, probe, environ)
    run = open_run(environ, output_dir=options.output_dir, fresh=True)
    results = JobFolders(
        root=os.path.abspath(options.output_dir),
        prefix=options.prefix,
        first=0,
        stdout="{}.OUT",
        stderr="{}.ERR",
        info="INFO",
    )
    _clear_earlier_jobs(results)
    run_options = RunOptions(
        lists=[jobs],
        pool=pool,
        gpus_file=options.gpu_file,
        probe=probe,
        results=results,
        # The user named the GPUs, so processes on them are ignored; leases are not.
        respect_processes=False,
        environment=environ,
    )
    summary = Runner(run, run_options, _Display(results), environ).execute()
    _log.info(
        "%d succeeded, %d failed, %d not started, in %s",
        summary.succeeded,
        summary.failed + summary.stopped,
        summary.left,
        show_duration(summary.seconds),
    )
    if summary.errors:
        raise summary.errors[0]
    return summary.exit_status


def _jobs(job_file: str | None, job_yielder: str | None, environ: Mapping[str, str]) -> JobList:
    size = environment_size(environ)
    if job_yielder is not None:
        defaults = Request(command=Command((), ""))
        entries = load_generator(job_yielder, defaults, environment_size=size)
        return JobList(entries, look_ahead=_LOOK_AHEAD, is_quick=False)
    assert job_file is not None
    return JobList(
        plain_lines(open_input(job_file), "bash", name=job_file, environment_size=size),
        is_quick=os.path.isfile(job_file),
    )


def _clear_earlier_jobs(results: JobFolders) -> None:
    """Remove what an earlier hog wrote about its jobs: a SUCCESS that is not of this run would be a lie.

    Files that the jobs themselves left in those folders stay.
    """
    cleared = 0
    for name in os.listdir(results.root):
        folder = f"{results.root}/{name}"
        number = name.removeprefix(results.prefix)
        if not name.startswith(results.prefix) or not re.fullmatch("[0-9]+", number) or os.path.islink(folder):
            continue
        if not os.path.isfile(f"{folder}/{results.info}"):
            continue  # not one of ours
        for ours in (results.info, "SUCCESS", "FAILURE", f"{name}.OUT", f"{name}.ERR"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{folder}/{ours}")
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        cleared += 1
    if cleared:
        _log.info("cleared the results of %d jobs of an earlier run in %s", cleared, results.root)


def _parser() -> Parser:
    parser = Parser(
        prog=_PROG,
        description="Run many jobs on several GPUs, each with a folder for its output.",
        epilog="A GPU given twice runs two jobs at once: --gpus 0,0,1,2,2,2.",
    )
    jobs = parser.add_mutually_exclusive_group(required=True)
    jobs.add_argument("--job_file", metavar="FILE", help="file to read jobs from, one a line")
    jobs.add_argument("--job_yielder", metavar="FILE.py", help="file with a yielder() that generates jobs")
    gpus = parser.add_mutually_exclusive_group(required=True)
    gpus.add_argument("--gpus", metavar="IDS", help="comma-separated IDs of GPUs to use")
    gpus.add_argument("--gpu_file", metavar="FILE", help="the same in a file that may be edited while hog runs")
    parser.add_argument(
        "--output_dir", default="hog_run", metavar="DIR", help="where the jobs' folders go (default: hog_run)"
    )
    parser.add_argument("--prefix", default="job_", help="beginning of a job folder's name (default: job_)")
    return parser


class _Display(PlainDisplay):
    """Everything through `logging`; the jobs' own output is in their folders."""

    follows_output = False

    def __init__(self, results: JobFolders) -> None:
        super().__init__(_PROG)
        self._results = results

    def started(self, event: Started) -> None:
        shown = event.job.request.command.shown
        _log.info("%s started on GPU %s: %s", self._name(event.job), gpus_of(event), printable(shown))

    def ended(self, event: Ended) -> None:
        name, outcome = self._name(event.job), event.outcome
        if outcome.cause is None:
            _log.info("%s succeeded in %s", name, show_duration(outcome.seconds))
        else:
            _log.error("%s failed: %s", name, how_it_failed(outcome))

    def say(self, sentence: str) -> None:
        _log.warning("%s", printable(sentence))

    def _name(self, job: Job) -> str:
        return f"{self._results.prefix}{job.id - 1 + self._results.first}"
