"""Sweeps of a daemon that the page is looked at with."""

from itertools import count
from typing import Any

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until

_keys = count()
LOSS = [{"name": "loss", "goal": "min"}]
# A bowl: the lowest loss is at lr 0.01, and more layers are worse.
BOWL = (
    "awk -v lr={lr} -v n={layers} 'BEGIN { d = log(lr / 0.01) / log(10); printf \"loss=%g\\n\", d * d + n / 10 }'"
    ' >> "$DIBS_METRICS"'
)


def begin(daemon: DaemonProcess, command: str, *parameters: dict[str, Any], name: str = "", **spec: Any) -> int:
    """A sweep of jobs without a GPU, and its number."""
    body = {
        "key": f"sweep {next(_keys)}",
        "environment": {"PATH": "/usr/bin:/bin"},
        "defaults": {"num_gpus": 0},
        "spec": {"command": command, "parameters": list(parameters), "name": name, **spec},
    }
    return int(daemon.post("/v1/sweeps", body)["id"])


def values(name: str, *texts: str | None) -> dict[str, Any]:
    return {"name": name, "values": list(texts)}


def span(name: str, low: float, high: float, scale: str = "linear") -> dict[str, Any]:
    return {"name": name, "low": low, "high": high, "scale": scale}


def sweep(daemon: DaemonProcess, number: int) -> Any:
    return daemon.get(f"/v1/sweeps/{number}")


def finish(daemon: DaemonProcess, number: int) -> Any:
    """The sweep, once it is over."""
    wait_until(
        lambda: sweep(daemon, number)["state"] != "running", show=lambda: sweep(daemon, number), seconds=120
    )
    found = sweep(daemon, number)
    assert found["state"] == "finished", found
    return found
