"""How sweeps are named on the command line: `3`, `@` for the last one, or a name."""

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_LONGEST = 300  # letters


class SweepReference(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """A sweep as somebody names it. The shell can complete it."""

    name = "sweep"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip()
        if not text or len(text) > _LONGEST or "\0" in text:
            self.fail("a sweep is named by its number, its name, or @ for the last one", param, ctx)
        return text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        from dibs.cli.completion import complete_sweeps

        return complete_sweeps(incomplete)


# The last one where none is named; what ends trials wants it said.
SWEEP = click.argument("reference", type=SweepReference(), default="@", metavar="[SWEEP]")
NAMED_SWEEP = click.argument("reference", type=SweepReference(), metavar="SWEEP")
