"""Sweeps as the daemon's API knows them: one function for each route, plain dicts in and out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dibs.client.client import Answer, Client, _target


def add_sweep(
    client: Client,
    spec: Mapping[str, Any],
    *,
    key: str,
    defaults: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    code: Mapping[str, Any] | None = None,
) -> Answer:
    """Begin a sweep; the same key again gives the same number: `{"id", "is_new", "size"}`."""
    body = {
        "key": key,
        "environment": environment or {},
        "code": code,
        "defaults": defaults or {},
        "spec": spec,
    }
    return client._post("/v1/sweeps", body, repeat=True)


def check_sweep(client: Client, spec: Mapping[str, Any], *, defaults: Mapping[str, Any] | None = None) -> Answer:
    """What a sweep would do: `{"size", "commands", "left_out"}`. What can never run raises BadInput."""
    return client._post("/v1/sweeps/check", {"defaults": defaults or {}, "spec": spec}, repeat=True)


def find_sweep(client: Client, reference: str) -> int:
    """The number of the sweep that `3`, `@` (the last) or a name means."""
    return int(client._get("/v1/sweeps/find", ref=reference)["id"])


def sweep_page(
    client: Client, *, states: Sequence[str] = (), limit: int | None = None, cursor: int | None = None
) -> Answer:
    """Sweeps, the newest first: `{"sweeps", "cursor"}`."""
    return client._get("/v1/sweeps", state=list(states), limit=limit, cursor=cursor)


def sweeps(client: Client, *, states: Sequence[str] = ()) -> Iterator[Answer]:
    """All sweeps, the newest first."""
    cursor = None
    while True:
        page = sweep_page(client, states=states, limit=100, cursor=cursor)
        yield from page["sweeps"]
        cursor = page["cursor"]
        if cursor is None:
            return


def sweep(client: Client, number: int) -> Answer:
    return client._get(f"/v1/sweeps/{number}")


def trial_page(
    client: Client,
    number: int,
    *,
    order: str = "number",
    states: Sequence[str] = (),
    limit: int | None = None,
    cursor: str | None = None,
) -> Answer:
    """Some trials of a sweep: `{"trials", "cursor"}`. In the order `best` only those that have values."""
    return client._get(f"/v1/sweeps/{number}/trials", order=order, state=list(states), limit=limit, cursor=cursor)


def trials(client: Client, number: int, *, order: str = "number", states: Sequence[str] = ()) -> Iterator[Answer]:
    """All trials of a sweep, page by page."""
    cursor = None
    while True:
        page = trial_page(client, number, order=order, states=states, limit=1000, cursor=cursor)
        yield from page["trials"]
        cursor = page["cursor"]
        if cursor is None:
            return


def importance(client: Client, number: int, *, patience: float = 120.0) -> Answer:
    """How much each parameter matters: `{"importance", "why"}`. It may take some seconds."""
    return client._json("GET", _target(f"/v1/sweeps/{number}/importance", {}), patience=patience)


def act_on_sweep(
    client: Client,
    number: int,
    action: str,
    *,
    samples: int | None = None,
    parallel: int | None = None,
    running: str | None = None,
    **changes: Any,
) -> Answer:
    """Stop, hold, release, resume, retry-failed or edit a sweep: `{"changed", "trials"}`.

    `edit` also changes metrics, parameters, where and target, as they are in a spec.
    """
    said = {"samples": samples, "parallel": parallel, "running": running, **changes}
    body = {"action": action, **{name: value for name, value in said.items() if value is not None}}
    # To retry twice may run what failed again meanwhile a second time; all else is done once however often said.
    return client._post(f"/v1/sweeps/{number}/act", body, repeat=action != "retry-failed")


def remove_sweep(client: Client, number: int) -> int:
    """Forget a sweep that is over; how many trials it had."""
    return int(client._post(f"/v1/sweeps/{number}/remove", {}, repeat=False)["trials"])
