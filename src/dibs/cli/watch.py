"""`dibs ls -w`: a screen that is drawn again without flicker, and leaves no trace."""

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from dibs.cli.output import one_line, terminal_height, terminal_width, write_all
from dibs.errors import DibsError, NoDaemon

_EVERY = 1.0  # seconds between two pictures
_LOOK_EVERY = 0.1  # seconds between two looks at the terminal's size


def watch_jobs(draw: Callable[[int, int], list[str]]) -> int:
    """Show what `draw(rows, width)` returns, until Ctrl-C."""
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    signal.signal(signal.SIGTERM, _leave)  # through `finally`: the terminal is given back as it was
    signal.signal(signal.SIGHUP, _leave)
    if not is_dumb:
        _put("\x1b[?1049h\x1b[?25l")
    try:
        while True:
            size = (terminal_height(), terminal_width(1))
            _put(_picture(draw, *size, is_dumb))
            until = time.monotonic() + _EVERY
            while time.monotonic() < until and size == (terminal_height(), terminal_width(1)):
                time.sleep(_LOOK_EVERY)
    except KeyboardInterrupt:
        return 0
    finally:
        if not is_dumb:
            _put("\x1b[?25h\x1b[?1049l")


def _picture(draw: Callable[[int, int], list[str]], height: int, width: int, is_dumb: bool) -> str:
    try:
        # The reasons of waiting jobs take lines of their own.
        lines = draw(max(1, height - 6), width)
    except NoDaemon as error:
        lines = [one_line(f"the daemon is away, and the jobs go on: {error.message}", width)]
    except DibsError as error:
        lines = [one_line(error.message, width)]
    lines = [one_line(f"{time.strftime('%H:%M:%S')} · Ctrl-C ends this", width), *lines][: height - 1]
    if is_dumb:
        return "\n".join(lines) + "\n\n"
    # Each line wipes its own end: the screen is never empty, and so it does not flicker.
    return "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J"


def _put(text: str) -> None:
    if not write_all(1, text.encode("utf-8", "backslashreplace")):
        sys.exit(0)  # the terminal was closed


def _leave(number: int, _: Any) -> None:
    sys.exit(128 + number)
