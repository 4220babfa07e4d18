"""Files that another user planted under our names."""

import fcntl
import os
import socket

import pytest

from dibs.leases.files import MOST_SLOTS, LeaseRefused, open_safely
from leases.claims import NOON, a_claim, some_leases, take, took
from leases.processes import STRANGER, needs_root

PRECIOUS = b"precious\n" * 200


def plant(kind, path, victim):
    with open(victim, "wb") as file:
        file.write(PRECIOUS)
    if kind == "symlink":
        os.symlink(victim, path)
    elif kind == "dangling symlink":
        os.symlink(victim + "-not-there", path)
    elif kind == "hardlink":
        os.link(victim, path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        os.mkdir(path)
    elif kind == "socket":
        here = os.getcwd()
        os.chdir(os.path.dirname(path))  # the path of a socket may only have 107 bytes
        socket.socket(socket.AF_UNIX).bind(os.path.basename(path))
        os.chdir(here)


kinds = pytest.mark.parametrize("kind", ["symlink", "dangling symlink", "hardlink", "fifo", "folder", "socket"])


def is_unharmed(victim):
    with open(victim, "rb") as file:
        return file.read() == PRECIOUS and not os.path.exists(victim + "-not-there")


@kinds
def test_a_planted_guard_is_refused_by_name_and_owner(folder, kind):
    victim = f"{folder}/victim"
    plant(kind, f"{folder}/dibs-guard-index-0", victim)
    leases = some_leases(folder)

    with pytest.raises(LeaseRefused) as refused:
        take(leases)

    assert f"{folder}/dibs-guard-index-0" in refused.value.message
    assert " of " in refused.value.message and refused.value.remedy
    took(leases, a_claim("index-1")).close()
    assert is_unharmed(victim)


@kinds
@pytest.mark.parametrize("file", ["claim", "wish"])
def test_a_planted_file_of_ours_is_passed_over(folder, kind, file):
    victim = f"{folder}/victim"
    plant(kind, f"{folder}/dibs-{file}-index-0-{os.geteuid()}-0", victim)
    leases = some_leases(folder)

    lease = took(leases)
    leases.wish([a_claim()], job="x", since=NOON)

    assert len(leases.holders()) == len(leases.waiting()) == 1
    assert os.path.exists(f"{folder}/dibs-{file}-index-0-{os.geteuid()}-1")
    assert is_unharmed(victim)
    lease.close()
    leases.close()


@kinds
def test_a_planted_file_in_anothers_name_blocks_no_user(folder, kind):
    victim = f"{folder}/victim"
    path = f"{folder}/dibs-claim-index-0-4711-0"
    plant(kind, path, victim)
    leases = some_leases(folder)

    took(leases).close()

    assert leases.holders() == []
    assert is_unharmed(victim)


def test_a_file_locked_in_the_name_of_another_user_does_not_count(folder):
    liar = os.open(f"{folder}/dibs-claim-index-0-4711-0", os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(liar, fcntl.LOCK_EX)
    leases = some_leases(folder)

    took(leases).close()

    assert leases.holders() == []
    os.close(liar)


def test_a_second_name_for_a_live_claim_does_not_hide_it(folder):
    leases = some_leases(folder)
    lease = took(leases)
    os.link(f"{folder}/dibs-claim-index-0-{os.geteuid()}-0", f"{folder}/second name")

    found = take(some_leases(folder))

    assert [holder.job for holder in found.holders] == ["train"]
    lease.close()


def test_when_all_our_names_are_planted_it_says_so(folder):
    for slot in range(MOST_SLOTS):
        os.mkdir(f"{folder}/dibs-claim-index-0-{os.geteuid()}-{slot}")
    leases = some_leases(folder)

    with pytest.raises(LeaseRefused) as refused:
        take(leases)

    assert "it is a folder of" in refused.value.message


@needs_root
def test_a_file_of_another_owner_is_not_opened_for_us(folder):
    path = f"{folder}/dibs-claim-index-0-0-0"
    with open(path, "wb") as file:
        file.write(PRECIOUS)
    os.chown(path, STRANGER, STRANGER)

    with pytest.raises(LeaseRefused) as refused:
        open_safely(folder, "dibs-claim-index-0-0-0", create=True, owner=0)

    assert "a file of nobody" in refused.value.message
    assert is_unharmed(path)


def test_a_guard_that_was_deleted_is_made_again(folder):
    leases = some_leases(folder)
    took(leases).close()
    os.unlink(f"{folder}/dibs-guard-index-0")

    lease = took(leases)

    assert os.path.exists(f"{folder}/dibs-guard-index-0")
    lease.close()


def test_a_folder_that_is_gone_is_one_sentence(folder):
    leases = some_leases(f"{folder}/gone")

    with pytest.raises(LeaseRefused) as refused:
        take(leases)

    assert "No such file or directory" in refused.value.message
    with pytest.raises(LeaseRefused):
        leases.holders()
