"""What the journal says of sweeps, and how a store is told it again."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dibs.model.jobs import JobId
from dibs.model.sweeps import Sweep, SweepId, SweepState, Trial, TrialState
from dibs.store.codec import decode_request, encode_request
from dibs.store.job_lines import Line
from dibs.store.sweeps import SweepTable, goals_of


def swept(sweep: Sweep) -> Line:
    """A new sweep."""
    return {
        "k": "sweep",
        "id": sweep.id,
        "key": sweep.key,
        "name": sweep.name,
        "request": encode_request(sweep.request),
        "environment": sweep.environment,
        "code": sweep.code,
        "at": sweep.queued_at,
        "spec": dict(sweep.spec),
        **_standing(sweep),
    }


def sweep_changed(sweep: Sweep, *, is_edited: bool = False) -> Line:
    """It stands elsewhere, or is to do something else."""
    line: Line = {"k": "sweep-set", "id": sweep.id, **_standing(sweep)}
    return line | {"spec": dict(sweep.spec)} if is_edited else line


def sweep_told(sweep: Sweep) -> dict[str, Any]:
    """The body of the event that tells of it."""
    return {"sweep": sweep.id, "state": sweep.state, "why": sweep.why}


def sweep_gone(sweep: SweepId) -> Line:
    """Somebody removed it, and its trials with it."""
    return {"k": "sweep-gone", "id": sweep}


def tried(trial: Trial, *, cursor: int | None = None) -> Line:
    """What became of a trial; of a new one, where its sweep goes on after it, and its point.

    Its job is not under `job`: a trial outlives one that was cleaned away.
    """
    line: Line = {"k": "trial", "sweep": trial.sweep, "number": trial.number, "state": trial.state}
    if cursor is not None:
        line |= {"point": dict(trial.point), "command": trial.command, "fingerprint": trial.fingerprint}
        line["cursor"] = cursor
    said = {
        "as_job": trial.job,
        "values": None if trial.values is None else list(trial.values),
        "why": trial.why or None,
        "cause": trial.cause or None,
        "seconds": trial.seconds,
        "reused_from": trial.reused_from,
        "ended_at": trial.ended_at,
        "study": trial.study,
        "pruned_by": trial.pruned_by or None,
        "due": trial.is_due or None,
    }
    return line | {name: value for name, value in said.items() if value is not None}


def acts_on(table: SweepTable) -> dict[str, Callable[[Mapping[str, Any]], None]]:
    """What each of these lines does to a store. KeyError where a line fits nothing before it."""

    def sweep(line: Mapping[str, Any]) -> None:
        if table.with_key(line["key"]) is None:
            table.add(
                _stands(
                    Sweep(
                        id=SweepId(line["id"]),
                        key=line["key"],
                        name=line["name"],
                        spec=line["spec"],
                        request=decode_request(line["request"]),
                        environment=line["environment"],
                        code=line["code"],
                        queued_at=line["at"],
                    ),
                    line,
                )
            )

    def sweep_set(line: Mapping[str, Any]) -> None:
        table.change(_stands(_known(table, line["id"]), line))

    def trial(line: Mapping[str, Any]) -> None:
        goals = goals_of(_known(table, line["sweep"]).spec)
        before = table.trial(SweepId(line["sweep"]), line["number"])
        if before is None:
            table.add_trial(_became(_new_trial(line), line), goals, line["cursor"])
        else:
            table.change_trial(_became(before, line), goals)

    def gone(line: Mapping[str, Any]) -> None:
        table.remove(SweepId(line["id"]))

    return {"sweep": sweep, "sweep-set": sweep_set, "sweep-gone": gone, "trial": trial}


def _known(table: SweepTable, number: int) -> Sweep:
    from dibs.errors import NoSuchSweep

    try:
        return table.sweep(number)
    except NoSuchSweep:
        raise KeyError(number) from None


def _standing(sweep: Sweep) -> Line:
    said = {
        "state": sweep.state,
        "why": sweep.why or None,
        "cursor": sweep.cursor or None,
        "counts_from": sweep.counts_from or None,
        "ended_at": sweep.ended_at,
    }
    return {name: value for name, value in said.items() if value is not None}


def _stands(sweep: Sweep, line: Mapping[str, Any]) -> Sweep:
    return replace(
        sweep,
        spec=line.get("spec", sweep.spec),
        state=SweepState(line["state"]),
        why=line.get("why", ""),
        cursor=line.get("cursor", 0),
        counts_from=line.get("counts_from", 0.0),
        ended_at=line.get("ended_at"),
    )


def _new_trial(line: Mapping[str, Any]) -> Trial:
    return Trial(
        sweep=SweepId(line["sweep"]),
        number=line["number"],
        point=line["point"],
        command=line["command"],
        fingerprint=line["fingerprint"],
    )


def _became(trial: Trial, line: Mapping[str, Any]) -> Trial:
    job, values, reused_from = line.get("as_job"), line.get("values"), line.get("reused_from")
    return replace(
        trial,
        state=TrialState(line["state"]),
        job=None if job is None else JobId(job),
        values=None if values is None else tuple(values),
        why=line.get("why", ""),
        cause=line.get("cause", ""),
        seconds=line.get("seconds"),
        reused_from=None if reused_from is None else JobId(reused_from),
        ended_at=line.get("ended_at"),
        study=line.get("study"),
        pruned_by=line.get("pruned_by", ""),
        is_due=line.get("due", False),
    )
