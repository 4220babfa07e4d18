"""-p: a command for each combination."""

from stories.outside import DIBS, World, wait_until


def _lines(text: str) -> list[str]:
    return [line.split("] ", 1)[1] for line in text.splitlines()]


def test_a_grid_is_expanded_in_order(world: World) -> None:
    ended = world.dibs(
        "run", "--gpus", "0", "-p", "lr", "0.1", "0.01", "-p", "bs", "32", "64", "--", "echo", "{lr}", "{bs}"
    )

    assert ended.status == 0, ended
    assert _lines(ended.stdout) == ["0.1 32", "0.1 64", "0.01 32", "0.01 64"]


def test_values_are_quoted_and_foreign_braces_stay(world: World) -> None:
    line = "printf '%s|' {x} '{\"a\": 1}' ${HOME:+home} {{x}}"

    ended = world.dibs("run", "--gpus", "0", "-p", "x", "a b", "$(touch BAD)", "'", "--", line)

    assert ended.status == 0, ended
    assert [text.split("|")[0] for text in _lines(ended.stdout)] == ["a b", "$(touch BAD)", "'"]
    assert all(text.split("|")[1:4] == ['{"a": 1}', "home", "{{x}}"] for text in _lines(ended.stdout))
    assert not (world.folder / "BAD").exists()


def test_a_shuffle_with_a_seed_is_the_same_each_time_and_only_so_many_samples_are_run(world: World) -> None:
    arguments = ("run", "--gpus", "0", "-p", "x", *map(str, range(20)), "--shuffle", "--seed", "1")

    first, second = (world.dibs(*arguments, "--", "echo", "{x}") for _ in range(2))
    some = world.dibs(*arguments, "--samples", "5", "--", "echo", "{x}")

    assert first.stdout == second.stdout
    assert sorted(map(int, _lines(first.stdout))) == list(range(20))
    assert _lines(first.stdout) != [str(number) for number in range(20)]
    assert len(set(_lines(some.stdout))) == len(_lines(some.stdout)) == 5


def test_a_trillion_points_start_at_once(world: World) -> None:
    axes = [word for axis in "abcdef" for word in ("-p", axis, *map(str, range(100)))]
    running = world.start(
        *("run", "--gpus", "0", *axes, "--shuffle", "--seed", "3", "--", "echo", "{a}{b}{c}{d}{e}{f}"),
        program=(DIBS,),  # a fork has the memory of its server
    )

    wait_until(lambda: running.stdout.count("\n") >= 3, show=lambda: running.stderr)
    with open(f"/proc/{running.pid}/status") as file:
        memory = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

    assert memory < 100_000  # kB
    running.kill()


def test_points_can_be_resumed(world: World) -> None:
    arguments = ("run", "--gpus", "0", "--output-dir", "out", "-p", "x", "1", "2", "3")
    command = ("--", "bash", "-c", "echo {x} >> seen; test {x} != 2 -o -e fixed")
    world.dibs(*arguments, *command)
    world.write("fixed", "")

    ended = world.dibs(*arguments, "--resume", *command)

    assert ended.status == 0, ended
    assert world.read("seen").split() == ["1", "2", "3", "2"]
