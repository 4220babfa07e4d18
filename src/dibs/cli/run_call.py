"""One call of `dibs run`: from its options to its exit status."""

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dibs.cli.output import one_line, say
from dibs.cli.requests import (
    asks_for_gpus,
    check_parameters,
    check_shell,
    choose_seed,
    command_of,
    is_piped,
    points,
    request_of,
    with_command,
)
from dibs.cli.run_report import JsonReport, RunReport
from dibs.errors import BadInput, NoGpu
from dibs.foreground.feed import JobList
from dibs.foreground.results import InAttemptFolders, JobFolders
from dibs.foreground.run_types import RunOptions
from dibs.foreground.runner import Runner
from dibs.foreground.runs import last_run, open_run
from dibs.gpus.detect import find_probe
from dibs.gpus.pool import pool_by_default, read_pool_file, resolve_pool
from dibs.inputs.checks import check_request, environment_size
from dibs.inputs.entries import Entry
from dibs.model.fields import Verb
from dibs.model.gpus import Pool
from dibs.model.jobs import NOTHING, Request, Wishes
from dibs.paths import state_folder
from dibs.policy.schedule import impossible
from dibs.settings import load_settings
from dibs.supervise.launcher import Zygote


class RunCall:
    """One call of `dibs run`: from the options to the exit status."""

    def __init__(
        self,
        options: dict[str, Any],
        words: Sequence[str],
        params: Any,
        command: Sequence[str] | None,
        zygote: Zygote | None,
    ) -> None:
        self._options = options
        self._words = words
        self._params = params
        self._command = command
        self._zygote = zygote
        self._environ = dict(os.environ)
        self._warnings: list[str] = []

    def execute(self) -> int:
        options = self._options
        self._check()
        flags = {} if options["min_free"] is None else {"min_free": options["min_free"]}
        settings = load_settings(self._environ, flags)
        self._defaults = request_of(options, Verb.RUN, NOTHING)
        resume = self._resume_name()
        lists, single = self._inputs()
        probe = find_probe(self._environ)
        text = options["gpus"]
        if options["gpus_file"]:
            text = read_pool_file(options["gpus_file"])
        try:
            meant = pool_by_default(settings.gpus, self._environ) if text is None else text
            pool = resolve_pool(meant, probe, self._environ)
        except NoGpu:
            if text is not None or options["num_gpus"] != 0:
                raise
            pool = Pool(cards=())  # none was asked for
        if not options["gpus_file"]:
            self._check_wishes(pool, settings.min_free)
        elif probe is not None:  # the file may name more GPUs later, but not more than there are
            self._check_wishes(resolve_pool("all", probe, self._environ), settings.min_free)
        lists, single = self._with_images(lists, single, pool, settings.container_engine)
        run = open_run(self._environ, output_dir=options["output_dir"], resume=resume, fresh=options["fresh"])
        results = (
            JobFolders(root=os.path.abspath(options["output_dir"]))
            if options["output_dir"]
            else InAttemptFolders()
        )
        display: RunReport | JsonReport
        if options["as_json"]:
            display = JsonReport()
        else:
            display = RunReport(
                self._environ, raw=options["raw"], quiet=options["quiet"], single=single is not None
            )
        for warning in self._warnings:
            say(f"dibs: {warning}")
        display.begin(run.name, pool, probe is not None)
        run_options = RunOptions(
            lists=lists,
            single=single,
            pool=pool,
            gpus_file=options["gpus_file"],
            probe=probe,
            results=results,
            wait=not options["no_wait"],
            fail_fast=options["fail_fast"],
            respect_processes=not options["ignore_processes"],
            settings=settings,
            environment=self._environ,
            **({"max_failures": options["max_failures"]} if options["max_failures"] else {}),
        )
        summary = Runner(run, run_options, display, self._environ, self._zygote).execute()
        display.finish(summary, self._resume_hint(run.name))
        if summary.errors:
            raise summary.errors[0]
        return summary.exit_status if single is None else summary.single_exit_status

    def _check(self) -> None:
        """Refuse words and combinations that cannot be meant."""
        options = self._options
        self._command = command_of(options, self._words, self._command, "run")
        if options["on"] not in (None, "local"):
            raise BadInput(
                "`dibs run` runs commands here and now, and nowhere else",
                remedy="`dibs add --on slurm -- COMMAND` hands them to Slurm",
            )
        if options["gpus"] is not None and options["gpus_file"]:
            raise BadInput("--gpus and --gpus-file were both given", remedy="one of them names the GPUs")
        if options["gpus"] is not None and not options["gpus"].strip():
            raise BadInput(
                "--gpus names no GPU", remedy="name GPUs like 0,1, or leave it out for all that are free"
            )
        check_parameters(options, self._params, self._command, "run")
        check_shell(options, self._environ)
        if options["fresh"] and (options["resume"] is not None or not options["output_dir"]):
            raise BadInput("--fresh starts over in an --output-dir", remedy="give the folder, and no --resume")

    def _resume_name(self) -> str | None:
        resume: str | None = self._options["resume"]
        if resume == "-":  # `--resume -`: the dash is the pipe, not a run's name
            self._options["inputs"] = (*self._options["inputs"], "-")
            resume = ""
        if resume == "" and not self._options["output_dir"]:
            last = last_run(self._environ)
            if last is None:
                raise BadInput("cannot resume: no run was begun in this folder", remedy=self._where_runs_are())
            name, output_dir = last
            self._options["output_dir"] = output_dir or None
            resume = "" if output_dir else name
        if resume and self._options["output_dir"]:
            raise BadInput("--resume NAME and --output-dir were both given", remedy="leave out the name")
        if resume and ("/" in resume or resume.startswith(".")):
            raise BadInput(f"cannot use {resume!r} as a run's name", remedy="it looks like 1115-093142")
        if resume and not os.path.exists(f"{self._runs()}/{resume}/store.db"):
            raise BadInput(
                f"cannot resume {resume!r}: there is no run of that name", remedy=self._where_runs_are()
            )
        return resume

    def _runs(self) -> str:
        return f"{state_folder(self._environ)}/runs"

    def _where_runs_are(self) -> str:
        return f"its name was printed when the run began; runs are folders in {one_line(self._runs(), 500)}"

    def _inputs(self) -> tuple[list["JobList"], Request | None]:
        """The job lists, and the one command that keeps this terminal."""
        options = self._options
        size = environment_size(self._environ)
        lists = [self._list_in(path, size) for path in options["files"]]
        single = None
        if self._command is not None and self._params:
            lists.append(JobList(self._points(self._command), look_ahead=256))
        elif self._command is not None:
            single = self._single(self._command, size)
        wants_stdin = "-" in options["inputs"]
        if not (wants_stdin or lists or single or options["resume"] is not None):
            if os.isatty(0):
                raise BadInput(
                    "there is nothing to run",
                    remedy="pipe commands in, or: dibs run -f FILE · dibs run -- COMMAND",
                )
            wants_stdin = True
        if options["resume"] is not None and not (lists or single):
            wants_stdin = wants_stdin or is_piped()
        if wants_stdin:
            if single is not None:
                raise BadInput(
                    "stdin cannot be a job list and the command's input", remedy="leave out the -, or use -f"
                )
            lists.append(self._list_in("-", size))
        if single is not None and lists:
            lists.append(JobList([single]))  # among others it is one of the list, without the terminal
            single = None
        return lists, single

    def _list_in(self, path: str, size: int) -> JobList:
        """The job list in a file; `-` is standard input."""
        from dibs.inputs.sbatch import ScriptReading  # 4 ms that a single command does not pay
        from dibs.inputs.sources import read_file, read_stream

        shell = self._options["shell"]
        if path == "-":
            # Not sys.stdin: a thread that still waits for a line would abort the interpreter at its end.
            stdin = open(0, "rb", closefd=False)  # noqa: SIM115
            source = read_stream(stdin, self._defaults, shell, environment_size=size)
            return JobList(source.entries, is_quick=False)
        reading = ScriptReading(asks_for_gpus=asks_for_gpus(self._options), ignored=self._options["ignore"])
        source = read_file(path, self._defaults, shell, environment_size=size, script_reading=reading)
        self._warnings += source.warnings
        is_generator = path.endswith(".py")
        is_file = os.path.isfile(path) and not is_generator
        return JobList(source.entries, look_ahead=64 if is_generator else 10_000, is_quick=is_file)

    def _with_images(
        self, lists: list["JobList"], single: Request | None, pool: Pool, engine: str
    ) -> tuple[list["JobList"], Request | None]:
        """The same jobs, with the engines of those that run in containers; their images are pulled first."""
        # Lines of a list may name images that the options do not.
        if not lists and not (single and (single.image or single.mounts or single.image_pull)):
            return lists, single
        from dibs.foreground.images import RunImages  # a single command without an image does not pay for it

        images = RunImages(
            self._environ, pool, say, default_engine=engine.removeprefix("auto"), workdir=os.getcwd()
        )
        lists = [replace(one, entries=images.entries(one.entries)) for one in lists]
        return lists, None if single is None else images.ready(single)

    def _single(self, words: Sequence[str], size: int) -> Request:
        request = with_command(self._defaults, words, self._options["shell"])
        check_request(request, size)
        return request

    def _points(self, words: Sequence[str]) -> Iterator["Entry"]:
        from dibs.sweeps.grid import Grid

        options = self._options
        seed = choose_seed(options, self._warnings)
        grid = Grid.of(self._params)
        return points(self._defaults, words, grid, options["shell"], seed=seed, samples=options["samples"])

    def _check_wishes(self, pool: Any, min_free: int) -> None:
        """What no line of this call could ever get is refused before anything starts."""
        wishes, remedy = self._defaults.wishes, "`dibs gpus` shows the GPUs there are"
        if problem := impossible(wishes, pool, keep_free=min_free):
            if not impossible(wishes, pool):
                remedy = "--min-free changes how many GPUs are left to others"
            raise BadInput(f"a job like this could never start: {problem}", remedy=remedy)
        for gpu_id in wishes.prefer:
            if impossible(Wishes(num_gpus=0, only=(gpu_id,)), pool):
                there = f"not among GPU {pool.shown}" if pool.cards else "not among the GPUs: there are none"
                raise BadInput(f"cannot prefer GPU {gpu_id}: it is {there}", remedy=remedy)

    def _resume_hint(self, name: str) -> str:
        where = (
            f"--output-dir {shlex.quote(self._options['output_dir'])} --resume"
            if self._options["output_dir"]
            else f"--resume {name}"
        )
        return f"the same command with `{where}` runs only what has not succeeded"
