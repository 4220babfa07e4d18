"""`dibs.sweep(...)`: begin a search from Python, and see its trials as they end."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from dibs.api.connection import ask, patient, say
from dibs.api.job import Job
from dibs.api.job_keywords import JobKeywords
from dibs.api.wishes import read_wishes
from dibs.client import sweeps as daemon
from dibs.client.adding import difference
from dibs.client.client import Client, connect
from dibs.client.events import listen
from dibs.dataclass import dataclass
from dibs.errors import BadInput, DibsError, NoDaemon
from dibs.inputs.code import describe_code
from dibs.inputs.program import program_key
from dibs.inputs.wishes import apply_wishes
from dibs.model.jobs import NOTHING
from dibs.sweeps.choice import choose_search
from dibs.sweeps.spec import read_spec, spec_object
from dibs.sweeps.sweepfile import read_sweep_file, read_sweep_values

Value = int | float | str | None
_ENDED = ("complete", "pruned", "failed", "reused")
_LOOK_EVERY = 0.3  # seconds, where the events of the daemon do not come


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial that has ended."""

    number: int
    state: str  # complete, pruned, failed or reused
    params: Mapping[str, Value]  # numbers where they are numbers; None: the parameter was left out
    values: Sequence[float] | None  # in the order of the metrics; None where it has none
    means: Sequence[float] | None  # of the first of several repeats, when all have ended: over all of them
    spreads: Sequence[float] | None  # their standard deviations
    seconds: float | None
    why: str  # it failed or was pruned
    command: str
    job: Job | None  # which ran it, or an earlier one of the same program

    @property
    def value(self) -> float | None:
        """Of the only metric, or the first of several."""
        return None if self.values is None else self.values[0]


class RunningSweep:
    """A sweep of the queue. It goes on when this program ends; a loop over it gives its trials as they end."""

    def __init__(self, id: int, callbacks: "Iterable[Callback]" = ()) -> None:
        self.id = id
        self._callbacks = tuple(callbacks)
        self._told: set[int] = set()  # trials for which the callbacks were called

    def __repr__(self) -> str:
        return f"<dibs.sweep {self.id}>"

    @property
    def about(self) -> Mapping[str, Any]:
        """The sweep now, as in the API."""
        return ask(partial(daemon.sweep, number=self.id))

    @property
    def state(self) -> str:
        """running, held, finished or stopped; now."""
        return str(self.about["state"])

    def __iter__(self) -> Iterator[TrialRecord]:
        """Each trial once, those that have ended first; until the sweep has finished, is held or stopped."""
        seen: set[int] = set()
        for trial in self._ended():
            if trial.number not in seen:
                seen.add(trial.number)
                self._tell(trial)
                yield trial

    def wait(self) -> "RunningSweep":
        """Wait until it has finished, is held or was stopped."""
        for _ in self:
            pass
        return self

    @property
    def trials(self) -> list[TrialRecord]:
        """Those that have ended by now, in the order of their numbers."""
        return ask(self._read)

    @property
    def best(self) -> TrialRecord | None:
        """The best trial by now; None while none has a result. Of several metrics `front` has the best ones.

        Of points that are repeated it has the means as its values.
        """
        front = self.front
        return front[0] if front else None

    @property
    def front(self) -> list[TrialRecord]:
        """The best trial; with several metrics all that no other beats."""
        best = map(_trial, self.about["best"])
        return [one if one.means is None else replace(one, values=one.means) for one in best]

    def rows(self) -> list[dict[str, Any]]:
        """A dict for each trial: number, state, the metrics, the parameters, seconds, job, why."""
        about = self.about
        metrics = [metric["name"] for metric in about["spec"]["metrics"]]
        return [_row(trial, metrics) for trial in self.trials]

    def dataframe(self) -> Any:
        """The same as a table of pandas, which must be installed."""
        try:
            import pandas  # type: ignore[import-untyped, import-not-found, unused-ignore]
        except ImportError:
            raise DibsError(
                "cannot make a table: pandas is not installed",
                remedy="pip install pandas, or use rows(), which are dicts",
            ) from None
        return pandas.DataFrame(self.rows())

    def stop(self) -> None:
        """End it and its running trials."""
        ask(partial(daemon.act_on_sweep, number=self.id, action="stop"))

    def _tell(self, trial: TrialRecord) -> None:
        if trial.number not in self._told:
            self._told.add(trial.number)
            for callback in self._callbacks:
                callback(self, trial)

    def _read(self, client: Client) -> list[TrialRecord]:
        return [_trial(one) for one in daemon.trials(client, self.id, states=_ENDED)]

    def _ended(self) -> Iterator[TrialRecord]:
        """Trials that have ended, some of them more than once."""
        last: int | None = None
        while True:
            client = connect(os.environ, start=False, notice=say)
            try:
                for event in listen(client, last, patience=0):
                    if event is None or event["kind"] == "events.missed":
                        yield from self.trials
                    elif event.get("sweep") == self.id and event["kind"] == "sweep.trial":
                        if event["trial"]["state"] in _ENDED:
                            yield _trial(event["trial"])
                    elif event.get("sweep") != self.id:
                        last = event.get("id", last)
                        continue
                    last = last if event is None else event.get("id", last)
                    if self.state != "running":
                        yield from self.trials
                        return
            except NoDaemon:  # it may restart in a moment; one that has crashed is started again
                with patient() as again:
                    again.ask(lambda client: client.status())
            finally:
                client.close()
            time.sleep(_LOOK_EVERY)


Callback = Callable[[RunningSweep, TrialRecord], None]


def sweep(
    what: str | Sequence[str] | os.PathLike[str],
    parameters: Mapping[str, Any] | None = None,
    /,
    *,
    samples: int | None = None,
    metric: str | None = None,
    goal: str | None = None,
    callbacks: Iterable[Callback] = (),
    search: Mapping[str, Any] | None = None,
    **wishes: Unpack[JobKeywords],
) -> RunningSweep:
    """Begin a search over a command, and return at once: `dibs.sweep("train.py {lr}", {"lr": "1e-4..1:log"})`.

    `what` is a line for the shell, words, or a sweep file (a path that ends with .yaml or .yml). `parameters` and
    `search` are as in a file: ranges as text, lists of values, and its other keys (`method`, `seed`, `pruner`,
    `parallel`, `where`, ...). `metric` is as on the command line: `loss`, `acc:max`, `acc:max:best`.
    The other keywords are wishes of each trial's job.
    """
    spec, defaults = _spec_and_defaults(
        what,
        {**dict(search or {}), "samples": samples, "metric": metric, "goal": goal},
        dict(parameters or {}),
        wishes,
    )
    environ = dict(os.environ)
    spec["program"] = program_key(spec.get("command") or spec["words"], defaults["workdir"], environ)
    added = ask(
        partial(
            daemon.add_sweep,
            spec=spec,
            key=os.urandom(16).hex(),
            defaults=defaults,
            environment=environ,
            code=describe_code(defaults["workdir"], environ),
        )
    )
    return RunningSweep(int(added["id"]), callbacks)


def sweep_by_id(id: int | str) -> RunningSweep:
    """The sweep with this number or name; `@` is the last one."""
    return RunningSweep(ask(lambda client: daemon.find_sweep(client, str(id))))


def _spec_and_defaults(
    what: object, options: Mapping[str, Any], parameters: Mapping[str, Any], wishes: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    if callable(what):
        raise BadInput(
            "cannot search over a function with dibs.sweep: a trial is a command",
            remedy="dibs.ask_and_tell takes functions, and dibs.optimize those of Optuna",
        )
    said = {key: value for key, value in options.items() if value is not None}
    spec: dict[str, Any] = {}
    of_file: dict[str, Any] = {}
    if isinstance(what, os.PathLike) or (isinstance(what, str) and _is_file_name(what)):
        path = os.fspath(what)
        try:
            with open(path, encoding="utf-8") as file:
                spec, of_file = read_sweep_file(file.read(), path, os.environ)
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"cannot read {path}: {error}", remedy="name a sweep file") from None
    elif isinstance(what, str):
        said["command"] = what
    else:
        said["command"] = list(what)  # type: ignore[call-overload]
    told, rest = read_sweep_values({**said, "parameters": parameters}, "dibs.sweep")
    if rest:
        raise BadInput(
            f"cannot read {next(iter(rest))[:60]!r} in search", remedy="it has the keys of a sweep file"
        )
    replaced = {one["name"]: one for one in told.pop("parameters")}
    where = [*spec.get("where", ()), *told.pop("where")]
    known = [replaced.pop(one["name"], one) for one in spec.get("parameters", ())]
    spec = {**spec, **told, "where": where, "parameters": [*known, *replaced.values()]}
    spec.setdefault("metrics", [])
    choose_search(spec, sampler=spec.get("sampler") if "method" not in spec else None)
    request = read_wishes(wishes)
    if of_file:
        unsaid = {word: wish for word, wish in of_file.items() if word not in wishes}
        request = apply_wishes(request, unsaid)
    return spec_object(read_spec(spec)), difference(request, NOTHING)


def _is_file_name(text: str) -> bool:
    return text.endswith((".yaml", ".yml")) and not set(text) & set(" {")


def _trial(about: Mapping[str, Any]) -> TrialRecord:
    job = about["job"] or about["reused_from"]
    return TrialRecord(
        number=about["number"],
        state=about["state"],
        params={name: _number(text) for name, text in about["point"].items()},
        values=about["values"],
        means=about["means"],
        spreads=about["spreads"],
        seconds=about["seconds"],
        why=about["why"] or "",
        command=about["command"],
        job=None if job is None else Job(job),
    )


def _number(text: Any) -> Value:
    if not isinstance(text, str):
        return text  # type: ignore[no-any-return]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _row(trial: TrialRecord, metrics: Sequence[str]) -> dict[str, Any]:
    values: Sequence[float | None] = trial.values or [None] * len(metrics)
    row = {
        "number": trial.number,
        "state": trial.state,
        **dict(zip(metrics, values, strict=False)),
        "seconds": trial.seconds,
        "job": None if trial.job is None else trial.job.id,
        "why": trial.why,
    }
    # As in CSV: a parameter that is called like another column is param.NAME.
    return row | {(f"param.{name}" if name in row else name): value for name, value in trial.params.items()}
