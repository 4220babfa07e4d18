"""`dibs sweep`: a search over parameters, in the queue. Its verbs look at sweeps and change them."""

import importlib
from typing import TYPE_CHECKING, Any

import click

from dibs.cli import options as shared
from dibs.cli.commands import CommandWithArguments
from dibs.cli.field_options import GROUP_OF, field_options
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
    "ls": ("dibs.cli.sweep_show:ls", "List sweeps."),
    "show": ("dibs.cli.sweep_show:show_sweep", "Show the best trials, what mattered and what failed."),
    "best": ("dibs.cli.sweep_show:best", "Print the best command line, ready to paste."),
    "results": ("dibs.cli.sweep_show:results", "Print all trials, as a table, CSV or JSON."),
    "wait": ("dibs.cli.sweep_act:wait", "Follow a sweep until it ends."),
    "stop": ("dibs.cli.sweep_act:stop", "End a sweep and its trials."),
    "hold": ("dibs.cli.sweep_act:hold", "Start no more trials until it is released."),
    "release": ("dibs.cli.sweep_act:release", "Let a held sweep go on."),
    "resume": ("dibs.cli.sweep_act:resume", "Go on with a sweep that was held, stopped or finished."),
    "retry-failed": ("dibs.cli.sweep_act:retry_failed", "Run the failed trials once more."),
    "edit": ("dibs.cli.sweep_act:edit", "Change what it searches, and how many run at a time."),
    "rm": ("dibs.cli.sweep_act:remove", "Forget a sweep that is over."),
}

# What `dibs sweep --help` shows together.
_PARTS = {
    "What is tried": (
        "_params",
        "where",
        "method",
        "sampler",
        "population",
        "shuffle",
        "seed",
        "samples",
        "repeat",
        "over",
        "reuse",
    ),
    "Results": (
        *("metric", "goal", "target", "from_log", "result_file", "from_wandb"),
        *("prune", "prune_after", "steps", "stop_on_nan"),
    ),
    "Running it": ("parallel", "dry_run", "wait", "quiet", "as_json"),
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


class _SweepCommand(CommandWithArguments):
    """Makes a new sweep, unless the first word is one of the verbs."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in _VERBS:
            return _Verbs("sweep").make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options in sections: there are forty of them."""
        width = max(map(len, _VERBS))
        with formatter.section("Look and change"):
            formatter.write_dl([(name.ljust(width), about) for name, (_, about) in _VERBS.items()])
        parts = {name: ON_SLURM for name, group in GROUP_OF.items() if group == ON_SLURM}
        parts |= {name: part for part, names in _PARTS.items() for name in names}
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
    type=click.Choice(["grid", "random", "adaptive", "population"]),
    help="All points, points by chance, chosen by the results so far, or trained as a population.",
)
@click.option(
    "--sampler",
    type=click.Choice(["tpe", "gp", "cmaes", "qmc", "bohb", "nsga2"]),
    help="How an adaptive search chooses (tpe).",
)
@click.option("--population", type=count(2), metavar="N", help="Trials of a generation of a population (8).")
@click.option("--shuffle", is_flag=True, help="Take the points of a grid in random order.")
@click.option("--seed", type=count(0, 2**31 - 1), metavar="N", help="The same seed tries the same points.")
@click.option("--samples", type=count(1), metavar="N", help="How many points are tried.")
@click.option("--repeat", type=count(1), metavar="N", help="Run each point N times; the mean is its result.")
@click.option("--over", metavar="NAME", help="The placeholder that gets 1, 2, … N of --repeat: --over seed.")
@click.option("--reuse", is_flag=True, help="Take results of earlier sweeps where the program was the same.")
@click.option(
    "--metric",
    multiple=True,
    metavar="NAME",
    help="What trials tell of themselves: val_loss, acc:max, or loss:min:best; again for several.",
)
@click.option("--goal", type=click.Choice(["min", "max"]), help="Whether less or more of it is better (min).")
@click.option("--target", type=float, metavar="X", help="End the search when a trial reaches it.")
@click.option("--stop-on-nan", is_flag=True, help="End a trial that reports a metric which is not finite.")
@click.option("--from-log", metavar="REGEX", help="Read it from the output: 'loss (?P<loss>[0-9.]+)'.")
@click.option("--result-file", metavar="FILE", help="Read it from a file that each trial writes: JSON, or a=b.")
@click.option("--from-wandb", is_flag=True, help="Read what its program gives wandb.log; no network is needed.")
@click.option(
    "--prune",
    type=click.Choice(["halving", "hyperband", "median"]),
    help="End trials early that fall behind the others.",
)
@click.option("--steps", type=count(1), metavar="N", help="How many steps a whole trial has, for hyperband.")
@click.option("--prune-after", type=count(1), metavar="N", help="Prune no trial before it has told N steps (1).")
@click.option("--parallel", type=count(1), metavar="N", help="Run at most N trials at a time.")
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
    from dibs.cli.sweep_add import SweepAdder  # not for `dibs sweep ls` and the other verbs

    return SweepAdder(options, given).execute(ctx.meta["command"], ctx.meta["params"])
