"""When an attempt started and ended, by the clock of this machine.

Three clocks tell: the node's in the shim's record, the controller's in Slurm's row, and ours. The controller's is
compared with ours, and the node's with the controller's: a command starts after Slurm has given it its node, and
ends before Slurm has noted that. Only what cannot be true otherwise is taken for a clock that is wrong.
"""

from collections.abc import Mapping
from typing import Any

from dibs.backends.slurm.squeue import SqueueRow

_COARSE = 2.0  # seconds: Slurm tells whole ones, and was asked a moment ago


def times(
    row: SqueueRow | None, record: Mapping[str, Any] | None, controller_ahead: float
) -> tuple[float | None, float | None]:
    """The start and the end, as far as they are known. `controller_ahead`: seconds of its clock before ours."""
    ahead = controller_ahead if abs(controller_ahead) > _COARSE else 0.0
    given = taken = None  # by our clock: the time in which Slurm had it on its node
    if row is not None and not row.is_queued:
        given = None if row.start is None else row.start - ahead
        # Of one that runs Slurm has the latest end that its time limit allows.
        taken = None if row.ended is None or row.is_live else row.ended - ahead
    began = _number(record, "began")
    if began is None:
        return given, taken
    seconds = _number(record, "seconds")  # by a clock that is never set
    ended = _number(record, "ended") if seconds is None else began + seconds
    shift = 0.0
    if given is not None and began < given - _COARSE:
        shift = given - began
    elif taken is not None and ended is not None and ended > taken + _COARSE:
        shift = taken - ended
    return began + shift, None if ended is None else ended + shift


def _number(record: Mapping[str, Any] | None, key: str) -> float | None:
    found = None if record is None else record.get(key)
    return float(found) if isinstance(found, (int, float)) else None
