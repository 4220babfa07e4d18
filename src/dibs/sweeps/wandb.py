"""A sweep file of Weights & Biases, converted to a sweep with the same points for the same program.

A feature without an equivalent is refused with a message; nothing that changes the points or commands is ignored.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.sweeps.curves import CurveKind
from dibs.sweeps.space import Choice, Curve, Parameter, Range, Scale, number_text
from dibs.sweeps.spec import parameter_object
from dibs.sweeps.wandb_trial import typed
from dibs.sweeps.yamltext import QuotedText, YamlBool

_DEFAULT = ("${env}", "${interpreter}", "${program}", "${args}")
_VARIABLE = re.compile(r"\$\{envvar:(\w+)\}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter or a constant, with its name and the names that it is nested in."""

    path: tuple[str, ...]
    given: Any  # Choice, Range, or a constant from the YAML
    values: tuple[Any, ...] = ()  # those of a Choice, as in the YAML

    @property
    def name(self) -> str:
        return ".".join(self.path)


def argument_text(value: Any) -> str:
    """A value as a Python literal, as the agent of Weights & Biases passes it."""
    return value if isinstance(value, str) and not isinstance(value, YamlBool) else _literal(value, _PYTHON)


class WandbCommand:
    """The command of the file: its words with placeholders, and the parameters that fill them."""

    def __init__(
        self,
        command: Any,
        program: Any,
        arguments: Sequence[Argument],
        *,
        path: str,
        environment: Mapping[str, str],
    ) -> None:
        """Raise BadInput for an unsupported macro."""
        self._program = program
        self._path = path
        self._environment = environment
        self._arguments = arguments
        self.parameters: list[Parameter] = [
            argument.given for argument in arguments if isinstance(argument.given, Parameter)
        ]
        given = list(_DEFAULT) if command is None else command
        if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
            raise self._refused("the command is not a list of words", "write a list, one word a line")
        for word in given:
            self._check_known(word)
        macros = [word for word in given if word in self._macros]
        if len(macros) > 1:
            raise self._refused(
                f"the command has {len(macros)} of the macros that take the arguments",
                f"one of them, or none where the program reads wandb.config: {', '.join(self._macros)}",
            )
        self.words = [word for each in given for word in self._words(each)]

    def config(self) -> list[dict[str, Any]]:
        """What the program finds in `wandb.config`, as `read_config` takes it."""
        choices = {choice.name: choice for choice in self.parameters if isinstance(choice, Choice)}
        return [
            {"path": list(argument.path), "parameter": argument.name, **_not_as_written(argument, choices)}
            if isinstance(argument.given, Parameter)
            else {"path": list(argument.path), "value": _python(argument.given)}
            for argument in self._arguments
        ]

    @property
    def _macros(self) -> dict[str, Callable[[], list[str]]]:
        return {
            "${args}": lambda: self._flags("--"),
            "${args_no_hyphens}": lambda: self._flags(""),
            "${args_no_equals}": lambda: self._flags("--", is_split=True),
            "${args_append_hydra}": lambda: self._flags("+"),
            "${args_override_hydra}": lambda: self._flags("++"),
            "${args_no_boolean_flags}": lambda: self._flags("--", is_bare=True),
            "${args_json}": lambda: [self._structure(self._tree(), _JSON)],
        }

    def _words(self, given: str) -> list[str]:
        if given in self._macros:
            return self._macros[given]()
        if given == "${env}":
            return ["/usr/bin/env"]
        if given == "${interpreter}":
            return ["python"]
        if given == "${program}":
            if not isinstance(self._program, str):
                raise self._refused(
                    "the command has ${program}, and there is no program", "write program: train.py"
                )
            return [str(self._program)]
        return [_VARIABLE.sub(lambda found: self._variable(found[1]), str(given))]

    def _check_known(self, given: str) -> None:
        if "${args_json_file}" in given:
            raise self._refused(
                "the macro ${args_json_file} is not supported: dibs writes no file for a trial",
                "${args_json} passes the same JSON as one word, and wandb.config has the same values",
            )
        if given not in (*_DEFAULT, *self._macros) and "${" in _VARIABLE.sub("", given):
            raise self._refused(
                f"dibs does not know what to do with {given[:60]} in the command",
                f"dibs has ${{env}}, ${{interpreter}}, ${{program}}, ${{envvar:NAME}}, {', '.join(self._macros)}",
            )

    def _variable(self, name: str) -> str:
        """The value of an environment variable where the sweep is submitted."""
        value = self._environment.get(name)
        if value is None:
            raise self._refused(f"the command has the variable {name[:60]}, which is not set", "export it")
        if "{" in value:
            raise self._refused(
                f"the variable {name[:60]} has a brace in it, which would look like a parameter",
                "let the program read the variable itself",
            )
        return value

    def _flags(self, hyphens: str, *, is_bare: bool = False, is_split: bool = False) -> list[str]:
        words = []
        for name, given in self._tree().items():
            if is_bare and not isinstance(given, dict) and _is_bool(given.given):
                words += self._bare(given)
                continue
            is_nested = isinstance(given, dict)
            value = self._structure(given, _PYTHON) if is_nested else self._hole(given, argument_text)
            words += [f"{hyphens}{name}", value] if is_split else [f"{hyphens}{name}={value}"]
        return words

    def _bare(self, argument: Argument) -> list[str]:
        """`--flag` for true; false becomes none, which drops the word."""
        flag = f"--{argument.name}"
        if isinstance(argument.given, YamlBool):
            return [flag] if argument.given.is_true else []
        self._replace(argument.given, {"True": flag, "False": None})
        return [f"{{{argument.name}}}"]

    def _tree(self) -> dict[str, Any]:
        """The arguments, nested as in the file."""
        tree: dict[str, Any] = {}
        for argument in self._arguments:
            branch = tree
            for name in argument.path[:-1]:
                branch = branch.setdefault(name, {})
            branch[argument.path[-1]] = argument
        return tree

    def _structure(self, tree: dict[str, Any], style: "_Style") -> str:
        """Nested arguments as one literal with placeholders in it."""
        parts = []
        for name, given in tree.items():
            if isinstance(given, dict):
                text = self._structure(given, style)
            elif isinstance(given.given, Choice):
                text = self._choice_inside(given.given, style)
            else:
                text = self._hole(given, lambda value: _literal(value, style))
            parts.append(f"{style.quoted(name)}: {text}")
        return "{" + ", ".join(parts) + "}"

    def _choice_inside(self, choice: Choice, style: "_Style") -> str:
        """A placeholder inside a literal: quoted where each value is a text, and bare where none is."""
        hole = f"{{{choice.name}}}"
        texts = [value or "" for value in choice.values]
        bare = [style.bare(text) for text in texts]
        if None not in bare:
            self._replace(choice, dict(zip(texts, bare, strict=True)))
            return hole
        if any(bare) or any(style.quoted(text)[1:-1] != text for text in texts):
            raise self._refused(
                f"the values of {choice.name} cannot be written in one way", "all numbers, or all plain texts"
            )
        return style.quoted(hole)

    def _hole(self, argument: Argument, write: Callable[[Any], str]) -> str:
        """A placeholder for a parameter, and the text of a constant."""
        if isinstance(argument.given, Parameter):
            return f"{{{argument.name}}}"
        text = write(argument.given)
        if "{" not in text:
            return text
        self.parameters.append(Choice(argument.name, (text,)))  # braces in a value are not placeholders
        return f"{{{argument.name}}}"

    def _replace(self, choice: Choice, texts: dict[str, Any]) -> None:
        place = self.parameters.index(choice)
        self.parameters[place] = Choice(choice.name, tuple(texts[value or ""] for value in choice.values))

    def _refused(self, why: str, remedy: str) -> BadInput:
        return BadInput(f"cannot read {self._path}: {why}", remedy=remedy)


@dataclass(frozen=True, slots=True)
class _Style:
    """How Python or JSON writes literals."""

    none: str
    true: str
    false: str
    quoted: Callable[[str], str]

    def bare(self, text: str) -> str | None:
        """A number, boolean, null or list without quotes; None where it is a text."""
        known = {"None": self.none, "True": self.true, "False": self.false}
        if text in known:
            return known[text]
        return text if _is_json(text) else None


_PYTHON = _Style("None", "True", "False", repr)
_JSON = _Style("null", "true", "false", json.dumps)


def _literal(value: Any, style: _Style) -> str:
    if value is None:
        return style.none
    if isinstance(value, YamlBool):
        return style.true if value.is_true else style.false
    if isinstance(value, list):
        return "[" + ", ".join(_literal(each, style) for each in value) + "]"
    if isinstance(value, dict):
        parts = [f"{style.quoted(name)}: {_literal(each, style)}" for name, each in value.items()]
        return "{" + ", ".join(parts) + "}"
    return str(value) if _is_json(value) else style.quoted(value)


def _python(value: Any) -> Any:
    """A value of the YAML as the agent of Weights & Biases puts it into the config."""
    if isinstance(value, YamlBool):
        return value.is_true
    if isinstance(value, list):
        return [_python(each) for each in value]
    if isinstance(value, dict):
        return {name: _python(each) for name, each in value.items()}
    return value if value is None or isinstance(value, QuotedText) else typed(str(value))


def _not_as_written(argument: Argument, choices: Mapping[str, Choice]) -> dict[str, Any]:
    """The values of a choice whose text in the command does not stand for them."""
    if not isinstance(argument.given, Choice):
        return {}
    texts = choices[argument.name].values
    found = {text or "": _python(value) for text, value in zip(texts, argument.values, strict=True)}
    kept = {text: value for text, value in found.items() if repr(typed(text)) != repr(value)}
    return {"values": kept} if kept else {}


def _is_json(text: str) -> bool:
    """Whether it is the JSON of a number, a list or an object."""
    try:
        return not isinstance(json.loads(text), str | bool | None)
    except (ValueError, RecursionError):
        return False


def _is_bool(given: Any) -> bool:
    return isinstance(given, YamlBool) or (isinstance(given, Choice) and set(given.values) <= {"True", "False"})


_METHODS = {"grid": "grid", "random": "random", "bayes": "adaptive"}
_GOALS = {"minimize": "min", "maximize": "max"}
_OF_A_PARAMETER = {"value", "min", "max", "distribution", "probabilities", "mu", "sigma", "q", "a", "b"}


def is_of_wandb(given: Mapping[str, Any]) -> bool:
    """Whether a file is in the format of Weights & Biases: it has `program`, or macros or keys of that format."""
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
    """The sweep as JSON, and the fields of its jobs."""
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
        spec["results"] = {"from": "wandb"}
        spec["config"] = command.config()
        spec["parameters"] = [parameter_object(parameter) for parameter in command.parameters]
        if (cap := take("run_cap", None)) is not None:
            spec["samples"] = self._whole(cap, "run_cap")
        if (name := take("name", None)) is not None:
            spec["name"] = self._text(name, "name")
        take("description", None)  # has no effect
        # The agent of Weights & Biases sets these for the program.
        variables = {name: self._environment[name] for name in ("WANDB_DIR",) if name in self._environment} | {
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
        target = metric.pop("target", None)
        aim = {} if target is None else {"target": self._number(target, "the target of the metric")}
        self._end(metric, "metric")
        return {"metrics": [{"name": self._text(name, "the name of the metric"), "goal": _GOALS[goal], **aim}]}

    def _early_terminate(self, given: Any) -> dict[str, Any]:
        if given is None:
            return {}
        rule = self._mapping(given, "early_terminate")
        if rule.pop("type", None) != "hyperband":
            raise self._refused("early_terminate has a type that is not hyperband", "only hyperband is supported")
        factor = {"prune_factor": self._whole(rule.pop("eta"), "eta")} if "eta" in rule else {}
        eta = factor.get("prune_factor", 3)
        if eta < 2:
            raise self._refused(f"eta is {eta}", "one of eta trials goes on: it is a whole number from 2")
        strict = rule.pop("strict", YamlBool("false"))
        if not isinstance(strict, YamlBool) or strict.is_true:
            raise self._refused("dibs has no strict hyperband", "leave `strict` out")
        horizon = {"steps": self._whole(rule["max_iter"], "max_iter")} if "max_iter" in rule else {}
        after = self._first_look(rule, eta)
        self._end(rule, "early_terminate")
        return {"pruner": "hyperband", "prune_after": after, **factor, **horizon}

    def _first_look(self, rule: dict[str, Any], eta: int) -> int:
        """The first step at which trials are compared; computed from max_iter and s where those are given."""
        if "min_iter" in rule and "max_iter" in rule:
            raise self._refused("early_terminate has min_iter and max_iter", "give one of them")
        if "max_iter" in rule:
            most, s = self._whole(rule.pop("max_iter"), "max_iter"), self._whole(rule.pop("s", None), "s")
            looks = [most / eta**n for n in range(1, min(s, 100) + 1)]
            return min((int(look) for look in looks if look >= 1), default=max(1, most))
        rule.pop("s", None)  # only used with max_iter; Weights & Biases ignores it besides min_iter
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
                listed = rule.get("values")
                parameter = self._parameter(".".join(path), rule)
                written: dict[str, Any] = {}
                for value in listed if isinstance(listed, list) else ():
                    written.setdefault(argument_text(value), value)
                yield Argument(path, parameter, tuple(written.values()))

    def _parameter(self, name: str, rule: dict[str, Any]) -> Parameter:
        kind = rule.pop("distribution", None)
        if kind in (None, "categorical", "categorical_w_probabilities") and "values" in rule:
            values = rule.pop("values")
            parts = self._probabilities(name, rule.pop("probabilities", []))
            self._end(rule, name)
            if not isinstance(values, list):
                raise self._refused(f"the values of {name} are not a list", "write [1, 2, 3]")
            if parts and len(parts) != len(values):
                raise self._refused(
                    f"{name} has {len(values)} values and {len(parts)} probabilities", "give one for each value"
                )
            # A repeated value is tried once: a dict keeps the order.
            weights: dict[str, float] = {}
            for text, part in zip(map(argument_text, values), parts or [0.0] * len(values), strict=True):
                weights[text] = weights.get(text, 0.0) + part
            return Choice(name, tuple(weights), weights=tuple(weights.values()) if parts else ())
        if str(kind).startswith("categorical"):
            raise self._refused(f"{name} is categorical and has no values", "give it some")
        if kind is None and not {"min", "max"} <= rule.keys():
            raise self._refused(f"{name} has neither value, values, nor min and max", "give it one of them")
        return self._range(name, kind, rule)

    def _probabilities(self, name: str, given: Any) -> list[float]:
        """They add up to 1; none where all are alike, but for their rounding."""
        if not isinstance(given, list):
            raise self._refused(f"the probabilities of {name} are not a list", "leave them out")
        parts = [self._number(each, f"a probability of {name}") for each in given]
        if any(part < 0 for part in parts) or (parts and abs(sum(parts) - 1) > _ROUNDED):
            raise self._refused(f"the probabilities of {name} add up to {sum(parts):g}", "they are parts of 1")
        if not parts or max(parts) - min(parts) <= _ROUNDED / len(parts):
            return []
        return [part / sum(parts) for part in parts]

    def _range(self, name: str, kind: Any, rule: dict[str, Any]) -> Range | Curve:
        base = str(kind).removeprefix("q_")
        if base in _CURVES:
            words = ("a", "b") if base == "beta" else ("mu", "sigma")
            default = None if base == "beta" else ("0", "1")
            first, second = (
                self._number(rule.pop(word, default and default[place]), f"{word} of {name}")
                for place, word in enumerate(words)
            )
            step = self._number(rule.pop("q", "1"), f"q of {name}") if base != kind else None
            self._end(rule, name)
            return Curve(name, _CURVES[base], first, second, step)
        if kind not in _RANGES:
            raise self._refused(
                f"{name} has the distribution {kind!r}, which dibs does not know",
                f"one of {', '.join(kind for kind in (*_RANGES, *_CURVES) if kind)}",
            )
        texts = [rule.pop(end, None) for end in ("min", "max")]
        low, high = (self._number(text, f"an end of {name}") for text in texts)
        q = self._number(rule.pop("q", "1"), f"q of {name}") if str(kind).startswith("q_") else None
        self._end(rule, name)
        if kind == "inv_log_uniform":  # the exponents of the reciprocal
            low, high = -high, -low
        if kind in ("log_uniform", "q_log_uniform", "inv_log_uniform"):  # their ends are exponents
            low, high = (self._exp(end, name) for end in (low, high))
        scale: Scale = "log" if "log" in str(kind) else "linear"
        if q is not None:
            return self._stepped(name, low, high, q, scale)
        if scale == "log":
            # Also for inv_log_uniform_values: the logarithm of a reciprocal is uniform if that of the number is.
            return Range(name, low, high, scale)
        is_integer = kind == "int_uniform" or (kind is None and all(_is_whole(text) for text in texts))
        return Range(name, low, high, is_integer=is_integer)

    def _stepped(self, name: str, low: float, high: float, q: float, scale: Scale) -> Range:
        """The multiples of q: a number between the ends is drawn and rounded to one, as round(x / q) * q."""
        if not q > 0 or math.isinf(max(abs(low), abs(high)) / q):
            raise self._refused(f"q of {name} is {number_text(q)}", "it is above 0, and of the size of the values")
        first, last = (float(f"{round(end / q) * q:.12g}") for end in (low, high))
        is_integer = all(each.is_integer() for each in (first, last, q))
        step = None if (is_integer and q == 1) or first == last else q
        return Range(name, first, last, scale, is_integer, step, drawn=(low, high))

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


_ROUNDED = 1e-3  # by how much the sum of probabilities may be rounded
_CURVES: Mapping[str, CurveKind] = {"normal": "normal", "log_normal": "log_normal", "beta": "beta"}
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
