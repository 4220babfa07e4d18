"""What is made out of the table of fields and committed: types for type checkers, lists for the page, tables.

`make bless` writes it; `test_fields.py` compares.
"""

import re
from collections.abc import Callable
from pathlib import Path

from dibs.model.fields import BY_KEY, FIELDS, Field, Kind, Verb, fields_of

ROOT = Path(__file__).parent.parent
BY = "Made from src/dibs/model/fields.py by `make bless`: change the table, not this."

_PYTHON = {
    Kind.COUNT: "int",
    Kind.SIZE: "int | str",
    Kind.VRAM: "int | str",
    Kind.SHARE: "float | str",
    Kind.GPU_IDS: "int | str | Sequence[int | str]",
    Kind.NAME: "str",
    Kind.NAMES: "str | Sequence[str]",
    Kind.KEY: "str",
    Kind.FLAG: "bool",
    Kind.DURATION: "float | str",
    Kind.MOMENT: "str | datetime",
    Kind.FOLDER: '"str | os.PathLike[str]"',
    Kind.FILE: '"str | os.PathLike[str]"',
    Kind.MOUNTS: "str | Sequence[str]",
    Kind.PATTERNS: "str | Sequence[str]",
    Kind.VARIABLES: "Mapping[str, str | int | float]",
    Kind.MODULES: "str | Sequence[str]",
    Kind.CAUSES: "str | Sequence[str]",
    Kind.CHECKPOINT: "str",
    Kind.DEPENDENCIES: '"Job | int | str | Sequence[Job | int | str]"',
    Kind.CHOICE: "str",
    Kind.PLACE: "str",
    Kind.SYSTEM_OPTION: "str",
}


def keywords() -> str:
    """The keywords of `dibs.submit`, as a type checker wants them."""
    lines = [
        f'"""The keywords of a job. {BY}"""',
        "",
        "import os",
        "from collections.abc import Mapping, Sequence",
        "from datetime import datetime",
        "from typing import TYPE_CHECKING, TypedDict",
        "",
        "if TYPE_CHECKING:",
        "    from dibs.api.job import Job",
        "",
        "",
        "class JobKeywords(TypedDict, total=False):",
        '    """What may be said of a job, each as `dibs add` takes it; what is left out is as it is there."""',
        "",
    ]
    for field in fields_of(Verb.PYTHON):
        lines += [f"    {field.word}: {_PYTHON[field.kind]}  # {field.sentence}"]
    return "\n".join(lines) + "\n"


def page_keys() -> str:
    """The keys that a job which is asked for again takes along."""
    left_out = ("after", "begin_at", "umask", "array", "hold", "once")  # they were about that time and that call
    keys = [key for key in BY_KEY if key not in left_out]
    return "\n".join(
        [
            f"// {BY}",
            "",
            "/** What is the same when a job is asked for again. */",
            "export const ASKED_AGAIN = [",
            *(f'  "{key}",' for key in keys),
            "] as const;",
            "",
        ]
    )


def fields_table() -> str:
    """Every field with everything that can be said of it in a row."""
    rows = [
        "| word | in JSON | option | set by | until | Slurm | |",
        "|---|---|---|---|---|---|---|",
    ]
    for field in FIELDS:
        if not field.word:
            continue
        verbs = ", ".join(str(verb) for verb in Verb if verb in field.verbs and verb is not Verb.EDIT)
        key = f"`{field.key}`" if field.key else ""
        until = "start" if Verb.EDIT in field.verbs else "added"
        slurm = "yes" if field.on_slurm else "no"
        flags = ", ".join([_flags(field), *([f"`{field.negative}`"] if field.negative else [])])
        rows.append(_row(f"`{field.word}`", key, flags, verbs, until, slurm, _means(field)))
    return "\n".join(rows)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _flags(field: Field) -> str:
    metavar = f" {field.metavar}" if field.metavar else ""
    choices = f" {'|'.join(field.choices)}" if field.kind in (Kind.CHOICE, Kind.PLACE) else ""
    shown = [f"`{flag}`" for flag in field.flags[:-1]]
    shown += [f"`{flag}{metavar}{choices}`".replace("|", "\\|") for flag in field.flags[-1:]]
    return ", ".join(shown)


def _means(field: Field) -> str:
    parts = [field.sentence.rstrip("."), field.more, "may hold secrets" if field.is_secret else ""]
    return "; ".join(part for part in parts if part)


def _between(path: str, name: str, make: Callable[[], str]) -> Callable[[], str]:
    """The page with the text between two marks made anew."""

    def page() -> str:
        text = (ROOT / path).read_text()
        mark, end = f"<!-- fields: {name} -->", "<!-- end of fields -->"
        assert mark in text, f"{path} has no {mark}"
        return re.sub(
            f"{re.escape(mark)}.*?{re.escape(end)}", lambda _: f"{mark}\n{make()}\n{end}", text, flags=re.DOTALL
        )

    return page


GENERATED: dict[str, Callable[[], str]] = {
    "src/dibs/api/job_keywords.py": keywords,
    "web/src/api/fields.ts": page_keys,
    "docs/reference.md": _between("docs/reference.md", "all", fields_table),
}
