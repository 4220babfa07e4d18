"""`dibs sweep`: a search over parameters, in the queue. Its verbs look at sweeps and change them."""

import importlib
import os
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import click

from dibs.cli import options as shared
from dibs.cli.commands import TakesCommand
from dibs.cli.field_options import GROUP_OF, field_options, queue_request_of
from dibs.cli.options import count
from dibs.model.fields import ON_SLURM, Verb

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


_EPILOG = """\b
Examples:
  dibs sweep "python train.py --lr {lr} --bs {bs}" -p lr 1e-4..1e-1:log -p bs 32 64 128 \\
      --samples 40 --metric val_loss --goal min
  dibs sweep -p lr 0.1 0.01 -p seed 1..5 -- python train.py --lr {lr} --seed {seed}
  dibs sweep sweep.yaml --samples 100       the same as a file, or one of Weights & Biases
  dibs sweep ... --dry-run                  how many points there are, and the first commands
  dibs sweep ... --on slurm --parallel 50   its trials on the cluster
  dibs sweep show                           the best trials, what mattered, the command to paste
  dibs sweep resume --samples 80            more of the same search

\b
Values for -p:
  32 64 128       these              1e-4..1e-1:log   a range on a logarithmic scale
  0.5..0.99       a range            1..8             whole numbers
  0..1:0.25       in steps           none             leaves the flag out of the command
  0.5..0.99 if optimizer=sgd         only where it applies

\b
A trial tells its result with: echo "val_loss=0.31 step=5" >> "$DIBS_METRICS"
A command or file that is called ls, show, best and so on stands behind --.
"""

# What stands behind `dibs sweep` and is no command: loaded when it is used.
_VERBS = {
    "ls": ("dibs.cli.sweep_look:ls", "List sweeps."),
    "show": ("dibs.cli.sweep_look:show", "Show the best trials, what mattered and what failed."),
    "best": ("dibs.cli.sweep_look:best", "Print the best command line, ready to paste."),
    "results": ("dibs.cli.sweep_look:results", "Print all trials, as a table, CSV or JSON."),
    "wait": ("dibs.cli.sweep_follow:wait", "Follow a sweep until it ends."),
    "stop": ("dibs.cli.sweep_act:stop", "End a sweep and its trials."),
    "hold": ("dibs.cli.sweep_act:hold", "Start no more trials until it is released."),
    "release": ("dibs.cli.sweep_act:release", "Let a held sweep go on."),
    "resume": ("dibs.cli.sweep_act:resume", "Go on with a sweep that was held, stopped or finished."),
    "retry-failed": ("dibs.cli.sweep_act:retry_failed", "Run the failed trials once more."),
    "edit": ("dibs.cli.sweep_act:edit", "Change how many trials run at a time."),
    "rm": ("dibs.cli.sweep_act:remove", "Forget a sweep that is over."),
}

# What `dibs sweep --help` shows together.
_PARTS = {
    "What is tried": ("_params", "where", "method", "sampler", "shuffle", "seed", "samples", "rerun"),
    "Results": ("metric", "goal", "from_log", "result_file", "prune", "prune_after"),
    "Good manners": ("parallel", "dry_run", "wait", "quiet", "as_json"),
}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _VERBS:
            return None
        module, _, attribute = _VERBS[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


class _SweepCommand(TakesCommand):
    """Makes a new sweep, unless the first word is one of the verbs."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in _VERBS:
            return _Verbs("sweep").make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Forty options in one list would be read by nobody."""
        width = max(map(len, _VERBS))
        with formatter.section("Look and change"):
            formatter.write_dl([(name.ljust(width), about) for name, (_, about) in _VERBS.items()])
        parts = {**{name: part for part, names in _PARTS.items() for name in names}, **GROUP_OF}
        sections: dict[str, list[tuple[str, str]]] = {part: [] for part in (*_PARTS, "Every trial", ON_SLURM)}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                sections[parts.get(param.name or "", "Every trial")].append(record)
        for part, records in sections.items():
            with formatter.section(part):
                formatter.write_dl(records)


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The verbs where one may stand, and files."""
    from click.shell_completion import CompletionItem

    verbs = {} if ctx.meta.get("words") else _VERBS
    found = [CompletionItem(name, help=about) for name, (_, about) in verbs.items() if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


@click.command(
    cls=_SweepCommand,
    epilog=_EPILOG,
    options_metavar='[OPTIONS] "COMMAND" | FILE | -- COMMAND...',
)
@click.argument("inputs", nargs=-1, metavar="", shell_complete=_complete)
@click.option(
    "-p",
    "--param",
    "_params",
    metavar="NAME VALUES...",
    help="Fill {NAME} in the command: values, or a range; again for more.",
)
@click.option("--where", multiple=True, metavar="EXPR", help="Only points for which it holds: 'bs*width < 8192'.")
@click.option(
    "--method",
    type=click.Choice(["grid", "random", "adaptive"]),
    help="All points, points by chance, or chosen by the results so far.",
)
@click.option(
    "--sampler", type=click.Choice(["tpe", "gp", "cmaes", "qmc"]), help="How an adaptive search chooses (tpe)."
)
@click.option("--shuffle", is_flag=True, help="Take the points of a grid in random order.")
@click.option("--seed", type=count(0, 2**31 - 1), metavar="N", help="The same seed tries the same points.")
@click.option("--samples", type=count(1), metavar="N", help="How many points are tried.")
@click.option("--rerun", is_flag=True, help="Run points again that an earlier sweep has run.")
@click.option(
    "--metric",
    multiple=True,
    metavar="NAME",
    help="What trials tell of themselves: val_loss, or acc:max; again for several.",
)
@click.option("--goal", type=click.Choice(["min", "max"]), help="Whether less or more of it is better (min).")
@click.option("--from-log", metavar="REGEX", help="Read it from the output: 'loss (?P<loss>[0-9.]+)'.")
@click.option("--result-file", metavar="FILE", help="Read it from a file that each trial writes: JSON, or a=b.")
@click.option(
    "--prune",
    type=click.Choice(["halving", "hyperband", "median"]),
    help="End trials early that fall behind the others.",
)
@click.option("--prune-after", type=count(1), metavar="N", help="Prune no trial before it has told N steps (1).")
@click.option("--parallel", type=count(1), metavar="N", help="At most so many trials at a time.")
@field_options(Verb.SWEEP)
@click.option("-J", "--name", default="", metavar="NAME", help="What the sweep is called.")
@shared.SNAPSHOT
@shared.SHELL
@click.option("--dry-run", is_flag=True, help="Start nothing; say how many points there are, and show the first.")
@click.option("--wait", is_flag=True, help="Follow it to its end.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the number.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
@click.pass_context
def sweep(ctx: click.Context, /, **options: Any) -> int:
    """Try a command with many values, and find the best: a search that runs in the queue."""
    given = {name for name in options if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE}
    return _Sweep(options, given).execute(ctx.meta["command"], ctx.meta["params"])


class _Sweep:
    """One call of `dibs sweep`: from options to a number."""

    def __init__(self, options: dict[str, Any], given: Set[str]) -> None:
        self._options = options
        self._given = given
        self._environ = dict(os.environ)

    def execute(self, command: Sequence[str] | None, params: Sequence[tuple[str, Sequence[str]]]) -> int:
        from dibs.cli.output import one_line, say
        from dibs.cli.sweep_spec import plan_of, slips
        from dibs.cli.sweep_words import has_chance, searched
        from dibs.client.client import connect
        from dibs.client.sweeps import add_sweep, check_sweep
        from dibs.inputs.code import describe_code

        options = self._options
        plan = plan_of(options, command, params)
        spec, defaults = plan.spec, self._defaults(plan.wishes)
        if plan.is_chosen and not (options["quiet"] or options["dry_run"]):
            change = "--method and --seed change" if has_chance(spec) else "--method changes"
            say(f"dibs: {searched(spec)} ({change} that)")
        if plan.is_one_by_one:
            path = one_line(spec["results"]["path"], 80)
            say(f"dibs: one trial at a time, as all write {path}; with result-%j.json each has a file of its own")
        for name in slips(spec):
            say(f"dibs: {name} is 0 or 1, as its range has whole ends; 0.0..1.0 has what lies between, too")
        client = connect(os.environ)
        if options["dry_run"]:
            return self._show_check(spec, check_sweep(client, spec, defaults=defaults))
        code = describe_code(defaults["workdir"], self._environ)
        if options["snapshot"]:
            check_sweep(client, spec, defaults=defaults)
            spec, defaults, code = self._in_snapshot(spec, defaults, code)
        key = os.urandom(16).hex()
        added = add_sweep(client, spec, key=key, defaults=defaults, environment=self._environ, code=code)
        self._tell(spec, added)
        if not options["wait"]:
            return 0
        from dibs.cli.sweep_follow import follow

        return follow(client, added["id"], quiet=options["quiet"], as_json=options["as_json"])

    def _defaults(self, wishes: Mapping[str, object]) -> dict[str, Any]:
        """What every trial wants. The wishes of a file count where no option says otherwise."""
        from dataclasses import replace

        from dibs.client.requests import NOTHING, difference
        from dibs.inputs.wishes import LISTED, apply_wishes
        from dibs.model.places import LOCAL

        request = queue_request_of(self._options, Verb.SWEEP)
        if wishes:
            # Here nobody asks for a partition.
            said = {*self._given, *(GROUP_OF if self._options["on"] == LOCAL else ())}
            unsaid = {
                word: wish
                for word, wish in wishes.items()
                if word == "env" or word not in LISTED or LISTED[word].word not in said
            }
            wished = apply_wishes(replace(request, env=()), unsaid)
            request = replace(wished, env=tuple({**dict(wished.env), **dict(request.env)}.items()))
        return difference(request, NOTHING)

    def _in_snapshot(
        self, spec: dict[str, Any], defaults: dict[str, Any], code: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """The same sweep in a copy of the code as it is now."""
        from dibs.cli.gather import in_snapshot, snapshot_of
        from dibs.client.adding import Batch

        snapshot = snapshot_of(defaults["workdir"], self._environ)
        code = {**(code or {}), "root": snapshot.root, "snapshot": snapshot.copy}
        # The words of a spec and the folder of its jobs move as those of a job do.
        [moved] = in_snapshot([Batch([spec], defaults)], snapshot.place_of, snapshot.root)
        return dict(moved.jobs[0]), dict(moved.common), code

    def _show_check(self, spec: Mapping[str, Any], found: Mapping[str, Any]) -> int:
        from dibs.cli.output import one_line, show, show_json
        from dibs.cli.sweep_words import searched

        if self._options["as_json"]:
            show_json({**found, "spec": spec})
            return 0
        size = found["size"]
        if spec["samples"] is None and size is not None:
            size -= found["left_out"]  # of a grid these are among the points that were counted
        commands = found["commands"] if size is None else found["commands"][:size]
        left = None if size is None else size - len(commands)
        most = "up to " if left and (found["left_out"] or _may_leave_out(spec)) else ""
        show(f"{'trials without end' if size is None else most + _trials(size)}: {searched(spec)}")
        if spec["method"] == "adaptive":
            show("  what is tried depends on the results; it may be")
        for command in commands:
            show(f"  {one_line(command, 4000)}")
        if left:
            show(f"  … and {most}{left:,} more")
        return 0

    def _tell(self, spec: Mapping[str, Any], added: Mapping[str, Any]) -> None:
        """The number on stdout; on a terminal, the command that is most likely wanted next."""
        from dibs.cli.output import one_line, say, show, show_json

        options = self._options
        if options["as_json"]:
            if not options["wait"]:  # or the whole sweep is printed when it has ended
                show_json({**added, "method": spec["method"], "seed": spec["seed"]})
            return
        if options["quiet"]:
            show(str(added["id"]))
            return
        name = f" ({one_line(spec['name'], 80)})" if spec["name"] else ""
        most = "up to " if _may_leave_out(spec) else ""
        size = "" if added["size"] is None else f": {most}{_trials(added['size'])}"
        show(f"added sweep {added['id']}{name}{size}")
        if os.isatty(2) and not options["wait"]:
            say(f"dibs sweep show {added['id']}")


def _may_leave_out(spec: Mapping[str, Any]) -> bool:
    """Whether a grid has fewer points than were counted: without those that conditions leave out."""
    is_conditional = spec["where"] or any(one["when"] for one in spec["parameters"])
    return spec["method"] == "grid" and bool(is_conditional)


def _trials(number: int) -> str:
    return f"{number:,} trial{'' if number == 1 else 's'}"
