"""Sweeps for tests."""

from typing import Any

from dibs.sweeps.spec import Spec, read_spec


def a_sweep(parameters: list[dict[str, Any]], **more: Any) -> Spec:
    """A sweep over these parameters, with a command that has them all."""
    command = "train " + " ".join(f"--{each['name']} {{{each['name']}}}" for each in parameters)
    return read_spec({"command": command, "parameters": parameters, **more})


def values(name: str, *values: str | None, when: str = "") -> dict[str, Any]:
    return {"name": name, "values": list(values), "when": when}


def numbers(name: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "low": low, "high": high, **more}
