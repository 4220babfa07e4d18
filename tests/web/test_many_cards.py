"""Now on a large machine: 16 cards and 40 jobs on one screen."""

import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import NARROW, Site, Watch, each_view, findings, fits, go, visit
from web.conftest import READINGS

CARDS = 16
PACKED, ALONE, BEHIND, AFTER, HELD = 8, 4, 16, 6, 6  # jobs, 40 together


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Sixteen cards; on the last of them computes a process that is not a job, and it is hot."""
    file = tmp_path_factory.mktemp("cards") / "cards.json"
    world = json.loads((READINGS / "four_cards.json").read_text())
    stranger = subprocess.Popen(["sleep", "600"])
    one = {**world["gpus"][0], "processes": []}
    world["gpus"] = [
        {**one, "index": number, "uuid": f"GPU-{number:08}-0000-4000-8000-000000000000", "load": 6 * number}
        for number in range(CARDS)
    ]
    process = {"pid": stranger.pid, "user": "ann", "memory": 2**30, "kind": "compute", "name": "python"}
    world["gpus"][-1] |= {"temperature": 91, "processes": [process]}
    file.write_text(json.dumps(world))
    yield file
    stranger.kill()
    stranger.wait()


@pytest.fixture(scope="module")
def jobs(daemon: DaemonProcess) -> dict[str, int]:
    """The first number of each kind."""
    packed = {"command": "sleep 600", "name": "packed", "share": "1/8", "only": ["0"]}
    first = daemon.add(*({**packed, "array": {"task": number}} for number in range(1, PACKED + 1)))
    command = 'echo step=40 steps=100 >> "$DIBS_METRICS"; exec sleep 600'
    alone = daemon.add(*({"command": command, "name": f"alone-{number}"} for number in range(ALONE)))
    wait_until(lambda: daemon.get("/v1/status")["counts"]["running"] == PACKED + ALONE)
    wish = {"command": "true", "only": ["0"]}
    behind = daemon.add(*({**wish, "name": f"behind-{number}"} for number in range(BEHIND)))
    after = daemon.add(
        *({"command": "true", "name": f"after-{number}", "after": [{"job": alone}]} for number in range(AFTER))
    )
    held = daemon.add(*({"command": "true", "name": f"held-{number}", "hold": True} for number in range(HELD)))
    return {"packed": first, "alone": alone, "behind": behind, "after": after, "held": held}


def card_rows(page: Page) -> Locator:
    return page.get_by_role("region", name="GPUs").locator("tbody tr")


def test_16_cards_and_40_jobs_fit_a_laptops_screen(page: Page, site: Site, jobs: dict[str, int]):
    go(page, site, "now")

    expect(card_rows(page)).to_have_count(CARDS)
    expect(page.locator(".job-item")).to_have_count(40)
    outside = """() => [...document.querySelectorAll(".card-row, .job-item, .reason")]
        .map(one => one.getBoundingClientRect())
        .filter(one => one.bottom > innerHeight || one.right > innerWidth).length"""
    assert page.evaluate(outside) == 0
    assert page.evaluate("() => document.documentElement.scrollHeight <= innerHeight")
    heights = card_rows(page).evaluate_all("all => all.map(one => Math.round(one.getBoundingClientRect().height))")
    assert max(heights) - min(heights) <= 1, "a packed card stretches its row"


@pytest.mark.parametrize("width", [1440, 1280, 390])
def test_a_long_reason_is_cut_off_and_leaves_the_buttons_their_place(
    site: Site, browser: Browser, daemon: DaemonProcess, jobs: dict[str, int], width: int
):
    card = daemon.get("/v1/gpus")["gpus"][CARDS - 2]["key"]
    why = "a loud fan, and more to say of it " * 6
    daemon.post("/v1/gpus/act", {"action": "drain", "gpus": [card], "why": why})
    with visit(site, browser, viewport={"width": width, "height": 800}) as (page, _):
        go(page, site, "now")
        row = card_rows(page).nth(CARDS - 2)
        expect(row).to_contain_text("a loud fan")
        expect(row.locator(".badge")).to_have_text("drained")

        panel = page.get_by_role("region", name="GPUs").bounding_box()
        ends = card_rows(page).evaluate_all("all => all.map(one => one.getBoundingClientRect().right)")

        assert panel and max(ends) <= panel["x"] + panel["width"]
        assert fits(page)["content"] <= fits(page)["window"]
    daemon.post("/v1/gpus/act", {"action": "undrain", "gpus": [card]})


def test_the_rows_are_the_same_after_every_other_view(page: Page, site: Site, jobs: dict[str, int]):
    def places() -> object:
        expect(card_rows(page).locator(".sparkline")).to_have_count(CARDS)
        expect(page.locator(".job-item")).to_have_count(40)
        return page.get_by_role("region", name="GPUs").evaluate(
            """one => [...one.querySelectorAll("th, td, tr, .parts")].map(one => {
                const {left, top, width} = one.getBoundingClientRect();
                return [left, top, width].map(Math.round).join();
            })"""
        )

    go(page, site, "now")
    before = places()
    ways = ("jobs", f"job/{jobs['alone']}", "timeline", "history", "sweeps", "submit", "manage", "sweeps/new")
    for _ in each_view(page, site, ways):
        expect(page.locator("main").locator("h1, [role=table]").first).to_be_visible()
    go(page, site, "now")

    assert places() == before


def test_a_row_tells_the_use_of_its_card_and_who_has_which_part_of_it(
    page: Page, site: Site, jobs: dict[str, int]
):
    go(page, site, "now")

    parts = card_rows(page).nth(0).locator(".parts a")
    expect(parts).to_have_text([f"{jobs['packed']}_{task}" for task in range(1, PACKED + 1)])
    expect(parts.first).to_have_attribute("href", f"#/job/{jobs['packed']}")
    expect(card_rows(page).nth(0).get_by_role("link", name="(packed) · 1/8 · ").first).to_be_visible()
    widths = parts.evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
    assert max(widths) - min(widths) < 2
    alone = card_rows(page).nth(1)
    expect(alone).to_contain_text("6 %")
    expect(alone).to_contain_text("9.0G of 140G")
    expect(alone.locator(".card-heat")).to_have_text("61")
    expect(alone.locator(".card-power")).to_have_text("512")
    filled = alone.locator(".meter-fill").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().width / one.parentElement.clientWidth)"
    )
    assert filled == pytest.approx([0.06, 9 / 140], abs=0.02)
    expect(alone.get_by_role("link", name="alone-")).to_contain_text("s")
    last = card_rows(page).nth(CARDS - 1)
    expect(last.locator(".is-hot")).to_have_text("91")
    expect(last).to_contain_text("python of ann")


def test_a_part_is_as_wide_as_the_share(page: Page, site: Site, daemon: DaemonProcess, jobs: dict[str, int]):
    shares = ("1/2", "1/4")
    first = daemon.add(*({"command": "sleep 600", "share": share, "only": ["9"]} for share in shares))
    go(page, site, "now")
    parts = card_rows(page).nth(9).locator(".parts li")
    expect(parts).to_have_count(3)

    widths = parts.evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")

    assert abs(widths[0] / sum(widths) - 1 / 2) < 0.05
    assert abs(widths[1] / sum(widths) - 1 / 4) < 0.05
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [first, first + 1]})
    daemon.wait(first, first + 1)
    daemon.post("/v1/clean", {"state": ["cancelled"]})


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_bar_of_progress_leaves_the_name_and_the_time_where_they_are(
    site: Site, browser: Browser, jobs: dict[str, int], axe: str, theme: Literal["light", "dark"]
):
    with visit(site, browser, color_scheme=theme, bypass_csp=True) as (page, _):
        go(page, site, "now")
        running = page.get_by_role("region", name="Running")
        expect(running.get_by_role("progressbar")).to_have_count(ALONE)
        expect(running.get_by_text(re.compile("^40 %"))).to_have_count(ALONE)

        names = running.locator(".job-title").evaluate_all(
            "all => all.map(one => one.scrollWidth - one.clientWidth)"
        )
        ends = running.locator(".job-when").evaluate_all(
            "all => [...new Set(all.map(one => Math.round(one.getBoundingClientRect().right)))]"
        )
        assert max(names) <= 0, "a name is cut"
        assert len(ends) <= 2, "the times of a column do not stand below each other"
        assert findings(page, axe, theme) == []


def test_a_reason_is_told_once_for_all_that_wait_for_it_and_stays_unfolded(
    page: Page, site: Site, daemon: DaemonProcess, jobs: dict[str, int]
):
    go(page, site, "now")

    waiting = page.get_by_role("region", name="Waiting")
    expect(waiting.locator(".reason")).to_have_count(3)
    reason = waiting.get_by_role("button", name=f"{BEHIND} jobs: waits for a GPU")
    folded = reason.bounding_box()
    reason.click()
    expect(reason).to_have_attribute("aria-expanded", "true")
    unfolded = reason.bounding_box()
    expect(waiting.get_by_role("button", name=f"{AFTER} jobs: waits for job {jobs['alone']}")).to_be_visible()

    assert folded and unfolded and folded["height"] < 30 <= unfolded["height"]
    daemon.post("/v1/jobs/act", {"action": "hold", "ids": [jobs["behind"]]})
    fewer = waiting.get_by_role("button", name=f"{BEHIND - 1} jobs: waits for a GPU")
    expect(fewer).to_have_attribute("aria-expanded", "true")
    daemon.post("/v1/jobs/act", {"action": "release", "ids": [jobs["behind"]]})
    expect(reason).to_be_visible()


def test_now_asks_little_and_the_answers_are_compressed(
    page: Page, site: Site, daemon: DaemonProcess, jobs: dict[str, int]
):
    go(page, site, "now")
    expect(page.locator(".job-item")).to_have_count(40)
    asked: Counter[str] = Counter()
    packed: dict[str, str | None] = {}
    page.on("request", lambda request: asked.update([urlsplit(request.url).path]))
    page.on("requestfinished", lambda request: packed.update(_encoding(request)))
    began = time.monotonic()

    for number in range(6):  # twelve events
        daemon.post("/v1/jobs/act", {"action": "hold", "ids": [jobs["behind"] + number]})
        expect(page.locator(".state-held")).to_have_count(HELD + number + 1)
    daemon.post("/v1/jobs/act", {"action": "release", "ids": [jobs["behind"] + number for number in range(6)]})
    expect(page.locator(".state-held")).to_have_count(HELD)

    looks = time.monotonic() - began + 2  # at most one of each kind in a second
    assert not [path for path in asked if path.endswith("/why")]
    assert asked["/v1/reasons"] <= looks
    assert asked["/v1/jobs"] <= 4 * looks  # running, failed, queued, held
    assert asked["/v1/status"] == 0
    assert asked.total() <= 8 * looks
    assert packed["/v1/jobs"] == packed["/v1/gpus"] == "gzip"


def test_a_phone_shows_them_below_each_other(
    site: Site, browser: Browser, daemon: DaemonProcess, jobs: dict[str, int]
):
    failed = daemon.add({"command": "exit 3", "name": "a-name-with-room", "num_gpus": 0})
    daemon.wait(failed)
    with visit(site, browser, viewport=NARROW, has_touch=True) as (page, _):
        go(page, site, "now")
        expect(card_rows(page)).to_have_count(CARDS)

        found = fits(page)

        assert found["content"] <= found["window"]
        assert page.locator(".parts a").evaluate_all("all => Math.min(...all.map(one => one.offsetHeight))") >= 44
        name = page.get_by_role("region", name="Failed").get_by_text("a-name-with-room")
        assert name.evaluate("one => one.scrollWidth <= one.clientWidth"), "its name is cut"
    daemon.post("/v1/clean", {"state": ["failed"]})


def test_what_was_typed_stays_where_a_card_cannot_be_drained(
    page: Page, watch: Watch, site: Site, jobs: dict[str, int]
):
    error = {"code": "conflict", "message": "the daemon is about to end", "remedy": "try again in a moment"}
    page.route("**/v1/gpus/act", lambda route: route.fulfill(status=409, json={"error": error}))
    watch.forgive("409")
    go(page, site, "now")

    page.get_by_role("button", name="drain GPU 3", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("loud fan")
    dialog.get_by_role("button", name="Drain it").click()

    expect(dialog.get_by_role("alert")).to_have_text("the daemon is about to end; try again in a moment")
    expect(dialog.get_by_label("Reason")).to_have_value("loud fan")


def _encoding(request: Request) -> dict[str, str | None]:
    response = request.response()
    return {urlsplit(request.url).path: response.headers.get("content-encoding") if response else None}
