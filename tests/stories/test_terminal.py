"""One command on a terminal: as without dibs."""

import signal
import termios
from collections.abc import Callable, Iterator

import pytest

from stories.outside import World, wait_until
from stories.terminal import Session

Open = Callable[..., Session]


@pytest.fixture
def session(world: World) -> Iterator[Open]:
    opened: list[Session] = []

    def start(*arguments: str, **more: tuple[int, int]) -> Session:
        opened.append(Session(world, "run", "--gpus", "0", *arguments, **more))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_the_command_has_a_terminal_of_the_same_size(session: Open) -> None:
    here = session("--", "bash", "-c", "test -t 0 -a -t 1 -a -t 2 && stty size && tty", size=(33, 77))

    here.expect("33 77")
    here.expect("/dev/pts/")

    assert here.wait() == 0


def test_a_changed_window_is_seen(session: Open) -> None:
    here = session("--", "bash", "-c", "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done")
    here.expect("ready")

    here.resize(40, 132)

    here.expect("40 132")


def test_a_prompt_is_answered_and_the_exit_code_passed_on(session: Open) -> None:
    here = session("--", "bash", "-c", "read -p 'how many? ' n; exit $n")
    here.expect("how many? ")

    here.type("42\r")

    assert here.wait() == 42


def test_a_secret_is_not_shown(session: Open) -> None:
    here = session("--", "bash", "-c", "read -s -p 'password: ' x; echo; echo got ${#x}")
    here.expect("password: ")

    here.type("hunter2\r")
    here.expect("got 7")

    assert b"hunter2" not in here.text
    assert here.wait() == 0


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("bash", "-c", "trap 'echo caught; exit 5' INT; echo ready; read line"), 5),
        (("bash", "-c", "echo ready; exec sleep 60"), 130),
        (("yes", "ready"), 130),
    ],
    ids=["one that catches it", "one that does not", "a flood of output"],
)
def test_ctrl_c_reaches_the_command(session: Open, command: tuple[str, ...], status: int) -> None:
    here = session("--", *command)
    here.expect("ready")

    here.type("\x03")

    assert here.wait() == status


def test_ctrl_d_is_the_end_of_input(session: Open) -> None:
    here = session("--", "cat")
    here.type("hello\r")
    here.expect("hello\r\nhello")

    here.type("\x04")

    assert here.wait() == 0


def test_the_terminal_is_given_back_as_it_was(world: World, session: Open) -> None:
    here = session("--", "bash", "-c", "stty raw -echo; echo done")
    before = termios.tcgetattr(here._fd)

    assert here.wait() == 0
    after = termios.tcgetattr(here._fd)

    assert after[:4] == before[:4]


def test_a_command_that_is_tried_again_has_the_terminal_again(session: Open) -> None:
    here = session("--retries", "1", "--", "bash", "-c", "test -t 0 && read -p 'try? ' n; exit $n")
    here.expect("try? ")
    here.type("3\r")

    here.expect("try? ")
    here.type("4\r")

    assert here.wait() == 4


def test_after_a_kill_the_command_goes_on_and_its_output_lands_in_the_log(world: World, session: Open) -> None:
    job = "echo ready; until test -e go; do sleep 0.02; done; seq 3; echo last words; touch gone"
    here = session("--", "bash", "-c", job)
    here.expect("ready")

    here.kill()
    world.write("go", "")
    wait_until(lambda: (world.folder / "gone").exists())
    world.assert_nothing_is_left()

    (log,) = world.state.glob("runs/*/attempts/*/*/stdout")
    assert log.read_bytes().replace(b"\r", b"") == b"ready\n1\n2\n3\nlast words\n"


def test_a_command_that_outlived_dibs_is_adopted_on_a_terminal(world: World, session: Open) -> None:
    command = ("--", "bash", "-c", "echo ready; until test -e go; do sleep 0.02; done; exit 6")
    first = session("--output-dir", "out", *command)
    first.expect("ready")
    first.kill()

    second = session("--output-dir", "out", "--resume", *command)
    second.expect("going on with it")
    world.write("go", "")

    assert second.wait() == 6


def test_a_list_on_a_terminal_shows_progress_and_stops_at_ctrl_c(world: World, session: Open) -> None:
    world.write("jobs.txt", [world.ledger.held(number) for number in range(3)])
    here = session("-f", "jobs.txt")
    here.expect("1 running")
    wait_until(lambda: world.ledger.started())

    here.type("\x03")
    here.expect("nothing more is started")
    world.write("go", "")

    assert here.wait() == 128 + signal.SIGINT
    assert world.ledger.ended() == ["0"]


def test_output_in_a_list_cannot_command_the_terminal(world: World, session: Open) -> None:
    world.write("jobs.txt", ["printf '\\e]52;c;aGk=\\a\\e[2Jvisible\\n'"])
    here = session("-f", "jobs.txt")

    assert here.wait() == 0
    assert b"visible" in here.text
    assert b"\x1b]52" not in here.text and b"\x1b[2J" not in here.text
