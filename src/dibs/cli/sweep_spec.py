"""From the words and options of `dibs sweep` to a spec: what is tried, how it is searched, and what counts."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dibs.errors import BadInput

_LONGEST_FILE = 1 << 20  # bytes
_SUFFIXES = (".yaml", ".yml")


class SweepPlan(NamedTuple):
    """A sweep as it is sent to the daemon, and what was chosen for somebody who did not say."""

    spec: dict[str, Any]
    wishes: Mapping[str, object]  # of a file, about its jobs
    is_chosen: bool  # whether the search or its seed was chosen here
    is_one_by_one: bool  # whether nobody said how many at a time, and more than one would be wrong


def plan_of(
    options: Mapping[str, Any], command: Sequence[str] | None, params: Sequence[tuple[str, Sequence[str]]]
) -> SweepPlan:
    """Put together what was typed and what a file says; options go before the file. Strict."""
    from dibs.sweeps.points import Points
    from dibs.sweeps.spec import read_spec, spec_object

    path, words = _template(options["inputs"], command, params)
    spec, wishes = _read(path) if path is not None else ({}, {})
    if words is not None:
        spec = {key: value for key, value in spec.items() if key not in ("command", "words")}
        spec |= {"command": words[0]} if len(words) == 1 else {"words": list(words)}
    if options["shell"] != "bash":
        spec["shell"] = options["shell"]
    spec["parameters"] = _parameters(spec.get("parameters", ()), params)
    spec["where"] = [*spec.get("where", ()), *options["where"]]
    spec |= _results(spec, options)
    for key, name in _SAME.items():
        if options[name]:
            spec[key] = options[name]
    if options["prune_after"] and not spec.get("pruner"):
        raise BadInput("--prune-after is for --prune", remedy="--prune median, halving or hyperband")
    chosen = _choose(spec, options)
    whole = read_spec(spec)
    if whole.where and Points(whole).count() == 0:
        raise BadInput(f"no point fulfils {' and '.join(whole.where)}", remedy="loosen it, or give other values")
    return SweepPlan(spec_object(whole), wishes, chosen, spec.get("parallel") is None and whole.parallel == 1)


def slips(spec: Mapping[str, Any]) -> list[str]:
    """Parameters typed as `0..1`: two whole numbers, where most who write it mean what lies between."""
    return [
        one["name"] for one in spec["parameters"] if one.get("integer") and (one["low"], one["high"]) == (0, 1)
    ]


# What the spec calls it, and the option.
_SAME = {
    "name": "name",
    "samples": "samples",
    "sampler": "sampler",
    "pruner": "prune",
    "prune_after": "prune_after",
    "parallel": "parallel",
    "rerun": "rerun",
    "shuffle": "shuffle",
}


def _template(
    inputs: Sequence[str], command: Sequence[str] | None, params: Sequence[tuple[str, Sequence[str]]]
) -> tuple[str | None, Sequence[str] | None]:
    """The file and the command, of which there is at least one. One word is a file or a line for the shell."""
    if inputs and not params and re.fullmatch(r"[a-z-]+", inputs[0]) and not _is_file(inputs[0]):
        raise BadInput(
            f"{inputs[0][:60]} is no file, and nothing that is done to sweeps",
            remedy="`dibs sweep --help` lists what can be done",
        )
    if len(inputs) > 1:
        raise BadInput(
            f"cannot use {inputs[1][:60]!r} here",
            remedy="a command stands in quotes, or behind --: dibs sweep -p lr 1 2 -- python train.py --lr {lr}",
        )
    if command is not None and not command:
        raise BadInput("there is no command behind --", remedy="dibs sweep -p lr 0.1 0.01 -- python train.py {lr}")
    if inputs and _is_file(inputs[0]):
        return inputs[0], command
    if inputs and command:
        raise BadInput("there is a command in front of -- and one behind it", remedy="keep one of them")
    words = inputs or command
    if not words:
        values = [value for _, values in params for value in values]
        if values and "{" in values[-1]:  # it was taken for the last value of -p
            raise BadInput("there is no command", remedy="it comes before -p, or behind --")
        raise BadInput(
            "there is no command", remedy='dibs sweep "python train.py --lr {lr}" -p lr 0.1 0.01, or a file'
        )
    if len(words) == 1 and _is_file(words[0]):
        return words[0], None
    return None, words


def _is_file(word: str) -> bool:
    """A command is never the name of a file alone: it has a place for a parameter."""
    return "\0" not in word and (os.path.isfile(word) or (word.endswith(_SUFFIXES) and not set(word) & set(" {")))


def _read(path: str) -> tuple[dict[str, Any], Mapping[str, object]]:
    try:
        with open(path, "rb") as file:
            data = file.read(_LONGEST_FILE + 1)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}", remedy="name a file that is there") from None
    if len(data) > _LONGEST_FILE:
        raise BadInput(f"{path} has more than a megabyte", remedy="that is no description of a sweep")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no text in UTF-8", remedy="a sweep is described in YAML") from None
    from dibs.sweeps.sweepfile import read_sweep_file

    spec, wishes = read_sweep_file(text, path, os.environ)
    return dict(spec), wishes


def _parameters(
    known: Sequence[Mapping[str, Any]], params: Sequence[tuple[str, Sequence[str]]]
) -> list[Mapping[str, Any]]:
    """Those of the file, in their order; what was typed takes their place, or comes behind them."""
    from dibs.sweeps.space import parse_parameter
    from dibs.sweeps.spec import parameter_object

    typed: dict[str, Mapping[str, Any]] = {}
    for name, values in params:
        if name in typed:
            raise BadInput(f"the parameter {name} is given twice", remedy="give all its values at once")
        typed[name] = parameter_object(parse_parameter(name, values))
    return [typed.pop(one["name"], one) for one in known] + list(typed.values())


def _results(spec: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics and where they are read."""
    if options["from_log"] and options["result_file"]:
        raise BadInput("--from-log and --result-file were both given", remedy="results come from one place")
    metrics = [_metric(text, options["goal"]) for text in options["metric"]] or list(spec.get("metrics", ()))
    if options["goal"] and not metrics:
        raise BadInput("--goal is for --metric", remedy=f"--metric val_loss --goal {options['goal']}")
    if options["goal"] and not options["metric"]:
        metrics = [{**metric, "goal": options["goal"]} for metric in metrics]
    found: dict[str, Any] = {"metrics": metrics}
    if options["from_log"]:
        found["results"] = {"from": "log", "pattern": options["from_log"]}
    elif options["result_file"]:
        found["results"] = {"from": "file", "path": options["result_file"]}
    return found


def _metric(text: str, goal: str | None) -> dict[str, str]:
    name, _, own = text.rpartition(":")
    if name and own in ("min", "max"):
        return {"name": name, "goal": own}
    return {"name": text, "goal": goal or "min"}


def _choose(spec: dict[str, Any], options: Mapping[str, Any]) -> bool:
    """Fill in the search and its seed where nobody said; whether something was chosen."""
    chosen = False
    if options["method"]:
        spec["method"] = options["method"]
    elif options["sampler"]:
        spec["method"] = "adaptive"
    elif "method" not in spec:
        spec["method"] = _method(spec)
        chosen = True
    if options["sampler"] and spec["method"] != "adaptive":
        raise BadInput("--sampler is for an adaptive search", remedy="leave it out, or --method adaptive")
    if spec["method"] != "grid" and spec.pop("shuffle", False) and options["method"]:
        raise BadInput("--shuffle is for a grid", remedy=f"leave it out: {spec['method']} has no order to change")
    if options["seed"] is not None:
        spec["seed"] = options["seed"]
    elif "seed" not in spec and (spec["method"] != "grid" or spec.get("shuffle")):
        spec["seed"] = int.from_bytes(os.urandom(4), "big") >> 1
        chosen = True
    return chosen


def _method(spec: Mapping[str, Any]) -> str:
    """Everything where that is meant and has an end; else by the results where there are some."""
    dense = next((one["name"] for one in spec["parameters"] if _is_dense(one)), None)
    if spec.get("samples") is None:
        if dense is not None:
            raise BadInput(
                f"{dense} is a range with no end of values in it",
                remedy="--samples 40 says how many are tried",
            )
        return "grid"
    if spec.get("shuffle") and dense is None:
        return "grid"
    return "adaptive" if spec["metrics"] else "random"


def _is_dense(parameter: Mapping[str, Any]) -> bool:
    return (
        "values" not in parameter
        and not parameter.get("integer")
        and parameter.get("step") is None
        and parameter["low"] != parameter["high"]
    )
