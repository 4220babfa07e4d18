"""`dibs completion`: the script with which a shell completes our words, and the jobs and sweeps for it."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_PATIENCE = 0.3  # seconds that somebody who pressed TAB waits
_MOST = 200  # jobs to choose from
_MOST_SWEEPS = 100
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
    from dibs.cli.asking import ask_running_daemon
    from dibs.errors import DibsError

    try:
        client = ask_running_daemon(_PATIENCE)
        jobs = client.page(order="newest", limit=_MOST)["jobs"] if client else []
    except (DibsError, OSError, KeyError, ValueError):
        return []
    return _items(((job, job["command"]) for job in jobs), incomplete)


def complete_sweeps(incomplete: str) -> "list[CompletionItem]":
    """Numbers and names of sweeps that begin like this."""
    from dibs.cli.asking import ask_running_daemon
    from dibs.client.sweeps import sweep_page
    from dibs.errors import DibsError

    try:
        client = ask_running_daemon(_PATIENCE)
        sweeps = sweep_page(client, limit=_MOST_SWEEPS)["sweeps"] if client else []
        told = [(one, one["spec"].get("command") or " ".join(one["spec"]["words"])) for one in sweeps]
    except (DibsError, OSError, KeyError, ValueError):
        return []
    return _items(told, incomplete)


def _items(told: Iterable[tuple[Mapping[str, Any], str]], incomplete: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    found: dict[str, str] = {}
    for one, command in told:
        about = _about(one["state"], command)
        found.setdefault(str(one["id"]), about)
        if one["name"] and re.fullmatch(_PLAIN, one["name"]):
            found.setdefault(one["name"], about)
    return [CompletionItem(word, help=about) for word, about in found.items() if word.startswith(incomplete)]


def _about(state: str, command: str) -> str:
    """What zsh and fish show beside a word, one line each and without what zsh takes for a separator."""
    from dibs.cli.output import one_line

    return one_line(f"{state} - {command}", 60).replace(":", " ").replace("\t", " ")
