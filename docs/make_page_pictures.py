"""Makes docs/pictures/page-*.png: the page of the real program, with real jobs on cards out of a file.

`python docs/make_page_pictures.py many` makes only those of a machine with 16 cards, `suspended` only that of
suspended jobs, whose driver is the fake of the tests; `--to DIR` is another folder.
The pictures differ a little from run to run, because times and measurements do: commit them when the page looks
different. `make docs` runs this.
"""

import argparse
import contextlib
import json
import os
import pwd
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from math import sin
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
BIN = Path(sys.executable).parent
PATIENCE = 60.0  # seconds
WIDE, NARROW = 1280, 390  # pixels
MANY = {1440: 900, 1280: 800, NARROW: 844}  # screens on which the large machine is shown
CARDS = 16  # that it has
HEIGHTS = {
    "now": 760,
    "jobs": 720,
    "job": 1300,
    "timeline": 480,
    "suspended": 330,
    "history": 760,
    "submit": 1060,
    "sweep": 1440,
}
# What is drawn here is the same wherever it is drawn: no sandbox for root, no graphics card.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--font-render-hinting=none"]

_TRAIN = r"""
import os, sys, time
metrics = open(os.environ["DIBS_METRICS"], "a", buffering=1)
print(f"\033[1mResNet-50\033[0m on ImageNet, learning rate \033[36m{sys.argv[-1]}\033[0m")
for step in range(50, 1_000_000, 50):
    loss, speed = 2.4 / (1 + step / 900) + 0.31, 2710 + step % 97
    print(f"loss={loss:.4f} accuracy={0.8 - 0.6 / (1 + step / 700):.4f} step={step} steps=20000", file=metrics)
    print(f"step {step:6}  \033[32mloss {loss:.4f}\033[0m  {speed} images/s", flush=True)
    if step % 500 == 0:
        print("\033[33mwarning\033[0m: the loader waits for the disk")
    time.sleep(0.01 if step < 3000 else 1)
"""
_OOM = """
import sys, time
time.sleep(3)
sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
"""
# A valley with a known best place: at a learning rate of 0.004, four layers, and adam.
_SEARCH = """
import math, os, random, sys
rate, layers, batch, optimizer = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
if rate > 0.06 and optimizer == "sgd":
    sys.exit("loss is nan")
loss = 0.21 + 0.13 * (math.log10(rate) + 2.4) ** 2 + 0.02 * abs(layers - 4) + 0.01 * math.log2(batch / 64) ** 2
loss += {"adam": 0, "lion": 0.03, "sgd": 0.09}[optimizer] + abs(random.gauss(0, 0.012))
with open(os.environ["DIBS_METRICS"], "a") as file:
    print(f"val_loss={loss:.4f}", file=file)
"""


def main() -> None:
    """Make every picture, or those of one machine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("machine", nargs="?", choices=["few", "many", "suspended"], help="one of them; all")
    parser.add_argument("--to", type=Path, default=PICTURES, help="the folder of the pictures")
    asked = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        for machine, take in (("few", _take_all), ("many", _take_many), ("suspended", _take_suspended)):
            if asked.machine in (None, machine):
                with (
                    tempfile.TemporaryDirectory(prefix="dibs-pictures-") as scratch,
                    _machine(machine, Path(scratch), asked.to) as queue,
                ):
                    take(browser, _said(["dibs", "web", "--no-open"], queue.environment).strip(), queue)
        browser.close()


def _take_many(browser: Browser, address: str, queue: "Queue") -> None:
    signed_in = _signed_in(browser, address)
    for width, height in MANY.items():
        for name, scheme in (("", "light"), ("-dark", "dark")):
            context = browser.new_context(
                storage_state=signed_in,
                color_scheme=scheme,  # type: ignore[arg-type]
                viewport={"width": width, "height": height},
            )
            page = context.new_page()
            _show(page, address.partition("#")[0], "now", queue)
            _take(page, f"page-many-{width}{name}", queue)
            context.close()


def _take_suspended(browser: Browser, address: str, queue: "Queue") -> None:
    context = browser.new_context(
        storage_state=_signed_in(browser, address), viewport={"width": WIDE, "height": HEIGHTS["suspended"]}
    )
    page = context.new_page()
    _show(page, address.partition("#")[0], "suspended", queue)
    _take(page, "page-timeline-suspended", queue)
    context.close()


def _signed_in(browser: Browser, address: str) -> Any:
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.locator(".connection-live").wait_for()
    state = context.storage_state()
    context.close()
    return state


def _take_all(browser: Browser, address: str, queue: "Queue") -> None:
    signed_in = _signed_in(browser, address)
    for name, width, scheme, views in (
        ("", WIDE, "light", ("now", "jobs", "job", "timeline", "history", "submit")),
        ("-dark", WIDE, "dark", ("now", "jobs", "job", "history")),
        ("-narrow", NARROW, "light", ("now", "jobs", "job")),
        ("", WIDE, "light", ("sweep",)),
        ("-dark", WIDE, "dark", ("sweep",)),
        ("-narrow", NARROW, "light", ("sweep",)),
    ):
        if "sweep" in views and not queue.sweep:
            queue.search()  # after the others: its jobs would be everywhere in them
        context = browser.new_context(storage_state=signed_in, color_scheme=scheme)  # type: ignore[arg-type]
        page = context.new_page()
        for view in views:
            page.set_viewport_size({"width": width, "height": HEIGHTS[view] if width == WIDE else 800})
            _show(page, address.partition("#")[0], view, queue)
            _take(page, f"page-{view}{name}", queue)
        context.close()


def _show(page: Page, place: str, view: str, queue: "Queue") -> None:
    is_wide = (page.viewport_size or {"width": WIDE})["width"] >= WIDE
    paths = {
        "now": "now",
        "jobs": "jobs?columns=name,project,state,metrics,gpus,seconds" if is_wide else "jobs",
        "job": f"job/{queue.shown}",
        "timeline": "timeline?hours=0.02",
        "suspended": "timeline?hours=0.018",
        "history": "history",
        "submit": "submit",
        "sweep": f"sweeps/{queue.sweep}",
    }
    page.goto("about:blank")
    page.goto(f"{place}#/{paths[view]}")
    page.locator(".connection-live").wait_for()
    page.locator("main").locator("h1, [role=table]").first.wait_for()
    if view == "submit":
        page.get_by_label("Name", exact=True).fill("lr-search")
        page.get_by_label("Folder").fill("/home/ben/vision")
        lines = [f"python train.py --lr {rate}" for rate in ("0.1", "0.03", "0.01")]
        page.get_by_label("Commands").fill("\n".join(lines))
        page.get_by_label("Time limit").fill("2h")
        page.get_by_role("button", name="Dry run").click()
        page.get_by_role("region", name="dry run").wait_for()
        page.evaluate("() => scrollTo(0, 0)")
    if view == "sweep":
        page.get_by_role("region", name="importance").get_by_role("term").first.wait_for()
        if page.viewport_size and page.viewport_size["width"] == WIDE:
            _brush(page)
    page.wait_for_timeout(1500)  # what is asked for in the second place


def _brush(page: Page) -> None:
    """Choose the lower part of the last axis, which is the metric."""
    line = page.locator(".sweep-axis line").last.bounding_box()
    assert line is not None
    page.mouse.move(line["x"], line["y"] + line["height"] + 4)
    page.mouse.down()
    page.mouse.move(line["x"], line["y"] + line["height"] * 0.75, steps=4)
    page.mouse.up()
    page.mouse.move(4, 4)


def _take(page: Page, name: str, queue: "Queue") -> None:
    # The user in them is called ben, and has a home.
    page.evaluate(
        """names => { const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            while (walk.nextNode()) for (const [old, shown] of names)
              walk.currentNode.data = walk.currentNode.data.replaceAll(old, shown); }""",
        [
            [str(queue.home), "/home/ben"],
            [str(queue.state), "/home/ben/.local/state/dibs"],
            [pwd.getpwuid(os.geteuid()).pw_name, "ben"],
        ],
    )
    path = queue.pictures / f"{name}.png"
    page.screenshot(path=path, animations="disabled")
    print(f"{path.name}: {path.stat().st_size // 1024 + 1} KiB")


class Queue:
    """A daemon with cards of a file, and jobs that ran, run and wait."""

    def __init__(self, scratch: Path, cards: Path, pictures: Path) -> None:
        self.pictures = pictures
        self.shown = 0
        self.sweep = 0
        self.home, self.state = scratch / "home", scratch / "state"
        self.place = self.home / "vision"
        self.place.mkdir(parents=True)
        (self.place / "train.py").write_text(_TRAIN)
        (self.place / "wide.py").write_text(_OOM)
        (self.place / "search.py").write_text(_SEARCH)
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "USER") if name in os.environ}
        self.environment = {
            **kept,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(scratch / "config"),  # not with the settings of the user who makes them
            "DIBS_STATE": str(self.state),
            "DIBS_LEASES": str(scratch / "leases"),
            "DIBS_PROBE": f"fake:{cards}",
        }

    def add(self, name: str, command: str, *words: str) -> int:
        line = ["dibs", "add", "--parsable", "-J", name, *words, "--", *command.split()]
        return int(_said(line, self.environment, self.place).split("-")[0])

    def search(self) -> None:
        """A whole sweep, from the first trial to the last."""
        space = ["-p", "lr", "1e-4..1e-1:log", "-p", "layers", "1..8", "-p", "bs", "32", "64", "128"]
        choices = ["-p", "optimizer", "adam", "sgd", "lion", "-J", "valley", "-P", "vision", "-n", "0"]
        wanted = [
            "--samples",
            "120",
            "--method",
            "adaptive",
            "--seed",
            "7",
            "--metric",
            "val_loss",
            "--parallel",
            "4",
        ]
        command = "python3 search.py {lr} {layers} {bs} {optimizer}"
        added = ["dibs", "sweep", command, *space, *choices, *wanted, "--json"]
        self.sweep = int(json.loads(_said(added, self.environment, self.place))["id"])
        self.dibs("sweep", "wait", str(self.sweep), check=False)

    def dibs(self, *words: str, check: bool = True) -> None:
        subprocess.run(["dibs", *words], cwd=ROOT, env=self.environment, capture_output=True, check=check)


def _machine(name: str, scratch: Path, pictures: Path) -> contextlib.AbstractContextManager[Queue]:
    if name == "suspended":
        return _suspending_queue(scratch, pictures)
    return _queue(scratch, pictures, is_large=name == "many")


@contextlib.contextmanager
def _suspending_queue(scratch: Path, pictures: Path) -> Iterator[Queue]:
    """One card whose driver can suspend jobs: a long one stands aside for two urgent ones, and once by hand."""
    sys.path.insert(0, str(ROOT / "tests"))
    from cuda.machine import FAKE_PROGRAM, GB, FakeMachine

    machine = FakeMachine(scratch / "driver")
    queue = Queue(scratch, machine.folder / "cards.json", pictures)
    queue.environment |= machine.environ | {"DIBS_READING_SECONDS": "0.1"}

    def program(name: str, *options: str, seconds: int = 600) -> int:
        ledger = machine.folder / name
        steps = 190 * seconds
        return queue.add(name, f"python3 -S {FAKE_PROGRAM} {ledger} --bytes {10 * GB} --steps {steps}", *options)

    try:
        program("pretrain", "--preemptible", "-P", "vision")
        time.sleep(10)
        for name, seconds in (("demo", 8), ("evaluate", 6)):
            queue.dibs("wait", "-q", str(program(name, "--urgent", "-P", "language", seconds=seconds)))
            time.sleep(9)
        queue.dibs("suspend", "pretrain")
        program("short", "-P", "speech")
        time.sleep(9)
        yield queue
    finally:
        queue.dibs("daemon", "stop", "--jobs", check=False)


@contextlib.contextmanager
def _queue(scratch: Path, pictures: Path, *, is_large: bool) -> Iterator[Queue]:
    cards = scratch / "cards.json"
    stranger = subprocess.Popen(["sleep", "600"])
    world = json.loads((ROOT / "tests" / "data" / "readings" / "four_cards.json").read_text())
    first = world["gpus"][0]
    first["processes"][0]["pid"] = stranger.pid
    world["gpus"][3] |= {"name": "NVIDIA H200", "memory_total": first["memory_total"], "memory_used": 0}
    if is_large:
        world["gpus"] += [
            {**world["gpus"][1], "index": number, "uuid": f"GPU-{number:08}-0000-4000-8000-000000000000"}
            for number in range(4, CARDS)
        ]
    over = threading.Event()
    life = threading.Thread(target=_live, args=(cards, world, over, CARDS - 2 if is_large else 3))
    _write(cards, world)
    queue = Queue(scratch, cards, pictures)
    try:
        life.start()
        (_fill_many if is_large else _fill)(queue)
        yield queue
    finally:
        over.set()
        life.join()
        queue.dibs("daemon", "stop", "--jobs", check=False)
        stranger.kill()
        stranger.wait()


def _fill_many(queue: Queue) -> None:
    """A busy machine: cards that are shared, held together, drained and free, and 40 jobs."""
    bad = [queue.add(name, f"python3 {file}") for name, file in (("wide-net", "wide.py"), ("typo", "trian.py"))]
    queue.dibs("wait", "-q", *map(str, bad), check=False)
    queue.dibs("gpus", "drain", "14", "--why", "a loud fan")
    queue.add("tiles", "sleep 600", "--array", "1-8", "--share", "1/8", "--only", "1", "-t", "1h")
    queue.add("halves", "sleep 600", "--array", "1-2", "--share", "1/2", "--only", "2", "-t", "2h")
    queue.add("pipeline", "sleep 600", "-n", "2", "--only", "3,4", "-P", "language", "-t", "8h")
    for number in range(5, 14):
        queue.add(f"resnet-{number * 10}", "sleep 600", "--only", str(number), "-P", "vision", "-t", "4h")
    for rate in ("0.1", "0.03", "0.01", "0.003", "0.001", "0.0003", "0.0001", "3e-5"):
        queue.add(f"llama-{rate}", "sleep 600", "-n", "4", "-P", "language", "-t", "12h")
    for number in range(4):
        queue.add(f"evaluate-{number}", "sleep 600", "--after", "4", "-P", "vision")
    queue.add("second-tiles", "sleep 600", "--array", "1-4", "--only", "1", "-P", "speech")
    for name in ("later", "ablation-a", "ablation-b"):
        queue.add(name, "sleep 600", "-P", "speech", "--hold")
    _wait_for(queue, 20)


def _wait_for(queue: Queue, running: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while f'"running": {running}' not in _said(["dibs", "daemon", "status", "--json"], queue.environment):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(25)  # for charts with something in them


def _fill(queue: Queue) -> None:
    for number, (project, seconds) in enumerate((("vision", 6), ("language", 9), ("vision", 4), ("speech", 7))):
        queue.add(f"warm-up-{number}", f"sleep {seconds}", "-P", project, "-t", "10m")
    broken = queue.add("wide-net", "python3 wide.py --width 4096", "-P", "vision")
    typo = queue.add("typo", "python3 trian.py --lr 0.1", "-P", "language")
    queue.dibs("wait", "-q", str(broken), str(typo), check=False)
    queue.shown = queue.add("resnet-baseline", "python3 train.py --lr 0.1", "-P", "vision", "-t", "4h")
    queue.add("tokenizer", "sleep 600", "-P", "language", "-t", "2h")
    for rate in ("0.1", "0.03", "0.01"):
        queue.add(f"lr-{rate}", "sleep 600", "-P", "vision", "-t", "30m")
    queue.add("two-cards", "sleep 600", "-P", "language", "-n", "2")
    queue.add("evaluate", "sleep 600", "-P", "vision", "--after", str(queue.shown))
    queue.add("later", "sleep 600", "-P", "speech", "--hold")
    _wait_for(queue, 3)


def _live(cards: Path, world: Any, over: threading.Event, busy: int) -> None:
    """Let the cards do something: a load that wavers, memory that fills."""
    turn = 0
    while not over.wait(0.5):
        turn += 1
        for card in world["gpus"][:busy]:
            place = card["index"]
            card["load"] = max(
                0, min(100, round(84 - 3 * (place % 6) + 10 * sin(turn / 3 + place) + 6 * sin(turn * 1.7)))
            )
            if place:
                card["memory_used"] = int((21 + 3 * place + min(turn, 40) / 4) * 2**30)
                card["power"] = 310.0 + 2.2 * card["load"] + 7 * sin(turn)
                card["temperature"] = 55 + place + min(turn // 6, 9)
        _write(cards, world)


def _write(cards: Path, world: object) -> None:
    new = cards.with_suffix(".new")
    new.write_text(json.dumps(world))
    new.rename(cards)


def _said(command: list[str], environment: dict[str, str], place: Path = ROOT) -> str:
    ended = subprocess.run(command, cwd=place, env=environment, capture_output=True, check=True, text=True)
    return ended.stdout


if __name__ == "__main__":
    main()
