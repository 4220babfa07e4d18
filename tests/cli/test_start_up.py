"""What a command imports. Start-up time depends on the machine; the modules that take it do not."""

import subprocess
import sys

import pytest

from cli.fake_daemon import FakeDaemon

# Each takes milliseconds, or is needed only where jobs run.
HEAVY = {
    *("asyncio", "concurrent.futures", "ctypes", "logging", "multiprocessing", "sqlite3", "ssl", "urllib.parse"),
    *("fastapi", "numpy", "optuna", "psutil", "pydantic", "pynvml", "rich", "starlette", "uvicorn", "yaml"),
    *(
        "dibs.daemon",
        "dibs.engine",
        "dibs.foreground",
        "dibs.store",
        "dibs.policy.schedule",
        "dibs.backends",
        "dibs.build",
    ),
}
# What runs jobs, and what it is made of.
ENGINE = {
    *("ctypes", "sqlite3"),
    *("dibs.engine", "dibs.foreground", "dibs.store", "dibs.policy.schedule", "dibs.backends", "dibs.build"),
}
HELP_ONLY = HEAVY | {"dataclasses", "fractions", "json", "socket", "dibs.client", "dibs.model.jobs"}


@pytest.mark.parametrize(
    ("words", "most", "unwanted"),
    [
        ("--help", 20, HELP_ONLY),
        ("run --help", 30, HELP_ONLY),
        ("add --help", 30, HELP_ONLY),
        ("sweep --help", 30, HELP_ONLY),
        ("ls --help", 43, HELP_ONLY - {"json", "socket", "dibs.client"}),
        ("add -- true", 65, HEAVY),
        ("ls", 55, HEAVY - {"urllib.parse"} | {"dataclasses", "fractions"}),
        # It asks the driver itself, through ctypes, and shows what the engine calls a survey.
        ("gpus", 78, HEAVY - {"ctypes", "dibs.engine", "dibs.foreground"}),
        # One command needs no reader of lists, no daemon, and nothing that only an earlier run needs.
        (
            "run --gpus 0 -- true",
            162,
            HEAVY - ENGINE | {"pathlib", "shutil", "dibs.client", "dibs.inputs.sources", "dibs.sweeps"},
        ),
    ],
)
def test_a_command_imports_only_what_it_needs(
    daemon: FakeDaemon, words: str, most: int, unwanted: set[str]
) -> None:
    loaded = _loaded(f"from dibs.cli.main import dibs; dibs.main({words.split()}, standalone_mode=False)")
    own = loaded - _loaded("import click")  # its versions differ

    assert loaded & unwanted == set()
    assert len(own) <= most, sorted(own)


def test_a_run_starts_its_zygote_before_it_imports_what_runs_jobs(daemon: FakeDaemon) -> None:
    """The two interpreters import beside each other, and the first job waits for one of them only."""
    ends_there = "import sys; from dibs.supervise import launcher; launcher.Zygote.__init__ = lambda _: sys.exit()"
    words = ["run", "--gpus", "0", "--", "true"]

    loaded = _loaded(f"{ends_there}; from dibs.cli.main import dibs; dibs.main({words}, standalone_mode=False)")

    assert loaded & (ENGINE - {"ctypes"}) == set()


def test_a_shim_is_forked_from_a_process_that_has_imported_only_what_it_needs() -> None:
    loaded = _loaded("import dibs.supervise.zygote")

    # `dataclasses` alone is a sixth of its imports, through `inspect`.
    assert loaded & (HEAVY - {"ctypes"} | {"dataclasses", "inspect", "subprocess", "click", "dibs.model"}) == set()


@pytest.mark.parametrize(
    ("code", "most"), [("import dibs", 60), ("import dibs; dibs.submit", 125), ("import dibs; dibs.report", 70)]
)
def test_a_python_program_imports_only_what_it_asks_for(code: str, most: int) -> None:
    loaded = _loaded(code)

    assert loaded & HEAVY == set()
    assert len(loaded) <= most, sorted(loaded)


def _loaded(code: str) -> set[str]:
    """The modules of a fresh interpreter after this code, at its exit too: `--help` leaves by an exception."""
    code = f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())
