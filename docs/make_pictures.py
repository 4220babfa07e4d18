"""Makes docs/pictures/*.svg: runs the real program in a terminal and draws what stands on its screen.

A picture is written again only when something other than numbers and the order of the jobs' lines has changed:
these differ from run to run, and a review would have to read them. The user in them is called ben.
"""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import pty
import pwd
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import draw_sweep
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
BIN = Path(sys.executable).parent
WIDTH, WIDE = 100, 116  # columns; the program is told of fewer, for fonts that are a little too wide
PATIENCE = 60.0  # seconds

_THEME = TerminalTheme(
    (24, 26, 31),
    (215, 218, 224),
    [(63, 68, 81), (224, 108, 117), (140, 194, 101), (209, 154, 102),
     (74, 165, 240), (193, 98, 222), (66, 179, 194), (215, 218, 224)],
    [(130, 137, 151), (255, 97, 110), (165, 224, 117), (240, 164, 93),
     (77, 196, 255), (222, 115, 255), (76, 209, 224), (255, 255, 255)],
)  # fmt: skip

# Rich's own frame loads a font from the network; a terminal in the docs is content with the reader's.
_FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; \
font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> None:
    """Make every picture."""
    with tempfile.TemporaryDirectory(prefix="dibs-pictures-") as scratch:
        environment = _environment(Path(scratch))
        _draw("help", "dibs run --help", _last_screen(["dibs", "run", "--help"], environment))
        command = ["dibs", "run", "--gpus", "0,1,2", "-f", "examples/commands.txt"]
        shown = "dibs run --gpus 0,1,2 -f examples/commands.txt"
        running, done = _demo(command, environment)
        _draw("running", shown, running)
        _draw("demo", shown, done)
        with _busy_machine(environment, Path(scratch)) as busy:
            _draw("gpus", "dibs gpus", _gpus(busy), WIDE)
        with _queue(environment, Path(scratch)) as queue:
            _draw("ls", "dibs ls", _last_screen(["dibs", "ls"], queue, WIDE), WIDE)
            _draw("why", "dibs why wide", _broken(_last_screen(["dibs", "why", "wide"], queue, WIDE)), WIDE)
            _draw("marks", "dibs gpus", _gpus(queue), WIDE)
        _draw_sweep({**environment, "DIBS_STATE": str(Path(scratch) / "sweep"), "DIBS_POOL": "0"})


def _draw_sweep(environment: Mapping[str, str]) -> None:
    """The search of the examples, one trial at a time, and drawn again only when it or the drawing has changed."""
    path = PICTURES / "sweep.svg"
    shown_by = [ROOT / "src" / "dibs" / "cli" / name for name in ("sweep_look.py", "sweep_words.py")]
    sources = [Path(draw_sweep.__file__), *shown_by, *(ROOT / "examples").glob("sweep_branin.*")]
    together = b"".join(source.read_bytes() for source in sorted(sources))
    mark = f"<!-- {hashlib.blake2b(together, digest_size=8).hexdigest()} -->"
    if path.exists() and mark in path.read_text():
        print(f"{path.relative_to(ROOT)}: nothing new")
        return
    words = ["examples/sweep_branin.yaml", "--parallel", "1", "--wait", "--quiet"]
    try:
        subprocess.run(["dibs", "sweep", *words], cwd=ROOT, env=dict(environment), capture_output=True, check=True)
        trials = json.loads(_said(["dibs", "sweep", "results", "--json"], environment))["trials"]
        screen = _last_screen(["dibs", "sweep", "show"], environment)
    finally:
        stop = ["dibs", "daemon", "stop", "--jobs"]
        subprocess.run(stop, env=dict(environment), stderr=subprocess.DEVNULL, check=False)
    home = re.escape(environment["DIBS_STATE"])
    _draw("sweep-show", "dibs sweep show", [re.sub(home, "~/.local/state/dibs", line) for line in screen])
    path.write_text(f"{draw_sweep.draw(trials)}{mark}\n")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024 + 1} KiB")


def _gpus(environment: Mapping[str, str]) -> list[str]:
    screen = _last_screen(["dibs", "gpus"], environment, WIDE)
    me = pwd.getpwuid(os.geteuid()).pw_name
    gap = " " * (len(me) - len("ben"))  # the columns behind the name stay where they are
    return [re.sub(rf"\b{re.escape(me)}: (.*?)(?=  )", rf"ben: \1{gap}", line) for line in screen]


def _demo(command: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The screen in the middle of the run, and the one at its end."""
    running: list[str] = []
    screen: list[str] = []
    for screen in _screens(command, environment):
        if "3 running" in screen[-1] and " left" in screen[-1]:
            running = screen
    table = next(place for place, line in enumerate(screen) if re.match(r"job +GPU ", _plain(line)))
    return running[:1] + running[-14:], screen[:1] + screen[max(1, table - 8) :]


@contextlib.contextmanager
def _queue(environment: Mapping[str, str], scratch: Path) -> Iterator[dict[str, str]]:
    """A queue in which jobs run, wait for every kind of reason, and have ended; one card is drained."""
    cards = scratch / "queue.json"
    with _cards_with_a_stranger(cards):
        queue = {**environment, "DIBS_STATE": str(scratch / "queue"), "DIBS_PROBE": f"fake:{cards}"}

        def dibs(*words: str) -> None:
            subprocess.run(["dibs", *words], cwd=ROOT, env=queue, capture_output=True, check=True)

        def add(name: str, *words: str, seconds: float = 600) -> None:
            train = ["python3", "examples/train.py", "--lr", "0.1", "--seconds", str(seconds)]
            dibs("add", "-q", "-J", name, *words, "--", *train)

        try:
            add("warm-up", seconds=0.1)
            dibs("wait", "-q", "warm-up")
            dibs("add", "-q", "-J", "typo", "--", "python3", "exmaples/train.py")
            subprocess.run(["dibs", "wait", "-q", "typo"], env=queue, check=False)
            dibs("gpus", "drain", "3")
            add("baseline", "-P", "vision", "-t", "2h")
            add("lr-0.1", "-P", "vision", "-t", "30m")
            add("wide", "-P", "language", "-n", "2")
            add("test", "--after", "baseline")
            add("at-night", "--begin", "23:59")
            add("later", "--hold")
            deadline = time.monotonic() + PATIENCE
            while b'"running": 2' not in _said(["dibs", "daemon", "status", "--json"], queue):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield queue
        finally:
            subprocess.run(["dibs", "daemon", "stop", "--jobs"], env=queue, stderr=subprocess.DEVNULL, check=False)


def _said(command: Sequence[str], environment: Mapping[str, str]) -> bytes:
    return subprocess.run(command, env=dict(environment), stdout=subprocess.PIPE, check=True).stdout


@contextlib.contextmanager
def _cards_with_a_stranger(cards: Path) -> Iterator[None]:
    """Four cards in a file; a process that is no job computes on the first of them."""
    world = json.loads((ROOT / "tests" / "data" / "readings" / "four_cards.json").read_text())
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        world["gpus"][0]["processes"][0]["pid"] = stranger.pid  # a process counts only while it lives
        cards.write_text(json.dumps(world))
        yield
    finally:
        stranger.kill()
        stranger.wait()


@contextlib.contextmanager
def _busy_machine(environment: Mapping[str, str], scratch: Path) -> Iterator[dict[str, str]]:
    """Four cards of a file: one with a stranger's process, one with a job of ours, one with half a job."""
    cards = scratch / "cards.json"
    busy = {**environment, "DIBS_PROBE": f"fake:{cards}"}
    lists = [("1", "[name=baseline] sleep 600\n"), ("2,2", "[name=lr-0.1] sleep 600\n")]
    with _cards_with_a_stranger(cards), _runs(lists, busy):
        yield busy


@contextlib.contextmanager
def _runs(lists: Sequence[tuple[str, str]], busy: Mapping[str, str]) -> Iterator[None]:
    """Runs with these GPUs and lists, whose jobs have started."""
    runs = []
    try:
        for gpus, text in lists:
            run = subprocess.Popen(
                ["dibs", "run", "--json", "--gpus", gpus],
                env=dict(busy),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            runs.append(run)
            assert run.stdin and run.stdout
            run.stdin.write(text.encode())
            run.stdin.close()
            for _ in range(text.count("\n")):
                while b'"started"' not in run.stdout.readline():
                    pass
        yield
    finally:
        for run in runs:
            for _ in range(3):  # stop, ask, kill
                run.send_signal(signal.SIGTERM)
                time.sleep(0.1)
            run.wait()


def _environment(scratch: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "USER") if name in os.environ}
    return {
        **kept,
        "LC_ALL": "C.UTF-8",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "TERM": "xterm-256color",
        "DIBS_STATE": str(scratch / "state"),
        "DIBS_LEASES": str(scratch / "leases"),
        "DIBS_PROBE": "none",
    }


# -- a small terminal --------------------------------------------------------------------------------------


def _last_screen(command: Sequence[str], environment: Mapping[str, str], width: int = WIDTH) -> list[str]:
    return list(_screens(command, environment, width))[-1]


def _screens(command: Sequence[str], environment: Mapping[str, str], width: int = WIDTH) -> Iterator[list[str]]:
    """What stands on the terminal, again and again until the command has ended; it must succeed."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width - 4, 0, 0))
    process = subprocess.Popen(
        command, cwd=ROOT, env=dict(environment), stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    written = b""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and select.select([master], [], [], PATIENCE)[0]:
        try:
            data = os.read(master, 65536)
        except OSError:  # the other side is closed
            break
        written += data
        yield _lines(written)
    os.close(master)
    if process.wait(timeout=10) != 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{written.decode()}")


def _lines(written: bytes) -> list[str]:
    """The lines as they stand: of one that was drawn over, what was drawn last."""
    lines = written.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    shown = [line.rpartition("\r\x1b[K")[2] for line in lines]
    return shown if shown[-1] else shown[:-1]


def _broken(lines: Sequence[str]) -> list[str]:
    """Long lines as a terminal breaks them."""
    width = WIDE - 4
    return [line[start : start + width] for line in lines for start in range(0, len(line), width)]


def _plain(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


# -- drawing -----------------------------------------------------------------------------------------------


def _draw(name: str, command: str, lines: Sequence[str], width: int = WIDTH) -> None:
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")), soft_wrap=True)
    for line in lines:
        console.print(Text.from_ansi(line), overflow="ellipsis", no_wrap=True, crop=True)
    svg = console.export_svg(title="", theme=_THEME, code_format=_FRAME, unique_id=name)
    svg = "\n".join(line.rstrip() for line in svg.splitlines() if line.strip())
    mark = f"<!-- {_shape(lines)} -->"
    path = PICTURES / f"{name}.svg"
    if path.exists() and mark in path.read_text():
        print(f"{path.relative_to(ROOT)}: nothing new")
        return
    PICTURES.mkdir(exist_ok=True)
    path.write_text(f"{svg}\n{mark}\n")
    print(f"{path.relative_to(ROOT)}: {len(svg) // 1024 + 1} KiB")


def _shape(lines: Sequence[str]) -> str:
    """A name for what a screen looks like, whatever the numbers in it and whichever job was faster."""
    plain = [re.sub(r"[0-9]+(\.[0-9]+)?", "0", _plain(line)) for line in lines]
    plain = [re.sub(r"^\[[^]]+\] .*", "[job]", re.sub(r"( 0:[\w-]+)+", " 0:job", line)) for line in plain]
    return hashlib.blake2b("\n".join(sorted(set(plain))).encode(), digest_size=8).hexdigest()


if __name__ == "__main__":
    main()
