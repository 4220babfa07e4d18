"""The specification of a sweep: the command, the space, the search and the source of results; read and checked."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args

from dibs.dataclass import dataclass
from dibs.errors import BadInput, about
from dibs.metrics.lines import STEP
from dibs.sweeps.conditions import Constraints
from dibs.sweeps.curves import CurveKind
from dibs.sweeps.params import check_count, check_names
from dibs.sweeps.possible import check_possible
from dibs.sweeps.results import LogReader
from dibs.sweeps.space import Choice, Curve, Parameter, Point, Range, Scale, condition_of, parse_words
from dibs.sweeps.template import LineTemplate, WordsTemplate, line_without, words_without
from dibs.sweeps.wandb_trial import ConfigPart, read_config

Method = Literal["grid", "random", "adaptive", "population"]
Sampler = Literal["tpe", "gp", "cmaes", "qmc", "bohb", "nsga2"]
Goal = Literal["min", "max"]
Taken = Literal["last", "best"]
Source = Literal["metrics", "log", "file", "wandb"]
Pruner = Literal["", "halving", "hyperband", "median"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a trial reports, and whether less or more of it is better."""

    name: str
    goal: Goal = "min"
    take: Taken = "last"  # which of the values that a trial reports is its result
    target: float | None = None  # the search is over when a trial reaches it


@dataclass(frozen=True, slots=True)
class ResultSource:
    """Where the numbers of a trial are read: $DIBS_METRICS, its log, a file that it writes, or what W&B writes."""

    kind: Source = "metrics"
    pattern: str = ""  # the regular expression, for the log
    path: str = ""  # for a file, relative to the working directory of the trial; `%j` is its job number

    @property
    def is_shared(self) -> bool:
        """Whether every trial writes its numbers to the same file."""
        return self.kind == "file" and not re.search(r"%[jAx]", self.path.replace("%%", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A sweep as it was requested. Invalid specifications raise BadInput."""

    line: str = ""  # the command for a shell, or ...
    words: tuple[str, ...] = ()  # ... its words, to run without a shell
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
    prune_factor: int | None = None  # one of so many trials continues; None: Optuna's 4 (halving), 3 (hyperband)
    population: int = 8  # trials of a generation
    steps: int | None = None  # of a whole trial: the horizon of hyperband
    repeat: int = 1  # how often each point is run
    over: str = ""  # the placeholder that gets the number of the repeat, from 1 on
    parallel: int | None = None
    reuse: bool = False  # results of earlier sweeps, where the program was the same
    stop_on_nan: bool = False  # end a trial that reports a metric which is not finite
    program: str = ""  # a key of its files, interpreter and environment (inputs/program.py); empty: not known
    name: str = ""
    config: tuple[ConfigPart, ...] = ()  # of `wandb.config`, where that is not just the parameters
    revision: int = 0  # how often its parameters, conditions or metrics were edited: each has a study of its own

    def __post_init__(self) -> None:
        _check_spec(self)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def is_for_wandb(self) -> bool:
        """Whether its program uses W&B, whose config has the parameters of a trial."""
        return self.results.kind == "wandb" or bool(self.config)

    @property
    def watches_trials(self) -> bool:
        """Whether what trials report while they run may end them."""
        return bool(self.pruner) or self.stop_on_nan

    @property
    def placeholders(self) -> tuple[str, ...]:
        """What the command may have: the parameters, and what counts the repeats."""
        return (*self.names, self.over) if self.over else self.names

    @property
    def needs_adviser(self) -> bool:
        """Whether it needs Optuna."""
        return self.method == "adaptive" or bool(self.pruner)


def spec_object(spec: Spec) -> dict[str, Any]:
    """The spec as JSON, with every key, and with either `command` or `words`."""
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
        "metrics": [_metric_object(metric) for metric in spec.metrics],
        "results": {"from": spec.results.kind, "pattern": spec.results.pattern, "path": spec.results.path},
        "pruner": spec.pruner,
        "prune_after": spec.prune_after,
        "prune_factor": spec.prune_factor,
        "population": spec.population,
        "steps": spec.steps,
        "repeat": spec.repeat,
        "over": spec.over,
        "parallel": spec.parallel,
        "reuse": spec.reuse,
        "stop_on_nan": spec.stop_on_nan,
        "program": spec.program,
        "name": spec.name,
        **({"config": [dict(part) for part in spec.config]} if spec.config else {}),
        "revision": spec.revision,
    }


def _metric_object(metric: Metric) -> dict[str, Any]:
    """What few metrics have is left out where it is not said."""
    target = {} if metric.target is None else {"target": metric.target}
    taken = {} if metric.take == "last" else {"take": metric.take}
    return {"name": metric.name, "goal": metric.goal, **taken, **target}


def parameter_object(parameter: Parameter) -> dict[str, Any]:
    """One parameter as JSON."""
    if isinstance(parameter, Choice):
        weights = {"weights": list(parameter.weights)} if parameter.weights else {}
        return {"name": parameter.name, "values": list(parameter.values), "when": parameter.when, **weights}
    if isinstance(parameter, Curve):
        words = _ENDS_OF_CURVES[parameter.kind]
        ends = dict(zip(words, (parameter.first, parameter.second), strict=True))
        about = {"name": parameter.name, "distribution": parameter.kind, "when": parameter.when}
        return {**about, **ends, "step": parameter.step}
    return {
        "name": parameter.name,
        "low": parameter.low,
        "high": parameter.high,
        "scale": parameter.scale,
        "integer": parameter.is_integer,
        "step": parameter.step,
        "when": parameter.when,
        **({} if parameter.drawn is None else {"drawn": list(parameter.drawn)}),
    }


_ENDS_OF_CURVES: Mapping[CurveKind, tuple[str, str]] = {
    "normal": ("mu", "sigma"),
    "log_normal": ("mu", "sigma"),
    "beta": ("a", "b"),
}


def read_spec(given: Mapping[str, Any]) -> Spec:
    """The spec that JSON describes; BadInput where it is invalid."""
    fields = _Fields(given, "the sweep")
    with about("parameters"):
        check_count(fields.count("parameters"))  # before a million of them are read
    parameters = fields.objects("parameters")
    metrics = []
    with about("metrics"):
        for each in fields.objects("metrics"):
            name, goal = each.text("name"), each.one_of("goal", Goal, "min")
            target = each.number("target") if each.has("target") else None
            metrics.append(Metric(name, goal, each.one_of("take", Taken, "last"), target))
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
        parameters=tuple(_read_parameter(each, place) for place, each in enumerate(parameters)),
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
        population=fields.whole("population", 8),
        steps=fields.whole("steps", None),
        repeat=fields.whole("repeat", 1),
        over=fields.text("over", ""),
        parallel=parallel,
        reuse=fields.truth("reuse"),
        stop_on_nan=fields.truth("stop_on_nan"),
        program=fields.text("program", ""),
        name=fields.text("name", ""),
        config=read_config(fields.items("config")),
        revision=fields.whole("revision", 0),
    )
    fields.end()
    return spec


def _read_parameter(fields: "_Fields", place: int) -> Parameter:
    parameter: Parameter
    with about(f"parameters.{place}"):
        name, when = fields.text("name"), fields.text("when", "")
        if fields.is_text("values"):  # as it is typed behind -p NAME
            parameter = parse_words(name, fields.text("values"), condition_of(when))
        elif fields.has("values"):
            parameter = Choice(name, tuple(fields.values("values")), when, tuple(fields.numbers("weights")))
        elif fields.has("distribution"):
            kind = fields.one_of("distribution", CurveKind, "normal")
            first, second = (fields.number(word) for word in _ENDS_OF_CURVES[kind])
            step = fields.number("step") if fields.has("step") else None
            parameter = Curve(name, kind, first, second, step, when)
        else:
            drawn = fields.numbers("drawn")
            if drawn and len(drawn) != 2:
                raise BadInput(f"the ends of what is drawn of {name} are not two", remedy="as [0, 10]")
            parameter = Range(
                name,
                fields.number("low"),
                fields.number("high"),
                fields.one_of("scale", Scale, "linear"),
                fields.truth("integer"),
                fields.number("step") if fields.has("step") else None,
                when,
                (drawn[0], drawn[1]) if drawn else None,
            )
        fields.end()
    return parameter


def parse_metric(text: str, goal: str | None = None) -> dict[str, Any]:
    """`val_loss`, `acc:max`, or with `best` or `last` behind it: which of the reported values is the result."""
    found: dict[str, Any] = {"goal": goal or "min"}
    name, _, word = text.rpartition(":")
    if name and word in ("best", "last"):
        found["take"], text = word, name
        name, _, word = text.rpartition(":")
    if name and word in ("min", "max"):
        found["goal"], text = word, name
    return {"name": text, **found}


def read_parameter(given: Mapping[str, Any]) -> Parameter:
    """One parameter that JSON describes."""
    return _read_parameter(_Fields(given, f"the parameter {given.get('name')}"), 0)


_MOST_TEMPLATES = 1000


class CommandTemplate:
    """The command of a sweep, with one template for each set of parameters that are left out."""

    def __init__(self, spec: Spec) -> None:
        """Raise BadInput where the placeholders do not match the parameters."""
        self._line, self._words, self._names = spec.line, spec.words, spec.placeholders
        self._shell, self._program = spec.shell, spec.program
        self._source = (spec.results.kind, spec.results.pattern, spec.results.path)
        self._own_flags = {parameter.name for parameter in spec.parameters if _is_flag(parameter)}
        self._config = list(spec.config) if spec.is_for_wandb else None
        whole = self._template(frozenset(), allow_unused=spec.is_for_wandb)
        self._templates = {frozenset[str](): whole}
        for parameter in spec.parameters:
            if parameter.when or (isinstance(parameter, Choice) and None in parameter.values):
                self._template(frozenset([parameter.name]))
            if isinstance(parameter, Choice) and isinstance(whole, LineTemplate):
                for value in parameter.values:
                    if value is not None:
                        whole.check_value(parameter.name, value)

    def expand(self, point: Point) -> str | list[str]:
        """The line for the shell, or the words, without the flags of parameters that are none."""
        values = {name: value for name, value in point.items() if value is not None}
        gone = frozenset(self._names).difference(values)
        if gone not in self._templates:
            if len(self._templates) > _MOST_TEMPLATES:
                self._templates.clear()
            self._templates[gone] = self._template(gone)
        return self._templates[gone].expand(values)

    def fingerprint(self, point: Point, workdir: str, variables: Mapping[str, str] | None = None) -> str:
        """A hash of the command, its program, its working directory, its result source and its variables.

        Two trials of any sweep with the same fingerprint do the same work.
        """
        command = self.expand(point)
        shell = self._shell if isinstance(command, str) else ""
        told: list[object] = [shell, command, workdir, self._program, *self._source]
        if variables:
            told.append(sorted(variables.items()))
        if self._config is not None:
            told += [sorted(point.items()), self._config]
        return hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()

    def _template(self, gone: frozenset[str], *, allow_unused: bool = True) -> LineTemplate | WordsTemplate:
        if self._words:
            words = words_without(self._words, self._names, gone, self._own_flags)
            return WordsTemplate(words, self._names, allow_unused=allow_unused)
        line = line_without(self._line, self._names, gone, self._own_flags)
        return LineTemplate(line, self._names, allow_unused=allow_unused)


def _is_flag(parameter: Parameter) -> bool:
    """Whether its values are flags, as `--amp`, or none."""
    values = [value for value in parameter.values if value is not None] if isinstance(parameter, Choice) else []
    return bool(values) and all(value.startswith("--") for value in values)


_MOST_SAMPLES = 1_000_000
_MOST_CONDITIONS = 100
_MOST_REPEATS = 1000
_MOST_METRICS = 10
_LONGEST_NAME = 200
_SEEDS = 2**32  # what the generators of random numbers take
_METRIC = re.compile(r"[^\s=:,;'\"{}]+")


def _check_spec(spec: Spec) -> None:
    with about("parameters"):
        check_names(spec.names)
        Constraints(spec.parameters, ())
    if spec.over:
        with about("over"):
            check_names([spec.over])
    with about("command"):
        _check_command(spec)
    with about("where"):
        if len(spec.where) > _MOST_CONDITIONS:
            raise BadInput(f"a sweep has at most {_MOST_CONDITIONS} conditions", remedy="join some with `and`")
        Constraints(spec.parameters, spec.where)
        check_possible(spec.parameters, spec.where)
    with about("metrics"):
        _check_metrics(spec)
    with about("results"):
        _check_results(spec)
    _check_numbers(spec)
    _check_nan(spec)
    _check_repeats(spec)
    _check_search(spec)
    with about("name"):
        _check_name(spec.name)


def _check_command(spec: Spec) -> None:
    if bool(spec.line.strip()) == bool(spec.words):
        raise BadInput(
            "there are two commands" if spec.words else "there is no command",
            remedy='give it as a line, "python train.py --lr {lr}", or as words',
        )
    if "\0" in "".join([spec.line, *spec.words, spec.shell]):
        raise BadInput("the command contains a NUL byte", remedy="no program can be given one")
    if not spec.shell:
        raise BadInput("the shell has no name", remedy="bash, sh or another that takes -c")
    CommandTemplate(spec)


def _check_metrics(spec: Spec) -> None:
    seen = set()
    for metric in spec.metrics:
        if not _METRIC.fullmatch(metric.name) or len(metric.name) > _LONGEST_NAME or metric.name == STEP:
            raise BadInput(
                f"cannot use {metric.name[:_LONGEST_NAME]!r} as a metric's name",
                remedy="one word without = : , as val_loss or, with a goal, val_loss:max; step is the step",
            )
        if metric.name in seen:
            raise BadInput(f"the metric {metric.name} is given twice", remedy="give it once")
        seen.add(metric.name)
    if len(spec.metrics) > _MOST_METRICS:
        raise BadInput(f"a sweep has at most {_MOST_METRICS} metrics", remedy="leave some out")


def _check_results(spec: Spec) -> None:
    results = spec.results
    if results.pattern and results.kind != "log":
        raise BadInput("an expression is for results from the log", remedy="leave it out, or read the log")
    if results.path and results.kind != "file":
        raise BadInput("a path is for results from a file", remedy="leave it out, or read the file")
    if results.kind == "log" and not results.pattern:
        raise BadInput("results from the log need an expression", remedy=r"as val_loss=(\S+)")
    if results.kind == "file" and (not results.path or "\0" in results.path):
        raise BadInput("results from a file need its path", remedy="as result.json")
    if results.is_shared and spec.parallel is not None and spec.parallel > 1:
        raise BadInput(
            f"several trials at a time would all write {results.path[:100]}, and read each other's numbers",
            remedy="a file for each, as result-%j.json, where %j is its $DIBS_JOB_ID; or --parallel 1",
        )
    if results.kind in ("log", "file") and not spec.metrics:
        raise BadInput("results are read, but no metric is named", remedy="name it: --metric val_loss --goal min")
    if results.kind == "log":
        LogReader(results.pattern, [metric.name for metric in spec.metrics])


def _check_search(spec: Spec) -> None:
    if spec.method == "adaptive" and not spec.metrics:
        raise BadInput(
            "an adaptive search needs a metric", remedy="name it: --metric val_loss --goal min", field="metrics"
        )
    if spec.method != "grid" and spec.samples is None:
        raise BadInput(
            f"a search of the method {spec.method} has no end",
            remedy="say how many: --samples 40",
            field="samples",
        )
    if spec.method == "adaptive" and spec.sampler == "cmaes" and len(spec.metrics) > 1:
        raise BadInput(
            "the sampler cmaes knows one metric only", remedy="take tpe, or one metric", field="sampler"
        )
    if spec.method == "adaptive" and spec.sampler == "nsga2" and len(spec.metrics) < 2:
        raise BadInput(
            "the sampler nsga2 is for several metrics",
            remedy="--metric loss --metric seconds, or take tpe",
            field="sampler",
        )
    if spec.method == "adaptive" and spec.sampler == "bohb" and (spec.pruner != "hyperband" or spec.steps is None):
        raise BadInput(
            "the sampler bohb is the search of a hyperband whose length is known",
            remedy="--prune hyperband --steps 81, where 81 steps are a whole trial",
            field="sampler",
        )
    if spec.steps is not None and (spec.pruner != "hyperband" or spec.steps < spec.prune_after):
        raise BadInput(
            f"{spec.steps} steps are for hyperband, and it begins to prune after {spec.prune_after}",
            remedy="--prune hyperband, and as many steps as a whole trial has",
            field="steps",
        )
    if (
        spec.method == "adaptive"
        and spec.sampler == "cmaes"
        and all(isinstance(parameter, Choice) for parameter in spec.parameters)
    ):
        raise BadInput(
            "the sampler cmaes moves in ranges, and no parameter is one", remedy="take tpe", field="sampler"
        )
    if spec.method == "grid":
        for place, parameter in enumerate(spec.parameters):
            if parameter.count is None:
                raise BadInput(
                    f"a grid cannot enumerate {parameter.name}, a continuous range",
                    remedy="give the range a step, as 0..1:0.1, or search at random: --samples 40",
                    field=f"parameters.{place}",
                )
    if spec.method == "adaptive" and all(
        isinstance(parameter, Choice) and parameter.count == 1 for parameter in spec.parameters
    ):
        raise BadInput(
            "there is only one point to try", remedy="give a parameter more than one value", field="parameters"
        )
    if spec.method == "population":
        _check_population(spec)
    if not spec.pruner:
        return
    if len(spec.metrics) != 1:
        raise BadInput(
            "a pruner compares trials by one metric",
            remedy="name one metric, or leave the pruner out",
            field="pruner",
        )
    if spec.results.kind == "file":
        raise BadInput(
            "a pruner needs numbers while a trial runs, and a result file comes at its end",
            remedy="report to $DIBS_METRICS, or leave the pruner out",
            field="pruner",
        )


def _check_population(spec: Spec) -> None:
    wrong = ""
    if len(spec.metrics) != 1:
        wrong = "compares its trials by one metric"
    elif spec.pruner:
        wrong = "has no pruner: its worst trials take over the checkpoints of the best"
    elif spec.over or spec.reuse:
        wrong = "repeats and reuses no trial: each goes on from a checkpoint"
    elif (spec.samples or 0) < spec.population:
        wrong = f"of {spec.population} has more than {spec.samples} trials"
    if wrong:
        raise BadInput(
            f"a population {wrong}",
            remedy="--method population --population 8 --samples 80 --metric loss: ten generations of eight",
            field="method",
        )


def _check_repeats(spec: Spec) -> None:
    if spec.repeat != 1 and not spec.over:
        raise BadInput(
            "points are to be repeated, but nothing would distinguish the repeats",
            remedy="name a placeholder: --repeat 3 --over seed, with --seed {seed} in the command",
            field="over",
        )
    if spec.over in spec.names:
        raise BadInput(
            f"{spec.over} counts the repeats of each point and is a parameter, too",
            remedy=f"leave out -p {spec.over}",
            field="over",
        )


def _check_nan(spec: Spec) -> None:
    if spec.stop_on_nan and (not spec.metrics or spec.results.kind == "file"):
        raise BadInput(
            "trials can be ended on NaN by a metric that they report while they run, and there is none",
            remedy="name a metric, reported to $DIBS_METRICS or found in the log",
            field="stop_on_nan",
        )


def _check_numbers(spec: Spec) -> None:
    for name, number, least, most in [
        ("samples", spec.samples, 1, _MOST_SAMPLES),
        ("parallel", spec.parallel, 1, _MOST_SAMPLES),
        ("population", spec.population, 2, 10_000),
        ("steps", spec.steps, 1, _MOST_SAMPLES),
        ("repeat", spec.repeat, 1, _MOST_REPEATS),
        ("prune_after", spec.prune_after, 0, _MOST_SAMPLES),
        ("prune_factor", spec.prune_factor, 2, _MOST_SAMPLES),
        ("seed", spec.seed, 0, _SEEDS - 1),
    ]:
        if number is not None and not least <= number <= most:
            raise BadInput(
                f"{name} cannot be {number if abs(number) < 10**20 else 'that large'}",
                remedy=f"it is a whole number from {least} to {most}",
                field=name,
            )


def _check_name(name: str) -> None:
    if len(name) > _LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise BadInput(f"cannot call a sweep {name[:50]!r}", remedy=f"up to {_LONGEST_NAME} letters of one line")
    if name.isdecimal() or name.startswith("@"):
        raise BadInput(
            f"cannot call a sweep {name!r}: it would look like a sweep's number", remedy="begin with a letter"
        )


_Default = TypeVar("_Default", int, None)


class _Fields:
    """A JSON object, read key by key; `end` raises BadInput for keys that were not read."""

    def __init__(self, given: Any, owner: str) -> None:
        """`owner` names the object in messages, as `the sweep` or `the parameter lr`."""
        if not isinstance(given, Mapping):
            raise BadInput(f"cannot read {owner}: it is not an object with keys", remedy=_REMEDY)
        self._given = given
        self._owner = owner
        self._read: set[str] = set()

    def has(self, key: str) -> bool:
        """Whether the key has a value other than null."""
        self._read.add(key)
        return self._given.get(key) is not None

    def is_text(self, key: str) -> bool:
        return isinstance(self._given.get(key), str)

    def text(self, key: str, default: str | None = None) -> str:
        """A text; required where there is no default."""
        value = self._take(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a text")
        return value

    def texts(self, key: str) -> list[str]:
        values = self._list(key)
        if not all(isinstance(value, str) for value in values):
            raise self._wrong(key, "a list of texts")
        return values

    def values(self, key: str) -> list[str | None]:
        """Texts or null; numbers and booleans become texts as JSON writes them."""
        return [self._value(key, value) for value in self._list(key)]

    def number(self, key: str) -> float:
        value = self._take(key, None)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            raise self._wrong(key, "a number")
        return float(value)

    def numbers(self, key: str) -> list[float]:
        values = self._list(key)
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
                raise self._wrong(key, "a list of numbers")
        return [float(value) for value in values]

    def whole(self, key: str, default: _Default) -> int | _Default:
        if not self.has(key):
            return default
        value = self._given[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "a whole number")
        return value

    def truth(self, key: str) -> bool:
        value = self._take(key, False)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def one_of(self, key: str, words: Any, default: str) -> Any:
        """One of the words of a Literal."""
        value = self._take(key, default)
        if value not in get_args(words):
            raise self._wrong(key, " or ".join(word or "empty" for word in get_args(words)))
        return value

    def object(self, key: str) -> "_Fields":
        """A nested object; an empty one where the key is missing."""
        return _Fields(self._take(key, {}), f"{key} of {self._owner}")

    def items(self, key: str) -> list[Any]:
        """A list of anything; empty where the key is missing."""
        return self._list(key)

    def count(self, key: str) -> int:
        """The length of a list, whose items are not read."""
        return len(self._list(key))

    def objects(self, key: str) -> "list[_Fields]":
        return [
            _Fields(value, f"{key} {place} of {self._owner}") for place, value in enumerate(self._list(key), 1)
        ]

    def end(self) -> None:
        """Raise BadInput for keys that were not read."""
        for key in self._given:
            if key not in self._read:
                known = ", ".join(sorted(self._read))
                raise BadInput(
                    f"cannot read {self._owner}: there is no key {key!r}", remedy=f"the keys are {known}"
                )

    def _take(self, key: str, default: Any) -> Any:
        self._read.add(key)
        value = self._given.get(key)
        return default if value is None else value

    def _list(self, key: str) -> list[Any]:
        values = self._take(key, [])
        if not isinstance(values, list | tuple):
            raise self._wrong(key, "a list")
        return list(values)

    def _value(self, key: str, value: Any) -> str | None:
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int | float) and _is_finite(value):
            return json.dumps(value)
        raise self._wrong(key, "a list of texts, numbers and null")

    def _wrong(self, key: str, wanted: str) -> BadInput:
        missing = self._given.get(key) is None
        return BadInput(
            f"cannot read {self._owner}: {key} is {'missing' if missing else 'not ' + wanted}",
            remedy=f"{key} is {wanted}",
            field=key if self._owner == "the sweep" else "",
        )


_REMEDY = 'as {"command": "train --lr {lr}", "parameters": [{"name": "lr", "values": ["0.1"]}]}'


def _is_finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of 400 digits
        return False
