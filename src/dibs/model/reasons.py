"""Why a job waits: data with one sentence, the same on every face."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    code: str
    sentence: str
