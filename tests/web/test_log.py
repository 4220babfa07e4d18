"""A job's log: live, followed, searched, coloured, and of any length."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import Site, Watch, go

SPARSE = 1 << 30  # bytes


def scroller(page: Page) -> Locator:
    return page.get_by_role("region", name="lines")


def line(page: Page, number: int) -> Locator:
    """The text of a line that is in sight, or near it."""
    return (
        page.locator(".log-line").filter(has=page.get_by_label(f"line {number}", exact=True)).locator(".log-text")
    )


def is_at_end(page: Page) -> bool:
    found = scroller(page).evaluate("one => one.scrollHeight - one.scrollTop - one.clientHeight < 4")
    return bool(found)


@pytest.fixture(scope="module")
def long(daemon: DaemonProcess) -> int:
    """A job that wrote a hundred thousand lines, each a minute of work apart from the last."""
    script = 'BEGIN { for (i = 1; i <= 100000; i++) print "step " i (i % 30000 ? "" : " needle") }'
    number = daemon.add({"command": f"awk '{script}'", "name": "long"})
    daemon.wait(number)
    return number


def test_a_log_grows_and_is_followed_until_the_user_scrolls_up(page: Page, site: Site, daemon: DaemonProcess):
    more = daemon.world.folder.parent / "more"
    more.write_text("".join(f"first {number}\n" for number in range(1, 201)))
    number = daemon.add({"command": f"exec tail -n +1 -f {more}", "name": "live"})
    go(page, site, f"job/{number}/log")
    expect(line(page, 200)).to_have_text("first 200")

    _append(more, 201, 300)
    expect(line(page, 300)).to_have_text("first 300")
    wait_until(lambda: is_at_end(page))
    scroller(page).hover()
    page.mouse.wheel(0, -2000)
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "false")
    place = _resting_place(page)
    _append(more, 301, 400)
    expect(page.locator(".log-size")).to_have_text(re.compile("K"))
    wait_until(lambda: _height(page) >= 400 * 20, show=lambda: _height(page))
    assert scroller(page).evaluate("one => one.scrollTop") == place

    page.get_by_role("button", name="Jump to the end").click()
    expect(line(page, 400)).to_be_in_viewport()
    _append(more, 401, 450)
    expect(line(page, 450)).to_be_in_viewport()
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})


def test_colours_are_classes_and_progress_bars_are_folded(page: Page, site: Site, daemon: DaemonProcess):
    said = r"\033[1;31mred\033[0m plain\n0%%\r50%%\r100%%\nlast \033]0;title\007word\n"
    number = daemon.add({"command": f"printf '{said}'", "name": "coloured"})
    daemon.wait(number)

    go(page, site, f"job/{number}/log")

    expect(line(page, 1)).to_have_text("red plain")
    expect(line(page, 1).locator(".ansi-red, .ansi-red-fg")).to_have_text("red")
    expect(line(page, 2)).to_have_text("100%")
    expect(line(page, 3)).to_have_text("last word")
    expect(page.locator(".log-line")).to_have_count(3)
    assert page.locator(".log-line [style*=color]").count() == 0


def test_a_hundred_thousand_lines_are_searched_and_a_line_has_an_address(page: Page, site: Site, long: int):
    go(page, site, f"job/{long}/log")
    expect(line(page, 100000)).to_have_text("step 100000")
    assert page.locator(".log-line").count() < 200

    page.keyboard.press("/")
    page.keyboard.type("NEEDLE")
    expect(page.locator(".log-found")).to_have_text("1 of 3")
    expect(line(page, 30000)).to_be_in_viewport()
    expect(line(page, 30000).locator("mark")).to_have_text("needle")
    page.keyboard.press("Enter")
    expect(line(page, 60000)).to_be_in_viewport()
    expect(page.locator(".log-found")).to_have_text("2 of 3")
    page.get_by_label("line 60000", exact=True).click()
    expect(page).to_have_url(re.compile(r"/log\?line=60000"))
    page.keyboard.press("Escape")

    page.goto("about:blank")
    go(page, site, f"job/{long}/log?line=45678")
    expect(line(page, 45678)).to_be_in_viewport()
    expect(page.locator(".log-line.is-linked .log-text")).to_have_text("step 45678")


def test_scrolling_through_reads_what_comes_into_sight(page: Page, site: Site, long: int):
    go(page, site, f"job/{long}/log")
    expect(line(page, 100000)).to_be_in_viewport()

    def is_in_the_middle() -> int:
        # Again where the page moved to the end in the same frame, because more of the log had just come.
        scroller(page).evaluate("one => { one.scrollTop = one.scrollHeight / 2 }")
        return line(page, 50000).count()

    wait_until(is_in_the_middle)
    expect(line(page, 50000)).to_have_text("step 50000")
    page.keyboard.press("g")
    page.keyboard.press("g")
    expect(line(page, 1)).to_be_in_viewport()
    page.keyboard.press("G")
    expect(line(page, 100000)).to_be_in_viewport()


def test_the_raw_file_is_downloaded(page: Page, site: Site, long: int, tmp_path: Path):
    go(page, site, f"job/{long}/log")

    with page.expect_download() as waited:
        page.get_by_role("button", name="Download").click()

    waited.value.save_as(tmp_path / "raw")
    text = (tmp_path / "raw").read_text()
    assert text.startswith("step 1\nstep 2\n")
    assert text.count("\n") == 100000


def test_the_end_of_a_very_large_log_is_there_before_its_lines_are_counted(
    page: Page, site: Site, daemon: DaemonProcess, watch: Watch
):
    watch.forgive("503")  # a busy machine takes its time for a gigabyte, and the page asks again
    # A hole of gigabytes without a line break, as a job leaves it that truncates and seeks.
    command = f"echo beginning; truncate -s {SPARSE} /dev/stdout; printf '\\nthe end\\n' >> /proc/self/fd/1"
    number = daemon.add({"command": command, "name": "large"})
    daemon.wait(number)

    go(page, site, f"job/{number}/log")

    expect(page.locator(".log-scroll")).to_contain_text("the end")
    expect(page.locator(".log-size")).to_have_text("1.0G")
    page.get_by_role("link", name="Now").click()
    expect(page.get_by_role("heading", name="Now")).to_be_visible()


def test_errors_are_shown_where_a_job_writes_nothing_else(page: Page, site: Site, daemon: DaemonProcess):
    number = daemon.add({"command": "echo wrong >&2; exit 1", "name": "errors"})
    daemon.wait(number)

    go(page, site, f"job/{number}")

    expect(page.locator(".log-scroll")).to_contain_text("wrong")


def test_scrolling_up_while_the_lines_are_counted_stays_there(page: Page, site: Site, long: int):
    is_counted = False

    def answer(route: Route) -> None:
        response = route.fetch()
        body = response.json()
        route.fulfill(response=response, json=body if is_counted else {**body, "total": None})

    page.route("**/log/lines?*", answer)
    go(page, site, f"job/{long}/log")
    expect(page.get_by_text("step 100000", exact=True)).to_be_in_viewport()

    scroller(page).hover()
    page.mouse.wheel(0, -1000)
    expect(page.get_by_text("step 99940", exact=True)).to_be_in_viewport()
    is_counted = True

    expect(line(page, 99930)).to_be_in_viewport()
    page.unroute_all(behavior="ignoreErrors")


TRACEBACK = 'Traceback (most recent call last):\\n  File "train.py", line 3\\nValueError: the batch is empty\\n'


def test_a_failed_job_opens_on_both_streams_and_tells_its_exception(page: Page, site: Site, daemon: DaemonProcess):
    number = daemon.add({"command": f"seq 300; printf '{TRACEBACK}' >&2; exit 1", "name": "traceback"})
    daemon.wait(number)

    go(page, site, f"job/{number}")

    expect(page.locator(".job-story")).to_contain_text("Failed (exit 1)")
    expect(page.locator(".job-failure")).to_have_text("ValueError: the batch is empty")
    last = page.locator(".log-line").filter(has_text="ValueError")
    expect(last).to_be_in_viewport()
    expect(last.locator(".log-stream")).to_have_text("err")
    expect(last.get_by_role("link")).to_have_attribute("href", re.compile("line=3.*stream=stderr"))
    expect(page.locator(".log")).to_contain_text("stderr stands last")
    page.get_by_label("search the log").fill("300")
    expect(page.locator(".log-line.is-current .log-stream")).to_have_text("out")
    page.get_by_role("group", name="stream").get_by_role("button", name="stderr").click()
    expect(page.locator(".log-line")).to_have_count(3)


def test_stderr_is_marked_where_stdout_is_empty(page: Page, site: Site, daemon: DaemonProcess):
    number = daemon.add({"command": "echo wrong >&2; exit 1", "num_gpus": 0})
    daemon.wait(number)

    go(page, site, f"job/{number}")

    expect(page.locator(".log-line").filter(has_text="wrong").locator(".log-stream")).to_have_text("err")


def test_an_exception_on_stdout_stands_last(page: Page, site: Site, daemon: DaemonProcess):
    number = daemon.add({"command": f"seq 100 >&2; printf '{TRACEBACK}'; exit 1", "name": "on stdout"})
    daemon.wait(number)

    go(page, site, f"job/{number}")

    expect(page.locator(".job-failure")).to_have_text("ValueError: the batch is empty")
    expect(page.locator(".log-line").filter(has_text="ValueError")).to_be_in_viewport()


def test_what_both_streams_write_while_it_is_looked_at_stands_in_that_order(
    page: Page, site: Site, daemon: DaemonProcess
):
    out, err = (daemon.world.folder.parent / name for name in ("out", "err"))
    out.write_text("first 0\n")
    err.write_text("warning\n")
    command = f"tail -n +1 -f {out} & exec tail -n +1 -f {err} >&2"
    number = daemon.add({"command": command, "name": "both", "grace_seconds": 0.5})
    go(page, site, f"job/{number}/log")
    texts = page.locator(".log-text")
    expect(texts).to_have_text(["first 0", "warning"])

    _append(out, 1, 1)

    expect(texts).to_have_text(["first 0", "warning", "first 1"])
    expect(page.locator(".log")).to_contain_text("their order is approximate")
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})


def _append(file: Path, first: int, last: int) -> None:
    with file.open("a") as more:
        more.write("".join(f"first {number}\n" for number in range(first, last + 1)))


def _resting_place(page: Page) -> float:
    """Where it stands, once it moves no more."""
    seen = [-1.0]

    def rests() -> bool:
        page.wait_for_timeout(200)
        seen.append(float(scroller(page).evaluate("one => one.scrollTop")))
        return seen[-1] == seen[-2]

    wait_until(rests, show=lambda: seen)
    return seen[-1]


def _height(page: Page) -> int:
    return int(scroller(page).evaluate("one => one.scrollHeight"))
