"""What a program finds inside a warm interpreter: the same as in a fresh one."""

import ast
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from supervise.hands import Hands
from supervise.warmth import Pythons

MODULES = ["json", "decimal", "logging", "random", "multiprocessing"]
LOOK = """
import json, os, sys
def stream(one):
    raw = getattr(one.buffer, "raw", one.buffer)
    parts = (one.name, one.mode, one.encoding, one.errors, one.line_buffering, one.write_through)
    return [*parts, type(one.buffer).__name__, raw.name, raw.mode, one.seekable(), one.isatty(), one.closed]
main = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": str(sys.flags), "file": __file__,
    "name": __name__, "doc": __doc__, "package": __package__, "spec": getattr(__spec__, "name", None),
    "loader": type(__loader__).__name__, "main": sorted(vars(main)), "is_main": vars(main) is globals(),
    "below": str(sys._getframe().f_back and sys._getframe().f_back.f_code.co_filename),
    "executable": [sys.executable, sys.prefix, sys.base_prefix], "warnoptions": [sys.warnoptions, sys._xoptions],
    "streams": [stream(one) for one in (sys.stdin, sys.stdout, sys.stderr)],
    "same": [sys.stdout is sys.__stdout__, sys.stdin is sys.__stdin__, sys.stderr is sys.__stderr__],
    "environ": list(os.environ.items()), "cwd": os.getcwd(), "comm": open("/proc/self/comm").read(),
    "cmdline": open("/proc/self/cmdline", errors="surrogateescape").read().replace(chr(0), " ").rstrip(),
    "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__],
    "finders": [str(type(one)) + str(one)[:30] for one in sys.meta_path], "quit": str(exit),
    "score": open("/proc/self/oom_score_adj").read(), "groups": os.getgroups(),
    "gc": __import__("gc").isenabled(), "threads": len(os.listdir("/proc/self/task")),
    "ours": [one for one in sys.modules if one.split(".")[0] == "dibs"],
}))
"""


@pytest.fixture
def fresh(hands: Hands) -> Pythons:
    return Pythons(hands, None)


@pytest.fixture
def warm(hands: Hands) -> Pythons:
    return Pythons(hands, MODULES)


@pytest.mark.parametrize(
    "words",
    [
        ["job.py"],
        ["./job.py", "a b", "", "--x=é\udcff"],
        ["sub/../job.py"],
        ["-u", "job.py"],
        ["-O", "-B", "-W", "ignore", "-X", "faulthandler", "job.py"],
        ["-P", "job.py"],
        ["-X", "dev", "job.py"],
        ["-W", "error", "job.py"],
        ["-m", "job", "x"],
        ["-m", "package", "x"],
        ["-m", "package.job"],
        ["-c", "import job", "x"],
        ["link.py"],
    ],
    ids=" ".join,
)
def test_everything_looks_the_same(fresh: Pythons, warm: Pythons, words: list[str]) -> None:
    for name in ("job.py", "package/job.py", "package/__main__.py", "elsewhere/real.py"):
        fresh.write(name, LOOK)
    fresh.write("package/__init__.py", "")
    fresh.write("sub/empty", "")
    (fresh.workdir / "link.py").symlink_to("elsewhere/real.py")
    fresh.hands.environment |= {"LANG": "C", "PYTHONPATH": ":relative:/somewhere", "B\udcffD": "\udcfe"}
    env = {"CUDA_VISIBLE_DEVICES": "3", "DIBS_JOB_ID": "7"}

    before, after = fresh.start(*words, env=env), warm.start(*words, env=env)
    for attempt in (before, after):
        assert fresh.hands.record(attempt)["code"] == 0, fresh.errors(attempt)

    note = "dibs: not started warm: its script is a link to another folder\n" if words == ["link.py"] else ""
    assert warm.errors(after) == note + fresh.errors(before)
    assert json.loads(warm.hands.log(after)) == json.loads(fresh.hands.log(before))


def test_only_the_warm_modules_are_imported(fresh: Pythons, warm: Pythons) -> None:
    fresh.write("job.py", "import sys; print(*sys.modules)")
    fresh.write("with.py", f"import sys, {', '.join(MODULES)}; print(*sys.modules)")

    imported = set(fresh.output("with.py").split())
    found = set(warm.output("job.py").split())

    assert set(MODULES) <= found
    # What is part of the interpreter itself cannot be another's.
    extra = {name for name in found - imported if name not in sys.builtin_module_names and name[0] != "_"}
    assert extra == set()


def test_modules_of_the_jobs_own_folder_come_first_as_ever(fresh: Pythons, warm: Pythons) -> None:
    for name in ("json", "select", "socket", "traceback", "dibs"):
        fresh.write(f"{name}.py", f"print('my own {name}')")
    fresh.write("job.py", "import json, select, socket, traceback, dibs; print(dibs.__file__)")

    assert warm.output("job.py") == fresh.output("job.py")


ENDS = {
    "nothing": "print('x')",
    "an exception": "def f(): raise ValueError('no')\nf()",
    "a chain": "try:\n    1/0\nexcept Exception as e:\n    raise KeyError('k') from e",
    "exit": "import sys; sys.exit()",
    "exit none": "raise SystemExit(None)",
    "exit 3": "exit(3)",
    "exit 300": "import sys; sys.exit(300)",
    "exit text": "import sys; print('out'); sys.exit('a text')",
    "exit true": "raise SystemExit(True)",
    "exit tuple": "raise SystemExit(1, 2)",
    "at once": "import os; print('lost'); os._exit(5)",
    "syntax": "print('x'\nprint(",
    "tabs": "if 1:\n\tx=1\n        y=2\n",
    "bytes": "# -*- coding: latin-1 -*-\nprint('ok')",
    "null": "print('a\0b')",
    "interrupt": "raise KeyboardInterrupt",
    "abort": "import os; os.abort()",
    "atexit": "import atexit\natexit.register(print, 'bye')\nprint('now')\n1/0",
    "thread": "import threading, time\n"
    "def f():\n    time.sleep(0.2)\n    print('thread', __name__)\n"
    "threading.Thread(target=f).start()\nprint('main')",
    "thread fails": "import threading\nt = threading.Thread(target=lambda: 1/0)\nt.start(); t.join()",
    "hook": "import sys\nsys.excepthook = lambda *a: print(a[0].__name__, a[2].tb_frame.f_code.co_name)\n1/0",
    "stack": "import traceback\ndef f(): traceback.print_stack()\nf()",
    "warning": "import warnings\nwarnings.warn('w', stacklevel=3)",
    "deprecated": "import warnings\nwarnings.warn('w', DeprecationWarning)",
    "unraisable": "class A:\n    def __del__(self): 1/0\na = A()\ndel a",
    "recursion": "def f(): f()\ntry: f()\nexcept RecursionError as e: print(e)",
    "buffer": "import sys\nsys.stdout.write('no newline')\nsys.stderr.write('err')",
    "files": "f = open('made', 'w'); f.write('flushed at the end')",
    "last": "import atexit, sys\natexit.register(lambda: print(sys.last_value))\n1/0",
    "at the end": "import atexit\natexit.register(lambda: print('__file__' in globals(), __name__))",
    "closed": "import sys\nsys.stdout.close()",
    "exec": "import os, sys\nprint('a', flush=True)\nos.execv(sys.executable, [sys.executable, '-c', 'print(1)'])",
    "subprocess": "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import os; print(os.environ)'])",
}


@pytest.mark.parametrize("how", ENDS)
def test_it_ends_the_same(fresh: Pythons, warm: Pythons, how: str) -> None:
    """Exit code, signal, and every byte that it wrote."""
    fresh.write("job.py", ENDS[how])

    before, after = (_ending(one, "job.py") for one in (fresh, warm))

    assert after == before


@pytest.mark.parametrize("how", ["an exception", "exit text", "interrupt", "atexit", "stack", "exit 3", "syntax"])
@pytest.mark.parametrize("option", ["-m", "-c"])
def test_a_module_and_code_end_the_same(fresh: Pythons, warm: Pythons, how: str, option: str) -> None:
    fresh.write("job.py", ENDS[how])
    words = ["-m", "job"] if option == "-m" else ["-c", ENDS[how]]

    assert _ending(warm, *words) == _ending(fresh, *words)


def test_a_module_that_is_missing_is_the_same_error(fresh: Pythons, warm: Pythons) -> None:
    assert _ending(warm, "-m", "no_such_module") == _ending(fresh, "-m", "no_such_module")


def _ending(pythons: Pythons, *words: str) -> tuple[Any, ...]:
    attempt = pythons.start(*words)
    record = pythons.hands.record(attempt)
    text = pythons.hands.log(attempt), re.sub(r"0x[0-9a-f]+", "0x", pythons.errors(attempt))
    return record["code"], record["signal"], *text


SPAWN = """
import multiprocessing, os, pickle, sys
class Thing: pass
def double(x):
    return 2 * x, sys.argv, __name__
if __name__ == "__main__":
    for how in ("spawn", "fork", "forkserver"):
        with multiprocessing.get_context(how).Pool(2) as pool:
            print(how, pool.map(double, [1, 2]))
    print(type(pickle.loads(pickle.dumps(Thing()))) is Thing, Thing.__module__)
    print(multiprocessing.current_process().name, multiprocessing.parent_process())
"""


@pytest.mark.parametrize("words", [["job.py", "a"], ["-m", "job", "a"]], ids=["script", "module"])
def test_processes_of_its_own_find_the_main_module(fresh: Pythons, warm: Pythons, words: Sequence[str]) -> None:
    fresh.write("job.py", SPAWN)

    assert _ending(warm, *words) == _ending(fresh, *words)


def test_every_job_draws_other_random_numbers_as_a_fresh_one_would(hands: Hands) -> None:
    warm = Pythons(hands, ["random", "numpy.random", "uuid", "multiprocessing"])
    warm.write(
        "job.py",
        "import random, numpy, uuid, multiprocessing\n"
        "print([random.random(), float(numpy.random.rand()), str(uuid.uuid4()), random.SystemRandom().random(),"
        " multiprocessing.current_process().authkey.hex()])",
    )

    one, other = (ast.literal_eval(warm.output("job.py")) for _ in range(2))

    assert [a for a, b in zip(one, other, strict=True) if a == b] == []


def test_a_seed_gives_the_same_numbers_as_ever(hands: Hands, fresh: Pythons) -> None:
    warm = Pythons(hands, ["random", "numpy"])
    warm.write(
        "job.py",
        "import random, numpy\nrandom.seed(1)\nnumpy.random.seed(1)\nprint(random.random(), numpy.random.rand())",
    )

    assert warm.output("job.py") == fresh.output("job.py")


def test_libraries_with_threads_of_their_own_work_after_the_fork(hands: Hands, fresh: Pythons) -> None:
    """numpy's linear algebra ends its threads before a fork and starts them again."""
    warm = Pythons(hands, ["numpy"])
    warm.write("job.py", "import numpy\na = numpy.ones((700, 700))\nprint((a @ a).sum(), numpy.linalg.det(a))")

    attempt = warm.start("job.py")
    record = hands.record(attempt)

    assert (record["code"], warm.errors(attempt)) == (0, "")
    assert hands.log(attempt) == fresh.output("job.py")


def test_what_modules_say_and_set_while_they_are_imported_is_said_and_set_in_every_job(
    hands: Hands, fresh: Pythons
) -> None:
    fresh.write(
        "talks.py",
        "import os, sys, warnings\nprint('hello')\nprint('oh', file=sys.stderr)\nwarnings.warn('old')\n"
        "os.environ['SET_BY_TALKS'] = '1'\nos.environ.pop('GONE')\nos.environ.setdefault('KEPT', 'by talks')\n"
        "sys.path.insert(0, '/inserted')\nout = sys.stdout\nfile = open(__file__)\n",
    )
    fresh.write(
        "job.py",
        "import talks, sys, os\nprint(sys.path[:2], file=talks.out)\nprint('then')\nprint(talks.file.read(5))\n"
        "print({k: os.environ.get(k) for k in ('SET_BY_TALKS', 'GONE', 'KEPT')})",
    )
    fresh.hands.environment |= {"GONE": "x", "KEPT": "y"}
    warm = Pythons(hands, ["talks"])
    warm.output("job.py")

    assert _ending(warm, "job.py") == _ending(fresh, "job.py")


def test_a_sitecustomize_of_the_users_own_is_run_once(hands: Hands, fresh: Pythons) -> None:
    fresh.write("mine/sitecustomize.py", "import sys\nsys.mine = getattr(sys, 'mine', 0) + 1\n")
    fresh.write("job.py", "import sys, sitecustomize\nprint(sys.mine, sitecustomize.__file__)")
    hands.environment["PYTHONPATH"] = str(hands.workdir / "mine")
    warm = Pythons(hands, ["json"])

    assert warm.output("job.py") == fresh.output("job.py")


def test_the_variables_in_proc_name_the_job(hands: Hands, warm: Pythons) -> None:
    """By them its processes are found when its shim was killed."""
    warm.write("job.py", "print(open('/proc/self/environ').read().replace(chr(0), chr(10)))")

    lines = warm.output("job.py", env={"DIBS_METRICS": "/a/b/metrics", "DIBS_JOB_ID": "12"}).splitlines()

    assert {"DIBS_METRICS=/a/b/metrics", "DIBS_JOB_ID=12", f"PATH={os.environ['PATH']}"} <= set(lines)
    assert not any(line.startswith(("DIBS_WARM", "PYTHONPATH")) and "hook" not in line for line in lines)
