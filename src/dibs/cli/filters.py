"""The options that choose jobs, the same for `ls`, `export` and `clean`."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dibs.cli.options import ParsedOption
from dibs.cli.output import OVER, STATES, WAITING
from dibs.cli.references import complete_projects
from dibs.errors import BadInput
from dibs.model.units import format_moment, parse_duration

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _states(text: str) -> tuple[str, ...]:
    found: list[str] = []
    for word in text.split(","):
        word = word.strip().lower().replace("-", "_")
        if word in ("waiting", "over"):
            found += WAITING if word == "waiting" else OVER
        elif word in STATES:
            found.append(word)
        else:
            raise BadInput(
                f"there is no state {word!r}",
                remedy=f"there are {', '.join(STATES)}; waiting; over: all that ended",
            )
    return tuple(dict.fromkeys(found))


def parse_since(text: str) -> str:
    """The moment `2h` ago, or a date or a time of today, as the daemon reads it."""
    return format_moment(int(_since(text.strip())), "seconds")


def _since(text: str) -> float:
    today = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
    days = {"today": today, "yesterday": today - timedelta(days=1)}
    try:
        if text in days:
            return days[text].timestamp()
        if ":" in text and "-" not in text:  # a time of today, not minutes and seconds
            clock = datetime.strptime(text, "%H:%M" if text.count(":") == 1 else "%H:%M:%S")
            return today.replace(hour=clock.hour, minute=clock.minute, second=clock.second).timestamp()
        if text[:4].isdigit() and "-" in text:
            return datetime.fromisoformat(text).timestamp()
        return max(0.0, time.time() - parse_duration(text))
    except (ValueError, OverflowError, OSError, BadInput):
        raise BadInput(
            f"cannot read {text!r} as a moment", remedy="write it like 2h, 14:30, yesterday or 2026-11-15"
        ) from None


def _array(text: str) -> int:
    text = text.strip().removesuffix("_")
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise BadInput(f"cannot read {text!r} as an array", remedy="it is the number of its first job")
    return int(text)


class _States(ParsedOption):
    """States with commas between. The shell can complete the last one."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        before, comma, last = incomplete.rpartition(",")
        words = [word for word in (*STATES, "waiting", "over") if word.startswith(last)]
        return [CompletionItem(f"{before}{comma}{word}") for word in words]


STATE = _States("states", _states)

_OPTIONS = (
    click.option(
        "--state", type=STATE, metavar="STATES", help="Only these: queued,held,running,failed,... waiting, over."
    ),
    click.option("-P", "--project", metavar="NAME", shell_complete=complete_projects, help="Only this project."),
    click.option("--user", metavar="NAME", help="Only jobs of this user."),
    click.option(
        "--since", type=ParsedOption("moment", parse_since), metavar="WHEN", help="Only since 2h, 14:30 or a date."
    ),
    click.option("-J", "--name", metavar="NAME", help="Only jobs of this name."),
    click.option("--tag", metavar="TAG", help="Only jobs with this tag."),
    click.option("--array", type=ParsedOption("array", _array), metavar="N", help="Only the tasks of this array."),
)


def filter_options(function: _Function) -> _Function:
    """Add the options that choose jobs."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def query_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The daemon's words for what was chosen; what was not is left out."""
    names = ("project", "user", "since", "name", "tag", "array")
    query = {name: options[name] for name in names if options.get(name) not in (None, "")}
    if options.get("state"):
        query["state"] = ",".join(options["state"])
    return query
