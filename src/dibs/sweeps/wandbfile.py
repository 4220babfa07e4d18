"""A sweep file of Weights & Biases as a sweep of ours: the same points, passed to the same program.

What has no equal here is refused with a sentence; nothing that changes what is tried is passed over.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dibs.errors import BadInput
from dibs.sweeps.space import Choice, Parameter, Range, number_text
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


def read_wandb(given: Mapping[str, Any], path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sweep as JSON, and the wishes about its jobs."""
    return _Wandb(given, path).read()


class _Wandb:
    def __init__(self, given: Mapping[str, Any], path: str) -> None:
        self._given = dict(given)
        self._path = path

    def read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        take = self._given.pop
        spec: dict[str, Any] = {}
        method = take("method", None)
        if method not in _METHODS:
            raise self._refused(f"the method is {method!r}", "it is grid, random or bayes")
        spec["method"] = _METHODS[method]
        spec |= self._metric(take("metric", None)) | self._early_terminate(take("early_terminate", None))
        arguments = list(self._arguments(self._mapping(take("parameters", None), "parameters"), ()))
        command = WandbCommand(take("command", None), take("program", None), arguments, path=self._path)
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
        eta = self._whole(rule.pop("eta", "3"), "eta")
        if eta != 3:
            raise self._refused(f"eta is {eta}, and hyperband keeps a third here", "leave eta out")
        strict = rule.pop("strict", Truth("false"))
        if not isinstance(strict, Truth) or strict.is_true:
            raise self._refused("a strict hyperband is not known here", "leave `strict` out")
        after = self._first_look(rule, eta)
        self._end(rule, "early_terminate")
        return {"pruner": "hyperband", "prune_after": after}

    def _first_look(self, rule: dict[str, Any], eta: int) -> int:
        """The step at which trials are compared first; counted from the end where max_iter and s are given."""
        if "min_iter" in rule and "max_iter" in rule:
            raise self._refused("early_terminate has min_iter and max_iter", "one of them says it all")
        if "max_iter" in rule:
            most, s = self._whole(rule.pop("max_iter"), "max_iter"), self._whole(rule.pop("s", None), "s")
            return max(1, int(most / eta ** min(max(s, 0), 100)))
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
        if "probabilities" in rule or kind == "categorical_w_probabilities":
            raise self._refused(f"{name} has values of unequal probability", "leave the probabilities out")
        if kind in (None, "categorical") and "values" in rule:
            values = rule.pop("values")
            self._end(rule, name)
            if not isinstance(values, list):
                raise self._refused(f"the values of {name} are no list", "write [1, 2, 3]")
            # One that is there twice is tried once: a dict keeps the order.
            return Choice(name, tuple(dict.fromkeys(argument_text(value) for value in values)))
        if kind is None and not {"min", "max"} <= rule.keys():
            raise self._refused(f"{name} has neither value, values, nor min and max", "give it one of them")
        return self._range(name, kind, rule)

    def _range(self, name: str, kind: Any, rule: dict[str, Any]) -> Range:
        if kind not in _RANGES:
            raise self._refused(
                f"{name} has the distribution {kind!r}, which is not known here",
                f"dibs has {', '.join(kind for kind in _RANGES if kind)}, constant and categorical",
            )
        texts = [rule.pop(end, None) for end in ("min", "max")]
        low, high = (self._number(text, f"an end of {name}") for text in texts)
        q = self._number(rule.pop("q", "1"), f"q of {name}") if str(kind).startswith("q_") else None
        self._end(rule, name)
        if kind in ("log_uniform", "q_log_uniform"):  # of these the ends are exponents
            low, high = (self._exp(end, name) for end in (low, high))
        if kind in ("log_uniform", "log_uniform_values"):
            return Range(name, low, high, "log")
        if kind in ("q_log_uniform", "q_log_uniform_values"):
            if q != 1:
                raise self._refused(f"{name} is logarithmic in steps of {q}", "q: 1 gives whole numbers")
            return Range(name, max(1.0, round(low)), round(high), "log", is_integer=True)
        if q is not None:
            return self._stepped(name, low, high, q)
        is_integer = kind == "int_uniform" or (kind is None and all(_is_whole(text) for text in texts))
        return Range(name, low, high, is_integer=is_integer)

    def _stepped(self, name: str, low: float, high: float, q: float) -> Range:
        """q_uniform: the multiples of q."""
        if not q > 0:
            raise self._refused(f"q of {name} is {number_text(q)}", "it is above 0")
        low, high = (float(f"{round(end / q) * q:.12g}") for end in (low, high))
        return Range(name, low, high, is_integer=all(float(each).is_integer() for each in (low, high, q)), step=q)

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
)


def _is_mapping(given: Any) -> bool:
    return isinstance(given, Mapping)


def _is_whole(text: Any) -> bool:
    return isinstance(text, str) and re.fullmatch(r"[+-]?\d{1,15}", text, re.ASCII) is not None
