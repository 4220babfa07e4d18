"""Whether the parts of a sweep go together."""

import re
from typing import TYPE_CHECKING

from dibs.errors import BadInput
from dibs.sweeps.commands import CommandTemplate
from dibs.sweeps.names import check_names
from dibs.sweeps.points import Activity
from dibs.sweeps.results import STEP, LogReader
from dibs.sweeps.space import Choice
from dibs.sweeps.where import Condition

if TYPE_CHECKING:
    from dibs.sweeps.spec import Spec

_MOST_SAMPLES = 1_000_000
_MOST_CONDITIONS = 100
_MOST_METRICS = 10
_LONGEST_NAME = 200
_SEEDS = 2**32  # what the generators of random numbers take
_METRIC = re.compile(r"[^\s=:,;'\"{}]+")


def check_spec(spec: "Spec") -> None:
    """Raise BadInput, with one sentence and what to do, for what cannot be meant."""
    check_names(spec.names)
    _check_command(spec)
    Activity(spec.parameters)
    if len(spec.where) > _MOST_CONDITIONS:
        raise BadInput(f"a sweep has at most {_MOST_CONDITIONS} conditions", remedy="join some with `and`")
    for text in spec.where:
        Condition(text, spec.names)
    _check_metrics(spec)
    _check_results(spec)
    _check_search(spec)
    _check_numbers(spec)
    _check_name(spec.name)


def _check_command(spec: "Spec") -> None:
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


def _check_metrics(spec: "Spec") -> None:
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


def _check_results(spec: "Spec") -> None:
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
    if results.kind != "metrics" and not spec.metrics:
        raise BadInput("results are read, but no metric is named", remedy="name it: --metric val_loss --goal min")
    if results.kind == "log":
        LogReader(results.pattern, [metric.name for metric in spec.metrics])


def _check_search(spec: "Spec") -> None:
    if spec.method == "adaptive" and not spec.metrics:
        raise BadInput("an adaptive search has no metric to go by", remedy="name it: --metric val_loss --goal min")
    if spec.method != "grid" and spec.samples is None:
        raise BadInput(f"a search that is {spec.method} has no end", remedy="say how many: --samples 40")
    if spec.method == "adaptive" and spec.sampler == "cmaes" and len(spec.metrics) > 1:
        raise BadInput("the sampler cmaes knows one metric only", remedy="take tpe, or one metric")
    if (
        spec.method == "adaptive"
        and spec.sampler == "cmaes"
        and all(isinstance(parameter, Choice) for parameter in spec.parameters)
    ):
        raise BadInput("the sampler cmaes moves in ranges, and no parameter is one", remedy="take tpe")
    if spec.method == "grid":
        for parameter in spec.parameters:
            if parameter.count is None:
                raise BadInput(
                    f"a grid cannot count the values of {parameter.name}, which lie dense",
                    remedy="give the range a step, as 0..1:0.1, or search at random: --samples 40",
                )
    if spec.method == "adaptive" and all(
        isinstance(parameter, Choice) and parameter.count == 1 for parameter in spec.parameters
    ):
        raise BadInput("there is only one point to try", remedy="give a parameter more than one value")
    if not spec.pruner:
        return
    if len(spec.metrics) != 1:
        raise BadInput("a pruner compares trials by one metric", remedy="name one metric, or leave the pruner out")
    if spec.results.kind == "file":
        raise BadInput(
            "a pruner needs numbers while a trial runs, and a result file comes at its end",
            remedy="report to $DIBS_METRICS, or leave the pruner out",
        )


def _check_numbers(spec: "Spec") -> None:
    for name, number, least, most in [
        ("samples", spec.samples, 1, _MOST_SAMPLES),
        ("parallel", spec.parallel, 1, _MOST_SAMPLES),
        ("prune_after", spec.prune_after, 0, _MOST_SAMPLES),
        ("prune_factor", spec.prune_factor, 2, _MOST_SAMPLES),
        ("seed", spec.seed, 0, _SEEDS - 1),
    ]:
        if number is not None and not least <= number <= most:
            raise BadInput(
                f"{name} cannot be {number if abs(number) < 10**20 else 'that large'}",
                remedy=f"it is a whole number from {least} to {most}",
            )


def _check_name(name: str) -> None:
    if len(name) > _LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise BadInput(f"cannot call a sweep {name[:50]!r}", remedy=f"up to {_LONGEST_NAME} letters of one line")
    if name.isdecimal() or name.startswith("@"):
        raise BadInput(
            f"cannot call a sweep {name!r}: that is how its number is given", remedy="begin with a letter"
        )
