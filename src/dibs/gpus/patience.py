"""A question to the driver that must be answered before anything can go on, and not for ever."""

import threading
from collections.abc import Callable
from typing import TypeVar

from dibs.gpus.probe import ProbeFailed

PATIENCE = 10.0  # seconds; a driver without persistence mode has to wake its cards first

Answer = TypeVar("Answer")


def answer_within(question: Callable[[], Answer], seconds: float = PATIENCE) -> Answer:
    """What the question answers; ProbeFailed when it does not come back in time.

    For those who cannot go on without an answer. The thread that hangs is left behind.
    """
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def put_it() -> None:
        try:
            answers.append(question())
        except BaseException as error:  # raised below, in the thread of who asked
            errors.append(error)

    thread = threading.Thread(target=put_it, name="dibs-gpu-question", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise ProbeFailed(
            f"cannot ask the driver for its GPUs: no answer within {seconds:g} seconds",
            remedy="a sick card may block it: see whether `nvidia-smi` answers, and what `dmesg` says",
        )
    return answers[0]
