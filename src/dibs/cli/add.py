"""`dibs add`: jobs into the queue. It prints their numbers and returns."""

from typing import Any

import click

from dibs.cli import options as shared
from dibs.cli.commands import CommandWithArguments
from dibs.cli.field_options import field_options
from dibs.model.fields import Verb

_EPILOG = """\b
Examples:
  dibs add -- python train.py --lr 0.1        one job; it prints its number and returns
  dibs add -f commands.txt                    one job a line; jobs.py with yielder(); a #SBATCH script
  dibs add -n 2 -t 4h -J big -- ./train.sh    two GPUs, at most four hours, by the name of big
  dibs add -p lr 0.1 0.01 -- python train.py --lr {lr}
  dibs add --array 1-16%4 -- ./one.sh         DIBS_ARRAY_TASK_ID is 1 to 16, four at a time
  dibs add --after @ -- python evaluate.py    when the job before has succeeded
  dibs add --begin 22:00 -- python train.py   not before ten in the evening
  dibs add --on slurm --partition gpu -- python train.py
  dibs add --dry-run -n 4 -- python train.py  where and when it would start, and why not now

\b
Causes for --retry-on:
  exit-code signal killed time-limit start-error lost
  gpu-oom host-oom gpu-fault import-error syntax-error port-in-use disk-full
"""


@click.command(cls=CommandWithArguments, epilog=_EPILOG, options_metavar="[OPTIONS] [-] [-- COMMAND...]")
@shared.INPUTS
@shared.FILE
@shared.IGNORE
@field_options(Verb.ADD)
@shared.SNAPSHOT
@shared.PARAM
@shared.SHUFFLE
@shared.SEED
@shared.SAMPLES
@shared.SHELL
@click.option("--dry-run", is_flag=True, help="Add nothing; say where and when it would start, and why.")
@click.option("-q", "--quiet", "--parsable", is_flag=True, help="Print only the number: 17, or 17-116.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
@click.pass_context
def add(ctx: click.Context, /, **options: Any) -> int:
    """Put commands into the queue. Each runs when its GPUs are free, also after you have logged out.

    Commands come from -f files, from a pipe, or stand behind --. The folder, the environment and the umask are
    those of now.
    """
    from dibs.cli.job_add import JobAdder  # not for `dibs add --help`

    return JobAdder(options, ctx.meta["words"]).execute(ctx.meta["command"], ctx.meta["params"])
