"""An upgrade is a restart: the new daemon takes over jobs whose supervisors are of an older version.

`tests/data/shims/1` holds the supervisors of that version; they are never changed.
"""

from pathlib import Path

from faults.queue_campaign import QueueCampaign
from faults.test_plants import planted
from stories.outside import World, open_store, wait_until

OLDER = Path(__file__).parents[1] / "data" / "shims" / "1"

# The daemon of today starts its supervisors from another folder.
OLD_SHIMS = """
    from dibs.supervise import launcher
    launcher._SOURCE = {folder!r}
"""


def test_jobs_of_an_older_version_are_adopted_and_their_exit_codes_read(world: World) -> None:
    world.environ |= {"DIBS_NO_START": "1"}
    campaign = QueueCampaign(world, seconds=0)
    old = world.start("daemon", "run", program=planted(world, OLD_SHIMS.format(folder=str(OLDER))))
    wait_until(lambda: "listens" in old.stderr, show=lambda: old.stderr)
    world.write(
        "jobs.txt", [f"touch up-{code}; until test -e go; do sleep 0.02; done; exit {code}" for code in (0, 7)]
    )
    added = world.dibs("add", "-f", "jobs.txt", "-t", "1h")
    assert added.status == 0, added
    wait_until(lambda: len(list(world.folder.glob("up-*"))) == 2, show=lambda: old.stderr)
    assert any(str(OLDER) in line for line in world.processes().values())

    old.kill()
    new = world.start("daemon", "run")
    wait_until(lambda: "listens" in new.stderr, show=lambda: new.stderr)
    before = world.dibs("ls", "--json").stdout
    world.write("go", "")
    waited = world.dibs("wait", "1", "2")
    world.dibs("daemon", "stop")

    assert before.count('"state": "running"') == 2
    assert waited.status == 7
    with open_store(campaign.root) as store:
        rows = store.execute("select state, exit_code, attempts from jobs order by id").fetchall()
    assert rows == [("succeeded", 0, 1), ("failed", 7, 1)]
    world.assert_nothing_is_left()
