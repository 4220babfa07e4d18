"""Wherever it is looked at: below a path prefix, on a narrow screen, in the dark, and without seeing it."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import NARROW, Site, cut_controls, each_view, findings, fits, go, small_targets, visit
from web.proxy import below

VIEWS = (  # neighbours differ: see `each_view`
    *("now", "job/{0}", "jobs", "job/{0}/log", "timeline?hours=1", "job/{0}/environment", "sweeps"),
    *("job/{0}/code", "history", "submit", "job/{1}", "manage", "compare?jobs={0},{1}", "sweeps/new"),
    "jobs?columns=name,user,priority,tags,why,array,started_at,params,metrics,metric.loss",
)
LONG = "a-name-that-is-much-longer-than-a-narrow-screen-is-wide-and-has-no-place-to-break-it"


@pytest.fixture(scope="module")
def jobs(daemon: DaemonProcess) -> Iterator[tuple[int, int]]:
    """One that runs, and one that has failed; others wait."""
    failed = daemon.add({"command": "echo wrong >&2; exit 3", "name": LONG, "project": LONG})
    daemon.wait(failed)
    command = rf"for i in $(seq 50); do printf '\033[3{{1,2,3,4,5,6}}m%s {LONG} {LONG}\n' $i; done; sleep 600"
    running = daemon.add({"command": command, "name": "baseline", "project": "vision", "env": {"LONG": LONG * 3}})
    daemon.add(*({"command": "true", "name": f"wait-{number}", "num_gpus": 4} for number in range(12)))
    wait_until(lambda: daemon.state(running) == "running")
    yield running, failed
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [running]})


def settle(page: Page) -> None:
    """What the view shows at first has come."""
    expect(page.locator("main")).not_to_have_text("…")
    page.wait_for_load_state("load")
    expect(page.locator("main").locator("h1, [role=table], .log").first).to_be_visible()


def test_a_phone_needs_no_sideways_scrolling_and_no_thin_fingers(
    site: Site, browser: Browser, jobs: tuple[int, int]
):
    with visit(site, browser, viewport=NARROW, has_touch=True) as (page, _):
        for path in each_view(page, site, (view.format(*jobs) for view in VIEWS)):
            settle(page)

            found = fits(page)
            assert found["content"] <= found["window"], (path, _too_wide(page))
            assert (path, small_targets(page)) == (path, [])
            assert (path, cut_controls(page)) == (path, [])
            assert page.locator("h1").count() == 1, path
        for name in ("Now", "Jobs", "Timeline", "Sweeps", "Submit"):
            expect(page.get_by_role("navigation", name="views").get_by_text(name, exact=True)).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(theme: Any, site: Site, browser: Browser, jobs: tuple[int, int], axe: str):
    with visit(site, browser, color_scheme=theme, bypass_csp=True) as (page, _):
        for path in each_view(page, site, (view.format(*jobs) for view in VIEWS)):
            settle(page)

            assert (path, findings(page, axe, theme)) == (path, [])
        for summary in ("Columns", "Views"):
            page.locator("summary", has_text=summary).click()
            assert (summary, findings(page, axe, theme)) == (summary, [])
            page.keyboard.press("Escape")
        page.get_by_role("checkbox", name="choose all that match").check()
        expect(page.get_by_role("toolbar")).to_be_visible()
        assert findings(page, axe, theme) == []
        for key in ("?", "Control+k"):
            page.keyboard.press(key)
            expect(page.get_by_role("dialog")).to_be_visible()
            assert (key, findings(page, axe, theme)) == (key, [])
            page.keyboard.press("Escape")
        page.evaluate("() => localStorage.clear()")
        page.reload()
        expect(page.get_by_label("Code")).to_be_visible()
        assert findings(page, axe, theme) == []


def test_the_page_works_below_a_path_prefix(
    site: Site, browser: Browser, daemon: DaemonProcess, jobs: tuple[int, int]
):
    with (
        below("/some/prefix", site.address) as address,
        visit(site, browser, address=address) as (page, _),
    ):
        page.goto(f"{address}#/now")
        expect(page.locator(".connection")).to_have_text("live")
        expect(page.get_by_role("region", name="Running")).to_contain_text("baseline")
        for view in ("Jobs", "Timeline", "Sweeps", "Submit", "Now"):
            page.get_by_role("link", name=view, exact=True).click()
            expect(page).to_have_url(re.compile(rf"{re.escape(address)}#/{view.lower()}"))
            settle(page)
        page.goto(f"{address}#/job/{jobs[0]}")
        expect(page.locator(".log-scroll")).to_contain_text(LONG)

        number = daemon.add({"command": "true", "name": "seen through it"})
        page.goto(f"{address}#/jobs?text=through")
        expect(page.locator(".job-rows")).to_contain_text("seen through it")
        page.get_by_role("checkbox", name=f"choose job {number}").check()
        page.get_by_role("toolbar").get_by_role("button", name="Hold").click()
        expect(page.locator(".toast").first).to_be_visible()


def test_the_theme_is_the_systems_until_the_user_chooses_one(page: Page, site: Site):
    ground = "() => getComputedStyle(document.body).backgroundColor"
    go(page, site, "now")
    page.emulate_media(color_scheme="light")
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)

    page.get_by_role("button", name="theme: system").click()
    expect(page.get_by_role("button", name="theme: light")).to_be_visible()
    chosen = page.evaluate(ground)
    page.reload()
    expect(page.get_by_role("button", name="theme: light")).to_be_visible()

    assert dark != light
    assert chosen == page.evaluate(ground) == light


def _too_wide(page: Page) -> object:
    return page.evaluate(
        """() => [...document.querySelectorAll("body *")]
            .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
            .slice(0, 8).map(one => one.outerHTML.slice(0, 160))"""
    )


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("job/abc", "“abc” is not the number of a job. All jobs"),
        ("job", "The number of the job is missing. All jobs"),
        (f"job/{10**22}", f"“{10**22}” is not the number of a job. All jobs"),
        ("sweeps/-1", "“-1” is not the number of a sweep. All sweeps"),
    ],
)
def test_a_number_that_is_none_is_said(page: Page, site: Site, address: str, says: str):
    go(page, site, address)

    expect(page.locator("main")).to_have_text(says)


@pytest.mark.parametrize(
    "address", ["jobs?order=xyz", "jobs?order=metric.%22", "timeline?until=1e99", "timeline?hours=abc"]
)
def test_what_an_address_cannot_ask_for_is_left_out(page: Page, site: Site, jobs: tuple[int, int], address: str):
    go(page, site, address)

    expect(page.locator(".job-rows .job-row, canvas").first).to_be_visible()
    expect(page.locator("main .error")).to_have_count(0)
