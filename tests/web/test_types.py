"""The page's types are those of the API."""

import json
import runpy
from pathlib import Path

from web.building import WEB, install_tools, npm

TO_DO = "run `python web/openapi.py && cd web && npm run types`"


def test_the_description_from_which_the_types_are_made_is_that_of_the_program():
    made = runpy.run_path(str(WEB / "openapi.py"))["text"]()

    assert (WEB / "openapi.json").read_text() == made, TO_DO


def test_every_object_of_the_api_has_a_type():
    described = json.loads((WEB / "openapi.json").read_text())["components"]["schemas"]
    types = (WEB / "src" / "api" / "schema.d.ts").read_text()

    assert [name for name in described if f" {name}: " not in types] == [], TO_DO


def test_the_types_are_made_from_that_description(tmp_path: Path):
    install_tools()
    made = tmp_path / "schema.d.ts"

    npm("exec", "--", "openapi-typescript", "openapi.json", "-o", str(made))

    assert (WEB / "src" / "api" / "schema.d.ts").read_text() == made.read_text(), TO_DO
