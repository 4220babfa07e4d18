"""`dibs completion`: the script with which a shell completes our words, and the job numbers for it."""

import re
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_PATIENCE = 0.3  # seconds that somebody who pressed TAB waits
_MOST = 200  # jobs to choose from
# A name with other letters could break the shell's line, or be obeyed by it.
_PLAIN = r"[\w.+=:/%-][\w.+=:/@%-]{0,99}"

_EPILOG = """\b
Examples:
  eval "$(dibs completion bash)"                      in ~/.bashrc
  eval "$(dibs completion zsh)"                       in ~/.zshrc, behind compinit
  dibs completion fish > ~/.config/fish/completions/dibs.fish
"""


@click.command(epilog=_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the script that completes commands, options and jobs in your shell."""
    from click.shell_completion import ShellComplete, get_completion_class

    from dibs.cli.main import dibs

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(dibs, {}, "dibs", "_DIBS_COMPLETE")
    # Not BashComplete's own: it starts a bash to ask for its version each time one is started.
    click.echo(ShellComplete.source(script))
    return 0


def complete_jobs(incomplete: str) -> "list[CompletionItem]":
    """Numbers and names of jobs that begin like this. Nothing where no daemon runs or it takes too long."""
    from click.shell_completion import CompletionItem

    from dibs.cli.asking import ask_running_daemon
    from dibs.errors import DibsError

    try:
        client = ask_running_daemon(_PATIENCE)
        jobs = client.page(order="newest", limit=_MOST)["jobs"] if client else []
    except (DibsError, OSError, KeyError, ValueError):
        return []
    found: dict[str, str] = {}
    for job in jobs:
        about = _about(job["state"], job["command"])
        found.setdefault(str(job["id"]), about)
        if job["name"] and re.fullmatch(_PLAIN, job["name"]):
            found.setdefault(job["name"], about)
    return [CompletionItem(word, help=about) for word, about in found.items() if word.startswith(incomplete)]


def _about(state: str, command: str) -> str:
    """What zsh and fish show beside a word, one line each and without what zsh takes for a separator."""
    from dibs.cli.output import one_line

    return one_line(f"{state} - {command}", 60).replace(":", " ").replace("\t", " ")
