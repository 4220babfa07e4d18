"""How sweeps are named on the command line: `3`, `@` for the last one, or a name."""

from typing import TYPE_CHECKING

import click

from dibs.cli.references import Reference

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class SweepReference(Reference):
    """A sweep as somebody names it. The shell can complete it."""

    name = "sweep"
    ways = "a sweep is named by its number, its name, or @ for the last one"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        from dibs.cli.completion import complete_sweeps

        return complete_sweeps(incomplete)


# The last one where none is named; what ends trials wants it said.
SWEEP = click.argument("reference", type=SweepReference(), default="@", metavar="[SWEEP]")
NAMED_SWEEP = click.argument("reference", type=SweepReference(), metavar="SWEEP")
