"""`dibs gpus`: every GPU and who holds it; `release` ends the job of yours on one, `drain` spares it new ones.

It works without a daemon, and starts none to look. Where one runs, its drained and quarantined GPUs are marked.
`--on slurm` shows the nodes of the cluster instead, and asks Slurm itself.
"""

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.gpu_table import gpu_as_json, gpu_table, in_words, label, troubles
from dibs.model.places import LOCAL, PLACES

if TYPE_CHECKING:
    from dibs.engine.watch.survey import GpuUse
    from dibs.errors import DibsError
    from dibs.gpus.processes import BusyRules
    from dibs.leases.leases import Leases
    from dibs.leases.records import Holder

_LOOK_EVERY = 0.05  # seconds between two looks at a job that was asked to end
_SAY_AFTER = 1.0  # seconds until a person wants to know what they wait for
_LONGEST_TEXT = 255  # characters
_PATIENCE = 0.3  # seconds for the daemon's marks; without them the table is still true

_EPILOG = """\b
Examples:
  dibs gpus                      one line per GPU
  dibs gpus --on slurm           one line per node of the cluster
  dibs gpus --json | jq -r '.[] | select(.state == "free") | .index'
  dibs gpus release 0            end the job of yours that holds GPU 0, after asking
  dibs gpus drain 1              the queue starts nothing more on GPU 1; what runs goes on
  dibs gpus undrain 1
"""


_GPUS = click.argument("ids", nargs=-1, required=True, metavar="GPU...")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print an object: the GPUs that changed.")


@click.group(invoke_without_command=True, epilog=_EPILOG)
@click.option(
    "--on",
    type=click.Choice(PLACES),
    default=LOCAL,
    help="Whose GPUs: those of this machine (local), or the nodes of a cluster (slurm).",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list, one object per GPU or node.")
@click.pass_context
def gpus(ctx: click.Context, on: str, as_json: bool) -> int:
    """Show every GPU: memory, load, who holds it, who waits, and processes without a lease."""
    if ctx.invoked_subcommand is not None:
        if on != LOCAL:
            raise click.UsageError(f"`dibs gpus {ctx.invoked_subcommand}` is for the GPUs of this machine", ctx)
        return 0
    if on != LOCAL:
        return _nodes(on, as_json)
    from dibs.build import build_leases
    from dibs.cli.output import say

    uses, failure = _look(build_leases(os.environ), os.environ, with_energy=as_json)
    uses, marks = _with_the_queues(uses)
    if as_json:
        import json

        click.echo(json.dumps([gpu_as_json(use, marks.get(use.key)) for use in uses], indent=2))
    elif uses:
        click.echo("\n".join(gpu_table(uses, marks)))
        for sentence in troubles(uses, marks):
            say(f"dibs: {sentence}")
    if failure is not None:
        say(f"dibs: {failure.message}{f'; {failure.remedy}' if failure.remedy else ''}")
        return failure.exit_status
    if not uses:
        say("dibs: no GPU to show: there is no driver here, and no running job has declared any")
    return 0


@gpus.command()
@_GPUS
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def release(ids: Sequence[str], yes: bool) -> int:
    """End the jobs of yours that hold these GPUs, after asking.

    A job is asked to end, and killed after its grace. GPUs are named by number or UUID.
    """
    from dibs.build import build_leases
    from dibs.engine.watch.survey import GpuUse, pid_of

    leases = build_leases(os.environ)
    uses, failure = _look(leases, os.environ)
    if failure is not None and not any(use.holders for use in uses):
        raise failure
    named = [use for gpu_id in dict.fromkeys(ids) for use in _named(gpu_id, uses)]
    ours = _jobs_to_end(named)
    if ours and not yes and not _agrees([holder for _, holder in ours]):
        click.echo("nothing was ended", err=True)
        return 1
    ended: dict[str, list[str]] = {}  # job -> its GPUs
    for use, holder in ours:
        job = f"job {holder.job or '?'} of yours (pid {pid_of(holder) or '?'})"
        _end(leases, holder)
        ended.setdefault(job, []).append(label(use))
    for job, labels in ended.items():
        click.echo(f"ended {job} on GPU {', '.join(labels)}", err=True)
    now = {use.key: use for use in _look(leases, os.environ)[0]} if named else {}
    for use in named:
        click.echo(_now(now.get(use.key) or GpuUse(key=use.key, index=use.index, part=use.part)), err=True)
    return 0


@gpus.command()
@_GPUS
@click.option("--why", default="", metavar="TEXT", help="The reason, for those who look at it.")
@_JSON
def drain(ids: Sequence[str], why: str, as_json: bool) -> int:
    """Start nothing more on these GPUs. What runs there goes on to its end."""
    _check_short(why, "--why")
    return _act("drain", ids, "is drained: what runs there goes on", as_json, why)


@gpus.command()
@_GPUS
@_JSON
def undrain(ids: Sequence[str], as_json: bool) -> int:
    """Use drained or quarantined GPUs again."""
    return _act("undrain", ids, "is used again", as_json)


@gpus.command()
@_GPUS
@_JSON
def add(ids: Sequence[str], as_json: bool) -> int:
    """Give these GPUs to the queue while it runs."""
    return _act("add", ids, "belongs to the queue", as_json)


@gpus.command()
@_GPUS
@_JSON
def remove(ids: Sequence[str], as_json: bool) -> int:
    """Take these GPUs from the queue. What runs there goes on to its end."""
    return _act("remove", ids, "no longer belongs to the queue: what runs there goes on", as_json)


def _check_short(text: str, option: str) -> None:
    from dibs.errors import BadInput
    from dibs.inputs.checks import check_text

    check_text(text, option)
    if len(text) > _LONGEST_TEXT:
        raise BadInput(f"{option} has {len(text)} characters", remedy=f"it has at most {_LONGEST_TEXT}")


def _act(action: str, ids: Sequence[str], done: str, as_json: bool, why: str = "") -> int:
    from dibs.cli.output import one_line, say, show_json
    from dibs.client.client import connect
    from dibs.errors import BadInput
    from dibs.model.pool import is_gpu_id

    named = [one for text in ids for one in text.split(",")]
    for one in named:
        if not is_gpu_id(one):
            raise BadInput(f"cannot read {one!r} as a GPU", remedy="name GPUs like 0 or 0,1, parts like 0:1")
    changed = connect(os.environ).act_on_gpus(action, named, why)
    if as_json:
        show_json({"changed": changed})
        return 0
    for one in changed:
        say(f"GPU {one_line(str(one), 60)} {done}")
    if not changed:
        say(f"dibs: nothing to {action}: it was so already")
    return 0


def _nodes(on: str, as_json: bool) -> int:
    """The machines of another system. It is asked by us: there may be no daemon."""
    from dibs.backends.nodes import node_object
    from dibs.build import build_backend
    from dibs.cli.node_table import node_table
    from dibs.cli.output import say, show, show_json
    from dibs.settings import load_settings

    nodes = build_backend(on, os.environ, load_settings(os.environ)).nodes()
    if as_json:
        show_json([node_object(node) for node in nodes])
    elif nodes:
        show("\n".join(node_table(nodes)))
    else:
        say(f"dibs: no node to show: {on.capitalize()} has none that you may see")
    return 0


def _with_the_queues(uses: "list[GpuUse]") -> "tuple[list[GpuUse], dict[str, dict[str, Any]]]":
    """With GPUs that only the daemon knows of, and its marks; as it was where none answers quickly."""
    from dibs.client.client import connect_if_running
    from dibs.engine.watch.survey import unseen
    from dibs.errors import DibsError

    try:
        client = connect_if_running(os.environ, patience=_PATIENCE)
        if client is None:
            return uses, {}
        seen = {one["key"]: one for one in client.gpus()["gpus"]}
        known = {use.key for use in uses}
        is_asked = any(use.seen for use in uses)
        others = [unseen(key, one["number"], is_asked=is_asked) for key, one in seen.items() if key not in known]
    except (DibsError, OSError, KeyError, ValueError, TypeError):
        return uses, {}
    uses = sorted([*uses, *others], key=lambda use: use.place)
    return uses, {key: one for key, one in seen.items() if one.get("state") in ("drained", "quarantined")}


def _look(
    leases: "Leases", environ: Mapping[str, str], with_energy: bool = False
) -> "tuple[list[GpuUse], DibsError | None]":
    """What can be seen now, and why the driver could not be asked. A sick driver hides no claim."""
    from dibs.engine.watch.survey import survey
    from dibs.gpus.detect import find_probe
    from dibs.gpus.probe import ProbeFailed
    from dibs.leases.who import user_name

    reading, failure = None, None
    if probe := find_probe(environ):
        from dibs.gpus.probe import answer_within

        try:
            reading = answer_within(partial(probe.read, energy=with_energy))
        except ProbeFailed as error:
            failure = error
    holders, waiting = leases.holders(), leases.waiting()
    return survey(reading, holders, waiting, user=user_name(os.geteuid()), rules=_rules(environ)), failure


def _rules(environ: Mapping[str, str]) -> "BusyRules":
    from dibs.gpus.processes import BusyRules
    from dibs.settings import load_settings

    settings = load_settings(environ)
    return BusyRules(settings.respect_graphics, settings.ignore_memory)


# -- release -----------------------------------------------------------------------------------------------


def _named(gpu_id: str, uses: "Sequence[GpuUse]") -> "list[GpuUse]":
    """The GPU that is meant, of a divided one its parts. Where no driver is, a number without a claim is free."""
    from dibs.engine.watch.survey import GpuUse
    from dibs.errors import BadInput
    from dibs.model.gpus import declared_key

    is_number = gpu_id.isascii() and gpu_id.isdigit() and len(gpu_id) <= 4
    if is_number:
        found = [use for use in uses if use.index == int(gpu_id)]
    elif gpu_id[:1].isdigit():
        found = [use for use in uses if use.number == gpu_id]
    else:
        found = [use for use in uses if gpu_id and use.key.startswith(gpu_id)]
    if len(found) == 1 or (found and is_number):
        return found
    if found:
        keys = ", ".join(use.key for use in found)
        raise BadInput(f"cannot tell which GPU {gpu_id!r} means: {keys}", remedy="write more of the UUID")
    if is_number and not any(use.seen for use in uses):
        return [GpuUse(key=declared_key(int(gpu_id)), index=int(gpu_id))]
    raise BadInput(f"cannot find GPU {gpu_id}", remedy="`dibs gpus` shows them")


def _jobs_to_end(uses: "Sequence[GpuUse]") -> "list[tuple[GpuUse, Holder]]":
    """Our holders of these GPUs. One that only somebody else holds is not ours to free."""
    from dibs.errors import NotAllowed

    ours: list[tuple[GpuUse, Holder]] = []
    for use in uses:
        mine = [holder for holder in use.holders if holder.uid == os.geteuid()]
        if use.holders and not mine:
            who = "; ".join(in_words(holder, False) for holder in use.holders)
            raise NotAllowed(
                f"cannot release GPU {label(use)}: it is held by {who}", remedy="only its owner can end that job"
            )
        ours += [(use, holder) for holder in mine]
    return ours


def _agrees(ours: "Sequence[Holder]") -> bool:
    from dibs.errors import BadInput

    if not os.isatty(0):
        raise BadInput("cannot ask whether to end a job: stdin is no terminal", remedy="--yes ends it unasked")
    jobs = {holder.folder or str(holder.pid): holder for holder in ours}
    for holder in jobs.values():
        click.echo(f"  {in_words(holder, False)}", err=True)
    question = "end this job?" if len(jobs) == 1 else f"end these {len(jobs)} jobs?"
    return click.confirm(question, default=False, err=True)


def _end(leases: "Leases", holder: "Holder") -> None:
    """Ask the job to end and come back when this claim of it is gone."""
    from dibs.engine.watch.survey import pid_of
    from dibs.errors import DibsError
    from dibs.supervise import folder

    pid = pid_of(holder)
    told = bool(holder.folder) and folder.tell(holder.folder, "stop")
    say_at = time.monotonic() + _SAY_AFTER
    while _still_holds(leases, holder):
        if not told:
            raise DibsError(
                f"cannot reach whoever looks after job {holder.job or '?'}, which still holds the GPU",
                remedy=f"`kill {pid}` ends it; the GPU is free when its last process is gone",
            )
        if time.monotonic() > say_at:
            click.echo(f"waiting for job {holder.job} to end; it is killed after its grace", err=True)
            say_at = float("inf")
        time.sleep(_LOOK_EVERY)


def _still_holds(leases: "Leases", holder: "Holder") -> bool:
    """The claim of this attempt, not of the next job that was given the GPU at once."""
    return any(
        (one.gpu, one.folder, one.since) == (holder.gpu, holder.folder, holder.since) for one in leases.holders()
    )


def _now(use: "GpuUse") -> str:
    from dibs.engine.watch.survey import standing

    if use.holders:
        return f"GPU {label(use)} is held by {'; '.join(in_words(holder, False) for holder in use.holders)}"
    stands = standing(use)
    return f"GPU {label(use)} is {stands.state}{f': {stands.why}' if stands.why else ''}"
