"""`dibs run`: a list of commands over the GPUs of this machine, in the foreground."""

from typing import Any

import click

from dibs.cli import options as shared
from dibs.cli.commands import CommandWithArguments
from dibs.cli.field_options import field_options
from dibs.cli.options import count
from dibs.model.fields import Verb

_EPILOG = """\b
Examples:
  dibs run -f commands.txt                 one command a line; jobs.py with yielder(); JSON lines
  generate_commands | dibs run             a pipe, endless or not
  dibs run -- python train.py              one command, with this terminal, when a GPU is free
  dibs run --gpus 0,0,1 -f commands.txt    two at a time on GPU 0, one on GPU 1
  dibs run --gpus 0+1,2+3 -f wide.txt      groups of GPUs, given whole
  dibs run -p lr 0.1 0.01 -p bs 32 64 -- python train.py --lr {lr} --bs {bs}
  dibs run -f commands.txt --output-dir out            results in out/job_1/, out/job_2/, ...
  dibs run -f commands.txt --output-dir out --resume   only what has not succeeded

\b
A line may begin with wishes: [num_gpus=2 vram=18G retries=2 time=2h name=x] python train.py
Jobs of several lines stand between a line <<< and a line >>>.
Exit status: 0 all succeeded, 1 something failed, 2 bad usage, 75 no GPU now (--no-wait),
130 after Ctrl-C; with -- COMMAND the command's own.
"""


@click.command(cls=CommandWithArguments, epilog=_EPILOG, options_metavar="[OPTIONS] [-] [-- COMMAND...]")
@shared.INPUTS
@shared.FILE
@shared.IGNORE
@click.option(
    "--gpus",
    metavar="IDS",
    help="The GPUs that may be used: 0,1 · 0,0,1 · 0+1,2+3 · auto (default: the setting gpus).",
)
@click.option("--gpus-file", metavar="FILE", help="Like --gpus, in a file that may be edited while it runs.")
@field_options(Verb.RUN)
@click.option("--no-wait", is_flag=True, help="End with 75 instead of waiting when no GPU is free.")
@click.option("--ignore-processes", is_flag=True, help="Use GPUs on which other people's processes run.")
@click.option("--min-free", type=count(0), metavar="N", help="Leave N unused GPUs to others.")
@click.option("--fail-fast", is_flag=True, help="End everything at the first failure.")
@click.option("--max-failures", type=count(1), metavar="N", help="Start nothing more after N failures.")
@click.option(
    "--output-dir", metavar="DIR", help="Keep a folder per job: stdout, stderr, info, SUCCESS or FAILURE."
)
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[RUN]",
    help="Run only what has not succeeded: of RUN, of --output-dir, or of the last run in this folder.",
)
@click.option("--fresh", is_flag=True, help="Start over in an --output-dir that holds an earlier run.")
@shared.PARAM
@shared.SHUFFLE
@shared.SEED
@shared.SAMPLES
@shared.SHELL
@click.option("--on", metavar="PLACE", hidden=True)
@click.option("--raw", is_flag=True, help="Show the jobs' output without tags.")
@click.option("-q", "--quiet", is_flag=True, help="Show failures only.")
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines instead.")
@click.pass_context
def run(ctx: click.Context, /, **options: Any) -> int:
    """Run commands here, each on its own GPU.

    Commands come from -f files, from a pipe, or stand behind --. Each gets CUDA_VISIBLE_DEVICES for GPUs that are
    leased for it, also against other users of this machine.
    """
    # Not for `dibs run --help`. The zygote first: on another CPU it imports its modules while we import ours.
    from dibs.supervise.launcher import start_zygote_early

    zygote = start_zygote_early()
    from dibs.cli.run_call import RunCall

    return RunCall(options, ctx.meta["words"], ctx.meta["params"], ctx.meta["command"], zygote).execute()
