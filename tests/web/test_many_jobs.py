"""A table of 120,000 jobs: its first rows come at once, and its end is one gesture away."""

import re
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import Site, go

JOBS = 120_000
RAN = 500


@pytest.fixture(scope="module")
def site(daemon: DaemonProcess) -> Site:
    """A daemon after very many jobs: some have run, the rest are copies of them in its store."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
    from fill import multiply

    first = daemon.add(*({"command": f"true {number}", "num_gpus": 0} for number in range(RAN)))
    wait_until(lambda: daemon.get("/v1/status")["counts"]["succeeded"] == RAN, seconds=120)
    assert first == 1
    daemon.end()
    multiply(str(daemon.queue / "store.db"), RAN, JOBS // RAN)
    daemon.start()
    return Site(daemon)


def test_the_first_rows_come_soon_and_the_end_is_reached(page: Page, site: Site):
    go(page, site, "now")
    began = time.monotonic()

    page.goto(site.at("jobs"))
    expect(page.locator(".job-rows .job-row a").first).to_have_text(str(JOBS))
    print(f"the first rows of {JOBS} jobs after {time.monotonic() - began:.2f} s")

    assert page.locator(".job-rows .job-row").count() < 100
    expect(page.get_by_role("group", name="state")).to_contain_text("120,000")
    began = time.monotonic()
    page.locator(".job-scroll").evaluate("one => { one.scrollTop = one.scrollHeight }")
    expect(page.locator(".job-rows .job-row a").last).to_have_text("1")
    print(f"the last one after {time.monotonic() - began:.2f} s")


def test_jumps_through_the_table_show_the_rows_that_belong_there(page: Page, site: Site):
    go(page, site, "jobs")
    expect(page.locator(".job-rows .job-row a").first).to_have_text(str(JOBS))

    for part in (0.25, 0.5, 0.9, 0.1):
        page.locator(".job-scroll").evaluate("(one, part) => { one.scrollTop = one.scrollHeight * part }", part)
        wanted = str(round(JOBS * (1 - part)))
        expect(page.get_by_role("link", name=wanted, exact=True)).to_be_in_viewport()


def test_rows_that_are_not_read_yet_have_placeholders_while_the_table_is_scrolled(page: Page, site: Site):
    go(page, site, "jobs")
    expect(page.locator(".job-rows .job-row a").first).to_have_text(str(JOBS))
    page.route("**/v1/jobs?*", lambda route: None)  # no more rows come

    frames = page.evaluate(SCROLL)

    print(f"{frames['rate']:.0f} frames a second, {frames['blank']} without a row in the middle")
    assert frames["blank"] == 0
    assert frames["placeholders"] == 40  # of the first rows there is no trace after the first step
    page.unroute("**/v1/jobs?*")


# Through the whole table in forty steps; counts the steps after which the middle of the table shows no row.
SCROLL = """async () => {
  const one = document.querySelector('.job-scroll');
  const { left, top, height } = one.getBoundingClientRect();
  const frame = () => new Promise(requestAnimationFrame);
  const began = performance.now();
  let blank = 0, placeholders = 0;
  for (let step = 1; step <= 40; step++) {
    one.scrollTop = one.scrollHeight * step / 41;
    await frame();
    await frame();
    const row = document.elementFromPoint(left + 100, top + height / 2)?.closest('.job-row');
    if (!row) blank++;
    if (row?.querySelector('.job-blank')) placeholders++;
  }
  return { blank, placeholders, rate: 80_000 / (performance.now() - began) };
}"""


def test_the_whole_table_is_sorted_by_a_column_and_all_of_it_is_chosen(page: Page, site: Site):
    go(page, site, "jobs?columns=name,seconds,gpus")
    expect(page.locator(".job-rows .job-row a").first).to_have_text(str(JOBS))
    for column in ("took", "GPU", "name"):
        began = time.monotonic()
        page.get_by_role("columnheader", name=column, exact=True).get_by_role("button").click()
        expect(page.get_by_role("columnheader", name=column, exact=True)).to_have_attribute(
            "aria-sort", re.compile(".")
        )
        expect(page.locator(".job-rows .job-row a").first).to_be_visible()
        print(f"the first rows by {column} after {time.monotonic() - began:.2f} s")

    page.get_by_role("checkbox", name="choose all that match").check()
    expect(page.get_by_role("toolbar")).to_contain_text("All 120,000 jobs that match")
    began = time.monotonic()
    page.get_by_role("toolbar").get_by_role("button", name="Hold").click()
    expect(page.locator(".toasts")).to_contain_text("None of these jobs can be held: 120,000 succeeded.")
    print(f"what cannot be held is counted after {time.monotonic() - began:.2f} s")


def test_back_leads_to_the_same_rows(page: Page, site: Site):
    go(page, site, "jobs")
    expect(page.locator(".job-rows .job-row a").first).to_have_text(str(JOBS))
    page.locator(".job-scroll").evaluate("one => { one.scrollTop = one.scrollHeight / 2 }")
    row = page.get_by_role("link", name=str(JOBS // 2), exact=True)

    row.click()
    expect(page.locator(".job-story")).to_be_visible()
    page.go_back()

    expect(row).to_be_in_viewport()


def test_a_search_finds_one_among_all(page: Page, site: Site):
    go(page, site, "jobs?order=oldest")

    page.get_by_label("search").fill("true 499")

    expect(page.locator(".job-rows .job-row a").first).to_have_text("500")
    expect(page.locator(".job-table")).to_have_attribute("aria-rowcount", str(JOBS // RAN + 1))


def test_the_timeline_shows_the_latest_of_them_and_says_so(page: Page, site: Site):
    go(page, site, "timeline?hours=168")

    expect(page.get_by_text("only the latest 10,000 are shown")).to_be_visible()
    page.get_by_text("The same in words").click()
    expect(page.get_by_role("table")).to_contain_text("no GPU")
    page.keyboard.press("+")
    expect(page).to_have_url(re.compile("hours=84"))
