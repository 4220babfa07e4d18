"""Timeline: who had which GPU when."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import Site, go


@pytest.fixture(scope="module")
def cards(cards: Path) -> Path:
    """The last of them is lost."""
    world = json.loads(cards.read_text())
    world["gpus"][3]["state"] = "lost"
    cards.write_text(json.dumps(world))
    return cards


@pytest.fixture(scope="module")
def busy(daemon: DaemonProcess) -> Iterator[dict[str, int]]:
    """A job that runs and one that has failed, both on GPU 1."""
    failed = daemon.add({"command": "sleep 0.3; exit 1", "name": "short", "project": "language", "only": ["1"]})
    daemon.wait(failed)
    running = daemon.add({"command": "sleep 600", "name": "baseline", "project": "vision", "only": ["1"]})
    wait_until(lambda: daemon.state(running) == "running")
    yield {"failed": failed, "running": running}
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [running]})


def test_every_card_has_a_row_and_the_words_tell_what_is_drawn(page: Page, site: Site, busy: dict[str, int]):
    go(page, site, "timeline?hours=1")
    page.get_by_text("The same in words").click()

    table = page.get_by_role("table")
    for card in range(4):
        expect(table.get_by_role("row", name=re.compile(rf"^(GPU )?{card}\b"))).to_be_visible()
    expect(table).to_contain_text(re.compile("1 job|2 jobs"))
    page.get_by_role("group", name="rows").get_by_role("button", name="Project").click()
    expect(table).to_contain_text("vision")
    expect(table).to_contain_text("language")
    page.get_by_role("group", name="rows").get_by_role("button", name="Job").click()
    expect(table).to_contain_text("baseline")
    expect(page).to_have_url(re.compile("by=job"))


def test_a_card_is_idle_only_where_it_was_watched_and_free(page: Page, site: Site):
    go(page, site, "timeline?hours=0.001")
    page.get_by_text("The same in words").click()

    def row(card: int) -> Locator:
        return page.get_by_role("table").get_by_role("row", name=f"GPU {card}")

    expect(row(0)).to_contain_text("used by others 100 %")
    expect(row(3)).to_contain_text("lost 100 %")
    expect(row(2)).to_contain_text("idle 100 %")
    page.get_by_role("button", name="6 h").click()
    expect(row(2)).to_contain_text("unknown 100 %")
    expect(page.get_by_role("list", name="colours")).to_contain_text("used by others")


def test_beside_the_name_of_a_card_stands_what_it_mostly_was(page: Page, site: Site):
    """It is painted, so that no element has it."""
    page.add_init_script(
        """window.written = new Set(); const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
            written.add(text); return write.call(this, text, ...more); };"""
    )
    go(page, site, "timeline?hours=0.001")

    for words in ("GPU 0", "others 100 %", "lost 100 %", "idle 100 %"):
        page.wait_for_function("words => written.has(words)", arg=words)
    page.get_by_role("button", name="6 h").click()
    page.wait_for_function("() => written.has('unknown 100 %')")


def test_the_time_of_a_share_of_a_card_is_that_share(page: Page, site: Site, daemon: DaemonProcess):
    packed = {"command": "sleep 1", "share": "1/8", "only": ["2"], "project": "packed"}
    first = daemon.add(*[packed] * 8)
    daemon.wait(*range(first, first + 8))
    go(page, site, "timeline?hours=1&by=project")
    page.get_by_text("The same in words").click()

    text = page.get_by_role("table").get_by_role("row", name="packed").locator("td").nth(-2).inner_text()

    assert 0.9 < float(text.removesuffix("s")) < 4, text


def test_zooming_and_moving_are_in_the_address(page: Page, site: Site, busy: dict[str, int]):
    go(page, site, "timeline")
    expect(page.locator(".timeline-span")).to_have_text("1d")

    page.get_by_role("button", name="6 h").click()
    expect(page).to_have_url(re.compile("hours=6"))
    page.keyboard.press("+")
    expect(page).to_have_url(re.compile("hours=3"))
    page.get_by_role("button", name="see a longer time").click()
    expect(page).to_have_url(re.compile("hours=6"))
    page.get_by_role("button", name="back in time").click()
    expect(page).to_have_url(re.compile("until="))
    page.locator("canvas").hover()
    page.mouse.wheel(0, -500)
    expect(page.locator(".timeline-span")).not_to_have_text("6h")
    page.get_by_role("button", name="Now", exact=True).click()
    expect(page).not_to_have_url(re.compile("until="))


def test_a_bar_is_pointed_at_and_clicked(page: Page, site: Site, busy: dict[str, int]):
    go(page, site, "timeline?hours=0.003")
    box = page.locator("canvas").bounding_box()
    assert box is not None
    # Some seconds ago, which the running job will have lived through soon; near now its bar ends and grows.
    place = box["x"] + box["width"] * 0.6

    tip = page.locator(".timeline-tip").filter(has_text=f"job {busy['running']} baseline")

    def find_bar() -> bool:
        for down in range(30, int(box["height"]), 10):
            page.mouse.move(place, box["y"] + down)
            page.wait_for_timeout(50)  # a tip that stands there belongs to this place and not to the last one
            if tip.is_visible():
                return True
        return False

    wait_until(find_bar)
    page.mouse.down()
    page.mouse.up()

    expect(page).to_have_url(site.at(f"job/{busy['running']}"))


def test_the_keyboard_goes_from_bar_to_bar(page: Page, site: Site, busy: dict[str, int]):
    go(page, site, "timeline?hours=1&by=job")
    expect(page.locator("canvas")).to_be_visible()

    def shows_the_first() -> bool:
        page.keyboard.press("j")
        return "job" in (page.locator(".timeline-tip").all_inner_texts() or [""])[0]

    wait_until(shows_the_first)
    page.keyboard.press("Enter")

    expect(page).to_have_url(re.compile(r"#/job/\d+"))


def test_a_job_that_starts_appears_without_a_reload(
    page: Page, site: Site, daemon: DaemonProcess, busy: dict[str, int]
):
    go(page, site, "timeline?hours=1&by=project")
    page.get_by_text("The same in words").click()
    expect(page.get_by_role("table")).to_contain_text("vision")

    number = daemon.add({"command": "true", "project": "newcomers"})

    expect(page.get_by_role("table")).to_contain_text("newcomers")
    daemon.wait(number)
