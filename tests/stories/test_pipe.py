"""A list from a pipe."""

from stories.outside import World


def test_each_line_of_a_pipe_is_a_job_with_a_gpu_of_its_own(world: World) -> None:
    jobs = world.ledger.rounds(6, at_once=3)

    ended = world.dibs("run", "--gpus", "0,1,2", input="\n".join(jobs))

    assert ended.status == 0, ended
    assert sorted(world.ledger.ended()) == list("012345")
    assert set(world.ledger.gpus().values()) == {"0", "1", "2"}
    assert world.ledger.overlaps() == []
    world.assert_nothing_is_left()


def test_a_long_list_of_silent_successes_leaves_a_handful_of_folders(world: World) -> None:
    jobs = ["true"] * 60 + ["echo I have something to say"] + ["true"] * 20

    ended = world.dibs("run", "--gpus", "0,1", input="\n".join(jobs))

    assert ended.status == 0, ended
    folders = list(world.state.glob("runs/*/attempts/*/*"))
    # A command that a busy machine made last for seconds was measured, and keeps its folder.
    unmeasured = [folder for folder in folders if not (folder / "usage.json").exists()]
    assert len(unmeasured) <= 2 * 2 + 1, unmeasured
    assert [path.read_text() for path in world.state.glob("runs/*/attempts/0/61.1/stdout")] == [
        "I have something to say\n"
    ]
