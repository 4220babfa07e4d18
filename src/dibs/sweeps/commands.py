"""The command of a sweep at one of its points, and what tells two points apart."""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dibs.sweeps.dropping import line_without, words_without
from dibs.sweeps.space import Choice, Parameter, Point
from dibs.sweeps.template import LineTemplate, WordsTemplate

if TYPE_CHECKING:
    from dibs.sweeps.spec import Spec

_MOST_TEMPLATES = 1000


class CommandTemplate:
    """The command with placeholders, one template for each set of parameters that are none."""

    def __init__(self, spec: "Spec") -> None:
        """Raise BadInput where the placeholders and the parameters do not go together."""
        self._line, self._words, self._names = spec.line, spec.words, spec.names
        self._shell = spec.shell
        self._source = (spec.results.kind, spec.results.pattern, spec.results.path)
        self._own_flags = {parameter.name for parameter in spec.parameters if _is_flag(parameter)}
        whole = self._template(frozenset(), allow_unused=False)
        self._templates = {frozenset[str](): whole}
        for parameter in spec.parameters:
            if parameter.when or (isinstance(parameter, Choice) and None in parameter.values):
                self._template(frozenset([parameter.name]))
            if isinstance(parameter, Choice) and isinstance(whole, LineTemplate):
                for value in parameter.values:
                    if value is not None:
                        whole.check_value(parameter.name, value)

    def expand(self, point: Point) -> str | list[str]:
        """The line for the shell, or the words; the flag of a parameter that is none is not in it."""
        values = {name: value for name, value in point.items() if value is not None}
        gone = frozenset(self._names).difference(values)
        if gone not in self._templates:
            if len(self._templates) > _MOST_TEMPLATES:
                self._templates.clear()
            self._templates[gone] = self._template(gone)
        return self._templates[gone].expand(values)

    def fingerprint(self, point: Point, workdir: str, variables: Mapping[str, str] | None = None) -> str:
        """What tells this point from others, of any sweep: its command, where it runs, where its numbers are.

        So do variables that were given to the job. Without any it is what it was before they counted.
        """
        command = self.expand(point)
        told: list[object] = [self._shell if isinstance(command, str) else "", command, workdir, *self._source]
        if variables:
            told.append(sorted(variables.items()))
        return hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()

    def _template(self, gone: frozenset[str], *, allow_unused: bool = True) -> LineTemplate | WordsTemplate:
        if self._words:
            words = words_without(self._words, self._names, gone, self._own_flags)
            return WordsTemplate(words, self._names, allow_unused=allow_unused)
        line = line_without(self._line, self._names, gone, self._own_flags)
        return LineTemplate(line, self._names, allow_unused=allow_unused)


def _is_flag(parameter: Parameter) -> bool:
    """Whether its values are flags themselves, as `--amp` or none."""
    values = [value for value in parameter.values if value is not None] if isinstance(parameter, Choice) else []
    return bool(values) and all(value.startswith("--") for value in values)
