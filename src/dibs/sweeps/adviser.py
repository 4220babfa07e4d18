"""The adviser: a process that keeps one sweep's study with Optuna, and is asked by lines of JSON.

It reads a message a line and writes an answer a line, and ends with its input. What an answer says has been
synced to the journal, so a new adviser can take over after any of them.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import optuna

from dibs.errors import DibsError
from dibs.sweeps.importance import importance_of
from dibs.sweeps.spec import read_spec
from dibs.sweeps.study import NothingToTry, SweepStudy


class Desk:
    """Answers messages about one study, once it was opened."""

    def __init__(self) -> None:
        self._study: SweepStudy | None = None

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        acts: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "open": self._open,
            "ask": self._ask,
            "begin": lambda said: {"number": self._opened.begin(said["point"])},
            "report": lambda said: {"prune": self._opened.report(said["number"], said["step"], said["value"])},
            "tell": self._tell,
            "importance_of": _importance_of,
        }
        return acts[message["do"]](message)

    @property
    def _opened(self) -> SweepStudy:
        assert self._study is not None, "the first message is open"
        return self._study

    def _open(self, said: dict[str, Any]) -> dict[str, Any]:
        self._study = SweepStudy(read_spec(said["spec"]), said["study"], Path(said["journal"]))
        known = {each["number"]: each["point"] for each in said["known"]}
        left_over = self._study.reconcile(known, said["ended"])
        return {"left_over": [{"number": each.number, "point": each.user_attrs["point"]} for each in left_over]}

    def _ask(self, said: dict[str, Any]) -> dict[str, Any]:
        asked: list[dict[str, Any]] = []
        while len(asked) < said["count"]:
            try:
                number, point = self._opened.ask()
            except NothingToTry:
                if asked:
                    break  # those that were found are in the study, and must not be lost
                raise
            asked.append({"number": number, "point": point})
        return {"trials": asked}

    def _tell(self, said: dict[str, Any]) -> dict[str, Any]:
        self._opened.tell(said["number"], said["state"], said["values"], said["steps"])
        return {}


def main() -> None:
    """Answer until nobody asks any more."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    answers = _keep_for_answers()
    desk = Desk()
    for line in sys.stdin.buffer:
        try:
            answer = desk.answer(json.loads(line))
        except DibsError as error:
            answer = {"error": error.message, "remedy": error.remedy}
        except OSError as error:
            # What was half written is mended by the next adviser; this one does not know its journal any more.
            _write(answers, {"error": f"cannot keep the study: {error.strerror or error}", "remedy": ""})
            raise
        _write(answers, answer)


def _importance_of(said: dict[str, Any]) -> dict[str, Any]:
    trials = [(each["point"], each["values"]) for each in said["trials"]]
    return importance_of(read_spec(said["spec"]), trials)


def _keep_for_answers() -> BinaryIO:
    """Our output for answers alone: what a library prints goes to the log."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _write(answers: BinaryIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


if __name__ == "__main__":
    main()
