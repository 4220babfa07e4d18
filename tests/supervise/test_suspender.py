"""Attempts that are suspended and go on: real processes, the engine's side and its helper, and the fake driver."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import pytest

from cuda.machine import CARD, FAKE_PROGRAM, GB, FakeMachine, goes_on, stands_still, steps, wait_for
from dibs.model.jobs import Attempt
from dibs.supervise import suspender
from dibs.supervise.command import descendants
from dibs.supervise.folder import AttemptFacts
from dibs.supervise.orphans import process_at
from dibs.supervise.suspension import Answer, Suspender
from supervise.hands import Hands, Loop, is_alive

_FOREVER = "while :; do sleep 0.01; done"


class Queue:
    """What an engine does: starts attempts, and has them suspended."""

    def __init__(self, hands: Hands) -> None:
        self.hands = hands
        self.machine = FakeMachine(hands.root / "machine")
        hands.environment |= self.machine.environ
        self._loop = Loop()
        self.suspender = Suspender(self._loop.add_reader, self._loop.remove_reader, self.machine.environ)

    def start(self, *arguments: str, line: str = "") -> Attempt:
        """An attempt that runs a CUDA program, or this line."""
        number = self.hands._number + 1
        mark = {"DIBS_METRICS": f"{self.hands.root}/attempts/0/{number}.1/metrics"}
        program = shlex.join([sys.executable, "-S", FAKE_PROGRAM, str(self.ledger), *arguments])
        attempt = self.hands.start(line or f"{program}; true", env=mark)
        self.hands.running(attempt)
        if not line:
            wait_for(lambda: steps(self.ledger), "it counts")
        return attempt

    @property
    def ledger(self) -> Path:
        return self.hands.workdir / "ledger"

    def ask(self, attempt: Attempt, do: str, **more: Any) -> Answer:
        answers = self.begin(attempt, do, **more)
        return self.wait(answers)

    def begin(self, attempt: Attempt, do: str, **more: Any) -> list[Answer]:
        answers: list[Answer] = []
        self.suspender.start(
            attempt.key, {"do": do, "folder": attempt.folder, **more}, answers.append, deadline=100.0
        )
        return answers

    def wait(self, answers: list[Answer]) -> Answer:
        def heard() -> bool:
            self._loop.turn(0.01)
            return bool(answers)

        wait_for(heard, "the helper answers")
        return answers[0]

    def pids(self, attempt: Attempt) -> dict[int, str]:
        """All below its shim: their states as /proc has them."""
        shim = self.hands.facts(attempt).record["shim"]  # type: ignore[index]
        found = {}
        for pid in descendants(shim):
            with suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return found

    def of_cuda(self, attempt: Attempt) -> list[int]:
        """The CUDA programs among them, the oldest first."""
        return sorted(pid for pid in self.pids(attempt) if (self.machine.folder / f"{pid}.sock").exists())

    def close(self) -> None:
        self.suspender.close()
        self._loop.close()


@pytest.fixture
def queue(hands: Hands) -> Iterator[Queue]:
    one = Queue(hands)
    yield one
    one.close()


def _in_short(answer: Answer) -> tuple[str, str, int, str]:
    return answer.state, answer.rung, answer.processes, answer.code


def test_a_job_leaves_its_card_and_goes_on_where_it_was(queue: Queue) -> None:
    attempt = queue.start()
    before = queue.machine.used

    suspended = queue.ask(attempt, "suspend")
    still, empty = stands_still(queue.ledger), queue.machine.used
    resumed = queue.ask(attempt, "resume", room={CARD: GB})

    assert (before, empty, queue.machine.used) == (GB, 0, GB)
    assert _in_short(suspended) == ("suspended", "cuda", 1, "")
    assert _in_short(resumed) == ("running", "cuda", 1, "")
    assert still and goes_on(queue.ledger)
    assert suspended.seconds > 0


def test_workers_eat_no_processor_meanwhile(queue: Queue) -> None:
    attempt = queue.start("--workers", "2")
    workers = [Path(f"{queue.ledger}.worker{number}") for number in range(2)]
    wait_for(lambda: all(steps(worker) for worker in workers), "workers work")

    answer = queue.ask(attempt, "suspend")
    states = queue.pids(attempt)
    still = [stands_still(worker) for worker in workers]
    queue.ask(attempt, "resume")

    (of_cuda,) = queue.of_cuda(attempt)
    assert _in_short(answer) == ("suspended", "cuda", 1, "")
    assert {pid for pid, state in states.items() if state == "T"} == states.keys() - {of_cuda}
    assert still == [True, True]
    assert all(goes_on(worker) for worker in (*workers, queue.ledger))


def test_several_cuda_processes_are_refused_unless_their_owner_says_that_they_share_nothing(queue: Queue) -> None:
    child = queue.hands.workdir / "child"
    attempt = queue.start("--child", shlex.quote(str(child)))
    wait_for(lambda: steps(child), "the child counts")

    refused = queue.ask(attempt, "suspend")
    calls = [queue.machine.calls(pid) for pid in queue.of_cuda(attempt)]
    suspended = queue.ask(attempt, "suspend", may_have_several=True)
    empty = queue.machine.used
    resumed = queue.ask(attempt, "resume")

    assert _in_short(refused) == ("running", "", 2, "several-processes")
    assert calls == [[], []]
    assert _in_short(suspended) == ("suspended", "cuda", 2, "")
    assert (empty, queue.machine.used) == (0, 2 * GB)
    assert _in_short(resumed) == ("running", "cuda", 2, "")
    assert goes_on(queue.ledger) and goes_on(child)


def test_shared_memory_of_the_card_is_refused_before_anything_is_locked(queue: Queue) -> None:
    attempt = queue.start("--shares")
    shared = Path(Path(f"{queue.ledger}.shared").read_text())

    answer = queue.ask(attempt, "suspend", may_have_several=True)
    shared.unlink()

    assert _in_short(answer) == ("running", "", 1, "cuda-ipc")
    assert queue.machine.calls(queue.of_cuda(attempt)[0]) == []
    assert goes_on(queue.ledger)


def test_managed_memory_is_refused_and_the_job_goes_on(queue: Queue) -> None:
    attempt = queue.start("--managed", "--workers", "1")
    worker = Path(f"{queue.ledger}.worker0")

    answer = queue.ask(attempt, "suspend")

    assert _in_short(answer) == ("running", "", 1, "managed-memory")
    assert queue.machine.calls(queue.of_cuda(attempt)[0]) == ["lock", "checkpoint", "unlock"]
    assert goes_on(queue.ledger) and goes_on(worker)


def test_a_cuda_process_that_is_stopped_by_a_signal_is_refused_at_once(queue: Queue) -> None:
    attempt = queue.start()
    (pid,) = queue.of_cuda(attempt)
    os.kill(pid, signal.SIGSTOP)

    answer = queue.ask(attempt, "suspend")
    os.kill(pid, signal.SIGCONT)

    assert (answer.state, answer.code) == ("running", "stopped")
    assert answer.seconds < 10
    assert queue.machine.calls(pid) == []
    assert goes_on(queue.ledger)


def test_a_process_that_starts_using_cuda_meanwhile_makes_it_go_back(queue: Queue) -> None:
    child = queue.hands.workdir / "child"
    late = ("--child-at", "checkpoint", "--child-then", shlex.quote(str(child)), "--delay", "checkpoint=1000")
    attempt = queue.start(*late)

    answer = queue.ask(attempt, "suspend", may_have_several=True)

    assert _in_short(answer) == ("running", "", 2, "failed")
    assert goes_on(queue.ledger) and goes_on(child)
    assert queue.machine.used == 2 * GB


def test_a_process_that_dies_of_its_checkpoint_lets_the_others_go_on(queue: Queue) -> None:
    child = queue.hands.workdir / "child"
    attempt = queue.start("--child", f"{shlex.quote(str(child))} --dies")
    wait_for(lambda: steps(child), "the child counts")

    answer = queue.ask(attempt, "suspend", may_have_several=True)

    assert (answer.state, answer.code) == ("running", "failed")
    assert goes_on(queue.ledger)


def test_a_job_without_cuda_is_stopped_whole_and_goes_on(queue: Queue) -> None:
    counts = f"({_FOREVER.replace('sleep 0.01', 'sleep 0.01; echo >> lines')}) & {_FOREVER}"
    attempt = queue.start(line=counts)
    lines = queue.hands.workdir / "lines"
    wait_for(lambda: lines.exists(), "it writes")

    suspended = queue.ask(attempt, "suspend")
    states = set(queue.pids(attempt).values())
    shim = process_at(queue.hands.running(attempt)["shim"])
    resumed = queue.ask(attempt, "resume")
    before = lines.stat().st_size

    assert _in_short(suspended) == ("suspended", "stop", 0, "")
    assert _in_short(resumed) == ("running", "stop", 0, "")
    assert states == {"T"} and shim is not None and not shim.is_stopped
    wait_for(lambda: lines.stat().st_size > before, "it goes on")


def test_only_stop_leaves_the_driver_alone(queue: Queue) -> None:
    attempt = queue.start("--workers", "1")
    (pid,) = queue.of_cuda(attempt)

    suspended = queue.ask(attempt, "suspend", only_stop=True)
    states, still = set(queue.pids(attempt).values()), stands_still(queue.ledger)
    resumed = queue.ask(attempt, "resume", only_stop=True)

    assert _in_short(suspended) == ("suspended", "stop", 0, "")
    assert (states, still, resumed.state) == ({"T"}, True, "running")
    assert not (queue.machine.folder / f"{pid}.calls").exists()
    assert goes_on(queue.ledger)


def test_a_card_with_too_little_room_is_refused_and_nothing_is_touched(queue: Queue) -> None:
    attempt = queue.start()
    queue.ask(attempt, "suspend")
    (pid,) = queue.of_cuda(attempt)
    before = queue.machine.calls(pid)

    queue.machine.use(15 * GB + GB // 2)
    refused = queue.ask(attempt, "resume", room={CARD: GB})
    unknown = queue.ask(attempt, "resume", room={"GPU-of-nobody": 1})
    unchanged = queue.machine.calls(pid) == before
    queue.machine.use(15 * GB)
    resumed = queue.ask(attempt, "resume", room={CARD: GB})

    assert _in_short(refused) == ("suspended", "cuda", 1, "no-room")
    assert refused.why == f"only 512M of 1G are free on {CARD}"
    assert _in_short(unknown) == ("suspended", "cuda", 1, "no-room")
    assert unchanged
    assert resumed.state == "running" and goes_on(queue.ledger)


def test_a_job_whose_restore_failed_is_unclear_and_then_lost(queue: Queue) -> None:
    attempt = queue.start()
    queue.ask(attempt, "suspend")
    queue.machine.use(16 * GB)

    answer = queue.ask(attempt, "resume")  # without a look at the room
    lost = queue.ask(attempt, "resume")

    assert (answer.state, answer.code) == ("unclear", "failed")
    assert "too little free memory (CUDA error 2)" in answer.why
    assert (lost.state, lost.code) == ("lost", "lost")


@pytest.mark.parametrize(
    ("do", "at"), [("suspend", "lock"), ("suspend", "checkpoint"), ("resume", "restore"), ("resume", "unlock")]
)
@pytest.mark.parametrize("dies_by", ["deadline", "kill"])
def test_a_helper_that_was_killed_at_any_step_is_run_again(queue: Queue, do: str, at: str, dies_by: str) -> None:
    child = queue.hands.workdir / "child"
    slow = f"--delay {at}=400"
    attempt = queue.start(
        *slow.split(), "--workers", "1", "--child", f"{shlex.quote(str(child))} {slow} --workers 1"
    )
    wait_for(lambda: steps(child), "the child counts")
    if do == "resume":
        assert queue.ask(attempt, "suspend", may_have_several=True).state == "suspended"
        queue.machine.use(14 * GB)  # not a byte more than it needs is free
    others = queue.machine.used if do == "resume" else 0

    for pid in queue.of_cuda(attempt):  # one after the other: the second time in the middle of the other one
        answers = queue.begin(attempt, do, may_have_several=True, room={CARD: 2 * GB})
        wait_for(lambda pid=pid: at in queue.machine.calls(pid), f"{at} begins")  # type: ignore[misc]
        if dies_by == "deadline":
            queue.suspender.expire(inf)
        else:
            os.kill(queue.suspender._helpers[attempt.key].process.pid, signal.SIGKILL)
        assert queue.wait(answers).state == "unclear"
    again = queue.ask(attempt, do, may_have_several=True, room={CARD: 2 * GB})

    assert _in_short(again) == ("suspended" if do == "suspend" else "running", "cuda", 2, "")
    ledgers = [path for one in (queue.ledger, child) for path in (one, Path(f"{one}.worker0"))]
    if do == "suspend":
        assert again.held == {CARD: 2 * GB}
        assert queue.machine.used == 0 and all(stands_still(ledger) for ledger in ledgers)
        assert queue.ask(attempt, "resume", room={CARD: 2 * GB}).state == "running"
    assert queue.machine.used == others + 2 * GB and all(goes_on(ledger) for ledger in ledgers)


def test_what_is_moved_is_measured_when_nothing_changes_any_more(queue: Queue) -> None:
    attempt = queue.start("--bytes", str(3 * GB))

    assert queue.ask(attempt, "suspend").held == {CARD: 3 * GB}
    assert queue.ask(attempt, "resume").state == "running"


def test_what_a_card_that_names_no_processes_has_in_use_may_all_be_its_own(queue: Queue) -> None:
    attempt = queue.start("--bytes", str(3 * GB))
    queue.machine.use(4 * GB)  # as in a container

    assert queue.ask(attempt, "suspend", cards=[CARD]).held == {CARD: 4 * GB}


def test_what_the_memory_of_the_machine_cannot_take_is_refused_before_it_is_moved(queue: Queue) -> None:
    queue.machine.use(0, total=2**50)
    attempt = queue.start("--bytes", str(2**49), "--workers", "1")

    answer = queue.ask(attempt, "suspend")

    assert _in_short(answer) == ("running", "", 1, "no-memory")
    assert answer.why.startswith("it holds 512T on its GPU, and the machine has ")
    assert queue.machine.calls(queue.of_cuda(attempt)[0]) == ["lock", "unlock"]
    assert goes_on(queue.ledger) and goes_on(Path(f"{queue.ledger}.worker0"))


def test_a_half_resumed_job_that_finds_no_room_any_more_leaves_its_card_again(queue: Queue) -> None:
    child = queue.hands.workdir / "child"
    slow = "--delay restore=400"
    attempt = queue.start(*slow.split(), "--child", f"{shlex.quote(str(child))} {slow}")
    wait_for(lambda: steps(child), "the child counts")
    queue.ask(attempt, "suspend", may_have_several=True)
    first, second = queue.of_cuda(attempt)
    answers = queue.begin(attempt, "resume", room={CARD: 2 * GB})
    wait_for(lambda: queue.machine.calls(first)[-1] == "restore", "the restore begins")
    queue.suspender.expire(inf)
    wait_for(lambda: queue.machine.state(first) == "locked", "one is back")
    queue.machine.use(15 * GB + GB // 2)

    refused = queue.ask(attempt, "resume", room={CARD: 2 * GB})

    assert answers[0].code == "deadline"
    assert _in_short(refused) == ("suspended", "cuda", 2, "no-room")
    assert [queue.machine.state(pid) for pid in (first, second)] == ["checkpointed"] * 2
    assert queue.machine.used == 14 * GB + GB // 2
    queue.machine.use(0)
    assert queue.ask(attempt, "resume", room={CARD: 2 * GB}).state == "running"
    assert goes_on(queue.ledger) and goes_on(child)


def test_a_half_suspended_job_can_be_let_go_on_and_a_half_resumed_one_suspended(queue: Queue) -> None:
    attempt = queue.start("--workers", "1", "--delay", "checkpoint=400", "--delay", "restore=400")
    (pid,) = queue.of_cuda(attempt)
    for do, at, other in (("suspend", "checkpoint", "resume"), ("resume", "restore", "suspend")):
        answers = queue.begin(attempt, do)
        wait_for(lambda at=at: queue.machine.calls(pid)[-1:] == [at], f"{at} begins")  # type: ignore[misc]
        queue.suspender.expire(inf)
        assert answers[0].code == "deadline"
        assert queue.ask(attempt, other).code == ""
        if other == "resume":
            assert goes_on(queue.ledger)
            queue.ask(attempt, "suspend")

    assert queue.machine.state(pid) == "checkpointed"
    assert stands_still(queue.ledger) and stands_still(Path(f"{queue.ledger}.worker0"))


def test_an_attempt_whose_shim_was_killed_is_suspended_too(queue: Queue) -> None:
    attempt = queue.start("--workers", "1")
    worker = Path(f"{queue.ledger}.worker0")
    os.kill(queue.hands.running(attempt)["shim"], signal.SIGKILL)
    queue.hands.wait(attempt)
    wait_for(lambda: not queue.hands.facts(attempt).is_locked, "its record is free")

    suspended = queue.ask(attempt, "suspend")
    still = stands_still(queue.ledger) and stands_still(worker)
    resumed = queue.ask(attempt, "resume")

    assert _in_short(suspended) == ("suspended", "cuda", 1, "")
    assert (still, resumed.state) == (True, "running")
    assert goes_on(queue.ledger) and goes_on(worker)
    queue.hands.look_after(attempt, has_ended=True)


def test_an_attempt_that_is_just_starting_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoint signal, sent before it listens, would end it."""
    monkeypatch.setattr(
        suspender, "facts", lambda folder: AttemptFacts(is_locked=True, record=None, has_started=False)
    )

    answer = suspender._answer({"do": "suspend", "folder": "/nowhere", "only_stop": True}, {}, suspender._pass)

    assert (answer["state"], answer["code"]) == ("unclear", "starting")


def test_the_processes_of_a_shim_that_dies_during_the_look_are_found(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = queue.start()
    before, of_cuda = suspender.facts(attempt.folder), queue.of_cuda(attempt)
    os.kill(queue.hands.running(attempt)["shim"], signal.SIGKILL)
    queue.hands.wait(attempt)
    wait_for(lambda: not queue.hands.facts(attempt).is_locked, "its record is free")
    looks = iter([before])
    monkeypatch.setattr(suspender, "facts", lambda folder: next(looks, None) or queue.hands.facts(attempt))

    found = suspender._processes_of(attempt.folder, [])

    assert of_cuda and set(of_cuda) <= found.keys()
    queue.hands.look_after(attempt, has_ended=True)


def test_an_attempt_that_is_over_has_ended(queue: Queue) -> None:
    attempt = queue.start("--steps", "200")  # it is seen while it runs
    queue.hands.wait(attempt)

    assert queue.ask(attempt, "suspend").state == queue.ask(attempt, "resume").state == "ended"


def test_a_job_that_is_suspended_or_runs_already_stays_so(queue: Queue) -> None:
    attempt = queue.start()
    (pid,) = queue.of_cuda(attempt)

    states = [queue.ask(attempt, do).state for do in ("resume", "suspend", "suspend", "resume", "resume")]

    assert states == ["running", "suspended", "suspended", "running", "running"]
    assert queue.machine.calls(pid) == ["lock", "checkpoint", "restore", "unlock"]


def test_a_suspended_job_is_ended_as_usual(queue: Queue) -> None:
    attempt = queue.start("--workers", "1")
    queue.ask(attempt, "suspend")
    pids = queue.pids(attempt)

    queue.hands.tell(attempt, "stop")
    record = queue.hands.record(attempt)

    assert record["by"] == "stop"
    assert not [pid for pid in pids if is_alive(pid)]


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"DIBS_PROBE": "none"}, "DIBS_PROBE=none ignores the driver"),
        ({"DIBS_CUDA_LIBRARY": "/no/libcuda.so.1"}, "there is no CUDA driver here"),
        ({}, "the driver does not start: there is no card (CUDA error 100)"),
    ],
)
def test_without_a_driver_nothing_is_done_and_the_reason_is_said(
    queue: Queue, environ: dict[str, str], why: str
) -> None:
    attempt = queue.start()
    (queue.machine.folder / "init").write_text("100")
    loop = Loop()
    suspender = Suspender(loop.add_reader, loop.remove_reader, queue.machine.environ | environ)
    queue.suspender, queue._loop = suspender, loop

    answer = queue.ask(attempt, "suspend")

    assert (answer.state, answer.code, answer.why) == ("running", "no-driver", why)
    assert goes_on(queue.ledger)


@pytest.mark.parametrize(
    ("environ", "init", "why"),
    [
        ({}, "0", ""),
        ({"DIBS_PROBE": "none"}, "0", "DIBS_PROBE=none ignores the driver"),
        ({"DIBS_CUDA_LIBRARY": "/no/libcuda.so.1"}, "0", "there is no CUDA driver here"),
        ({}, "100", "the driver does not start: there is no card (CUDA error 100)"),
    ],
)
def test_a_look_says_whether_the_driver_can_suspend_anything(
    tmp_path: Path, environ: dict[str, str], init: str, why: str
) -> None:
    machine = FakeMachine(tmp_path / "driver")
    (machine.folder / "init").write_text(init)
    loop, answers = Loop(), list[Answer]()
    suspender = Suspender(loop.add_reader, loop.remove_reader, machine.environ | environ)

    suspender.start("the machine", {"do": "look"}, answers.append, deadline=100.0)
    wait_for(lambda: loop.turn(0.01) or answers, "the helper answers")

    assert (answers[0].state, answers[0].why) == ("looked", why)
    suspender.close()
    loop.close()


def test_the_helper_dies_with_its_engine(queue: Queue) -> None:
    attempt = queue.start("--delay", "checkpoint=60000")
    (pid,) = queue.of_cuda(attempt)
    code = (
        "import json, os, sys, time; from dibs.supervise.suspension import Suspender;"
        "one = Suspender(lambda *_: None, lambda _: None, os.environ);"
        "one.start(1, {'do': 'suspend', 'folder': sys.argv[1]}, print, 9.0);"
        "print(one._helpers[1].process.pid, flush=True); time.sleep(60)"
    )
    engine = subprocess.Popen(
        [sys.executable, "-c", code, attempt.folder],
        env={**os.environ, **queue.machine.environ},
        stdout=subprocess.PIPE,
    )
    assert engine.stdout is not None
    helper = int(engine.stdout.readline())
    wait_for(lambda: queue.machine.calls(pid) == ["lock", "checkpoint"], "the helper works")

    engine.kill()
    engine.communicate()

    wait_for(lambda: not is_alive(helper), "the helper is gone")


def test_a_helper_is_ended_at_its_deadline_and_not_before(queue: Queue) -> None:
    attempt = queue.start("--delay", "checkpoint=60000")

    answers = queue.begin(attempt, "suspend")
    helper = queue.suspender._helpers[attempt.key].process.pid
    queue.suspender.expire(99.9)
    before = list(answers)
    due = queue.suspender.next_deadline
    queue.suspender.expire(100.0)

    assert (before, due, queue.suspender.next_deadline) == ([], 100.0, None)
    assert [(answer.state, answer.code) for answer in answers] == [("unclear", "deadline")]
    wait_for(lambda: not is_alive(helper), "the helper is gone")


def test_nothing_of_the_users_environment_reaches_the_helper(queue: Queue) -> None:
    queue.close()
    own = {"PYTHONPATH": "/evil", "LD_PRELOAD": "/evil.so", "HOME": "/evil"}
    loop = Loop()
    queue.suspender = Suspender(loop.add_reader, loop.remove_reader, queue.machine.environ | own)
    queue._loop = loop
    attempt = queue.start("--delay", "checkpoint=60000")

    queue.begin(attempt, "suspend")
    pid = queue.suspender._helpers[attempt.key].process.pid
    variables = wait_for(Path(f"/proc/{pid}/environ").read_bytes, "it is executed").split(b"\0")

    assert {one.partition(b"=")[0].decode() for one in variables} - {""} == {
        "PATH",
        "LANG",
        *queue.machine.environ,
    }
