"""Claims for tests, in few words."""

import os
from fractions import Fraction

from dibs.leases.leases import Busy, Lease, Leases
from dibs.model.gpus import Claim

NOON = 43200.0


def a_claim(gpu: str = "index-0", share: str = "1") -> Claim:
    return Claim(gpu=gpu, index=0, share=Fraction(share), vram=7)


def some_leases(folder: str, *, patience: float = 2.0) -> Leases:
    """The leases of this process under its own user."""
    return Leases(folder, uid=os.geteuid(), user=f"user{os.geteuid()}", patience=patience)


def take(leases: Leases, *claims: Claim, job: str = "train", since: float = NOON) -> Lease | Busy:
    return leases.take(claims or (a_claim(),), job=job, folder="/runs/1", since=since)


def took(leases: Leases, *claims: Claim, job: str = "train", since: float = NOON) -> Lease:
    """Take what must be free."""
    found = take(leases, *claims, job=job, since=since)
    assert isinstance(found, Lease), found
    return found


def busy(leases: Leases, *claims: Claim, since: float = NOON) -> Busy:
    """Fail to take what must be taken."""
    found = take(leases, *claims, since=since)
    assert isinstance(found, Busy)
    return found
