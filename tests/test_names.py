"""One word, one thing: a public class name exists once in the whole package."""

import ast
from collections import defaultdict
from pathlib import Path

import dibs

SOURCE = Path(dibs.__file__).parent
# `dibs.Job`, what people hold in Python, and the job of the model behind it; a callback each for three libraries.
TWICE = {"Job", "DibsCallback"}


def test_a_public_class_name_exists_once():
    found = defaultdict(list)
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(f"{file.relative_to(SOURCE)}:{node.lineno}")

    doubles = {name: places for name, places in found.items() if len(places) > 1}
    assert doubles.keys() == TWICE, doubles
