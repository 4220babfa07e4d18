"""Settings: one table of them, read from /etc, from the user's own file, from variables and from flags.

The later wins: `/etc/dibs/config.toml` < `$XDG_CONFIG_HOME/dibs/config.toml` < `DIBS_*` < flags.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

from dibs.dataclass import dataclass
from dibs.errors import BadInput
from dibs.settings.table import TABLE, Setting, Settings

__all__ = ["TABLE", "FoundSetting", "Setting", "Settings", "find_settings", "load_settings"]

SYSTEM_FILE = "/etc/dibs/config.toml"
_LONGEST_FILE = 1024**2  # bytes
_ROWS = {row.name: row for row in TABLE}


@dataclass(frozen=True, slots=True)
class FoundSetting:
    """A setting's value, and where it comes from."""

    setting: Setting
    written: object  # as it stands in the file or the variable
    value: Any
    source: str  # `default`, a path, or the name of a variable


def load_settings(environ: Mapping[str, str], flags: Mapping[str, object] | None = None) -> Settings:
    """Every setting's value. What cannot be meant raises BadInput and names the file and the key."""
    found = find_settings(environ, flags)
    return Settings(**{one.setting.field: one.value for one in found})


def find_settings(environ: Mapping[str, str], flags: Mapping[str, object] | None = None) -> list[FoundSetting]:
    """Every setting with its value and where that comes from, in the order of the table."""
    found = {row.name: FoundSetting(row, row.default, row.value_by_default, "default") for row in TABLE}
    for path in (SYSTEM_FILE, user_file(environ)):
        for name, written in read_file(path).items():
            found[name] = FoundSetting(_ROWS[name], written, _value(_ROWS[name], written, path), path)
    for row in TABLE:
        if (text := environ.get(row.variable)) is not None:
            found[row.name] = FoundSetting(row, text, _value(row, text, row.variable), row.variable)
    for name, written in (flags or {}).items():
        found[name] = FoundSetting(_ROWS[name], written, _value(_ROWS[name], written, f"--{name}"), f"--{name}")
    return list(found.values())


def user_file(environ: Mapping[str, str]) -> str:
    """The file that `dibs config set` writes to."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):  # the XDG standard: a relative path is to be ignored
        base = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return f"{base}/dibs/config.toml"


def row_of(name: str) -> Setting:
    """The row of a setting; an unknown name raises BadInput with the nearest one that there is."""
    if name not in _ROWS:
        raise BadInput(f"there is no setting called {name[:100]!r}", remedy=_nearest(name))
    return _ROWS[name]


def read_file(path: str) -> dict[str, object]:
    """The settings of one file as they are written, names checked; nothing where there is no file."""
    text = read_text(path)
    if not text.strip():
        return {}
    import tomllib  # 9 ms that only those with a file pay

    try:
        written = flat(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"cannot read {path}: {error}", remedy='a line looks like: gpus = "0,1"') from error
    for name in written:
        if name not in _ROWS:
            raise BadInput(
                f"{path} line {line_of(name, text)}: there is no setting called {name[:100]!r}",
                remedy=_nearest(name),
            )
    return written


def flat(written: Mapping[str, object], before: str = "") -> dict[str, object]:
    """Names with dots for what stands in tables: `backends.slurm.root`. A table may be a value, too."""
    found: dict[str, object] = {}
    for name, value in written.items():
        if isinstance(value, Mapping) and f"{before}{name}" not in _ROWS:
            found |= flat(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = value
    return found


def read_text(path: str) -> str:
    """What stands in a settings file; nothing where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(_LONGEST_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, PermissionError) and not os.access(os.path.dirname(path), os.X_OK):
            return ""  # the home of another user, as after `sudo -u`: our settings are not there
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadInput(
            f"cannot read the settings in {path}: {reason}", remedy="mend or remove the file"
        ) from error


def line_of(name: str, text: str) -> int:
    """The line of a file on which a name is set, with its table's name or below it; 1 where it cannot be told."""
    lines = text.splitlines()
    for called in (name, name.rpartition(".")[2]):
        for number, line in enumerate(lines, start=1):
            if re.match(rf"""\s*\[?\s*["']?{re.escape(called)}["']?\s*[\]=.]""", line):
                return number
    return 1


def check_value(name: str, written: object, where: str) -> Any:
    """The value that something written stands for; what cannot be meant raises BadInput."""
    return _value(row_of(name), written, where)


def _value(row: Setting, written: object, where: str) -> Any:
    try:
        return row.read(written)
    except BadInput as error:
        place = where
        if where.startswith("/"):
            place = f"{where} line {line_of(row.name, read_text(where))}"
        shown = repr(written)[:100]
        raise BadInput(f"{place}: cannot read {shown} as {row.name}", remedy=error.message) from error


def _nearest(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name[:100].replace("-", "_"), _ROWS, n=1)
    return f"did you mean {near[0]}?" if near else f"dibs knows {', '.join(_ROWS)}"
