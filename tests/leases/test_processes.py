"""Claims of several processes: races, deaths and handing on."""

import os
import signal
import socket
import subprocess
import time

import pytest

from dibs.leases.leases import Busy, Lease
from leases.claims import a_claim, busy, some_leases, take, took
from leases.processes import STRANGER, needs_root, start


@pytest.mark.parametrize("second_user", [None, pytest.param(STRANGER, marks=needs_root)])
def test_two_processes_that_race_for_a_card_never_overlap(folder, second_user):
    ledger = os.open(f"{folder}/ledger", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def race(parent):
        leases = some_leases(folder)
        while number := parent.hear():
            # Half of the cards are new to both: the files are made in the race.
            found = take(leases, a_claim(f"index-{int(number) % 100}"))
            if isinstance(found, Lease):
                os.write(ledger, f"start {number} {os.getpid()}\n".encode())
                time.sleep(0.001)
                os.write(ledger, f"end {number} {os.getpid()}\n".encode())
                found.close()
            parent.say("done")

    racers = [start(race), start(race, uid=second_user)]
    for number in range(1, 201):
        for racer in racers:
            racer.say(str(number))
        assert [racer.hear() for racer in racers] == ["done", "done"]

    lines = os.pread(ledger, 1 << 20, 0).decode().splitlines()
    os.close(ledger)
    assert len(lines) >= 400
    for begin, end in zip(lines[::2], lines[1::2], strict=True):
        assert begin.replace("start", "end") == end
    # The second one was forked with our ends of the first one's pipes, so it goes first.
    assert [racer.end() for racer in reversed(racers)] == [0, 0]


def test_opposite_orders_never_deadlock(folder):
    def want(*gpus):
        def act(parent):
            leases = some_leases(folder)
            done = 0
            while done < 100:
                found = take(leases, *map(a_claim, gpus))
                if isinstance(found, Busy):
                    assert not found.guarded_by
                    time.sleep(0.0001)
                else:
                    found.close()
                    done += 1

        return act

    ends = [process.end() for process in (start(want("index-0", "index-1")), start(want("index-1", "index-0")))]

    assert ends == [0, 0]


def test_the_card_of_a_killed_holder_is_free_at_once(folder):
    def hold(parent):
        lease = took(some_leases(folder))
        parent.say("held")
        parent.hear()
        lease.close()

    holder = start(hold)
    assert holder.hear() == "held"
    leases = some_leases(folder)
    assert [found.pid for found in busy(leases).holders] == [holder.pid]

    holder.kill(signal.SIGKILL)

    took(leases).close()


def test_a_lock_sent_to_a_child_outlives_the_process_that_took_it(folder):
    ours, theirs = socket.socketpair()

    def receive(parent):
        _, fds, _, _ = socket.recv_fds(theirs, 1, 1)
        parent.say("received")
        parent.hear()
        assert fds

    def take_and_send(parent):
        lease = took(some_leases(folder), job="handed on")
        socket.send_fds(ours, [b"x"], list(lease.fds))
        lease.close()

    child = start(receive)
    sender = start(take_and_send)
    ours.close()
    theirs.close()
    assert sender.end() == 0 and child.hear() == "received"
    leases = some_leases(folder)
    assert [found.job for found in busy(leases).holders] == ["handed on"]
    assert [found.pid for found in leases.holders()] == [sender.pid]

    child.kill()

    took(leases).close()


def test_a_lock_is_held_while_only_the_socket_has_it(folder):
    ours, theirs = socket.socketpair()
    leases = some_leases(folder)
    lease = took(leases)

    socket.send_fds(ours, [b"x"], list(lease.fds))
    lease.close()

    busy(leases)
    ours.close()
    theirs.close()
    took(leases).close()


def test_an_inherited_lock_lasts_as_long_as_the_command(folder):
    leases = some_leases(folder)
    lease = took(leases)
    command = subprocess.Popen(["sleep", "1000"], pass_fds=lease.fds)

    lease.close()
    lease.close()

    busy(leases)
    command.kill()
    command.wait()
    took(leases).close()


def test_a_slot_that_another_process_took_meanwhile_is_read_anew(folder):
    leases = some_leases(folder)
    took(leases, a_claim(share="1/4"), job="mine").close()
    other = took(some_leases(folder), a_claim(share="1"), job="other")

    found = busy(leases, a_claim(share="1/4"))

    assert [holder.job for holder in found.holders] == ["other"]
    other.close()
