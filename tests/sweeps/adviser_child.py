"""An adviser as a process of its own, spoken to line by line, and a store that remembers what it said."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from dibs.sweeps.space import Choice, Range
from dibs.sweeps.spec import Metric, Spec, spec_object
from stories.fork_server import ADVISER_MAIN
from stories.outside import MUST_EXECUTE, adviser_environment, advisers_fork_server

STUDY = "sweep-7"


def a_spec(**changes: Any) -> Spec:
    """A small search: two numbers, a choice, and a number that only one of the choices wants."""
    parameters = changes.pop(
        "parameters",
        (
            Range("x", -5, 5),
            Range("width", 1, 64, "log", True),
            Choice("optimizer", ("sgd", "adam", None)),
            Range("momentum", 0.5, 0.99, when="optimizer == 'sgd'"),
        ),
    )
    given = {
        "line": " ".join(["train", *(f"--{each.name} {{{each.name}}}" for each in parameters)]),
        "parameters": parameters,
        "method": "adaptive",
        "samples": 100,
        "seed": 3,
        "metrics": (Metric("loss"),),
    }
    return Spec(**(given | changes))


def loss(point: dict[str, str | None]) -> float:
    """A known function of such a point; it is least at 0, for x = 2, width = 8, sgd and a momentum of 0.9."""
    momentum = 1.0 if point["momentum"] is None else abs(float(point["momentum"]) - 0.9)
    return (float(point["x"] or 0) - 2) ** 2 + abs(float(point["width"] or 0) - 8) / 8 + momentum


class Child:
    """The process itself."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        self.folder = folder
        self.journal = folder / "optuna.journal"
        self._spec = spec
        folder.mkdir(exist_ok=True)
        with open(folder / "log", "ab") as log:
            start = subprocess.Popen if MUST_EXECUTE else advisers_fork_server().forks.Popen
            self.process = start(
                [sys.executable, "-P", "-m", ADVISER_MAIN],
                cwd=os.getcwd(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=adviser_environment(),
            )

    def open(self, known: dict[int, Any] | None = None, ended: list[dict[str, Any]] | None = None) -> Any:
        self.send_open(known, ended)
        return self.hear()["left_over"]

    def send_open(self, known: dict[int, Any] | None = None, ended: list[dict[str, Any]] | None = None) -> None:
        self.send(
            do="open",
            spec=spec_object(self._spec),
            study=STUDY,
            journal=str(self.journal),
            known=[{"number": number, "point": point} for number, point in (known or {}).items()],
            ended=ended or [],
        )

    def say(self, **message: Any) -> Any:
        self.send(**message)
        return self.hear()

    def send(self, **message: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout
        assert select.select([self.process.stdout], [], [], 60)[0], "no answer"
        line = self.process.stdout.readline()
        assert line, (self.folder / "log").read_text()
        return json.loads(line)

    def ask(self, count: int = 1) -> list[Any]:
        return self.say(do="ask", count=count)["trials"]

    def tell(self, number: int, *values: float, state: str = "complete", steps: Any = ()) -> Any:
        return self.say(**ended(number, *values, state=state, steps=steps), do="tell")

    def report(self, number: int, step: int, value: float) -> bool:
        return self.say(do="report", number=number, step=step, value=value)["prune"]

    def kill(self) -> None:
        """As the kernel does when memory is short: at once."""
        self.process.kill()
        self.leave()

    def leave(self) -> int:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            with suppress(BrokenPipeError):
                pipe.close()
        return self.process.wait()


def ended(number: int, *values: float, state: str = "complete", steps: Any = ()) -> dict[str, Any]:
    return {"number": number, "state": state, "values": list(values) or None, "steps": list(steps)}


class Search:
    """A search that writes down what it heard, and goes on from there with a new child."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        self._folder, self._spec = folder, spec
        self.known: dict[int, Any] = {}
        self.ended: list[dict[str, Any]] = []
        self.child = Child(folder, spec)
        assert self.child.open() == []

    def messages(self, trials: int) -> Iterator[None]:
        """Ask and tell one trial after the other, with a pause after each answer."""
        yield
        while len(self.ended) < trials:
            ((number, point),) = [(each["number"], each["point"]) for each in self.child.ask()]
            self.known[number] = point
            yield
            self.ended.append(ended(number, loss(point)))
            self.child.tell(number, loss(point))
            yield

    def kill(self) -> None:
        self.child.kill()
        self.child = Child(self._folder, self._spec)
        assert self.child.open(self.known, self.ended) == []

    @property
    def points(self) -> list[Any]:
        return [self.known[number] for number in sorted(self.known)]
