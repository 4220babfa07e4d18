"""`dibs cluster` on servers that are network namespaces, typed by an ordinary user at another one."""

import base64
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import cloudpickle
import pytest

import dibs
from backends.private_slurm import missing_programs
from cluster.hosts import UID, Server, Servers, why_not
from dibs.cluster.on_host.packages import fetch
from dibs.version import __version__
from stories.outside import Finished, wait_until

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)

if missing := why_not() or ", ".join(f"no {name}" for name in missing_programs()):
    pytest.skip(f"servers for a cluster cannot be made: {missing}", allow_module_level=True)


@pytest.fixture
def servers() -> Iterator[Servers]:
    found = Servers()
    yield found
    found.close()


@pytest.fixture
def slurm(servers: Servers) -> Callable[..., Finished]:
    """One of Slurm's commands, typed at the desk."""

    @cache
    def known() -> dict[str, str]:
        found = json.loads((servers.home / "state/cluster/cluster.json").read_text())
        return {
            "SLURM_CONF": f"{found['base']}/etc/slurm.conf",
            "PATH": f"{found['base']}/bin:{os.environ['PATH']}",
        }

    return lambda *words: servers.at_desk(*words, **known())


def output(server: Server, name: str) -> str:
    """What a job wrote into /var/tmp of its server."""
    path = server.folder / "tmp" / name
    return path.read_text() if path.exists() else ""


def run_on(server: Server, slurm: Callable[..., Finished], line: str) -> str:
    """The output of a batch job that wants a card of that server."""
    words = ("-w", server.name, "--gres=gpu:h200:1", "-o", "/var/tmp/out", "--wrap", f"{line}; echo over")
    done = slurm("sbatch", *words)
    assert done.status == 0, done
    wait_until(lambda: output(server, "out").endswith("over\n"), show=lambda: slurm("squeue").stdout)
    return output(server, "out").removesuffix("over\n")


def call_on(servers: Servers, node: str) -> Finished:
    """A function from Python on that node, with a cloudpickle that only the desk has."""
    lib = servers.home / "lib"
    shutil.copytree(Path(cloudpickle.__file__).parent, lib / "cloudpickle", ignore=lambda *_: ["__pycache__"])
    program = f"""
import dibs, os

def work(x):
    return os.uname().nodename, x * x - 7

with dibs.Executor(on="slurm", num_gpus=0, nodelist={node!r}) as pool:
    print(*pool.submit(work, 7).result())
"""
    path = f"{Path(dibs.__file__).parents[1]}:{lib}"
    return servers.at_desk("/usr/bin/python3", "-c", program, PYTHONPATH=path, DIBS_STATE=f"{servers.home}/state")


def test_three_servers_become_a_cluster_and_a_fourth_joins_it(servers, slurm):
    for name in ("a", "b", "c"):
        servers.add(name)

    made = servers.dibs("cluster", "up", "a", "b", "c", "--ssh", servers.ssh)

    assert made.status == 0, made
    assert made.stderr.splitlines()[-2:] == [
        "the cluster is up: 3 nodes with 6 GPUs",
        "next: dibs add --on slurm -- nvidia-smi",
    ]
    stands = servers.dibs("cluster", "status")
    assert (stands.status, stands.stderr) == (0, "")
    assert [line.split()[:4] for line in stands.stdout.splitlines()[1:4]] == [
        [name, name, "idle", "0/2"] for name in "abc"
    ]
    assert {name: set(server.daemons) for name, server in servers.servers.items()} == {
        "a": {"slurmctld", "slurmscriptd", "slurmd", "munged"},
        "b": {"slurmd", "munged"},
        "c": {"slurmd", "munged"},
    }
    (key,) = (servers.servers["b"].folder / "tmp").glob("dibs-*/cluster-*/munge.key")
    assert (key.stat().st_mode & 0o777, key.stat().st_uid) == (0o600, UID), "nobody else reads it"

    for name in ("a", "b", "c"):
        said = run_on(servers.servers[name], slurm, "hostname; echo card=$CUDA_VISIBLE_DEVICES")
        assert said.split() == [name, "card=0"]

    slurm("sbatch", "-w", "b", "--gres=gpu:1", "-o", "/var/tmp/long", "--wrap", "echo $$; sleep 1000")
    pid = int(wait_until(lambda: output(servers.servers["b"], "long").strip()))
    new = servers.add("d", cards=1)
    joined = servers.dibs("cluster", "add", "d")
    assert joined.status == 0, joined
    assert slurm("squeue", "-h", "-o", "%T %N").stdout.split() == ["RUNNING", "b"], "a job does not notice"
    assert pid in servers.servers["b"].pids
    assert run_on(new, slurm, "hostname").split() == ["d"]

    added = servers.dibs("add", "--on", "slurm", "--nodelist", "c", "--", "hostname")
    assert added.status == 0, added
    assert servers.dibs("wait", "1", "--timeout", "60s").status == 0
    assert servers.dibs("log", "1").stdout == "c\n", "fetched from where it ran"
    called = call_on(servers, "c")
    assert (called.status, called.stdout) == (0, "c 42\n"), called
    assert servers.dibs("daemon", "stop").status == 0

    known = json.loads((servers.home / "state/cluster/cluster.json").read_text())
    assert not known["is_shared"], "each has a home of its own"

    (mark,) = (servers.servers["c"].folder / "home").glob(".local/share/dibs/cluster-*/src/version")
    mark.write_text("0.0.9 of an earlier time")
    os.kill(servers.servers["c"].daemons["slurmd"], signal.SIGKILL)
    wait_until(lambda: "slurmd" not in servers.servers["c"].daemons)
    told = servers.dibs("cluster", "status")
    older = f"c: it has dibs 0.0.9, not {__version__}: `dibs cluster up` brings this one\n"
    assert (told.status, told.stderr) == (1, "c: slurmd does not run: `dibs cluster up` starts it\n" + older)
    again = servers.dibs("cluster", "up")
    assert again.status == 0, again
    assert "started slurmd on 1 host, port 16818" in again.stderr
    assert "started munged" not in again.stderr, "what runs is left alone"
    assert not mark.read_text().startswith("0.0.9")

    for more in ((), ("--purge",)):
        asked = servers.dibs("cluster", "down", *more)
        assert asked.status == 2 and "cannot ask whether to end 1 job that runs there" in asked.stderr, asked
        (number,) = slurm("squeue", "-h", "-o", "%i").stdout.split()
        slurm("scontrol", "suspend", number)  # its work would be lost as well
    assert pid in servers.servers["b"].pids
    ended = servers.dibs("cluster", "down", "--yes")
    assert ended.status == 0, ended
    assert {name: server.daemons for name, server in servers.servers.items()} == {name: {} for name in "abcd"}
    assert servers.desk.daemons == {}
    assert pid not in servers.servers["b"].pids
    assert len(servers.servers["b"].pids) == 1, "nothing but its sshd"


def test_packages_are_unpacked_in_a_home_that_is_shared_and_nothing_is_left_of_it(servers, slurm):
    packages = servers.folder / "debs"
    packages.mkdir()
    fetched = fetch({"libraries": False})
    if "error" in fetched:
        pytest.skip(f"Debian's packages cannot be fetched here: {fetched['error']}")
    for name, content in fetched["files"].items():
        (packages / name).write_bytes(base64.b64decode(content))
    servers.add("b", cards=1, home=False)
    (munge,) = packages.glob("munge_*.deb")
    munge.rename(servers.folder / munge.name)
    up = ("cluster", "up", "localhost", "b", "--ssh", servers.ssh, "--packages", str(packages))

    refused = servers.dibs(*up)
    untouched = not servers.servers["b"].in_tmp and not (servers.home / ".local").exists()
    (servers.folder / munge.name).rename(munge)
    made = servers.dibs(*up)

    assert (refused.status, untouched) == (2, True), refused
    assert refused.stderr.startswith(f"dibs: error: cannot use the packages in {packages}: munge is not there\n")
    assert made.status == 0, made
    known = json.loads(servers.dibs("cluster", "status", "--json").stdout)
    assert (known["unpacked"], known["shared"], known["controller"]) == (True, True, "localhost")
    assert [(node["node"], node["gpus"]) for node in known["nodes"]] == [("desk", []), ("b", ["h200"])]
    assert set(servers.desk.daemons) == {"slurmctld", "slurmscriptd", "slurmd", "munged"}
    for server in (servers.desk, servers.servers["b"]):
        for pid in server.daemons.values():
            assert os.readlink(f"/proc/{pid}/exe").startswith(str(servers.home)), "not the installed one"
    line = "hostname; echo card=$CUDA_VISIBLE_DEVICES lib=$LD_LIBRARY_PATH; dibs-python -V"
    said = run_on(servers.servers["b"], slurm, line)
    assert said.split()[:4] == ["b", "card=0", "lib=", "Python"]

    ended = servers.dibs("cluster", "down", "--purge")
    assert ended.status == 0, ended
    assert servers.dibs("cluster", "down", "--force").status == 2
    assert servers.dibs("cluster", "status").stderr.startswith("dibs: error: there is no cluster\n")
    assert list((servers.home / ".local/share/dibs").iterdir()) == []
    assert not [inside for one in servers.servers["b"].in_tmp for inside in one.glob("*")]
    assert servers.servers["b"].daemons == {} and servers.desk.daemons == {}


def test_a_purge_leaves_no_job_behind_that_nobody_can_end(servers, slurm):
    servers.add("b", home=False)
    up = ("cluster", "up", "b", "--ssh", servers.ssh)
    assert servers.dibs(*up).status == 0
    assert servers.dibs("add", "--on", "slurm", "--", "sleep", "1000").status == 0
    wait_until(lambda: "RUNNING" in slurm("squeue", "-h", "-o", "%T").stdout)
    assert servers.dibs("daemon", "stop").status == 0

    refused = servers.dibs("cluster", "down", "--purge")
    runs = slurm("squeue", "-h", "-o", "%T").stdout.split()
    forced = servers.dibs("cluster", "down", "--purge", "--force")
    waited = servers.dibs("wait", "1", "--timeout", "60s")
    lost = json.loads(servers.dibs("info", "1", "--json").stdout)
    remade = servers.dibs(*up)
    assert servers.dibs("daemon", "restart").status == 0
    assert servers.dibs("add", "--on", "slurm", "--", "hostname").status == 0
    again = servers.dibs("wait", "2", "--timeout", "60s")

    assert refused.status == 1
    assert refused.stderr.startswith(
        "dibs: error: cannot remove the folders of the cluster: 1 job of the queue is open on it: 1\n"
    )
    assert "`dibs kill 1`" in refused.stderr and runs == ["RUNNING"], "nothing was changed"
    assert forced.status == 0, forced
    assert "removed its folders, and forgot it" in forced.stderr
    assert waited.status not in (0, 124), waited
    lost = lost[0] if isinstance(lost, list) else lost
    assert lost["state"] in ("lost", "cancelled", "failed")
    assert remade.status == 0, remade
    assert again.status == 0, servers.dibs("why", "2")
    assert servers.dibs("log", "2").stdout == "b\n"
    assert servers.dibs("daemon", "stop").status == 0
    assert servers.dibs("cluster", "down", "--purge").status == 0


def test_a_host_leaves_the_cluster_when_its_jobs_have_ended_and_the_others_go_on(servers, slurm):
    for name in ("a", "b", "c"):
        servers.add(name)
    made = servers.dibs("cluster", "up", "a", "b", "c", "--ssh", servers.ssh)
    assert made.status == 0, made
    slurm("sbatch", "-w", "c", "-o", "/var/tmp/long", "--wrap", "echo $$; sleep 1000")
    pid = int(wait_until(lambda: output(servers.servers["c"], "long").strip()))
    added = servers.dibs("add", "--on", "slurm", "--nodelist", "b", "-J", "work", "--", "sleep", "1000")
    assert added.status == 0, added
    wait_until(lambda: "RUNNING b" in slurm("squeue", "-h", "-o", "%T %N").stdout)

    head, stranger = servers.dibs("cluster", "remove", "a"), servers.dibs("cluster", "remove", "x")
    busy = servers.dibs("cluster", "remove", "b")

    assert head.stderr.startswith("dibs: error: cannot remove a: the controller runs there")
    assert stranger.stderr.startswith("dibs: error: x does not belong to the cluster\n  its hosts are a, b, c")
    assert busy.status == 1 and "cannot remove b: it runs Slurm's job" in busy.stderr
    assert "`dibs cluster remove b --drain` waits for it" in busy.stderr
    states = slurm("sinfo", "-h", "-N", "-o", "%N %t").stdout.split("\n")
    assert "b mix" in states, "it takes jobs as before"

    with ThreadPoolExecutor() as beside:
        waiting = beside.submit(servers.dibs, "cluster", "remove", "b", "--drain")
        wait_until(lambda: "b drng" in slurm("sinfo", "-h", "-N", "-o", "%N %t").stdout)
        assert servers.dibs("kill", "work").status == 0
    told = waiting.result()

    assert told.status == 0, told
    assert "waiting: it runs Slurm's job" in told.stderr
    assert told.stderr.endswith("removed b: the cluster has 2 nodes now\n")
    assert (servers.servers["b"].daemons, len(servers.servers["b"].pids)) == ({}, 1), "nothing but its sshd"
    assert not list((servers.servers["b"].folder / "tmp").glob("dibs-*/cluster-*"))
    assert not list((servers.servers["b"].folder / "home").glob(".local/share/dibs/cluster-*"))
    assert servers.dibs("wait", "work").status != 0
    assert servers.dibs("daemon", "stop").status == 0
    assert pid in servers.servers["c"].pids, "jobs of the others do not notice"
    stands = servers.dibs("cluster", "status", "--json")
    assert stands.status == 0, stands
    assert [one["host"] for one in json.loads(stands.stdout)["hosts"]] == ["a", "c", "this machine"]

    servers.remove("c")
    away = servers.dibs("cluster", "remove", "c")
    assert away.status == 1 and "--force removes it all the same" in away.stderr
    gone = servers.dibs("cluster", "remove", "c", "--force")
    assert gone.status == 0, gone
    assert slurm("sinfo", "-h", "-N", "-o", "%N").stdout.split() == ["a"]
    assert servers.dibs("cluster", "down", "--yes").status == 0


def test_everything_that_is_wrong_is_told_at_once_and_nothing_is_changed(servers):
    late = f"LD_PRELOAD={FAKETIME} FAKETIME=-100s" if FAKETIME else ""
    servers.add("a")
    servers.add("late", environment=late)
    servers.add("other", uid=UID + 1)
    servers.add("gone")
    servers.remove("gone")
    servers.add("busy", port=17_001)

    hosts = ("a", "late", "other", "gone", "busy")
    told = servers.dibs("cluster", "up", *hosts, "--ssh", servers.ssh, "--port", "17000", "--json")

    assert told.status == 2
    found = json.loads(told.stdout)["problems"]
    (away,) = [one["remedy"] for one in found if one["host"] == "gone"]
    assert away.startswith(f"try `{servers.ssh} gone`;")
    problems = {(one["host"], one["code"]) for one in found}
    # A folder of another uid's is none of ours: that user's home is not writable for them either.
    assert problems - {("other", "folder")} == {
        *([("late", "clock")] if FAKETIME else []),
        ("other", "uid"),
        ("gone", "unreachable"),
        ("busy", "port"),
    }
    assert told.stderr.startswith("dibs: error: cannot make a cluster of these hosts: ")
    for server in (*servers.servers.values(), servers.desk):
        assert server.daemons == {}
        assert server.in_tmp == []
    assert list((servers.servers["a"].folder / "home").iterdir()) == []
    assert servers.dibs("cluster", "status").status == 1, "there is none"


def test_hosts_that_cannot_call_each_other_or_be_entered_are_refused(servers):
    a, b = servers.add("a"), servers.add("b")
    # Neither knows a way to the other; we know one to both.
    for server, other in ((a, b), (b, a)):
        wall = ["ip", "route", "add", "unreachable", f"{other.address}/32"]
        enter = ["nsenter", "-t", str(server.keeper.pid), "-n"]
        subprocess.run([*enter, *wall], check=True, env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"})

    walled = servers.dibs("cluster", "up", "a", "b", "--ssh", servers.ssh)
    nobody = servers.dibs("cluster", "up", "a", "--ssh", f"{servers.ssh} -l nobody")

    assert walled.status == 2
    assert "a: cannot reach b at 10.77.0.3 port 16818" in walled.stderr
    assert (servers.servers["a"].daemons, servers.desk.daemons) == ({}, {})
    assert nobody.status == 2
    assert (
        "a: you cannot log in there without a password\n  `ssh-add`, or put your public key" in nobody.stderr
        or f"  try `{servers.ssh} -l nobody a python3 --version`" in nobody.stderr
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["up"], "there is no cluster yet"),
        (["up", "-oProxyCommand=x"], "no such option"),
        (["up", "--", "-oProxyCommand=x"], "cannot use '-oProxyCommand=x' as a host"),
        (["up", "a", "a"], "a is named twice"),
        (["up", "a", "--controller", "b"], "--controller b is none of the hosts"),
        (["up", "a", "--port", "80"], "cannot read '80' as a number"),
        (["up", "a", "--ssh", "'"], "cannot read --ssh"),
        (["up", "a", "--ssh", "no-such-ssh"], "cannot start no-such-ssh"),
        (["down"], "there is no cluster"),
        (["add", "a"], "there is no cluster"),
        (["remove", "a"], "there is no cluster"),
        (["status"], "there is no cluster"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(dibs, words, said):
    told = dibs("cluster", *words)

    assert told.status in (1, 2)
    assert told.stdout == ""
    lines = [line for line in told.stderr.splitlines() if not line.startswith("looking at")]
    assert said in lines[0] and len(lines) <= 2
