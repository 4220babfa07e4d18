"""Named points at which crash tests stop a process of dibs: `DIBS_FAULT`."""

import os
import signal
from collections.abc import Callable, Mapping

Reach = Callable[[str], None]


def fault_point(environ: Mapping[str, str]) -> Reach | None:
    """`DIBS_FAULT=after-intent:3` kills this process the third time it reaches that point.

    `after-intent:3:stop` stops it there by SIGSTOP. Several points have commas between them.
    """
    if not environ.get("DIBS_FAULT"):
        return None
    left: dict[str, int] = {}
    how: dict[str, int] = {}
    for fault in environ["DIBS_FAULT"].split(","):
        point, times, act = (*fault.split(":"), "", "")[:3]
        left[point] = int(times or 1)
        how[point] = signal.SIGSTOP if act == "stop" else signal.SIGKILL

    def reach(point: str) -> None:
        if point in left:
            left[point] -= 1
            if left[point] == 0:
                os.kill(os.getpid(), how[point])

    return reach
