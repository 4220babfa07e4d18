"""A good neighbour: preemptible jobs leave a card that a program without dibs uses, until it is quiet. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from dibs.dataclass import dataclass
from dibs.model.suspensions import too_much_to_move
from dibs.policy.snapshot import QUIET, PreemptibleJob


@dataclass(frozen=True, slots=True)
class MakesWay:
    """A job that is suspended for others, and for whom: `for the process 4711 (ada) on GPU 0`."""

    one: PreemptibleJob
    why: str


def who_makes_way(
    running: Iterable[PreemptibleJob], strangers: Mapping[str, Sequence[str]], memory: int | None
) -> list[MakesWay]:
    """The preemptible jobs to suspend. `strangers`: who works on each card, by its key: `4711 (ada)`.

    `memory`: bytes of the machine's memory that they may be moved into; None: unknown.
    """
    found = []
    for one in running:
        why = "" if one.why_not else _for_whom(one, strangers)
        if not why or too_much_to_move(one.held, memory):
            continue
        if memory is not None:
            memory -= one.held
        found.append(MakesWay(one, why))
    return found


def why_it_stays(one: PreemptibleJob, strangers: Mapping[str, Sequence[str]]) -> str:
    """Why a preemptible job is not suspended for others; empty where it is, or where there are none."""
    whom = _for_whom(one, strangers)
    return f"is not suspended {whom}: {one.why_not}" if whom and one.why_not else ""


def _for_whom(one: PreemptibleJob, strangers: Mapping[str, Sequence[str]]) -> str:
    """For whom a job is to be suspended, if it can be; empty: for no process."""
    disturbed = [claim for claim in one.claims if strangers.get(claim.gpu)]
    if not disturbed or not one.yields_to_urgent or one.is_leaving or one.job.request.urgent:
        return ""
    who = list(dict.fromkeys(name for claim in disturbed for name in strangers[claim.gpu]))
    processes = f"process{'es' if len(who) > 1 else ''} {' and '.join(who)}"
    return f"for the {processes} on GPU {', '.join(claim.number for claim in disturbed)}"


def quiet_at(before: Mapping[str, float], disturbed: Collection[str], now: float) -> dict[str, float]:
    """When each card will have been quiet for long enough, if no other process comes; not those that have."""
    return {key: at for key, at in before.items() if at > now} | dict.fromkeys(disturbed, now + QUIET)
