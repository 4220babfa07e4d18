"""A sweep of 5,000 trials: all of it is there, brushes choose among all, and new trials come into it."""

import json
import re
import sqlite3
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from daemon.daemon_process import DaemonProcess
from web.browsing import Site, go
from web.sweeping import LOSS, begin, finish, span, values

TRIALS = 5_000
RAN = 10
COMMAND = 'echo loss={x} >> "$DIBS_METRICS" # {kind}'
FRAMES = """() => { window.frames = []; let last = performance.now();
    const next = now => { frames.push(now - last); last = now; window.timer = requestAnimationFrame(next) };
    window.timer = requestAnimationFrame(next) }"""
MEDIAN = """() => { cancelAnimationFrame(window.timer); frames.sort((a, b) => a - b);
    return frames[frames.length >> 1] }"""


@pytest.fixture(scope="module")
def number(daemon: DaemonProcess) -> int:
    """Some of its trials have run; the rest are written into the store of a daemon that is away."""
    space = (span("x", 0, 1), values("kind", "a", "b", "c", "d"))
    sweep = begin(daemon, COMMAND, *space, metrics=LOSS, method="random", samples=RAN, seed=1)
    finish(daemon, sweep)
    daemon.end()
    db = sqlite3.connect(daemon.queue / "store.db")
    for trial in range(RAN + 1, TRIALS + 1):
        x, kind = trial / TRIALS, "abcd"[trial % 4]
        db.execute(
            "insert into trials (sweep, number, point, command, fingerprint, state, job, found, score, seconds,"
            " ended_at) values (?, ?, ?, '', ?, 'complete', 1, ?, ?, 1, 1)",
            (sweep, trial, json.dumps({"x": f"{x:.6g}", "kind": kind}), f"filled {trial}", json.dumps([x]), x),
        )
    db.execute("update sweeps set spec = json_set(spec, '$.samples', ?)", (TRIALS,))
    db.commit()
    db.close()
    daemon.start()
    return sweep


@pytest.fixture(scope="module")
def site(daemon: DaemonProcess, number: int) -> Site:
    return Site(daemon)


def axis(page: Page, place: int) -> Any:
    return page.locator(".sweep-axis line").nth(place).bounding_box()


def test_a_brush_chooses_among_all_of_them_and_few_rows_are_drawn(page: Page, site: Site, number: int):
    go(page, site, f"sweeps/{number}")
    total = page.locator(".sweep-board h2 .faint")
    expect(total).to_have_text("5,000 trials")
    assert page.locator(".sweep-rows .sweep-row").count() < 100

    line = axis(page, 0)
    page.mouse.move(line["x"], line["y"] + line["height"] + 5)
    page.evaluate(FRAMES)
    page.mouse.down()
    for step in range(1, 11):
        page.mouse.move(line["x"], line["y"] + line["height"] * (1 - step / 20))
    page.mouse.up()
    print(f"median frame while brushing {TRIALS} trials: {page.evaluate(MEDIAN):.0f} ms")

    chip = page.get_by_role("group", name="brushes").get_by_role("button").first
    expect(chip).to_have_text(re.compile(r"^x to 0\.\d+"))
    least, most = 0.4 * TRIALS, 0.6 * TRIALS
    left = int(total.inner_text().split(" ")[0].replace(",", ""))
    assert least < left < most
    kind = axis(page, 1)
    page.mouse.move(kind["x"], kind["y"] + kind["height"] + 5)
    page.mouse.down()
    page.mouse.move(kind["x"], kind["y"] + kind["height"] * 0.9)
    page.mouse.up()
    expect(total).not_to_have_text(re.compile(f"^{left:,} "))
    again = int(total.inner_text().split(" ")[0].replace(",", ""))
    assert abs(again - left / 4) < 20


def test_the_end_of_the_leaderboard_is_reached(page: Page, site: Site, number: int):
    go(page, site, f"sweeps/{number}")
    expect(page.locator(".sweep-board h2 .faint")).to_have_text("5,000 trials")

    page.locator(".sweep-table").evaluate("one => { one.scrollTop = one.scrollHeight }")

    expect(page.locator(".sweep-rows .sweep-row").last).to_have_attribute("aria-rowindex", str(TRIALS + 1))
    expect(page.locator(".sweep-rows .sweep-row").last.get_by_role("cell").nth(2)).to_have_text("1")


def test_new_trials_come_into_it(page: Page, site: Site, daemon: DaemonProcess, number: int):
    go(page, site, f"sweeps/{number}")
    expect(page.locator(".sweep-board h2 .faint")).to_have_text("5,000 trials")

    page.evaluate(FRAMES)
    daemon.post(f"/v1/sweeps/{number}/act", {"action": "resume", "samples": TRIALS + 20})

    expect(page.locator(".sweep-board h2 .faint")).to_have_text("5,020 trials")
    expect(page.locator(".sweep-facts")).to_contain_text("5,020 of 5,020")
    print(f"median frame while trials arrive: {page.evaluate(MEDIAN):.0f} ms")
    expect(page.locator("h1 + .badge")).to_have_text("finished")
