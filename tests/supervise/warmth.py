"""Python attempts, fresh and forked from a warm process, in the same surroundings."""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from dibs.model.jobs import Attempt
from supervise.hands import Hands

PYTHON = os.environ.get("DIBS_TEST_PYTHON", sys.executable)  # another one from 3.11 on may be tried


class Pythons:
    """Starts Python programs through `hands`: fresh, or warm with these modules imported."""

    def __init__(self, hands: Hands, modules: Sequence[str] | None) -> None:
        self.hands = hands
        self.modules = modules
        self.workdir = hands.workdir
        self.env: dict[str, str] = {}  # of the jobs alone
        self._environment = hands.root / "environment.json"

    def write(self, name: str, text: str) -> str:
        path = self.workdir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name

    def start(self, *words: str, **spec: Any) -> Attempt:
        """Start an interpreter with these words behind it."""
        captured = json.dumps(self.hands.environment)
        if not self._environment.exists() or self._environment.read_text() != captured:
            self._environment.write_text(captured)
        if self.modules is not None:
            spec["warm"] = {"modules": list(self.modules), "env": self.env}
        interpreter = spec.pop("interpreter", PYTHON)
        spec["env"] = self.env | spec.get("env", {})
        return self.hands.start([interpreter, *words], environment=str(self._environment), **spec)

    def script(self, text: str, *arguments: str, **spec: Any) -> Attempt:
        """Start a script of this text."""
        return self.start(self.write("job.py", text), *arguments, **spec)

    def output(self, *words: str, **spec: Any) -> str:
        attempt = self.start(*words, **spec)
        record = self.hands.record(attempt)
        assert record["code"] == 0, (record, self.errors(attempt))
        return self.hands.log(attempt)

    def errors(self, attempt: Attempt) -> str:
        return self.hands.log(attempt, "stderr")

    def pids(self) -> list[int]:
        """Of the warm processes that are ready."""
        return [pid for _, pid in self.hands.backend.warm_processes if pid is not None]
