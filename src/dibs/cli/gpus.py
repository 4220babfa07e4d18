"""`dibs gpus`: every GPU and its holders; `release` ends your job on one, `drain` keeps new jobs away from it.

It works without a daemon and starts none to look. Where one runs, drained and quarantined GPUs are marked.
`--on slurm` shows the nodes of the cluster instead, and asks Slurm itself.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from dibs.cli.output import confirm, one_line, say, show, show_json, table, table_width
from dibs.client.client import connect, connect_if_running
from dibs.engine.watch.survey import GpuStanding, GpuUse, pid_of, standing, unseen
from dibs.errors import BadInput, DibsError, NotAllowed
from dibs.foreground.gpus import end_job, find_gpu, survey_gpus
from dibs.gpus.cuda_checkpoint import suspending_in_words, why_not_suspend
from dibs.inputs.checks import check_text
from dibs.leases.files import WAY_OUT, Holder
from dibs.model.places import LOCAL, PLACES
from dibs.model.units import is_gpu_id, show_size

_LONGEST_TEXT = 255  # characters
_MOST_SHOWN = 8  # holders of a GPU, and jobs that wait for it
_PATIENCE = 0.3  # seconds for the daemon's marks; the table is right without them

_EPILOG = """\b
Examples:
  dibs gpus                      one line per GPU
  dibs gpus --on slurm           one line per node of the cluster
  dibs gpus --json | jq -r '.[] | select(.state == "free") | .index'
  dibs gpus release 0            end your job that holds GPU 0, after asking
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
    help="The GPUs of this machine (local), or the nodes of a cluster (slurm).",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list, one object per GPU or node.")
@click.pass_context
def gpus(ctx: click.Context, on: str, as_json: bool) -> int:
    """Show every GPU: memory, load, holders, waiting jobs, and processes without a lease."""
    if ctx.invoked_subcommand is not None:
        if on != LOCAL:
            raise click.UsageError(f"`dibs gpus {ctx.invoked_subcommand}` is for the GPUs of this machine", ctx)
        return 0
    if on != LOCAL:
        from dibs.cli.nodes import show_nodes  # everything about Slurm

        return show_nodes(on, as_json)
    found = survey_gpus(os.environ, energy=as_json)
    failure = found.failure
    uses, marks = _with_the_queues(found.uses)
    is_seen = any(use.seen for use in uses)
    if as_json:
        why_not = why_not_suspend(os.environ) if is_seen else ""
        show_json([gpu_as_json(use, marks.get(use.key), why_not) for use in uses])
    elif uses:
        show("\n".join(_gpu_table(uses, marks)))
        for sentence in _troubles(uses, marks):
            say(f"dibs: {sentence}")
        if is_seen:
            say(f"dibs: {suspending_in_words(os.environ)}")
    if found.too_many:
        say(f"dibs: {found.too_many}; {WAY_OUT}")
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
    """End your jobs that hold these GPUs, after asking.

    A job is asked to end, and killed after its grace period. GPUs are named by number or UUID.
    """
    found = survey_gpus(os.environ)
    if found.failure is not None and not any(use.holders for use in found.uses):
        raise found.failure
    named = [use for gpu_id in dict.fromkeys(ids) for use in find_gpu(gpu_id, found.uses)]
    ours = _own_jobs(named)
    if ours and not yes and not _agrees([holder for _, holder in ours]):
        say("nothing was ended")
        return 1
    ended: dict[str, list[str]] = {}  # job -> its GPUs
    for use, holder in ours:
        job = f"your job {holder.job or '?'} (pid {pid_of(holder) or '?'})"
        end_job(os.environ, holder, say)
        ended.setdefault(job, []).append(_label(use))
    for job, labels in ended.items():
        say(f"ended {job} on GPU {', '.join(labels)}")
    now = {use.key: use for use in survey_gpus(os.environ).uses} if named else {}
    for use in named:
        say(_now(now.get(use.key) or GpuUse(key=use.key, index=use.index, part=use.part)))
    return 0


def _own_jobs(uses: Sequence[GpuUse]) -> list[tuple[GpuUse, Holder]]:
    """The caller's holders of these GPUs. A GPU that only other users hold is refused."""
    ours: list[tuple[GpuUse, Holder]] = []
    for use in uses:
        mine = [holder for holder in use.holders if holder.uid == os.geteuid()]
        if use.holders and not mine:
            holders = "; ".join(_holder_text(holder, False) for holder in use.holders)
            raise NotAllowed(
                f"cannot release GPU {_label(use)}: it is held by {holders}",
                remedy="only its owner can end that job",
            )
        ours += [(use, holder) for holder in mine]
    return ours


def _agrees(ours: Sequence[Holder]) -> bool:
    jobs = {holder.folder or str(holder.pid): holder for holder in ours}
    return confirm(
        "end this job?" if len(jobs) == 1 else f"end these {len(jobs)} jobs?",
        what="end a job",
        before=[f"  {_holder_text(holder, False)}" for holder in jobs.values()],
    )


def _now(use: GpuUse) -> str:
    if use.holders:
        return f"GPU {_label(use)} is held by {'; '.join(_holder_text(holder, False) for holder in use.holders)}"
    stands = standing(use)
    return f"GPU {_label(use)} is {stands.state}{f': {stands.why}' if stands.why else ''}"


# -- what the queue does with GPUs -------------------------------------------------------------------------


@gpus.command()
@_GPUS
@click.option("--why", default="", metavar="TEXT", help="The reason, shown with the GPU.")
@_JSON
def drain(ids: Sequence[str], why: str, as_json: bool) -> int:
    """Start nothing more on these GPUs. What runs there goes on to its end."""
    check_text(why, "--why")
    if len(why) > _LONGEST_TEXT:
        raise BadInput(f"--why has {len(why)} characters", remedy=f"it has at most {_LONGEST_TEXT}")
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


def _act(action: str, ids: Sequence[str], done: str, as_json: bool, why: str = "") -> int:
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
        say(f"dibs: nothing to {action}: nothing changed")
    return 0


# -- tables and JSON ---------------------------------------------------------------------------------------


def _with_the_queues(uses: list[GpuUse]) -> tuple[list[GpuUse], dict[str, dict[str, Any]]]:
    """With the GPUs that only the daemon knows, and its marks; unchanged where no daemon answers quickly."""
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


def _gpu_table(uses: "Sequence[GpuUse]", marks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    rows = []
    for use in uses:
        card = use.seen
        held = _first([_holder_text(holder, len(use.holders) > 1 or holder.share < 1) for holder in use.holders])
        held += [f"suspended: {_holder_text(holder, False)}" for holder in use.suspended]
        mark = marks.get(use.key)
        if mark and mark.get("why"):
            held.append(one_line(mark["why"], 200))
        held += [
            f"no lease: {process.user or '?'}, pid {process.pid}, {show_size(process.memory)}"
            for process in use.foreign
        ]
        rows.append(
            (
                use.number or "?",
                one_line((card.gpu.name if card else "") or "?", 40),
                f"{show_size(card.memory_used)}/{show_size(card.gpu.memory_total)}" if card else "?",
                "?" if card is None or card.load is None else f"{card.load}%",
                f"{use.state}, {mark['state']}" if mark else use.state,
                "; ".join(held) or "-",
                "; ".join(_first([_holder_text(wish, wish.share < 1) for wish in use.waiting])) or "-",
            )
        )
    headings = ("GPU", "name", "memory", "load", "state", "held by", "waiting")
    return table(headings, rows, width=table_width(), shrink=5, drop=(1, 3, 6))


def _first(texts: list[str]) -> list[str]:
    """Of many, the first ones and how many more: one user may have 64 claims on a GPU."""
    more = len(texts) - _MOST_SHOWN
    return [*texts[:_MOST_SHOWN], f"{more} more"] if more > 0 else texts


def _troubles(uses: "Sequence[GpuUse]", marks: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each GPU that stays unused until a user acts."""
    for use in uses:
        stands = _standing(use, marks.get(use.key))
        if stands.is_trouble:
            why = f": {one_line(stands.why, 500)}" if stands.why else ""
            yield f"GPU {_label(use)} is {stands.state}{why}; {stands.remedy}"


def _standing(use: "GpuUse", mark: Mapping[str, Any] | None) -> "GpuStanding":
    if not mark:
        return standing(use)
    return standing(use, mark["state"], mark.get("why") or "", one_line(mark.get("remedy") or "", 300))


def _holder_text(holder: "Holder", shows_share: bool) -> str:
    share = f"{holder.share} " if shows_share else ""
    if holder.file_of:
        return f"{share}{holder.in_words}"
    job = f"job {holder.job}" if holder.job else "unknown job"
    return f"{share}{holder.user}: {job}, pid {pid_of(holder) or '?'}, since {_clock(holder.since)}"


def _clock(since: float) -> str:
    """The time of today, or the date where it was another day."""
    if not since:
        return "?"
    then, now = time.localtime(since), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)


def gpu_as_json(use: "GpuUse", mark: Mapping[str, Any] | None = None, why_not_suspend: str = "") -> dict[str, Any]:
    """The keys that scripts rely on: docs/reference.md has them. What is not known is null."""
    card = use.seen
    if card is not None and card.gpu.is_amd:
        why_not_suspend = "it is no NVIDIA GPU"
    stands = _standing(use, mark)
    return {
        "index": use.index,
        "number": use.number,
        "key": use.key,
        "name": (card.gpu.name or None) if card else None,
        "memory_used_bytes": card.memory_used if card else None,
        "memory_total_bytes": card.gpu.memory_total if card else None,
        "load_percent": card.load if card else None,
        "temperature_celsius": card.temperature if card else None,
        "power_watts": card.power if card else None,
        "energy_joules": card.energy if card else None,
        "ecc_uncorrected": card.ecc_uncorrected if card else None,
        "state": use.state,
        "holders": [_holder_as_json(holder) for holder in use.holders],
        "suspended": [_holder_as_json(holder) for holder in use.suspended],
        "waiting": [_holder_as_json(wish) for wish in use.waiting],
        "foreign": [
            {"user": process.user, "pid": process.pid, "memory_bytes": process.memory, "name": process.name}
            for process in use.foreign
        ],
        "mark": mark["state"] if mark else None,
        "why": stands.why or None,
        "remedy": stands.remedy or None,
        "can_suspend": None if card is None else not why_not_suspend,
        "why_not_suspend": why_not_suspend or None,
    }


def _holder_as_json(holder: "Holder") -> dict[str, Any]:
    since = datetime.fromtimestamp(holder.since, UTC).isoformat(timespec="seconds") if holder.since else None
    return {
        "user": holder.user,
        "uid": holder.uid,
        "job": holder.job,
        "pid": pid_of(holder) or None,
        "since": since,
        "share": float(holder.share),
        "vram_bytes": holder.vram or None,
    }


def _label(use: "GpuUse") -> str:
    """How a sentence calls it."""
    return use.number or use.key
