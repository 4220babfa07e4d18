"""Each plant is a bug in the suspension of jobs, and the checker of its crash tests must see it."""

from collections.abc import Callable

import pytest

from faults.suspension_campaign import SuspensionCampaign
from faults.test_suspension import IMPATIENT
from stories.test_making_room import MovingWorld, moving

__all__ = ["moving"]

PLANTS = {
    # What an earlier daemon had begun with is not taken up.
    "forgets what it was moving": """
        from dibs.engine.launch.suspensions import Suspensions
        honest = Suspensions.begin
        Suspensions.begin = lambda self, attempts, *, is_new=True: honest(self, attempts) if is_new else None
    """,
    # A suspended job that was recorded is not looked for.
    "forgets the suspended": """
        from dibs.store.store import Store
        honest = Store.open_attempts
        Store.open_attempts = lambda self: [one for one in honest(self) if one[0].state != "suspended"]
    """,
    # The card is used without a lease.
    "takes no lease for a job that goes on": """
        from dibs.engine.launch.lease_keeper import LeaseKeeper
        LeaseKeeper.take_back = lambda self, resumed, left: None
    """,
    "keeps the lease of a suspended job": """
        from dibs.engine.launch.lease_keeper import LeaseKeeper
        LeaseKeeper.show = lambda self, one: True
    """,
    # The death of a helper says nothing about what it has done.
    "takes silence for success": """
        from dibs.supervise import suspension
        honest = suspension._answer_in
        suspended = suspension.Answer(state="suspended", rung="cuda")
        suspension._answer_in = lambda line: honest(line) if line else suspended
    """,
    "never ends a helper": """
        from dibs.supervise.suspension import Suspender
        Suspender.expire = lambda self, now: None
    """,
    # Only what is below a shim belongs to a job.
    "knows the processes of shims only": """
        from dibs.supervise import suspension
        without = "suspender.find_left_processes = lambda attempts: {one: {} for one in attempts}"
        suspension._START = (
            "import sys; sys.path.append(sys.argv[1]); from dibs.supervise import suspender; "
            + without
            + "; suspender.main()"
        )
    """,
}


def _complaints(moving: MovingWorld, plant: str, live_through: Callable[[SuspensionCampaign], list[str]]) -> str:
    """What the checker has to complain of, after a shorter wait than where nothing is wrong."""
    campaign = SuspensionCampaign(moving, IMPATIENT, PLANTS[plant], patience=6.0)
    try:
        return "; ".join(live_through(campaign))
    except AssertionError as failure:
        return str(failure)


@pytest.mark.parametrize(
    ("plant", "live_through", "words"),
    [
        (
            "forgets what it was moving",
            lambda campaign: campaign.kill_daemon_at("after-helper", "after-commit"),
            "the queue says running, its suspension is suspending",
        ),
        (
            "forgets the suspended",
            lambda campaign: campaign.kill_daemon_at("after-move", "after-move-intent"),
            "its suspension is over; the leases say {'1': 1.0}",
        ),
        (
            "takes no lease for a job that goes on",
            SuspensionCampaign.live_without_crash,
            "the leases say {'1': 0.0}",
        ),
        ("keeps the lease of a suspended job", SuspensionCampaign.live_without_crash, "the leases say {'1': 1.0}"),
        ("takes silence for success", SuspensionCampaign.hurt_helpers, "the driver says locked"),
        (
            "never ends a helper",
            lambda campaign: campaign.hurt_helpers(":1:stop"),
            "the queue says running, its suspension is suspending",
        ),
        (
            "knows the processes of shims only",
            lambda campaign: campaign.kill_shim_at("helper-lock"),
            "the driver says locked",
        ),
    ],
    ids=list(PLANTS),
)
def test_the_checker_sees_a_daemon_that(
    moving: MovingWorld, plant: str, live_through: Callable[[SuspensionCampaign], list[str]], words: str
) -> None:
    assert words in _complaints(moving, plant, live_through)


def test_without_a_plant_there_is_nothing_to_complain_of(moving: MovingWorld) -> None:
    assert SuspensionCampaign(moving, IMPATIENT).live_without_crash() == []
