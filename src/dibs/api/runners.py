"""What may take the place of the shell: words before a command, or a function that is called with it."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from dibs.api.calls import Call, job_of, write_call
from dibs.errors import BadInput
from dibs.model.jobs import Command

Runner = Sequence[str] | Callable[[str | list[str]], int | None] | str

_NAMED = re.compile(r"[\w.]+:[\w.]+")


def run_by(runner: Runner, command: Command) -> tuple[dict[str, Any], Call | None]:
    """The new job that a runner makes of a command, and the call in it where the runner is a function.

    A line becomes the last word behind the runner's, words stay words. A function, or `module:function`, gets the
    line as text or the words as a list; what it returns is the exit code.
    """
    is_line = len(command.words) == 3 and command.words[1:] == ("-c", command.shown)
    given: str | list[str] = command.shown if is_line else list(command.words)
    if callable(runner) or (isinstance(runner, str) and _NAMED.fullmatch(runner)):
        call = write_call(runner, (given,), is_runner=True)
        return job_of(call, runner, command.shown, is_runner=True), call
    words = words_of(runner)
    return {"words": [*words, *([given] if isinstance(given, str) else given)], "command": command.shown}, None


def words_of(runner: object) -> list[str]:
    """The words of a runner that is no function."""
    is_words = isinstance(runner, Sequence) and not isinstance(runner, str | bytes)
    if is_words and runner and all(isinstance(word, str) and word for word in runner):  # type: ignore[attr-defined]
        return list(runner)  # type: ignore[call-overload, no-any-return]
    raise BadInput(
        f"cannot read {runner!r:.60} as a runner",
        remedy="it is words like ['apptainer', 'exec', 'image.sif'], a function, or 'module:function'",
    )
