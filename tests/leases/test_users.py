"""Several users of one machine, hostile ones too."""

import fcntl
import os
import time

from dibs.leases import lockers
from dibs.leases.leases import Lease
from leases.claims import NOON, a_claim, busy, some_leases, took
from leases.processes import STRANGER, needs_root, start


@needs_root
def test_another_user_is_told_who_has_the_card(folder):
    lines = []

    def ask(parent):
        parent.hear()
        leases = some_leases(folder)
        parent.say(repr([(one.user, one.uid, one.pid, one.job) for one in busy(leases).holders]))
        parent.hear()
        lease = took(leases, a_claim(share="1/2"))
        parent.say("took")
        parent.hear()
        lease.close()

    stranger = start(ask, uid=STRANGER)
    leases = some_leases(folder)
    lease = took(leases, job="of root")
    stranger.say("ask")
    lines.append(stranger.hear())
    lease.close()
    stranger.say("take")
    lines.append(stranger.hear())
    found = busy(leases)

    assert lines == [repr([("root", 0, os.getpid(), "of root")]), "took"]
    assert [(one.user, one.uid, one.pid) for one in found.holders] == [("nobody", STRANGER, stranger.pid)]
    assert stranger.end() == 0


@needs_root
def test_the_folder_works_for_the_second_user(folder):
    def use(parent):
        leases = some_leases(folder)
        took(leases).close()
        leases.wish([a_claim()], job="x", since=NOON)
        leases.close()

    before = os.umask(0o077)
    ends = [start(use, uid=uid).end() for uid in (STRANGER, 12345, 0)]
    os.umask(before)

    assert ends == [0, 0, 0]
    assert len(os.listdir(folder)) == 7


@needs_root
def test_an_older_wish_of_another_user_goes_first(folder):
    def wait(parent):
        leases = some_leases(folder)
        leases.wish([a_claim()], job="waits", since=NOON)
        parent.say("waiting")
        parent.hear()

    waiter = start(wait, uid=STRANGER)
    assert waiter.hear() == "waiting"

    found = busy(some_leases(folder), since=NOON + 1)

    assert [(one.user, one.job) for one in found.waiting] == [("nobody", "waits")]
    assert waiter.end() == 0


def lock_for_ever(path):
    """What a hostile user can do: open for reading, lock, stay."""

    def act(parent):
        fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)
        parent.say("locked")
        parent.hear()

    return act


@needs_root
def test_a_hostile_guard_costs_one_deadline_and_the_others_go_on(folder):
    leases = some_leases(folder, patience=0.3)
    took(leases).close()
    hostile = start(lock_for_ever(f"{folder}/dibs-guard-index-0"), uid=STRANGER)
    hostile.hear()

    begin = time.monotonic()
    found = busy(leases)
    waited = time.monotonic() - begin
    for _ in range(100):
        busy(leases)
    leases.wish([a_claim()], job="x", since=NOON)
    waited_later = time.monotonic() - begin - waited

    assert found.guarded_by == f"process {hostile.pid} of nobody keeps {folder}/dibs-guard-index-0 locked"
    assert 0.3 <= waited < 20 and waited_later < 0.3 * 100
    took(leases, a_claim("index-1")).close()
    hostile.kill()
    took(leases).close()


@needs_root
def test_the_holders_are_seen_past_a_hostile_guard(folder):
    leases = some_leases(folder, patience=0.1)
    took(leases).close()
    hostile = start(lock_for_ever(f"{folder}/dibs-guard-index-0"), uid=STRANGER)
    holder = start(lock_for_ever(f"{folder}/dibs-claim-index-0-0-0"))
    assert hostile.hear() == holder.hear() == "locked"

    found = leases.holders()

    assert [one.pid for one in found] == [holder.pid]
    hostile.kill()
    holder.kill()


@needs_root
def test_who_locks_the_claim_of_another_is_shown_as_who_they_are(folder):
    leases = some_leases(folder)
    took(leases, job="over long ago").close()
    hostile = start(lock_for_ever(f"{folder}/dibs-claim-index-0-0-0"), uid=STRANGER)
    hostile.hear()

    (found,) = leases.holders()

    assert (found.user, found.uid, found.pid, found.job) == ("nobody", STRANGER, hostile.pid, "")
    assert found.since == 0 and found.file_of == "root"
    assert isinstance(took(leases, a_claim("index-1")), Lease)
    hostile.kill()


@needs_root
def test_a_claim_of_mine_that_another_user_has_locked_is_not_blamed_on_me(folder):
    leases = some_leases(folder)
    took(leases, job="over long ago").close()
    hostile = start(lock_for_ever(f"{folder}/dibs-claim-index-0-0-0"), uid=STRANGER)
    hostile.hear()

    found = busy(leases)

    (holder,) = found.holders
    words = f"process {hostile.pid} of nobody, which keeps a lease file of root locked"
    assert holder.in_words == words
    assert found.remedy.startswith("ask that user to end it, use another GPU, or set DIBS_LEASES to a folder of")
    hostile.kill()
    took(leases).close()


@needs_root
def test_a_lock_that_an_ended_process_left_to_its_child_is_not_blamed_on_me_either(folder):
    leases = some_leases(folder)
    took(leases, job="over long ago").close()

    def lock_and_fork(parent):
        fcntl.flock(os.open(f"{folder}/dibs-claim-index-0-0-0", os.O_RDONLY), fcntl.LOCK_EX)
        if os.fork() == 0:
            parent.say("locked")
            parent.hear()

    hostile = start(lock_and_fork, uid=STRANGER)
    assert hostile.hear() == "locked"
    os.waitpid(hostile.pid, 0)

    (holder,) = busy(leases).holders

    assert (holder.job, holder.pid, holder.file_of) == ("", hostile.pid, "root")
    assert holder.user.startswith("an unknown user (it has ended")
    os.close(hostile.mouth)
    os.close(hostile.ears)


@needs_root
def test_where_the_system_hides_processes_of_others_it_says_so(folder, monkeypatch):
    def ask(parent):
        parent.hear()
        monkeypatch.setattr(lockers, "owner_of", lambda pid: None)  # as on a /proc with hidepid=2
        leases = some_leases(folder, patience=0.1)
        parent.say(repr(busy(leases).guarded_by))
        parent.say(repr(busy(leases, a_claim("index-1")).holders[0].in_words))

    took(some_leases(folder), a_claim("index-0")).close()
    mine = start(ask, uid=STRANGER)
    claim = f"{folder}/dibs-claim-index-1-{STRANGER}-0"
    locked = [os.open(claim, os.O_RDWR | os.O_CREAT), os.open(f"{folder}/dibs-guard-index-0", os.O_RDONLY)]
    os.chown(claim, STRANGER, STRANGER)
    for fd in locked:
        fcntl.flock(fd, fcntl.LOCK_EX)
    mine.say("ask")

    guarded, holder = mine.hear(), mine.hear()

    hidden = f"process {os.getpid()} of another user, whose name the system hides (hidepid)"
    assert f"{hidden} keeps " in guarded
    assert holder == repr(f"{hidden}, which keeps a lease file of nobody locked")
    assert mine.end() == 0
    for fd in locked:
        os.close(fd)


@needs_root
def test_a_guard_that_another_user_keeps_is_named_in_the_table(folder):
    leases = some_leases(folder, patience=0.1)
    took(leases).close()
    hostile = start(lock_for_ever(f"{folder}/dibs-guard-index-0"), uid=STRANGER)
    hostile.hear()

    table = leases.look()

    path = f"{folder}/dibs-guard-index-0"
    assert table.guarded_by == {"index-0": f"process {hostile.pid} of nobody keeps {path} locked"}
    hostile.kill()
    assert leases.look().guarded_by == {}


def test_a_planted_guard_does_not_keep_others_from_a_look(folder):
    os.symlink("/nowhere", f"{folder}/dibs-guard-index-7")
    leases = some_leases(folder)
    lease = took(leases, job="train")

    table = leases.look()

    assert [holder.job for holder in table.holders] == ["train"]
    assert list(table.guarded_by) == ["index-7"] and "a symbolic link of" in table.guarded_by["index-7"]
    lease.close()


def test_a_look_makes_no_files_for_names_that_others_invent(folder):
    for number in range(5):
        with open(f"{folder}/dibs-claim-invented{number}-{os.geteuid()}-0", "w"):
            pass

    some_leases(folder).look()

    assert len(os.listdir(folder)) == 5


@needs_root
def test_a_claim_cannot_pass_for_that_of_another_user(folder):
    def pretend(parent):
        leases = some_leases(folder)
        lease = took(leases)
        os.pwrite(
            lease.fds[0],
            b'{"user": "root", "uid": 0, "pid": 1, "job": "\\u001b[2J", "since": 1, "share": "1", "vram": 0, '
            b'"folder": ""}' + b" " * 200,
            0,
        )
        parent.say("locked")
        parent.hear()

    liar = start(pretend, uid=STRANGER)
    liar.hear()

    (found,) = busy(some_leases(folder)).holders

    assert (found.user, found.uid, found.job) == ("nobody", STRANGER, r"\x1b[2J")
    assert liar.end() == 0
