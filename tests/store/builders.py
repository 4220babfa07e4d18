"""Requests and filled stores, in few words."""

from fractions import Fraction

from dibs.model.gpus import Claim
from dibs.model.jobs import Attempt, Command, Job, Outcome, Request, Wishes
from dibs.model.usage import Usage
from dibs.store.store import Store

NOON = 43200.0


def a_request(text: str = "train", **more) -> Request:
    wishes = Wishes(**{name: more.pop(name) for name in ("num_gpus", "share", "vram") if name in more})
    return Request(command=Command.line(text), wishes=wishes, **more)


def submit(store: Store, *texts: str, **more) -> list[Job]:
    """Submit in one turn; texts that stand for a known job give that one."""
    with store.turn():
        key = store.keep_environment({"HOME": "/"})
        return [store.submit(a_request(text, **more), key, NOON)[0] for text in texts]


def an_attempt(job: Job, number: int = 1, folder: str = "/runs/1.1") -> Attempt:
    claims = (Claim(gpu="GPU-1", index=3, share=Fraction(1, 3), vram=7),)
    return Attempt(job=job.id, number=number, claims=claims, boot_id="boot", opened_at=NOON, folder=folder)


def run(
    store: Store,
    job: Job,
    outcome: Outcome,
    *,
    number: int = 1,
    retry_at: float | None = None,
    usage: Usage | None = None,
) -> None:
    """Record a whole attempt."""
    attempt = an_attempt(job, number)
    with store.turn():
        store.open_attempt(attempt)
        store.end_attempt(attempt, outcome, NOON + 1, retry_at, usage)
