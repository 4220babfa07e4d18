"""How jobs and sweeps are named on the command line: `17`, `@`, `@~2`, a name, `17_4`, `17_`, `3-9`."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dibs.cli.output import one_line
from dibs.client.client import Client, connect_if_running
from dibs.errors import BadInput, DibsError, NoSuchJob

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


_AT_ONCE = 100  # references in one request: the daemon reads addresses of some thousand letters only
_LONGEST = 300  # letters of a reference
_TAB_SECONDS = 0.3  # that a shell waits for words to complete
_MOST_JOBS = 200  # to choose from
_MOST_SWEEPS = 100
# A name with other letters could break the shell's line, or be executed by it.
_PLAIN = r"[\w.+=:/%-][\w.+=:/@%-]{0,99}"

T = TypeVar("T")


class Reference(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """A job by its number, its name or its place. The shell completes those in the given states."""

    name = "ref"
    ways = "a job is named by its number, its name, @ for the last one, or a range 3-9"

    def __init__(self, *states: str) -> None:
        self._states = states  # none: all

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip()
        if not text or len(text) > _LONGEST or "\0" in text:
            self.fail(self.ways, param, ctx)
        return text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        return complete_jobs(incomplete, self._states)


class SweepReference(Reference):
    """A sweep by its number or its name. The shell can complete it."""

    name = "sweep"
    ways = "a sweep is named by its number, its name, or @ for the last one"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        return complete_sweeps(incomplete)


REF = Reference()
# The last sweep where none is named. Commands that end trials require the name.
SWEEP = click.argument("reference", type=SweepReference(), default="@", metavar="[SWEEP]")
NAMED_SWEEP = click.argument("reference", type=SweepReference(), metavar="SWEEP")


def find_jobs(client: Client, references: Sequence[str], *, patience: float | None = None) -> list[int]:
    """The numbers of the jobs that are meant, each once, in the order in which they were named.

    `patience`: seconds for each answer.
    """
    found: list[int] = []
    unknown: list[str] = []
    for reference in references:
        if is_number(reference):
            if not int(reference):
                raise NoSuchJob(0)
            found += _asked(client, unknown, patience)
            unknown = []
            found.append(int(reference))
        else:
            unknown.append(reference)
    return list(dict.fromkeys(found + _asked(client, unknown, patience)))


def find_job(client: Client, reference: str) -> int:
    """The number of the one job that is meant."""
    jobs = find_jobs(client, [reference])
    if len(jobs) != 1:
        raise BadInput(f"{reference!r} names {len(jobs)} jobs; this command takes one", remedy="name one of them")
    return jobs[0]


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15


def in_chunks(ids: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """At most `size` of them at a time: the daemon limits the length of a request."""
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def complete_jobs(incomplete: str, states: Sequence[str] = ()) -> "list[CompletionItem]":
    """Numbers and names of jobs that begin like this. Nothing where no daemon runs or it takes too long."""

    def read(client: Client) -> Iterator[tuple[Mapping[str, Any], str]]:
        chosen = {"state": ",".join(states)} if states else {}
        for job in client.page(order="newest", limit=_MOST_JOBS, **chosen)["jobs"]:
            yield job, job["command"]

    return _items(read, incomplete)


def complete_job_list(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The last of several jobs with commas between."""
    from click.shell_completion import CompletionItem

    before, comma, last = incomplete.rpartition(",")
    return [CompletionItem(f"{before}{comma}{item.value}", help=item.help) for item in complete_jobs(last)]


def complete_projects(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Names of projects that begin like this."""
    from click.shell_completion import CompletionItem

    try:
        client = connect_if_running(os.environ, patience=_TAB_SECONDS)
        names = [one["name"] for one in client.projects()] if client else []
    except (DibsError, OSError, KeyError, ValueError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and re.fullmatch(_PLAIN, name)]


OF_PROJECT = click.option(
    "-P",
    "--project",
    metavar="NAME",
    shell_complete=complete_projects,
    help="All jobs of this project that it fits.",
)


def complete_sweeps(incomplete: str) -> "list[CompletionItem]":
    """Numbers and names of sweeps that begin like this."""

    def read(client: Client) -> Iterator[tuple[Mapping[str, Any], str]]:
        from dibs.client.sweeps import sweep_page

        for sweep in sweep_page(client, limit=_MOST_SWEEPS)["sweeps"]:
            yield sweep, sweep["spec"].get("command") or " ".join(sweep["spec"]["words"])

    return _items(read, incomplete)


def _items(
    read: Callable[[Client], Iterable[tuple[Mapping[str, Any], str]]], incomplete: str
) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    found: dict[str, str] = {}
    try:
        client = connect_if_running(os.environ, patience=_TAB_SECONDS)
        for one, command in read(client) if client else ():
            about = _about(one["state"], command)
            found.setdefault(str(one["id"]), about)
            if one["name"] and re.fullmatch(_PLAIN, one["name"]):
                found.setdefault(one["name"], about)
    except (DibsError, OSError, KeyError, ValueError):
        return []
    return [CompletionItem(word, help=about) for word, about in found.items() if word.startswith(incomplete)]


def _about(state: str, command: str) -> str:
    """What zsh and fish show beside a word: one line, without the characters that zsh reads as separators."""
    return one_line(f"{state} - {command}", 60).replace(":", " ").replace("\t", " ")


def _asked(client: Client, references: Sequence[str], patience: float | None) -> list[int]:
    return [
        number
        for start in range(0, len(references), _AT_ONCE)
        for number in client.find(*references[start : start + _AT_ONCE], patience=patience)
    ]
