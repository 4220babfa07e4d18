"""The search that fits what is known of a sweep, where none is named."""

import os
from collections.abc import Mapping
from typing import Any

from dibs.errors import BadInput


def choose_search(
    spec: dict[str, Any], *, method: str | None = None, sampler: str | None = None, seed: int | None = None
) -> bool:
    """Fill in the search and its seed where they were not given; return whether something was chosen."""
    chosen = False
    if method:
        spec["method"] = method
    elif sampler:
        spec["method"] = "adaptive"
    elif "method" not in spec:
        spec["method"] = _method(spec)
        chosen = True
    if sampler and spec["method"] != "adaptive":
        raise BadInput("--sampler is for an adaptive search", remedy="leave it out, or --method adaptive")
    if spec["method"] != "grid" and spec.pop("shuffle", False) and method:
        raise BadInput("--shuffle is for a grid", remedy=f"leave it out: {spec['method']} has no order to change")
    if seed is not None:
        spec["seed"] = seed
    elif "seed" not in spec and (spec["method"] != "grid" or spec.get("shuffle")):
        spec["seed"] = int.from_bytes(os.urandom(4), "big") >> 1
        chosen = True
    return chosen


def _method(spec: Mapping[str, Any]) -> str:
    """Everything where that is meant and has an end; else by the results where there are some."""
    dense = next((one["name"] for one in spec["parameters"] if _is_dense(one)), None)
    if spec.get("samples") is None:
        if dense is not None:
            raise BadInput(
                f"{dense} is a range with no end of values in it",
                remedy="--samples 40 says how many are tried",
            )
        return "grid"
    if spec.get("shuffle") and dense is None:
        return "grid"
    return "adaptive" if spec["metrics"] else "random"


def _is_dense(parameter: Mapping[str, Any]) -> bool:
    return (
        "values" not in parameter
        and ("distribution" in parameter or parameter["low"] != parameter["high"])
        and not parameter.get("integer")
        and parameter.get("step") is None
    )
