"""What is done to the queue and the cards as a whole, and a new sweep: from the page."""

import re

from playwright.sync_api import Page, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import Site, Watch, go
from web.sweeping import finish


def test_a_project_is_paused_and_goes_on(page: Page, site: Site, daemon: DaemonProcess):
    daemon.wait(daemon.add({"command": "true", "project": "vision", "num_gpus": 0}))
    go(page, site, "now")
    page.get_by_role("link", name="Manage").click()
    queue = page.get_by_role("region", name="the queue")

    queue.get_by_role("button", name="Pause vision").click()
    expect(queue.get_by_role("listitem").filter(has_text="vision")).to_contain_text("paused")
    assert daemon.get("/v1/status")["paused_projects"] == ["vision"]
    queue.get_by_role("button", name="Go on vision").click()

    wait_until(lambda: daemon.get("/v1/status")["paused_projects"] == [])
    queue.get_by_role("button", name="Pause the queue").click()
    expect(queue.get_by_role("button", name="Go on", exact=True)).to_be_visible()
    assert daemon.get("/v1/status")["paused"]
    daemon.post("/v1/unpause", {})


def test_several_cards_are_drained_at_once(page: Page, site: Site, daemon: DaemonProcess):
    go(page, site, "manage")
    cards = page.get_by_role("region", name="GPUs")

    cards.get_by_role("button", name="Drain").click()
    expect(cards).to_contain_text("Choose a card first.")
    cards.get_by_label(re.compile(r"GPU 1\b")).check()
    cards.get_by_label(re.compile(r"GPU 2\b")).check()
    cards.get_by_label("Reason").fill("new fans")
    cards.get_by_role("button", name="Drain").click()

    states = lambda: [(gpu["state"], gpu["why"]) for gpu in daemon.get("/v1/gpus")["gpus"]]  # noqa: E731
    wait_until(lambda: [state for state, _ in states()[1:]] == ["drained", "drained", "free"], show=states)
    assert states()[1] == ("drained", "new fans")
    expect(cards.get_by_text("new fans")).to_have_count(2)
    cards.get_by_label("all of them").check()
    cards.get_by_role("button", name="Use again").click()
    wait_until(lambda: "drained" not in [state for state, _ in states()], show=states)


def test_what_a_clean_removes_is_said_first(page: Page, site: Site, daemon: DaemonProcess):
    first = daemon.add(
        {"command": "true", "project": "old", "num_gpus": 0},
        {"command": "false", "project": "old", "num_gpus": 0},
    )
    daemon.wait(first, first + 1)
    go(page, site, "manage")
    clean = page.get_by_role("region", name="clean")

    clean.get_by_label("Project").select_option("old")
    expect(clean).to_contain_text("There is nothing to remove.")  # they ended a moment ago
    clean.get_by_label("Ended longer ago than").fill("lately")
    expect(clean).to_contain_text("Write it like 2h")
    expect(clean.get_by_role("button", name="Remove")).to_be_disabled()
    clean.get_by_label("Ended longer ago than").fill("")
    expect(clean).to_contain_text("This removes 2 jobs")
    clean.get_by_label("succeeded").uncheck()
    expect(clean).to_contain_text("This removes 1 job and")
    clean.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove 1 job").click()

    expect(page.locator(".toasts")).to_contain_text("1 job removed.")
    assert daemon.call("GET", f"/v1/jobs/{first + 1}").code == "no-such-job"
    assert daemon.state(first) == "succeeded"
    expect(clean).to_contain_text("There is nothing to remove.")


def test_a_sweep_is_begun_by_the_rules_of_the_file(page: Page, site: Site, daemon: DaemonProcess, watch: Watch):
    watch.forgive("400")  # what is typed is tried, and refused
    like = daemon.add({"command": "true", "workdir": str(daemon.world.state), "num_gpus": 0})
    go(page, site, "sweeps")
    page.get_by_role("link", name="New sweep").click()
    form = page.get_by_role("form", name="new sweep")
    expect(form.get_by_label("Folder")).to_have_value(str(daemon.world.state))
    expect(form.get_by_label("Environment")).to_have_value(str(like))

    form.get_by_role("button", name="Start the sweep").click()
    expect(form.get_by_label("Command")).to_be_focused()
    expect(form).to_contain_text("Write the command to run.")
    form.get_by_label("Command").fill('echo "loss={x}{y}" >> "$DIBS_METRICS"')
    form.get_by_role("button", name="remove parameter 1").click()
    form.get_by_role("button", name="Add x").click()
    form.get_by_role("button", name="Add y").click()
    form.get_by_label("values of x").fill("1..4")
    form.get_by_label("values of y").fill("0..1:lgo")
    expect(form).to_contain_text("cannot read 'lgo' in the range of y")
    expect(form.get_by_label("values of y")).to_have_attribute("aria-invalid", "true")
    form.get_by_label("values of y").fill("5 6 if x=1")
    expect(form.get_by_role("region", name="preview")).to_contain_text("8 trials")
    form.get_by_label("values of y").fill("5 6")
    form.get_by_label("Conditions").fill("x < 3")
    expect(form.get_by_role("region", name="preview")).to_contain_text('echo "loss=26"')
    form.get_by_label("Search", exact=True).select_option("random")
    expect(form).to_contain_text("a search of the method random has no end")
    form.get_by_label("Samples").fill("a few")
    expect(form).to_contain_text("samples is a whole number")
    form.get_by_label("Samples").fill("2")
    form.get_by_label("Metric", exact=True).fill("loss:max")
    form.get_by_label("Name", exact=True).fill("from the page")
    form.get_by_label("Its value is read from").select_option("wandb")
    form.get_by_label("Target").fill("soon")
    expect(form).to_contain_text("target is a number")
    form.get_by_label("Target").fill("99")
    form.get_by_label("Metric", exact=True).fill("")
    form.get_by_role("button", name="Start the sweep").click()
    expect(form.get_by_label("Target")).to_have_attribute("aria-invalid", "true")
    expect(form).to_contain_text("It needs one metric")
    form.get_by_label("Metric", exact=True).fill("loss:max")
    form.get_by_label("Its value is read from").select_option("metrics")
    form.get_by_label("GPUs", exact=True).fill("none")

    # Nothing typed is lost on the way to another view and back.
    page.get_by_role("link", name="Now", exact=True).click()
    expect(form).to_have_count(0)
    page.go_back()
    expect(form.get_by_label("values of x")).to_have_value("1..4")
    expect(form.get_by_role("region", name="preview")).to_contain_text("2 trials")
    form.get_by_role("button", name="Start the sweep").click()
    expect(form.get_by_label("GPUs", exact=True)).to_be_focused()
    form.get_by_label("GPUs", exact=True).fill("0")
    form.get_by_role("button", name="Start the sweep").click()

    expect(page).to_have_url(re.compile(r"#/sweeps/1$"))
    found = finish(daemon, 1)
    assert found["name"] == "from the page"
    assert found["metrics"] == [{"name": "loss", "goal": "max"}]
    assert found["counts"]["complete"] == 2
    assert found["best"][0]["values"] in ([15.0], [16.0], [25.0], [26.0])
