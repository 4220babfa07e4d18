"""`dibs pause` and `unpause`: the whole queue, one project, or one GPU."""

import os

import click

from dibs.cli.options import GPU_IDS
from dibs.errors import BadInput

_PROJECT = click.option("-P", "--project", metavar="NAME", help="Only this project.")
_GPU = click.option(
    "--gpu", "gpus", type=GPU_IDS, metavar="IDS", help="Only these GPUs, as `dibs gpus drain` does."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print an object: whether that changed anything.")


@click.command(
    epilog="""\b
Examples:
  dibs pause                what runs goes on; nothing more is started
  dibs pause --project a
  dibs pause --gpu 1        GPU 1 gets no more jobs
"""
)
@_PROJECT
@_GPU
@_JSON
def pause(project: str | None, gpus: tuple[str, ...] | None, as_json: bool) -> int:
    """Start nothing more. What runs goes on, and jobs can still be added."""
    return _set(True, project, gpus, as_json)


@click.command(
    epilog="""\b
Examples:
  dibs unpause
  dibs unpause --project a
  dibs unpause --gpu 1
"""
)
@_PROJECT
@_GPU
@_JSON
def unpause(project: str | None, gpus: tuple[str, ...] | None, as_json: bool) -> int:
    """Undo a pause: of the queue, of a project or of a GPU."""
    return _set(False, project, gpus, as_json)


def _set(paused: bool, project: str | None, gpus: tuple[str, ...] | None, as_json: bool) -> int:
    from dibs.cli.output import one_line, say, show_json
    from dibs.client.client import connect

    if project is not None and gpus is not None:
        raise BadInput("--project and --gpu were both given", remedy="pause one, then the other")
    if project is not None and not project:
        raise BadInput("--project names no project", remedy="leave it out to pause everything")
    client = connect(os.environ)
    if gpus is not None:
        changed = bool(client.act_on_gpus("drain" if paused else "undrain", gpus))
        what = f"GPU {', '.join(gpus)}"
    else:
        changed = client.pause(project or "") if paused else client.unpause(project or "")
        what = f"project {one_line(project, 60)}" if project else "the queue"
    if as_json:
        show_json({"changed": changed})
        return 0
    state = "is paused: what runs goes on" if paused else "goes on"
    say(f"{what} {state}" if changed else f"{what} {'was paused already' if paused else 'was not paused'}")
    return 0
