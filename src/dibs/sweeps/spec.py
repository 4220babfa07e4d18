"""What a sweep is to do, whole and checked: the command, the space, the search, and where results come from."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dibs.sweeps.checks import check_spec
from dibs.sweeps.fields import Fields
from dibs.sweeps.names import check_count
from dibs.sweeps.space import Choice, Parameter, Range, Scale

Method = Literal["grid", "random", "adaptive"]
Sampler = Literal["tpe", "gp", "cmaes", "qmc"]
Goal = Literal["min", "max"]
Source = Literal["metrics", "log", "file"]
Pruner = Literal["", "halving", "hyperband", "median"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a trial reports, and whether less or more of it is better."""

    name: str
    goal: Goal = "min"


@dataclass(frozen=True, slots=True)
class ResultSource:
    """Where the numbers of a trial are read: the file $DIBS_METRICS, its log, or a file it leaves behind."""

    kind: Source = "metrics"
    pattern: str = ""  # the regular expression, for the log
    path: str = ""  # for a file, seen from the folder of the trial; `%j` is the number of its job

    @property
    def is_shared(self) -> bool:
        """Whether every trial leaves its numbers in the same file."""
        return self.kind == "file" and not re.search(r"%[jAx]", self.path.replace("%%", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A sweep as somebody asked for it. What cannot be meant raises BadInput when it is made."""

    line: str = ""  # the command for a shell, or ...
    words: tuple[str, ...] = ()  # ... its words, which no shell touches
    shell: str = "bash"
    parameters: tuple[Parameter, ...]
    where: tuple[str, ...] = ()  # conditions that every point fulfils
    method: Method = "grid"
    sampler: Sampler = "tpe"
    is_shuffled: bool = False
    samples: int | None = None
    seed: int = 0
    metrics: tuple[Metric, ...] = ()
    results: ResultSource = ResultSource()
    pruner: Pruner = ""
    prune_after: int = 1  # how many steps a trial may take before it can be pruned
    prune_factor: int | None = None  # of so many trials one goes on; None: Optuna's 4 (halving), 3 (hyperband)
    parallel: int | None = None
    rerun: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        check_spec(self)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def needs_adviser(self) -> bool:
        """Whether Optuna has a say in it."""
        return self.method == "adaptive" or bool(self.pruner)


def spec_object(spec: Spec) -> dict[str, Any]:
    """The spec as JSON, with every key; of `command` and `words` the one that is meant."""
    return {
        **({"words": list(spec.words)} if spec.words else {"command": spec.line}),
        "shell": spec.shell,
        "parameters": [parameter_object(parameter) for parameter in spec.parameters],
        "where": list(spec.where),
        "method": spec.method,
        "sampler": spec.sampler,
        "shuffle": spec.is_shuffled,
        "samples": spec.samples,
        "seed": spec.seed,
        "metrics": [{"name": metric.name, "goal": metric.goal} for metric in spec.metrics],
        "results": {"from": spec.results.kind, "pattern": spec.results.pattern, "path": spec.results.path},
        "pruner": spec.pruner,
        "prune_after": spec.prune_after,
        "prune_factor": spec.prune_factor,
        "parallel": spec.parallel,
        "rerun": spec.rerun,
        "name": spec.name,
    }


def parameter_object(parameter: Parameter) -> dict[str, Any]:
    """One parameter as JSON."""
    if isinstance(parameter, Choice):
        return {"name": parameter.name, "values": list(parameter.values), "when": parameter.when}
    return {
        "name": parameter.name,
        "low": parameter.low,
        "high": parameter.high,
        "scale": parameter.scale,
        "integer": parameter.is_integer,
        "step": parameter.step,
        "when": parameter.when,
    }


def read_spec(given: Mapping[str, Any]) -> Spec:
    """The spec that JSON describes; BadInput with one sentence for everything that cannot be meant."""
    fields = Fields(given, "the sweep")
    parameters = fields.objects("parameters")
    check_count(len(parameters))  # before a million of them are looked at
    metrics = []
    for each in fields.objects("metrics"):
        metrics.append(Metric(each.text("name"), each.one_of("goal", Goal, "min")))
        each.end()
    source = fields.object("results")
    results = ResultSource(
        source.one_of("from", Source, "metrics"), source.text("pattern", ""), source.text("path", "")
    )
    source.end()
    parallel = fields.whole("parallel", None)
    if parallel is None and results.is_shared:
        parallel = 1
    spec = Spec(
        line=fields.text("command", ""),
        words=tuple(fields.texts("words")),
        shell=fields.text("shell", "bash"),
        parameters=tuple(_read_parameter(each) for each in parameters),
        where=tuple(fields.texts("where")),
        method=fields.one_of("method", Method, "grid"),
        sampler=fields.one_of("sampler", Sampler, "tpe"),
        is_shuffled=fields.truth("shuffle"),
        samples=fields.whole("samples", None),
        seed=fields.whole("seed", 0),
        metrics=tuple(metrics),
        results=results,
        pruner=fields.one_of("pruner", Pruner, ""),
        prune_after=fields.whole("prune_after", 1),
        prune_factor=fields.whole("prune_factor", None),
        parallel=parallel,
        rerun=fields.truth("rerun"),
        name=fields.text("name", ""),
    )
    fields.end()
    return spec


def _read_parameter(fields: Fields) -> Parameter:
    parameter: Parameter
    name, when = fields.text("name"), fields.text("when", "")
    if fields.has("values"):
        parameter = Choice(name, tuple(fields.values("values")), when)
    else:
        parameter = Range(
            name,
            fields.number("low"),
            fields.number("high"),
            fields.one_of("scale", Scale, "linear"),
            fields.truth("integer"),
            fields.number("step") if fields.has("step") else None,
            when,
        )
    fields.end()
    return parameter
