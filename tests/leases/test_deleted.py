"""Lease files that are deleted while they are held."""

import os
import subprocess
from fractions import Fraction

import pytest

from dibs.leases import leases as module
from dibs.leases.files import LeaseRefused
from dibs.leases.leases import Lease
from leases.claims import NOON, a_claim, busy, some_leases, take, took
from leases.processes import start

CLAIM = f"dibs-claim-index-0-{os.geteuid()}-0"


@pytest.fixture
def path(folder):
    return f"{folder}/{CLAIM}"


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced by a file", "replaced by a link"])
def test_a_lost_file_is_made_and_locked_again(folder, path, how):
    ours = some_leases(folder)
    lease = took(ours, a_claim(share="1/2"), job="train")
    assert ours.restore(lease) == [] and ours.is_in_place(lease)
    if how == "moved":
        os.rename(path, f"{folder}/elsewhere")
    else:
        os.unlink(path)
    if how == "replaced by a file":
        with open(path, "w"):
            pass
    elif how == "replaced by a link":
        os.symlink("/nowhere", path)
    assert not ours.is_in_place(lease)

    made = ours.restore(lease)

    assert made == [path] and ours.is_in_place(lease)
    (holder,) = busy(some_leases(folder)).holders
    assert (holder.job, holder.share, holder.vram, holder.folder) == ("train", Fraction(1, 2), 7, "/runs/1")
    lease.close()
    took(some_leases(folder)).close()


def test_a_program_that_took_the_place_meanwhile_is_named_by_both_and_nothing_more_fits(folder, path):
    ours, theirs = some_leases(folder), some_leases(folder)
    mine = took(ours, job="mine")
    os.unlink(path)
    yours = took(theirs, job="yours")
    assert ours.overbooked(["index-0"]) == {}

    ours.restore(mine)

    me = f"of {module.user_name(os.geteuid())} (pid {os.getpid()})"
    sentence = f"is overbooked: it is held by job yours {me} and job mine {me}"
    assert ours.overbooked(["index-0"]) == theirs.overbooked(["index-0"]) == {"index-0": sentence}
    assert [holder.job for holder in busy(theirs, a_claim(share="1/100")).holders] == ["yours", "mine"]
    yours.close()
    assert ours.overbooked(["index-0"]) == {}
    mine.close()


def test_the_command_has_the_deleted_file_and_a_death_of_ours_is_told_from_its_own(folder, path):
    ours = some_leases(folder)
    lease = took(ours)
    command = subprocess.Popen(["sleep", "1000"], pass_fds=lease.fds)
    os.unlink(path)
    ours.restore(lease)

    assert ours.is_held_by_its_job(lease)
    busy(some_leases(folder))
    command.kill()
    command.wait()
    assert not ours.is_held_by_its_job(lease)
    lease.close()
    took(ours).close()


@pytest.mark.parametrize("is_deleted_before", [True, False])
def test_a_lease_that_only_a_job_holds_is_found_and_made_again(folder, path, is_deleted_before):
    def hold(parent):
        lease = took(some_leases(folder), job="of an earlier engine")
        command = subprocess.Popen(["sleep", "1000"], pass_fds=lease.fds)
        parent.say(str(command.pid))

    engine = start(hold)
    command = int(engine.hear())
    assert engine.end() == 0
    ours = some_leases(folder)
    if is_deleted_before:
        os.unlink(path)
    lease = ours.find({"/runs/1": 1, "/runs/2": 1})["/runs/1"]
    if not is_deleted_before:
        os.unlink(path)
    took(some_leases(folder)).close()

    assert ours.restore(lease) == [path]

    assert [holder.job for holder in busy(some_leases(folder)).holders] == ["of an earlier engine"]
    assert ours.is_held_by_its_job(lease)
    os.kill(command, 9)
    lease.close()


def test_the_file_of_a_job_that_has_ended_is_not_made_again(folder, path):
    ours = some_leases(folder)
    held = took(some_leases(folder))
    lease = ours.find({"/runs/1": 1})["/runs/1"]
    os.unlink(path)

    held.close()

    assert ours.restore(lease) == []
    assert os.listdir(folder) == ["dibs-guard-index-0"]
    lease.close()


def test_the_next_job_of_a_lease_made_again_is_the_one_that_is_asked(folder, path):
    ours = some_leases(folder)
    lease = took(ours, job="first")
    os.unlink(path)
    ours.restore(lease)

    ours.hand_over(lease, [a_claim()], job="second", folder="/runs/2")

    command = subprocess.Popen(["sleep", "1000"], pass_fds=lease.fds)
    assert ours.is_held_by_its_job(lease)
    command.kill()
    command.wait()
    assert not ours.is_held_by_its_job(lease)
    lease.close()


def test_a_guard_deleted_between_look_and_claim_makes_us_look_again(folder, monkeypatch):
    """Two processes held a guard each, and would both have found the card free."""
    ours, theirs = some_leases(folder), some_leases(folder)
    taken: list[Lease] = []
    write = module.write

    def write_slowly(where, fd, record):
        if not taken:
            monkeypatch.setattr(module, "write", write)
            os.unlink(f"{folder}/dibs-guard-index-0")
            os.unlink(f"{folder}/{CLAIM}")  # as if we had not locked it yet
            taken.append(took(theirs, job="theirs"))
        write(where, fd, record)

    monkeypatch.setattr(module, "write", write_slowly)

    found = take(ours, job="ours")

    assert [holder.job for holder in found.holders] == ["theirs"]
    taken[0].close()


def test_files_that_are_deleted_again_and_again_are_one_sentence(folder, monkeypatch):
    write = module.write

    def write_in_vain(where, fd, record):
        write(where, fd, record)
        os.unlink(f"{folder}/{CLAIM}")

    monkeypatch.setattr(module, "write", write_in_vain)
    before = os.listdir("/proc/self/fd")

    found = busy(some_leases(folder))

    assert found.guarded_by == f"lease files in {folder} are deleted again and again"
    assert os.listdir("/proc/self/fd") == before


def test_a_deleted_wish_is_made_again(folder):
    ours = some_leases(folder)
    ours.wish([a_claim()], job="x", since=NOON)
    os.unlink(f"{folder}/dibs-wish-index-0-{os.geteuid()}-0")

    ours.wish([a_claim()], job="x", since=NOON)

    assert [wish.job for wish in ours.waiting()] == ["x"]
    ours.close()


def test_with_the_folder_gone_it_is_one_sentence_and_later_made_again(folder):
    place = f"{folder}/place"
    os.mkdir(place)
    ours = some_leases(place)
    lease = took(ours)
    os.unlink(f"{place}/{CLAIM}")
    os.unlink(f"{place}/dibs-guard-index-0")
    os.rmdir(place)

    with pytest.raises(LeaseRefused):
        ours.restore(lease)

    os.mkdir(place)
    assert ours.restore(lease) == [f"{place}/{CLAIM}"]
    lease.close()


def test_no_descriptor_is_left_behind(folder, path):
    before = os.listdir("/proc/self/fd")
    ours = some_leases(folder)
    lease = took(ours)
    os.unlink(path)
    ours.restore(lease)
    watched = ours.find({"/runs/1": 1})["/runs/1"]
    ours.overbooked(["index-0"])
    ours.is_held_by_its_job(watched)

    watched.close()
    lease.close()

    assert os.listdir("/proc/self/fd") == before
