"""The adviser: a process that owns the Optuna study of one sweep.

It reads one JSON message per line and writes one answer per line, until its input ends. An answer is written only
after its data is synced to the journal, so a new adviser can take over at any time.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial

from dibs.errors import DibsError
from dibs.sweeps.spec import read_spec
from dibs.sweeps.study import NothingToTry, Suggestions, SweepStudy, directions

_FEWEST_TRIALS = 4


class AdviserProcess:
    """Answers messages about one study; the first message opens it."""

    def __init__(self) -> None:
        self._study: SweepStudy | None = None

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        acts: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "open": self._open,
            "ask": self._ask,
            "begin": lambda message: {"number": self._opened.begin(message["point"])},
            "report": lambda message: {
                "prune": self._opened.report(message["number"], message["step"], message["value"])
            },
            "tell": self._tell,
            "importance_of": _importance_of,
        }
        return acts[message["do"]](message)

    @property
    def _opened(self) -> SweepStudy:
        assert self._study is not None, "the first message is open"
        return self._study

    def _open(self, message: dict[str, Any]) -> dict[str, Any]:
        self._study = SweepStudy(read_spec(message["spec"]), message["study"], Path(message["journal"]))
        known = {each["number"]: each["point"] for each in message["known"]}
        left_over = self._study.reconcile(known, message["ended"])
        return {"left_over": [{"number": each.number, "point": each.user_attrs["point"]} for each in left_over]}

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        asked: list[dict[str, Any]] = []
        while len(asked) < message["count"]:
            try:
                number, point = self._opened.ask()
            except NothingToTry:
                if asked:
                    break  # those that were found are in the study, and must not be lost
                raise
            asked.append({"number": number, "point": point})
        return {"trials": asked}

    def _tell(self, message: dict[str, Any]) -> dict[str, Any]:
        self._opened.tell(message["number"], message["state"], message["values"], message["steps"])
        return {}


def main() -> None:
    """Answer messages until the input ends."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    answers = _keep_for_answers()
    process = AdviserProcess()
    for line in sys.stdin.buffer:
        try:
            answer = process.answer(json.loads(line))
        except DibsError as error:
            answer = {"error": error.message, "remedy": error.remedy}
        except OSError as error:
            # The next adviser repairs a line that was half written; this one does not know what its journal has.
            _write(answers, {"error": f"cannot keep the study: {error.strerror or error}", "remedy": ""})
            raise
        _write(answers, answer)


def _keep_for_answers() -> BinaryIO:
    """The standard output, for answers only: what a library prints goes to the log."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _write(answers: BinaryIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


def _importance_of(message: dict[str, Any]) -> dict[str, Any]:
    """The importance of each parameter for the first metric, by PED-ANOVA, largest first; or none, and why."""
    spec = read_spec(message["spec"])
    suggestions = Suggestions(spec)
    study = optuna.create_study(directions=directions(spec))
    for each in message["trials"]:
        params, distributions = suggestions.of(each["point"])
        study.add_trial(create_trial(params=params, distributions=distributions, values=each["values"]))
    why = _why_none(study)
    shares = {} if why else _shares(study)
    largest_first = sorted(shares.items(), key=lambda share: (-share[1], share[0]))
    return {"importance": [{"name": name, "value": float(value)} for name, value in largest_first], "why": why}


def _why_none(study: optuna.Study) -> str:
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(trials) < _FEWEST_TRIALS:
        return f"importance needs {_FEWEST_TRIALS} complete trials, and there are {len(trials)}"
    if len({trial.values[0] for trial in trials}) == 1:
        return "every trial came to the same value, so no parameter matters yet"
    if all(each.single() for trial in trials for each in trial.distributions.values()):
        return "every parameter has one value only"
    return ""


def _shares(study: optuna.Study) -> dict[str, float]:
    # For several metrics Optuna needs a target, and takes smaller values of it as better.
    sign = 1 if study.directions[0] == StudyDirection.MINIMIZE else -1
    return get_param_importances(
        study,
        evaluator=PedAnovaImportanceEvaluator(),
        target=None if len(study.directions) == 1 else lambda trial: sign * trial.values[0],
    )


if __name__ == "__main__":
    main()
