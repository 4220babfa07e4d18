"""Arrows point down: reads our imports and names the line that points up."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import dibs

SOURCE = Path(dibs.__file__).parent

BESIDE = {
    "dataclass",
    "errors",
    "fault_points",
    "files",
    "paths",
    "settings",
    "version",
    "worker_thread",
}  # beside the lowest floor: every room may use them
# Which rooms a room may use, beside those. No two rooms use each other, however many rooms lie between.
MAY_USE = {
    "model": set(),
    "policy": {"model"},
    "gpus": {"model"},
    "leases": {"model"},
    "containers": {"model"},
    "supervise": {"policy", "gpus", "model"},  # causes that a shim reads out of a log; the helper that suspends
    "backends": {"model", "supervise", "containers"},
    "store": {"model", "policy"},
    "metrics": {"model", "supervise"},
    "sweeps": {"metrics"},
    "cluster": set(),
    "simulate": {"model", "policy"},
    "inputs": {"model", "metrics"},
    "engine": {
        "model",
        "policy",
        "gpus",
        "leases",
        "backends",
        "supervise",
        "store",
        "sweeps",
        "containers",
        "metrics",
    },
    "build": {"model", "policy", "gpus", "leases", "backends", "supervise", "store", "engine", "cluster"},
    "client": {"model"},
    "foreground": {"model", "containers", "gpus", "leases", "backends", "supervise", "inputs", "engine", "build"},
    "daemon": {
        "model",
        "containers",
        "policy",
        "leases",
        "backends",
        "supervise",
        "store",
        "inputs",
        "metrics",
        "engine",
        "build",
    },
    "api": {"model", "policy", "gpus", "leases", "supervise", "inputs", "sweeps", "engine", "client"},
    "plugins": {"model", "api", "client"},
    "integrations": {"api"},
    # `doctor` reads the store, the leases and the driver where no daemon can; `gpus` shows a survey of the engine;
    # `gpus --on slurm`, `export --sbatch` and `cluster` use the Slurm backend. All of them work without a daemon.
    # `run` starts the zygote before it imports the rest.
    "cli": {
        *("model", "policy", "gpus", "leases", "backends", "supervise", "store", "sweeps", "cluster", "simulate"),
        *("inputs", "engine", "build", "client", "foreground", "daemon"),
    },
    "compat": {
        *("model", "policy", "gpus", "leases", "supervise", "sweeps", "inputs", "engine", "foreground"),
    },
    "__main__": {"cli"},
    "__init__": {"api", "plugins"},  # of the package itself: it loads what it is asked for
}
IN_JOBS = {Path("api/work.py"), Path("supervise/warm/job.py")}  # the program of a job, which gives it its own argv
# No clock, disk, process, thread or randomness. A date is a value; what makes one is not asked for it here.
PURE = {
    *(
        "bisect",
        "collections",
        "dataclasses",
        "datetime",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "itertools",
    ),
    *("math", "operator", "pytimeparse", "re", "shlex", "typing"),
}
ONLY_IN = {"sqlite3": "store", "pynvml": "gpus"}
SHIM = (
    "shim.py",
    "batch_job.py",
    "command.py",
    "container.py",
    "container_usage.py",
    "fence.py",
    "folder.py",
    "logs.py",
    "node_files.py",
    "node_sync.py",
    "script_job.py",
    "zygote.py",
    *(f"warm/{name}.py" for name in ("__init__", "start", "job", "python_line", "process")),
)  # imported by a process that outlives its package


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """All of a file's, its module first; each file is read once for all tests."""
    return tuple(ast.walk(ast.parse(file.read_text())))


@cache
def imports(source: Path) -> tuple[tuple[str, str, str], ...]:
    """`room/file.py:line`, the room it stands in, and what is imported there, wherever in the file it is."""
    return tuple(_imports(source))


def _imports(source: Path) -> Iterator[tuple[str, str, str]]:
    for file in sorted(source.rglob("*.py")):
        path = file.relative_to(source)
        room = path.parts[0].removesuffix(".py")
        for node in nodes(file):
            where = f"{path}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                for name in node.names:
                    yield where, room, name.name
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{where}: imports by its place, not by its name"
                for name in node.names:
                    # `from dibs import paths` names a room; `from dibs.paths import boot_id` does already.
                    yield where, room, f"dibs.{name.name}" if node.module == "dibs" else str(node.module)


def wrong_arrows(source: Path) -> list[str]:
    """Every import that points up, or sideways where it may not."""
    found = []
    for where, room, target in imports(source):
        parts = target.split(".")
        if parts[0] != "dibs" or len(parts) == 1 or parts[1] == room:
            continue
        other = parts[1]
        assert other in BESIDE or other in MAY_USE, f"{where}: the room {other} is not known"
        if other in BESIDE - {room} and (room not in BESIDE or other in ("dataclass", "errors")):
            continue
        if other not in MAY_USE.get(room, ()):
            found.append(f"{where}: {room} may not import {target}")
    return found


def module_imports(source: Path) -> dict[str, set[str]]:
    """Each module, and ours that it imports when the program runs: in functions too, and by their names."""
    files = {file: file.relative_to(source.parent).with_suffix("").parts for file in source.rglob("*.py")}
    names = {file: ".".join(parts).removesuffix(".__init__") for file, parts in files.items()}
    known = set(names.values())

    def found(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            inside = [f"{node.module}.{name.name}" for name in node.names]
            yield from (name if name in known else str(node.module) for name in inside)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            yield node.value.partition(":")[0]  # `dibs.cli.run:run`, which is loaded when it is used
        for child in ast.iter_child_nodes(node):
            yield from found(child)

    return {name: known & set(found(nodes(file)[0])) - {name} for file, name in names.items()}


def test_every_arrow_points_down():
    assert wrong_arrows(SOURCE) == []


def test_no_two_rooms_use_each_other():
    list(TopologicalSorter(MAY_USE).static_order())  # raises CycleError with the rooms of a circle


def test_no_module_imports_itself_by_way_of_others():
    graph = module_imports(SOURCE)

    list(TopologicalSorter(graph).static_order())  # raises CycleError with the modules of a circle
    assert "dibs.api.submit" in graph["dibs"] and "dibs.cli.run" in graph["dibs.cli.main"]


def test_the_table_has_every_room_and_no_other():
    rooms = {path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix in ("", ".py")}

    assert rooms - {"__pycache__"} == MAY_USE.keys() | BESIDE


def test_every_arrow_of_the_table_is_in_use():
    used = {(room, target.split(".")[1]) for _, room, target in imports(SOURCE) if target.startswith("dibs.")}
    named = {(room, other) for room, others in MAY_USE.items() for other in others}

    assert named - used == set()


def test_a_turn_is_decided_without_a_store_a_lease_a_backend_or_a_clock():
    found = [
        f"{where}: {target}"
        for where, _, target in imports(SOURCE)
        if where.startswith("engine/turn/")
        and not f"{target}.".startswith(("dibs.dataclass.", "dibs.model.", "dibs.policy.", "dibs.engine.turn."))
        and target.split(".")[0] not in PURE
    ]

    assert found == []
    assert (SOURCE / "engine/turn/decide.py").exists()


@pytest.mark.parametrize(
    ("file", "line", "found"),
    [
        (
            "policy/a.py",
            "from dibs.engine.engine import Engine",
            "policy/a.py:2: policy may not import dibs.engine.engine",
        ),
        ("store/a.py", "import dibs.gpus.pool", "store/a.py:2: store may not import dibs.gpus.pool"),
        ("errors.py", "from dibs.model import jobs", "errors.py:2: errors may not import dibs.model"),
        ("model/a.py", "def f():\n    from dibs import store", "model/a.py:3: model may not import dibs.store"),
        ("cli/a.py", "from dibs.compat import hog", "cli/a.py:2: cli may not import dibs.compat"),
        ("backends/a.py", "from dibs.supervise import folder", None),
        ("engine/a.py", "from dibs import paths, version", None),
    ],
)
def test_a_line_that_points_up_is_named(tmp_path, file, line, found):
    wrong = tmp_path / file
    wrong.parent.mkdir(exist_ok=True)
    wrong.write_text(f'"""A room."""\n{line}\n')

    assert wrong_arrows(tmp_path) == ([found] if found else [])


def test_the_rooms_that_think_import_nothing_of_the_world():
    found = [
        f"{where}: {target}"
        for where, room, target in imports(SOURCE)
        if room in ("model", "policy") and target.split(".")[0] not in PURE | {"dibs"}
    ]

    assert found == []


@pytest.mark.parametrize("module", ["sqlite3", "pynvml"])
def test_only_one_room_knows_it(module):
    rooms = {room for _, room, target in imports(SOURCE) if target.split(".")[0] == module}

    assert rooms == {ONLY_IN[module]}


def test_a_shim_imports_the_standard_library_and_itself_only():
    ours = {f"dibs.supervise.{name.removesuffix('.py').replace('/', '.')}" for name in SHIM}
    allowed = ours | {"dibs.supervise", "dibs.policy.causes"}
    files = {f"supervise/{name}" for name in SHIM}

    found = [
        f"{where}: {target}"
        for where, _, target in imports(SOURCE)
        if where.rpartition(":")[0] in files
        and target not in allowed
        and target.split(".")[0] not in sys.stdlib_module_names
    ]

    assert found == []
    assert all((SOURCE / "supervise" / name).exists() for name in SHIM)


def test_a_dataclass_is_made_by_our_own_decorator():
    """The standard library's takes ten times as long. A shim imports nothing of ours that it does not need."""
    found = []
    for file in sorted(SOURCE.rglob("*.py")):
        path = file.relative_to(SOURCE).as_posix()
        for node in nodes(file):
            if isinstance(node, ast.ImportFrom) and node.module == "dataclasses":
                found += [path for name in node.names if name.name == "dataclass"]

    assert set(found) - {"dataclass.py", *(f"supervise/{name}" for name in SHIM)} == set()


def test_only_the_faces_know_argv():
    found = []
    for file in sorted(SOURCE.rglob("*.py")):
        room = file.relative_to(SOURCE).parts[0]
        for node in nodes(file):
            is_argv = isinstance(node, ast.Attribute) and node.attr == "argv" and isinstance(node.value, ast.Name)
            if (
                is_argv
                and node.value.id == "sys"
                and room not in ("cli", "compat")
                and file.relative_to(SOURCE) not in IN_JOBS
            ):
                found.append(f"{file.relative_to(SOURCE)}:{node.lineno}")

    assert found == []
    assert not [where for where, room, target in imports(SOURCE) if target == "sys.argv"]


def test_only_the_helper_that_suspends_asks_the_driver_of_the_cards():
    """A shim outlives its package, and the engine's own thread never waits for a driver."""
    files = {
        where.partition(":")[0]
        for where, room, target in imports(SOURCE)
        if room == "supervise" and target.startswith("dibs.gpus.")
    }

    assert files == {"supervise/suspender.py", "supervise/suspension_steps.py"}
