"""The page's table of very many jobs in a real browser: its first load, frames while it is scrolled, and sorting.

A busy machine makes frames late, so the CPU time that the page's main thread needs for a frame is measured, too:
it depends on the load much less.
"""

import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from dibs_daemon import Daemon
from fill import fill
from peers import Say, Scratch
from playwright.sync_api import CDPSession, Page, sync_playwright
from report import Report, Table, Target, number

SPEEDS = (100, 4_000)  # pixels a frame: a quick wheel, and a fling through everything
SLOWED = 4  # times, by the browser's own throttling of the CPU
FRAMES = 150
ORDERS = ("seconds", "name", "project", "changed", "gpus", "metric.loss")
MOST_SCRIPT = 70_000  # bytes, compressed
MOST_FRAME = 20.0  # ms: 50 frames a second
MOST_BLANK = 100.0  # ms
MOST_SORT = 0.5  # seconds
_CHROMIUM = ("chromium-headless-shell", "chromium")
_WIDTH, _HEIGHT = 1280, 800

# Scrolls down by so many pixels a frame. A row is blank where nothing stands in the middle of the table; a
# placeholder stands for a row that is read at this moment.
_SCROLL = """async ([speed, frames]) => {
  const one = document.querySelector(".job-scroll");
  const { left, top, height } = one.getBoundingClientRect();
  const frame = () => new Promise(requestAnimationFrame);
  const longest = { blank: 0, placeholder: 0 }, since = { blank: 0, placeholder: 0 }, took = [];
  one.scrollTop = 0;
  await frame();
  let before = await frame();
  for (let turn = 0; turn < frames; turn++) {
    one.scrollTop += speed;
    const now = await frame();
    took.push(now - before);
    const row = document.elementFromPoint(left + 100, top + height / 2)?.closest(".job-row");
    const is = { blank: !row, placeholder: Boolean(row?.querySelector(".job-blank")) };
    for (const kind of ["blank", "placeholder"]) {
      since[kind] = is[kind] ? since[kind] + now - before : 0;
      longest[kind] = Math.max(longest[kind], since[kind]);
    }
    before = now;
  }
  const stopped = performance.now();
  const middle = () => document.elementFromPoint(left + 100, top + height / 2)?.closest(".job-row");
  while (!middle() || middle().querySelector(".job-blank")) await frame();
  return { took, ...longest, settled: performance.now() - stopped };
}"""


def chromium() -> str | None:
    """Debian's browser, where it is installed."""
    return next((path for name in _CHROMIUM if (path := shutil.which(name))), None)


def measure(scratch: Scratch, *, jobs: int, times: int, say: Say) -> Report:
    """`jobs` ended ones in the table."""
    daemon = Daemon(scratch.folder())
    say(f"a store with {jobs:,} ended jobs")
    fill(daemon, jobs)
    daemon.start()
    try:
        sorts = _sorts(daemon, times, say)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
            scripts, first = _first_load(page, daemon)
            scrolls = [_scroll(page, speed, say) for speed in SPEEDS]
            browser.close()
    finally:
        daemon.stop()
    return _report(jobs, times, scripts, first, scrolls, sorts)


def _first_load(page: Page, daemon: Daemon) -> tuple[int, float]:
    """Bytes of the scripts that come before the first rows, and seconds until these are there."""
    scripts: list[int] = []
    page.on(
        "response",  # also of what the browser has kept
        lambda one: scripts.append(int(one.headers["content-length"])) if one.url.endswith(".js") else None,
    )
    opened = daemon.client.open_page()
    address = opened["address"]
    page.goto(f"{address}#code={opened['code']}")
    page.locator(".connection-live").wait_for()
    page.goto("about:blank")
    scripts.clear()
    began = time.perf_counter()
    page.goto(f"{address}#/jobs")
    page.locator(".job-rows .job-row a").first.wait_for()
    return sum(scripts), time.perf_counter() - began


def _scroll(page: Page, speed: int, say: Say) -> dict[str, Any]:
    """How it goes at this speed, and how with a slower CPU."""
    say(f"scrolling by {speed} pixels a frame")
    session = page.context.new_cdp_session(page)
    page.evaluate(_SCROLL, [speed, 30])  # what is compiled once
    before = _cpu(session)
    found = page.evaluate(_SCROLL, [speed, FRAMES])
    cpu = (_cpu(session) - before) / FRAMES
    session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWED})
    slow = page.evaluate(_SCROLL, [speed, FRAMES])
    session.send("Emulation.setCPUThrottlingRate", {"rate": 1})
    session.detach()
    return {
        "speed": speed,
        "cpu_ms": 1e3 * cpu,
        "frame_ms": statistics.median(found["took"]),
        "blank_ms": found["blank"],
        "placeholder_ms": found["placeholder"],
        "settled_ms": found["settled"],
        "slow_frame_ms": statistics.median(slow["took"]),
        "slow_blank_ms": slow["blank"],
        "slow_placeholder_ms": slow["placeholder"],
    }


def _cpu(session: CDPSession) -> float:
    """Seconds of CPU time of the page's main thread."""
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


def _sorts(daemon: Daemon, times: int, say: Say) -> dict[str, tuple[float, float]]:
    """Seconds until the first page of all jobs in an order is there, and CPU seconds of the daemon for it."""
    found: dict[str, list[tuple[float, float]]] = {order: [] for order in ORDERS}
    for turn in range(times):
        say(f"sorting, {turn + 1} of {times}")
        for order in ORDERS:
            used, began = _used(daemon), time.perf_counter()
            # Made anew each time: the daemon keeps fewer views than there are orders.
            daemon.client.page(order=order, reverse="false", offset=0, limit=200)
            found[order].append((time.perf_counter() - began, _used(daemon) - used))
    return {order: tuple(map(statistics.median, zip(*seen, strict=True))) for order, seen in found.items()}  # type: ignore[misc]


def _used(daemon: Daemon) -> float:
    """CPU seconds of the daemon so far."""
    fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _report(
    jobs: int,
    times: int,
    scripts: int,
    first: float,
    scrolls: list[dict[str, Any]],
    sorts: dict[str, tuple[float, float]],
) -> Report:
    frame = max(one["cpu_ms"] for one in scrolls)
    blank = max(max(one["blank_ms"], one["slow_blank_ms"]) for one in scrolls)
    sort = max(seconds for seconds, _ in sorts.values())
    return Report(
        title=f"The page with {jobs:,} jobs",
        how=f"Debian's Chromium at {_WIDTH} x {_HEIGHT}. {FRAMES} frames, each scrolled on by so many pixels; the"
        " CPU time is that of the page's main thread, measured by the browser; slowed means that the browser slows"
        f" the CPU {SLOWED} times. Sorting: until the first 200 rows are there, median of {times}.",
        tables=[
            Table(
                title="Scrolling",
                columns=[
                    "pixels a frame",
                    "CPU ms a frame",
                    "ms a frame",
                    "slowed",
                    "blank ms",
                    "placeholder ms",
                    "slowed",
                    "rows after the stop, ms",
                ],
                rows=[
                    [
                        f"{one['speed']:,}",
                        number(one["cpu_ms"]),
                        number(one["frame_ms"]),
                        number(one["slow_frame_ms"]),
                        number(max(one["blank_ms"], one["slow_blank_ms"])),
                        number(one["placeholder_ms"]),
                        number(one["slow_placeholder_ms"]),
                        number(one["settled_ms"]),
                    ]
                    for one in scrolls
                ],
            ),
            Table(
                title="Sorting",
                columns=["order", "seconds", "CPU seconds of the daemon"],
                rows=[[f"`{order}`", f"{seconds:.2f}", f"{cpu:.2f}"] for order, (seconds, cpu) in sorts.items()],
            ),
        ],
        targets=[
            Target(
                text=f"JavaScript of the first load at most {MOST_SCRIPT / 1e3:g} kB, compressed",
                measured=f"{scripts / 1e3:.1f} kB, first rows after {first:.2f} s",
                is_met=scripts <= MOST_SCRIPT,
            ),
            Target(
                text=f"a frame at most {MOST_FRAME:g} ms of CPU (50 frames a second)",
                measured=f"{frame:.1f} ms",
                is_met=frame <= MOST_FRAME,
            ),
            Target(
                text=f"no row blank for longer than {MOST_BLANK:g} ms",
                measured=f"{blank:.0f} ms",
                is_met=blank <= MOST_BLANK,
            ),
            Target(
                text=f"sorted by any column within {MOST_SORT:g} s",
                measured=f"{sort:.2f} s",
                is_met=sort <= MOST_SORT,
            ),
        ],
        data={
            "jobs": jobs,
            "script_bytes": scripts,
            "first_rows_seconds": first,
            "scrolls": scrolls,
            "sorts": sorts,
        },
    )
