"""Imports that no type checker sees: libraries are declared in pyproject.toml, and scripts import what exists."""

import ast
import importlib
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = {"dibs", "hydra_plugins"}
_IMPORT = r"from (dibs(?:\.\w+)*) import (?:\(([^)]*)\)|([^\n;#]*))"
# A part of Hydra's interface; and what a program that uses a callback of dibs.integrations has itself.
OF_OTHERS = {"pandas", "omegaconf", "lightning", "pytorch_lightning", "transformers", "keras", "torch", "mlflow"}


def imported(source: Path) -> dict[str, str]:
    """The top-level module of every import, and one place where it is."""
    found: dict[str, str] = {}
    for file in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                found.setdefault(name.split(".")[0], f"{file.relative_to(source)}:{node.lineno}")
    return found


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for name, lines in project["optional-dependencies"].items() if name != "dev" for line in lines]
    return {normal(re.split(r"[<>=\[; ]", line)[0]) for line in [*project["dependencies"], *extras]}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_library_that_is_imported_is_declared():
    distributions = packages_distributions()
    modules = {
        name: where
        for name, where in imported(ROOT / "src").items()
        if name not in sys.stdlib_module_names and name not in OURS | OF_OTHERS
    }

    missing = {
        name: where
        for name, where in modules.items()
        if not {normal(one) for one in distributions.get(name, [name])} & declared()
    }

    assert missing == {}


def test_what_scripts_and_the_makefile_import_of_dibs_is_there() -> None:
    scripts = [
        path for room in ("bench", "docs", "web", "examples") for path in sorted((ROOT / room).glob("*.py"))
    ]

    found = [
        (path.name, module, name.split(" as ")[0].strip())
        for path in (ROOT / "Makefile", *scripts)
        for module, listed, plain in re.findall(_IMPORT, path.read_text())
        for name in (listed or plain).split(",")
        if name.strip()
    ]

    assert ("Makefile", "dibs.gpus.detect", "find_probe") in found
    missing = [one for one in found if not hasattr(importlib.import_module(one[1]), one[2])]
    assert missing == []
