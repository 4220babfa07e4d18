"""Settings: one table of them, read from /etc, from the user's own file, from variables and from flags.

The later wins: `/etc/dibs/config.toml` < `$XDG_CONFIG_HOME/dibs/config.toml` < `DIBS_*` < flags.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dibs.errors import BadInput

SYSTEM_FILE = "/etc/dibs/config.toml"
_LONGEST_FILE = 1024**2  # bytes
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_BYTES = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What somebody may set once for all commands. Every field is a row of TABLE."""

    gpus: str = "auto"
    gpu_order: str = "emptiest"
    min_free: int = 0
    respect_graphics: bool = False
    ignore_memory: int = 0  # bytes
    reading_seconds: float = 1.0
    retention: float | None = None  # seconds; None: for ever
    max_quick_failures: int = 5
    quick_seconds: float = 10.0
    gpu_failures: int = 3
    canary: str = "auto"
    canary_after: float = 600.0  # seconds
    log_limit: int = 1024**3  # bytes
    keep_logs: int | None = None  # bytes; None: all
    notify_command: str = ""
    notify_webhook: str = ""
    notify_apprise: str = ""
    notify_on: str = "failure"
    results_folder: str = ""
    web: str = "asked"
    no_start: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: how a setting is called, what it is by default, and what it does."""

    name: str
    variable: str
    default: str  # as it would be written
    read: Callable[[object], Any]  # raises BadInput with the remedy as its message
    sentence: str

    @property
    def value_by_default(self) -> Any:
        return getattr(Settings(), self.name)


@dataclass(frozen=True, slots=True)
class Found:
    """A setting's value, and where it comes from."""

    setting: Setting
    written: object  # as it stands in the file or the variable
    value: Any
    source: str  # `default`, a path, or the name of a variable


def load_settings(environ: Mapping[str, str], flags: Mapping[str, object] | None = None) -> Settings:
    """Every setting's value. What cannot be meant raises BadInput and names the file and the key."""
    found = find_settings(environ, flags)
    return Settings(**{one.setting.name: one.value for one in found})


def find_settings(environ: Mapping[str, str], flags: Mapping[str, object] | None = None) -> list[Found]:
    """Every setting with its value and where that comes from, in the order of the table."""
    found = {row.name: Found(row, row.default, row.value_by_default, "default") for row in TABLE}
    for path in (SYSTEM_FILE, user_file(environ)):
        for name, written in read_file(path).items():
            found[name] = Found(_ROWS[name], written, _value(_ROWS[name], written, path), path)
    for row in TABLE:
        if (text := environ.get(row.variable)) is not None:
            found[row.name] = Found(row, text, _value(row, text, row.variable), row.variable)
    for name, written in (flags or {}).items():
        found[name] = Found(_ROWS[name], written, _value(_ROWS[name], written, f"--{name}"), f"--{name}")
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
        written = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"cannot read {path}: {error}", remedy='a line looks like: gpus = "0,1"') from error
    for name in written:
        if name not in _ROWS:
            raise BadInput(
                f"{path} line {line_of(name, text)}: there is no setting called {name[:100]!r}",
                remedy=_nearest(name),
            )
    return written


def read_text(path: str) -> str:
    """What stands in a settings file; nothing where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(_LONGEST_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, PermissionError) and not os.access(os.path.dirname(path), os.X_OK):
            return ""  # somebody else's home, as `sudo -u` may leave it behind: our settings are not there
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadInput(
            f"cannot read the settings in {path}: {reason}", remedy="mend or remove the file"
        ) from error


def line_of(name: str, text: str) -> int:
    """The line of a file on which a name is set; 1 where it cannot be told."""
    for number, line in enumerate(text.splitlines(), start=1):
        if re.match(rf"""\s*\[?\s*["']?{re.escape(name)}["']?\s*[\]=.]""", line):
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


def _text(written: object) -> str:
    if not isinstance(written, str) or "\0" in written:
        raise BadInput("it is text, between quotes")
    return written


def _gpus(written: object) -> str:
    text = _text(written)
    if not re.fullmatch(r"[\w.,:+ /-]*", text):
        raise BadInput('it is "auto", or GPUs like "0,1"')
    return text


def _gpu_order(written: object) -> str:
    text = str(written) if isinstance(written, int) and not isinstance(written, bool) else _text(written)
    ids = [part.strip() for part in text.split(",")]
    are_ids = all(re.fullmatch(r"[0-9]{1,4}(:[0-9]{1,4})?|(GPU|MIG|AMD)-[\w.:-]*", one) for one in ids)
    if text not in ("emptiest", "coolest", "last") and (not are_ids or len(set(ids)) < len(ids)):
        raise BadInput("it is emptiest, coolest, last, or GPUs like 3,2")
    return text


def _folder(written: object) -> str:
    text = os.path.expanduser(_text(written))
    if text and text != "none" and not text.startswith("/"):
        raise BadInput("it is the absolute path of a folder, or none, or empty")
    return text


def _web(written: object) -> str:
    text = _text(written).strip()
    match = re.fullmatch(r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\]):([0-9]{1,5})", text)
    if text not in ("asked", "never") and (match is None or not 1 <= int(match[1]) <= 65_535):
        raise BadInput('it is "asked", "never", or an address of this machine like "127.0.0.1:8265"')
    return text


def _whole(least: int) -> Callable[[object], int]:
    def read(written: object) -> int:
        if isinstance(written, bool) or not re.fullmatch(r"[0-9]{1,9}", str(written)) or int(str(written)) < least:
            raise BadInput(f"it is a whole number from {least}")
        return int(str(written))

    return read


def _seconds(written: object) -> float:
    if isinstance(written, bool) or not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", str(written)):
        raise BadInput("it is a number of seconds")
    return float(str(written))


def _pause(written: object) -> float:
    seconds = _seconds(written)
    if not 0.1 <= seconds <= 60:
        raise BadInput("it is a number of seconds from 0.1 to 60")
    return seconds


def _duration(written: object) -> float | None:
    if written == "never":
        return None
    match = (
        re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*([smhdw])", written) if isinstance(written, str) else None
    )
    if match is None or not float(match[1]):
        raise BadInput('it is "never", or a time like "30d" or "12h"')
    return float(match[1]) * _SECONDS[match[2]]


def _time(written: object) -> float:
    try:
        seconds = _duration(written)
    except BadInput:
        seconds = None
    if seconds is None:
        raise BadInput('it is a time like "10m" or "1h"')
    return seconds


def _canary(written: object) -> str:
    text = _text(written).strip()
    if not text:
        raise BadInput('it is "auto", "never", or a command')
    return text


def _size(written: object) -> int:
    match = (
        re.fullmatch(r"(?i:([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([KMGT]?)(?:i?B)?)", written)
        if isinstance(written, str)
        else None
    )
    size = int(float(match[1]) * _BYTES[match[2].upper()]) if match else 0
    if size < 1024**2:
        raise BadInput('it is a size from "1M", like "1G"')
    return size


def _size_or_never(written: object) -> int | None:
    if written == "never":
        return None
    try:
        return _size(written)
    except BadInput:
        raise BadInput('it is "never", or a size from "1M", like "50G"') from None


def _size_or_zero(written: object) -> int:
    if str(written) == "0" and not isinstance(written, bool):
        return 0
    try:
        return _size(written)
    except BadInput:
        raise BadInput('it is 0, or a size from "1M", like "200M"') from None


def _truth(written: object) -> bool:
    if isinstance(written, bool):
        return written
    if isinstance(written, str) and written.lower() in _TRUE + _FALSE:
        return written.lower() in _TRUE
    raise BadInput("it is true or false")


def _one_of(*words: str) -> Callable[[object], str]:
    def read(written: object) -> str:
        if written not in words:
            raise BadInput(f"it is one of {', '.join(words)}")
        return str(written)

    return read


TABLE = (
    Setting("gpus", "DIBS_POOL", "auto", _gpus, "The GPUs of the queue: auto, or ids like 0,1 or 0,0,1."),
    Setting(
        "gpu_order",
        "DIBS_GPU_ORDER",
        "emptiest",
        _gpu_order,
        "Which GPU is taken first: emptiest, coolest, last, or ids like 3,2.",
    ),
    Setting("min_free", "DIBS_MIN_FREE", "0", _whole(0), "So many GPUs that nobody uses are left to others."),
    Setting(
        "respect_graphics",
        "DIBS_RESPECT_GRAPHICS",
        "false",
        _truth,
        "Whether a GPU on which somebody only draws is busy.",
    ),
    Setting(
        "ignore_memory",
        "DIBS_IGNORE_MEMORY",
        "0",
        _size_or_zero,
        "Other people's processes that hold less of a GPU's memory are overlooked: 200M.",
    ),
    Setting(
        "reading_seconds",
        "DIBS_READING_SECONDS",
        "1",
        _pause,
        "How often the GPUs are looked at while jobs wait or run.",
    ),
    Setting("retention", "DIBS_RETENTION", "never", _duration, "When jobs that are over are removed: never, 30d."),
    Setting(
        "max_quick_failures",
        "DIBS_MAX_QUICK_FAILURES",
        "5",
        _whole(0),
        "So many quick failures in a row hold a project; 0: never.",
    ),
    Setting("quick_seconds", "DIBS_QUICK_SECONDS", "10", _seconds, "A failure in so few seconds is a quick one."),
    Setting(
        "gpu_failures",
        "DIBS_GPU_FAILURES",
        "3",
        _whole(0),
        "So many failures in a row on one GPU quarantine it; 0: never.",
    ),
    Setting(
        "canary",
        "DIBS_CANARY",
        "auto",
        _canary,
        "How a quarantined GPU is tested: auto, never, or a command that ends with 0 where it is well.",
    ),
    Setting(
        "canary_after",
        "DIBS_CANARY_AFTER",
        "10m",
        _time,
        "When a quarantined GPU is tested first; then after twice the time, and so on up to a day.",
    ),
    Setting("log_limit", "DIBS_LOG_LIMIT", "1G", _size, "The most that is kept of each output stream of a job."),
    Setting(
        "keep_logs",
        "DIBS_KEEP_LOGS",
        "never",
        _size_or_never,
        "When output of old jobs is removed: never, or where all of it is more than 50G.",
    ),
    Setting("notify_command", "DIBS_NOTIFY_COMMAND", "", _text, "A command that is run to tell you about a job."),
    Setting("notify_webhook", "DIBS_NOTIFY_WEBHOOK", "", _text, "An address that is sent JSON about a job."),
    Setting(
        "notify_apprise",
        "DIBS_NOTIFY_APPRISE",
        "",
        _text,
        "An address of apprise, such as mailto://...; it needs `pip install dibs[notify]`.",
    ),
    Setting(
        "notify_on",
        "DIBS_NOTIFY_ON",
        "failure",
        _one_of("failure", "end", "never"),
        "What you are told about jobs that say nothing themselves: failure, end, never.",
    ),
    Setting(
        "results_folder",
        "DIBS_RESULTS_FOLDER",
        "",
        _folder,
        "The folder of links project/name/number to what jobs left; empty: results in the state folder; or none.",
    ),
    Setting(
        "web",
        "DIBS_WEB",
        "asked",
        _web,
        "When browsers can open the page: asked (after `dibs web`), never, or always at 127.0.0.1:8265.",
    ),
    Setting("no_start", "DIBS_NO_START", "false", _truth, "Do not start the daemon with the first command."),
)
_ROWS = {row.name: row for row in TABLE}
