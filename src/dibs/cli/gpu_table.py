"""What `dibs gpus` prints: a table for people, the sentences below it, and JSON for scripts."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dibs.engine.watch.survey import GpuUse, Standing
    from dibs.leases.records import Holder


def gpu_table(uses: "Sequence[GpuUse]", marks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    from dibs.cli.output import one_line, table, table_width
    from dibs.model.units import show_size

    rows = []
    for use in uses:
        card = use.seen
        held = [in_words(holder, len(use.holders) > 1 or holder.share < 1) for holder in use.holders]
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
                "; ".join(in_words(wish, wish.share < 1) for wish in use.waiting) or "-",
            )
        )
    headings = ("GPU", "name", "memory", "load", "state", "held by", "waiting")
    return table(headings, rows, width=table_width(), shrink=5, drop=(1, 3, 6))


def troubles(uses: "Sequence[GpuUse]", marks: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each GPU that nothing is started on until somebody does something."""
    from dibs.cli.output import one_line
    from dibs.engine.watch.survey import TROUBLES

    for use in uses:
        stands = _standing(use, marks.get(use.key))
        if stands.state in TROUBLES:
            why = f": {one_line(stands.why, 200)}" if stands.why else ""
            yield f"GPU {label(use)} is {stands.state}{why}; {stands.remedy}"


def _standing(use: "GpuUse", mark: Mapping[str, Any] | None) -> "Standing":
    from dibs.cli.output import one_line
    from dibs.engine.watch.survey import standing

    if not mark:
        return standing(use)
    return standing(use, mark["state"], mark.get("why") or "", one_line(mark.get("remedy") or "", 300))


def in_words(holder: "Holder", shows_share: bool) -> str:
    from dibs.engine.watch.survey import pid_of

    share = f"{holder.share} " if shows_share else ""
    job = f"job {holder.job}" if holder.job else "unknown job"
    return f"{share}{holder.user}: {job}, pid {pid_of(holder) or '?'}, since {_clock(holder.since)}"


def _clock(since: float) -> str:
    """The time of today, or the date where it was another day."""
    if not since:
        return "?"
    then, now = time.localtime(since), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)


def gpu_as_json(use: "GpuUse", mark: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The keys that scripts rely on: docs/reference.md has them. What is not known is null."""
    card = use.seen
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
        "waiting": [_holder_as_json(wish) for wish in use.waiting],
        "foreign": [
            {"user": process.user, "pid": process.pid, "memory_bytes": process.memory, "name": process.name}
            for process in use.foreign
        ],
        "mark": mark["state"] if mark else None,
        "why": stands.why or None,
        "remedy": stands.remedy or None,
    }


def _holder_as_json(holder: "Holder") -> dict[str, Any]:
    from datetime import UTC, datetime

    from dibs.engine.watch.survey import pid_of

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


def label(use: "GpuUse") -> str:
    """How a sentence calls it."""
    return use.number or use.key
