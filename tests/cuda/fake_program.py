"""A program that "uses CUDA" under fake_libcuda.c: it answers the driver's calls itself, on $FAKE_CUDA/PID.sock.

It counts steps into its ledger, one line each, only while its state is `running`; it holds its bytes in the file
of DIBS_PROBE=fake:/path.json while it is not checkpointed, as the user $FAKE_USER. For tests $FAKE_CUDA has
PID.state with its state, and PID.calls with a line for each call that it began to answer. Standard library only.
"""

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import select
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RUNNING, LOCKED, CHECKPOINTED = range(3)
DONE, REFUSED, NO_MEMORY, LOST, WRONG_STEP, NOT_SUPPORTED = 0, 1, 2, 304, 401, 801
_STEP = 0.005  # seconds
_GROWS_EVERY, _GROWTH = 10, 8 * 2**20  # steps, bytes


class Card:
    """The first card of the fake probe's file, where there is one."""

    def __init__(self) -> None:
        self._path = Path(os.environ.get("DIBS_PROBE", "").removeprefix("fake:"))

    @property
    def free(self) -> int:
        with self._cards() as (card, _):
            return int(card["memory_total"] - card.get("memory_used", 0))

    def put(self, size: int) -> bool:
        """Hold these bytes as this process; False where they are not free."""
        with self._cards() as (card, _):
            if card.get("memory_used", 0) + size > card["memory_total"]:
                return False
            card["memory_used"] = card.get("memory_used", 0) + size
            user = os.environ.get("FAKE_USER")
            card.setdefault("processes", []).append({"pid": os.getpid(), "memory": size, "user": user})
        return True

    def take(self, size: int) -> None:
        with self._cards() as (card, _):
            card["memory_used"] = card.get("memory_used", 0) - size
            card["processes"] = [one for one in card.get("processes", []) if one["pid"] != os.getpid()]

    @contextlib.contextmanager
    def _cards(self) -> Iterator[tuple[dict[str, Any], Any]]:
        if not self._path.is_file():
            yield {"memory_total": 2**60}, None
            return
        with open(f"{self._path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content = json.loads(self._path.read_text())
            cards = content["gpus"] if isinstance(content, dict) else content
            _take_back(cards[0])
            yield cards[0], content
            new = Path(f"{self._path}.{os.getpid()}")
            new.write_text(json.dumps(content))
            new.rename(self._path)


def _take_back(card: dict[str, Any]) -> None:
    """What killed programs had, as a real driver does."""
    dead = [one for one in card.get("processes", []) if not _is_alive(one["pid"])]
    if dead:
        card["processes"] = [one for one in card["processes"] if one not in dead]
        card["memory_used"] -= sum(one["memory"] for one in dead)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Program:
    """What the driver does inside of a CUDA program."""

    def __init__(self, wishes: argparse.Namespace) -> None:
        self._wishes = wishes
        self._card = Card()
        self._state = RUNNING
        self._is_lost = False
        self._goes_on = threading.Event()
        self._step = threading.Lock()
        self._delays = {name: int(ms) / 1000 for name, _, ms in (one.partition("=") for one in wishes.delay)}
        self._base = f"{os.environ['FAKE_CUDA']}/{os.getpid()}"
        self._ledger = os.open(wishes.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def listen(self) -> socket.socket:
        """The socket that makes it a CUDA program."""
        if self._wishes.bytes < 0:
            self._wishes.bytes += self._card.free
        if not self._card.put(self._wishes.bytes):
            sys.exit("CUDA out of memory")
        self._enter(RUNNING)
        listener = socket.socket(socket.AF_UNIX)
        at = os.open(os.environ["FAKE_CUDA"], os.O_PATH)
        listener.bind(f"/proc/self/fd/{at}/{os.getpid()}.sock")
        os.close(at)
        listener.listen(16)
        return listener

    def serve(self, listener: socket.socket) -> None:
        """Answer one call after the other: those that come in the middle of a step wait."""
        while True:
            channel, _ = listener.accept()
            with channel:
                word, number = channel.recv(64).decode().split()
                if _has_hung_up(channel):
                    continue  # it was killed while this program was stopped: nothing changes
                with open(f"{self._base}.calls", "a") as calls:
                    calls.write(f"{word}\n")
                code = self._answer(word, int(number))
                with contextlib.suppress(OSError):
                    channel.sendall(f"{code} {self._state}\n".encode())

    def _answer(self, word: str, number: int) -> int:
        if word == "state":
            return DONE
        if self._is_lost:
            return LOST
        before, after = {
            "lock": (RUNNING, LOCKED),
            "checkpoint": (LOCKED, CHECKPOINTED),
            "restore": (CHECKPOINTED, LOCKED),
            "unlock": (LOCKED, RUNNING),
        }[word]
        if self._state != before:
            return WRONG_STEP
        if word == self._wishes.child_at:
            _start_child(self._wishes.child_then)
        time.sleep(self._delays.get(word, 0))
        if word == "checkpoint":
            if self._wishes.managed:
                return NOT_SUPPORTED
            if self._wishes.dies:
                os._exit(1)
            self._card.take(self._wishes.bytes)
        if word == "restore" and self._wishes.imports:
            return REFUSED
        if word == "restore" and not self._card.put(self._wishes.bytes):
            self._is_lost = True
            return NO_MEMORY
        self._enter(after)
        return DONE

    def _enter(self, state: int) -> None:
        with self._step:  # a step that began is done
            self._state = state
            new = Path(f"{self._base}.state.new")
            new.write_text(("running", "locked", "checkpointed")[state])
            new.rename(f"{self._base}.state")
        if state == RUNNING:
            self._goes_on.set()
        else:
            self._goes_on.clear()

    def count(self) -> None:
        number = 0
        while True:
            self._goes_on.wait()
            with self._step:
                if self._state == RUNNING:
                    number += 1
                    os.write(self._ledger, f"{number}\n".encode())
                    if number % _GROWS_EVERY == 0 and self._wishes.bytes < self._wishes.grows_to:
                        if not self._card.put(_GROWTH):
                            os.write(
                                2, b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 MiB.\n"
                            )
                            os._exit(1)
                        self._wishes.bytes += _GROWTH
                    if number == self._wishes.steps:
                        self._card.take(self._wishes.bytes)
                        os._exit(0)
            time.sleep(_STEP)


def _has_hung_up(channel: socket.socket) -> bool:
    poll = select.poll()
    poll.register(channel, 0)
    return bool(poll.poll(0))


def _start_child(arguments: str) -> None:
    subprocess.Popen([sys.executable, "-S", __file__, *shlex.split(arguments)])


def _work(ledger: str, parent: int) -> None:
    """A worker that eats the processor."""
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    number = 0
    while os.getppid() == parent:
        begin = time.monotonic()
        while time.monotonic() < begin + _STEP:
            pass
        number += 1
        os.write(file, f"{number}\n".encode())
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ledger")
    parser.add_argument("--bytes", type=int, default=2**30, help="negative: all but so many of the free")
    parser.add_argument("--steps", type=int, default=0, help="end after so many")
    parser.add_argument("--grows-to", type=int, default=0, metavar="BYTES", help="a little with each step")
    parser.add_argument("--delay", action="append", default=[], metavar="CALL=MS")
    parser.add_argument("--managed", action="store_true", help="has managed memory")
    parser.add_argument("--shares", action="store_true", help="shares tensors as torch does")
    parser.add_argument("--imports", action="store_true", help="imported memory of another process by CUDA IPC")
    parser.add_argument("--dies", action="store_true", help="dies of a checkpoint")
    parser.add_argument("--workers", type=int, default=0, help="forked, without CUDA")
    parser.add_argument(
        "--child", action="append", default=[], metavar="ARGUMENTS", help="a CUDA program below it"
    )
    parser.add_argument("--child-at", default="", metavar="CALL", help="start one in the middle of this call")
    parser.add_argument("--child-then", default="", help="its arguments")
    wishes = parser.parse_args()
    if library := os.environ.get("DIBS_CUDA_LIBRARY"):
        ctypes.CDLL(library)  # a CUDA program has it in its maps
    program = Program(wishes)
    shared = None
    if wishes.shares:
        shared = f"/dev/shm/cuda.shm.{os.getuid()}.{os.getpid()}.1"
        os.open(shared, os.O_RDWR | os.O_CREAT, 0o600)
        Path(f"{wishes.ledger}.shared").write_text(shared)
    for number in range(wishes.workers):
        parent = os.getpid()
        if os.fork() == 0:
            _work(f"{wishes.ledger}.worker{number}", parent)
    for arguments in wishes.child:
        _start_child(arguments)
    listener = program.listen()
    threading.Thread(target=program.serve, args=(listener,), daemon=True).start()
    program.count()


if __name__ == "__main__":
    main()
