"""The pool of the host, set by any user."""

import json
import os
import stat

import pytest

from dibs.leases import host_pool
from dibs.leases.files import LeaseRefused
from dibs.leases.host_pool import HostPool, read_host_pool, write_host_pool
from leases.processes import STRANGER, needs_root, start


def test_what_was_set_is_read_back(folder):
    assert read_host_pool(folder) is None
    write_host_pool(folder, HostPool(count=8, at=1.5))

    write_host_pool(folder, HostPool(count=4, unavailable=(0, 3), at=2.5))

    assert read_host_pool(folder) == HostPool(count=4, unavailable=(0, 3), at=2.5)
    (name,) = os.listdir(folder)
    assert stat.S_IMODE(os.stat(f"{folder}/{name}").st_mode) == 0o1644


def test_too_many_pools_of_invented_users_are_one_sentence(folder, monkeypatch):
    monkeypatch.setattr(host_pool, "MOST_FILES", 20)
    for uid in range(30):
        with open(f"{folder}/dibs-pool-{uid}", "w"):
            pass

    with pytest.raises(LeaseRefused, match=r"has over 20 files dibs-pool-UID"):
        read_host_pool(folder)


@needs_root
def test_the_newest_of_all_users_is_in_force_whatever_it_says_of_its_age(folder):
    stranger = start(lambda _: write_host_pool(folder, HostPool(count=1, at=1e15)), uid=STRANGER)
    assert stranger.end() == 0
    assert read_host_pool(folder) == HostPool(count=1, at=1e15)
    while os.stat(folder).st_ctime_ns == _touched(folder):
        pass  # the clock of files ticks every few milliseconds

    write_host_pool(folder, HostPool(count=2, at=5.0))

    assert read_host_pool(folder) == HostPool(count=2, at=5.0)


def _touched(folder):
    with open(f"{folder}/tick", "w"):
        return os.stat(f"{folder}/tick").st_ctime_ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 60000,
        '{"count": -1, "unavailable": [], "at": 1}',
        '{"count": true, "unavailable": [], "at": 1}',
        '{"count": 1, "unavailable": ["0"], "at": 1}',
        '{"count": 1, "unavailable": 0, "at": 1}',
        '{"count": 1, "unavailable": [], "at": NaN}',
        '{"count": 1, "unavailable": []}',
    ],
)
def test_a_broken_pool_is_no_pool(folder, text):
    with open(f"{folder}/dibs-pool-{os.geteuid()}", "w") as file:
        file.write(text)

    assert read_host_pool(folder) is None


@pytest.mark.parametrize("kind", ["symlink", "hardlink", "fifo", "folder", "in another name"])
def test_a_planted_pool_is_not_read(folder, kind):
    victim, path = f"{folder}/victim", f"{folder}/dibs-pool-{os.geteuid()}"
    with open(victim, "w") as file:
        json.dump({"count": 1, "unavailable": [], "at": 1}, file)
    if kind == "symlink":
        os.symlink(victim, path)
    elif kind == "hardlink":
        os.link(victim, path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        os.mkdir(path)
    else:
        os.rename(victim, f"{folder}/dibs-pool-4711")

    assert read_host_pool(folder) is None


def test_writing_replaces_a_planted_link_and_leaves_its_target_alone(folder):
    victim, path = f"{folder}/victim", f"{folder}/dibs-pool-{os.geteuid()}"
    with open(victim, "w") as file:
        file.write("precious")
    os.symlink(victim, path)

    write_host_pool(folder, HostPool(count=3, at=1.0))

    assert read_host_pool(folder) == HostPool(count=3, at=1.0)
    with open(victim) as file:
        assert file.read() == "precious"


def test_a_folder_in_the_way_is_refused_and_nothing_is_left(folder):
    path = f"{folder}/dibs-pool-{os.geteuid()}"
    os.mkdir(path)

    with pytest.raises(LeaseRefused) as refused:
        write_host_pool(folder, HostPool(count=3, at=1.0))

    assert path in refused.value.message
    assert os.listdir(folder) == [os.path.basename(path)]


@needs_root
def test_a_name_that_another_user_took_is_refused(folder):
    with open(f"{folder}/dibs-pool-{STRANGER}", "w") as file:
        file.write("of root")

    def write(parent):
        with pytest.raises(LeaseRefused):
            write_host_pool(folder, HostPool(count=3, at=1.0))

    assert start(write, uid=STRANGER).end() == 0
    assert os.listdir(folder) == [f"dibs-pool-{STRANGER}"]
