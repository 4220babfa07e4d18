"""How jobs are named on the command line: `17`, `@`, `@~2`, a name, `17_4`, `17_`, `3-9`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from dibs.errors import BadInput

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from dibs.client.client import Client

_AT_ONCE = 100  # references in one question: the daemon reads addresses of some thousand letters only
_LONGEST = 300  # letters of a reference


class Reference(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """A job as somebody names it. The shell can complete it."""

    name = "ref"
    ways = "a job is named by its number, its name, @ for the last one, or a range 3-9"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip()
        if not text or len(text) > _LONGEST or "\0" in text:
            self.fail(self.ways, param, ctx)
        return text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        from dibs.cli.completion import complete_jobs

        return complete_jobs(incomplete)


REF = Reference()


def find_jobs(client: "Client", references: Sequence[str]) -> list[int]:
    """The numbers of the jobs that are meant, each once, in the order in which they were named."""
    found: list[int] = []
    unknown: list[str] = []
    for reference in references:
        if is_number(reference):
            found += _asked(client, unknown)
            unknown = []
            found.append(int(reference))
        else:
            unknown.append(reference)
    return list(dict.fromkeys(found + _asked(client, unknown)))


def find_job(client: "Client", reference: str) -> int:
    """The number of the one job that is meant."""
    jobs = find_jobs(client, [reference])
    if len(jobs) != 1:
        raise BadInput(f"{reference!r} names {len(jobs)} jobs, and this is about one", remedy="name one of them")
    return jobs[0]


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15


def as_ranges(ids: Iterable[int]) -> str:
    """`1-5,8`: many numbers in few letters."""
    parts: list[list[int]] = []
    for number in sorted(set(ids)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def in_chunks(ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """So many at once: what is asked of the daemon has a longest form."""
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def _asked(client: "Client", references: Sequence[str]) -> list[int]:
    return [
        number
        for start in range(0, len(references), _AT_ONCE)
        for number in client.find(*references[start : start + _AT_ONCE])
    ]
