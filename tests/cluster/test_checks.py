"""What keeps hosts from being a cluster, with plain values."""

from dataclasses import replace

import pytest

from dibs.cluster.checks import (
    PORT_PAIRS,
    HostFacts,
    choose_ports,
    choose_slurm,
    judge,
    judge_calls,
    why_unreached,
)

PROGRAMS = dict.fromkeys(
    ("slurmd", "slurmctld", "munged", "sbatch", "squeue", "scancel", "scontrol", "sinfo"), "/usr/bin/x"
)
HERE = HostFacts(
    host="",
    hostname="desk",
    machine_id="desk",
    uid=1000,
    user="ann",
    home="/home/ann",
    machine="x86_64",
    system="debian 12",
    system_name="Debian GNU/Linux 12 (bookworm)",
    python="/usr/bin/python3.11",
    python_version=(3, 11),
    cpus=64,
    memory=512 << 30,
    programs=PROGRAMS,
    slurm="22.05.8",
    has_apt=True,
    has_dpkg=True,
)
A = replace(HERE, host="a", hostname="a", machine_id="a")
B = replace(HERE, host="b", hostname="b", machine_id="b")


def judged(*looks, ports=None):
    found = judge([HERE, *looks], base="/home/ann/c", local="/var/tmp/c", ports=ports)
    assert all(problem.remedy for problem in found)
    return [(problem.host, problem.code) for problem in found]


def test_equal_hosts_are_well():
    assert judged(A, B) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"uid": 1001}, "uid"),
        ({"user": ""}, "user"),
        ({"clock_ahead": 31.0}, "clock"),
        ({"clock_ahead": -400.0, "clock_unsure": 5.0}, "clock"),
        ({"python_version": (3, 10)}, "python"),
        ({"machine_id": "a"}, "twice"),
        ({"base_refused": "/home is not writable for you"}, "folder"),
        ({"local_refused": "nothing in /var/tmp can be executed (it is mounted noexec)"}, "folder"),
    ],
)
def test_each_thing_that_is_wrong_is_told_of_its_host(change, code):
    assert judged(A, replace(B, **change)) == [("b", code)]


def test_everything_is_told_at_once():
    wrong = replace(B, uid=1001, clock_ahead=100.0, python_version=(3, 9), base_refused="no")

    assert judged(replace(A, uid=7), wrong) == [
        ("a", "uid"),
        *(("b", code) for code in ("uid", "clock", "python")),
        ("b", "folder"),
    ]


def test_a_clock_is_not_blamed_for_the_time_that_asking_took():
    assert judged(replace(A, clock_ahead=33.0, clock_unsure=5.0)) == []


def test_a_clock_is_told_with_its_direction():
    (problem,) = judge([HERE, replace(A, clock_ahead=-90.4)], base="/b", local="/l", ports=None)

    assert "90 seconds behind this machine's" in problem.message


def test_ports_that_the_user_chose_must_be_free_everywhere():
    taken = replace(B, taken={17001: "python, pid 4711"})

    (problem,) = judge([HERE, A, taken], base="/b", local="/l", ports=(17000, 17001))

    assert (problem.host, problem.message) == ("b", "port 17001 is taken by python, pid 4711")


def test_ports_that_nobody_chose_are_the_first_that_are_free_everywhere():
    first, second = PORT_PAIRS[:2]

    assert choose_ports([HERE, A]) == first
    assert choose_ports([HERE, replace(A, taken={first[1]: ""})]) == second
    assert choose_ports([replace(A, taken={pair[0]: "" for pair in PORT_PAIRS})]) is None
    assert judged(replace(A, taken={pair[0]: "" for pair in PORT_PAIRS})) == [("a", "port")]


def test_an_installed_slurm_is_used_where_it_is_the_same_everywhere():
    choice, problems = choose_slurm([HERE, A, B], A, {"a", "b"}, unpack=False)

    assert (choice.is_installed, choice.version, problems) == (True, "22.05.8", [])


def test_this_machine_needs_no_node_and_no_controller_of_its_own():
    asking = replace(HERE, programs={**PROGRAMS, "slurmd": "", "slurmctld": ""})

    assert choose_slurm([asking, A], A, {"a"}, unpack=False)[0].is_installed
    assert not choose_slurm([asking, A], asking, {"", "a"}, unpack=False)[0].is_installed


@pytest.mark.parametrize("other", [{"slurm": "21.08.5"}, {"programs": {}, "slurm": ""}])
def test_packages_are_taken_where_versions_differ_or_are_missing(other):
    choice, problems = choose_slurm([HERE, A, replace(B, **other)], A, {"a", "b"}, unpack=False)

    assert (choice.is_installed, problems) == (False, [])


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"slurm": "21.08.5", "has_dpkg": False}, "slurm", "has Slurm 21.08.5, a 22.05.8"),
        ({"programs": {}, "has_dpkg": False}, "slurm", "has no munged and no slurmd"),
        ({"programs": {}, "machine": "aarch64"}, "architecture", "it is aarch64, a is x86_64"),
        (
            {"programs": {}, "system": "ubuntu 22.04", "system_name": "Ubuntu 22.04"},
            "system",
            "it runs Ubuntu 22.04",
        ),
    ],
)
def test_hosts_that_can_have_neither_are_told_why(change, code, words):
    choice, (problem,) = choose_slurm([HERE, A, replace(B, **change)], A, {"a", "b"}, unpack=False)

    assert choice is None
    assert (problem.host, problem.code) == ("b", code)
    assert words in problem.message


def test_unpacking_can_be_wanted_though_slurm_is_installed():
    assert choose_slurm([HERE, A], A, {"a"}, unpack=True)[0].is_installed is False


def test_who_cannot_reach_whom_is_told():
    (problem,) = judge_calls({"a": {"b": "10.0.0.3 port 16818: no answer"}})

    assert (problem.host, problem.message) == ("a", "cannot reach b at 10.0.0.3 port 16818: no answer")


@pytest.mark.parametrize(
    ("status", "said", "code", "remedy"),
    [
        (
            *(255, "ann@b: Permission denied (publickey,password).", "no-key"),
            "`ssh-copy-id -p2222 -i 'my key' b`, or `ssh-add`",
        ),
        (255, "Host key verification failed.", "host-key", "`ssh -p2222 -i 'my key' b` once"),
        (255, "ssh: Could not resolve hostname b: Name or service not known", "unknown-name", "look at its"),
        (
            255,
            "ssh: connect to host b port 22: Connection timed out",
            "unreachable",
            "try `ssh -p2222 -i 'my key' b`",
        ),
        (127, "no-python3", "no-python", "install python3.11"),
        (
            *(1, "This account is currently not available.", "no-answer"),
            "try `ssh -p2222 -i 'my key' b python3 --version`",
        ),
    ],
)
def test_the_words_of_ssh_become_ours_with_the_options_that_were_given(status, said, code, remedy):
    problem = why_unreached("b", status, f"motd\n{said}\n", ("ssh", "-p2222", "-i", "my key"))

    assert (problem.host, problem.code) == ("b", code)
    assert problem.remedy.startswith(remedy)


@pytest.mark.parametrize("ssh", [("ssh", "-i", "key", "-l", "ann"), ("/opt/lab-login", "-p", "1")])
def test_no_command_is_shown_that_does_not_know_the_options_that_were_given(ssh):
    problem = why_unreached("b", 255, "Permission denied (publickey).", ssh)

    assert problem.remedy == "`ssh-add`, or put your public key into ~/.ssh/authorized_keys there"
