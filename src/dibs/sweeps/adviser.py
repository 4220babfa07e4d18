"""The daemon's side of the adviser, a child process that asks Optuna what to try next and what to prune.

Nothing here imports Optuna. The child may be killed at any moment: its answers are in its journal file, so a new
child continues where the old one ended.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar

from dibs.dataclass import dataclass
from dibs.errors import DibsError
from dibs.sweeps.space import Point
from dibs.sweeps.spec import Spec, spec_object

JOURNAL = "optuna.journal"
LOG = "adviser.log"

_DEADLINE_SECONDS = 60.0
_LONGEST_ANSWER = 2**26
_INSTALL = "pip install 'dibs[sweeps]'"

TrialEnd = Literal["complete", "failed", "pruned"]
_T = TypeVar("_T")


class AdviserFailed(DibsError):
    """The search cannot continue without help; nothing of it is lost."""

    code = "adviser-failed"


@dataclass(frozen=True, slots=True)
class SuggestedPoint:
    """A point to try, and the number of its trial in the study."""

    number: int
    point: Point


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """The outcome of a trial. `steps` are its intermediate values."""

    number: int
    state: TrialEnd
    values: tuple[float, ...] | None = None  # in the order of the spec's metrics; only of a complete trial
    steps: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Importance:
    """The share of each parameter in the variation of the first metric, largest first; they add up to 1."""

    shares: tuple[tuple[str, float], ...]
    why: str = ""  # why there are none


def adviser_problem(spec: Spec) -> str:
    """Why this sweep cannot have the adviser that it needs; empty where it can. Does not import Optuna."""
    if not spec.needs_adviser:
        return ""
    if find_spec("optuna") is None:
        return f"cannot search adaptively: Optuna is not installed; {_INSTALL}"
    if spec.method != "adaptive":
        return ""
    if missing := [module for module in _MODULES.get(spec.sampler, ()) if find_spec(module) is None]:
        names = " and ".join(missing)
        remedy = f"pip install {names}" if "torch" in missing else _INSTALL
        return f"cannot search with {spec.sampler}: it needs {names}, which is not installed; {remedy}"
    return ""


class Adviser:
    """One study and the child process that owns it.

    Each call has a deadline. A child that died or hangs is replaced once per call; after that the call raises
    AdviserFailed.
    """

    def __init__(
        self, folder: Path, spec: Spec, study: str, *, deadline_seconds: float = _DEADLINE_SECONDS
    ) -> None:
        self._folder = folder
        self._opening = {
            "do": "open",
            "spec": spec_object(spec),
            "study": study,
            "journal": str(folder / JOURNAL),
        }
        self._is_asked = spec.method == "adaptive"
        self._problem = adviser_problem(spec)
        self._deadline = deadline_seconds
        self._turn = asyncio.Lock()
        self._child: asyncio.subprocess.Process | None = None
        self._known: dict[int, Point] = {}
        # Trials of the study whose answer never arrived. They are handed out first, instead of new ones.
        self._left_over: dict[int, Point] = {}

    async def start(self, known: Mapping[int, Point], ended: Iterable[EndedTrial] = ()) -> list[SuggestedPoint]:
        """Open the study, also after a crash. Returns the trials that were asked for and never reached the store.

        `known` are all trials of the store, `ended` those of them that are over; both are added to the study
        where it lacks them. A trial from `begin` that never reached the store is not returned: `begin` with the
        same point finds it again.
        """
        self._known = dict(known)
        over = [_ended_object(each) for each in ended]
        await self._retried(lambda: self._open(over))
        return self._given(self._first_left_over(len(self._left_over))) if self._is_asked else []

    async def ask(self, count: int = 1) -> list[SuggestedPoint]:
        """Points to try now; fewer where there are not enough, and AdviserFailed where there are none."""
        return await self._retried(lambda: self._ask(count))

    async def begin(self, point: Point) -> int:
        """Add a trial for a point chosen elsewhere, so that it can be pruned; returns its number."""
        return await self._retried(lambda: self._begin(point))

    async def report(self, number: int, step: int, value: float) -> bool:
        """Report a trial's value at a step; True where the trial is to be pruned."""
        message = {"do": "report", "number": number, "step": step, "value": value}
        answer = await self._retried(lambda: self._send(message))
        return bool(answer["prune"])

    async def tell(self, ended: EndedTrial) -> None:
        """Record the outcome of a trial. Idempotent."""
        message = {"do": "tell", **_ended_object(ended)}
        await self._retried(lambda: self._send(message))

    async def close(self) -> None:
        """Let the child end. The next call starts another."""
        async with self._turn:
            await self._stop()

    async def _retried(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """The result of the call; if its child dies or hangs, the result with a new child."""
        async with self._turn:
            with suppress(_ChildGone):
                return await call()
            try:
                return await call()
            except _ChildGone as gone:
                raise AdviserFailed(
                    f"cannot continue the search: the adviser {gone}, twice",
                    remedy=f"see {self._folder / LOG}; `dibs sweep resume` tries again, nothing is lost",
                ) from gone

    async def _ask(self, count: int) -> list[SuggestedPoint]:
        await self._be_open()
        asked = self._first_left_over(count)
        try:
            if len(asked) < count:
                answer = await self._send({"do": "ask", "count": count - len(asked)})
                asked += [SuggestedPoint(each["number"], each["point"]) for each in answer["trials"]]
        except AdviserFailed:
            if not asked:
                raise
        return self._given(asked)

    async def _begin(self, point: Point) -> int:
        await self._be_open()
        same = [number for number, each in self._left_over.items() if each == point]
        number: int = same[0] if same else (await self._send({"do": "begin", "point": point}))["number"]
        self._given([SuggestedPoint(number, point)])
        return number

    def _first_left_over(self, count: int) -> list[SuggestedPoint]:
        return [SuggestedPoint(number, self._left_over[number]) for number in sorted(self._left_over)[:count]]

    def _given(self, asked: list[SuggestedPoint]) -> list[SuggestedPoint]:
        """The same trials, marked as known to the caller."""
        for each in asked:
            self._known[each.number] = each.point
            self._left_over.pop(each.number, None)
        return asked

    async def _be_open(self) -> None:
        if self._child is None or self._child.returncode is not None:
            await self._open([])

    async def _open(self, ended: list[dict[str, Any]]) -> None:
        if self._problem:
            raise AdviserFailed(self._problem)
        self._folder.mkdir(parents=True, exist_ok=True)
        await self._stop()
        self._child = await _start_child(self._folder / LOG)
        known = [{"number": number, "point": point} for number, point in self._known.items()]
        opening = {**self._opening, "known": known, "ended": ended}
        try:
            answer = await _exchange(self._child, opening, self._deadline)
        except BaseException:
            await self._stop(at_once=True)
            raise
        self._left_over = {each["number"]: each["point"] for each in answer["left_over"]}

    async def _send(self, message: dict[str, Any]) -> dict[str, Any]:
        await self._be_open()
        assert self._child is not None
        try:
            return await _exchange(self._child, message, self._deadline)
        except AdviserFailed:
            raise
        except BaseException:
            # Also when the caller was cancelled: the next call would read the answer to this one.
            await self._stop(at_once=True)
            raise

    async def _stop(self, *, at_once: bool = False) -> None:
        child, self._child = self._child, None
        if child is not None:
            await _end(child, at_once=at_once)


async def importance_of(
    spec: Spec,
    trials: Sequence[tuple[Point, Sequence[float]]],
    *,
    deadline_seconds: float = _DEADLINE_SECONDS,
) -> Importance:
    """How much each parameter matters, by complete trials of a sweep; computed by another child process."""
    if find_spec("optuna") is None:
        return Importance((), f"importance is computed by Optuna, which is not installed; {_INSTALL}")
    told = [{"point": point, "values": list(values)} for point, values in trials]
    child = await _start_child(None)
    try:
        message = {"do": "importance_of", "spec": spec_object(spec), "trials": told}
        answer = await _exchange(child, message, deadline_seconds)
    except _ChildGone as gone:
        raise AdviserFailed(f"cannot compute the importance: the adviser {gone}") from gone
    finally:
        await _end(child, at_once=True)
    return Importance(tuple((each["name"], each["value"]) for each in answer["importance"]), answer["why"])


# The modules that a sampler needs besides Optuna.
_MODULES = {"gp": ("torch", "scipy"), "cmaes": ("cmaes",), "qmc": ("scipy",)}

# One thread: a study is small, and the cores belong to the jobs. No GPU, which a library might allocate.
# Optuna iterates over sets of names in places, and the same seed must give the same points.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONHASHSEED": "0",
}


class _ChildGone(Exception):
    """The child ended or did not answer; the message says which."""


async def _start_child(log: Path | None) -> asyncio.subprocess.Process:
    """Start a child; its stderr goes to the log, or to the stderr of this process."""
    try:
        with open(log, "ab") if log else nullcontext() as errors:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "dibs.sweeps.adviser_process"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=_LONGEST_ANSWER,
                # Ctrl-C in the terminal of a daemon must not reach it: it ends when its input does.
                start_new_session=True,
                env={**os.environ, **_ENVIRONMENT},
            )
    except OSError as error:
        raise AdviserFailed(f"cannot start the adviser of the sweep: {error.strerror or error}") from error


async def _exchange(
    child: asyncio.subprocess.Process, message: dict[str, Any], deadline_seconds: float
) -> dict[str, Any]:
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        async with asyncio.timeout(deadline_seconds):
            child.stdin.write(json.dumps(message).encode() + b"\n")
            await child.stdin.drain()
            line = await child.stdout.readline()
    except TimeoutError:
        raise _ChildGone(f"did not answer within {deadline_seconds:g} s") from None
    except (ConnectionError, ValueError) as error:  # ValueError: an answer beyond the limit
        raise _ChildGone(f"cannot be reached ({error})") from error
    if not line.endswith(b"\n"):
        raise _ChildGone("died")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise AdviserFailed(answer["error"], remedy=answer.get("remedy", ""))
    return answer


async def _end(child: asyncio.subprocess.Process, *, at_once: bool) -> None:
    """End the child: it ends by itself when its input is closed."""
    assert child.stdin is not None
    child.stdin.close()
    if not at_once:
        with suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), _PARTING_SECONDS)
    if child.returncode is None:
        with suppress(ProcessLookupError):
            child.kill()
    await child.wait()


_PARTING_SECONDS = 5.0


def _ended_object(ended: EndedTrial) -> dict[str, Any]:
    return {
        "number": ended.number,
        "state": ended.state,
        "values": None if ended.values is None else list(ended.values),
        "steps": [[step, value] for step, value in ended.steps.items()],
    }
