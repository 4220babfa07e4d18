"""Acts on sweeps: `dibs sweep stop`, `hold`, `release`, `resume`, `retry-failed`, `edit`, `rm`, `wait`."""

import math
import os
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from dibs.cli.commands import CommandWithArguments
from dibs.cli.options import TIME, count
from dibs.cli.output import confirm, one_line, say, show_json, terminal_width, write_all
from dibs.cli.references import NAMED_SWEEP, SWEEP
from dibs.cli.sweep_show import (
    best_text,
    count_ended,
    count_wanted,
    count_with_result,
    counts_text,
    progress_text,
    sweep_name,
)
from dibs.client import sweeps as daemon
from dibs.client.client import Client, RetryingClient, connect
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
@click.option("--samples", type=count(1), metavar="N", help="The number of trials in all, with those it has.")
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


class _EditCommand(CommandWithArguments):
    """Takes `-p NAME VALUES...`."""

    format_options = click.Command.format_options


@click.command(
    cls=_EditCommand,
    epilog="""\b
Examples:
  dibs sweep edit 3 --parallel 8                from now on at most eight at a time
  dibs sweep edit 3 --samples 200 -p lr 1e-5..1e-2:log
  dibs sweep edit 3 --metric val_acc:max:best   what the trials have reported is judged by it

\b
-p takes the place of the values that a parameter had. What was tried stays; points outside of the new
values do not guide an adaptive search. `dibs sweep resume` goes on where a sweep had finished.
""",
)
@SWEEP
@click.option("-p", "--param", "_params", metavar="NAME VALUES...", help="Other values of a parameter.")
@click.option("--where", multiple=True, metavar="EXPR", help="Conditions, in the place of those it has.")
@click.option("--samples", type=count(1), metavar="N", help="The number of points in all, with those it has.")
@click.option("--metric", multiple=True, metavar="NAME", help="Other metrics: acc:max, or loss:min:best.")
@click.option("--target", type=float, metavar="X", help="End the search when a trial reaches it.")
@click.option("--parallel", type=count(1), metavar="N", help="Run at most N trials at a time.")
@_JSON
@click.pass_context
def edit(ctx: click.Context, /, reference: str, as_json: bool, _params: str, **options: Any) -> int:
    """Change what a sweep searches, also while it runs."""
    from dibs.sweeps.space import parse_parameter  # not for the other verbs
    from dibs.sweeps.spec import parameter_object, parse_metric

    changes = {name: value for name, value in options.items() if value not in (None, ())}
    if "metric" in changes:
        changes["metrics"] = [parse_metric(text) for text in changes.pop("metric")]
    if params := ctx.meta["params"]:
        changes["parameters"] = [parameter_object(parse_parameter(name, values)) for name, values in params]
    if "where" in changes:
        changes["where"] = list(changes["where"])
    if not changes:
        raise BadInput("there is nothing to change", remedy="dibs sweep edit 3 --parallel 8")
    return _act("edit", reference, as_json, "changed", "is like that already", **changes)


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
    client = connect(os.environ)
    sweep = daemon.sweep(client, daemon.find_sweep(client, reference))
    if not yes and not _agrees(sweep):
        say("nothing was removed")
        return 1
    trials = daemon.remove_sweep(client, sweep["id"])
    if as_json:
        show_json({"sweep": sweep["id"], "trials": trials})
    else:
        say(f"removed sweep {sweep_name(sweep)}: {trials} trial{'' if trials == 1 else 's'}")
    return 0


def _agrees(sweep: Mapping[str, Any]) -> bool:
    trials = sum(sweep["counts"].values())
    what = f"sweep {sweep_name(sweep)}, {trials} trial{'' if trials == 1 else 's'}"
    return confirm(f"remove {what} and their results?", what="remove a sweep")


def _act(
    action: str, reference: str, as_json: bool, done: str, otherwise: str, follows: bool = False, **wishes: Any
) -> int:
    """Do it, and say to which sweep. 1 where there was nothing to do."""
    client = connect(os.environ)
    sweep = daemon.sweep(client, daemon.find_sweep(client, reference))
    answer = daemon.act_on_sweep(client, sweep["id"], action, **wishes)
    if as_json and not follows:
        show_json({"sweep": sweep["id"], **answer})
    elif not answer["changed"]:
        say(f"dibs: sweep {sweep_name(sweep)} {otherwise}")
    elif not as_json:
        trials = answer.get("trials") or 0
        about = f": {trials} trial{'' if trials == 1 else 's'}" if trials else ""
        say(f"{done} sweep {sweep_name(sweep)}{about}")
    if not answer["changed"]:
        return 1
    if follows:
        return follow(client, sweep["id"], as_json=as_json)
    return 0


_LOOK_EVERY = 0.5  # seconds
_STILL_RUNNING = 75  # as of `dibs wait`
_ENOUGH = 3  # trials that ended under our eyes, before the time left is guessed


@click.command(
    epilog="""\b
Examples:
  dibs sweep wait && dibs sweep best
  dibs sweep wait 3 --timeout 2h     75 when it is not over by then

\b
Exit status: 0 when it has finished and found something, 1 when it was held or stopped or found
nothing, 75 when --timeout passed first. Ctrl-C leaves the sweep running.
"""
)
@SWEEP
@click.option("--timeout", type=TIME, metavar="TIME", help="Wait no longer than this: 2h, 90s.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the sweep as an object when it has ended.")
def wait(reference: str, timeout: float | None, quiet: bool, as_json: bool) -> int:
    """Follow a sweep until it ends."""
    client = connect(os.environ)
    return follow(client, daemon.find_sweep(client, reference), timeout=timeout, quiet=quiet, as_json=as_json)


def follow(
    client: Client, number: int, *, timeout: float | None = None, quiet: bool = False, as_json: bool = False
) -> int:
    """Stay until the sweep is not running any more, and say how it went. Ctrl-C ends only the looking."""
    line = _Line(shown=os.isatty(2) and not quiet)
    patient = RetryingClient(client, line.say)
    pace = _Pace()
    ends_at = math.inf if timeout is None else time.monotonic() + timeout
    ask = partial(daemon.sweep, number=number)
    try:
        while (sweep := patient.ask(ask, until=ends_at))["state"] == "running":
            line.draw(sweep, pace.seconds_left(sweep, time.monotonic()))
            if time.monotonic() >= ends_at:
                break
            time.sleep(_LOOK_EVERY)
    except KeyboardInterrupt:
        line.clear()
        if not quiet:
            say(f"sweep {number} goes on; `dibs sweep wait {number}` follows it, and `stop` ends it")
        raise
    line.clear()
    if as_json:
        show_json(sweep)
    if not quiet:
        _tell_end(sweep)
    if sweep["state"] == "running":
        return _STILL_RUNNING
    return 0 if sweep["state"] == "finished" and count_with_result(sweep) else 1


def _tell_end(sweep: Mapping[str, Any]) -> None:
    verb = {"running": "is still running", "finished": "has finished"}.get(sweep["state"], f"is {sweep['state']}")
    best = best_text(sweep)
    say(f"sweep {sweep_name(sweep)} {verb}: {counts_text(sweep)}{f'; {best}' if best else ''}")
    if sweep["why"]:
        say(f"  {one_line(sweep['why'], 500)}")
    if sweep["counts"].get("reused"):
        say("  what is reused was run before, by the same command of the same program")
    for trial in sweep["best"] if len(sweep["best"]) == 1 else ():
        say(f"  {one_line(trial['command'], 20000)}")


class _Pace:
    """Guesses the time that is left from the trials that ended while we looked."""

    def __init__(self) -> None:
        self._began: tuple[float, int] | None = None

    def seconds_left(self, sweep: Mapping[str, Any], now: float) -> float | None:
        done, total = count_ended(sweep), count_wanted(sweep)
        if self._began is None:
            self._began = (now, done)
        since, before = self._began
        if total is None or done - before < _ENOUGH:
            return None
        return max(0.0, (total - done) * (now - since) / (done - before))


class _Line:
    """One line of a terminal that is written again and again, and leaves no trace."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._text = ""

    def draw(self, sweep: Mapping[str, Any], seconds_left: float | None) -> None:
        if self._shown:
            text = one_line(progress_text(sweep, seconds_left), terminal_width(2) - 1)
            if text != self._text:
                self._put(text)

    def say(self, text: str) -> None:
        self.clear()
        say(text)

    def clear(self) -> None:
        if self._text:
            self._put("")

    def _put(self, text: str) -> None:
        self._text = text
        write_all(2, f"\r\x1b[K{text}".encode("utf-8", "backslashreplace"))
