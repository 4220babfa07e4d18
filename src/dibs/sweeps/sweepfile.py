"""A sweep in a YAML file, with the option names of `dibs sweep`; or a Weights & Biases sweep file.

command: python train.py --lr {lr} --layers {layers}
parameters:
  lr: 1e-4..1e-1:log
  layers: [1, 2, 4]
samples: 40
metric: val_loss
num_gpus: 1
"""

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from dibs.errors import BadInput
from dibs.sweeps.space import Choice, Parameter, Range, condition_of, parse_parameter, value_of
from dibs.sweeps.spec import parameter_object, parse_metric, read_parameter
from dibs.sweeps.wandb import is_of_wandb, read_wandb
from dibs.sweeps.yamltext import YamlBool, read_yaml


def read_sweep_file(
    text: str, path: str, environment: Mapping[str, str] = MappingProxyType({})
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sweep as JSON, for `read_spec`, and the fields of its jobs.

    `path` is only for messages. `environment` fills `${envvar:NAME}` in a command of Weights & Biases.
    """
    given = read_yaml(text, path)
    if is_of_wandb(given):
        return read_wandb(given, path, environment)
    return _SweepFile(path).read(given)


def read_sweep_values(given: Mapping[str, Any], source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same for the values of a program instead of a file's text: numbers, truths, lists and mappings."""
    return _SweepFile(source).read({key: _as_in_yaml(value) for key, value in given.items()})


def _as_in_yaml(value: object) -> Any:
    if isinstance(value, bool):
        return YamlBool(str(value).lower())
    if isinstance(value, Mapping):
        return {str(key): _as_in_yaml(each) for key, each in value.items()}
    if isinstance(value, list | tuple | range):
        return [_as_in_yaml(each) for each in value]
    return value if value is None or isinstance(value, str) else str(value)


_TEXTS = ("over", "shell", "method", "sampler", "pruner", "name")
_WHOLES = ("population", "steps", "repeat", "samples", "seed", "prune_after", "prune_factor", "parallel")
_TRUTHS = ("shuffle", "reuse", "stop_on_nan")


class _SweepFile:
    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        rest = dict(given)
        spec: dict[str, Any] = {}
        for key in ("command", "words"):
            if isinstance(rest.get(key), list):
                spec["words"] = self._texts(rest.pop(key), key)
            elif key in rest:
                spec["command"] = self._text(rest.pop(key), key)
        spec["parameters"] = self._parameters(rest.pop("parameters", {}))
        where = rest.pop("where", [])
        spec["where"] = self._texts([where] if isinstance(where, str) else where, "where")
        spec |= self._metrics(rest)
        if "results" in rest:
            spec["results"] = rest.pop("results")
        for key in _TEXTS:
            if key in rest:
                spec[key] = self._text(rest.pop(key), key)
        for key in _WHOLES:
            if key in rest:
                spec[key] = self._whole(rest.pop(key), key)
        for key in _TRUTHS:
            if key in rest:
                spec[key] = self._truth(rest.pop(key), key)
        return spec, rest  # the rest are fields of the jobs

    def _parameters(self, given: object) -> list[dict[str, Any]]:
        if not isinstance(given, Mapping):
            raise self._wrong("parameters", "a mapping, as `lr: 1e-4..1e-1:log`")
        return [parameter_object(self._parameter(name, value)) for name, value in given.items()]

    def _parameter(self, name: str, given: object) -> Parameter:
        if isinstance(given, list):
            return Choice(name, tuple(self._value(name, value) for value in given))
        if isinstance(given, Mapping):
            return self._detailed(name, dict(given))
        if given is None:
            raise BadInput(f"the parameter {name} has no values", remedy=f"write {name}: [1, 2, 3]")
        value, _, condition = self._text(given, name).partition(" if ")
        return parse_parameter(name, [value.strip(), *(["if", condition] if condition else [])])

    def _detailed(self, name: str, given: dict[str, Any]) -> Parameter:
        """A parameter as a mapping, with the keys of its JSON form."""
        when = condition_of(self._text(given.pop("when", ""), "when"))
        parameter: Parameter
        if "values" in given:
            values = given.pop("values")
            if not isinstance(values, list):
                # A range, as without the mapping.
                parameter = parse_parameter(name, [self._text(values, name), *(["if", when] if when else [])])
            else:
                weights = self._numbers(given.pop("weights", []), f"weights of the parameter {name}")
                parameter = Choice(name, tuple(self._value(name, value) for value in values), when, weights)
        elif "distribution" in given:
            given |= {"name": name, "when": when}
            parameter = read_parameter({key: self._plain(value) for key, value in given.items()})
            given = {}
        else:
            owner = f"the parameter {name}"
            low, high = self._number(given, owner, "low"), self._number(given, owner, "high")
            step = self._number(given, owner, "step") if given.get("step") is not None else None
            given.pop("step", None)
            parameter = Range(
                name,
                low,
                high,
                given.pop("scale", "linear"),
                self._truth(given.pop("integer", YamlBool("false")), "integer"),
                step,
                when,
            )
        for key in given:
            raise BadInput(
                f"cannot read {self._path}: the parameter {name} has no key {key[:60]}",
                remedy="its keys are values and weights, or low, high, scale, integer and step; and when",
            )
        return parameter

    def _metrics(self, rest: dict[str, Any]) -> dict[str, Any]:
        """`metrics` as in JSON, or, for a single one, `metric: val_loss:min`, also with `goal: min`."""
        if "metric" in rest:
            goal = self._text(rest.pop("goal"), "goal") if "goal" in rest else None
            metric = parse_metric(self._text(rest.pop("metric"), "metric"), goal)
            metric |= {key: rest.pop(key) for key in ("take", "target") if key in rest}
            return {"metrics": [self._with_target(metric)]}
        if "metrics" not in rest:
            return {}
        metrics = rest.pop("metrics")
        return {"metrics": [self._with_target(one) for one in metrics] if isinstance(metrics, list) else metrics}

    def _with_target(self, metric: Any) -> Any:
        if not isinstance(metric, Mapping) or "target" not in metric:
            return metric
        return {**metric, "target": self._number(dict(metric), "a metric", "target")}

    def _value(self, name: str, value: object) -> str | None:
        return None if value is None else value_of(self._text(value, f"a value of {name}"))

    def _text(self, value: object, key: str) -> str:
        if not isinstance(value, str):
            raise self._wrong(key, "a text")
        return str(value)

    def _texts(self, value: object, key: str) -> list[str]:
        if not isinstance(value, list):
            raise self._wrong(key, "a list of texts")
        return [self._text(each, key) for each in value]

    def _whole(self, value: object, key: str) -> int:
        if isinstance(value, str):
            with suppress(ValueError):
                return int(value)
        raise self._wrong(key, "a whole number")

    def _number(self, given: dict[str, Any], name: str, key: str) -> float:
        value = given.pop(key, None)
        if isinstance(value, str):
            with suppress(ValueError):
                return float(value)
        raise self._wrong(f"{key} of {name}", "a number")

    def _numbers(self, values: object, key: str) -> tuple[float, ...]:
        try:
            return tuple(float(self._text(one, key)) for one in values)  # type: ignore[attr-defined]
        except (TypeError, ValueError):
            raise self._wrong(key, "a list of numbers") from None

    def _plain(self, value: object) -> object:
        """A number where a text is one: YAML is read as texts."""
        try:
            return float(value) if isinstance(value, str) and not isinstance(value, YamlBool) else value
        except ValueError:
            return str(value)

    def _truth(self, value: object, key: str) -> bool:
        if not isinstance(value, YamlBool):
            raise self._wrong(key, "true or false")
        return value.is_true

    def _wrong(self, key: str, wanted: str) -> BadInput:
        return BadInput(f"cannot read {self._path}: {key} is not {wanted}", remedy=f"{key} is {wanted}")
