"""Adding a sweep: from the options of `dibs sweep` to a spec of what is tried, how, and by which results."""

import os
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

from dibs.cli.field_options import GROUP_OF
from dibs.cli.job_add import in_snapshot, snapshot_of, tell_of_copy
from dibs.cli.output import one_line, say, show, show_json
from dibs.cli.requests import check_shell, queue_request_of
from dibs.cli.sweep_act import follow
from dibs.cli.sweep_show import is_random, search_text
from dibs.client.adding import Batch, difference
from dibs.client.client import connect
from dibs.client.sweeps import add_sweep, check_sweep
from dibs.errors import BadInput
from dibs.inputs.code import describe_code
from dibs.inputs.program import program_key
from dibs.inputs.wishes import LISTED, apply_wishes
from dibs.model.fields import Verb
from dibs.model.jobs import NOTHING
from dibs.model.places import LOCAL
from dibs.sweeps.choice import choose_search
from dibs.sweeps.points import Points
from dibs.sweeps.space import parse_parameter
from dibs.sweeps.spec import parameter_object, parse_metric, read_spec, spec_object
from dibs.sweeps.sweepfile import read_sweep_file

_LONGEST_FILE = 1 << 20  # bytes
_SUFFIXES = (".yaml", ".yml")


class SweepAdder:
    """One call of `dibs sweep` that adds a sweep: from options to its number."""

    def __init__(self, options: dict[str, Any], given: Set[str]) -> None:
        self._options = options
        self._given = given
        self._environ = dict(os.environ)

    def execute(self, command: Sequence[str] | None, params: Sequence[tuple[str, Sequence[str]]]) -> int:
        options = self._options
        check_shell(options, self._environ)
        plan = plan_of(options, command, params)
        spec, defaults = plan.spec, self._defaults(plan.wishes)
        if plan.is_chosen and not (options["quiet"] or options["dry_run"]):
            change = "--method and --seed change" if is_random(spec) else "--method changes"
            say(f"dibs: {search_text(spec)} ({change} that)")
        if plan.is_one_by_one:
            path = one_line(spec["results"]["path"], 80)
            say(f"dibs: one trial at a time, as all write {path}; with result-%j.json each has a file of its own")
        for name in slips(spec):
            say(f"dibs: {name} is 0 or 1, as its range has whole ends; 0.0..1.0 has what lies between, too")
        spec["program"] = program_key(spec.get("command") or spec["words"], defaults["workdir"], self._environ)
        client = connect(os.environ)
        if options["dry_run"]:
            return self._show_check(spec, check_sweep(client, spec, defaults=defaults))
        code: dict[str, Any] | None = describe_code(defaults["workdir"], self._environ)
        if options["snapshot"] or spec["reuse"]:
            found = check_sweep(client, spec, defaults=defaults)
            self._tell_reused(found)
        if options["snapshot"]:
            spec, defaults, code = self._in_snapshot(spec, defaults, code)
        key = os.urandom(16).hex()
        added = add_sweep(client, spec, key=key, defaults=defaults, environment=self._environ, code=code)
        self._tell(spec, added)
        if (copy := (code or {}).get("snapshot")) and not options["quiet"]:
            tell_of_copy(copy)
        if not options["wait"]:
            return 0

        return follow(client, added["id"], quiet=options["quiet"], as_json=options["as_json"])

    def _defaults(self, wishes: Mapping[str, object]) -> dict[str, Any]:
        """What every trial wants. The wishes of a file count where no option says otherwise."""
        request = queue_request_of(self._options, Verb.SWEEP)
        if wishes:
            # The options of Slurm do not apply to this machine.
            said = {*self._given, *(GROUP_OF if self._options["on"] == LOCAL else ())}
            unsaid = {
                word: wish
                for word, wish in wishes.items()
                if word == "env" or word not in LISTED or LISTED[word].word not in said
            }
            wished = apply_wishes(replace(request, env=()), unsaid)
            request = replace(wished, env=tuple({**dict(wished.env), **dict(request.env)}.items()))
        return difference(request, NOTHING)

    def _in_snapshot(
        self, spec: dict[str, Any], defaults: dict[str, Any], code: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """The same sweep in a copy of the code as it is now."""
        snapshot = snapshot_of(defaults["workdir"], self._environ)
        code = {**(code or {}), "root": snapshot.root, "snapshot": snapshot.copy}
        # The words of a spec and the folder of its jobs move as those of a job do.
        [moved] = in_snapshot([Batch([spec], defaults)], snapshot.place_of, snapshot.root)
        return dict(moved.jobs[0]), dict(moved.common), code

    def _show_check(self, spec: Mapping[str, Any], found: Mapping[str, Any]) -> int:
        if self._options["as_json"]:
            show_json({**found, "spec": spec})
            return 0
        size = found["size"]
        if spec["samples"] is None and size is not None:
            size -= found["left_out"]  # of a grid these are among the points that were counted
        commands = found["commands"] if size is None else found["commands"][:size]
        left = None if size is None else size - len(commands)
        most = "up to " if left and (found["left_out"] or _may_leave_out(spec)) else ""
        show(f"{'trials without end' if size is None else most + _trials(size)}: {search_text(spec)}")
        if spec["method"] == "adaptive":
            show("  what is tried depends on the results; it may be")
        for command in commands:
            show(f"  {one_line(command, 4000)}")
        if left:
            show(f"  … and {most}{left:,} more")
        return 0

    def _tell_reused(self, found: Mapping[str, Any]) -> None:
        """Which results are not computed again, said before the sweep starts."""
        size = "" if found["size"] is None else f" of {found['size']:,}"
        for one in () if self._options["quiet"] else found["reused"]:
            say(f"dibs: {one['trials']:,}{size} are taken from sweep {one['sweep']}, which ran the same program")

    def _tell(self, spec: Mapping[str, Any], added: Mapping[str, Any]) -> None:
        """The number on stdout; on a terminal, the command that is most likely wanted next."""
        options = self._options
        if options["as_json"]:
            if not options["wait"]:  # or the whole sweep is printed when it has ended
                show_json({**added, "method": spec["method"], "seed": spec["seed"]})
            return
        if options["quiet"]:
            show(str(added["id"]))
            return
        name = f" ({one_line(spec['name'], 80)})" if spec["name"] else ""
        most = "up to " if _may_leave_out(spec) else ""
        size = "" if added["size"] is None else f": {most}{_trials(added['size'])}"
        show(f"added sweep {added['id']}{name}{size}")
        if os.isatty(2) and not options["wait"]:
            say(f"dibs sweep show {added['id']}")


def _may_leave_out(spec: Mapping[str, Any]) -> bool:
    """Whether a grid has fewer points than were counted: without those that conditions leave out."""
    is_conditional = spec["where"] or any(one["when"] for one in spec["parameters"])
    return spec["method"] == "grid" and bool(is_conditional)


def _trials(number: int) -> str:
    return f"{number:,} trial{'' if number == 1 else 's'}"


class SweepPlan(NamedTuple):
    """A sweep as it is sent to the daemon, and what was chosen where no option said it."""

    spec: dict[str, Any]
    wishes: Mapping[str, object]  # of a file, about its jobs
    is_chosen: bool  # whether the search or its seed was chosen here
    is_one_by_one: bool  # --parallel was not given, and more than one at a time would be wrong


def plan_of(
    options: Mapping[str, Any], command: Sequence[str] | None, params: Sequence[tuple[str, Sequence[str]]]
) -> SweepPlan:
    """Put together what was typed and what a file says; options go before the file. Strict."""
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
    chosen = choose_search(spec, method=options["method"], sampler=options["sampler"], seed=options["seed"])
    whole = read_spec(spec)
    if whole.where and Points(whole).count() == 0:
        raise BadInput(f"no point fulfils {' and '.join(whole.where)}", remedy="loosen it, or give other values")
    return SweepPlan(spec_object(whole), wishes, chosen, spec.get("parallel") is None and whole.parallel == 1)


def slips(spec: Mapping[str, Any]) -> list[str]:
    """Parameters typed as `0..1`: two whole numbers, where a range between them is usually meant."""
    return [
        one["name"]
        for one in spec["parameters"]
        if one.get("integer") and (one["low"], one["high"]) == (0, 1) and not one.get("drawn")
    ]


# What the spec calls it, and the option.
_SAME = {
    "name": "name",
    "samples": "samples",
    "sampler": "sampler",
    "pruner": "prune",
    "prune_after": "prune_after",
    "parallel": "parallel",
    "reuse": "reuse",
    "shuffle": "shuffle",
    "stop_on_nan": "stop_on_nan",
    "repeat": "repeat",
    "over": "over",
    "steps": "steps",
    "population": "population",
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

    spec, wishes = read_sweep_file(text, path, os.environ)
    return dict(spec), wishes


def _parameters(
    known: Sequence[Mapping[str, Any]], params: Sequence[tuple[str, Sequence[str]]]
) -> list[Mapping[str, Any]]:
    """Those of the file, in their order; what was typed takes their place, or comes behind them."""
    typed: dict[str, Mapping[str, Any]] = {}
    for name, values in params:
        if name in typed:
            raise BadInput(f"the parameter {name} is given twice", remedy="give all its values at once")
        typed[name] = parameter_object(parse_parameter(name, values))
    return [typed.pop(one["name"], one) for one in known] + list(typed.values())


def _results(spec: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics and where they are read."""
    given = [f"--{name.replace('_', '-')}" for name in ("from_log", "result_file", "from_wandb") if options[name]]
    if len(given) > 1:
        raise BadInput(f"{given[0]} and {given[1]} were both given", remedy="results come from one place")
    metrics = [parse_metric(text, options["goal"]) for text in options["metric"]] or list(spec.get("metrics", ()))
    if options["goal"] and not metrics:
        raise BadInput("--goal is for --metric", remedy=f"--metric val_loss --goal {options['goal']}")
    if options["goal"] and not options["metric"]:
        metrics = [{**metric, "goal": options["goal"]} for metric in metrics]
    if options["target"] is not None:
        metrics = _with_target(metrics, options["target"])
    found: dict[str, Any] = {"metrics": metrics}
    if options["from_log"]:
        found["results"] = {"from": "log", "pattern": options["from_log"]}
    elif options["result_file"]:
        found["results"] = {"from": "file", "path": options["result_file"]}
    elif options["from_wandb"]:
        found["results"] = {"from": "wandb"}
    return found


def _with_target(metrics: Sequence[Mapping[str, Any]], target: float) -> list[dict[str, Any]]:
    if len(metrics) != 1:
        raise BadInput(
            "--target is for one metric",
            remedy="name one: --metric loss --target 0.1; in a file each may have one",
        )
    return [{**metrics[0], "target": target}]
