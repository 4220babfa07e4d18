"""Sweeps over the API, in few words."""

from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

from daemon.house import House
from daemon.listening import Reply
from stories.outside import wait_until

_keys = count()
LONG = 120.0  # seconds; Optuna alone takes some to be loaded on a busy machine

# Signs in, says what it came to, and ends.
SQUARE = 'echo "start {x} - $$" >> "$LEDGER"; echo "loss=$(( ({x} - 3) * ({x} - 3) ))" >> "$DIBS_METRICS"'
LOSS = [{"name": "loss", "goal": "min"}]
WHOLE = {"name": "x", "low": 0, "high": 7, "integer": True}


def values(name: str, *given: object) -> dict[str, Any]:
    return {"name": name, "values": [None if one is None else str(one) for one in given]}


def try_to_begin(house: House, spec: dict[str, Any], **defaults: Any) -> Reply:
    environment = {"PATH": "/usr/bin:/bin", "LEDGER": str(house.world.ledger.path)}
    body = {"key": f"sweep {next(_keys)}", "environment": environment, "defaults": defaults, "spec": spec}
    return house.call("POST", "/v1/sweeps", body)


def begin(house: House, command: str = SQUARE, *parameters: dict[str, Any], **more: Any) -> int:
    """The number of a new sweep; of squares where nothing else is said. Wishes of its jobs are under `wishes`."""
    wishes = more.pop("wishes", {})
    spec = {"command": command, "parameters": list(parameters or [WHOLE]), "metrics": LOSS, **more}
    reply = try_to_begin(house, spec, **wishes)
    assert reply.status == 201, reply
    return int(reply.json["id"])


def look(house: House, sweep: int) -> Any:
    return house.get(f"/v1/sweeps/{sweep}")


def trials(house: House, sweep: int, **query: str) -> list[Any]:
    asked = "&".join(f"{key}={value}" for key, value in {"limit": "1000", **query}.items())
    found: list[Any] = house.get(f"/v1/sweeps/{sweep}/trials?{asked}")["trials"]
    return found


def act(house: House, sweep: int, action: str, **more: Any) -> Any:
    return house.post(f"/v1/sweeps/{sweep}/act", {"action": action, **more})


def wait_for(house: House, sweep: int, is_so: Callable[[Any], bool], seconds: float = LONG) -> Any:
    """The sweep, once it is so."""
    seen: list[Any] = []

    def ask() -> Any:
        seen[:] = [look(house, sweep)]
        return seen[0] if is_so(seen[0]) else None

    return wait_until(ask, show=lambda: (seen, trials(house, sweep)[-5:], house.log[-2000:]), seconds=seconds)


def until(house: House, sweep: int, *states: str, seconds: float = LONG) -> Any:
    """The sweep, once it is in one of these states and nothing of it is open."""
    return wait_for(
        house, sweep, lambda seen: seen["state"] in states and not seen["counts"]["open"], seconds=seconds
    )


def states(house: House, sweep: int) -> Counter[str]:
    return Counter(trial["state"] for trial in trials(house, sweep))
