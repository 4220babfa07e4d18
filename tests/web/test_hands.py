"""Hands on the keyboard: the palette and the sheet of keys. Fingers: rows and buttons on a phone."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from daemon.daemon_process import DaemonProcess
from web.browsing import NARROW, Site, go, small_targets, visit


@pytest.fixture(scope="module")
def jobs(daemon: DaemonProcess) -> Iterator[list[int]]:
    """An array of two tasks and one other job. They wait."""
    daemon.post("/v1/pause", {})
    task = {"command": "true", "name": "tiles"}
    first = daemon.add(*({**task, "array": {"task": number}} for number in (1, 2)))
    other = daemon.add({"command": "python train.py", "name": "resnet"})
    yield [first, first + 1, other]
    daemon.post("/v1/unpause", {})


def palette(page: Page) -> Locator:
    """The palette, opened anew."""
    page.keyboard.press("Control+k")
    dialog = page.get_by_role("dialog", name="Go to, or do")
    expect(dialog.get_by_role("combobox")).to_be_focused()
    return dialog


def test_the_palette_leads_to_a_job_by_number_task_or_name_and_to_a_view(page: Page, site: Site, jobs: list[int]):
    go(page, site, "now")

    for text, job in ((str(jobs[2]), jobs[2]), (f"{jobs[0]}_2", jobs[1]), ("resn", jobs[2])):
        found = palette(page)
        found.get_by_role("combobox").fill(text)
        expect(found.get_by_role("option").first).to_contain_text(
            "resnet" if job == jobs[2] else f"{jobs[0]}_2 tiles"
        )
        page.keyboard.press("Enter")
        expect(page).to_have_url(site.at(f"job/{job}"))
    found = palette(page)
    page.keyboard.type("timeline")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"#/timeline"))  # which then adds what it shows
    expect(found).to_have_count(0)


def test_the_palette_acts_on_the_chosen_jobs_or_on_the_one_that_is_shown(
    page: Page, site: Site, daemon: DaemonProcess, jobs: list[int]
):
    go(page, site, "jobs?text=tiles")
    for number in jobs[:2]:
        page.get_by_role("checkbox", name=f"choose job {number}", exact=True).check()

    found = palette(page)
    page.keyboard.type("hold")
    expect(found.get_by_role("option", selected=True)).to_have_text("Hold the chosen 2 jobs")
    page.keyboard.press("Enter")
    expect(page.locator(".job-rows .state-held")).to_have_count(2)

    assert [daemon.state(number) for number in jobs] == ["held", "held", "queued"]
    go(page, site, f"job/{jobs[0]}")
    palette(page)
    page.keyboard.type("release")
    page.keyboard.press("Enter")
    expect(page.locator(".job-head-line .badge")).to_have_text("queued")
    go(page, site, "now")
    expect(palette(page).get_by_role("option", name="Kill")).to_have_count(0)


def test_the_palette_says_that_nothing_is_found_and_escape_closes_it(page: Page, site: Site, jobs: list[int]):
    go(page, site, "jobs")

    found = palette(page)
    page.keyboard.type("no such thing")
    expect(found.get_by_text("Nothing is called so.")).to_be_visible()
    page.keyboard.press("Enter")
    expect(found).to_be_visible()
    page.keyboard.press("Escape")

    expect(found).to_have_count(0)
    expect(page).to_have_url(site.at("jobs"))


def test_a_sheet_shows_the_keys_of_the_view_and_those_of_every_view(page: Page, site: Site, jobs: list[int]):
    go(page, site, "jobs")
    expect(page.get_by_role("table", name="jobs")).to_be_visible()

    page.keyboard.press("?")

    sheet = page.get_by_role("dialog", name="Keys")
    expect(sheet.get_by_role("heading")).to_have_text(["Keys", "In this view", "Everywhere"])
    expect(sheet).to_contain_text("choose the job")
    expect(sheet).to_contain_text("find a job or a view, or do something")
    page.keyboard.press("Escape")
    expect(sheet).to_have_count(0)


class Finger:
    """One finger on the glass, by the browser's own input: what it touches decides whether it scrolls or drags."""

    def __init__(self, page: Page) -> None:
        self._session = page.context.new_cdp_session(page)

    def _send(self, kind: str, *points: tuple[float, float]) -> None:
        touches = [{"x": x, "y": y} for x, y in points]
        self._session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})

    def draw(self, *points: tuple[float, float]) -> None:
        """Down at the first point and along the others; it stays there."""
        for number, (x, y) in enumerate(points):
            if not number:
                self._send("touchStart", (x, y))
                continue
            before = points[number - 1]
            for part in (0.25, 0.5, 0.75, 1):
                self._send("touchMove", (before[0] + part * (x - before[0]), before[1] + part * (y - before[1])))

    def lift(self) -> None:
        self._send("touchEnd")


def test_a_finger_drags_a_job_by_its_handle_and_scrolls_the_table_by_its_rows(
    site: Site, browser: Browser, daemon: DaemonProcess, jobs: list[int]
):
    daemon.post("/v1/jobs/act", {"action": "release", "ids": jobs})
    more = daemon.add(*({"command": "true", "name": f"more-{number}"} for number in range(20)))
    with visit(site, browser, viewport=NARROW, has_touch=True, is_mobile=True) as (page, _):
        go(page, site, "jobs?order=turn")
        rows = page.locator(".job-rows .job-row")
        order = page.locator(".job-rows .job-row a")
        expect(rows.first).to_contain_text("tiles")
        finger = Finger(page)
        first, second, other = map(str, jobs)

        def middle(place: int, part: float = 0.5) -> float:
            box = rows.nth(place).bounding_box()
            assert box
            return float(box["y"] + part * box["height"])

        grip = rows.nth(2).locator(".job-grip").bounding_box()
        assert grip and min(grip["width"], grip["height"]) >= 44
        x = grip["x"] + grip["width"] / 2
        finger.draw((x, middle(2)), (x, middle(0, 0.2)))
        expect(rows.first).to_have_class(re.compile("is-over-before"))
        finger.lift()
        expect(order.nth(0)).to_have_text(other)
        expect(order.nth(1)).to_have_text(first)
        finger.draw((x, middle(0)), (x, middle(1, 0.8)))
        finger.lift()
        expect(order.nth(0)).to_have_text(first)
        expect(order.nth(1)).to_have_text(other)
        expect(order.nth(2)).to_have_text(second)

        place = page.locator(".job-scroll")
        finger.draw((150, middle(5)), (150, middle(1)))
        finger.lift()
        expect(page.locator(".is-over-before, .is-over-behind")).to_have_count(0)
        assert place.evaluate("one => one.scrollTop") > 50
        expect(page).to_have_url(re.compile("#/jobs"))
        assert [job["id"] for job in daemon.get("/v1/jobs?state=queued&order=turn")["jobs"]][:3] == [
            int(first),
            int(other),
            int(second),
        ]
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": list(range(more, more + 20))})
    daemon.call("PATCH", f"/v1/jobs/{other}", {"behind": int(second)})


def test_a_finger_opens_whole_rows_chooses_and_moves_a_job(
    site: Site, browser: Browser, daemon: DaemonProcess, jobs: list[int]
):
    daemon.post("/v1/jobs/act", {"action": "release", "ids": jobs})
    with visit(site, browser, viewport=NARROW, has_touch=True, is_mobile=True) as (page, _):
        go(page, site, "now")
        line = page.get_by_role("region", name="Waiting").locator(".job-item").first
        line.scroll_into_view_if_needed()
        box = line.bounding_box()
        assert box and box["height"] >= 44
        page.touchscreen.tap(box["x"] + box["width"] - 6, box["y"] + box["height"] - 4)
        expect(page).to_have_url(site.at(f"job/{jobs[0]}"))

        go(page, site, "jobs?order=turn")
        pick = page.get_by_role("checkbox", name=f"choose job {jobs[2]}", exact=True).locator("xpath=..")
        box = pick.bounding_box()
        assert box and min(box["width"], box["height"]) >= 44
        page.touchscreen.tap(box["x"] + 3, box["y"] + 3)
        order = page.locator(".job-rows .job-row a")
        first, second, other = map(str, jobs)
        for button, wanted in (
            ("To the top", [other, first, second]),
            ("Down", [first, other, second]),
            ("To the bottom", [first, second, other]),
            ("Up", [first, other, second]),
            ("To the top", [other, first, second]),
        ):
            move = page.get_by_role("button", name=button, exact=True)
            expect(move).to_be_in_viewport(ratio=1)
            move.tap()
            expect(order).to_have_text(wanted)
            expect(page.locator(".job-row.is-chosen")).to_be_in_viewport(ratio=0.9)
        assert small_targets(page) == []

        with page.expect_response(lambda answer: "v1/jobs?" in answer.url and '"priority":-5' in answer.text()):
            daemon.post("/v1/jobs/act", {"action": "priority", "ids": [jobs[1]], "priority": -5})
        page.get_by_role("button", name="To the bottom").tap()  # where another priority is needed
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("its priority becomes -5 instead of 0")
        dialog.get_by_role("button", name="Cancel").tap()
        expect(dialog).to_have_count(0)
        expect(order).to_have_text([other, first, second])
        row = page.locator(".job-rows .job-row").last.bounding_box()
        assert row
        # Beside the handle at its end.
        page.touchscreen.tap(row["x"] + row["width"] - 60, row["y"] + row["height"] / 2)
        expect(page).to_have_url(site.at(f"job/{jobs[1]}"))
