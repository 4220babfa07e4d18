"""The page's types are those of the API."""

import json
import runpy
import subprocess
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "web"
MAKER = WEB / "node_modules" / ".bin" / "openapi-typescript"
TO_DO = "run `python web/openapi.py && cd web && npm run types`"


def test_the_description_from_which_the_types_are_made_is_that_of_the_program():
    made = runpy.run_path(str(WEB / "openapi.py"))["text"]()

    assert (WEB / "openapi.json").read_text() == made, TO_DO


def test_every_object_of_the_api_has_a_type():
    described = json.loads((WEB / "openapi.json").read_text())["components"]["schemas"]
    types = (WEB / "src" / "api" / "schema.d.ts").read_text()

    assert [name for name in described if f" {name}: " not in types] == [], TO_DO


@pytest.mark.skipif(not MAKER.exists(), reason="the page's tools are not installed (`npm ci` in web/)")
def test_the_types_are_made_from_that_description(tmp_path: Path):
    made = tmp_path / "schema.d.ts"

    subprocess.run(
        [MAKER, WEB / "openapi.json", "-o", made], cwd=WEB, check=True, capture_output=True, timeout=120
    )

    assert (WEB / "src" / "api" / "schema.d.ts").read_text() == made.read_text(), TO_DO
