"""`dibs sweep wait`, and `--wait`: a line on how far a sweep is, until it ends."""

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.options import TIME
from dibs.cli.references import SWEEP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dibs.client.client import Client

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
    from dibs.client.client import connect
    from dibs.client.sweeps import find_sweep

    client = connect(os.environ)
    return follow(client, find_sweep(client, reference), timeout=timeout, quiet=quiet, as_json=as_json)


def follow(
    client: "Client", number: int, *, timeout: float | None = None, quiet: bool = False, as_json: bool = False
) -> int:
    """Stay until the sweep is not running any more, and say how it went. Ctrl-C ends only the looking."""
    from dibs.cli.output import say, show_json
    from dibs.cli.sweep_words import found
    from dibs.client.patient import Patient
    from dibs.client.sweeps import sweep as asked

    line = _Line(shown=os.isatty(2) and not quiet)
    daemon = Patient(client, line.say)
    pace = _Pace()
    ends_at = None if timeout is None else time.monotonic() + timeout
    try:
        while (sweep := daemon.ask(partial(asked, number=number)))["state"] == "running":
            line.draw(sweep, pace.seconds_left(sweep, time.monotonic()))
            if ends_at is not None and time.monotonic() >= ends_at:
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
    return 0 if sweep["state"] == "finished" and found(sweep) else 1


def _tell_end(sweep: "Mapping[str, Any]") -> None:
    from dibs.cli.output import one_line, say
    from dibs.cli.sweep_words import best_so_far, called, tally

    verb = {"running": "is still running", "finished": "has finished"}.get(sweep["state"], f"is {sweep['state']}")
    best = best_so_far(sweep)
    say(f"sweep {called(sweep)} {verb}: {tally(sweep)}{f'; {best}' if best else ''}")
    if sweep["why"]:
        say(f"  {one_line(sweep['why'], 500)}")
    if sweep["counts"].get("reused"):
        say("  what is reused was run before, by the same command in the same folder; --rerun runs it again")
    for trial in sweep["best"] if len(sweep["best"]) == 1 else ():
        say(f"  {one_line(trial['command'], 20000)}")


class _Pace:
    """Guesses the time that is left from the trials that ended while we looked."""

    def __init__(self) -> None:
        self._began: tuple[float, int] | None = None

    def seconds_left(self, sweep: "Mapping[str, Any]", now: float) -> float | None:
        from dibs.cli.sweep_words import ended, wanted

        done, total = ended(sweep), wanted(sweep)
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

    def draw(self, sweep: "Mapping[str, Any]", seconds_left: float | None) -> None:
        from dibs.cli.output import one_line, terminal_width
        from dibs.cli.sweep_words import progress

        if self._shown:
            text = one_line(progress(sweep, seconds_left), terminal_width(2) - 1)
            if text != self._text:
                self._put(text)

    def say(self, text: str) -> None:
        from dibs.cli.output import say

        self.clear()
        say(text)

    def clear(self) -> None:
        if self._text:
            self._put("")

    def _put(self, text: str) -> None:
        from dibs.cli.output import write_all

        self._text = text
        write_all(2, f"\r\x1b[K{text}".encode("utf-8", "backslashreplace"))
