"""Jobs whose caller has no environment of its own: they are like another job, or like the daemon."""

from pathlib import Path
from typing import Any

from daemon.daemon_process import DaemonProcess


def add_like(daemon: DaemonProcess, key: str, like: Any, **job: Any) -> int:
    jobs = [{"command": "echo $MARK; pwd; umask", **job}]
    return int(daemon.post("/v1/jobs", {"key": key, "like": like, "jobs": jobs})["first"])


def test_a_job_like_another_has_its_environment_folder_and_umask(daemon: DaemonProcess, tmp_path: Path):
    folder = tmp_path / "a folder"
    folder.mkdir()
    first = daemon.add(
        {"command": "true", "workdir": str(folder), "umask": 0o027, "env": {"MARK": "its own"}, "name": "n"},
        environment={"PATH": "/usr/bin:/bin", "MARK": "captured"},
    )

    second = add_like(daemon, "like 1", first)

    (job,) = daemon.wait(second)
    assert Path(daemon.job(second)["stdout"]).read_text().split("\n")[:3] == ["captured", str(folder), "0027"]
    assert (job["env"], job["name"]) == ({}, "")  # what was asked for with the other job does not come along


def test_what_a_job_says_itself_goes_before_the_job_it_is_like(daemon: DaemonProcess, tmp_path: Path):
    folder = tmp_path / "here"
    folder.mkdir()
    first = daemon.add({"command": "true", "workdir": "/usr"})

    second = add_like(daemon, "like 2", first, workdir=str(folder))

    daemon.wait(second)
    assert Path(daemon.job(second)["stdout"]).read_text().split("\n")[1] == str(folder)


def test_a_job_like_the_daemon_has_the_daemons_environment(daemon: DaemonProcess, tmp_path: Path):
    daemon.end()
    daemon.start(MARK="of the daemon")

    number = add_like(daemon, "like 3", "daemon", workdir=str(tmp_path))

    daemon.wait(number)
    assert Path(daemon.job(number)["stdout"]).read_text().startswith("of the daemon\n")


def test_a_dry_run_knows_the_job_it_is_like(daemon: DaemonProcess):
    first = daemon.add("true")

    found = daemon.post("/v1/jobs/check", {"like": first, "jobs": [{"command": "true"}]})
    missing = daemon.call("POST", "/v1/jobs/check", {"like": 99, "jobs": [{"command": "true"}]})

    assert len(found["prospects"]) == 1
    assert (missing.status, missing.json["error"]["code"]) == (404, "no-such-job")


def test_a_job_cannot_have_an_environment_and_be_like_another(daemon: DaemonProcess):
    body = {"key": "both", "environment": {}, "like": "daemon", "jobs": [{"command": "true"}]}

    reply = daemon.call("POST", "/v1/jobs", body)

    assert (reply.status, reply.json["error"]["code"]) == (400, "bad-input")
    assert "`environment` and `like`" in reply.json["error"]["message"]
