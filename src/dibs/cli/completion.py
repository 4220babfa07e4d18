"""`dibs completion`: the script with which a shell completes commands, options and jobs."""

import click
from click.shell_completion import ShellComplete, get_completion_class

_EPILOG = """\b
Examples:
  eval "$(dibs completion bash)"                      in ~/.bashrc
  eval "$(dibs completion zsh)"                       in ~/.zshrc, behind compinit
  dibs completion fish > ~/.config/fish/completions/dibs.fish
"""


@click.command(epilog=_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, /, shell: str) -> int:
    """Print the script that completes commands, options and jobs in your shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "dibs", "_DIBS_COMPLETE")
    # Not BashComplete.source: it starts a bash each time, to read its version.
    click.echo(ShellComplete.source(script))
    return 0
