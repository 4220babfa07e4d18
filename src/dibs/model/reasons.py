"""Why a job waits: data with one sentence, the same on every face."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Reason:
    """Faces end the sentence with "until about 14:30" where `until` is known: only they know the time zone.

    A moment that moves does not make it another reason, and nobody is told again.
    """

    code: str
    sentence: str
    until: float | None = field(default=None, compare=False)  # seconds since the epoch
