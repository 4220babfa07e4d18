"""The command of a Weights & Biases sweep file: its macros, and how their agent writes the arguments."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dibs.errors import BadInput
from dibs.sweeps.space import Choice, Parameter
from dibs.sweeps.yamltext import Truth

_DEFAULT = ("${env}", "${interpreter}", "${program}", "${args}")
_VARIABLE = re.compile(r"\$\{envvar:(\w+)\}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter, or a value that stays the same, under its name and the names it is nested in."""

    path: tuple[str, ...]
    given: Any  # Choice, Range, or a value of YAML

    @property
    def name(self) -> str:
        return ".".join(self.path)


def argument_text(value: Any) -> str:
    """A value as it is passed: as Python shows it, because their agent is written in it."""
    return value if isinstance(value, str) and not isinstance(value, Truth) else _literal(value, _PYTHON)


class WandbCommand:
    """Words with placeholders, and the parameters that fill them."""

    def __init__(
        self,
        command: Any,
        program: Any,
        arguments: Sequence[Argument],
        *,
        path: str,
        environment: Mapping[str, str],
    ) -> None:
        """Raise BadInput for a macro that has no equal here."""
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
        if len(macros) != 1:
            raise self._refused(
                f"the command has {len(macros)} of the macros that take the arguments",
                f"one of them: {', '.join(self._macros)}",
            )
        self.words = [word for each in given for word in self._words(each)]

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
                "the macro ${args_json_file} is not known here, because dibs writes no file for a trial",
                "${args_json} passes the same JSON as one word",
            )
        if given not in (*_DEFAULT, *self._macros) and "${" in _VARIABLE.sub("", given):
            raise self._refused(
                f"dibs does not know what to do with {given[:60]} in the command",
                f"dibs has ${{env}}, ${{interpreter}}, ${{program}}, ${{envvar:NAME}}, {', '.join(self._macros)}",
            )

    def _variable(self, name: str) -> str:
        """As it is where the sweep is begun, which is where their agent would be started."""
        value = self._environment.get(name)
        if value is None:
            raise self._refused(f"the command has the variable {name[:60]}, which is not set", "export it")
        if "{" in value:
            raise self._refused(
                f"the variable {name[:60]} has a brace in it, which would be taken for a parameter",
                "let the program read it by itself",
            )
        return value

    def _flags(self, hyphens: str, *, is_bare: bool = False, is_split: bool = False) -> list[str]:
        words = []
        for name, given in self._tree().items():
            if is_bare and not isinstance(given, dict) and _is_truth(given.given):
                words += self._bare(given)
                continue
            is_nested = isinstance(given, dict)
            value = self._structure(given, _PYTHON) if is_nested else self._hole(given, argument_text)
            words += [f"{hyphens}{name}", value] if is_split else [f"{hyphens}{name}={value}"]
        return words

    def _bare(self, argument: Argument) -> list[str]:
        """`--flag` for a truth, and nothing for an untruth: it is none, and drops its word."""
        flag = f"--{argument.name}"
        if isinstance(argument.given, Truth):
            return [flag] if argument.given.is_true else []
        self._replace(argument.given, {"True": flag, "False": None})
        return [f"{{{argument.name}}}"]

    def _tree(self) -> dict[str, Any]:
        """The arguments as nested as they were."""
        tree: dict[str, Any] = {}
        for argument in self._arguments:
            branch = tree
            for name in argument.path[:-1]:
                branch = branch.setdefault(name, {})
            branch[argument.path[-1]] = argument
        return tree

    def _structure(self, tree: dict[str, Any], style: "_Style") -> str:
        """Arguments written as one value, with the placeholders in it."""
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
        """A placeholder between others' text: with quotes where each value is a text, and bare where none is."""
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
        """The value itself where it stays the same, so that it is no parameter; else a placeholder."""
        if isinstance(argument.given, Parameter):
            return f"{{{argument.name}}}"
        text = write(argument.given)
        if "{" not in text:
            return text
        self.parameters.append(Choice(argument.name, (text,)))  # values are never taken for placeholders
        return f"{{{argument.name}}}"

    def _replace(self, choice: Choice, texts: dict[str, Any]) -> None:
        place = self.parameters.index(choice)
        self.parameters[place] = Choice(choice.name, tuple(texts[value or ""] for value in choice.values))

    def _refused(self, why: str, remedy: str) -> BadInput:
        return BadInput(f"cannot read {self._path}: {why}", remedy=remedy)


@dataclass(frozen=True, slots=True)
class _Style:
    """How Python or JSON writes a value."""

    none: str
    true: str
    false: str
    quoted: Callable[[str], str]

    def bare(self, text: str) -> str | None:
        """What stands without quotes: a number, a truth or nothing, or a list; None where it is a text."""
        known = {"None": self.none, "True": self.true, "False": self.false}
        if text in known:
            return known[text]
        return text if _is_json(text) else None


_PYTHON = _Style("None", "True", "False", repr)
_JSON = _Style("null", "true", "false", json.dumps)


def _literal(value: Any, style: _Style) -> str:
    if value is None:
        return style.none
    if isinstance(value, Truth):
        return style.true if value.is_true else style.false
    if isinstance(value, list):
        return "[" + ", ".join(_literal(each, style) for each in value) + "]"
    if isinstance(value, dict):
        parts = [f"{style.quoted(name)}: {_literal(each, style)}" for name, each in value.items()]
        return "{" + ", ".join(parts) + "}"
    return str(value) if _is_json(value) else style.quoted(value)


def _is_json(text: str) -> bool:
    """Whether it is a number, a list or an object; a text in quotes is one to us already."""
    try:
        return not isinstance(json.loads(text), str | bool | None)
    except (ValueError, RecursionError):
        return False


def _is_truth(given: Any) -> bool:
    return isinstance(given, Truth) or (isinstance(given, Choice) and set(given.values) <= {"True", "False"})
