"""`dibs web --read-only`: who opens it can look, and change nothing."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import Site, each_view, go, visit

ACTS = "Kill|Retry|Hold|Release|Edit|Edit and resubmit|Drain|Use it again|Pause the queue|Go on|Add|Dry run|Set"


@pytest.fixture(scope="module")
def site(daemon: DaemonProcess) -> Site:
    return Site(daemon, read_only=True)


@pytest.fixture(scope="module")
def running(daemon: DaemonProcess) -> Iterator[int]:
    number = daemon.add({"command": "echo hello; sleep 600", "name": "looked at"})
    wait_until(lambda: daemon.state(number) == "running")
    yield number
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})


def test_no_view_offers_to_change_anything(page: Page, site: Site, running: int):
    for _ in each_view(page, site, ("now", f"job/{running}", "jobs", f"job/{running}/log", "timeline", "submit")):
        expect(page.locator(".who")).to_contain_text("read-only")
        expect(page.locator("main")).not_to_be_empty()
        for name in ACTS.split("|"):
            expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
        expect(page.get_by_role("link", name="Submit")).to_have_count(0)


def test_what_runs_is_seen_all_the_same(page: Page, site: Site, running: int):
    go(page, site, f"job/{running}")

    expect(page.locator("h1 + .badge")).to_have_text("running")
    expect(page.locator(".log-scroll")).to_contain_text("hello")


def test_the_daemon_refuses_what_the_page_does_not_offer(
    site: Site, browser: Browser, daemon: DaemonProcess, running: int
):
    with visit(site, browser) as (page, watch):
        watch.forgive("403")
        go(page, site, "now")

        status = page.evaluate(
            """async ([token, id]) => (await fetch("v1/jobs/act", {method: "POST",
               headers: {Authorization: `Bearer ${token}`, "Content-Type": "application/json"},
               body: JSON.stringify({action: "kill", ids: [id]})})).status""",
            [site.session["token"], running],
        )

        assert status == 403
        assert daemon.state(running) == "running"
