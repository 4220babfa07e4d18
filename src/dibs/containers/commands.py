"""Runs the short commands of an engine: questions about images, the removal of a container."""

import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

PATIENCE = 30.0  # seconds; an engine that does not answer by then is asked again later


class EngineAnswer(NamedTuple):
    """How a command of an engine ended, and what it said."""

    code: int  # -1: it could not be run, or did not end in time
    said: str

    @property
    def last_line(self) -> str:
        return self.said.strip().rpartition("\n")[2][-300:]


def ask_engine(words: Sequence[str], environ: Mapping[str, str], seconds: float = PATIENCE) -> EngineAnswer:
    """Run it to its end. It never raises for what the engine does."""
    try:
        done = subprocess.run(
            list(words),
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
            cwd="/",
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return EngineAnswer(-1, f"{words[0]} did not answer within {seconds:g} seconds")
    except (OSError, ValueError) as error:
        return EngineAnswer(-1, f"cannot run {words[0]}: {error}")
    return EngineAnswer(done.returncode, done.stdout.decode("utf-8", "replace"))
