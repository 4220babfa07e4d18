"""A cluster on the page: its nodes, our jobs there, and jobs that wait in its queue."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from backends.fake_sinfo import failing_sinfo, fake_sinfo, node
from backends.private_slurm import PrivateSlurm
from daemon.daemon_process import DaemonProcess
from stories.outside import make_world, wait_until
from web.browsing import NARROW, Site, each_view, findings, fits, go, visit

LONG = "gpu-node-with-a-name-that-is-longer-than-a-narrow-screen-is-wide.cluster"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, slurm: PrivateSlurm) -> Iterator[DaemonProcess]:
    """A daemon with two GPUs of its own, and a real Slurm with three nodes."""
    world = make_world(tmp_path_factory.mktemp("daemon"))
    world.environ |= {"SLURM_CONF": slurm.environment["SLURM_CONF"], "DIBS_SLURM_EVERY": "0.3s"}
    one = DaemonProcess(world)
    one.start()
    yield one
    one.end()
    world.clean_up()


@pytest.fixture(scope="module")
def jobs(daemon: DaemonProcess) -> Iterator[dict[str, Any]]:
    """One that has both cards of the first node, and one that waits for them."""
    wish = {
        "command": "sleep 600",
        "time_limit_seconds": 7200,  # otherwise it is unknown when the next one may start
        "on": "slurm",
        "num_gpus": 2,
        "on_options": {"partition": "gpu", "nodelist": "n1"},
    }
    running = daemon.add({**wish, "name": "baseline"})
    wait_until(lambda: daemon.job(running)["node_gpus"] == "0,1", show=lambda: daemon.job(running))
    waiting = daemon.add({**wish, "name": "behind it"})
    seen = f"/v1/jobs/{waiting}/why"
    wait_until(lambda: "other jobs" in daemon.get(seen)["reason"]["sentence"], show=lambda: daemon.get(seen))
    yield {"running": running, "waiting": waiting}
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [running, waiting]})
    daemon.wait(running, waiting)


def tile(page: Page, name: str) -> Locator:
    return page.get_by_role("article", name=f"node {name}", exact=True)


def test_nodes_stand_beside_the_cards_of_this_machine(page: Page, site: Site, jobs: dict[str, Any]):
    go(page, site, "now")

    expect(page.get_by_role("article", name="GPU 0", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="nodes of Slurm")).to_contain_text("3 nodes · 2 of 6 GPUs in use")
    expect(tile(page, "n1").locator("header .badge")).to_have_text("full")
    expect(tile(page, "n1").get_by_role("img", name="2 of 2 GPUs in use")).to_be_visible()
    expect(tile(page, "n1").get_by_role("link", name=f"job {jobs['running']} (baseline)")).to_have_attribute(
        "href", f"#/job/{jobs['running']}"
    )
    expect(tile(page, "n1")).to_contain_text("on GPU 0, 1")
    expect(tile(page, "n2").locator("header .badge")).to_have_text("free")
    expect(tile(page, "n2")).to_contain_text("0 of 4")
    expect(tile(page, "n2").get_by_role("link")).to_have_count(0)


def test_what_waits_in_the_clusters_queue_waits_and_does_not_run(page: Page, site: Site, jobs: dict[str, Any]):
    go(page, site, "now")

    waiting = page.get_by_role("region", name="Waiting")
    expect(waiting.get_by_role("link", name="behind it")).to_contain_text("submitted")
    expect(waiting).to_contain_text("waits at Slurm: other jobs have what it needs")
    expect(waiting).to_contain_text("it may start at about")
    running = page.get_by_role("region", name="Running")
    expect(running).to_contain_text("baseline")
    expect(running).to_contain_text("node n1, GPU 0, 1")
    expect(running).not_to_contain_text("behind it")


def test_the_table_says_on_which_node_and_cards(page: Page, site: Site, jobs: dict[str, Any]):
    go(page, site, "jobs")

    row = page.get_by_role("row").filter(has_text="baseline")
    expect(row.locator(".job-gpus")).to_have_text("n1:0,1")
    page.get_by_role("group", name="state").get_by_role("button", name="Waiting").click()
    expect(page.get_by_role("row").filter(has_text="behind it")).to_contain_text("submitted")
    expect(row).to_have_count(0)


def test_a_jobs_page_says_where_it_runs_and_why_it_waits(
    page: Page, site: Site, daemon: DaemonProcess, jobs: dict[str, Any]
):
    number = daemon.job(jobs["running"])["attempts_list"][-1]["backend_job"]
    go(page, site, f"job/{jobs['running']}")
    expect(page.locator(".job-story")).to_contain_text("Runs on node n1, GPU 0, 1 for")
    facts = page.get_by_role("region", name="facts")
    expect(facts).to_contain_text("Slurm, partition gpu, nodelist n1")
    expect(facts).to_contain_text(re.compile(rf"slurm\s*{number}\D"))
    expect(page.get_by_role("region", name="table of attempts")).to_contain_text("n1:0,1")

    go(page, site, f"job/{jobs['waiting']}")
    expect(page.locator(".job-story")).to_contain_text(re.compile("waits at Slurm: .*; it may start at about"))
    expect(page.locator(".steps-words")).to_contain_text("waits")
    expect(page.locator(".steps-words")).not_to_contain_text("runs")
    expect(page.get_by_role("button", name="Edit", exact=True)).to_have_count(0)
    expect(page.get_by_role("button", name="Kill")).to_be_visible()


def test_the_timeline_has_a_row_for_a_node(page: Page, site: Site, jobs: dict[str, Any]):
    go(page, site, "timeline?hours=1")
    page.get_by_text("The same in words").click()

    table = page.get_by_role("table")
    expect(table.get_by_role("row", name="node n1")).to_contain_text("1 job")
    expect(table).not_to_contain_text("no GPU")


def test_why_a_node_is_out_is_said_and_only_said(
    page: Page, site: Site, slurm: PrivateSlurm, jobs: dict[str, Any]
):
    slurm.ask("scontrol", "update", "nodename=n3", "state=drain", "reason=<b>loud</b> fan")
    go(page, site, "now")

    expect(tile(page, "n3").locator("header .badge")).to_have_text("drained")
    expect(tile(page, "n3")).to_contain_text("<b>loud</b> fan")
    expect(page.get_by_role("region", name="nodes of Slurm")).to_contain_text("1 out of use · 2 of 4 GPUs in use")

    slurm.resume()
    expect(tile(page, "n3").locator("header .badge")).to_have_text("free")


def test_the_form_asks_where_and_in_which_partition(
    page: Page, site: Site, daemon: DaemonProcess, jobs: dict[str, Any]
):
    go(page, site, "submit")
    form = page.get_by_role("form", name="new jobs")
    form.get_by_label("Folder").fill(str(daemon.world.folder.parent))
    form.get_by_label("Commands").fill("true")
    expect(form.get_by_label("Where").locator("option")).to_have_text(
        ["as usual (this machine)", "this machine", "Slurm"]
    )
    form.get_by_label("Where").select_option("Slurm")
    form.get_by_label("Partition").fill("gpu")
    form.get_by_role("button", name="Dry run").click()
    expect(page.get_by_role("region", name="dry run")).to_contain_text("The job: it is handed to")

    form.get_by_role("button", name="Add", exact=True).click()

    expect(form.locator(".submit-added")).to_contain_text("Added")
    number = int(form.locator(".submit-added a").inner_text().split()[1])
    added = daemon.job(number)
    assert (added["on"], added["on_options"]) == ("slurm", {"partition": "gpu"})
    daemon.wait(number)


def test_a_job_asked_for_again_goes_where_it_was(
    page: Page, site: Site, daemon: DaemonProcess, jobs: dict[str, Any]
):
    go(page, site, f"job/{jobs['running']}")
    page.get_by_role("button", name="Edit and resubmit").click()
    form = page.get_by_role("form", name="new jobs")
    expect(form.get_by_label("Where")).to_have_value("slurm")
    expect(form.get_by_label("Partition")).to_have_value("gpu")
    form.get_by_label("GPUs", exact=True).fill("0")
    form.get_by_label("Time limit").fill("1m")  # so that Slurm lets it pass the one that waits
    form.get_by_label("Folder").fill(str(daemon.world.folder.parent))
    form.get_by_label("Commands").fill("true")

    form.get_by_role("button", name="Add", exact=True).click()

    expect(form.locator(".submit-added")).to_contain_text("Added")
    number = int(form.locator(".submit-added a").inner_text().split()[1])
    assert daemon.job(number)["on_options"] == {"partition": "gpu", "nodelist": "n1"}
    daemon.wait(number)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_accessible(theme: Any, site: Site, browser: Browser, axe: str, jobs: dict[str, Any]):
    with visit(site, browser, color_scheme=theme, bypass_csp=True) as (page, _):
        for path in each_view(page, site, ("now", f"job/{jobs['waiting']}", "submit")):
            expect(page.locator("main")).to_contain_text("Slurm")

            assert (path, findings(page, axe)) == (path, [])


# -- made-up clusters ----------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path, browser: Browser) -> Iterator[Any]:
    """Opens the page of a daemon whose `sinfo` is the one in this folder."""
    world = make_world(tmp_path)
    one = DaemonProcess(world)

    def open_site(path: str) -> Site:
        one.start(PATH=f"{path}{os.pathsep}{os.environ['PATH']}", SLURM_CONF="", DIBS_BACKEND="slurm")
        return Site(one)

    yield open_site
    one.end()
    world.clean_up()


def test_of_a_large_cluster_some_nodes_are_shown_and_all_on_demand(
    elsewhere: Any, browser: Browser, tmp_path: Path
):
    site = elsewhere(fake_sinfo(tmp_path / "bin", [node(f"n{number}") for number in range(300)]))
    with visit(site, browser) as (page, _):
        go(page, site, "now")
        tiles = page.get_by_role("article", name=re.compile("^node "))

        expect(page.get_by_role("region", name="nodes of Slurm")).to_contain_text("300 nodes")
        expect(tiles).to_have_count(24)
        page.get_by_role("button", name="All 300 nodes").click()
        expect(tiles).to_have_count(300)
        page.get_by_role("button", name="Fewer nodes").click()
        expect(tiles).to_have_count(24)


def test_a_long_name_does_not_make_a_narrow_screen_wide(elsewhere: Any, browser: Browser, tmp_path: Path):
    site = elsewhere(fake_sinfo(tmp_path / "bin", [node(LONG[:60], state="drained", reason=LONG * 2)]))
    with visit(site, browser, viewport=NARROW, has_touch=True) as (page, _):
        go(page, site, "now")
        expect(tile(page, LONG[:60])).to_be_visible()

        found = fits(page)
        assert found["content"] <= found["window"]


def test_a_cluster_that_does_not_answer_is_a_sentence(elsewhere: Any, browser: Browser, tmp_path: Path):
    site = elsewhere(failing_sinfo(tmp_path / "bin", "Unable to contact slurm controller (connect failure)"))
    with visit(site, browser) as (page, _):
        go(page, site, "now")

        there = page.get_by_role("region", name="nodes of Slurm")
        expect(there.get_by_role("status")).to_contain_text("cannot reach Slurm's controller: Unable to contact")
        expect(page.get_by_role("article", name=re.compile("^node "))).to_have_count(0)
