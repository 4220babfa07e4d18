"""`dibs sweep stop`, `hold`, `release`, `resume`, `retry-failed`, `edit` and `rm`: what is done to a sweep."""

import os
from collections.abc import Mapping
from typing import Any

import click

from dibs.cli.options import count
from dibs.cli.references import NAMED_SWEEP, SWEEP
from dibs.errors import BadInput

_JSON = click.option("--json", "as_json", is_flag=True, help="Print an object: changed, and how many trials.")
_WAIT = click.option("--wait", "follows", is_flag=True, help="Follow it to its end.")


@click.command(
    epilog="""\b
Examples:
  dibs sweep stop 3                  its trials are asked to end, and killed after their grace
  dibs sweep stop @ --keep-running   start no more, and let those that run come to their end
"""
)
@NAMED_SWEEP
@click.option("--keep-running", is_flag=True, help="Let trials that have started come to their end.")
@_JSON
def stop(reference: str, keep_running: bool, as_json: bool) -> int:
    """End a sweep and its trials. `dibs sweep resume` goes on with it."""
    wishes: dict[str, Any] = {"running": "keep"} if keep_running else {}
    return _act("stop", reference, as_json, "stopped", "had ended already", **wishes)


@click.command(epilog="\b\nExamples:\n  dibs sweep hold 3         what runs goes on; `dibs sweep release 3`\n")
@SWEEP
@_JSON
def hold(reference: str, as_json: bool) -> int:
    """Start no more trials of a sweep until it is released. Those that run go on."""
    return _act("hold", reference, as_json, "held", "was not running")


@click.command(epilog="\b\nExamples:\n  dibs sweep release 3\n")
@SWEEP
@_JSON
def release(reference: str, as_json: bool) -> int:
    """Let a held sweep go on."""
    return _act("release", reference, as_json, "released", "was not held")


@click.command(
    epilog="""\b
Examples:
  dibs sweep resume                  the last one, after anything
  dibs sweep resume 3 --samples 80   until it has 80 trials: what is known is kept
  dibs sweep resume 3 --samples 80 --wait
"""
)
@SWEEP
@click.option("--samples", type=count(1), metavar="N", help="So many trials in all, with those it has.")
@_WAIT
@_JSON
def resume(reference: str, samples: int | None, follows: bool, as_json: bool) -> int:
    """Go on with a sweep that was held, stopped or finished, in the same study."""
    wishes: dict[str, Any] = {} if samples is None else {"samples": samples}
    return _act("resume", reference, as_json, "resumed", "is running already", follows=follows, **wishes)


@click.command(
    name="retry-failed",
    epilog="\b\nExamples:\n  dibs sweep retry-failed 3          when the cause is gone\n",
)
@SWEEP
@_WAIT
@_JSON
def retry_failed(reference: str, follows: bool, as_json: bool) -> int:
    """Run the failed trials of a sweep once more, at the same points."""
    return _act("retry-failed", reference, as_json, "retried", "has no failed trial", follows=follows)


@click.command(epilog="\b\nExamples:\n  dibs sweep edit 3 --parallel 8     from now on at most eight at a time\n")
@SWEEP
@click.option("--parallel", type=count(1), metavar="N", help="At most so many trials at a time.")
@_JSON
def edit(reference: str, parallel: int | None, as_json: bool) -> int:
    """Change how many trials of a sweep run at a time."""
    if parallel is None:
        raise BadInput("there is nothing to change", remedy="dibs sweep edit 3 --parallel 8")
    return _act("edit", reference, as_json, "changed", "is like that already", parallel=parallel)


@click.command(
    name="rm",
    epilog="""\b
Examples:
  dibs sweep rm 3           its trials, results and study; `dibs clean` removes the jobs
  dibs sweep stop 3 && dibs sweep wait 3; dibs sweep rm 3 --yes
""",
)
@NAMED_SWEEP
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print an object: its number, and how many trials it had.")
def remove(reference: str, yes: bool, as_json: bool) -> int:
    """Forget a sweep that is over: its trials, its results and its study. Its jobs stay until `dibs clean`."""
    from dibs.cli.output import say, show_json
    from dibs.cli.sweep_words import called
    from dibs.client import sweeps as daemon
    from dibs.client.client import connect

    client = connect(os.environ)
    sweep = daemon.sweep(client, daemon.find_sweep(client, reference))
    if not yes and not _agrees(sweep):
        say("nothing was removed")
        return 1
    trials = daemon.remove_sweep(client, sweep["id"])
    if as_json:
        show_json({"sweep": sweep["id"], "trials": trials})
    else:
        say(f"removed sweep {called(sweep)}: {trials} trial{'' if trials == 1 else 's'}")
    return 0


def _agrees(sweep: Mapping[str, Any]) -> bool:
    from dibs.cli.output import confirm
    from dibs.cli.sweep_words import called

    trials = sum(sweep["counts"].values())
    what = f"sweep {called(sweep)}, {trials} trial{'' if trials == 1 else 's'}"
    return confirm(f"remove {what} and their results?", what="remove a sweep")


def _act(
    action: str, reference: str, as_json: bool, done: str, otherwise: str, follows: bool = False, **wishes: Any
) -> int:
    """Do it, and say to which sweep. 1 where there was nothing to do."""
    from dibs.cli.output import say, show_json
    from dibs.cli.sweep_words import called
    from dibs.client import sweeps as daemon
    from dibs.client.client import connect

    client = connect(os.environ)
    sweep = daemon.sweep(client, daemon.find_sweep(client, reference))
    answer = daemon.act_on_sweep(client, sweep["id"], action, **wishes)
    if as_json and not follows:
        show_json({"sweep": sweep["id"], **answer})
    elif not answer["changed"]:
        say(f"dibs: sweep {called(sweep)} {otherwise}")
    elif not as_json:
        trials = answer.get("trials") or 0
        about = f": {trials} trial{'' if trials == 1 else 's'}" if trials else ""
        say(f"{done} sweep {called(sweep)}{about}")
    if not answer["changed"]:
        return 1
    if follows:
        from dibs.cli.sweep_follow import follow

        return follow(client, sweep["id"], as_json=as_json)
    return 0
