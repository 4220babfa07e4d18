"""The machine stops: everything is gone at once, and comes back with another boot id."""

from faults.campaign import Campaign, kill_everything
from stories.outside import World, open_store, wait_until

OLD, NEW = {"DIBS_FAKE_BOOT_ID": "before"}, {"DIBS_FAKE_BOOT_ID": "after"}


def test_after_a_reboot_the_running_are_lost_the_queue_is_intact_and_the_gpus_are_free(world: World) -> None:
    campaign = Campaign(world, jobs=6, seconds=60, gpus=2)
    running = campaign.start(env=OLD)
    wait_until(lambda: len(world.ledger.started()) == 2, show=lambda: running.stderr)

    kill_everything(world)
    world.ledger.cut()
    free = world.holders()
    again = campaign.start(env=NEW)
    # The lost ones are named by the list and so run again: the person asked for it with --resume.
    wait_until(lambda: len(world.ledger.started()) == 4, show=lambda: again.stderr)
    kill_everything(world)

    assert free == []
    assert again.stderr.count("was lost") == 2
    with open_store(campaign.root) as store:
        causes = store.execute("select job, number, cause from attempts where ended_at is not null").fetchall()
        (jobs,) = store.execute("select count(*) from jobs").fetchone()
    assert causes == [(1, 1, "lost"), (2, 1, "lost")]
    assert jobs == 6
