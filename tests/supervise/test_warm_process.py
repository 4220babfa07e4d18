"""The life of a warm process: one import for many jobs, and never a stale one."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dibs.supervise import folder
from dibs.supervise.warm import pool
from dibs.supervise.warm.start import memory_is_short
from stories.outside import wait_until
from supervise.hands import Hands, is_alive, parent_of
from supervise.warmth import Pythons

COUNTS = "open('imports', 'a').write('x')\nvalue = 1\n"
SHOW = "import heavy; print(heavy.value)"
UNTIL_GO = "import os, time\nopen('up', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\n"


@pytest.fixture
def warm(hands: Hands) -> Pythons:
    """Jobs that want a module which counts how often it is imported."""
    one = Pythons(hands, ["heavy"])
    one.write("heavy.py", COUNTS)
    one.write("job.py", SHOW)
    # It was written long ago: what changes while it is imported is stale at once.
    os.utime(hands.workdir / "heavy.py", (1e9, 1e9))
    return one


def imports(pythons: Pythons) -> int:
    path = pythons.workdir / "imports"
    return len(path.read_text()) if path.exists() else 0


def change(pythons: Pythons, text: str, at: float) -> None:
    pythons.write("heavy.py", text)
    os.utime(pythons.workdir / "heavy.py", (at, at))
    shutil.rmtree(pythons.workdir / "__pycache__", ignore_errors=True)


def test_many_jobs_cost_one_import(warm: Pythons) -> None:
    warm.write("other.py", SHOW)
    together = [warm.start("job.py", str(number)) for number in range(5)]
    records = [warm.hands.record(attempt) for attempt in together]
    later = [warm.output(script) for script in ("job.py", "other.py", "job.py")]

    assert {record["code"] for record in records} == {0}
    assert later == ["1\n"] * 3
    assert imports(warm) == 1
    assert {warm.errors(attempt) for attempt in together} == {""}


def test_more_than_a_channel_holds_may_wait_at_once(warm: Pythons) -> None:
    attempts = [warm.start("job.py", "first")]
    for process in warm.hands.backend._get_warm()._processes.values():
        process.channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the kernel makes a few of it
    attempts += [warm.start("job.py", str(number)) for number in range(40)]
    records = [warm.hands.record(attempt) for attempt in attempts]

    assert {record["code"] for record in records} == {0}
    assert {warm.errors(attempt) for attempt in attempts} == {""}
    assert imports(warm) == 1


def test_a_folder_that_was_made_anew_is_looked_at_anew(warm: Pythons) -> None:
    warm.output("job.py")
    old = warm.workdir.rename(warm.workdir.with_name("old"))
    shutil.copytree(old, warm.workdir)

    assert warm.output("job.py") == "1\n"
    assert imports(warm) == 2


def test_a_line_for_the_shell_is_forked_too(warm: Pythons) -> None:
    attempt = warm.hands.start(
        f"{sys.executable} job.py 'a b'",
        warm={"modules": ["heavy"], "env": {}},
        stdout="out",
        stderr=str(warm.workdir / "err"),
    )
    warm.hands.record(attempt)

    assert (warm.workdir / "err").read_text() == ""
    assert imports(warm) == 1


def test_the_warm_process_is_the_parent_of_the_shim_and_shows_itself(warm: Pythons) -> None:
    attempt = warm.script(UNTIL_GO)
    record = warm.hands.running(attempt)
    warm.hands.turn_until(warm.pids)

    assert warm.hands.backend.warm_processes == [(("heavy",), parent_of(record["shim"]))]
    assert Path(f"/proc/{warm.pids()[0]}/cmdline").read_text().startswith("dibs: warm heavy")
    (warm.workdir / "go").touch()
    assert warm.hands.record(attempt)["code"] == 0


def test_a_module_that_was_changed_is_imported_again(warm: Pythons) -> None:
    before = warm.output("job.py")
    (old,) = warm.pids()

    change(warm, COUNTS.replace("1", "2"), at=1.1e9)
    after = warm.output("job.py")

    assert (before, after, imports(warm)) == ("1\n", "2\n", 2)
    wait_until(lambda: not is_alive(old))


def test_a_module_that_is_changed_while_it_is_imported_is_not_used(warm: Pythons) -> None:
    slow = COUNTS + "import time\nwhile not __import__('os').path.exists('on'): time.sleep(0.01)\n"
    change(warm, slow, at=1e9)
    attempt = warm.start("job.py")
    warm.hands.turn_until(lambda: imports(warm) == 1)

    warm.write("heavy.py", COUNTS.replace("1", "3"))
    (warm.workdir / "on").touch()
    time.sleep(0.05)
    warm.hands.record(attempt)

    assert warm.hands.log(attempt) == "3\n"


def test_a_module_of_the_folder_that_comes_later_is_found(hands: Hands) -> None:
    """As a fresh interpreter would: before the one of the standard library."""
    warm = Pythons(hands, ["colorsys"])
    warm.write("job.py", "import colorsys; print(colorsys.__file__)")
    before = warm.output("job.py")

    warm.write("colorsys.py", "")
    after = warm.output("job.py")

    assert before.rstrip().endswith("/colorsys.py") and str(hands.workdir) not in before
    assert after == f"{hands.workdir}/colorsys.py\n"


def test_files_that_jobs_write_make_nothing_stale(warm: Pythons) -> None:
    warm.write("job.py", "import heavy, os; open(f'result-{os.getpid()}', 'w'); open('heavy.txt', 'a')")

    for _ in range(3):
        warm.output("job.py")

    assert imports(warm) == 1


def test_functions_of_another_dibs_start_as_fast_as_our_own(hands: Hands) -> None:
    """It is in the environment of those who import it; the daemon is installed somewhere else."""
    warm = Pythons(hands, ["decimal"])
    text = "import sys; print(globals().get('_IS_FORKED'), 'pickle' in sys.modules, {})"
    script = str(warm.workdir / warm.write("env/dibs/api/work.py", text.format(1)))

    assert warm.output(script) == "True True 1\n"

    warm.write("env/dibs/api/work.py", text.format(22))
    assert warm.output(script) == "True True 22\n"  # it was compiled before


def test_what_differs_in_folder_environment_umask_or_modules_has_a_process_of_its_own(warm: Pythons) -> None:
    warm.write("sub/heavy.py", "value = 'sub'\n")
    warm.write("sub/job.py", SHOW)
    first = warm.output("job.py")
    in_sub = warm.output("sub/job.py")
    other_umask = warm.output("job.py", umask=0o077)
    warm.env = {"SEED": "1"}
    other_environment = warm.output("job.py")
    warm.modules = ["heavy", "json"]
    other_modules = warm.output("job.py")

    assert (first, in_sub, other_umask, other_environment, other_modules) == ("1\n", "sub\n", "1\n", "1\n", "1\n")
    assert imports(warm) == 4


def test_variables_of_the_attempt_alone_need_no_process_of_their_own(warm: Pythons) -> None:
    warm.write("job.py", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['DIBS_JOB_ID'])")

    texts = [warm.output("job.py", env={"CUDA_VISIBLE_DEVICES": gpu, "DIBS_JOB_ID": gpu}) for gpu in "012"]

    assert texts == ["0 0\n", "1 1\n", "2 2\n"]
    assert len(warm.pids()) == 1


def test_there_are_only_so_many_and_the_one_used_longest_ago_ends(warm: Pythons) -> None:
    for seed in range(pool.MOST_PROCESSES):
        warm.env = {"SEED": str(seed)}
        warm.output("job.py")
    first, second, *_ = warm.pids()
    warm.env = {"SEED": "0"}
    warm.output("job.py")

    warm.env = {"SEED": "another"}
    warm.output("job.py")

    wait_until(lambda: not is_alive(second))
    assert is_alive(first)
    assert len(warm.pids()) == pool.MOST_PROCESSES


def test_an_unused_one_ends_and_the_next_job_gets_another(warm: Pythons) -> None:
    warm.hands.backend._get_warm()._longest_idle = 0.2
    warm.output("job.py")
    (pid,) = warm.pids()

    warm.hands.turn_until(lambda: not is_alive(pid))
    warm.hands.turn_until(lambda: not warm.pids())

    assert warm.output("job.py") == "1\n"
    assert imports(warm) == 2


def test_one_with_a_job_is_not_idle(warm: Pythons) -> None:
    warm.hands.backend._get_warm()._longest_idle = 0.2
    attempt = warm.script(UNTIL_GO)
    warm.hands.running(attempt)
    warm.hands.turn_until(warm.pids)
    time.sleep(0.6)

    alive = [is_alive(pid) for pid in warm.pids()]
    (warm.workdir / "go").touch()
    warm.hands.record(attempt)

    assert alive == [True]


def test_short_memory_is_seen() -> None:
    assert memory_is_short(1.1)
    assert not memory_is_short(0.0)


def test_killing_it_harms_no_job_and_the_next_one_gets_another(warm: Pythons) -> None:
    attempt = warm.script(UNTIL_GO + "raise SystemExit(9)")
    warm.hands.running(attempt)
    warm.hands.turn_until(warm.pids)
    (pid,) = warm.pids()

    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    warm.write("next.py", SHOW)
    after = warm.output("next.py")
    (warm.workdir / "go").touch()

    assert after == "1\n"
    assert warm.hands.record(attempt)["code"] == 9
    assert warm.pids() != [pid]
    assert imports(warm) == 2


SHIM = "import os; print(os.getppid())"


def test_jobs_that_follow_each_other_are_forked_by_one_shim(warm: Pythons) -> None:
    warm.write("job.py", SHIM)
    shims = [warm.output("job.py") for _ in range(3)]

    assert len(set(shims)) == 1


def test_a_job_after_one_that_was_killed_finds_nothing_of_it(warm: Pythons) -> None:
    """Variables, folder, umask and open files of a job are its own, though one shim forked both."""
    look = "print(os.getcwd(), os.umask(0o77), os.listdir('/proc/self/fd'), flush=True)"
    warm.write("job.py", f"import os\n{look}\nos.system('env')\n")
    warm.output("job.py")
    first = warm.output("job.py", env={"ONE": "1"})
    warm.write("up.py", UNTIL_GO)
    killed = warm.start("up.py", env={"OTHER": "2"}, umask=0o27)
    os.kill(warm.hands.running(killed)["pid"], signal.SIGKILL)

    assert warm.hands.record(killed)["signal"] == signal.SIGKILL
    assert warm.output("job.py", env={"ONE": "1"}) == first
    assert "\nONE=1\n" in first


def test_an_idle_shim_that_is_killed_is_replaced(warm: Pythons) -> None:
    warm.write("job.py", SHIM)
    shim = int(warm.output("job.py"))
    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: not is_alive(shim))

    attempt = warm.start("job.py")
    assert warm.hands.record(attempt)["code"] == 0
    assert (warm.hands.log(attempt) != f"{shim}\n", warm.errors(attempt), imports(warm)) == (True, "", 1)


def test_an_attempt_that_a_shim_did_not_begin_is_run_by_another(warm: Pythons) -> None:
    warm.write("job.py", SHIM)
    shim = int(warm.output("job.py"))
    os.kill(shim, signal.SIGSTOP)
    attempt = warm.start("job.py")
    waiting = warm.hands.facts(attempt)
    told = warm.hands.backend._get_warm().withdraw((str(attempt.job), attempt.number))
    os.kill(shim, signal.SIGKILL)

    assert warm.hands.record(attempt)["code"] == 0
    assert (waiting.is_locked, waiting.has_started, told) == (True, False, False)
    assert (warm.hands.log(attempt) != f"{shim}\n", warm.errors(attempt)) == (True, "")


def test_an_idle_shim_ends_with_its_engine_and_after_a_while(warm: Pythons) -> None:
    warm.hands.backend._get_warm()._longest_idle = 0.2
    warm.write("job.py", SHIM)
    first = int(warm.output("job.py"))
    warm.hands.turn_until(lambda: not is_alive(first))
    warm.hands.turn_until(lambda: not warm.pids())

    warm.hands.backend._get_warm()._longest_idle = 300.0
    second = int(warm.output("job.py"))
    was_alive = is_alive(second)
    warm.hands.close()

    wait_until(lambda: not is_alive(second))
    assert was_alive


def test_killing_it_while_it_imports_starts_the_job_afresh(warm: Pythons) -> None:
    change(warm, COUNTS + "import os, time\nprint(os.getpid(), file=open('pid', 'w'))\n" + SLOW, at=1e9)
    attempt = warm.start("job.py")
    path = warm.workdir / "pid"
    warm.hands.turn_until(lambda: path.exists() and path.read_text().endswith("\n"))

    os.kill(int(path.read_text()), signal.SIGKILL)
    (warm.workdir / "on").touch()  # for the one that is started afresh
    record = warm.hands.record(attempt)

    assert (record["code"], warm.hands.log(attempt)) == (0, "1\n")
    assert warm.errors(attempt) == "dibs: not started warm: importing heavy ended the process\n"


SLOW = "while not os.path.exists('on'): time.sleep(0.01)\n"


def test_an_attempt_that_waits_for_the_import_is_locked_and_not_begun_and_can_be_taken_back(warm: Pythons) -> None:
    change(warm, COUNTS + "import os, time\n" + SLOW, at=1e9)
    attempt = warm.start("job.py")
    warm.hands.turn_until(lambda: imports(warm) == 1)

    waiting = folder.facts(attempt.folder)
    told = warm.hands.tell(attempt, "stop")
    warm.hands.wait(attempt)
    after = folder.facts(attempt.folder)
    (warm.workdir / "on").touch()

    assert (waiting.is_locked, waiting.has_started) == (True, False)
    assert told
    assert (after.is_locked, after.has_started) == (False, False)
    assert warm.output("job.py") == "1\n"


def test_an_engine_that_leaves_meanwhile_leaves_an_attempt_that_never_ran(warm: Pythons) -> None:
    change(warm, COUNTS + "import os, time\n" + SLOW, at=1e9)
    attempt = warm.start("job.py")
    warm.hands.turn_until(lambda: imports(warm) == 1)

    warm.hands.close()
    (warm.workdir / "on").touch()

    facts = folder.facts(attempt.folder)
    assert (facts.is_locked, facts.has_started) == (False, False)


def test_it_ends_with_its_engine_and_its_jobs_go_on(warm: Pythons) -> None:
    attempt = warm.script(UNTIL_GO + "raise SystemExit(16)")
    warm.hands.running(attempt)
    warm.hands.turn_until(warm.pids)
    (pid,) = warm.pids()

    warm.hands.close()
    (warm.workdir / "go").touch()
    wait_until(lambda: not folder.facts(attempt.folder).is_locked)

    record = folder.facts(attempt.folder).exit_record
    assert record is not None and record["code"] == 16
    wait_until(lambda: not is_alive(pid))


@pytest.mark.parametrize(
    "module, why",
    [
        ("1/0", "heavy cannot be imported: ZeroDivisionError: division by zero"),
        ("import no_such_thing", "heavy cannot be imported: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("raise SystemExit(3)", "heavy cannot be imported: SystemExit: 3"),
        ("import os; os._exit(3)", "importing heavy ended the process"),
        (
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            "importing heavy starts threads, which a fork would lose",
        ),
        ("import subprocess\nsubprocess.Popen(['sleep', '60'])", "importing heavy starts processes"),
        (
            "import socket\nopen_ones = socket.socketpair()",
            "importing heavy leaves a connection open, which jobs would share",
        ),
        (
            "import sys, types\nsys.modules['torch'] = torch = types.ModuleType('torch')\n"
            "torch.cuda = types.SimpleNamespace(is_initialized=lambda: True)",
            "importing heavy initialises CUDA",
        ),
    ],
    ids=["exception", "missing", "exit", "end", "threads", "processes", "sockets", "cuda"],
)
def test_what_cannot_be_forked_is_started_afresh_with_a_reason(warm: Pythons, module: str, why: str) -> None:
    change(warm, COUNTS + module, at=1e9)
    warm.write("job.py", "print('ran')")

    attempts = [warm.start("job.py") for _ in range(2)]
    records = [warm.hands.record(attempt) for attempt in attempts]
    attempts.append(warm.start("job.py"))
    records.append(warm.hands.record(attempts[-1]))

    assert imports(warm) == 1  # it is known by then
    assert [(record["code"], record["signal"]) for record in records] == [(0, None)] * 3
    assert {warm.hands.log(attempt) for attempt in attempts} == {"ran\n"}
    assert {warm.errors(attempt) for attempt in attempts} == {f"dibs: not started warm: {why}\n"}


def test_another_kind_of_command_is_started_afresh_with_a_reason(warm: Pythons) -> None:
    attempt = warm.hands.start("echo a | cat", warm={"modules": ["heavy"], "env": {}})
    record = warm.hands.record(attempt)

    assert (record["code"], warm.hands.log(attempt)) == (0, "a\n")
    assert warm.errors(attempt) == "dibs: not started warm: its line needs a shell\n"


def test_an_interpreter_that_is_a_script_is_started_afresh(warm: Pythons) -> None:
    (warm.workdir / "bin").mkdir()
    wrapper = warm.workdir / "bin/python"
    wrapper.write_text(f'#!/bin/sh\nWRAPPED=1 exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    warm.write("job.py", "import os; print(os.environ['WRAPPED'])")
    warm.hands.environment["PATH"] = f"{wrapper.parent}:{os.environ['PATH']}"

    attempt = warm.start("job.py", interpreter="python")
    warm.hands.record(attempt)

    assert warm.hands.log(attempt) == "1\n"
    assert warm.errors(attempt) == ("dibs: not started warm: python is no interpreter, but a script or missing\n")


def test_an_interpreter_that_is_not_there_is_the_same_start_error(warm: Pythons) -> None:
    attempt = warm.start("job.py", interpreter="./no/python")

    record = warm.hands.record(attempt)

    assert (record["by"], record["message"]) == ("start", "cannot start ./no/python: No such file or directory")


def test_a_venv_that_is_changed_or_deleted_is_noticed(warm: Pythons, tmp_path_factory: Any) -> None:
    venv = tmp_path_factory.mktemp("plain") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    warm.write("job.py", "import sys; print(sys.prefix)")
    interpreter = f"{venv}/bin/python"

    first = [warm.output("job.py", interpreter=interpreter) for _ in range(2)]
    with (venv / "pyvenv.cfg").open("a") as file:
        file.write("\n")
    changed = warm.output("job.py", interpreter=interpreter)
    counted = imports(warm)
    shutil.rmtree(venv)
    gone = warm.hands.record(warm.start("job.py", interpreter=interpreter))

    assert {*first, changed} == {f"{venv}\n"}
    assert counted == 2
    assert (gone["by"], gone["message"]) == ("start", f"cannot start {interpreter}: No such file or directory")


def test_another_interpreter_that_comes_first_in_the_path_is_used(warm: Pythons) -> None:
    real = os.path.realpath(sys.executable)
    for name in ("first", "second"):
        (warm.workdir / name).mkdir()
    (warm.workdir / "second/python").symlink_to(real)
    warm.hands.environment["PATH"] = f"{warm.workdir}/first:{warm.workdir}/second:{os.environ['PATH']}"
    warm.write("job.py", "import sys; print(sys.executable)")
    before = warm.output("job.py", interpreter="python")

    (warm.workdir / "first/python").symlink_to(real)
    after = warm.output("job.py", interpreter="python")

    assert before == f"{warm.workdir}/second/python\n"
    assert after == f"{warm.workdir}/first/python\n"


def test_old_interpreters_are_started_afresh_and_left_alone(warm: Pythons) -> None:
    """The place where we take hold is read by every version."""
    hook = Path(pool.__file__).parent / "hook/sitecustomize.py"
    real = [path for minor in range(6, 11) if (path := _interpreter(f"python3.{minor}"))]
    if not real:
        pytest.skip("no older Python here")
    for path in real:
        reading, writing = os.pipe()
        environment = {"PYTHONPATH": str(hook.parent), "DIBS_WARM": f"{writing} 0"}
        ended = subprocess.run([path, "-B", "-c", "print(1)"], env=environment, pass_fds=[writing], check=True)
        os.close(writing)
        assert ended.stdout is None
        assert b"and a warm start needs 3.11" in os.read(reading, 4096)
        os.close(reading)


def _interpreter(name: str) -> str:
    """Where it really is; empty where there is none."""
    try:
        ask = [name, "-c", "import sys; print(sys.executable)"]
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def test_the_cold_ones_beside_it_are_started_as_ever(warm: Pythons) -> None:
    change(warm, COUNTS + "import os, time\n" + SLOW, at=1e9)
    waiting = warm.start("job.py")
    warm.hands.turn_until(lambda: imports(warm) == 1)

    record = warm.hands.run("exit 4")
    (warm.workdir / "on").touch()

    assert record["code"] == 4
    assert warm.hands.record(waiting)["code"] == 0
