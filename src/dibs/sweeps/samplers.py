"""Optuna's samplers and pruners for a sweep, each made anew for one decision.

A sampler that lives on remembers what it drew, and one that was started after a crash does not. Made from the
seed and the trial's number alone, both draw the same.
"""

import hashlib

from optuna import pruners, samplers

from dibs.sweeps.spec import Spec

# How often a sampler is asked again when its point cannot be used, before points are drawn at random. After
# thousands of trials a draw by TPE takes a tenth of a second, and a Gaussian process takes longer still and
# most often says the same again.
PATIENCE = {"tpe": 20, "cmaes": 20, "qmc": 200, "gp": 3}


def make_sampler(spec: Spec, number: int, draw: int) -> samplers.BaseSampler:
    """What draws the parameters of this trial; `draw` counts the attempts at it."""
    seed = _seed(spec.seed, number, draw)
    if draw >= PATIENCE[spec.sampler]:
        return samplers.RandomSampler(seed=seed)
    is_single = len(spec.metrics) <= 1
    match spec.sampler:
        case "tpe":
            return samplers.TPESampler(
                seed=seed,
                constant_liar=True,  # trials that still run count, or it would draw their neighbours
                multivariate=is_single,
                group=is_single and any(parameter.when for parameter in spec.parameters),
            )
        case "gp":
            return samplers.GPSampler(seed=seed)
        case "cmaes":
            return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        case "qmc":
            # One sequence for the whole sweep; what it cannot draw must still differ from trial to trial.
            return samplers.QMCSampler(
                scramble=True,
                seed=_seed(spec.seed),
                independent_sampler=samplers.RandomSampler(seed=seed),
                warn_independent_sampling=False,
            )


def make_pruner(spec: Spec, longest: int | None) -> pruners.BasePruner:
    """What decides whether a trial goes on. `longest` is the last step of the first complete trial."""
    first = max(1, spec.prune_after)
    match spec.pruner:
        case "halving":
            return pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=spec.prune_factor or 4)
        case "median":
            return pruners.MedianPruner(n_warmup_steps=spec.prune_after)
        case "hyperband" if longest is not None and longest >= first:
            return pruners.HyperbandPruner(
                min_resource=first, max_resource=longest, reduction_factor=spec.prune_factor or 3
            )
        case _:
            return pruners.NopPruner()


def _seed(*parts: int) -> int:
    """A seed of 32 bits, which is what Optuna takes; close numbers give seeds far apart."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4])
