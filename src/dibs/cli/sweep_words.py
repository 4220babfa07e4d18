"""Sweeps and trials of the daemon's JSON in words: how far one is, what was found, what failed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dibs.cli.output import one_line

Sweep = Mapping[str, Any]
Trial = Mapping[str, Any]

COLOURS = {"running": "green", "held": "yellow", "stopped": "yellow", "finished": "dim"}
TRIAL_COLOURS = {"open": "green", "pruned": "dim", "failed": "red", "complete": "", "reused": ""}
_BAR = 24  # columns of the longest bar
_ENDS = ("complete", "reused", "pruned", "failed")  # of a trial, in the order in which they are told


def called(sweep: Sweep) -> str:
    """`3` or `3 (lr)`."""
    return f"{sweep['id']} ({one_line(sweep['name'], 40)})" if sweep.get("name") else str(sweep["id"])


def number_of(value: float | None) -> str:
    """A result as people read it: six digits are more than a training repeats."""
    return "-" if value is None else f"{value:.6g}"


def ended(sweep: Sweep) -> int:
    """How many trials are over."""
    return sum(sweep["counts"].get(state, 0) for state in _ENDS)


def found(sweep: Sweep) -> int:
    """How many trials have a result that counts."""
    return sum(sweep["counts"].get(state, 0) for state in ("complete", "reused"))


def wanted(sweep: Sweep) -> int | None:
    """How many trials there will be, or were; None where nobody knows. Conditions may leave fewer."""
    size: int | None = sweep["size"]
    return ended(sweep) if sweep["state"] == "finished" else size


def tally(sweep: Sweep) -> str:
    """`36 complete, 2 pruned, 2 failed`, with what is still open last."""
    counts = sweep["counts"]
    parts = [f"{counts[state]} {state}" for state in _ENDS if counts.get(state)]
    if counts.get("open"):
        parts.append(f"{counts['open']} under way")
    return ", ".join(parts) or ("no trial yet" if sweep["state"] in ("running", "held") else "no trial")


def results_of(spec: Mapping[str, Any], trial: Trial) -> str:
    """`val_loss 0.0312`, or of several metrics `loss 0.3, seconds 12`."""
    values = trial.get("values") or ()
    pairs = zip((metric["name"] for metric in spec.get("metrics", ())), values, strict=False)
    return ", ".join(f"{one_line(name, 40)} {number_of(value)}" for name, value in pairs)


def best_so_far(sweep: Sweep) -> str:
    """`best val_loss 0.0312 (trial 7)`; of several metrics how many trials nothing else beats."""
    best = sweep.get("best") or []
    if not best:
        return ""
    if len(best) > 1:
        return f"{len(best)} trials that no other beats"
    return f"best {results_of(sweep['spec'], best[0])} (trial {best[0]['number']})"


def progress(sweep: Sweep, seconds_left: float | None = None) -> str:
    """`12/40 done · 3 under way · 1 failed · best val_loss 0.03 (trial 7) · about 2m left`."""
    from dibs.model.units import show_duration

    counts, total = sweep["counts"], wanted(sweep)
    parts = [f"{ended(sweep)}{f'/{total}' if total is not None else ''} done"]
    parts += [
        f"{counts[state]} {word}"
        for state, word in (("open", "under way"), ("pruned", "pruned"), ("failed", "failed"))
        if counts.get(state)
    ]
    parts += [part for part in (best_so_far(sweep),) if part]
    if seconds_left is not None:
        parts.append(f"about {show_duration(max(1, round(seconds_left)))} left")
    return " · ".join(parts)


def searched(spec: Mapping[str, Any]) -> str:
    """How the space is searched: `adaptive (tpe, seed 7) for the lowest val_loss, pruned by halving`."""
    method = spec.get("method", "grid")
    if method == "grid":
        text = f"grid (shuffled, seed {spec.get('seed', 0)})" if spec.get("shuffle") else "grid"
    elif method == "random":
        text = f"random (seed {spec.get('seed', 0)})"
    else:
        text = f"adaptive ({spec.get('sampler', 'tpe')}, seed {spec.get('seed', 0)})"
    goals = [
        f"the {'highest' if metric.get('goal') == 'max' else 'lowest'} {one_line(metric['name'], 40)}"
        for metric in spec.get("metrics", ())
    ]
    if goals:
        text += f" for {' and '.join(goals)}"
    return f"{text}, pruned by {spec['pruner']}" if spec.get("pruner") else text


def has_chance(spec: Mapping[str, Any]) -> bool:
    """Whether another seed would try other points, or in another order."""
    return spec.get("method", "grid") != "grid" or bool(spec.get("shuffle"))


def bars(importance: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line a parameter: how much of the difference between the results it explains."""
    shown = sorted(importance, key=lambda one: -one["value"])
    width = max((len(one["name"]) for one in shown), default=0)
    for one in shown:
        bar = "█" * max(round(one["value"] * _BAR), 0) or "▏"
        yield f"{one_line(one['name'], 40).ljust(min(width, 40))}  {one['value']:4.0%}  {bar}"


def trial_table(spec: Mapping[str, Any], trials: Sequence[Trial]) -> tuple[list[str], list[tuple[str, ...]]]:
    """The headings and rows of some trials: results first, then the values that led to them."""
    metrics = [one_line(metric["name"], 24) for metric in spec.get("metrics", ())]
    names = [parameter["name"] for parameter in spec["parameters"]]
    headings = ["trial", *metrics, *(one_line(name, 24) for name in names), "time", "job", "state"]
    return headings, [_row(trial, len(metrics), names) for trial in trials]


def _row(trial: Trial, metrics: int, names: Sequence[str]) -> tuple[str, ...]:
    from dibs.model.units import show_duration

    values = [*(trial.get("values") or ()), *[None] * metrics][:metrics]
    seconds, job = trial.get("seconds"), trial.get("job") or trial.get("reused_from")
    why = trial.get("why")
    return (
        str(trial["number"]),
        *map(number_of, values),
        *(_value(trial["point"].get(name)) for name in names),
        "-" if seconds is None else show_duration(seconds),
        str(job or "-"),
        f"{trial['state']}{f': {one_line(why, 300)}' if why else ''}",
    )


def _value(text: str | None) -> str:
    return "none" if text is None else one_line(text, 40) or "''"
