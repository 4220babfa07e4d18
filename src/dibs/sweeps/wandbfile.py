"""A sweep file of Weights & Biases as a sweep of ours: the same points, passed to the same program.

What has no equal here is refused with a sentence; nothing that changes what is tried is passed over.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dibs.errors import BadInput
from dibs.sweeps.space import Choice, Parameter, Range, Scale, number_text
from dibs.sweeps.spec import parameter_object
from dibs.sweeps.wandbcommand import Argument, WandbCommand, argument_text
from dibs.sweeps.yamltext import Truth

_METHODS = {"grid": "grid", "random": "random", "bayes": "adaptive"}
_GOALS = {"minimize": "min", "maximize": "max"}
_OF_A_PARAMETER = {"value", "min", "max", "distribution", "probabilities", "mu", "sigma", "q", "a", "b"}


def is_of_wandb(given: Mapping[str, Any]) -> bool:
    """Whether a file is theirs and not ours: it names a program, or has their macros, or their words."""
    command = given.get("command")
    if "program" in given or (isinstance(command, list) and any("${" in str(word) for word in command)):
        return True
    if command is not None or "words" in given:
        return False
    parameters = given.get("parameters")
    rules = [rule for rule in parameters.values() if _is_mapping(rule)] if isinstance(parameters, Mapping) else []
    return (
        given.get("method") == "bayes"
        or _is_mapping(given.get("metric"))
        or any(not _OF_A_PARAMETER.isdisjoint(rule) or _is_mapping(rule.get("parameters")) for rule in rules)
    )


def read_wandb(
    given: Mapping[str, Any], path: str, environment: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sweep as JSON, and the wishes about its jobs."""
    return _Wandb(given, path, environment).read()


class _Wandb:
    def __init__(self, given: Mapping[str, Any], path: str, environment: Mapping[str, str]) -> None:
        self._given = dict(given)
        self._path = path
        self._environment = environment

    def read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        take = self._given.pop
        spec: dict[str, Any] = {}
        method = take("method", None)
        if method not in _METHODS:
            raise self._refused(f"the method is {method!r}", "it is grid, random or bayes")
        spec["method"] = _METHODS[method]
        spec |= self._metric(take("metric", None)) | self._early_terminate(take("early_terminate", None))
        arguments = list(self._arguments(self._mapping(take("parameters", None), "parameters"), ()))
        command = WandbCommand(
            take("command", None),
            take("program", None),
            arguments,
            path=self._path,
            environment=self._environment,
        )
        spec["words"] = command.words
        spec["parameters"] = [parameter_object(parameter) for parameter in command.parameters]
        if (cap := take("run_cap", None)) is not None:
            spec["samples"] = self._whole(cap, "run_cap")
        if (name := take("name", None)) is not None:
            spec["name"] = self._text(name, "name")
        take("description", None)  # for people: it changes nothing that is run
        # What their agent would tell the program.
        variables = {
            variable: self._text(take(key), key)
            for key, variable in (("project", "WANDB_PROJECT"), ("entity", "WANDB_ENTITY"))
            if self._given.get(key) is not None
        }
        for key in self._given:
            raise self._refused(f"dibs does not know what to do with the key {key[:60]}", "leave it out")
        return spec, {"env": variables} if variables else {}

    def _metric(self, given: Any) -> dict[str, Any]:
        if given is None:
            return {}
        metric = self._mapping(given, "metric")
        name, goal = metric.pop("name", None), metric.pop("goal", "minimize")
        if goal not in _GOALS:
            raise self._refused(f"the goal is {goal!r}", "it is minimize or maximize")
        if "target" in metric:
            raise self._refused("a target that ends the search is not known here", "leave it out, and use run_cap")
        self._end(metric, "metric")
        return {"metrics": [{"name": self._text(name, "the name of the metric"), "goal": _GOALS[goal]}]}

    def _early_terminate(self, given: Any) -> dict[str, Any]:
        if given is None:
            return {}
        rule = self._mapping(given, "early_terminate")
        if rule.pop("type", None) != "hyperband":
            raise self._refused(
                "early_terminate has a type that is not hyperband", "hyperband is the one there is"
            )
        factor = {"prune_factor": self._whole(rule.pop("eta"), "eta")} if "eta" in rule else {}
        eta = factor.get("prune_factor", 3)
        if eta < 2:
            raise self._refused(f"eta is {eta}", "one of eta trials goes on: it is a whole number from 2")
        strict = rule.pop("strict", Truth("false"))
        if not isinstance(strict, Truth) or strict.is_true:
            raise self._refused("a strict hyperband is not known here", "leave `strict` out")
        after = self._first_look(rule, eta)
        self._end(rule, "early_terminate")
        return {"pruner": "hyperband", "prune_after": after, **factor}

    def _first_look(self, rule: dict[str, Any], eta: int) -> int:
        """The step at which trials are compared first; counted from the end where max_iter and s are given."""
        if "min_iter" in rule and "max_iter" in rule:
            raise self._refused("early_terminate has min_iter and max_iter", "one of them says it all")
        if "max_iter" in rule:
            most, s = self._whole(rule.pop("max_iter"), "max_iter"), self._whole(rule.pop("s", None), "s")
            looks = [most / eta**n for n in range(1, min(s, 100) + 1)]
            return min((int(look) for look in looks if look >= 1), default=max(1, most))
        rule.pop("s", None)  # how often from max_iter on; beside min_iter their agent passes over it too
        return self._whole(rule.pop("min_iter", None), "min_iter")

    def _arguments(self, given: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[Argument]:
        for name, value in given.items():
            path = (*above, name)
            rule = self._mapping(value, ".".join(path))
            if _is_mapping(rule.get("parameters")):
                inner = rule.pop("parameters")
                self._end(rule, name)
                yield from self._arguments(inner, path)
            elif rule.get("distribution") == "constant" or set(rule) == {"value"}:
                rule.pop("distribution", None)
                if "value" not in rule:
                    raise self._refused(f"{name} is constant and has no value", "give it one")
                yield Argument(path, rule.pop("value"))
                self._end(rule, name)
            else:
                yield Argument(path, self._parameter(".".join(path), rule))

    def _parameter(self, name: str, rule: dict[str, Any]) -> Parameter:
        kind = rule.pop("distribution", None)
        if kind in (None, "categorical", "categorical_w_probabilities") and "values" in rule:
            values = rule.pop("values")
            self._check_probabilities(name, rule.pop("probabilities", []))
            self._end(rule, name)
            if not isinstance(values, list):
                raise self._refused(f"the values of {name} are no list", "write [1, 2, 3]")
            # One that is there twice is tried once: a dict keeps the order.
            return Choice(name, tuple(dict.fromkeys(argument_text(value) for value in values)))
        if str(kind).startswith("categorical"):
            raise self._refused(f"{name} is categorical and has no values", "give it some")
        if kind is None and not {"min", "max"} <= rule.keys():
            raise self._refused(f"{name} has neither value, values, nor min and max", "give it one of them")
        return self._range(name, kind, rule)

    def _check_probabilities(self, name: str, given: Any) -> None:
        if not isinstance(given, list):
            raise self._refused(f"the probabilities of {name} are no list", "leave them out")
        if len({self._number(each, f"a probability of {name}") for each in given}) > 1:
            raise self._refused(
                f"{name} has values of unequal probability, and dibs draws one as often as the other",
                "leave the probabilities out",
            )

    def _range(self, name: str, kind: Any, rule: dict[str, Any]) -> Range:
        if kind not in _RANGES:
            raise self._refused(
                f"{name} has the distribution {kind!r}, and dibs draws evenly between two ends, or on a log scale",
                f"min and max, with one of {', '.join(kind for kind in _RANGES if kind)}",
            )
        texts = [rule.pop(end, None) for end in ("min", "max")]
        low, high = (self._number(text, f"an end of {name}") for text in texts)
        q = self._number(rule.pop("q", "1"), f"q of {name}") if str(kind).startswith("q_") else None
        self._end(rule, name)
        if kind == "inv_log_uniform":  # the exponents of the reciprocal
            low, high = -high, -low
        if kind in ("log_uniform", "q_log_uniform", "inv_log_uniform"):  # of these the ends are exponents
            low, high = (self._exp(end, name) for end in (low, high))
        scale: Scale = "log" if "log" in str(kind) else "linear"
        if q is not None:
            return self._stepped(name, low, high, q, scale)
        if scale == "log":
            # Also of inv_log_uniform_values: where a reciprocal is even in its logarithm, so is the number.
            return Range(name, low, high, scale)
        is_integer = kind == "int_uniform" or (kind is None and all(_is_whole(text) for text in texts))
        return Range(name, low, high, is_integer=is_integer)

    def _stepped(self, name: str, low: float, high: float, q: float, scale: Scale) -> Range:
        """The multiples of q."""
        if not q > 0 or math.isinf(max(abs(low), abs(high)) / q):
            raise self._refused(f"q of {name} is {number_text(q)}", "it is above 0, and of the size of the values")
        first, last = (float(f"{round(end / q) * q:.12g}") for end in (low, high))
        if scale == "log" and first == 0:
            raise self._refused(
                f"{name} is logarithmic and begins at {number_text(low)}, which q: {number_text(q)} rounds to 0",
                f"begin at {number_text(q)}: 0 has no logarithm",
            )
        is_integer = all(each.is_integer() for each in (first, last, q))
        return Range(name, first, last, scale, is_integer, None if is_integer and q == 1 else q)

    def _exp(self, exponent: float, name: str) -> float:
        if abs(exponent) > 700:
            raise self._refused(
                f"an end of {name} is the exponent {number_text(exponent)}",
                "log_uniform takes exponents; log_uniform_values takes the ends themselves",
            )
        return float(f"{math.exp(exponent):.6g}")

    def _mapping(self, given: Any, what: str) -> dict[str, Any]:
        if not _is_mapping(given):
            raise self._refused(f"{what} is not a mapping", f"write keys and values under {what}")
        return dict(given)

    def _text(self, given: Any, what: str) -> str:
        if not isinstance(given, str):
            raise self._refused(f"{what} is not a text", "write one")
        return str(given)

    def _whole(self, given: Any, what: str) -> int:
        if not _is_whole(given):
            raise self._refused(f"{what} is not a whole number", "write one")
        return int(given)

    def _number(self, given: Any, what: str) -> float:
        try:
            number = float(self._text(given, what))
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self._refused(f"{what} is not a number", "write one")
        return number

    def _end(self, rule: Mapping[str, Any], owner: str) -> None:
        for key in rule:
            raise self._refused(f"dibs does not know what to do with {key[:60]} of {owner}", "leave it out")

    def _refused(self, why: str, remedy: str) -> BadInput:
        return BadInput(f"cannot read {self._path}: {why}", remedy=remedy)


_RANGES = (
    None,
    "uniform",
    "int_uniform",
    "q_uniform",
    "log_uniform",
    "log_uniform_values",
    "q_log_uniform",
    "q_log_uniform_values",
    "inv_log_uniform",
    "inv_log_uniform_values",
)


def _is_mapping(given: Any) -> bool:
    return isinstance(given, Mapping)


def _is_whole(text: Any) -> bool:
    return isinstance(text, str) and re.fullmatch(r"[+-]?\d{1,15}", text, re.ASCII) is not None
