"""Compare dibs' ways to search with random search and plain Optuna, for the same number of training steps.

Usage: python bench/searches.py [--seeds 5]      writes bench/searches.json and docs/pictures/searches.svg

The trainings are formulas, so that hours of training take a minute. dibs' own code chooses and prunes
(dibs.sweeps.study, dibs.sweeps.population); only the queue is left out.
"""

import argparse
import json
import math
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import optuna

from dibs.sweeps.points import Points
from dibs.sweeps.population import Member, next_generation
from dibs.sweeps.spec import Spec, read_spec
from dibs.sweeps.study import SweepStudy

ROOT = Path(__file__).resolve().parent.parent
Track = list[tuple[float, float]]  # steps of training so far, and the best result so far


# -- a training with a curve: Branin's function, reached step by step ------------------------------------

STEPS, BUDGET = 81, 81 * 60  # of a whole trial; of a search
BRANIN_LOWEST = 0.397887


def branin(x: float, y: float) -> float:
    bent = y - 5.1 * x**2 / (4 * math.pi**2) + 5 * x / math.pi - 6
    return bent**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def branin_at(x: float, y: float, step: int) -> float:
    """The loss after so many steps. Trials with a large x learn more slowly, so that curves cross."""
    return branin(x, y) + 60 * math.exp(-step / (6 + x + 5))


def branin_spec(seed: int, **more: Any) -> Spec:
    x, y = {"name": "x", "low": -5.0, "high": 10.0}, {"name": "y", "low": 0.0, "high": 15.0}
    given = {"method": "adaptive", "samples": 2000, "metrics": [{"name": "loss"}], "seed": seed}
    return read_spec({"command": "t {x} {y}", "parameters": [x, y], **given, **more})


def searched(seed: int, **more: Any) -> Track:
    """A search by dibs, one trial at a time. Only whole trials count."""
    with tempfile.TemporaryDirectory() as folder:
        study = SweepStudy(branin_spec(seed, **more), "bench", Path(folder) / "journal")
        used, best, track = 0, math.inf, []
        while used < BUDGET:
            number, point = study.ask()
            x, y = float(point["x"] or 0), float(point["y"] or 0)
            is_pruned = False
            for step in range(1, STEPS + 1):
                used += 1
                if more.get("pruner") and (is_pruned := study.report(number, step, branin_at(x, y, step))):
                    break
            study.tell(number, "pruned" if is_pruned else "complete", None if is_pruned else [branin(x, y)])
            best = best if is_pruned else min(best, branin(x, y))
            track.append((float(used), best - BRANIN_LOWEST))
    return track


def plain(sampler: optuna.samplers.BaseSampler) -> Track:
    """Optuna without pruning."""
    study, track = optuna.create_study(sampler=sampler), []
    for trial in range(1, BUDGET // STEPS + 1):
        study.optimize(lambda t: branin(t.suggest_float("x", -5, 10), t.suggest_float("y", 0, 15)), n_trials=1)
        track.append((float(trial * STEPS), study.best_value - BRANIN_LOWEST))
    return track


# -- two goals: ZDT1, whose front is known -----------------------------------------------------------------

EVALUATIONS, DIMENSIONS = 300, 6
REFERENCE = (1.1, 6.0)
NAMES = [f"x{place}" for place in range(DIMENSIONS)]


def zdt1(point: Sequence[float]) -> tuple[float, float]:
    rest = 1 + 9 * sum(point[1:]) / (len(point) - 1)
    return point[0], rest * (1 - math.sqrt(point[0] / rest))


def dominated(found: Sequence[tuple[float, float]]) -> float:
    """The part of the plane below the reference that these results dominate (the hypervolume)."""
    area, height = 0.0, REFERENCE[1]
    for first, second in sorted(found):
        if first < REFERENCE[0] and second < height:
            area += (REFERENCE[0] - first) * (height - second)
            height = second
    return area


def zdt_by_dibs(seed: int) -> Track:
    spec = read_spec(
        {
            "command": "t " + " ".join(f"{{{name}}}" for name in NAMES),
            "parameters": [{"name": name, "low": 0.0, "high": 1.0} for name in NAMES],
            "method": "adaptive",
            "sampler": "nsga2",
            "samples": EVALUATIONS,
            "seed": seed,
            "metrics": [{"name": "one"}, {"name": "other"}],
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        study = SweepStudy(spec, "bench", Path(folder) / "journal")
        found, track = [], []
        for count in range(1, EVALUATIONS + 1):
            number, point = study.ask()
            found.append(zdt1([float(point[name] or 0) for name in NAMES]))
            study.tell(number, "complete", list(found[-1]))
            track.append((float(count), dominated(found)))
    return track


def zdt_by_optuna(sampler: optuna.samplers.BaseSampler) -> Track:
    study, found, track = optuna.create_study(directions=["minimize"] * 2, sampler=sampler), [], []
    for count in range(1, EVALUATIONS + 1):
        trial = study.ask()
        found.append(zdt1([trial.suggest_float(name, 0, 1) for name in NAMES]))
        study.tell(trial, found[-1])
        track.append((float(count), dominated(found)))
    return track


# -- a training whose best learning rate changes: a noisy quadratic ----------------------------------------

MEMBERS, GENERATIONS, STRETCH = 8, 10, 100  # steps of a stretch
CURVES = [10 ** (place / 3) for place in range(7)]  # of the quadratic, from 1 to 100
LR = {"name": "lr", "low": 1e-4, "high": 1.9e-2, "scale": "log"}


def train(weights: list[float], lr: float, steps: int, chance: random.Random) -> list[float]:
    """Stochastic gradient descent: a large rate is fast at first, and too noisy at the end."""
    for _ in range(steps):
        weights = [w - lr * curve * (w + chance.gauss(0, 1)) for w, curve in zip(weights, CURVES, strict=True)]
    return weights


def quadratic(weights: Sequence[float]) -> float:
    return sum(curve * w**2 for w, curve in zip(weights, CURVES, strict=True)) / 2


START = [10.0] * len(CURVES)


def by_population(seed: int) -> Track:
    given = {"method": "population", "population": MEMBERS, "samples": MEMBERS * GENERATIONS, "seed": seed}
    spec = read_spec({"command": "t {lr}", "parameters": [LR], "metrics": [{"name": "loss"}], **given})
    chance, points = random.Random(seed), Points(spec)
    runs = [(points.at(index) or {}, START) for index in range(MEMBERS)]
    best, track = math.inf, []
    for generation in range(1, GENERATIONS + 1):
        runs = [(point, train(weights, float(point["lr"] or 0), STRETCH, chance)) for point, weights in runs]
        losses = [quadratic(weights) for _, weights in runs]
        best = min(best, *losses)
        track.append((float(generation * MEMBERS * STRETCH), best))
        members = [Member(number, runs[number][0], losses[number]) for number in range(MEMBERS)]
        runs = [(one.point, runs[one.continues][1]) for one in next_generation(spec, generation, members)]
    return track


def with_constant_rates(seed: int, sampler: optuna.samplers.BaseSampler) -> Track:
    chance, study, track = random.Random(seed), optuna.create_study(sampler=sampler), []
    for member in range(1, MEMBERS + 1):
        trial = study.ask()
        weights = train(START, trial.suggest_float("lr", LR["low"], LR["high"], log=True), 1000, chance)
        study.tell(trial, quadratic(weights))
        track.append((float(member * 1000), study.best_value))
    return track


# -- all of it ---------------------------------------------------------------------------------------------

HYPERBAND = {"pruner": "hyperband", "steps": STEPS}
PROBLEMS: dict[str, tuple[str, dict[str, Callable[[int], Track]]]] = {
    "Branin's function, 60 whole trials of 81 steps": (
        "distance to the minimum",
        {
            "random (Optuna)": lambda seed: plain(optuna.samplers.RandomSampler(seed=seed)),
            "TPE (Optuna)": lambda seed: plain(optuna.samplers.TPESampler(seed=seed)),
            "hyperband, TPE (dibs)": lambda seed: searched(seed, **HYPERBAND),
            "BOHB (dibs)": lambda seed: searched(seed, sampler="bohb", **HYPERBAND),
        },
    ),
    "ZDT1, two goals, 300 trials": (
        "dominated area",
        {
            "random (Optuna)": lambda seed: zdt_by_optuna(optuna.samplers.RandomSampler(seed=seed)),
            "NSGA-II (Optuna)": lambda seed: zdt_by_optuna(optuna.samplers.NSGAIISampler(seed=seed)),
            "nsga2 (dibs)": zdt_by_dibs,
        },
    ),
    "A noisy quadratic, 8,000 steps": (
        "lowest loss",
        {
            "random (Optuna)": lambda seed: with_constant_rates(seed, optuna.samplers.RandomSampler(seed=seed)),
            "TPE (Optuna)": lambda seed: with_constant_rates(
                seed, optuna.samplers.TPESampler(seed=seed, n_startup_trials=3)
            ),
            "population (dibs)": by_population,
        },
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")  # of experimental functions
    results: dict[str, Any] = {}
    for problem, (unit, searches) in PROBLEMS.items():
        results[problem] = {"unit": unit, "seeds": seeds, "searches": {}}
        for name, search in searches.items():
            tracks = [search(seed) for seed in range(seeds)]
            ends = sorted(track[-1][1] for track in tracks)
            results[problem]["searches"][name] = {"ends": ends, "median": medians(tracks)}
            print(f"{problem}: {name}: median {median(ends):.4g}, {ends[0]:.4g} to {ends[-1]:.4g}", flush=True)
    (ROOT / "bench" / "searches.json").write_text(json.dumps(results, indent=1) + "\n")
    (ROOT / "docs" / "pictures" / "searches.svg").write_text(draw(results))


def medians(tracks: Sequence[Track], places: int = 30) -> Track:
    """The median over the seeds at some numbers of steps, from where all have a result."""
    end = min(track[-1][0] for track in tracks)
    found = []
    for place in range(1, places + 1):
        steps = end * place / places
        values = [[value for at, value in track if at <= steps][-1:] for track in tracks]
        if all(one and math.isfinite(one[0]) for one in values):
            found.append((round(steps), float(f"{median(one[0] for one in values):.4g}")))
    return found


_WIDTH, _SIDE, _LEFT, _TOP = 330, 210, 56, 40
_COLOURS = ("#888", "#3b7dd8", "#e67e22", "#c0392b")
_STYLE = """text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #333 }
.title { font-weight: 600 } .quiet { fill: #666; font-size: 11px } .frame { fill: #fdfcf9; stroke: #bbb }"""


def draw(results: dict[str, Any]) -> str:
    """The medians of all problems, side by side."""
    width, height = _WIDTH * len(results), _TOP + _SIDE + 118
    parts = [
        f'<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">',
        f"<style>{_STYLE}</style>",
    ]
    parts.append(f'<rect width="{width}" height="{height}" fill="#fff"/>')
    for place, (problem, result) in enumerate(results.items()):
        parts += _panel(place * _WIDTH, problem, result)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(left: int, problem: str, result: dict[str, Any]) -> Iterator[str]:
    tracks = {name: one["median"] for name, one in result["searches"].items()}
    is_log = result["unit"] != "dominated area"
    scale: Callable[[float], float] = (
        (lambda value: math.log10(max(value, 1e-9))) if is_log else (lambda value: value)
    )
    values = [scale(value) for track in tracks.values() for _, value in track]
    low, high, end = min(values), max(values), max(track[-1][0] for track in tracks.values())
    x0, side = left + _LEFT, _WIDTH - _LEFT - 16
    yield f'<text class="title" x="{x0}" y="22">{problem}</text>'
    yield f'<rect class="frame" x="{x0}" y="{_TOP}" width="{side}" height="{_SIDE}"/>'
    for at in (low, high):
        y = _TOP + _SIDE * (1 - (at - low) / (high - low or 1))
        told = f"{10**at if is_log else at:.2g}"
        yield f'<text class="quiet" x="{x0 - 6}" y="{y + 4:.0f}" text-anchor="end">{told}</text>'
    yield f'<text class="quiet" x="{x0}" y="{_TOP + _SIDE + 16}">0</text>'
    yield f'<text class="quiet" x="{x0 + side}" y="{_TOP + _SIDE + 16}" text-anchor="end">{end:,} steps</text>'
    yield f'<text class="quiet" x="{x0 + 6}" y="{_TOP + 14}">{result["unit"]}{", log" if is_log else ""}</text>'
    for row, ((name, track), colour) in enumerate(zip(tracks.items(), _COLOURS, strict=False)):
        points = " ".join(
            f"{x0 + side * at / end:.1f},{_TOP + _SIDE * (1 - (scale(value) - low) / (high - low or 1)):.1f}"
            for at, value in track
        )
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        y = _TOP + _SIDE + 36 + 18 * row
        yield f'<line x1="{x0}" y1="{y - 4}" x2="{x0 + 22}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>'
        yield f'<text x="{x0 + 30}" y="{y}">{name}: {track[-1][1]:.3g}</text>'


if __name__ == "__main__":
    main()
