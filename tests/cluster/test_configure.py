"""The text of Slurm's configuration, the names of hosts, and what is remembered."""

import ast
import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from dibs.cluster import on_host
from dibs.cluster.configure import (
    cards_of,
    cgroup_conf,
    check_hosts,
    configuration,
    gres_conf,
    kind_of,
    node_name,
    python_script,
    slurm_conf,
)
from dibs.cluster.install import check_packages, source_mark, unpack
from dibs.cluster.on_host.packages import CORE
from dibs.cluster.saved import (
    Cluster,
    ClusterNode,
    NodeCard,
    cluster_lock,
    forget,
    known_cluster,
    remember,
    remembered,
)
from dibs.cluster.slurm import parse_sinfo
from dibs.cluster.ssh import _MODULES, HostFailed, ssh_words, up_command
from dibs.cluster.status import ClusterStanding, judge_host
from dibs.errors import BadInput, DibsError, FolderInUse
from dibs.version import __version__

H200 = NodeCard(kind="h200", device="/dev/nvidia0")
A = ClusterNode(
    name="a",
    host="ann@a.site",
    destination="ann@a.site",
    hostname="a",
    address="10.0.0.2",
    cpus=64,
    memory_mib=500_000,
    cards=(H200, replace(H200, device="/dev/nvidia1"), NodeCard(kind="a100", device="/dev/nvidia2")),
    python="/usr/bin/python3.11",
)
DESK = ClusterNode(
    name="desk", host="localhost", destination="", hostname="desk", address="10.0.0.1", cpus=8, memory_mib=8000
)
CLUSTER = Cluster(
    name="cluster-1",
    base="/home/ann/dibs/cluster-1",
    local="/var/tmp/dibs-1000/cluster-1",
    uid=1000,
    nodes=(A, DESK),
    controller="a",
    ports=(17000, 17001),
    version="22.05.8",
)


def test_the_configuration_names_every_node_with_its_cards():
    lines = slurm_conf(CLUSTER).splitlines()

    assert "SlurmctldHost=a(10.0.0.2)" in lines
    assert {"SlurmctldPort=17000", "SlurmdPort=17001", "SlurmUser=1000"} <= set(lines)
    assert (
        "NodeName=a NodeAddr=10.0.0.2 NodeHostname=a CPUs=64 RealMemory=500000 Gres=gpu:a100:1,gpu:h200:2" in lines
    )
    assert "NodeName=desk NodeAddr=10.0.0.1 NodeHostname=desk CPUs=8 RealMemory=8000" in lines
    assert "DefMemPerCPU=1000" in lines, "a job that says nothing leaves room for one on each CPU"
    assert not [line for line in lines if line.startswith("PluginDir")]


def test_unpacked_plugins_are_found():
    assert "PluginDir=/home/ann/p" in slurm_conf(replace(CLUSTER, plugins="/home/ann/p")).splitlines()


def test_cards_are_named_by_their_device_and_never_looked_for():
    assert gres_conf(CLUSTER).splitlines() == [
        "AutoDetect=off",
        "NodeName=a Name=gpu Type=h200 File=/dev/nvidia0,/dev/nvidia1",
        "NodeName=a Name=gpu Type=a100 File=/dev/nvidia2",
    ]


@pytest.mark.parametrize(
    ("version", "word"), [("22.05.8", "cgroup/v1"), ("23.11.4", "disabled"), ("24.05", "disabled")]
)
def test_no_version_looks_for_cgroups(version, word):
    assert cgroup_conf(version) == f"CgroupPlugin={word}\n"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce GTX 1080 Ti", "gtx1080ti"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA L40S", "l40s"),
        ("TITAN", "titan"),
        ("", "gpu"),
    ],
)
def test_a_card_has_a_short_word_for_its_kind(name, kind):
    assert kind_of(name) == kind


def test_cards_out_of_a_file_get_devices_of_ours():
    assert cards_of((("NVIDIA H200", "/dev/nvidia7"), ("NVIDIA H200", "")), "/l") == (
        NodeCard(kind="h200", device="/dev/nvidia7"),
        NodeCard(kind="h200", device="/l/dev/nvidia1"),
    )


def test_the_interpreter_is_whichever_the_host_has():
    text = python_script((A, replace(DESK, python="/opt/a python3.12")))

    assert text.index("/usr/bin/python3.11") < text.index("'/opt/a python3.12'")


def test_the_configuration_of_the_same_cluster_is_the_same():
    assert configuration(CLUSTER) == configuration(replace(CLUSTER, ssh=("ssh", "-v")))


@pytest.mark.parametrize(
    "host", ["-oProxyCommand=touch x", "a b", "a;b", "", "a:22", "$(x)", "a'b", "@a", "a/b", "ä"]
)
def test_what_is_no_name_of_a_host_is_refused(host):
    with pytest.raises(BadInput):
        check_hosts(["good", host])


def test_a_host_may_have_a_user_and_an_address_and_is_named_once():
    check_hosts(["ann@gpu-1.site.org", "10.0.0.7", "gpu_2"])
    with pytest.raises(BadInput, match="a is named twice"):
        check_hosts(["a", "b", "a"])


def test_slurm_calls_a_host_as_the_user_does():
    assert node_name("ann@gpu1.site.org", "x", []) == "gpu1"
    assert node_name("10.0.0.7", "gpu7", []) == "gpu7"
    assert node_name("localhost", "desk.site", []) == "desk"
    assert node_name("gpu1.other.org", "x", ["gpu1"]) == "gpu1-2"
    assert node_name("gpu1.third.org", "x", ["gpu1", "gpu1-2"]) == "gpu1-3"


def test_what_is_remembered_is_what_was(tmp_path):
    environ = {"DIBS_STATE": str(tmp_path / "state")}

    assert remembered(environ) is None and known_cluster(environ) is None
    remember(environ, CLUSTER)

    assert remembered(environ) == CLUSTER
    known = known_cluster(environ)
    assert known.conf == "/home/ann/dibs/cluster-1/etc/slurm.conf"
    assert known.destinations == (("a", "ann@a.site"), ("desk", ""))
    assert known.ssh[0] == "ssh" and "BatchMode=yes" in known.ssh
    forget(environ)
    assert remembered(environ) is None


def test_what_cannot_be_read_is_told_in_a_sentence(tmp_path):
    path = tmp_path / "cluster" / "cluster.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"name": "x"}))

    with pytest.raises(DibsError, match="cannot read what is known of the cluster"):
        remembered({"DIBS_STATE": str(tmp_path)})


def test_two_cannot_change_it_at_the_same_time(tmp_path):
    environ = {"DIBS_STATE": str(tmp_path / "state")}

    with cluster_lock(environ), pytest.raises(FolderInUse), cluster_lock(environ):
        pass
    with cluster_lock(environ):
        pass


def test_the_columns_of_sinfo_are_read_by_their_widths():
    used = "gpu:h200:1(IDX:0),gpu:a100:0(IDX:N/A)"
    line = f"{'a':64}{'down*':24}{'gpu:h200:2,gpu:a100:1':256}{used:256}{'Not responding':256}"
    well = f"{'b':64}{'idle':24}{'(null)':256}{'(null)':256}{'none':256}"

    found = parse_sinfo(f"{line}\n{well}\n")

    assert (found["a"].gpus, found["a"].gpus_used, found["a"].reason) == (3, 1, "Not responding")
    assert not found["a"].is_well
    assert (found["b"].gpus, found["b"].reason, found["b"].is_well) == (0, "", True)


def test_what_is_wrong_with_a_host_is_said_in_words():
    blank = ClusterStanding(host="a", node="a", state="?", gpus=2)
    answer = {
        "running": {"munged": 7},
        "why": {"slurmd": "fatal: no"},
        "slurm": "22.05.8",
        "source": source_mark(),
    }
    older = {**answer, "running": {"munged": 7, "slurmd": 8}, "source": "0.0.9 abc"}
    down = parse_sinfo(f"{'a':64}{'down*':24}{'gpu:2':256}{'gpu:0':256}{'Not responding':256}")["a"]

    found = judge_host(blank, answer, ("munged", "slurmd"), down, "")
    away = judge_host(blank, None, ("munged", "slurmd"), None, "cannot be reached: timed out")

    assert found.problems == (
        "slurmd does not run (fatal: no): `dibs cluster up` starts it",
        "the controller calls it down*: Not responding",
    )
    upgraded = judge_host(blank, older, ("munged", "slurmd"), None, "").problems[0]
    assert upgraded == f"it has dibs 0.0.9, not {__version__}: `dibs cluster up` brings this one"
    assert (away.state, away.problems) == ("?", ("it cannot be reached: timed out",))


def test_what_runs_on_the_hosts_is_text_that_an_old_python_reads_too():
    for path in Path(on_host.__file__).parent.glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))
        assert path.stem in (*_MODULES, "__init__")


def test_the_words_of_ssh_are_split_as_a_shell_would(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my key").touch()

    assert ssh_words("ssh -p 2222 -i 'my key'") == ("ssh", "-p", "2222", "-i", f"{tmp_path}/my key")
    assert up_command(["a"], ssh_words("ssh")) == "dibs cluster up a"
    assert shlex.split(up_command(["a", "b"], ssh_words("ssh -i 'my key'")))[-3:] == [
        *("b", "--ssh", f"ssh -i '{tmp_path}/my key'")
    ]
    for wrong in ("", "ssh 'x"):
        with pytest.raises(BadInput):
            ssh_words(wrong)


def test_packages_that_are_not_in_the_folder_are_named(tmp_path):
    for name in CORE:
        (tmp_path / f"{name}_22.05.8-4_amd64.deb").touch()
    check_packages(str(tmp_path))
    for name in ("munge", "libmunge2"):
        (tmp_path / f"{name}_22.05.8-4_amd64.deb").unlink()

    with pytest.raises(BadInput) as refused:
        check_packages(str(tmp_path))

    assert refused.value.message == f"cannot use the packages in {tmp_path}: munge, libmunge2 are not there"
    assert refused.value.remedy == "in that folder: apt-get download munge libmunge2"


def test_libraries_that_no_package_has_are_named():
    class Hosts:
        def call(self, host, call, request, **_):
            if call == "packages.fetch":
                raise HostFailed(f"{host}: no network")
            return {"lacking": [], "missing": ["libhwloc.so.15"] if host == "b" else [], "plugins": ""}

    with pytest.raises(DibsError) as refused:
        unpack(Hosts(), ["a", "b"], {"x.deb": b""}, base="/x", fetchers=["a"], tell=lambda text: None)

    assert refused.value.message.startswith(
        "cannot use the packages on b: libhwloc.so.15 is missing there; cannot"
    )
