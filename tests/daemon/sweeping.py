"""Helpers for tests of sweeps over the API."""

from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

from daemon.daemon_process import DaemonProcess
from daemon.listening import Reply
from stories.outside import wait_until

_keys = count()
LONG = 120.0  # seconds; Optuna alone takes some to be loaded on a busy machine

# Writes to the ledger, reports its loss, and ends.
SQUARE = 'echo "start {x} - $$" >> "$LEDGER"; echo "loss=$(( ({x} - 3) * ({x} - 3) ))" >> "$DIBS_METRICS"'
LOSS = [{"name": "loss", "goal": "min"}]
WHOLE = {"name": "x", "low": 0, "high": 7, "integer": True}


def values(name: str, *given: object) -> dict[str, Any]:
    return {"name": name, "values": [None if one is None else str(one) for one in given]}


def try_to_begin(daemon: DaemonProcess, spec: dict[str, Any], **defaults: Any) -> Reply:
    environment = {"PATH": "/usr/bin:/bin", "LEDGER": str(daemon.world.ledger.path)}
    body = {"key": f"sweep {next(_keys)}", "environment": environment, "defaults": defaults, "spec": spec}
    return daemon.call("POST", "/v1/sweeps", body)


def begin(daemon: DaemonProcess, command: str = SQUARE, *parameters: dict[str, Any], **more: Any) -> int:
    """The number of a new sweep; by default it searches a square. `wishes` are the fields of its jobs."""
    wishes = more.pop("wishes", {})
    spec = {"command": command, "parameters": list(parameters or [WHOLE]), "metrics": LOSS, **more}
    reply = try_to_begin(daemon, spec, **wishes)
    assert reply.status == 201, reply
    return int(reply.json["id"])


def look(daemon: DaemonProcess, sweep: int) -> Any:
    return daemon.get(f"/v1/sweeps/{sweep}")


def trials(daemon: DaemonProcess, sweep: int, **query: str) -> list[Any]:
    asked = "&".join(f"{key}={value}" for key, value in {"limit": "1000", **query}.items())
    found: list[Any] = daemon.get(f"/v1/sweeps/{sweep}/trials?{asked}")["trials"]
    return found


def act(daemon: DaemonProcess, sweep: int, action: str, **more: Any) -> Any:
    return daemon.post(f"/v1/sweeps/{sweep}/act", {"action": action, **more})


def wait_for(daemon: DaemonProcess, sweep: int, is_so: Callable[[Any], bool], seconds: float = LONG) -> Any:
    """The sweep, once it is so."""
    seen: list[Any] = []

    def ask() -> Any:
        seen[:] = [look(daemon, sweep)]
        return seen[0] if is_so(seen[0]) else None

    return wait_until(ask, show=lambda: (seen, trials(daemon, sweep)[-5:], daemon.log[-2000:]), seconds=seconds)


def until(daemon: DaemonProcess, sweep: int, *states: str, seconds: float = LONG) -> Any:
    """The sweep, once it is in one of these states and nothing of it is open."""
    return wait_for(
        daemon, sweep, lambda seen: seen["state"] in states and not seen["counts"]["open"], seconds=seconds
    )


def states(daemon: DaemonProcess, sweep: int) -> Counter[str]:
    return Counter(trial["state"] for trial in trials(daemon, sweep))
