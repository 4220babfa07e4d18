"""Metrics: the curves of a job, of several jobs over each other, of a sweep's trials; progress as a bar."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import NARROW, Site, findings, fits, go, visit
from web.sweeping import LOSS, begin, finish, values

# A falling loss and a rising accuracy; the factor makes the runs differ.
TRAINING = """awk -v lr={lr} 'BEGIN {{
  for (i = 1; i <= 60; i++) printf "loss=%g val/acc=%g step=%d\\n", lr + 1 / i, 1 - lr - 1 / (i + 1), i * 10
}}' >> "$DIBS_METRICS" """


@pytest.fixture(scope="module")
def runs(daemon: DaemonProcess, tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """Three that are over, and one that is at 40 %."""
    done = [
        daemon.add({"command": TRAINING.format(lr=lr) + f" # --lr {lr}", "num_gpus": 0, "name": "train"})
        for lr in (0.1, 0.2, 0.3)
    ]
    daemon.wait(*done)
    command = """echo "loss=0.5 step=40 steps=100" >> "$DIBS_METRICS"; trap 'kill $!' TERM
until [ -e go-on ]; do sleep 0.1; done; echo "loss=0.25 step=80" >> "$DIBS_METRICS"; sleep 611 & wait"""
    long = {"command": command, "name": "long", "workdir": str(tmp_path_factory.mktemp("long"))}
    return [*done, daemon.add(long)]


def curve(page: Page, name: str) -> Any:
    return page.locator(f".curve[aria-label^='{name} by']")


def test_a_job_has_its_curves_by_step_or_time_live(page: Page, site: Site, daemon: DaemonProcess, runs: list[int]):
    go(page, site, f"job/{runs[0]}")
    metrics = page.get_by_role("region", name="metrics")

    expect(curve(page, "loss")).to_have_attribute("aria-label", "loss by step, now 0.1167")
    expect(curve(page, "val/acc")).to_be_visible()
    expect(metrics).to_contain_text("last 0.1167, min 0.1167 at step 600, max 1.1")
    metrics.get_by_label("horizontal axis").select_option("time")
    metrics.get_by_label("log scale").check()
    metrics.get_by_label("smoothing").fill("0.9")
    expect(curve(page, "loss")).to_have_attribute("aria-label", re.compile(r"loss by time, now 0\.1[2-9]"))

    go(page, site, f"job/{runs[3]}")
    expect(curve(page, "loss")).to_be_visible()
    expect(page.get_by_role("region", name="course")).to_contain_text("40 %")
    page.get_by_label("horizontal axis").select_option("step")
    page.get_by_label("smoothing").fill("0")
    (Path(daemon.job(runs[3])["workdir"]) / "go-on").touch()
    expect(curve(page, "loss")).to_have_attribute("aria-label", "loss by step, now 0.25")
    for axis, place in (("step", r"0\.25 at step 80"), ("time", r"0\.25 at (?!1m 20s)")):
        page.get_by_label("horizontal axis").select_option(axis)
        area = wait_until(curve(page, "loss").locator(".u-over").bounding_box)  # the chart is made anew
        assert area
        page.mouse.move(area["x"] + area["width"] - 4, area["y"] + 0.9 * area["height"])  # near the last point
        page.mouse.move(area["x"] + area["width"] - 4, area["y"] + 0.94 * area["height"])
        expect(page.locator(".chart figcaption").first).to_contain_text(re.compile(place))
    page.get_by_label("horizontal axis").select_option("step")


def test_a_running_job_has_a_bar_of_its_progress(page: Page, site: Site, daemon: DaemonProcess, runs: list[int]):
    daemon.add({"command": "exec sleep 612", "name": "limited", "time_limit_seconds": 7200})
    daemon.add({"command": "exec sleep 613", "name": "endless"})
    go(page, site, "now")
    running = page.get_by_role("region", name="Running")

    def part_of(name: str) -> tuple[float, float]:
        bar = running.get_by_role("progressbar", name=re.compile(name))
        expect(bar).to_have_count(1)
        said = float(bar.get_attribute("aria-valuenow") or "nan") / 100
        return said, float(bar.evaluate("one => one.firstElementChild.clientWidth / one.clientWidth"))

    said, drawn = part_of("^[48]0 %")  # the test above has let it go on
    assert said in (0.4, 0.8)
    assert abs(drawn - said) < 0.03
    said, drawn = part_of("of at most 2h")
    assert said == 0
    assert drawn < 0.03
    expect(running.locator("li").filter(has_text="endless").get_by_role("progressbar")).to_have_count(0)


def test_what_is_left_of_a_job_is_told_by_its_progress(page: Page, site: Site, daemon: DaemonProcess):
    command = 'sleep 1; echo progress=0.01 >> "$DIBS_METRICS"; exec sleep 614'
    number = daemon.add({"command": command, "name": "slow", "num_gpus": 0})
    left = re.compile(r"1 %, \dm .*left")
    go(page, site, f"job/{number}")
    expect(page.get_by_role("region", name="course")).to_contain_text(left)

    page.get_by_role("link", name="Now", exact=True).click()

    line = page.get_by_role("region", name="Running").locator("li").filter(has_text="slow")
    expect(line).to_contain_text(left)
    expect(line.get_by_role("progressbar", name=left)).to_have_count(1)
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})


def test_the_last_metrics_of_a_running_job_are_read_again(
    page: Page, site: Site, daemon: DaemonProcess, tmp_path: Path
):
    """A line of metrics is no event."""
    report = 'echo loss={} >> "$DIBS_METRICS"'
    wait = f"until test -e {tmp_path}/go; do sleep 0.05; done"
    command = f"sleep 1; {report.format(2)}; {wait}; {report.format(1)}; sleep 600"
    number = daemon.add({"command": command, "name": "reporting", "num_gpus": 0})
    go(page, site, "jobs?columns=name,metrics,metric.loss&text=reporting")
    row = page.locator(".job-rows .job-row")
    expect(row.locator(".job-metrics")).to_have_text("loss=2")
    expect(row.locator(".job-figure")).to_have_text("2")

    (tmp_path / "go").touch()

    expect(row.locator(".job-metrics")).to_have_text("loss=1")
    expect(row.locator(".job-figure")).to_have_text("1")
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})


def test_chosen_jobs_are_compared_and_told_apart_by_what_differs(
    page: Page, site: Site, browser: Browser, runs: list[int], axe: str
):
    go(page, site, "jobs")
    for number in runs[:3]:
        page.get_by_label(f"choose job {number}").check()
    page.get_by_role("button", name="Compare").click()

    legend = page.get_by_role("region", name="legend")
    expect(legend.get_by_role("listitem")).to_have_count(3)
    expect(legend.get_by_role("listitem").nth(1)).to_contain_text("lr=0.2")
    expect(curve(page, "loss")).to_have_attribute("aria-label", "loss by step, 3 lines")
    legend.get_by_label(f"show job {runs[0]}").uncheck()
    expect(curve(page, "val/acc")).to_have_attribute("aria-label", "val/acc by step, 2 lines")
    figure, panel = (page.locator(one).first.bounding_box() for one in (".chart", ".compare-charts > .panel"))
    assert figure and panel and figure["x"] - panel["x"] < 24
    box = curve(page, "loss").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)  # the legend is left, and the lines are drawn anew
    expect(page.locator(".chart figcaption").first).to_have_text("loss")
    page.mouse.move(box["x"] + box["width"] - 30, box["y"] + box["height"] - 40, steps=3)
    expect(page.locator(".chart figcaption").first).to_contain_text(re.compile(r"at step \d+ · \d+ .*lr=0\.2"))
    with visit(site, browser, viewport=NARROW, bypass_csp=True, color_scheme="dark") as (phone, _):
        go(phone, site, f"compare?jobs={runs[0]}-{runs[3]}")
        expect(curve(phone, "loss")).to_have_attribute("aria-label", "loss by step, 4 lines")
        assert fits(phone)["content"] <= NARROW["width"]
        assert findings(phone, axe) == []
        go(phone, site, f"job/{runs[0]}")
        expect(curve(phone, "loss")).to_be_visible()
        assert findings(phone, axe) == []


def test_a_sweep_has_the_curves_of_its_trials(page: Page, site: Site, daemon: DaemonProcess):
    command = TRAINING.replace("{{", "{").replace("}}", "}") + "; test {lr} != 0.3"
    number = begin(daemon, command, values("lr", "0.1", "0.2", "0.3"), metrics=LOSS)
    finish(daemon, number)

    go(page, site, f"sweeps/{number}")

    expect(curve(page, "loss")).to_have_attribute("aria-label", "loss by step, 3 lines")
    page.get_by_label("metric of the curves").select_option("val/acc")
    expect(curve(page, "val/acc")).to_be_visible()
    expect(page.get_by_label("legend of the curves")).to_contain_text("completefailed ✕")
