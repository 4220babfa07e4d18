"""A crash test counts only once it has been shown to fail: each plant is a bug, and the checker must see it.

The plants are put into dibs by a small program that changes it before it runs; dibs itself knows nothing of them.
"""

import os
import signal
import sys
import textwrap
from contextlib import suppress

import pytest

from faults.campaign import Campaign
from stories.fork_server import PLANTED
from stories.outside import World, wait_until

# The second fence, the record that says "started before", would hide the first one's failure.
_WITHOUT_FENCE = """
        import os
        from dibs.engine.launch.launcher import Place
        honest_folder = Place.attempt_folder
        Place.attempt_folder = lambda self, *key: f"{honest_folder(self, *key)}-{os.urandom(4).hex()}"
"""

PLANTS = {
    # A lost job is taken for one that never ran.
    "requeues the lost": """
        from dibs.engine.launch import settlement
        from dibs.policy.outcomes import Verdict
        honest = settlement.settle
        def settle(**facts):
            verdict = honest(**facts)
            return Verdict.NEVER_RAN if verdict in (Verdict.LOST, Verdict.KEPT) else verdict
        settlement.settle = settle
    """
    + _WITHOUT_FENCE,
    # The intent is not written down before the act.
    "records nothing before it starts": """
        from dibs.store.store import Store
        Store.open_attempt = lambda self, attempt: None
    """
    + _WITHOUT_FENCE,
    # After a restart, running attempts are not looked for.
    "forgets the running": """
        from dibs.store.store import Store
        honest = Store.open_attempts
        def open_attempts(self):
            self._db.execute("delete from attempts where ended_at is null")
            self._db.execute("update jobs set state = 'queued' where state = 'running'")
            return honest(self)
        Store.open_attempts = open_attempts
    """,
    # The claims are not handed to the command.
    "keeps the leases to itself": """
        from dibs.backends.local import LocalBackend
        from dataclasses import replace
        honest = LocalBackend._start
        LocalBackend._start = lambda self, one, local: honest(self, one, replace(local, leases=()))
        from dibs.store.store import Store
        Store.open_attempts = lambda self: []
    """,
}


def planted(world: World, plant: str) -> tuple[str, str]:
    """The program that runs dibs with this bug in it."""
    program = textwrap.dedent(plant) + "\nfrom dibs.cli.main import main\nmain()\n"
    (world.folder.parent / PLANTED).write_text(program)
    return sys.executable, str(world.folder.parent / PLANTED)


def _crash_while_jobs_run(campaign: Campaign, *, kill_shims: bool, held: bool = False) -> int:
    """Kill the engine, and perhaps the supervisors, while jobs run; come back at once.

    Jobs that are held run still when the next engine starts others, or waits for theirs to end.
    """
    running = campaign.start()
    wait_until(lambda: len(campaign.world.ledger.running()) == 3, show=lambda: running.stderr)
    shims = campaign.shims() if kill_shims else []
    running.kill()
    for pid in shims:
        with suppress(ProcessLookupError):  # one whose job is over ends with its engine
            os.kill(pid, signal.SIGKILL)
    if held:
        again = campaign.start()
        wait_until(
            lambda: len(campaign.world.ledger.started()) > 3 or "waits for a GPU" in again.stderr,
            show=lambda: again.stderr,
        )
        campaign.world.write("go", "")
        campaign.said.append(again.wait().stderr)
    while (status := campaign.finish()) != 0 and len(campaign.said) < 4:
        pass
    return status


@pytest.mark.parametrize("kill_shims", [False, True], ids=["engine", "engine and shims"])
def test_without_a_plant_there_is_nothing_to_complain_of(world: World, kill_shims: bool) -> None:
    campaign = Campaign(world, jobs=6, seconds=2.5)

    status = _crash_while_jobs_run(campaign, kill_shims=kill_shims)

    assert status == 0
    assert campaign.complaints(may_be_lost=3 if kill_shims else 0) == []


@pytest.mark.parametrize(
    "plant, kill_shims, words",
    [
        ("requeues the lost", True, "was started 2 times and lost 0 times"),
        ("records nothing before it starts", False, "was started 2 times"),
        ("forgets the running", False, "was started 2 times"),
        ("keeps the leases to itself", False, "at once"),
    ],
)
def test_the_checker_sees_a_run_that(world: World, plant: str, kill_shims: bool, words: str) -> None:
    campaign = Campaign(world, jobs=6, seconds=0, program=planted(world, PLANTS[plant]))
    world.write("jobs.txt", [world.ledger.held(name) for name in campaign.jobs])

    _crash_while_jobs_run(campaign, kill_shims=kill_shims, held=True)

    complaints = campaign.complaints(may_be_lost=3)
    assert any(words in complaint for complaint in complaints), complaints
