"""A port for the processes of a job to meet."""

import socket

import pytest

from dibs.backends.local import is_free_port
from dibs.engine.launch import launcher
from dibs.engine.launch.launcher import Ports


@pytest.fixture
def few(monkeypatch):
    """Only three ports, of which one is in use."""
    with socket.socket() as listener:
        for first in range(21_000, 28_000, 3):
            if all(map(is_free_port, range(first, first + 3))):
                break
        listener.bind(("127.0.0.1", first + 1))
        monkeypatch.setattr(launcher, "_PORTS", range(first, first + 3))
        yield first


def test_jobs_that_run_at_once_get_different_ports_before_they_listen(few):
    given, running = Ports(), {(1, 1), (2, 1)}

    found = {given.give(key, running) for key in sorted(running)}

    assert found == {few, few + 2}  # and not the one in use


def test_where_there_is_none_none_is_given(few):
    given, running = Ports(), {(1, 1), (2, 1), (3, 1)}

    found = [given.give(key, running) for key in sorted(running)]

    assert found[2] is None


def test_the_port_of_a_job_that_ended_is_given_again(few):
    given = Ports()
    first = given.give((1, 1), {(1, 1)})
    second = given.give((2, 1), {(1, 1), (2, 1)})

    again = given.give((3, 1), {(2, 1), (3, 1)})

    assert again == first != second


def test_ports_lie_where_the_kernel_gives_none_to_those_who_connect():
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first = int(file.read().split()[0])

    assert launcher._PORTS[-1] < first or first < 20_000  # the kernel's default, unless it was changed
    assert 29_500 not in launcher._PORTS
