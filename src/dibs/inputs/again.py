"""When a job is tried again: the causes that count, and the signal on which it saves its work first."""

import re
import signal

from dibs.errors import BadInput
from dibs.model.jobs import Cause, Checkpoint, Request
from dibs.policy.outcomes import retry_name, retry_names


def parse_causes(text: str) -> tuple[str, ...]:
    """`gpu-oom,lost` as the causes they mean, each once."""
    if not text.strip():
        return ()
    causes = {retry_name(cause): cause.value for cause in Cause}
    known = {name: causes[name] for name in retry_names()}
    found = []
    for word in text.split(","):
        name = retry_name(word)
        if name not in known:
            raise BadInput(
                f"there is no cause called {word.strip()[:60]!r}", remedy=f"dibs knows {', '.join(known)}"
            )
        found.append(known[name])
    return tuple(dict.fromkeys(found))


def parse_checkpoint(text: str) -> Checkpoint:
    """`USR1@60`: a signal, and how many seconds before the time limit it comes."""
    match = re.fullmatch(r"(?:[BR]+:)?(?:SIG)?([A-Z0-9]{1,10})@([0-9]{1,6})", text.strip().upper())
    number = 0
    if match:
        name = match[1]
        number = int(name) if name.isdigit() else int(getattr(signal, f"SIG{name}", 0))
    if not match or not 1 <= number <= 64 or not int(match[2]):
        raise BadInput(f"cannot read {text[:60]!r} as a signal and seconds", remedy="write it like USR1@60")
    return Checkpoint(number, float(match[2]))


def check_checkpoint(request: Request) -> None:
    """Raise BadInput for a signal that would come before the start, or never."""
    checkpoint, limit = request.checkpoint, request.time_limit
    if checkpoint is not None and (limit is None or checkpoint.seconds >= limit):
        raise BadInput(
            "--checkpoint-signal comes before the time limit", remedy="give a longer one with -t, such as -t 4h"
        )
