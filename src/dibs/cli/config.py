"""`dibs config`: what is set, where it is set, and setting it."""

import json
import os
import re
import sys
import tomllib
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.output import columns, say, table, table_width
from dibs.errors import BadInput, DibsError
from dibs.files import replace_file
from dibs.settings import (
    FoundSetting,
    Setting,
    check_value,
    find_settings,
    flat,
    load_settings,
    read_file,
    read_text,
    row_of,
    user_file,
)
from dibs.settings.table import TABLE

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_EPILOG = """\b
Examples:
  dibs config                       every setting, its value and where that comes from
  dibs config set gpus 0,1          the queue uses these GPUs after `dibs daemon restart`
  dibs config set retention 30d
  dibs config get retention
"""


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The names of settings that begin like this."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(row.name, help=row.sentence) for row in TABLE if row.name.startswith(incomplete)]


_KEY = click.argument("key", shell_complete=_complete)


@click.group(invoke_without_command=True, epilog=_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list, one object per setting.")
@click.pass_context
def config(ctx: click.Context, as_json: bool) -> int:
    """Show the settings: /etc/dibs/config.toml, then your own file, then DIBS_* variables; the later wins."""
    if ctx.invoked_subcommand is not None:
        return 0

    found = find_settings(os.environ)
    if as_json:
        click.echo(json.dumps([_as_json(one) for one in found], indent=2))
        return 0
    for line in _table(found, table_width()):
        click.echo(line)
    return 0


def _table(found: list[FoundSetting], width: int) -> list[str]:
    """A line for each setting; where the sentences do not fit beside the rest, they stand below it."""
    rows = [[one.setting.name, _shown(one.written), one.source] for one in found]
    sentences = [one.setting.sentence for one in found]
    beside = table(
        ["setting", "value", "from", ""],
        [[*row, sentence] for row, sentence in zip(rows, sentences, strict=True)],
        width=sys.maxsize,
        shrink=3,
    )
    if max(map(columns, beside)) <= width:
        return beside
    heading, *lines = table(["setting", "value", "from"], rows, width=width, shrink=2)
    below = [[f"  {line}" for line in wrap(sentence, width - 2)] for sentence in sentences]
    return [heading, *(text for line, more in zip(lines, below, strict=True) for text in (line, *more))]


@config.command()
@_KEY
def get(key: str) -> int:
    """Print the value of one setting."""
    name = row_of(key).name
    [found] = [one for one in find_settings(os.environ) if one.setting.name == name]
    click.echo(_shown(found.written))
    return 0


@config.command("set")
@_KEY
@click.argument("value")
def set_(key: str, value: str) -> int:
    """Write a setting into your own file. An empty VALUE is an empty text."""
    row = row_of(key)
    check_value(key, value, f"dibs config set {key}")
    if row.name == "backends.slurm.options":
        from dibs.model.slurm_options import check_options

        check_options(dict(row.read(value)), may_be_new=False)
    path = user_file(os.environ)
    _write(path, row, value)
    say(f"wrote {path}")
    if row.variable in os.environ:
        say(f"dibs: {row.variable} is set, and wins over the file")
    elif key != "no_start":
        say("the daemon reads it at its start: dibs daemon restart")
    if row.name == "min_free" and (count := _gpu_count()) is not None and 0 < count <= row.read(value):
        say(f"dibs: with min_free = {value} no job gets a GPU: there are {count}")
    return 0


@config.command()
def path() -> int:
    """Print the path of your own file."""
    click.echo(user_file(os.environ))
    return 0


def _gpu_count() -> int | None:
    """How many GPUs the queue has; None where that cannot be found out."""
    from dibs.gpus.detect import find_probe
    from dibs.gpus.pool import resolve_pool

    try:
        gpus = load_settings(os.environ).gpus
        return len(resolve_pool(gpus, find_probe(os.environ), os.environ).cards)
    except DibsError:
        return None


def _write(path: str, row: Setting, value: str) -> None:
    """Change or add one line; every other line, comments too, stays as it is."""
    before = read_file(path)
    lines = read_text(path).splitlines()
    start, end, name = _section(lines, row.name)
    line = f"{name} = {_as_toml(row, value)}"
    places = [at for at in range(start, end) if re.match(rf"\s*{re.escape(name)}\s*=", lines[at])]
    for at in places:
        _, hash_, comment = _cut_comment(lines[at])
        lines[at] = f"{line}  {hash_}{comment}".rstrip()
    if not places:
        lines.insert(end, line)
    text = "\n".join(lines) + "\n"
    try:
        written = flat(tomllib.loads(text))
        is_right = written == {**before, row.name: written[row.name]}
    except (tomllib.TOMLDecodeError, KeyError):
        is_right = False
    if not is_right:  # a value over several lines, say
        raise BadInput(f"cannot change {row.name} in {path}", remedy=f"change it by hand: {line}")
    _replace(path, text)


def _section(lines: list[str], name: str) -> tuple[int, int, str]:
    """From which line to which a setting belongs, and how it is called there: below its table's head, if any."""
    heads = [at for at, text in enumerate(lines) if text.lstrip().startswith("[")]
    table, _, last = name.rpartition(".")
    for head in heads if table else ():
        if re.match(rf"\s*\[\s*{re.escape(table)}\s*\]", lines[head]):
            return head + 1, next((at for at in heads if at > head), len(lines)), last
    return 0, next(iter(heads), len(lines)), name


def _replace(path: str, text: str) -> None:
    real = os.path.realpath(path)  # a file that people keep elsewhere, behind a link, stays there
    try:
        os.makedirs(os.path.dirname(real), exist_ok=True)
        replace_file(real, text, mode=None)
    except OSError as error:
        raise BadInput(
            f"cannot write {path}: {error.strerror}", remedy="check the folder's permissions"
        ) from error


def _cut_comment(line: str) -> tuple[str, str, str]:
    """A line without the comment at its end; a # inside of quotes is none."""
    found = re.match(r"""((?:[^#"']|"(?:[^"\\]|\\.)*"|'[^']*')*)(#?)(.*)""", line)
    assert found is not None
    return found[1], found[2], found[3]


def _as_toml(row: Setting, value: str) -> str:
    if isinstance(row.value_by_default, bool):
        return "true" if row.read(value) else "false"
    if isinstance(row.value_by_default, int | float) and re.fullmatch(r"[0-9.]+", value):
        return value

    # A JSON text is a TOML text, except for the escaped halves of rare letters; those are kept as they are.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _as_json(one: FoundSetting) -> dict[str, Any]:
    return {
        "name": one.setting.name,
        "value": one.written,
        "source": one.source,
        "default": one.setting.default,
        "variable": one.setting.variable,
        "sentence": one.setting.sentence,
    }


def _shown(written: object) -> str:
    if isinstance(written, bool):
        return "true" if written else "false"
    return str(written)
