"""Slurm's spellings of options and values, for the command line and for `#SBATCH` lines."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from dibs.errors import BadInput
from dibs.model.fields import FIELDS
from dibs.model.units import parse_ranges

# The option of dibs with the same meaning.
_SAME = {alias: field.flags[-1] for field in FIELDS for alias in field.aliases}
MOST_TASKS = 5_000  # an array is stored in one record
_LARGEST = 10**9
_AFTER = {"afterok": "--after", "afterany": "--after-any", "afternotok": "--after-fail"}


def translate_options(words: Sequence[str]) -> list[str]:
    """A command line with `--gres=gpu:2`, `--job-name` and the like replaced by options of dibs. Stops at `--`."""
    found: list[str] = []
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if word == "--":
            return [*found, word, *reversed(rest)]
        option, equals, value = word.partition("=")
        if option in _SAME:
            found += [_SAME[option], value] if equals else [_SAME[option]]
        elif option in _TRANSLATED:
            if not equals:
                if not rest:
                    raise BadInput(f"{option} needs a value", remedy=f"write it like {option}={_EXAMPLES[option]}")
                value = rest.pop()
            found += _TRANSLATED[option](value)
        else:
            found.append(word)
    return found


def parse_gres(text: str) -> tuple[int | None, str, list[str]]:
    """The GPUs of `gpu:h200:2,shm:1`: their number (None without any), their type, and the other items."""
    total: int | None = None
    kind = ""
    others = []
    for item in text.split(","):
        parts = item.removeprefix("gres/").removeprefix("gres:").split("(")[0].split(":")
        if parts[0] != "gpu":
            others.append(item)
            continue
        number, one_kind = parse_gpus(":".join(parts[1:]) or "1")
        total = number + (total or 0)
        kind = one_kind or kind
    return total, kind, others


def parse_gpus(text: str) -> tuple[int, str]:
    """The number and type in `2`, `a100:2` and `a100` (which is one)."""
    kind, _, number = text.rpartition(":")
    if not kind and number[:1].isalpha():
        kind, number = number, "1"
    if not re.fullmatch(r"[0-9]{1,6}", number):
        raise BadInput(f"cannot read {text[:60]!r} as a number of GPUs", remedy="write it like 2 or h200:2")
    return int(number), kind


def parse_dependency(text: str) -> dict[str, list[str]]:
    """The jobs of `afterok:12:13,afterany:14`, by the option of dibs for each kind."""
    found: dict[str, list[str]] = {}
    for part in text.split(","):
        kind, *jobs = part.strip().split(":")
        if kind not in _AFTER or not jobs or not all(re.fullmatch(r"[0-9]{1,15}(_[0-9]*)?", job) for job in jobs):
            raise BadInput(
                f"cannot read {part[:60]!r} as a dependency",
                remedy="dibs knows afterok:12:13, afterany:12 and afternotok:12, with commas between them",
            )
        found.setdefault(_AFTER[kind], []).extend(jobs)
    return found


def _gres(value: str) -> list[str]:
    number, kind, others = parse_gres(value)
    if others:
        raise BadInput(f"dibs does not support --gres={others[0][:60]}", remedy="it knows gpu:2 and gpu:h200:2")
    return _gpus(number or 0, kind)


def _gpus(number: int, kind: str) -> list[str]:
    return ["--num-gpus", str(number), *(["--gpu-type", kind] if kind else [])]


def _dependency(value: str) -> list[str]:
    return [word for option, jobs in parse_dependency(value).items() for word in (option, ",".join(jobs))]


_TRANSLATED = {
    "--gres": _gres,
    "--gpus-per-node": lambda value: _gpus(*parse_gpus(value)),
    "--dependency": _dependency,
}
_EXAMPLES = {"--gres": "gpu:2", "--gpus-per-node": "2", "--dependency": "afterok:12"}


class Tasks(NamedTuple):  # not a dataclass, for the start-up time of `dibs add`
    """The numbers of an array's tasks, and how many may run at once."""

    numbers: tuple[int, ...]
    most: int | None = None


def parse_array(text: str) -> Tasks:
    """The tasks of `1-16%4` or `1,3,5-9:2`, each once, in order."""
    ranges, percent, most = text.strip().partition("%")
    if percent and (not re.fullmatch(r"[0-9]{1,6}", most) or int(most) < 1):
        raise _wrong(text)
    numbers: set[int] = set()
    try:
        parts = parse_ranges(ranges, may_step=True)
    except ValueError:
        raise _wrong(text) from None
    for part in parts:
        if not part or part.stop > _LARGEST + 1:
            raise _wrong(text)
        if len(part) + len(numbers) > MOST_TASKS:
            raise BadInput(
                f"the array {text[:60]!r} has more than {MOST_TASKS} tasks",
                remedy="split it, or give the commands as lines",
            )
        numbers.update(part)
    return Tasks(tuple(sorted(numbers)), int(most) if percent else None)


def _wrong(text: str) -> BadInput:
    return BadInput(f"cannot read {text[:60]!r} as an array", remedy="write it like 1-16, 1-16%4 or 1,3,5-9:2")
