"""Job: everything about one, and what can be done to it."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from daemon.daemon_process import DaemonProcess
from stories.outside import wait_until
from web.browsing import Site, Watch, go, visit


@pytest.fixture
def running(daemon: DaemonProcess) -> int:
    """A job with a child and a grandchild, all of which run."""
    number = daemon.add({"command": "(sleep 611; true) & sleep 612; true", "name": "tree", "grace_seconds": 0.5})
    wait_until(lambda: len(tree_of(daemon, number)) >= 4, show=lambda: tree_of(daemon, number))
    return number


def tree_of(daemon: DaemonProcess, number: int) -> list[int]:
    """The processes of a job: those that carry its number in their environment."""
    mark = f"DIBS_JOB_ID={number}\0".encode()
    state = f"DIBS_STATE={daemon.world.state}".encode("utf-8", "surrogateescape")
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                environ = Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if mark in environ and (state in environ or os.fsencode(daemon.world.ledger.path) in environ):
                found.append(int(name))
    return found


def test_kill_asks_first_and_ends_the_whole_process_tree(
    page: Page, site: Site, daemon: DaemonProcess, running: int
):
    go(page, site, f"job/{running}")
    tree = tree_of(daemon, running)
    expect(page.locator(".job-story")).to_contain_text("Runs on GPU")

    page.get_by_role("button", name="Kill", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert tree_of(daemon, running) == tree
    page.get_by_role("button", name="Kill", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=f"Kill job {running}").click()

    expect(page.locator("h1 + .badge")).to_have_text("cancelled")
    wait_until(lambda: not tree_of(daemon, running), show=lambda: tree_of(daemon, running))


def test_the_command_is_copied(site: Site, browser: Browser, daemon: DaemonProcess):
    number = daemon.add({"command": "echo 'a  b'; true", "name": "copied"})
    with visit(site, browser, permissions=["clipboard-read", "clipboard-write"]) as (page, _):
        go(page, site, f"job/{number}")

        page.get_by_role("button", name="copy the command").click()

        expect(page.get_by_role("button", name="copy the command")).to_have_text("copied")
        assert page.evaluate("() => navigator.clipboard.readText()") == "echo 'a  b'; true"


def test_a_waiting_job_tells_its_reason_is_held_released_and_edited(page: Page, site: Site, daemon: DaemonProcess):
    number = daemon.add({"command": "true", "name": "wide", "num_gpus": 4})
    go(page, site, f"job/{number}")
    expect(page.locator(".job-story")).to_contain_text("waits for 4 GPUs")

    page.get_by_role("button", name="Hold").click()
    expect(page.locator("h1 + .badge")).to_have_text("held")
    page.get_by_role("button", name="Edit", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("narrow")
    dialog.get_by_label("GPUs", exact=True).fill("1")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("narrow")
    page.get_by_role("button", name="Release").click()

    expect(page.locator("h1 + .badge")).to_have_text("succeeded")
    assert daemon.job(number)["num_gpus"] == 1


def test_a_change_that_is_refused_is_told_in_the_dialog(
    page: Page, site: Site, daemon: DaemonProcess, watch: Watch
):
    watch.forgive("4[0-9][0-9]")
    number = daemon.add({"command": "true", "name": "refused", "hold": True})
    go(page, site, f"job/{number}")

    page.get_by_role("button", name="Edit", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("GPUs", exact=True).fill("99")
    dialog.get_by_role("button", name="Save").click()

    expect(dialog.get_by_role("alert")).to_contain_text("99 GPUs")
    expect(dialog.get_by_label("GPUs", exact=True)).to_have_value("99")
    expect(dialog.get_by_label("GPUs", exact=True)).to_be_focused()
    expect(dialog.get_by_label("GPUs", exact=True)).to_have_accessible_description(re.compile("99 GPUs"))
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})


def test_each_change_that_cannot_be_read_is_told_beside_its_field_and_nothing_typed_is_lost(
    page: Page, site: Site, daemon: DaemonProcess
):
    number = daemon.add({"command": "true", "name": "edited", "hold": True})
    go(page, site, f"job/{number}")
    page.get_by_role("button", name="Edit", exact=True).click()
    dialog = page.get_by_role("dialog")
    typed = {"Command": " ", "Name": "kept", "Priority": "soon", "Time limit": "a while"}
    for label, text in typed.items():
        dialog.get_by_label(label, exact=True).fill(text)
    dialog.get_by_role("button", name="Save").click()

    expect(dialog.get_by_label("Command", exact=True)).to_be_focused()
    expect(dialog.get_by_label("Command", exact=True)).to_have_accessible_description("A job needs one.")
    expect(dialog.get_by_label("Priority", exact=True)).to_have_accessible_description(re.compile("whole number"))
    expect(dialog.get_by_label("Time limit", exact=True)).to_have_accessible_description(re.compile("2h"))
    expect(dialog.get_by_label("Name", exact=True)).to_have_attribute("aria-invalid", "false")
    for button in ("Cancel", "Save"):
        expect(dialog.get_by_role("button", name=button)).to_be_in_viewport(ratio=1)
    page.mouse.click(4, 400)  # beside the dialog
    for label, text in typed.items():
        expect(dialog.get_by_label(label, exact=True)).to_have_value(text)
    dialog.get_by_label("Command", exact=True).fill("false")
    expect(dialog.get_by_label("Command", exact=True)).to_have_attribute("aria-invalid", "false")
    dialog.get_by_label("Priority", exact=True).fill("4")
    dialog.get_by_label("Time limit", exact=True).fill("2h")
    dialog.get_by_role("button", name="Save").click()

    expect(dialog).to_have_count(0)
    wanted = {"command": "false", "name": "kept", "priority": 4, "time_limit_seconds": 7200}
    assert {key: daemon.job(number)[key] for key in wanted} == wanted
    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})


def test_secrets_of_the_environment_are_not_shown(page: Page, site: Site, daemon: DaemonProcess):
    secrets = {"WANDB_API_KEY": "plain1", "HF_TOKEN": "plain2", "DB_PASSWORD": "plain3", "MY_SECRET": "plain4"}
    number = daemon.add(
        {"command": "true", "name": "secret", "env": {"OWN_TOKEN": "plain5", "LR": "0.1"}},
        environment={"PATH": "/usr/bin:/bin", **secrets},
    )
    daemon.wait(number)

    go(page, site, f"job/{number}/environment")

    environment = page.get_by_role("region", name="environment")
    expect(environment).to_contain_text("HF_TOKEN")
    expect(environment).to_contain_text("***")
    expect(environment).to_contain_text("0.1")
    expect(environment).not_to_contain_text("plain")


def test_a_failed_job_tells_its_cause_and_is_tried_again(page: Page, site: Site, daemon: DaemonProcess):
    marker = daemon.world.folder.parent / "second-time"
    number = daemon.add({"command": f"test -e {marker} || exit 7", "name": "fragile"})
    daemon.wait(number)
    go(page, site, f"job/{number}")
    expect(page.locator(".job-story")).to_contain_text("Failed (exit 7)")

    marker.touch()
    page.get_by_role("button", name="Retry").click()

    expect(page.locator("h1 + .badge")).to_have_text("succeeded")
    attempts = page.get_by_role("region", name="table of attempts").locator("tbody tr")
    expect(attempts).to_have_count(2)
    expect(attempts.first).to_contain_text("exit 7")
    expect(attempts.last).to_contain_text("succeeded")


def test_a_job_is_edited_and_submitted_again(page: Page, site: Site, daemon: DaemonProcess):
    folder = str(daemon.world.folder)  # its name is no UTF-8, and has a line break
    wishes = {"name": "again", "project": "vision", "priority": 3, "workdir": folder}
    number = daemon.add({"command": "echo before", **wishes})
    daemon.wait(number)
    go(page, site, f"job/{number}")

    page.get_by_role("button", name="Edit and resubmit").click()
    expect(page.get_by_role("heading", name=f"Job {number} again")).to_be_visible()
    commands = page.get_by_label("Commands")
    expect(commands).to_have_value("echo before")
    commands.fill("echo after")
    page.get_by_role("button", name="Add", exact=True).click()
    page.locator(".submit-added a").click()

    expect(page.get_by_label("command", exact=True)).to_have_text("echo after")
    new = daemon.job(number + 1)
    assert {name: new[name] for name in wishes} == wishes


def test_the_bar_of_a_running_job_is_as_full_as_its_time_limit(page: Page, site: Site, daemon: DaemonProcess):
    limited = daemon.add({"command": "sleep 600", "name": "limited", "time_limit_seconds": 1000})
    endless = daemon.add({"command": "sleep 600", "name": "endless"})
    go(page, site, f"job/{limited}")
    course = page.get_by_role("region", name="course")

    expect(course.locator(".step-left")).to_be_visible()
    expect(course).to_contain_text(re.compile(r"runs for .* of 16m 40s"))
    ran, left = (course.locator(name).evaluate("one => one.clientWidth") for name in (".step-run", ".step-left"))
    assert ran < left / 10
    go(page, site, f"job/{endless}")
    expect(course).to_contain_text("runs for")
    expect(course.locator(".steps")).to_have_count(0)

    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [limited, endless]})


def test_the_course_of_load_and_memory_is_drawn(page: Page, site: Site, daemon: DaemonProcess):
    number = daemon.add({"command": "sleep 600", "name": "measured"})
    go(page, site, f"job/{number}")

    used = page.get_by_role("region", name="what it used")
    expect(used.locator("canvas").first).to_be_visible()
    expect(used.locator(".card")).not_to_be_empty()

    daemon.post("/v1/jobs/act", {"action": "kill", "ids": [number]})


def test_the_environment_and_the_code_are_shown(page: Page, site: Site, daemon: DaemonProcess, tmp_path: Path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "train.py").write_text("lr = 1\n")
    subprocess.run([*git, "add", "train.py"], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    (tmp_path / "train.py").write_text("lr = 2\n")
    before = daemon.world.add("--env", "LR=1", "--", "true")
    added = daemon.world.add("-J", "coded", "--env", "LR=2", "--", "true", cwd=tmp_path)
    go(page, site, f"job/{added}/code")

    expect(page.locator(".diff-removed")).to_have_text("-lr = 1\n")
    expect(page.locator(".diff-added")).to_have_text("+lr = 2\n")
    page.get_by_role("link", name="Environment").click()
    environment = page.get_by_role("region", name="environment")
    expect(environment.locator(".variables").first).to_contain_text(re.compile(r"LR\s*2"))
    page.get_by_label("filter the variables").fill("ledger")
    expect(environment).to_contain_text("LEDGER")
    expect(environment).not_to_contain_text("PATH")
    page.get_by_label("Different from job").fill(str(before))
    expect(environment.locator("dt").filter(has_text="LR")).to_be_visible()
    expect(environment.locator("del").filter(has_text="1")).to_be_visible()
    expect(environment).not_to_contain_text("LEDGER")


def test_a_job_that_is_not_there_is_said(page: Page, site: Site, watch: Watch):
    watch.forgive("404")

    go(page, site, "job/999999")

    expect(page.get_by_text("cannot find job 999999")).to_be_visible()
