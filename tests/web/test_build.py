"""The page in the package is the one that its source makes, and it is small."""

import gzip
import re
from pathlib import Path

import pytest

from web.building import BUILT, install_tools, npm

TO_DO = "run `make page` and commit what it changes"
FIRST_LOAD = 70_000  # bytes of JavaScript, packed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page, built anew."""
    install_tools()
    folder = tmp_path_factory.mktemp("made") / "page"
    npm("run", "build", "--", "--outDir", str(folder))
    return folder


def test_the_page_in_the_package_is_built_from_this_source(made: Path):
    assert _files(BUILT) == _files(made), TO_DO
    assert [name for name in _files(made) if (BUILT / name).read_bytes() != (made / name).read_bytes()] == [], (
        TO_DO
    )


def test_the_first_load_is_small(made: Path):
    index = (made / "index.html").read_text()
    wanted = re.findall(r'<(?:script[^>]*src|link rel="modulepreload"[^>]*href)="\./([^"]+)"', index)
    assert wanted

    seen = _with_imports(made, wanted)

    packed = {name: len(gzip.compress((made / name).read_bytes(), 9)) for name in seen}
    assert sum(packed.values()) <= FIRST_LOAD, packed


def test_nothing_in_the_page_names_another_host(made: Path):
    # Names of XML's vocabularies look like addresses, but are never fetched.
    harmless = re.compile(r"https?://(www\.w3\.org/|preactjs\.com|127\.0\.0\.1)")
    found = {
        match.group()
        for name in _files(made)
        if name.endswith((".js", ".css", ".html", ".svg"))
        for match in re.finditer(r"https?://[\w.-]+/?", (made / name).read_text())
    }
    assert {one for one in found if not harmless.match(one)} == set()


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _with_imports(made: Path, names: list[str]) -> set[str]:
    """These modules and all that they import at once; what is imported later stands in a call."""
    seen: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        text = (made / name).read_text()
        folder = Path(name).parent
        imports = re.findall(r'(?:\bfrom|\bimport)\s*["`]\./([\w.-]+\.js)["`]', text)
        left += [str(folder / found) for found in imports]
    return seen
