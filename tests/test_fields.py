"""The table of fields is the only place where a field of a job is declared."""

import ast
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from dibs.client.adding import difference
from dibs.daemon.schemas.requests import apply
from dibs.inputs.wishes import LISTED, WORDS, read_field
from dibs.model import fields as table
from dibs.model.fields import BY_KEY, BY_WORD, FIELDS, Kind, Verb, fields_of
from dibs.model.jobs import NOTHING, Command, Request, Wishes, request_json
from dibs.store.codec import decode_request, encode_request
from field_samples import everything
from generated_fields import BY, GENERATED, ROOT

PLAIN = Request(command=Command((), ""))
MOST_FILES = 6  # the row, the dataclass, what acts on it, and its places on the page


@pytest.mark.parametrize("path", GENERATED)
def test_what_is_made_from_the_table_is_the_golden_one(path: str) -> None:
    text = GENERATED[path]()

    if os.environ.get("DIBS_BLESS"):
        (ROOT / path).write_text(text)
    assert text == (ROOT / path).read_text(), "`make bless` rewrites it"


def test_a_field_is_named_in_few_files_that_are_written_by_hand() -> None:
    sources = [
        *(ROOT / "src").rglob("*.py"),
        *(path for path in (ROOT / "web" / "src").rglob("*.ts*") if path.name != "schema.d.ts"),
    ]

    named = [
        str(path.relative_to(ROOT))
        for path in sources
        if re.search(r"\brestartable\b", text := path.read_text()) and BY not in text
    ]

    assert len(named) <= MOST_FILES, sorted(named)


def test_every_field_has_a_row_with_its_default() -> None:
    declared = {field.name for shape in (Request, Wishes) for field in fields(shape)} - {"command", "wishes"}

    assert {field.name for field in BY_KEY.values()} == declared
    assert {field.name: field.value_in(PLAIN) for field in BY_KEY.values()} == {
        field.name: field.default for field in BY_KEY.values()
    }


def test_words_keys_and_flags_name_one_field_each() -> None:
    flags = [flag for field in FIELDS for flag in (*field.flags, field.negative) if flag]

    assert len(BY_WORD) == len([field for field in FIELDS if field.word])
    assert len(set(flags)) == len(flags)
    assert len(BY_KEY) == len({field.name for field in BY_KEY.values()})
    assert set(request_json(PLAIN)) == set(BY_KEY)


def test_the_page_of_the_plugins_names_every_field_that_they_take() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text()

    assert [field.word for field in fields_of(Verb.HYDRA) if f"`{field.word}`" not in page] == []
    assert [field.word for field in fields_of(Verb.SUBMITIT) if f"`dibs_{field.word}`" not in page] == []


def test_every_sentence_is_one() -> None:
    assert [field.word for field in FIELDS if not re.fullmatch(r"[A-Z-].*\.", field.sentence)] == []


def test_everything_that_add_sets_can_be_edited() -> None:
    added, edited = ({field.word for field in fields_of(verb)} for verb in (Verb.ADD, Verb.EDIT))

    assert (added - edited, edited - added) == ({"array"}, {"array_limit"})


def test_every_field_that_people_write_can_be_read() -> None:
    from dibs.errors import BadInput

    for field in FIELDS:
        if field.word and field.kind not in (Kind.COMMAND, Kind.ARRAY, Kind.DEPENDENCIES):
            with pytest.raises(BadInput):
                read_field(field, object())
    assert set(LISTED) == set(WORDS)


def test_a_wish_in_every_field_travels_to_the_daemon_and_into_the_store() -> None:
    wanted = everything()

    assert [field.name for field in BY_KEY.values() if field.value_in(wanted) == field.default] == []
    assert decode_request(encode_request(wanted)) == wanted
    assert apply(PLAIN, difference(wanted, NOTHING)) == wanted


def test_the_table_imports_the_standard_library_only() -> None:
    tree = ast.parse(Path(table.__file__).read_text())

    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    assert imported <= sys.stdlib_module_names
    assert not any(isinstance(node, ast.Import) for node in ast.walk(tree))


def test_adding_a_job_loads_no_reader_that_it_does_not_need() -> None:
    said = "import sys, dibs.cli.add; print('dibs.inputs.wishes' in sys.modules, 'pydantic' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)

    assert done.stdout == "False False\n"
