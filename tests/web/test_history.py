"""History: what the GPUs were and used, and GPU hours by week."""

import re

from playwright.sync_api import Page, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import Site, go


def test_each_card_has_a_row_in_words_and_its_cells_tell_what_it_was(
    page: Page, site: Site, daemon: DaemonProcess
):
    packed = {"command": "sleep 600", "share": "1/2", "only": ["2"], "project": "language"}
    first = daemon.add(packed, packed)
    wait_until(lambda: sum(daemon.get("/v1/history")["gpus"][2]["job_seconds"]) >= 3)
    go(page, site, "history")

    rows = page.get_by_role("table", name="Use of each GPU").get_by_role("row")
    for card in range(4):
        expect(rows.filter(has_text=re.compile(rf"^GPU {card}"))).to_contain_text("unknown")
    expect(page.get_by_role("list", name="colours")).to_contain_text("held without use")
    page.get_by_role("group", name="heat map").focus()
    tip = page.get_by_role("status").filter(has_text="GPU 2")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    found = []
    for _ in range(2):  # a new step may have begun just now
        expect(tip).to_be_visible()
        found.append(tip.inner_text())
        page.keyboard.press("ArrowLeft")
    assert any("in use by jobs" in one and "power 75 W" in one for one in found), found

    hours = page.get_by_role("region", name="GPU hours and energy", exact=True)
    expect(hours.get_by_role("row", name="language")).to_contain_text(re.compile(r"0\.0\d h"))
    expect(hours.get_by_role("row", name="used by others")).to_be_visible()
    page.get_by_role("button", name="By user").click()
    expect(hours).to_contain_text(re.compile(r"outside the queue"))
    page.get_by_role("button", name="Memory").click()
    page.get_by_role("button", name="7 d").click()
    expect(page).to_have_url(re.compile(r"show=memory&span=7d"))
    expect(page.get_by_role("table", name="Memory of each GPU")).to_contain_text("at most")
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [first, first + 1]})
